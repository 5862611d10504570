//! The slot of a member: its identity and its sign of life.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::super::protocol::AtomicU64;

/// The contents of a slot at one moment. Any member may have written them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sight {
    /// The life of the member that has claimed the slot, or 0.
    pub owner: u64,
    /// The owner's life, once its identity is there.
    pub present: u64,
    /// The owner's description of itself.
    pub identity: u64,
    /// Changes while the owner lives.
    pub beat: u64,
}

/// The slot of one member. Every member can write its words; only its owner does.
#[derive(Clone, Copy)]
pub struct Slot<'a> {
    pub(super) owner: &'a AtomicU64,
    pub(super) present: &'a AtomicU64,
    pub(super) identity: &'a AtomicU64,
    pub(super) beat: &'a AtomicU64,
}

impl Slot<'_> {
    /// The present contents.
    pub fn look(self) -> Sight {
        let present = self.present.load(Acquire);
        Sight {
            owner: self.owner.load(Relaxed),
            present,
            identity: self.identity.load(Relaxed),
            beat: self.beat.load(Relaxed),
        }
    }

    /// Claims the slot for the life `own`, never 0, if `former` still has it (0: none). Returns
    /// `false` if another member was faster.
    ///
    /// On some emulators, atomic operations of different members are not atomic with each other.
    /// Both members may then get true. Check [`Slot::belongs_to`] now and then, as is needed
    /// anyhow.
    pub fn claim(self, former: u64, own: u64, identity: u64) -> bool {
        let claimed = self.owner.compare_exchange(former, own, AcqRel, Relaxed);
        if claimed.is_err() {
            return false;
        }
        self.present.store(0, Relaxed);
        self.beat(own, identity);
        true
    }

    /// Whether this life still has the slot. A member that was idle for long may have lost it.
    #[inline]
    pub fn belongs_to(self, own: u64) -> bool {
        self.owner.load(Relaxed) == own
    }

    /// Shows that the owner lives, and repeats its identity, in case another member has overwritten
    /// it.
    pub fn beat(self, own: u64, identity: u64) {
        self.identity.store(identity, Release);
        self.beat.store(self.beat.load(Relaxed).wrapping_add(1), Relaxed);
        self.present.store(own, Release);
    }

    /// Releases the slot, if this life has it.
    pub fn leave(self, own: u64) {
        if self.belongs_to(own) {
            self.present.store(0, Release);
            let _ = self.owner.compare_exchange(own, 0, AcqRel, Relaxed);
        }
    }
}
