//! Frames through one queue of a TAP device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use toehold_shm::Gather;
use zerocopy::{FromBytes, IntoBytes};

use super::device::{Attach, Device, system};
use super::{Offloads, TapDescription, TapError, TapSettings, TapStatistics};
use crate::checksum::complete;
use crate::interface::{Interface, Namespace};
use crate::layout::{Layout, MAX_HEADERS, copy_from};
use crate::segment::Segments;
use crate::vnet::{HEADER_LEN, Header};
use crate::{
    Capabilities, Checksum, Link, MIN_PRIVATE, Offload, Received, Transmit, TransmitError, Transmitter,
};

/// Longest IP packet.
const MAX_PACKET: usize = 65_535;
/// Longest header in front of it: Ethernet with two VLAN tags.
const MAX_LINK_HEADER: usize = 22;
/// Shortest frame: its Ethernet header.
const MIN_FRAME: usize = 14;
/// One byte more than the longest frame, to notice what is longer.
const BUFFER: usize = HEADER_LEN + MAX_PACKET + MAX_LINK_HEADER + 1;

/// A TAP device, or one of its queues, as a link.
#[derive(Debug)]
pub struct Tap {
    device: Device,
    description: TapDescription,
    /// Where the kernel puts a frame, with its header.
    buffer: Box<[u8]>,
    /// A frame in one piece, to be finished or cut here.
    scratch: Vec<u8>,
    /// A segment of one.
    segment: Vec<u8>,
    statistics: TapStatistics,
    /// The interface was deleted.
    gone: bool,
    /// The last frame found no memory.
    full: bool,
}

impl Tap {
    /// Makes a device in the namespace, and gives it address and MTU. It is down, and
    /// has a carrier; the handle of the interface is for the rest.
    ///
    /// # Errors
    ///
    /// The settings are impossible, the name is taken, or the right is missing.
    pub fn create(settings: &TapSettings, namespace: &Namespace) -> Result<(Tap, Interface), TapError> {
        settings.check()?;
        let device = namespace.run(|| Device::open(settings, Attach::Create))??;
        let mut interface = Interface::open(namespace, &settings.name)?;
        // What is left undone has to be told.
        let wanted = match settings.vnet_header {
            true => settings.offloads,
            false => Offloads::NONE,
        };
        let offloads = device.set_offloads(wanted);
        if let Some(address) = settings.interface_address {
            interface.set_address(address)?;
        }
        interface.set_mtu(u32::from(settings.mtu))?;
        let description = TapDescription {
            name: settings.name.clone(),
            address: settings.address,
            mtu: settings.mtu,
            vnet_header: settings.vnet_header,
            super_frames: settings.vnet_header && settings.super_frames,
            offloads,
            multi_queue: settings.multi_queue,
        };
        Ok((Tap::new(device, description), interface))
    }

    fn new(device: Device, description: TapDescription) -> Tap {
        Tap {
            device,
            description,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            scratch: Vec::new(),
            segment: Vec::new(),
            statistics: TapStatistics::default(),
            gone: false,
            full: false,
        }
    }

    /// One more queue of the same device, for another thread. The kernel sends the
    /// frames of a flow to the queue that the flow's other direction came from.
    ///
    /// # Errors
    ///
    /// The device was not made for several queues, is not in this namespace, or the
    /// right is missing.
    pub fn another_queue(&self, namespace: &Namespace) -> Result<Tap, TapError> {
        let settings = TapSettings {
            vnet_header: self.description.vnet_header,
            multi_queue: self.description.multi_queue,
            ..TapSettings::new(&self.description.name, self.description.address)
        };
        let device = namespace.run(|| Device::open(&settings, Attach::AnotherQueue))??;
        Ok(Tap::new(device, self.description.clone()))
    }

    /// Gives the queue away, to be driven by another process.
    pub fn into_parts(self) -> (OwnedFd, TapDescription) {
        (self.device.into_fd(), self.description)
    }

    /// The queue that [`Tap::into_parts`] gave away. A descriptor of something else
    /// carries no frames, and nothing worse.
    ///
    /// # Errors
    ///
    /// The descriptor cannot be made non-blocking.
    pub fn from_parts(descriptor: OwnedFd, description: TapDescription) -> Result<Tap, TapError> {
        let name = &description.name;
        rustix::io::ioctl_fionbio(&descriptor, true).map_err(|error| system("set the mode", name, error))?;
        Ok(Tap::new(Device::from_fd(descriptor), description))
    }

