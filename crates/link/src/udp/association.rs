//! The agreement of two nodes before frames flow. Each has a random token, which
//! datagrams to it must carry.
//!
//! A node that carries a token has seen the hello with it. Each introduction has a
//! new token. It therefore tells a peer's new life from recordings of an old one,
//! without a clock or a memory of the past. A hello with an old token disturbs
//! nothing. It is answered with a new token, and the current association goes on
//! until that token comes back.
//!
//! Only a token that came back begins an association. A hello with the current
//! token may hand over another token. That proves nothing: the hello may answer a
//! recording of this node's own hello, which an attacker has sent to the peer. A
//! hello without a token is answered, unless it is older than the peer's current
//! life.

/// Number of sequence numbers behind the highest one that may still arrive.
const WINDOW: u64 = 1024;

/// A token handed to a peer, and the datagrams that came with it.
#[derive(Debug)]
pub(super) struct Inbound {
    token: u64,
    /// The life of the peer that returned the token.
    sender: u32,
    /// The next sequence number if the order is kept.
    next: u64,
    /// Bit map of received numbers among the [`WINDOW`] before `next`, by number
    /// modulo `WINDOW`.
    seen: [u64; (WINDOW / 64) as usize],
}

impl Inbound {
    pub(super) fn new(token: u64) -> Inbound {
        Inbound {
            token,
            sender: 0,
            next: 0,
            seen: [0; (WINDOW / 64) as usize],
        }
    }

    /// Notes a datagram. Returns `false` if it has come before, or is too old to
    /// tell.
    pub(super) fn accept(&mut self, sequence: u64) -> bool {
        if sequence == u64::MAX || sequence.saturating_add(WINDOW) < self.next {
            return false;
        }
        if sequence >= self.next {
            let skipped = (sequence - self.next).min(WINDOW);
            for number in sequence - skipped..=sequence {
                self.set(number, false);
            }
            self.next = sequence + 1;
        }
        let is_new = !self.get(sequence);
        self.set(sequence, true);
        is_new
    }

    fn get(&self, sequence: u64) -> bool {
        let at = sequence % WINDOW;
        self.seen[(at / 64) as usize] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, sequence: u64, seen: bool) {
        let at = sequence % WINDOW;
        let word = &mut self.seen[(at / 64) as usize];
        *word = *word & !(1 << (at % 64)) | u64::from(seen) << (at % 64);
    }
}

/// This node's side of an association with a peer.
#[derive(Debug, Default)]
pub(super) struct Association {
    /// The token of the peer's current life.
    current: Option<Inbound>,
    /// The token handed out that has not come back yet.
    offered: Option<Inbound>,
    /// The token that the peer expects.
    outbound: Option<u64>,
}

/// The judgement of a datagram by its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The datagram belongs to the current association.
    Current,
    /// The datagram is the first of a new association.
    Fresh,
    /// The datagram came before.
    Replayed,
    /// The token is unknown.
    Unknown,
}

impl Association {
    /// Returns the peer's token, if there is an association.
    pub(super) fn outbound(&self) -> Option<u64> {
        self.outbound
    }

    /// Judges a datagram that is authentic, if there is a key. `sender` names the
    /// life of the peer that sent it.
    pub(super) fn judge(&mut self, sender: u32, token: u64, sequence: u64) -> Verdict {
        if let Some(current) = self.current.as_mut().filter(|inbound| inbound.token == token) {
            return match current.accept(sequence) {
                true => Verdict::Current,
                false => Verdict::Replayed,
            };
        }
        match self.offered.take_if(|inbound| inbound.token == token) {
            Some(mut inbound) => {
                inbound.accept(sequence);
                inbound.sender = sender;
                self.current = Some(inbound);
                // The peer's token belongs to another life. The new one comes with
                // a hello.
                self.outbound = None;
                Verdict::Fresh
            }
            None => Verdict::Unknown,
        }
    }

