//! Frames from the kernel, carried to the node's fabric by a thread of the engine.
//!
//! A frame is read without the lease and sent with it: the lease is never held for longer than one
//! frame takes to be copied. If a peer leaves no room, the thread waits a little. The kernel's
//! connections are held up by their own queues, as by a slow cable. For a peer that does not come
//! back it does so once only.

use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use toehold_link::tap::{Tap, TapDescription, TapError};
use toehold_link::{Link, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::Doorbell;
use toehold_stack::FromKernel;

use crate::shards::OneShard;
use crate::wait::Gone;

/// How long a frame waits for room.
const PATIENCE: Duration = Duration::from_millis(50);

/// Time between two tries.
const TRY_AGAIN: Duration = Duration::from_micros(200);

/// Frames between two looks whether the thread has to end.
const BURST: usize = 64;

/// Peers that are known not to leave room, at most: as many as a node can have.
const MAX_STUCK: usize = 128;

/// The kernel's end of the cable, read by one thread.
pub(crate) struct Inlet {
    tap: Tap,
    carrier: Carrier,
    /// Frames that could not be understood, as far as they were told.
    malformed: u64,
}

/// The rest of the cable.
struct Carrier {
    /// The shard through whose port all goes; the port picks the peer's shard.
    shard: OneShard,
    /// Rung to end the thread.
    stop: Doorbell,
    /// Peers that had no room for a frame that waited for it.
    stuck: BTreeSet<[u8; 6]>,
}

impl Inlet {
    pub(crate) fn new(
        descriptor: OwnedFd,
        description: TapDescription,
        shard: OneShard,
        stop: Doorbell,
    ) -> Result<Inlet, TapError> {
        Ok(Inlet {
            tap: Tap::from_parts(descriptor, description)?,
            carrier: Carrier {
                shard,
                stop,
                stuck: BTreeSet::new(),
            },
            malformed: 0,
        })
    }

    /// Carries frames until told to end, or until the shard is gone.
    pub(crate) fn run(mut self) {
        // Of a device that was deleted there is nothing left to wait for.
        while !self.carrier.rest(self.tap.descriptor(), None) {
            if self.carry().is_err() {
                return;
            }
        }
    }

    /// Carries the frames that wait, one burst at most.
    fn carry(&mut self) -> Result<(), Gone> {
        let Self { tap, carrier, .. } = self;
        for _ in 0..BURST {
            let mut carried = Ok(());
            let frames = tap.receive(0, 1, &mut |frame| carried = carrier.carry(frame));
            carried?;
            if frames == 0 {
                return self.count_malformed();
            }
        }
        Ok(())
    }

    fn count_malformed(&mut self) -> Result<(), Gone> {
        let counted = self.tap.statistics();
        let malformed = counted.bad_headers + counted.bad_length;
        if malformed != self.malformed {
            let more = malformed - self.malformed;
            self.malformed = malformed;
            let mut shard = self.carrier.shard.lease.lock()?;
            shard.stack.count_from_kernel(FromKernel::Malformed(more));
        }
        Ok(())
    }
}

impl Carrier {
    /// Sleeps until the device has a frame, or for a span at most. Returns `true` if the thread is
    /// to end.
    fn rest(&self, device: Option<BorrowedFd<'_>>, span: Option<Duration>) -> bool {
        let mut waits = vec![PollFd::new(&self.stop, PollFlags::IN)];
        waits.extend(device.map(|device| PollFd::from_borrowed_fd(device, PollFlags::IN)));
        let span = span.map(|span| Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(span.subsec_nanos()),
        });
        // A signal ends the sleep early, which does no harm.
        let _ = poll(&mut waits, span.as_ref());
        waits.first().is_some_and(|stop| !stop.revents().is_empty())
    }

    /// Sends one frame, as it is, as soon as there is room.
    fn carry(&mut self, frame: &Received<'_>) -> Result<(), Gone> {
        let frame = Transmit {
            headers: frame.private,
            payload: &frame.rest,
            offload: frame.offload,
        };
        let destination = frame.headers.first_chunk().copied().unwrap_or_default();
        let mut begun = None;
        loop {
            let mut shard = self.shard.lease.lock()?;
            let sent = shard.link.transmit(&frame);
            let is_full = sent == Err(TransmitError::Full) && !self.stuck.contains(&destination);
            if !is_full || begun.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                shard.link.flush();
                shard.stack.count_from_kernel(match sent {
                    Ok(()) => FromKernel::Sent(frame.len()),
                    Err(error) => FromKernel::NotSent(error),
                });
                drop(shard);
                self.remember(destination, sent);
                return Ok(());
            }
            drop(shard);
            if self.rest(None, Some(TRY_AGAIN)) {
                return Ok(());
            }
        }
    }

    /// Notes destinations for which it is in vain to wait.
    fn remember(&mut self, destination: [u8; 6], sent: Result<(), TransmitError>) {
        if sent != Err(TransmitError::Full) {
            self.stuck.remove(&destination);
        } else if self.stuck.len() < MAX_STUCK {
            self.stuck.insert(destination);
        }
    }
}