    /// The device as it was made.
    pub fn description(&self) -> &TapDescription {
        &self.description
    }

    /// What was carried and dropped.
    pub fn statistics(&self) -> TapStatistics {
        self.statistics
    }

    /// Whether the interface was deleted. The link carries nothing any more.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Tells the kernel whether the cable is plugged in. Without it, routes over the
    /// interface are not used.
    ///
    /// # Errors
    ///
    /// The interface was deleted, or the kernel is older than 5.0.
    pub fn set_carrier(&self, carrier: bool) -> Result<(), TapError> {
        self.device
            .set_carrier(carrier)
            .map_err(|error| system("set the carrier", &self.description.name, error))
    }

    /// Reads one frame and judges it. `None`: there is none.
    fn read(&mut self) -> Option<Result<(usize, Offload), ()>> {
        let header_len = self.header_len();
        let len = match self.device.read(&mut self.buffer) {
            Ok(len) => len,
            Err(Errno::AGAIN) => return None,
            Err(error) => {
                self.note_read_error(error);
                return None;
            }
        };
        let frame_len = len.saturating_sub(header_len);
        if !(MIN_FRAME..BUFFER - HEADER_LEN).contains(&frame_len) {
            self.statistics.bad_length += 1;
            return Some(Err(()));
        }
        let (header, frame) = self.buffer[..len].split_at_mut(header_len);
        let judged = match Header::read_from_bytes(header) {
            Ok(header) => header.judge(frame),
            Err(_) => Ok(Offload::default()),
        };
        match judged {
            Ok(offload) => Some(Ok((frame_len, offload))),
            Err(bad) => {
                self.statistics.bad_headers += 1;
                self.statistics.last_bad_header = Some(bad);
                Some(Err(()))
            }
        }
    }

    #[cold]
    fn note_read_error(&mut self, error: Errno) {
        if error == Errno::BADFD {
            self.gone = true;
        } else {
            self.statistics.read_errors += 1;
        }
    }

    fn header_len(&self) -> usize {
        if self.description.vnet_header {
            HEADER_LEN
        } else {
            0
        }
    }

    /// Hands the frame over as it is, described to the kernel.
    fn write(&mut self, layout: Option<&Layout>, frame: &Transmit<'_>) -> Result<(), Errno> {
        let mut own = [0; MAX_HEADERS];
        let (described, left) = match layout {
            Some(layout) => frame.headers.split_at(layout.payload),
            None => (&[][..], frame.headers),
        };
        let own = &mut own[..described.len()];
        own.copy_from_slice(described);
        let header = Header::describe(layout, own, frame.len(), frame.offload);
        let header = &header.as_bytes()[..self.header_len()];
        self.device.write([header, own, left], frame.payload)
    }

    /// Finishes a frame here that the kernel cannot be told about.
    fn write_complete(&mut self, frame: &Transmit<'_>) -> Result<(), Errno> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(frame.len(), 0);
        copy_from(frame, 0, &mut scratch);
        complete(&mut scratch, true, &mut frame.offload.clone());
        let written = self.device.write([&[], &scratch, &[]], &Gather::EMPTY);
        self.scratch = scratch;
        written
    }

