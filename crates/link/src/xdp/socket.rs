//! A socket of one queue of an interface, with the memory for its frames.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with, sockopt,
};
use toehold_shm::{Gather, KernelMemory};

use super::XdpStatistics;
use super::ring::{DESCRIPTOR, PLACE, Ring};
use crate::layout::private_len;
use crate::{MIN_PRIVATE, Transmit};

/// Number of buffers for received frames, and of buffers for sent ones.
const PLACES: u32 = 1024;
/// Bytes that the kernel keeps free before a frame.
pub(super) const HEADROOM: usize = 256;
/// Length of the shortest frame on a wire, without its checksum.
const SHORTEST: usize = 60;
/// Most system calls in a row that send. In copy mode, each sends 32 frames.
const MAX_CALLS: u32 = PLACES / 32 + 1;

/// Longest wait for a queue whose former socket is closed. The kernel frees the
/// queue only some time later.
const PATIENCE: Duration = Duration::from_millis(500);
const BETWEEN_TRIES: Duration = Duration::from_millis(1);

/// Whether the driver reads and writes frames in place.
pub(super) type ZeroCopy = bool;

/// An AF_XDP socket.
#[derive(Debug)]
pub(super) struct Socket {
    descriptor: OwnedFd,
    frames: KernelMemory,
    fill: Ring,
    completion: Ring,
    receive: Ring,
    transmit: Ring,
    /// Offsets of free buffers for sending.
    free: Vec<u64>,
    /// Length of a buffer in bytes.
    place: usize,
    /// Whether the ring has entries that are not published to the kernel.
    unpublished: bool,
    /// Private copy of the current frame's beginning.
    private: Vec<u8>,
}

