//! Frames through one queue of a TAP device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::device::{Attach, Device, system};
use super::{Offloads, TapDescription, TapError, TapSettings, TapStatistics};
use crate::interface::{Interface, Namespace};
use crate::virtio_net::{Counts, MAX_LINK_HEADER, MAX_PACKET, MIN_FRAME, Queue};
use crate::{Capabilities, Link, Received, Transmit, TransmitError, Transmitter};

/// A link over a TAP device or one of its queues.
#[derive(Debug)]
pub struct Tap {
    queue: Queue<Device>,
    description: TapDescription,
    statistics: TapStatistics,
    /// Whether the interface was deleted.
    gone: bool,
    /// Whether the last frame found no memory.
    full: bool,
}

impl Tap {
    /// Creates a device in the namespace with its address and MTU. The device is
    /// down and has a carrier. The returned interface configures the rest.
    ///
    /// # Errors
    ///
    /// If the settings are impossible, the name is taken, or the process lacks the
    /// right.
    pub fn create(settings: &TapSettings, namespace: &Namespace) -> Result<(Tap, Interface), TapError> {
        settings.check()?;
        let device = namespace.run(|| Device::open(settings, Attach::Create))??;
        let mut interface = Interface::open(namespace, &settings.name)?;
        // A frame without this header cannot describe unfinished work.
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
            queue: Queue::new(device, description.vnet_header, description.super_frames),
            description,
            statistics: TapStatistics::default(),
            gone: false,
            full: false,
        }
    }

    /// Opens another queue of the device, for another thread. The kernel sends a
    /// flow's frames to the queue that its other direction came from.
    ///
    /// # Errors
    ///
    /// If the device was not created for several queues, is not in this namespace,
    /// or the process lacks the right.
    pub fn another_queue(&self, namespace: &Namespace) -> Result<Tap, TapError> {
        let settings = TapSettings {
            vnet_header: self.description.vnet_header,
            multi_queue: self.description.multi_queue,
            ..TapSettings::new(&self.description.name, self.description.address)
        };
        let device = namespace.run(|| Device::open(&settings, Attach::AnotherQueue))??;
        Ok(Tap::new(device, self.description.clone()))
    }

    /// Takes the queue apart, so that another process can drive it.
    pub fn into_parts(self) -> (OwnedFd, TapDescription) {
        (self.queue.device.into_fd(), self.description)
    }

    /// Creates a link from the parts of [`Tap::into_parts`]. A descriptor of
    /// another kind carries no frames and does no harm.
    ///
    /// # Errors
    ///
    /// If the descriptor cannot be made non-blocking.
    pub fn from_parts(descriptor: OwnedFd, description: TapDescription) -> Result<Tap, TapError> {
        let name = &description.name;
        rustix::io::ioctl_fionbio(&descriptor, true).map_err(|error| system("set the mode", name, error))?;
        Ok(Tap::new(Device::from_fd(descriptor), description))
    }

    /// The device's description when it was created.
    pub fn description(&self) -> &TapDescription {
        &self.description
    }

    /// The queue's counters.
    pub fn statistics(&self) -> TapStatistics {
        let Counts {
            frames_received,
            bytes_received,
            super_frames_received,
            segmented,
            bad_headers,
            last_bad_header,
            bad_length,
            bad_super_frames,
            bad_checksums,
        } = self.queue.counts;
        TapStatistics {
            frames_received,
            bytes_received,
            super_frames_received,
            segmented,
            bad_headers,
            last_bad_header,
            bad_length: bad_length + self.statistics.bad_length,
            bad_super_frames,
            bad_checksums,
            ..self.statistics
        }
    }

    /// Returns whether the interface was deleted. The link then carries no frames
    /// any more.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Tells the kernel whether the interface has a carrier. Without one, routes
    /// over the interface are not used.
    ///
    /// # Errors
    ///
    /// If the interface was deleted, or the kernel is older than 5.0.
    pub fn set_carrier(&self, carrier: bool) -> Result<(), TapError> {
        self.queue
            .device
            .set_carrier(carrier)
            .map_err(|error| system("set the carrier", &self.description.name, error))
    }

    #[cold]
    fn note_read_error(&mut self, error: Errno) {
        if error == Errno::BADFD {
            self.gone = true;
        } else {
            self.statistics.read_errors += 1;
        }
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
        match self.queue.send(frame) {
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
    /// The kernel takes super-frames and partial checksums, independently of the
    /// offloads for the other direction. It drops frames when it cannot keep up.
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
        let (count, error) = self.queue.receive(budget, handler);
        if let Some(error) = error {
            self.note_read_error(error);
        }
        count
    }

    /// Does nothing: the kernel has every frame already.
    fn flush(&mut self) {}

    /// Returns `None` once the interface was deleted: its descriptor would stay
    /// readable for ever.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (!self.gone).then(|| self.queue.device.as_fd())
    }

    /// Returns `false` while a frame waits for memory, as nothing tells when there
    /// is some. Otherwise sleep needs no announcement: a waiting frame makes the
    /// descriptor readable.
    fn prepare_sleep(&mut self) -> bool {
        !std::mem::take(&mut self.full)
    }

    fn finish_sleep(&mut self, _now_ns: u64) {}
}
