//! The sources that a poll watches without the lease: direct connections, listeners that peers
//! connect to directly, and wakers.
//!
//! A peer that has something sets a bit for its connection, and rings the poll's waiter if a
//! thread sleeps there. A source that was found not ready is armed at its peer. A source that
//! was told of as ready is looked at again by the next call.
//!
//! | file | what |
//! | --- | --- |
//! | `source` | a registration, and what it has to tell |
//! | `registrations` | adding, changing and ending registrations |

mod registrations;
mod source;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;
use toehold_node::Shards;
use toehold_node::direct::{Bank, Direct, Ear, WaitTarget};
use toehold_shm::Process;
use toehold_shm::direct::{ArmError, ThreadNumber, WaiterKind, WaiterNumber, Waiters};

pub(super) use self::source::{DirectWatched, Identity};
use self::source::{Source, SourceLook};
use super::Events;

/// A poll's part without the lease.
pub(super) struct DirectSet {
    waiter: WaiterNumber,
    waiters: Waiters,
    /// The process that has the waiter.
    process: u32,
    state: Mutex<State>,
    /// The descriptor that wakes threads that also wait for descriptors of the kernel.
    ear: OnceLock<Ear>,
    /// The epoch of the directory when the listeners were last looked up.
    epoch: AtomicU64,
    /// Counts the reasons that threads were given to look again.
    changes: AtomicU64,
}

/// The registered sources, and those that are to be looked at.
#[derive(Default)]
struct State {
    sources: HashMap<u64, Source>,
    by_identity: HashMap<Identity, u64>,
    last_key: u64,
    /// Keys, by slot of the bank and number of the connection.
    by_connection: HashMap<(u16, u16), Vec<u64>>,
    /// Keys, by the listener's number.
    by_listener: HashMap<u16, Vec<u64>>,
    /// Keys of polls in this one. No bit tells which of them has something.
    nested: Vec<u64>,
    /// Keys to be looked at.
    queue: VecDeque<u64>,
    /// Banks in which something is registered, and how often.
    banks: Vec<(Arc<Bank>, usize)>,
    /// The banks in which peers connect to listeners.
    accepting: Arc<[Arc<Bank>]>,
}

impl State {
    fn queue(&mut self, key: u64) {
        if let Some(source) = self.sources.get_mut(&key)
            && !source.is_queued
        {
            source.is_queued = true;
            self.queue.push_back(key);
        }
    }

    /// All banks whose other sides may ring.
    fn all_banks(&self) -> Vec<Arc<Bank>> {
        let mut all: Vec<Arc<Bank>> = self.banks.iter().map(|(bank, _)| Arc::clone(bank)).collect();
        for bank in self.accepting.iter() {
            if !all.iter().any(|known| Arc::ptr_eq(known, bank)) {
                all.push(Arc::clone(bank));
            }
        }
        for key in &self.nested {
            if let Some(Source {
                watched: DirectWatched::Poll(inner),
                ..
            }) = self.sources.get(key)
                && let Some(inner) = inner.upgrade()
            {
                let more = inner.direct_banks();
                let known = all.clone();
                let is_new = |bank: &Arc<Bank>| !known.iter().any(|other| Arc::ptr_eq(other, bank));
                all.extend(more.into_iter().filter(is_new));
            }
        }
        all
    }
}

