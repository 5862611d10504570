//! Proportional rate reduction: the number of bytes to send on each acknowledgement during fast
//! recovery. The data in flight shrink smoothly to the target of congestion control, and grow back
//! to it after heavy losses.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// State of one fast recovery. All zeroes outside of recovery. Bytes throughout.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Prr {
    /// Data in flight when recovery began (RecoverFS).
    recover_fs: u32,
    /// Bytes that acknowledgements have reported as delivered since then.
    prr_delivered: u32,
    /// Bytes sent since then, including retransmissions.
    prr_out: u32,
}

impl Prr {
    /// Begins recovery. `flight_bytes` were sent and neither acknowledged nor reported by SACK
    /// before the acknowledgement that begins it. `owed` of these bytes were delivered already, but
    /// no data were sent for them yet. Acknowledgements that arrive together are answered together,
    /// so one of them may begin recovery.
    //= RFC 9937 §6.1 (what was reported before will not count as delivered during recovery)
    pub(crate) fn new(flight_bytes: u32, owed: u32) -> Self {
        Self {
            recover_fs: flight_bytes.max(1),
            prr_delivered: owed,
            prr_out: 0,
        }
    }

    /// The number of bytes that may be sent on this acknowledgement.
    ///
    /// `delivered` bytes were newly acknowledged or reported by SACK. `in_flight` estimates the
    /// bytes in the network. `safe_ack`: the left edge moved and no further loss was found.
    //= RFC 9937 §6.2 (on every ACK during fast recovery)
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
            // Packet conservation (PRR-CRB), and one segment more (PRR-SSRB) while recovery makes
            // progress.
            let conserved = self.prr_delivered.saturating_sub(self.prr_out).max(delivered);
            let bound = if safe_ack {
                conserved.saturating_add(mss)
            } else {
                conserved
            };
            bound.min(ssthresh - in_flight)
        };
        if self.prr_out == 0 {
            //= RFC 9937 §6.2 (force a fast retransmit upon entering recovery)
            return sendable.max(mss);
        }
        sendable
    }

    /// Counts `bytes` sent during recovery, new or retransmitted.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: u32) {
        self.prr_out = self.prr_out.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: u32 = 1000;

    /// Simulates a recovery with `flight` segments in flight. The first `lost` segments were lost
    /// and are retransmitted before new data. Each acknowledgement reports a segment. Returns the
    /// segments sent for each acknowledgement, and the segments in flight at the end.
    fn recover(flight: u32, lost: u32, ssthresh: u32, safe: bool) -> (Vec<u32>, u32) {
        let mut prr = Prr::new(flight * MSS, 0);
        let mut pipe = (flight - lost) * MSS;
        let mut sent = Vec::new();
        for _ in 0..flight - lost {
            pipe -= MSS;
            let sendable = prr.on_ack(MSS, pipe, ssthresh * MSS, MSS, safe);
            let now = sendable / MSS;
            prr.sent(now * MSS);
            pipe += now * MSS;
            sent.push(now);
        }
        (sent, pipe / MSS)
    }

    #[test]
    fn halving_sends_for_every_other_acknowledgement() {
        //= RFC 9937 §6.2
        let (sent, in_flight) = recover(20, 1, 10, true);
        assert_eq!(sent[0], 1, "the retransmission goes out at once");
        assert!(sent.iter().all(|&segments| segments <= 1), "{sent:?}");
        assert_eq!(sent.iter().sum::<u32>(), 10);
        assert_eq!(in_flight, 10);
    }

    #[test]
    fn reduction_to_seven_tenths_sends_seven_for_ten() {
        //= RFC 9937 §6.2
        let (sent, in_flight) = recover(100, 1, 70, true);
        assert_eq!(in_flight, 70);
        for tenth in sent.chunks_exact(10).skip(1) {
            assert_eq!(tenth.iter().sum::<u32>(), 7, "{sent:?}");
        }
    }

    #[test]
    fn safe_recovery_after_heavy_loss_grows_as_slow_start() {
        let (sent, in_flight) = recover(20, 15, 10, true);
        assert_eq!(sent, [2, 2, 2, 2, 2]);
        assert_eq!(in_flight, 10);
        //= RFC 9937 §6.2
        let (sent, in_flight) = recover(20, 15, 10, false);
        assert_eq!(sent, [1, 1, 1, 1, 1], "conserved, not more");
        assert_eq!(in_flight, 5);
    }

    #[test]
    fn first_retransmission_is_sent_at_once() {
        //= RFC 9937 §6.2
        let mut prr = Prr::new(10 * MSS, 0);
        assert_eq!(prr.on_ack(0, 9 * MSS, 5 * MSS, MSS, false), MSS);
        prr.sent(MSS);
        assert_eq!(prr.on_ack(0, 10 * MSS, 5 * MSS, MSS, false), 0);
    }

    #[test]
    fn owed_bytes_are_sent_first() {
        // Of 20 segments 12 were acknowledged, and one more by the acknowledgement that reports a
        // loss; 6 are left.
        let mut prr = Prr::new(20 * MSS, 12 * MSS);
        assert_eq!(prr.on_ack(MSS, 6 * MSS, 14 * MSS, MSS, false), 8 * MSS);
        prr.sent(8 * MSS);
        //= RFC 9937 §6.2
        assert_eq!(prr.on_ack(MSS, 13 * MSS, 14 * MSS, MSS, false), MSS);
    }

    proptest! {
        /// Below the target, the data in flight never exceed it. Above, no more is sent than is
        /// delivered. This holds for any input.
        #[test]
        fn recovery_never_exceeds_target(
            flight: u32,
            acks in prop::collection::vec((any::<u32>(), any::<u32>(), any::<bool>()), 1..50),
            ssthresh: u32,
            mss in 1..65_536_u32,
        ) {
            let mut prr = Prr::new(flight, 0);
            for (delivered, pipe, safe) in acks {
                let sendable = prr.on_ack(delivered, pipe, ssthresh, mss, safe);
                if pipe <= ssthresh {
                    prop_assert!(sendable <= (ssthresh - pipe).max(mss));
                    prop_assert!(sendable <= prr.prr_delivered.saturating_add(mss));
                } else {
                    prop_assert!(ssthresh >= flight || sendable <= prr.prr_delivered.max(mss));
                }
                prr.sent(sendable);
            }
        }
    }
}
