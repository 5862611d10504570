//! Frames with a virtio-net header through a descriptor: a TAP device's queue or a
//! packet socket. Kernel errors are returned to the link, which judges them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;
use toehold_shm::{Gather, MAX_PARTS};
use zerocopy::{FromBytes, IntoBytes};

use super::{BadHeader, HEADER_LEN, Header};
use crate::checksum::complete;
use crate::gso::Segments;
use crate::layout::{Layout, copy_from, private_len, with_headers};
use crate::{Checksum, MIN_PRIVATE, Offload, Received, Transmit};

/// Longest IP packet.
pub(crate) const MAX_PACKET: usize = 65_535;
/// Longest header before an IP packet: Ethernet with two VLAN tags.
pub(crate) const MAX_LINK_HEADER: usize = 22;
/// Shortest frame: its Ethernet header.
pub(crate) const MIN_FRAME: usize = 14;
/// Buffer length: one byte more than the longest frame, to notice longer ones.
const BUFFER: usize = HEADER_LEN + MAX_PACKET + MAX_LINK_HEADER + 1;

/// Most pieces of a frame in private memory: virtio-net header, headers, and the
/// bytes behind them.
const MAX_PIECES: usize = 3;

/// Counters of frames carried, changed and dropped.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Frames from the kernel, with super-frames counted once.
    pub(crate) frames_received: u64,
    /// Bytes of the received frames.
    pub(crate) bytes_received: u64,
    /// Received super-frames.
    pub(crate) super_frames_received: u64,
    /// Super-frames cut because the kernel does not take them.
    pub(crate) segmented: u64,
    /// Frames from the kernel dropped because of their header.
    pub(crate) bad_headers: u64,
    /// The error of the last bad header.
    pub(crate) last_bad_header: Option<BadHeader>,
    /// Frames from the kernel dropped because of their length.
    pub(crate) bad_length: u64,
    /// Super-frames not sent because they are neither TCP nor UDP.
    pub(crate) bad_super_frames: u64,
    /// Super-frames not sent because of a wrong checksum.
    pub(crate) bad_checksums: u64,
}

/// The result of a read.
#[derive(Debug)]
enum Taken {
    /// A frame of this length is in the buffer.
    Frame(usize, Offload),
    /// A frame was counted and dropped.
    Dropped,
}

/// Both directions of a descriptor.
#[derive(Debug)]
pub(crate) struct Queue<D> {
    pub(crate) device: D,
    /// Whether frames have virtio-net headers.
    header: bool,
    /// Whether the kernel gets super-frames whole.
    super_frames: bool,
    /// Receive buffer for a frame with its header.
    buffer: Box<[u8]>,
    /// Buffer for a frame in one piece, to be completed or cut.
    scratch: Vec<u8>,
    /// Buffer for a segment of a cut frame.
    segment: Vec<u8>,
    /// Buffer for headers as the kernel gets them.
    headers: Vec<u8>,
    /// Buffer for a frame with headers in several pieces.
    whole: Vec<u8>,
    pub(crate) counts: Counts,
}

