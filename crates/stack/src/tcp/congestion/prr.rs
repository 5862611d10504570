//! Proportional rate reduction: how much may be sent on each acknowledgement
//! during fast recovery, so that the data in flight shrink smoothly to what
//! congestion control decided, and recover to it after heavy losses.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// State of one fast recovery. All zeroes outside of recovery. Bytes throughout.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Prr {
    /// Data in flight when recovery began (RecoverFS).
    recover_fs: u32,
    /// Data the acknowledgements since then report as delivered.
    prr_delivered: u32,
    /// Data sent since then, retransmissions included.
    prr_out: u32,
}

impl Prr {
    /// Recovery begins with `flight_bytes` sent and not acknowledged.
    //= RFC 9937 §6 (initialization)
    pub(crate) fn new(flight_bytes: u32) -> Self {
        Self {
            recover_fs: flight_bytes.max(1),
            prr_delivered: 0,
            prr_out: 0,
        }
    }

    /// How many bytes may be sent on this acknowledgement.
    ///
    /// `delivered` bytes were newly acknowledged or reported by SACK;
    /// `in_flight` is the estimate of what the network still holds; `safe_ack`
    /// says that the left edge moved and no further loss was found.
    //= RFC 6937 §3
    //= RFC 9937 §6 (on every ACK during fast recovery)
    pub(crate) fn on_ack(
        &mut self,
        delivered: u32,
        in_flight: u32,
        ssthresh: u32,
        mss: u32,
        safe_ack: bool,
    ) -> u32 {
        self.prr_delivered = self.prr_delivered.saturating_add(delivered);
        let sendable = if in_flight > ssthresh {
            let share = u64::from(self.prr_delivered) * u64::from(ssthresh);
            let due = share.div_ceil(u64::from(self.recover_fs.max(1)));
            u32::try_from(due.saturating_sub(u64::from(self.prr_out))).unwrap_or(u32::MAX)
        } else {
            // Packet conservation (PRR-CRB), and one segment more (PRR-SSRB)
            // as long as recovery goes well.
            let conserved = self.prr_delivered.saturating_sub(self.prr_out).max(delivered);
            let bound = if safe_ack {
                conserved.saturating_add(mss)
            } else {
                conserved
            };
            bound.min(ssthresh - in_flight)
        };
        if self.prr_out == 0 && sendable == 0 {
            //= RFC 9937 §6 (force a fast retransmit upon entering recovery)
            return mss;
        }
        sendable
    }

    /// `bytes` were sent during recovery, new or again.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: u32) {
        self.prr_out = self.prr_out.saturating_add(bytes);
    }
}
