//! Which of many peers are looked at: plain data in the node's region.
//!
//! With few peers, every round looks at each of them: that costs less than a record of the active
//! ones. With many, a round looks at the peers that exchanged frames lately, and at a few of the
//! others in turn. The cost of a round therefore does not grow with the number of peers.
//!
//! A peer that was silent when the node slept is not told that the node is awake again. Such a
//! *resting* peer rings as soon as it sends, with the number of its slot. Until then neither sleep
//! nor wake-up looks at it.
//!
//! A ring is a hint. After a wrong one, this node looks in vain, or the peer that sent it waits for
//! its turn.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::slots::Slots;

/// As many peers are few.
pub(super) const FEW: usize = 16;

/// Silent peers that are looked at in a round.
pub(super) const LOOKS: usize = 8;

/// Rounds after which a peer that is silent is taken for silent, at least; at most twice as
/// many.
const PERIOD: u32 = 512;

/// Which peers have sent lately.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Activity {
    /// Peers that frames were exchanged with in this period, and in the one before.
    current: Slots,
    former: Slots,
    /// Peers that ring when they send: they were told that this node sleeps, had sent
    /// nothing, and were not heard of since.
    resting: Slots,
    /// Peers that were told of the present sleep, if there are many.
    told: Slots,
    rounds: u32,
    /// The slot with which the next round begins.
    pub(super) first: u32,
    /// Position among the peers from which on the next silent ones are looked at.
    pub(super) next: u32,
    unused: u32,
}

impl Activity {
    /// Frames are exchanged with the peer.
    #[inline]
    pub(super) fn note(&mut self, slot: u16) {
        self.current.insert(slot);
    }

    /// The peer has sent something, or has to be looked at for another reason.
    pub(super) fn rouse(&mut self, slot: u16) {
        self.current.insert(slot);
        self.resting.remove(slot);
        self.told.remove(slot);
    }

    /// Nothing is known of a slot's occupant.
    pub(super) fn forget(&mut self, slot: u16) {
        for slots in [
            &mut self.current,
            &mut self.former,
            &mut self.resting,
            &mut self.told,
        ] {
            slots.remove(slot);
        }
    }

    /// Those that frames were exchanged with lately.
    pub(super) fn lively(&self) -> Slots {
        self.current.or(&self.former)
    }

    pub(super) fn resting(&self) -> &Slots {
        &self.resting
    }

    /// Those that may rest now, or when the present sleep is over.
    pub(super) fn silent(&self) -> Slots {
        self.resting.or(&self.told)
    }

    /// Makes no peer rest: there are few peers now, and nothing is noted of them.
    pub(super) fn rouse_all(&mut self) {
        self.resting = Slots::default();
        self.told = Slots::default();
    }

    /// Counts another round, of many peers.
    pub(super) fn count_round(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds >= PERIOD {
            self.rounds = 0;
            self.former = std::mem::take(&mut self.current);
        }
    }

    /// Notes peers that were told of a sleep, and have sent nothing before.
    pub(super) fn told(&mut self, slots: Slots) {
        self.told = slots;
    }

    /// Ends the sleep. A peer rests from now on if it was silent before and during the sleep, and
    /// if `may_rest` allows it.
    pub(super) fn end_sleep(&mut self, may_rest: impl Fn(u16) -> bool) {
        if !self.told.is_empty() {
            let told = std::mem::take(&mut self.told);
            let silent = told.without(&self.lively());
            let rest = silent.iter().filter(|slot| may_rest(*slot));
            rest.for_each(|slot| self.resting.insert(slot));
        }
    }
}
