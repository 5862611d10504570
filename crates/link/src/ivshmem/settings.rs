//! Settings of a link over a segment.

use std::path::PathBuf;

use toehold_shm::ring::segment::Part;

use super::IvshmemError;

/// Least MTU in bytes, as of the links between nodes.
pub(super) const MIN_MTU: u16 = 68;
pub(super) const MAX_MTU: u16 = 65_000;

/// Settings of a link over a segment.
#[derive(Debug, Clone)]
pub struct IvshmemSettings {
    /// A file, an object in `/dev/shm`, a DAX device, or the memory of a PCI device.
    pub path: PathBuf,
    /// Length of a new file in bytes; `None` if the file must exist.
    pub size: Option<u64>,
    /// Number of members of a new segment, from 2 to 64. An existing segment has
    /// its own number.
    pub members: usize,
    /// Number of this member; `None` for any free one.
    pub member: Option<usize>,
    /// The part of the memory with the segment. Each part carries the frames of its
    /// own members only.
    pub part: Part,
    /// Hardware address of this end.
    pub address: [u8; 6],
    /// Largest IP packet in a plain frame, in bytes.
    pub mtu: u16,
}

impl IvshmemSettings {
    /// Default number of members of a new segment.
    pub const DEFAULT_MEMBERS: usize = 8;

    /// Returns the settings for any member of the segment at `path`, with MTU 1500.
    pub fn new(path: impl Into<PathBuf>, address: [u8; 6]) -> IvshmemSettings {
        IvshmemSettings {
            path: path.into(),
            size: None,
            members: Self::DEFAULT_MEMBERS,
            member: None,
            part: Part::ALL,
            address,
            mtu: 1500,
        }
    }

    pub(super) fn check(&self) -> Result<(), IvshmemError> {
        if !(MIN_MTU..=MAX_MTU).contains(&self.mtu) {
            return Err(IvshmemError::BadMtu(self.mtu));
        }
        if self.address[0] & 1 == 1 || self.address == [0; 6] {
            return Err(IvshmemError::BadAddress(self.address));
        }
        Ok(())
    }
}
