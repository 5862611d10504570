//! Settings of a TAP device, and the description of a created one.

use serde::{Deserialize, Serialize};

use super::{Offloads, TapError};
use crate::interface;

/// The kernel's bounds of a TAP device's MTU, in bytes.
pub const MIN_MTU: u16 = 68;
/// The largest MTU of a TAP device in bytes: with an Ethernet header it gives the
/// longest packet.
pub const MAX_MTU: u16 = 65_521;

/// Settings of a TAP device.
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
    /// The hardware address of this end, which
    /// [`Link::address`](crate::Link::address) reports.
    pub address: [u8; 6],
    /// The hardware address of the kernel's end; `None` lets the kernel choose.
    pub interface_address: Option<[u8; 6]>,
    /// Largest IP packet, in bytes: [`MIN_MTU`] to [`MAX_MTU`]. IPv6 needs 1280.
    pub mtu: u16,
    /// Whether frames have a virtio-net header. Without it, neither super-frames
    /// nor partial checksums cross in either direction.
    pub vnet_header: bool,
    /// Whether the kernel gets super-frames whole. Otherwise they are cut here.
    pub super_frames: bool,
    /// Offloads that the kernel may use, as far as it knows them.
    pub offloads: Offloads,
    /// Whether the device may have more than one queue.
    pub multi_queue: bool,
}

impl TapSettings {
    /// Returns settings with all offloads, one queue and MTU 1500.
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

    /// Checks that a device can have these settings.
    ///
    /// # Errors
    ///
    /// The impossible setting.
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

/// Description of a created TAP device. Another process needs it with the
/// descriptor to drive the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapDescription {
    /// The interface's name.
    pub name: String,
    /// The hardware address of this end.
    pub address: [u8; 6],
    /// Largest IP packet at creation, in bytes.
    pub mtu: u16,
    /// Whether frames have a virtio-net header.
    pub vnet_header: bool,
    /// Whether the kernel gets super-frames whole.
    pub super_frames: bool,
    /// Offloads that the kernel uses.
    pub offloads: Offloads,
    /// Whether the device may have more queues.
    pub multi_queue: bool,
}
