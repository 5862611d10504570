//! The bells of a node and of its banks, as one process has them.
//!
//! A process gets a set of bells from the engine when it first listens to one or rings one. So
//! programs that never wait for descriptors of the kernel have none.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock, Weak};

use serde::{Deserialize, Serialize};
use toehold_shm::direct::{BellSet, WaiterNumber};
use toehold_shm::{Change, PerProcess, Process};

/// A set of bells of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BellsOf {
    /// The bells on which the node's own processes ring its waiters.
    Node,
    /// The bells on which the other side of a bank rings this node's waiters.
    OwnSide {
        /// The node's number of the bank.
        slot: u16,
        /// Tells the bank from earlier ones of the slot.
        generation: u32,
    },
    /// The bells on which this node rings the other side's waiters.
    OtherSide {
        /// The node's number of the bank.
        slot: u16,
        /// Tells the bank from earlier ones of the slot.
        generation: u32,
    },
}

/// The engine, as a process that asks it for bells has it.
pub(crate) trait BellKeeper: Send + Sync {
    /// Asks for a set of bells. The inner `None` is final: there is no such set. The outer one is
    /// not: the engine does not answer, or this process has no room for descriptors.
    fn bells(&self, which: BellsOf) -> Option<Option<BellSet>>;

    /// Has the engine ring a waiter, since this process cannot.
    fn ring(&self, which: BellsOf, waiter: WaiterNumber);
}

/// The way in which a process asks its engine. A forked child has another way, once it has
/// attached.
pub(crate) struct BellSource(PerProcess<OnceLock<Weak<dyn BellKeeper>>>);

impl BellSource {
    pub(crate) fn new(process: Process) -> BellSource {
        BellSource(PerProcess::new(process, OnceLock::new()))
    }

    /// Sets the keeper of bells, once this process has attached.
    pub(crate) fn set(&self, keeper: Weak<dyn BellKeeper>) {
        let BellSource(source) = self;
        let cell = source.get().unwrap_or_else(|| source.publish(OnceLock::new()));
        let _ = cell.set(keeper);
    }

    fn keeper(&self) -> Option<Arc<dyn BellKeeper>> {
        let BellSource(source) = self;
        source.get()?.get()?.upgrade()
    }
}

/// A set of bells that a process has, or gets when it first needs it.
pub(crate) struct LazyBells {
    which: BellsOf,
    /// The engine, which is asked for bells; `None` if this process is the engine.
    source: Option<Arc<BellSource>>,
    bells: OnceLock<Option<BellSet>>,
}

impl LazyBells {
    /// Bells that the engine has.
    pub(crate) fn of_engine(which: BellsOf, bells: Option<BellSet>) -> LazyBells {
        LazyBells {
            which,
            source: None,
            bells: OnceLock::from(bells),
        }
    }

    /// Bells that a process can get.
    pub(crate) fn of_process(which: BellsOf, source: Arc<BellSource>) -> LazyBells {
        LazyBells {
            which,
            source: Some(source),
            bells: OnceLock::new(),
        }
    }

    /// Other bells that the same process can get.
    pub(crate) fn another(&self, which: BellsOf) -> LazyBells {
        LazyBells {
            which,
            source: self.source.clone(),
            bells: OnceLock::new(),
        }
    }

    /// The bells. Returns `None` if there are none, or this process cannot have them now.
    pub(crate) fn get(&self) -> Option<&BellSet> {
        if let Some(known) = self.bells.get() {
            return known.as_ref();
        }
        let found = self.source.as_ref()?.keeper()?.bells(self.which)?;
        let _change = Process::this().map(Change::begin);
        // Another thread may have been faster.
        let _ = self.bells.set(found);
        self.bells.get()?.as_ref()
    }

    /// The descriptor that becomes readable when a waiter is rung.
    pub(crate) fn bell_of(&self, waiter: WaiterNumber) -> Option<BorrowedFd<'_>> {
        Some(self.get()?.bell_of(waiter))
    }

    /// Rings a waiter.
    pub(crate) fn ring(&self, waiter: WaiterNumber) {
        if let Some(bells) = self.get() {
            return bells.ring(waiter);
        }
        let is_known = self.bells.get().is_some();
        let keeper = self.source.as_ref().filter(|_| !is_known);
        if let Some(keeper) = keeper.and_then(|source| source.keeper()) {
            keeper.ring(self.which, waiter);
        }
    }

    /// Whether this process has the descriptors.
    #[cfg(test)]
    pub(crate) fn is_fetched(&self) -> bool {
        self.bells.get().is_some()
    }
}

impl fmt::Debug for LazyBells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut about = f.debug_struct("LazyBells");
        about.field("which", &self.which).field("bells", &self.bells);
        about.finish_non_exhaustive()
    }
}
