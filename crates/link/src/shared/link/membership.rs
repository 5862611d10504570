//! A place in the segment: claimed, kept, and lost; and who has the others.

use std::time::{Duration, Instant};

use super::super::SharedError;
use super::super::peer::{Peer, identity_of};
use super::super::vigil::{BEAT_NS, STALE_NS, Vigil};
use super::SharedLink;
use crate::NeighborChange;
use crate::address_table::AddressTable;
use crate::random::unpredictable;

/// How often the link looks who is there and who wants to begin, in nanoseconds.
const TICK_NS: u64 = 1_000_000;
/// How often learned addresses are looked through, in nanoseconds.
const AGE_NS: u64 = 10_000_000_000;
/// How long a member that was not told its number waits for one, beyond the time in which
/// it is seen who is gone.
const PATIENCE: Duration = Duration::from_secs(2);

impl SharedLink {
    /// Waits for a number.
    pub(super) fn join(&mut self) -> Result<(), SharedError> {
        let begun = Instant::now();
        let patience = Duration::from_nanos(STALE_NS) + PATIENCE;
        loop {
            let now = begun.elapsed();
            if self.claim(now.as_nanos() as u64) {
                break;
            }
            if now > patience {
                return Err(match self.wanted {
                    Some(member) => SharedError::Taken(member),
                    None => SharedError::Crowded(self.segment.members()),
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // Whoever drives has a clock of his own.
        self.vigil = Vigil::new(self.segment.members());
        Ok(())
    }

    /// Takes a number that nobody has, or whose owner is gone. True: it has one.
    fn claim(&mut self, now_ns: u64) -> bool {
        self.vigil.look(&self.segment, now_ns);
        let (vigil, segment) = (&self.vigil, &self.segment);
        let suits = |&member: &usize| self.wanted.is_none_or(|wanted| wanted == member);
        let candidates = (0..segment.members()).filter(suits);
        let mut free: Vec<_> = candidates
            .filter_map(|member| Some((vigil.replaceable(member, now_ns)?, member)))
            .collect();
        // Those that nobody had come first: 0 is nobody.
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

    /// Looks after all that takes time, now and then.
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
        self.vigil.look(&self.segment, self.now_ns);
        for index in 0..self.peers.len() {
            let seen = self.vigil.living(self.peers[index].member(), self.now_ns);
            if self.peers[index].differs(seen) {
                self.lose(index);
                if let Some(seen) = seen {
                    self.peers[index].meet(seen);
                    self.note(NeighborChange::Joined(self.peers[index].address));
                }
            }
            if seen.is_some() {
                self.peers[index].attend(self.life, self.now_ns);
            }
        }
        if self.now_ns >= self.age_ns {
            self.age_ns = self.now_ns + AGE_NS;
            self.learned.age(self.now_ns);
        }
    }

    /// A member is gone, or another life of it has begun.
    fn lose(&mut self, index: usize) {
        if self.peers[index].is_present() {
            self.note(NeighborChange::Left(self.peers[index].address));
            self.learned.forget(index);
        }
        self.peers[index].part();
    }

    /// Somebody has taken this member's number, as happens to one that did nothing for long:
    /// nothing it has mapped is its own any more.
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

    /// A driver that never asks for changes does not hold them all.
    fn note(&mut self, change: NeighborChange) {
        if self.changes.len() >= 4 * self.segment.members() {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }
}