impl DirectSet {
    /// An empty set. Returns `None` if the node has no direct connections.
    ///
    /// # Errors
    ///
    /// ENOBUFS if the node has no waiter left.
    pub(super) fn open(shards: &Shards) -> io::Result<Option<DirectSet>> {
        let Some(direct) = shards.direct() else {
            return Ok(None);
        };
        let waiters = direct.waiters().clone();
        let waiter = waiters.claim(direct.process(), WaiterKind::Instance);
        Ok(Some(DirectSet {
            waiter: waiter.ok_or(Errno::NOBUFS)?,
            waiters,
            process: Process::this().map_or(0, Process::number),
            state: Mutex::default(),
            ear: OnceLock::new(),
            epoch: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn waiter(&self) -> WaiterNumber {
        self.waiter
    }

    /// The descriptor that wakes a thread that also waits for descriptors of the kernel. Returns
    /// `None` if this process has no descriptors left.
    pub(super) fn ear(&self, direct: &Direct) -> Option<&Ear> {
        if self.ear.get().is_none() {
            let ear = Ear::open(direct, self.waiter)?;
            self.waiters.set_on_descriptor(self.waiter, true);
            let _ = self.ear.set(ear);
        }
        self.ear.get()
    }

    /// Whether something is registered.
    pub(super) fn is_used(&self) -> bool {
        !self.lock().sources.is_empty()
    }

    /// Has threads that wait with `outer` woken by this set's events.
    pub(super) fn add_outer(&self, outer: &DirectSet) {
        self.waiters.add_outer(self.waiter, outer.waiter);
    }

    /// Undoes [`add_outer`](DirectSet::add_outer).
    pub(super) fn remove_outer(&self, outer: &DirectSet) {
        self.waiters.remove_outer(self.waiter, outer.waiter);
    }

    /// Makes a thread that waits look again, or one that is about to.
    pub(super) fn rouse(&self) {
        self.changes.fetch_add(1, SeqCst);
        // It fences first: a thread that does not see the change has announced its sleep before.
        self.waiters.ring(self.waiter);
    }

    /// Changes whenever threads are [roused](DirectSet::rouse). To be asked for before the look whose
    /// result lets a thread wait.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// Takes the sources that are ready, as much as there is room for.
    pub(super) fn collect(&self, direct: &Direct, events: &mut Events) -> io::Result<()> {
        let thread = direct.thread().ok_or(Errno::NOBUFS)?;
        let mut state = self.lock();
        self.refresh_banks(&mut state, direct);
        let bits = self
            .waiters
            .collecting(self.waiter, thread, || self.take_bits(&mut state));
        bits.map_err(|_| Errno::AGAIN)?;
        for key in state.nested.clone() {
            state.queue(key);
        }
        for _ in 0..state.queue.len() {
            if events.len() == events.capacity() {
                break;
            }
            let Some(key) = state.queue.pop_front() else { break };
            self.look_at(&mut state, key, (direct, thread), events);
        }
        if !state.queue.is_empty() && self.waiters.is_asleep(self.waiter) {
            // There is something for another thread, too.
            self.waiters.ring(self.waiter);
        }
        Ok(())
    }

    /// Looks at a source. It stays queued if it is still ready.
    fn look_at(
        &self,
        state: &mut State,
        key: u64,
        (direct, thread): (&Direct, ThreadNumber),
        events: &mut Events,
    ) {
        let Some(source) = state.sources.get_mut(&key) else {
            return;
        };
        source.is_queued = false;
        match source.look(direct, thread, self.waiter) {
            SourceLook::Nothing => {}
            SourceLook::Ready(readiness) => {
                events.push_direct(source.token, readiness);
                if source.told() {
                    source.is_queued = true;
                    state.queue.push_back(key);
                }
            }
            SourceLook::Dropped => self.remove(state, key),
        }
    }

    /// Takes the bits that peers have set.
    fn take_bits(&self, state: &mut State) {
        let mut found = Vec::new();
        let mut listeners = 0;
        for (bank, _) in &state.banks {
            listeners |= bank
                .signals
                .collect(self.waiter, |number| found.push((bank.slot(), number)));
        }
        for bank in state.accepting.iter() {
            listeners |= bank
                .signals
                .collect(self.waiter, |number| found.push((bank.slot(), number)));
        }
        for place in found {
            if let Some(keys) = state.by_connection.get(&place) {
                for key in keys.clone() {
                    state.queue(key);
                }
            }
        }
        if listeners != 0 {
            let named = |listener: &u16| listeners >> (listener % 64) & 1 != 0;
            let keys = state.by_listener.iter().filter(|(listener, _)| named(listener));
            let keys: Vec<u64> = keys.flat_map(|(_, keys)| keys.iter().copied()).collect();
            keys.into_iter().for_each(|key| state.queue(key));
        }
    }

    /// Peers that have come since may connect to listeners, too.
    fn refresh_banks(&self, state: &mut State, direct: &Direct) {
        if state.by_listener.is_empty() {
            return;
        }
        let present = direct.accepting();
        if !Arc::ptr_eq(&present, &state.accepting) {
            state.accepting = present;
            let keys: Vec<u64> = state.by_listener.values().flatten().copied().collect();
            keys.into_iter().for_each(|key| state.queue(key));
        }
    }

    /// The banks whose other sides may ring, for a thread that is about to wait.
    pub(super) fn banks(&self) -> Vec<Arc<Bank>> {
        self.lock().all_banks()
    }

    /// The target of a thread that waits with the poll, which has looked since `changes`.
    pub(super) fn target<'a>(
        &'a self,
        direct: &'a Direct,
        banks: &'a [Arc<Bank>],
        changes: u64,
    ) -> ForBits<'a> {
        ForBits {
            set: self,
            direct,
            banks,
            changes,
        }
    }

    /// Whether there is something to tell. It stays to be told.
    pub(super) fn is_ready(&self, direct: &Direct) -> bool {
        let mut events = Events::with_capacity(1);
        let _ = self.collect_again(direct, &mut events);
        !events.is_empty()
    }

    /// Looks, and leaves what was found to be found again. The peers of sources that are not ready
    /// tell the waiter from now on.
    fn collect_again(&self, direct: &Direct, events: &mut Events) -> io::Result<()> {
        let thread = direct.thread().ok_or(Errno::NOBUFS)?;
        let mut state = self.lock();
        self.refresh_banks(&mut state, direct);
        let bits = self
            .waiters
            .collecting(self.waiter, thread, || self.take_bits(&mut state));
        bits.map_err(|_| Errno::AGAIN)?;
        for key in state.nested.clone() {
            state.queue(key);
        }
        let mut at = 0;
        while let Some(&key) = state.queue.get(at) {
            let look = state
                .sources
                .get_mut(&key)
                .map(|source| (source.look(direct, thread, self.waiter), source.token));
            match look {
                Some((SourceLook::Ready(readiness), token)) => {
                    events.push_direct(token, readiness);
                    return Ok(());
                }
                Some((SourceLook::Nothing, _)) if state.nested.contains(&key) => at += 1,
                Some((SourceLook::Dropped, _)) => {
                    self.remove(&mut state, key);
                    state.queue.remove(at);
                }
                // Its peer tells the waiter when there is something.
                Some((SourceLook::Nothing, _)) | None => {
                    if let Some(source) = state.sources.get_mut(&key) {
                        source.is_queued = false;
                    }
                    state.queue.remove(at);
                }
            }
        }
        Ok(())
    }
}

impl Drop for DirectSet {
    fn drop(&mut self) {
        // What a forked child has is its parent's.
        if Process::this().map_or(0, Process::number) == self.process {
            let mut state = self.lock();
            let keys: Vec<u64> = state.sources.keys().copied().collect();
            keys.into_iter().for_each(|key| self.remove(&mut state, key));
            drop(state);
            self.waiters.free(self.waiter);
        }
    }
}

/// Waits until a peer has set a bit. All sources were found not ready and are armed.
pub(super) struct ForBits<'a> {
    set: &'a DirectSet,
    direct: &'a Direct,
    banks: &'a [Arc<Bank>],
    /// Of the set, before the thread looked.
    changes: u64,
}

impl WaitTarget for ForBits<'_> {
    fn is_ready(&self) -> bool {
        let has_bits = |bank: &Arc<Bank>| !bank.signals.is_empty(self.set.waiter);
        self.set.changes() != self.changes || self.banks.iter().any(has_bits)
    }

    fn arm(&mut self, _: ThreadNumber, _: WaiterNumber) -> Result<bool, ArmError> {
        let mut state = self.set.lock();
        let nested = std::mem::take(&mut state.nested);
        let is_nested_ready = nested.iter().any(|key| {
            let source = state.sources.get(key);
            source.is_some_and(|source| matches!(source.peek(self.direct), SourceLook::Ready(_)))
        });
        state.nested = nested;
        let has_new_peer =
            !state.by_listener.is_empty() && !Arc::ptr_eq(&self.direct.accepting(), &state.accepting);
        Ok(is_nested_ready || has_new_peer || !state.queue.is_empty() || self.is_ready())
    }
}

impl DirectSet {
    /// Notes the present epoch of the directory. Returns `true` if it is another one.
    pub(super) fn note_epoch(&self, direct: &Direct) -> bool {
        let epoch = direct.directory().epoch() + 1;
        self.epoch.swap(epoch, Relaxed) != epoch
    }
}
