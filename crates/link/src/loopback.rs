//! Frames within one process: back to the stack that sent them, or between two
//! stacks, each driven by a thread of its own.
//!
//! The link owns copies of the frames in flight, in bounded queues with recycled
//! buffers. Like a cable, it passes every frame on without looking at addresses.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toehold_shm::{Doorbell, Gather};

use crate::{Capabilities, Link, MIN_PRIVATE, Offload, Received, Transmit, TransmitError, Transmitter};

/// Longest header in front of an IP packet: Ethernet with two VLAN tags.
const MAX_LINK_HEADER: usize = 22;

/// Settings of a loopback link.
#[derive(Debug, Clone, Copy)]
pub struct LoopbackSettings {
    /// Capabilities that [`Link::capabilities`] reports. Frames longer than `mtu`
    /// (`super_frame` for those with a segment size) are refused.
    pub capabilities: Capabilities,
    /// Most frames in flight in one direction.
    pub frames: usize,
    /// Number of bytes passed as [`Received::private`], at least [`MIN_PRIVATE`].
    /// Further bytes come as [`Received::rest`].
    pub private: usize,
}

impl Default for LoopbackSettings {
    fn default() -> Self {
        LoopbackSettings {
            capabilities: Capabilities {
                mtu: 1500,
                super_frame: 65_535,
                checksum_offload: true,
                local: true,
                any_thread: true,
            },
            frames: 1024,
            private: MIN_PRIVATE,
        }
    }
}

/// One end of a link within a process.
#[derive(Debug)]
pub struct Loopback {
    settings: LoopbackSettings,
    address: [u8; 6],
    outgoing: Arc<Direction>,
    incoming: Arc<Direction>,
    /// Sent frames that are not yet flushed.
    staged: Vec<Frame>,
    /// Frames taken from `incoming` and not yet passed on.
    arrived: VecDeque<Frame>,
    spare: Vec<Vec<u8>>,
    /// Whether the other end is gone.
    unplugged: bool,
}

#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    offload: Offload,
}

#[derive(Debug)]
struct Direction {
    queue: Mutex<Queue>,
    /// Length of the queue, for reading without the lock.
    len: AtomicUsize,
    /// Doorbell of a sleeping receiver. `None` where sender and receiver are
    /// one.
    doorbell: Option<Doorbell>,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Frame>,
    sleeping: bool,
    closed: bool,
}

impl Direction {
    fn new(doorbell: Option<Doorbell>) -> Arc<Direction> {
        Arc::new(Direction {
            queue: Mutex::default(),
            len: AtomicUsize::new(0),
            doorbell,
        })
    }

    /// A panic elsewhere leaves the queue intact: no operation here stops
    /// half-way.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loopback {
    /// Creates a link that returns every frame to its sender.
    pub fn new(address: [u8; 6], settings: LoopbackSettings) -> Loopback {
        let direction = Direction::new(None);
        Loopback::end(address, settings, direction.clone(), direction)
    }

    /// Creates the two ends of a cable, which two threads may drive. Each end has
    /// its own doorbell.
    ///
    /// # Errors
    ///
    /// If the process has no file descriptor left for the doorbells.
    pub fn pair(addresses: [[u8; 6]; 2], settings: LoopbackSettings) -> io::Result<(Loopback, Loopback)> {
        let forth = Direction::new(Some(Doorbell::new()?));
        let back = Direction::new(Some(Doorbell::new()?));
        Ok((
            Loopback::end(addresses[0], settings, forth.clone(), back.clone()),
            Loopback::end(addresses[1], settings, back, forth),
        ))
    }

    fn end(
        address: [u8; 6],
        mut settings: LoopbackSettings,
        outgoing: Arc<Direction>,
        incoming: Arc<Direction>,
    ) -> Loopback {
        settings.private = settings.private.max(MIN_PRIVATE);
        Loopback {
            settings,
            address,
            outgoing,
            incoming,
            staged: Vec::new(),
            arrived: VecDeque::new(),
            spare: Vec::new(),
            unplugged: false,
        }
    }

    fn longest(&self, offload: Offload) -> usize {
        let Capabilities { mtu, super_frame, .. } = self.settings.capabilities;
        let packet = if offload.segment_size == 0 {
            usize::from(mtu)
        } else {
            super_frame as usize
        };
        packet + MAX_LINK_HEADER
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.flush();
        self.incoming.lock().closed = true;
    }
}

impl Transmitter for Loopback {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        if frame.len() > self.longest(frame.offload) {
            return Err(TransmitError::TooLong);
        }
        if self.unplugged {
            return Err(TransmitError::Unreachable);
        }
        if self.staged.len() + self.outgoing.len.load(Ordering::Relaxed) >= self.settings.frames {
            return Err(TransmitError::Full);
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        copy_frame(frame, &mut bytes);
        self.staged.push(Frame {
            bytes,
            offload: frame.offload,
        });
        Ok(())
    }
}

/// Makes `bytes` a contiguous copy of the frame.
pub(crate) fn copy_frame(frame: &Transmit<'_>, bytes: &mut Vec<u8>) {
    // Old content is overwritten, which is cheaper than clearing it first.
    bytes.resize(frame.len(), 0);
    let (headers, payload) = bytes.split_at_mut(frame.headers.len());
    headers.copy_from_slice(frame.headers);
    frame.payload.copy_to(0, payload);
}

impl Link for Loopback {
    fn capabilities(&self) -> Capabilities {
        self.settings.capabilities
    }

    fn address(&self) -> [u8; 6] {
        self.address
    }

