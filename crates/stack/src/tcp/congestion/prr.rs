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
    /// Recovery begins with `flight_bytes` sent and neither acknowledged nor
    /// reported by SACK before the acknowledgement that began it. Of these, `owed` bytes were
    /// delivered already, and nothing was sent for them yet: as acknowledgements that come
    /// together are answered together, they may be followed by one that begins recovery.
    //= RFC 9937 §6.1 (what was reported before will not count as delivered during recovery)
    pub(crate) fn new(flight_bytes: u32, owed: u32) -> Self {
        Self {
            recover_fs: flight_bytes.max(1),
            prr_delivered: owed,
            prr_out: 0,
        }
    }

    /// How many bytes may be sent on this acknowledgement.
    ///
    /// `delivered` bytes were newly acknowledged or reported by SACK;
    /// `in_flight` is the estimate of what the network still holds; `safe_ack`
    /// says that the left edge moved and no further loss was found.
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
        if self.prr_out == 0 {
            //= RFC 9937 §6.2 (force a fast retransmit upon entering recovery)
            return sendable.max(mss);
        }
        sendable
    }

    /// `bytes` were sent during recovery, new or again.
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

    /// Recovery with `flight` segments in flight, the first `lost` of which were
    /// lost and are sent again before anything new. Acknowledgements report a
    /// segment each. Returns what was sent, by acknowledgement, and what was in
    /// flight at the end.
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
    fn a_window_is_halved_by_sending_for_every_other_acknowledgement() {
        //= RFC 9937 §6.2
        let (sent, in_flight) = recover(20, 1, 10, true);
        assert_eq!(sent[0], 1, "the retransmission goes out at once");
        assert!(sent.iter().all(|&segments| segments <= 1), "{sent:?}");
        assert_eq!(sent.iter().sum::<u32>(), 10);
        assert_eq!(in_flight, 10);
    }

    #[test]
    fn beta_of_seven_tenths_sends_seven_for_ten() {
        //= RFC 9937 §6.2
        let (sent, in_flight) = recover(100, 1, 70, true);
        assert_eq!(in_flight, 70);
        for tenth in sent.chunks_exact(10).skip(1) {
            assert_eq!(tenth.iter().sum::<u32>(), 7, "{sent:?}");
        }
    }

    #[test]
    fn heavy_losses_are_made_up_for_as_in_slow_start_if_it_is_safe() {
        let (sent, in_flight) = recover(20, 15, 10, true);
        assert_eq!(sent, [2, 2, 2, 2, 2]);
        assert_eq!(in_flight, 10);
        //= RFC 9937 §6.2
        let (sent, in_flight) = recover(20, 15, 10, false);
        assert_eq!(sent, [1, 1, 1, 1, 1], "conserved, not more");
        assert_eq!(in_flight, 5);
    }

    #[test]
    fn the_first_retransmission_is_never_held_back() {
        //= RFC 9937 §6.2
        let mut prr = Prr::new(10 * MSS, 0);
        assert_eq!(prr.on_ack(0, 9 * MSS, 5 * MSS, MSS, false), MSS);
        prr.sent(MSS);
        assert_eq!(prr.on_ack(0, 10 * MSS, 5 * MSS, MSS, false), 0);
    }

    #[test]
    fn what_was_delivered_before_and_not_answered_yet_is_sent_for_first() {
        // Of 20 segments 12 were acknowledged, one more by the acknowledgement that tells of a
        // loss; 6 are left.
        let mut prr = Prr::new(20 * MSS, 12 * MSS);
        assert_eq!(prr.on_ack(MSS, 6 * MSS, 14 * MSS, MSS, false), 8 * MSS);
        prr.sent(8 * MSS);
        //= RFC 9937 §6.2
        assert_eq!(prr.on_ack(MSS, 13 * MSS, 14 * MSS, MSS, false), MSS);
    }

    proptest! {
        /// Below the target, what is in flight never exceeds it; above, nothing
        /// more is sent than is delivered. No input breaks it.
        #[test]
        fn never_more_than_allowed(
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
