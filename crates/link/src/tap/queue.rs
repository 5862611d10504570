//! Frames through one queue of a TAP device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::device::{Attach, Device, system};
use super::{Offloads, TapDescription, TapError, TapSettings, TapStatistics};
use crate::interface::{Interface, Namespace};
use crate::vnet::{Counts, MAX_LINK_HEADER, MAX_PACKET, MIN_FRAME, Queue};
use crate::{Capabilities, Link, Received, Transmit, TransmitError, Transmitter};

/// A TAP device, or one of its queues, as a link.
#[derive(Debug)]
pub struct Tap {
    queue: Queue<Device>,
    description: TapDescription,
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
            queue: Queue::new(device, description.vnet_header, description.super_frames),
            description,
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
        (self.queue.device.into_fd(), self.description)
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
        let (count, error) = self.queue.receive(budget, handler);
        if let Some(error) = error {
            self.note_read_error(error);
        }
        count
    }

    /// Frames went to the kernel one by one.
    fn flush(&mut self) {}

    /// `None` once the interface was deleted: its descriptor would be readable forever.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (!self.gone).then(|| self.queue.device.as_fd())
    }

    /// Nothing has to be announced: a frame that waits makes the descriptor readable.
    /// But nothing tells when the kernel has memory again.
    fn prepare_sleep(&mut self) -> bool {
        !std::mem::take(&mut self.full)
    }

    fn finish_sleep(&mut self, _now_ns: u64) {}
}
