//! What is asked of a link over a segment.

use std::path::PathBuf;

use toehold_shm::ring::segment::Part;

use super::SharedError;

/// Bounds of the MTU, in bytes: as of the links between nodes.
pub(super) const MIN_MTU: u16 = 68;
pub(super) const MAX_MTU: u16 = 65_000;

/// What is asked of a link over a segment.
#[derive(Debug, Clone)]
pub struct SharedSettings {
    /// A file, an object in `/dev/shm`, a DAX device, or the memory of a PCI device.
    pub path: PathBuf,
    /// Bytes of the file, which is made if there is none; `None`: it has to be there.
    pub size: Option<u64>,
    /// How many members the segment has, if it is a fresh one: from 2 to 64. The others are
    /// told by what is in it.
    pub members: usize,
    /// Which of them this is; `None`: any that is free.
    pub member: Option<usize>,
    /// In which part of the memory the segment lies: each carries what its members send over
    /// it, and nothing else.
    pub part: Part,
    /// The hardware address of this end.
    pub address: [u8; 6],
    /// Largest IP packet in a plain frame, in bytes.
    pub mtu: u16,
}

impl SharedSettings {
    /// Members of a fresh segment, if nothing else is said.
    pub const DEFAULT_MEMBERS: usize = 8;

    /// Any member of the segment at `path`, with MTU 1500.
    pub fn new(path: impl Into<PathBuf>, address: [u8; 6]) -> SharedSettings {
        SharedSettings {
            path: path.into(),
            size: None,
            members: Self::DEFAULT_MEMBERS,
            member: None,
            part: Part::ALL,
            address,
            mtu: 1500,
        }
    }

    pub(super) fn check(&self) -> Result<(), SharedError> {
        if !(MIN_MTU..=MAX_MTU).contains(&self.mtu) {
            return Err(SharedError::BadMtu(self.mtu));
        }
        if self.address[0] & 1 == 1 || self.address == [0; 6] {
            return Err(SharedError::BadAddress(self.address));
        }
        Ok(())
    }
}
