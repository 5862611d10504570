//! Membership of the segment: claims, keeps and loses a number, and watches the
//! other members.

use std::time::{Duration, Instant};

use super::super::IvshmemError;
use super::super::liveness::{BEAT_NS, Liveness, STALE_NS};
use super::super::peer::{Peer, identity_of};
use super::IvshmemLink;
use crate::NeighborChange;
use crate::address_table::AddressTable;
use crate::random::unpredictable;

/// Interval of polls for present members and new sessions, in nanoseconds.
const TICK_NS: u64 = 1_000_000;
/// Interval of expiring learnt addresses, in nanoseconds.
const AGE_NS: u64 = 10_000_000_000;
/// Longest wait for a number by a member that was not told one, beyond the time in
/// which dead members are recognised.
const PATIENCE: Duration = Duration::from_secs(2);

impl IvshmemLink {
    /// Waits for a number.
    pub(super) fn join(&mut self) -> Result<(), IvshmemError> {
        let begun = Instant::now();
        let patience = Duration::from_nanos(STALE_NS) + PATIENCE;
        loop {
            let now = begun.elapsed();
            if self.claim(now.as_nanos() as u64) {
                break;
            }
            if now > patience {
                return Err(match self.wanted {
                    Some(member) => IvshmemError::Taken(member),
                    None => IvshmemError::Crowded(self.segment.members()),
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // The driver has another clock.
        self.liveness = Liveness::new(self.segment.members());
        Ok(())
    }

    /// Takes a number without a living owner. Returns whether the link has one
    /// then.
    fn claim(&mut self, now_ns: u64) -> bool {
        self.liveness.look(&self.segment, now_ns);
        let (liveness, segment) = (&self.liveness, &self.segment);
        let suits = |&member: &usize| self.wanted.is_none_or(|wanted| wanted == member);
        let candidates = (0..segment.members()).filter(suits);
        let mut free: Vec<_> = candidates
            .filter_map(|member| Some((liveness.replaceable(member, now_ns)?, member)))
            .collect();
        // Unused numbers come first: their owner is 0.
        free.sort_unstable_by_key(|&(owner, member)| (owner != 0, member));
        let (life, identity) = (unpredictable().max(1), identity_of(self.address));
        let claimed = free
            .into_iter()
            .find(|&(owner, member)| segment.slot(member).claim(owner, life, identity));
        let Some((_, member)) = claimed else { return false };
        (self.member, self.life) = (Some(member), life);
        let others = (0..segment.members()).filter(|&other| other != member);
        self.peers = others.map(|other| Peer::new(segment, member, other)).collect();
        true
    }

    /// Runs all periodic work that is due.
    pub(super) fn tick(&mut self) {
        if self.now_ns < self.tick_ns {
            return;
        }
        self.tick_ns = self.now_ns + TICK_NS;
        let Some(member) = self.member else {
            self.claim(self.now_ns);
            return;
        };
        if self.now_ns >= self.beat_ns {
            self.beat_ns = self.now_ns + BEAT_NS;
            let identity = identity_of(self.address);
            self.segment.slot(member).beat(self.life, identity);
        }
        self.liveness.look(&self.segment, self.now_ns);
        for index in 0..self.peers.len() {
            let seen = self.liveness.living(self.peers[index].member(), self.now_ns);
            if self.peers[index].differs(seen) {
                self.lose(index);
                if let Some(seen) = seen {
                    self.peers[index].begin(seen);
                    self.note(NeighborChange::Joined(self.peers[index].address));
                }
            }
            if seen.is_some() {
                self.peers[index].update_sessions(self.life, self.now_ns);
            }
        }
        if self.now_ns >= self.age_ns {
            self.age_ns = self.now_ns + AGE_NS;
            self.learned.age(self.now_ns);
        }
    }

    /// Handles a member that is gone, or whose next life has begun.
    fn lose(&mut self, index: usize) {
        if self.peers[index].is_present() {
            self.note(NeighborChange::Left(self.peers[index].address));
            self.learned.forget(index);
        }
        self.peers[index].end();
    }

    /// Checks that this member still has its number. After a long pause another
    /// member may have taken it. The mapped rings then belong to that member.
    pub(super) fn check_place(&mut self) {
        let is_own = |member| self.segment.slot(member).belongs_to(self.life);
        if self.member.is_none_or(is_own) {
            return;
        }
        self.statistics.evicted += 1;
        self.member = None;
        for index in 0..self.peers.len() {
            if self.peers[index].is_present() {
                self.note(NeighborChange::Left(self.peers[index].address));
            }
        }
        self.peers.clear();
        self.learned = AddressTable::default();
    }

    /// Queues a change for the driver, up to a bound for a driver that never asks.
    fn note(&mut self, change: NeighborChange) {
        if self.changes.len() >= 4 * self.segment.members() {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }
}