    fn receive(&mut self, _now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        if self.arrived.len() < budget && self.incoming.len.load(Ordering::Acquire) != 0 {
            let mut queue = self.incoming.lock();
            self.arrived.append(&mut queue.frames);
            self.incoming.len.store(0, Ordering::Relaxed);
        }
        let count = self.arrived.len().min(budget);
        for frame in self.arrived.drain(..count) {
            let (private, rest) = frame.bytes.split_at(frame.bytes.len().min(self.settings.private));
            handler(&Received {
                private,
                rest: Gather::from_slice(rest),
                offload: frame.offload,
            });
            if self.spare.len() < self.settings.frames {
                self.spare.push(frame.bytes);
            }
        }
        count
    }

    fn flush(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        let mut queue = self.outgoing.lock();
        if queue.closed {
            self.unplugged = true;
            self.staged.clear();
            return;
        }
        queue.frames.extend(self.staged.drain(..));
        self.outgoing.len.store(queue.frames.len(), Ordering::Release);
        let wake = std::mem::take(&mut queue.sleeping);
        drop(queue);
        if let (true, Some(doorbell)) = (wake, &self.outgoing.doorbell) {
            doorbell.ring();
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.incoming.doorbell.as_ref().map(|doorbell| doorbell.as_fd())
    }

    fn prepare_sleep(&mut self) -> bool {
        self.flush();
        let mut queue = self.incoming.lock();
        queue.sleeping = queue.frames.is_empty() && self.arrived.is_empty();
        queue.sleeping
    }

    fn finish_sleep(&mut self, _now_ns: u64) {
        self.incoming.lock().sleeping = false;
        if let Some(doorbell) = &self.incoming.doorbell {
            doorbell.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::Checksum;
    use crate::test_frames::{PARTIAL, frame_to, receive_all, send, whole};

    const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn readable(link: &Loopback, seconds: i64) -> bool {
        let descriptor = link.descriptor().expect("an end of a pair has a doorbell");
        let timeout = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        poll(
            &mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)],
            Some(&timeout),
        )
        .unwrap()
            == 1
    }

    #[test]
    fn frames_return_in_order_after_flush() {
        let mut link = Loopback::new(A, LoopbackSettings::default());
        for number in 0..10 {
            send(&mut link, &frame_to(A, A, &[number; 300]), PARTIAL).unwrap();
        }
        assert!(receive_all(&mut link, 0).is_empty());
        link.flush();
        let mut seen = 0;
        let mut take = |frame: &Received<'_>| {
            assert_eq!(frame.private.len(), MIN_PRIVATE);
            assert_eq!(frame.offload, PARTIAL);
            assert_eq!(whole(frame), frame_to(A, A, &[seen; 300]));
            seen += 1;
        };
        assert_eq!(link.receive(0, 4, &mut take), 4);
        assert_eq!(link.receive(0, 100, &mut take), 6);
        assert_eq!(link.receive(0, 100, &mut take), 0);
    }

    #[test]
    fn limits_are_kept() {
        let settings = LoopbackSettings {
            frames: 3,
            ..LoopbackSettings::default()
        };
        let mut link = Loopback::new(A, settings);
        assert_eq!(
            send(&mut link, &[0; 1523], Offload::default()),
            Err(TransmitError::TooLong)
        );
        let super_frame = Offload {
            checksum: Checksum::Partial,
            segment_size: 1460,
        };
        assert_eq!(send(&mut link, &[0; 1523], super_frame), Ok(()));
        assert_eq!(
            send(&mut link, &[0; 65_558], super_frame),
            Err(TransmitError::TooLong)
        );
        assert_eq!(send(&mut link, &[0; 60], PARTIAL), Ok(()));
        link.flush();
        assert_eq!(send(&mut link, &[0; 60], PARTIAL), Ok(()));
        assert_eq!(send(&mut link, &[0; 60], PARTIAL), Err(TransmitError::Full));
        assert_eq!(receive_all(&mut link, 0).len(), 2);
        assert_eq!(send(&mut link, &[0; 60], PARTIAL), Ok(()));
    }

    #[test]
    fn dropped_end_makes_other_unreachable() {
        let (mut a, b) = Loopback::pair([A, B], LoopbackSettings::default()).unwrap();
        send(&mut a, &[1; 60], PARTIAL).unwrap();
        drop(b);
        a.flush();
        assert_eq!(send(&mut a, &[1; 60], PARTIAL), Err(TransmitError::Unreachable));
    }

    #[test]
    fn sleeper_is_woken_without_lost_wake_up() {
        let (mut a, mut b) = Loopback::pair([A, B], LoopbackSettings::default()).unwrap();
        let echo = std::thread::spawn(move || {
            let mut echoed = 0;
            while echoed < 2000 {
                let frames = receive_all(&mut b, 0);
                echoed += frames.len();
                frames
                    .iter()
                    .for_each(|frame| send(&mut b, frame, PARTIAL).unwrap());
                b.flush();
                if echoed < 2000 && b.prepare_sleep() {
                    assert!(readable(&b, 20), "no wake-up");
                    b.finish_sleep(0);
                }
            }
        });
        for number in 0..2000u16 {
            let frame = frame_to(B, A, &number.to_be_bytes());
            send(&mut a, &frame, PARTIAL).unwrap();
            a.flush();
            loop {
                if let [answer] = &receive_all(&mut a, 0)[..] {
                    assert_eq!(*answer, frame);
                    break;
                }
                if a.prepare_sleep() {
                    assert!(readable(&a, 20), "no wake-up");
                    a.finish_sleep(0);
                }
            }
        }
        echo.join().unwrap();
    }
}
