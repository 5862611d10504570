//! What is asked of a TAP device, and what came of it.

use serde::{Deserialize, Serialize};

use super::{Offloads, TapError};
use crate::interface;

/// The kernel's bounds of a TAP device's MTU, in bytes.
pub const MIN_MTU: u16 = 68;
/// See [`MIN_MTU`]: an Ethernet header more is the longest packet there is.
pub const MAX_MTU: u16 = 65_521;

/// What is asked of a TAP device.
///
/// ```
/// use toehold_link::tap::TapSettings;
/// let settings = TapSettings { mtu: 9000, ..TapSettings::new("toe0", [2, 0, 0, 0, 0, 1]) };
/// assert!(settings.check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapSettings {
    /// The interface's name, which must be free.
    pub name: String,
    /// The hardware address of this end, as [`Link::address`](crate::Link::address)
    /// reports it.
    pub address: [u8; 6],
    /// The hardware address of the kernel's end; chosen by the kernel if there is none.
    pub interface_address: Option<[u8; 6]>,
    /// Largest IP packet, in bytes: [`MIN_MTU`] to [`MAX_MTU`]. IPv6 needs 1280.
    pub mtu: u16,
    /// Whether frames have a virtio-net header: without, neither super-frames nor
    /// unfinished checksums cross in either direction.
    pub vnet_header: bool,
    /// Whether super-frames are handed to the kernel whole. Without, they are cut here.
    pub super_frames: bool,
    /// What the kernel may leave to this end, as far as it offers it.
    pub offloads: Offloads,
    /// Whether the device may have more than one queue.
    pub multi_queue: bool,
}

impl TapSettings {
    /// All that the kernel offers, with one queue and MTU 1500.
    pub fn new(name: &str, address: [u8; 6]) -> TapSettings {
        TapSettings {
            name: name.to_owned(),
            address,
            interface_address: None,
            mtu: 1500,
            vnet_header: true,
            super_frames: true,
            offloads: Offloads::ALL,
            multi_queue: false,
        }
    }

    /// Whether a device can be like this at all.
    ///
    /// # Errors
    ///
    /// What is impossible.
    pub fn check(&self) -> Result<(), TapError> {
        interface::check_name(&self.name)?;
        if !(MIN_MTU..=MAX_MTU).contains(&self.mtu) {
            return Err(TapError::BadMtu(self.mtu));
        }
        match self.interface_address {
            Some(address) if address[0] & 1 == 1 || address == [0; 6] => Err(TapError::BadAddress(address)),
            _ => Ok(()),
        }
    }
}

/// A TAP device as it was made: what another process needs, beside the descriptor, to
/// drive it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapDescription {
    /// The interface's name.
    pub name: String,
    /// The hardware address of this end.
    pub address: [u8; 6],
    /// Largest IP packet when the device was made, in bytes.
    pub mtu: u16,
    /// Whether frames have a virtio-net header.
    pub vnet_header: bool,
    /// Whether super-frames are handed to the kernel whole.
    pub super_frames: bool,
    /// What the kernel leaves to this end.
    pub offloads: Offloads,
    /// Whether there may be more queues.
    pub multi_queue: bool,
}