/// The failed step and its error.
pub(super) type Failure = (&'static str, Errno);

impl Socket {
    /// Opens a socket in the namespace of the calling thread. `place` is the length
    /// of a buffer, 2048 or 4096.
    pub(super) fn open(
        interface: u32,
        queue: u32,
        place: usize,
        zero_copy: ZeroCopy,
    ) -> Result<Socket, Failure> {
        let failed = |action| move |error| (action, error);
        let descriptor = socket_with(
            AddressFamily::XDP,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(failed("open a socket"))?;
        let frames =
            KernelMemory::new(2 * PLACES as usize * place).map_err(failed("make memory for frames"))?;
        let memory = XdpUmemReg {
            addr: frames.address(),
            len: frames.len() as u64,
            chunk_size: place as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&descriptor, memory).map_err(failed("take memory for frames"))?;
        let [fill, completion, receive, transmit] =
            rings(descriptor.as_fd()).map_err(failed("make rings"))?;
        let mut socket = Socket {
            descriptor,
            frames,
            fill,
            completion,
            receive,
            transmit,
            free: (u64::from(PLACES)..2 * u64::from(PLACES))
                .map(|number| number * place as u64)
                .collect(),
            place,
            unpublished: false,
            private: Vec::new(),
        };
        for number in 0..u64::from(PLACES) {
            socket.fill.put(number * place as u64, 0);
        }
        socket.fill.publish();
        let copy = match zero_copy {
            true => SocketAddrXdpFlags::XDP_ZEROCOPY,
            false => SocketAddrXdpFlags::XDP_COPY,
        };
        let flags = copy | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        bind_when_free(&socket.descriptor, &SocketAddrXdp::new(flags, interface, queue))
            .map_err(failed("give a queue to a socket"))?;
        Ok(socket)
    }

    /// Returns the number of frames that the kernel dropped for lack of a buffer or
    /// an entry.
    pub(super) fn drops(&self) -> u64 {
        let counted = sockopt::xdp_statistics(&self.descriptor);
        counted.map_or(0, |counted| {
            counted.rx_dropped + counted.rx_ring_full.unwrap_or(0)
        })
    }

    /// Takes up to `budget` frames and returns their number. The handler gets each
    /// frame's beginning in private memory, and the rest in place.
    pub(super) fn receive(
        &mut self,
        budget: usize,
        statistics: &mut XdpStatistics,
        handler: &mut dyn FnMut(&[u8], Gather<'_>),
    ) -> usize {
        let mut count = 0;
        let mut private = std::mem::take(&mut self.private);
        while count < budget {
            let Some((at, len)) = self.receive.take() else {
                break;
            };
            count += 1;
            let (from, len) = (at as usize, len as usize);
            match self.frames.gather(from, len) {
                Some(frame) => {
                    private.resize(len.min(MIN_PRIVATE), 0);
                    frame.copy_to(0, &mut private);
                    let wanted = private_len(&private, len);
                    if wanted > private.len() {
                        private.resize(wanted, 0);
                        frame.copy_to(0, &mut private);
                    }
                    handler(&private, frame.slice(private.len(), len - private.len()));
                }
                None => statistics.bad_length += 1,
            }
            // There are as many entries as buffers.
            self.fill.put(at - at % self.place as u64, 0);
        }
        self.private = private;
        if count != 0 {
            self.receive.release();
            self.fill.publish();
            if self.fill.needs_wakeup() {
                statistics.calls += 1;
                let _ = recv(&self.descriptor, &mut [0u8; 0][..], RecvFlags::DONTWAIT);
            }
        }
        count
    }

    /// Puts a frame into a buffer, to be sent with the next flush. Returns `false`
    /// if none is free.
    pub(super) fn transmit(&mut self, frame: &Transmit<'_>, statistics: &mut XdpStatistics) -> bool {
        if self.free.is_empty() {
            self.reclaim();
        }
        if self.free.is_empty() {
            self.flush(statistics);
            self.reclaim();
        }
        let Some(place) = self.free.pop() else {
            return false;
        };
        let (at, len) = (place as usize, frame.len());
        let mut whole = self.frames.write(at, frame.headers)
            && self.frames.write_gather(at + frame.headers.len(), frame.payload);
        if len < SHORTEST {
            // Not every driver pads, and old bytes of the buffer must not leak to
            // the receiver.
            whole &= self.frames.write(at + len, &[0; SHORTEST][len..]);
        }
        if !whole || !self.transmit.put(place, len.max(SHORTEST) as u32) {
            self.free.push(place);
            return false;
        }
        self.unpublished = true;
        true
    }

    /// Takes back the buffers of sent frames.
    fn reclaim(&mut self) {
        let before = self.free.len();
        while let Some((place, _)) = self.completion.take() {
            self.free.push(place - place % self.place as u64);
        }
        if self.free.len() != before {
            self.completion.release();
        }
    }

    /// Makes the kernel send the queued frames.
    pub(super) fn flush(&mut self, statistics: &mut XdpStatistics) {
        if std::mem::take(&mut self.unpublished) {
            self.transmit.publish();
        }
        for _ in 0..MAX_CALLS {
            let before = self.transmit.pending();
            if before == 0 || !self.transmit.needs_wakeup() {
                return;
            }
            statistics.calls += 1;
            match send(&self.descriptor, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => {
                    statistics.down += 1;
                    return;
                }
                Err(_) => {}
            }
            if self.transmit.pending() == before {
                // The interface takes no more. The buffers come back later.
                self.reclaim();
                return;
            }
        }
    }

    /// Returns whether frames wait for another call of the kernel.
    pub(super) fn has_pending(&mut self) -> bool {
        self.transmit.pending() != 0 && self.transmit.needs_wakeup()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.receive.is_empty()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Binds a queue to a socket as soon as no other socket has it.
fn bind_when_free(socket: &OwnedFd, queue: &SocketAddrXdp) -> Result<(), Errno> {
    let began = Instant::now();
    loop {
        match bind(socket, queue) {
            Err(Errno::BUSY) if began.elapsed() < PATIENCE => sleep(BETWEEN_TRIES),
            done => return done,
        }
    }
}

/// Maps the rings: fill, completion, receive and transmit.
fn rings(socket: BorrowedFd<'_>) -> Result<[Ring; 4], Errno> {
    sockopt::set_xdp_umem_fill_ring_size(socket, PLACES)?;
    sockopt::set_xdp_umem_completion_ring_size(socket, PLACES)?;
    sockopt::set_xdp_rx_ring_size(socket, PLACES)?;
    sockopt::set_xdp_tx_ring_size(socket, PLACES)?;
    let offsets = sockopt::xdp_mmap_offsets(socket)?;
    Ok([
        Ring::map(socket, XDP_UMEM_PGOFF_FILL_RING, offsets.fr, PLACE, PLACES)?,
        Ring::map(socket, XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, PLACE, PLACES)?,
        Ring::map(socket, XDP_PGOFF_RX_RING, offsets.rx, DESCRIPTOR, PLACES)?,
        Ring::map(socket, XDP_PGOFF_TX_RING, offsets.tx, DESCRIPTOR, PLACES)?,
    ])
}