    /// Hands a super-frame over in pieces. Those behind one that is not taken are lost.
    fn write_segments(&mut self, layout: Layout, frame: &Transmit<'_>) -> Result<(), Errno> {
        let size = usize::from(frame.offload.segment_size);
        let Some(mut segments) = Segments::new(layout, frame.headers, frame.len(), size) else {
            self.statistics.bad_super_frames += 1;
            return Ok(());
        };
        self.statistics.segmented += 1;
        let mut bytes = std::mem::take(&mut self.segment);
        let mut written = Ok(());
        while let Some(segment) = segments.next() {
            let piece = segment.put_together(frame, &mut bytes);
            written = match self.description.vnet_header {
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

    /// Whether the checksum of a super-frame that has one is right: its segments get
    /// new ones.
    fn is_intact(&mut self, layout: &Layout, frame: &Transmit<'_>) -> bool {
        self.scratch.resize(frame.len(), 0);
        copy_from(frame, 0, &mut self.scratch);
        layout.is_intact(&self.scratch)
    }

    fn send(&mut self, frame: &Transmit<'_>) -> Result<(), Errno> {
        let is_super = frame.offload.segment_size != 0;
        let undone = is_super || frame.offload.checksum == Checksum::Partial;
        let layout = if undone { Layout::of(frame.headers) } else { None };
        if is_super {
            let Some(layout) = layout else {
                self.statistics.bad_super_frames += 1;
                return Ok(());
            };
            if frame.offload.checksum == Checksum::Complete && !self.is_intact(&layout, frame) {
                self.statistics.bad_checksums += 1;
                return Ok(());
            }
            if !self.description.super_frames {
                return self.write_segments(layout, frame);
            }
            return match self.write(Some(&layout), frame) {
                // Some kernels refuse what others take.
                Err(Errno::INVAL) => self.write_segments(layout, frame),
                written => written,
            };
        }
        if undone && !self.description.vnet_header {
            return self.write_complete(frame);
        }
        self.write(layout.as_ref(), frame)
    }

    #[cold]
    fn not_sent(&mut self, error: Errno) -> Result<(), TransmitError> {
        match error {
            Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => {
                self.statistics.full += 1;
                self.full = true;
                Err(TransmitError::Full)
            }
            Errno::IO => {
                self.statistics.down += 1;
                Err(TransmitError::Unreachable)
            }
            Errno::BADFD => {
                self.gone = true;
                self.statistics.gone += 1;
                Err(TransmitError::Unreachable)
            }
            _ => {
                self.statistics.refused += 1;
                Ok(())
            }
        }
    }
}

impl Transmitter for Tap {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let is_super = frame.offload.segment_size != 0;
        let packet = if is_super {
            MAX_PACKET
        } else {
            usize::from(self.description.mtu)
        };
        if !(MIN_FRAME..=packet + MAX_LINK_HEADER).contains(&frame.len()) {
            self.statistics.bad_length += 1;
            return Err(TransmitError::TooLong);
        }
        if self.gone {
            self.statistics.gone += 1;
            return Err(TransmitError::Unreachable);
        }
        self.full = false;
        match self.send(frame) {
            Ok(()) => {
                self.statistics.frames_sent += 1;
                self.statistics.bytes_sent += frame.len() as u64;
                self.statistics.super_frames_sent += u64::from(is_super);
                Ok(())
            }
            Err(error) => self.not_sent(error),
        }
    }
}

impl Link for Tap {
    /// The kernel takes super-frames and unfinished checksums whatever was obtained for
    /// the other direction. It drops frames when it cannot keep up.
    fn capabilities(&self) -> Capabilities {
        let TapDescription {
            mtu, super_frames, ..
        } = self.description;
        Capabilities {
            mtu,
            super_frame: if super_frames {
                MAX_PACKET as u32
            } else {
                u32::from(mtu)
            },
            checksum_offload: self.description.vnet_header,
            local: false,
            any_thread: false,
        }
    }

    fn address(&self) -> [u8; 6] {
        self.description.address
    }

    fn receive(&mut self, _now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        if self.gone {
            return 0;
        }
        let start = self.header_len();
        let mut count = 0;
        // A frame that is dropped has cost as much as one that is not.
        for _ in 0..budget {
            let Some(read) = self.read() else { break };
            let Ok((len, offload)) = read else { continue };
            count += 1;
            self.statistics.frames_received += 1;
            self.statistics.bytes_received += len as u64;
            self.statistics.super_frames_received += u64::from(offload.segment_size != 0);
            let frame = &self.buffer[start..start + len];
            let (private, rest) = frame.split_at(len.min(MIN_PRIVATE));
            handler(&Received {
                private,
                rest: Gather::from_slice(rest),
                offload,
            });
        }
        count
    }

    /// Frames went to the kernel one by one.
    fn flush(&mut self) {}

    /// `None` once the interface was deleted: its descriptor would be readable forever.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (!self.gone).then(|| self.device.as_fd())
    }

    /// Nothing has to be announced: a frame that waits makes the descriptor readable.
    /// But nothing tells when the kernel has memory again.
    fn prepare_sleep(&mut self) -> bool {
        !std::mem::take(&mut self.full)
    }

    fn finish_sleep(&mut self, _now_ns: u64) {}
}
