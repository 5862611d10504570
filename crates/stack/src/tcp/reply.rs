//! A waiting segment without a control block, see `replies`.

use toehold_wire::tcp::{Flags, Header, Options, Seq, Timestamps};
use toehold_wire::{checksum, protocol};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::tuple::FourTuple;

/// Most waiting replies.
pub(super) const CAPACITY: u32 = 256;

/// A waiting reply.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Reply {
    pub(super) tuple: FourTuple,
    pub(super) seq: Seq,
    pub(super) ack: Seq,
    pub(super) ts_value: u32,
    pub(super) ts_echo: u32,
    pub(super) flags: u16,
    pub(super) window: u16,
    pub(super) mss: u16,
    pub(super) has_timestamps: u8,
    /// Window scale plus one; 0: not offered.
    pub(super) scale: u8,
    pub(super) sack: u8,
    unused: [u8; 3],
}

impl Reply {
    pub(super) fn new(tuple: FourTuple, seq: Seq, ack: Seq, flags: Flags) -> Self {
        let mut reply = <Self as FromZeros>::new_zeroed();
        reply.tuple = tuple;
        reply.seq = seq;
        reply.ack = ack;
        reply.flags = flags.0;
        reply
    }

    pub(super) fn header(&self) -> Header {
        Header {
            src_port: self.tuple.local_port,
            dst_port: self.tuple.remote_port,
            seq: self.seq,
            ack: self.ack,
            flags: Flags(self.flags),
            window: self.window,
            urgent: 0,
            options: Options {
                mss: (self.mss > 0).then_some(self.mss),
                window_scale: self.scale.checked_sub(1),
                sack_permitted: self.sack != 0,
                timestamps: (self.has_timestamps != 0).then_some(Timestamps {
                    value: self.ts_value,
                    echo: self.ts_echo,
                }),
                ..Options::default()
            },
        }
    }

    /// Writes the segment with its checksum. Returns its length, at most 60 bytes.
    pub(super) fn emit(&self, buffer: &mut [u8]) -> usize {
        let len = self.header().emit(buffer);
        let (local, remote) = (self.tuple.local.into(), self.tuple.remote.into());
        let pseudo = checksum::pseudo_header(local, remote, protocol::TCP, len as u32);
        toehold_wire::tcp::set_checksum(&mut buffer[..len], pseudo, 0);
        len
    }
}
