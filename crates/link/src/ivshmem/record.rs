//! A frame as a record in a segment's ring: eight bytes of offload metadata, then
//! the frame.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Checksum, Offload};

/// The only kind of record.
pub(super) const FRAME: u16 = 1;

/// The metadata before a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Preface {
    checksum: u8,
    reserved: u8,
    segment_size: u16,
    reserved_too: u32,
}

/// Length of a preface in bytes.
pub(super) const PREFACE: usize = size_of::<Preface>();
const _: () = assert!(PREFACE == 8);

impl Preface {
    pub(super) fn new(offload: Offload) -> Preface {
        Preface {
            checksum: match offload.checksum {
                Checksum::Complete => 0,
                Checksum::Partial => 1,
                Checksum::Verified => 2,
            },
            reserved: 0,
            segment_size: offload.segment_size,
            reserved_too: 0,
        }
    }

    /// Decodes a preface from a possibly hostile peer.
    pub(super) fn offload(self) -> Option<Offload> {
        let checksum = match self.checksum {
            0 => Checksum::Complete,
            1 => Checksum::Partial,
            2 => Checksum::Verified,
            _ => return None,
        };
        Some(Offload {
            checksum,
            segment_size: self.segment_size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preface_round_trips() {
        for checksum in [Checksum::Complete, Checksum::Partial, Checksum::Verified] {
            let offload = Offload {
                checksum,
                segment_size: 1448,
            };
            assert_eq!(Preface::new(offload).offload(), Some(offload));
        }
        let odd = Preface {
            checksum: 3,
            ..Preface::new(Offload::default())
        };
        assert_eq!(odd.offload(), None);
    }
}