    /// Returns whether a hello without a token is older than a datagram from the
    /// same life of the peer. A peer counts all its datagrams with one counter.
    pub(super) fn is_outdated(&self, sender: u32, sequence: u64) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| current.sender == sender && sequence < current.next)
    }

    /// Takes the token from a hello with a valid own token.
    pub(super) fn adopt(&mut self, token: u64) {
        self.outbound = Some(token);
    }

    /// Returns the token to hand to the peer: the current association's, or a new
    /// one to begin another.
    pub(super) fn offer(&mut self, anew: bool, random: impl FnOnce() -> u64) -> u64 {
        match &self.current {
            Some(current) if !anew => current.token,
            _ => {
                self.offered
                    .get_or_insert_with(|| Inbound::new(random().max(1)))
                    .token
            }
        }
    }

    /// Forgets a silent peer, so that it begins anew.
    pub(super) fn forget(&mut self) {
        *self = Association::default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn replay_of_old_life_is_refused() {
        let mut ours = Association::default();
        let first = ours.offer(false, || 11);
        assert_eq!(ours.judge(7, 5, 0), Verdict::Unknown);
        assert_eq!(ours.judge(7, first, 0), Verdict::Fresh);
        ours.adopt(100);
        assert_eq!(ours.judge(7, first, 1), Verdict::Current);
        assert_eq!(ours.judge(7, first, 1), Verdict::Replayed);
        // An attacker says hello without knowing the token.
        let second = ours.offer(true, || 12);
        assert_eq!(
            ours.judge(7, first, 2),
            Verdict::Current,
            "the association is unchanged"
        );
        assert_eq!(ours.outbound(), Some(100));
        assert_eq!(ours.judge(7, second, 0), Verdict::Fresh);
        assert_eq!(ours.outbound(), None);
        assert_eq!(ours.judge(7, first, 3), Verdict::Unknown);
    }

    #[test]
    fn overtaken_hello_of_current_life_is_outdated() {
        let mut ours = Association::default();
        let token = ours.offer(false, || 11);
        assert!(!ours.is_outdated(7, 0), "the peer has no life yet");
        ours.judge(7, token, 5);
        assert!(ours.is_outdated(7, 0) && ours.is_outdated(7, 5));
        assert!(!ours.is_outdated(7, 6), "the peer has lost the association");
        assert!(!ours.is_outdated(8, 0), "another life counts from zero");
    }

    #[test]
    fn token_is_offered_until_used() {
        let mut ours = Association::default();
        let first = ours.offer(false, || 11);
        assert_eq!(ours.offer(true, || 12), first);
        ours.judge(7, first, 0);
        assert_eq!(ours.offer(false, || 13), first);
        assert_ne!(ours.offer(true, || 14), first);
    }

    #[test]
    fn window_accepts_numbers_within_bounds_once() {
        let mut inbound = Inbound::new(1);
        assert!(inbound.accept(5000));
        assert!(inbound.accept(5001 - WINDOW));
        assert!(!inbound.accept(5000 - WINDOW));
        assert!(!inbound.accept(u64::MAX));
        assert!(inbound.accept(u64::MAX - 1));
        assert!(!inbound.accept(u64::MAX - 1));
        assert!(inbound.accept(u64::MAX - 2));
    }

    proptest! {
        #[test]
        fn no_datagram_is_accepted_twice(steps in proptest::collection::vec((any::<bool>(), 0u64..2500), 1..300)) {
            let mut inbound = Inbound::new(1);
            let (mut seen, mut highest) = (HashSet::new(), 0u64);
            for (ahead, distance) in steps {
                let sequence = if ahead { highest + distance } else { highest.saturating_sub(distance) };
                let old = sequence + WINDOW <= highest;
                let expected = seen.insert(sequence) && !old;
                prop_assert_eq!(inbound.accept(sequence), expected, "{} after {}", sequence, highest);
                highest = highest.max(sequence);
            }
        }
    }
}
