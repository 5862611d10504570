//! The IP layer's state that belongs to no record.

use super::announcement::Announcement;
use super::waiting::Packets;
use crate::config::Config;
use crate::time::Instant;
use toehold_link::steering::Steering;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The parts of the IP layer that operations on another part may change.
pub(super) struct Context<'a> {
    pub(super) now: Instant,
    pub(super) state: &'a mut State,
    pub(super) packets: &'a mut Packets,
}

/// ICMP errors a second, in the long run.
const ICMP_ERRORS_PER_SECOND: u64 = 1000;
/// ICMP errors that may be sent at once after a quiet time.
const ICMP_ERROR_BURST: u32 = 50;

const NANOS_PER_ERROR: u64 = 1_000_000_000 / ICMP_ERRORS_PER_SECOND;

/// The single record of this kind. Plain data in shared memory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct State {
    /// No timer expires before this; often earlier than necessary.
    next_deadline: Instant,
    /// When `error_tokens` was last updated.
    error_tokens_at: Instant,
    error_tokens: u32,
    epoch: u32,
    fragment_id: u32,
    fragment_id_step: u32,
    /// The announcement of this stack that is due.
    pub(super) announcement: Announcement,
    /// The report of this stack's groups that is due, see `membership`; 0: none.
    pub(super) report_kind: u32,
    /// When the report is due, if any.
    pub(super) report_at: Instant,
    random: u64,
}

impl State {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            next_deadline: Instant::NEVER,
            error_tokens_at: Instant(0),
            error_tokens: ICMP_ERROR_BURST,
            epoch: 1,
            //= RFC 7739 §5
            // The seed makes the first identification hard to guess.
            fragment_id: first_fragment_id(config),
            fragment_id_step: config.steering.count.into(),
            announcement: Announcement::NONE,
            report_kind: 0,
            report_at: Instant::NEVER,
            random: config.seed | 1,
        }
    }

    /// Number of the present period without a change of paths; never 0.
    #[inline]
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Makes every path given out outdated.
    pub(super) fn paths_changed(&mut self) {
        self.epoch = self.epoch.wrapping_add(1).max(1);
    }

    #[inline]
    pub(super) fn next_deadline(&self) -> Instant {
        self.next_deadline
    }

    /// Makes sure that the timeout handler runs at `deadline`.
    pub(super) fn wake_at(&mut self, deadline: Instant) {
        self.next_deadline = self.next_deadline.min(deadline);
    }

    pub(super) fn forget_deadline(&mut self) {
        self.next_deadline = Instant::NEVER;
    }

    /// A random number for delays; it need not be secret.
    pub(super) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    pub(super) fn take_announcement(&mut self) -> Announcement {
        core::mem::replace(&mut self.announcement, Announcement::NONE)
    }

    /// Takes a token for one ICMP error, if there is one.
    //= RFC 4443 §2.4
    //= RFC 1812 §4.3.2.8
    pub(super) fn take_error_token(&mut self, now: Instant) -> bool {
        let earned = now.nanos_since(self.error_tokens_at) / NANOS_PER_ERROR;
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            self.error_tokens = self.error_tokens.saturating_add(earned).min(ICMP_ERROR_BURST);
            self.error_tokens_at = now;
        }
        let allowed = self.error_tokens > 0;
        self.error_tokens = self.error_tokens.saturating_sub(1);
        allowed
    }

    /// Identification of the next datagram that may be fragmented.
    //= RFC 6864 §4.2
    //= RFC 8200 §4.5
    pub(super) fn next_fragment_id(&mut self) -> u32 {
        self.fragment_id = self.fragment_id.wrapping_add(self.fragment_id_step);
        self.fragment_id
    }
}

/// The shards of a node take turns, so that no two of them use the same identification.
fn first_fragment_id(config: &Config) -> u32 {
    let Steering { index, count, .. } = config.steering;
    let first = (config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
    (first - first % u32::from(count.max(1))).wrapping_add(index.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifications_of_shards_are_distinct() {
        let mut given = std::collections::BTreeSet::new();
        for index in 0..5 {
            let steering = Steering {
                index,
                count: 5,
                ..Steering::SOLE
            };
            let mut state = State::new(&Config {
                steering,
                seed: 7,
                ..Config::default()
            });
            assert!((0..100).all(|_| given.insert(state.next_fragment_id())));
        }
        // The shards take turns, so that their identifications stay close together.
        let range = given.last().unwrap() - given.first().unwrap();
        assert_eq!(range, 499);
    }
}
