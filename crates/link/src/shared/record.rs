//! A frame as a record of a segment's ring: eight bytes that say what is left to whom, and
//! the frame.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Checksum, Offload};

/// The one kind of record there is.
pub(super) const FRAME: u16 = 1;

/// What precedes a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Preface {
    checksum: u8,
    reserved: u8,
    segment_size: u16,
    reserved_too: u32,
}

/// Bytes of a preface.
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

    /// What a preface says, whoever wrote it.
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
    fn prefaces_say_what_they_were_made_of() {
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