impl<D: AsFd> Queue<D> {
    pub(crate) fn new(device: D, header: bool, super_frames: bool) -> Queue<D> {
        Queue {
            device,
            header,
            super_frames,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            scratch: Vec::new(),
            segment: Vec::new(),
            headers: Vec::new(),
            whole: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Passes on up to `budget` frames from the kernel. Returns their number, and
    /// the error that ended it.
    pub(crate) fn receive(
        &mut self,
        budget: usize,
        handler: &mut dyn FnMut(&Received<'_>),
    ) -> (usize, Option<Errno>) {
        let mut count = 0;
        // A dropped frame also costs budget.
        for _ in 0..budget {
            let (len, offload) = match self.read() {
                Ok(Some(Taken::Frame(len, offload))) => (len, offload),
                Ok(Some(Taken::Dropped)) => continue,
                Ok(None) => break,
                Err(error) => return (count, Some(error)),
            };
            count += 1;
            self.counts.frames_received += 1;
            self.counts.bytes_received += len as u64;
            self.counts.super_frames_received += u64::from(offload.segment_size != 0);
            handler(&self.frame(len, offload));
        }
        (count, None)
    }

    /// Reads and checks one frame. Returns `None` if there is none.
    fn read(&mut self) -> Result<Option<Taken>, Errno> {
        let header_len = self.header_len();
        let len = match read(self.device.as_fd(), &mut self.buffer) {
            Ok(len) => len,
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error),
        };
        let frame_len = len.saturating_sub(header_len);
        if !(MIN_FRAME..BUFFER - HEADER_LEN).contains(&frame_len) {
            self.counts.bad_length += 1;
            return Ok(Some(Taken::Dropped));
        }
        let (header, frame) = self.buffer[..len].split_at_mut(header_len);
        let judged = match Header::read_from_bytes(header) {
            Ok(header) => header.judge(frame),
            Err(_) => Ok(Offload::default()),
        };
        match judged {
            Ok(offload) => Ok(Some(Taken::Frame(frame_len, offload))),
            Err(bad) => {
                self.counts.bad_headers += 1;
                self.counts.last_bad_header = Some(bad);
                Ok(Some(Taken::Dropped))
            }
        }
    }

    /// Returns the last frame that was read.
    fn frame(&self, len: usize, offload: Offload) -> Received<'_> {
        let start = self.header_len();
        let frame = &self.buffer[start..start + len];
        let (private, rest) = frame.split_at(private_len(&frame[..len.min(MIN_PRIVATE)], len));
        Received {
            private,
            rest: Gather::from_slice(rest),
            offload,
        }
    }

    fn header_len(&self) -> usize {
        if self.header { HEADER_LEN } else { 0 }
    }

    /// Writes the frame unchanged, with a header that describes it.
    fn write(&mut self, layout: Option<&Layout>, frame: &Transmit<'_>) -> Result<(), Errno> {
        let mut own = std::mem::take(&mut self.headers);
        let (described, left) = match layout {
            Some(layout) => frame.headers.split_at(layout.payload),
            None => (&[][..], frame.headers),
        };
        own.clear();
        own.extend_from_slice(described);
        let header = Header::describe(layout, &mut own, frame.len(), frame.offload);
        let header = &header.as_bytes()[..self.header_len()];
        let written = write(self.device.as_fd(), [header, &own, left], frame.payload);
        self.headers = own;
        written
    }

    /// Completes and writes a frame that the header cannot describe.
    fn write_complete(&mut self, frame: &Transmit<'_>) -> Result<(), Errno> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(frame.len(), 0);
        copy_from(frame, 0, &mut scratch);
        complete(&mut scratch, true, &mut frame.offload.clone());
        let written = write(self.device.as_fd(), [&[], &scratch, &[]], &Gather::EMPTY);
        self.scratch = scratch;
        written
    }

    /// Writes a super-frame in pieces. Pieces behind a refused one are lost.
    fn write_segments(&mut self, layout: Layout, frame: &Transmit<'_>) -> Result<(), Errno> {
        let size = usize::from(frame.offload.segment_size);
        let Some(mut segments) = Segments::new(layout, frame.headers, frame.len(), size) else {
            self.counts.bad_super_frames += 1;
            return Ok(());
        };
        self.counts.segmented += 1;
        let mut bytes = std::mem::take(&mut self.segment);
        let mut written = Ok(());
        while let Some(segment) = segments.next() {
            let piece = segment.put_together(frame, &mut bytes);
            written = match self.header {
                true => self.write(Some(&layout), &piece),
                false => self.write_complete(&piece),
            };
            if written.is_err() {
                break;
            }
        }
        self.segment = bytes;
        written
    }

    /// Returns whether the checksum of a super-frame with a complete one is right.
    /// Its segments get new checksums.
    fn is_intact(&mut self, layout: &Layout, frame: &Transmit<'_>) -> bool {
        self.scratch.resize(frame.len(), 0);
        copy_from(frame, 0, &mut self.scratch);
        layout.is_intact(&self.scratch)
    }

    /// Writes a frame, completed or cut if the kernel needs that. A frame that
    /// cannot be sent is counted and dropped.
    pub(crate) fn send(&mut self, frame: &Transmit<'_>) -> Result<(), Errno> {
        let mut whole = std::mem::take(&mut self.whole);
        let sent = self.send_whole(&with_headers(frame, &mut whole));
        self.whole = whole;
        sent
    }

    /// Writes a frame with its headers in one piece.
    fn send_whole(&mut self, frame: &Transmit<'_>) -> Result<(), Errno> {
        let is_super = frame.offload.segment_size != 0;
        let undone = is_super || frame.offload.checksum == Checksum::Partial;
        let layout = if undone { Layout::of(frame.headers) } else { None };
        if is_super {
            let Some(layout) = layout else {
                self.counts.bad_super_frames += 1;
                return Ok(());
            };
            if frame.offload.checksum == Checksum::Complete && !self.is_intact(&layout, frame) {
                self.counts.bad_checksums += 1;
                return Ok(());
            }
            if !self.super_frames {
                return self.write_segments(layout, frame);
            }
            return match self.write(Some(&layout), frame) {
                // Some kernels refuse super-frames that others take.
                Err(Errno::INVAL) => self.write_segments(layout, frame),
                written => written,
            };
        }
        if undone && !self.header {
            return self.write_complete(frame);
        }
        self.write(layout.as_ref(), frame)
    }
}

/// Reads the next frame with its header. The kernel truncates a longer one.
fn read(descriptor: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    rustix::io::retry_on_intr(|| rustix::io::read(descriptor, &mut *buffer))
}

/// Writes a frame: a few pieces, and the rest in place.
fn write(descriptor: BorrowedFd<'_>, pieces: [&[u8]; MAX_PIECES], rest: &Gather<'_>) -> Result<(), Errno> {
    let nothing = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    let mut places = [nothing; MAX_PIECES + MAX_PARTS];
    let private = pieces.iter().map(|piece| (piece.as_ptr(), piece.len()));
    let mut used = 0;
    for ((first, len), place) in private.chain(rest.parts()).zip(&mut places) {
        *place = libc::iovec {
            iov_base: first.cast_mut().cast(),
            iov_len: len,
        };
        used += 1;
    }
    loop {
        // SAFETY: the kernel only reads the first `used` places. All are readable
        // for the length of this call: slices are borrowed, and `Gather` guarantees
        // its parts. Other processes may write the parts meanwhile, which affects
        // only the kernel's copy.
        let written = unsafe { libc::writev(descriptor.as_raw_fd(), places.as_ptr(), used) };
        match written {
            0.. => return Ok(()),
            _ => match last_error() {
                Errno::INTR => {}
                error => return Err(error),
            },
        }
    }
}

pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
