//! The slot of a member: who it is, and that it lives.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::super::protocol::AtomicU64;

/// What a slot says at one moment. Anybody may have written it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sight {
    /// The life of a member that has claimed the slot, or 0.
    pub owner: u64,
    /// The same once its identity is there.
    pub present: u64,
    /// What it says of itself.
    pub identity: u64,
    /// Changes while it lives.
    pub beat: u64,
}

/// The slot of one member, whose words every member can write: none but its owner does.
#[derive(Clone, Copy)]
pub struct Slot<'a> {
    pub(super) owner: &'a AtomicU64,
    pub(super) present: &'a AtomicU64,
    pub(super) identity: &'a AtomicU64,
    pub(super) beat: &'a AtomicU64,
}

impl Slot<'_> {
    /// What it says now.
    pub fn look(self) -> Sight {
        let present = self.present.load(Acquire);
        Sight {
            owner: self.owner.load(Relaxed),
            present,
            identity: self.identity.load(Relaxed),
            beat: self.beat.load(Relaxed),
        }
    }

    /// Takes the slot for the life `own`, never 0, if `former` still has it (0: nobody).
    /// False: somebody else was faster.
    ///
    /// Where the processors of two members do not agree on what is one step (emulators
    /// with a single one do not), both may be told that they have it: ask
    /// [`Slot::belongs_to`] now and then, as is needed anyhow.
    pub fn claim(self, former: u64, own: u64, identity: u64) -> bool {
        let claimed = self.owner.compare_exchange(former, own, AcqRel, Relaxed);
        if claimed.is_err() {
            return false;
        }
        self.present.store(0, Relaxed);
        self.beat(own, identity);
        true
    }

    /// Whether this life still has the slot: one that did nothing for long may have lost it.
    #[inline]
    pub fn belongs_to(self, own: u64) -> bool {
        self.owner.load(Relaxed) == own
    }

    /// Its owner lives, and says again who it is, in case somebody wrote something else.
    pub fn beat(self, own: u64, identity: u64) {
        self.identity.store(identity, Release);
        self.beat.store(self.beat.load(Relaxed).wrapping_add(1), Relaxed);
        self.present.store(own, Release);
    }

    /// Gives it back, if this life has it.
    pub fn leave(self, own: u64) {
        if self.belongs_to(own) {
            self.present.store(0, Release);
            let _ = self.owner.compare_exchange(own, 0, AcqRel, Relaxed);
        }
    }
}
