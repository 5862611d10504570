//! The banks of a node's direct connections, as its engine has them.
//!
//! The engine makes the bank that the node has with itself, takes banks in that were exchanged
//! with peers, and gives processes their descriptors. It closes ends that no process has any
//! more, and what a process that has died was doing with others (`closing`).

mod closer;
mod closing;
mod listing;
mod relay;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::Timespec;

use toehold_link::capture::Player;
use toehold_link::mq::{BankMemory, DirectChange, DirectPeer, Membership};
use toehold_shm::RegionError;
use toehold_shm::direct::{
    BellError, BellSet, CONNECTIONS, Directory, Journal, MemoryError, PeerDirectory, Side, Signals,
    ThreadNumber, WaiterNumber, Waiters,
};

use self::closer::{Closer, What};
use self::relay::RelayOrders;
use crate::control::Counter;
use crate::description::Descriptions;
use crate::direct::{
    Addresses, Bank, BankTable, BellsOf, Counts, DirectTape, Entry, FEW, LazyBells, ListenerBell,
    ListenerWords, OWN, Own, Ports, SLOTS, SharedWords,
};

use super::ENGINE;

/// When to look again at queues of closed listeners.
const AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// A peer, as its membership names it: slot and generation there.
type PeerId = (u16, u16);

/// The engine's part in direct connections.
#[derive(Debug)]
pub(super) struct Banks {
    table: BankTable,
    counts: Counts,
    ports: Ports,
    listeners: ListenerWords,
    own: Own,
    /// The line of the journal of the engine's thread that ends what the dead were doing. It waits
    /// for no lock.
    thread: ThreadNumber,
    state: Mutex<State>,
    closer: Closer,
    relays: RelayOrders,
}

#[derive(Debug)]
struct State {
    /// The banks, by slot.
    banks: BTreeMap<u16, Kept>,
    peers: HashMap<PeerId, Peer>,
    /// Numbers of listeners whose queues were emptied once since they were closed.
    emptied: BTreeSet<u16>,
    /// The last generation that was given to a bank. It does not come again in a life of the node.
    generation: u32,
}

#[derive(Debug)]
struct Peer {
    about: DirectPeer,
    directory: PeerDirectory,
}

#[derive(Debug)]
struct Kept {
    entry: Entry,
    bank: Arc<Bank>,
    /// The peer of the bank; `None` if that is the node itself.
    peer: Option<PeerId>,
}

impl State {
    fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.generation
    }

    fn vacancy(&self) -> Option<u16> {
        (OWN.len() as u16..SLOTS as u16).find(|slot| !self.banks.contains_key(slot))
    }

    /// Peers to which another bank is to be opened, since few numbers of those there are are free.
    fn full_peers(&self) -> Vec<PeerId> {
        let mut free: HashMap<PeerId, usize> = HashMap::new();
        let opening = self
            .banks
            .values()
            .filter(|kept| kept.entry.side == Side::Opening);
        for kept in opening.filter(|kept| !kept.entry.is_gone) {
            if let Some(peer) = kept.peer {
                *free.entry(peer).or_default() += CONNECTIONS.saturating_sub(kept.bank.ends.in_use());
            }
        }
        let full = free.into_iter().filter(|(_, free)| *free < FEW);
        full.map(|(peer, _)| peer).collect()
    }

    fn room(&self) -> usize {
        SLOTS.saturating_sub(self.banks.len())
    }
}

impl Banks {
    /// Makes the bank of a node with itself.
    ///
    /// # Errors
    ///
    /// If the system refuses memory or descriptors.
    pub(super) fn begin(
        shared: SharedWords,
        (directory, payload_bound): (&Directory, u64),
        addresses: Addresses,
        life: u64,
    ) -> Result<Banks, MemoryError> {
        let SharedWords {
            table,
            counts,
            ports,
            listeners,
            tap,
        } = shared;
        let journal = Journal::create("toehold-journal", life)?;
        let claim = || journal.claim(ENGINE).ok_or(MemoryError::Foreign);
        let (thread, closer) = (claim()?, claim()?);
        // Without descriptors left, threads look again now and then.
        let bells = Arc::new(LazyBells::of_engine(BellsOf::Node, BellSet::new().ok()));
        let rung = Arc::clone(&bells);
        let waiters = Waiters::new(directory.clone(), journal);
        let own = Own {
            waiters: waiters.with_local_ring(move |waiter| rung.ring(waiter)),
            bells,
            payload_bound,
            tape: DirectTape {
                tap,
                mac: addresses.mac,
            },
        };
        let mut state = State {
            banks: BTreeMap::new(),
            peers: HashMap::new(),
            emptied: BTreeSet::new(),
            generation: 0,
        };
        let generation = state.next_generation();
        let entries = [Side::Opening, Side::Accepting].map(|side| Entry {
            slot: OWN[side as usize],
            generation,
            side,
            same_user: true,
            is_gone: false,
            addresses,
        });
        let banks = Bank::with_itself([&entries[0], &entries[1]], &own, life)?;
        for (entry, bank) in entries.into_iter().zip(banks) {
            table.set(&entry);
            let kept = Kept {
                entry,
                bank: Arc::new(bank),
                peer: None,
            };
            state.banks.insert(entry.slot, kept);
        }
        Ok(Banks {
            table,
            counts,
            ports,
            listeners,
            own,
            thread,
            state: Mutex::new(state),
            closer: Closer::new(closer),
            relays: RelayOrders::new().map_err(RegionError::Create)?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The player of the frames of direct connections, for one thread at a time.
    pub(super) fn player(&self) -> Player {
        self.own.tape.tap.player()
    }

    /// The descriptors that a process attaches to: the directory, the journal, and the signals to
    /// the accepting side of the node's own bank.
    pub(super) fn to_list(&self) -> std::io::Result<Vec<OwnedFd>> {
        let (waiters, signals) = (&self.own.waiters, self.own_signals()?);
        let all = [waiters.directory().fd(), waiters.journal().fd(), signals.fd()];
        all.into_iter().map(|fd| fd.try_clone_to_owned()).collect()
    }

    /// The bell that tells waiters of listeners of connections over TCP.
    pub(super) fn listener_bell(&self) -> std::io::Result<ListenerBell> {
        Ok(ListenerBell {
            words: self.listeners.clone(),
            waiters: self.own.waiters.clone(),
            signals: self.own_signals()?,
        })
    }

    fn own_signals(&self) -> std::io::Result<Signals> {
        let bank = self.bank(OWN[Side::Accepting as usize]);
        let signals = bank.map(|bank| bank.signals.clone());
        signals.ok_or(std::io::ErrorKind::NotFound.into())
    }

    /// The descriptors with which a process maps a bank. Returns `None` if the bank is not there
    /// any more.
    pub(super) fn descriptors(&self, slot: u16, generation: u32) -> Option<Vec<OwnedFd>> {
        let state = self.lock();
        let kept = state.banks.get(&slot)?;
        let is_it = kept.entry.generation == generation;
        is_it.then(|| kept.bank.to_list().ok())?
    }

    /// The descriptors of a set of bells. Returns `None` if there is no such set.
    pub(super) fn bell_descriptors(&self, which: BellsOf) -> Result<Option<Vec<OwnedFd>>, BellError> {
        self.with_bells(which, |bells| bells.get().map(BellSet::to_list).transpose())
            .unwrap_or(Ok(None))
    }

    /// Rings a waiter on a bell of a set.
    pub(super) fn ring(&self, which: BellsOf, waiter: WaiterNumber) {
        self.with_bells(which, |bells| bells.ring(waiter));
    }

    fn with_bells<R>(&self, which: BellsOf, what: impl FnOnce(&LazyBells) -> R) -> Option<R> {
        let (BellsOf::OwnSide { slot, generation } | BellsOf::OtherSide { slot, generation }) = which else {
            return Some(what(&self.own.bells));
        };
        let bank = self.bank(slot).filter(|bank| bank.generation() == generation)?;
        Some(what(bank.bells(which)))
    }

    /// Has the membership of the node's first shard do what has come up, and takes in what that
    /// means for direct connections.
    pub(super) fn housekeeping(&self, membership: &mut Membership, descriptions: &Descriptions) {
        membership.set_bank_room(self.lock().room());
        membership.housekeeping();
        while let Some(change) = membership.next_direct_change() {
            if let Err((slot, generation)) = self.apply(change) {
                // The peer would offer connections that nothing takes.
                membership.disconnect(slot, generation);
            }
        }
        let mut state = self.lock();
        self.sweep(&mut state, descriptions);
        for (slot, generation) in state.full_peers() {
            membership.open_bank(slot, generation);
        }
    }

    /// How long the engine's thread may sleep, if it has queues to look at again.
    pub(super) fn timeout(&self) -> Option<Timespec> {
        (!self.lock().emptied.is_empty()).then_some(AGAIN)
    }

    /// Takes a change in. The error is a peer with which a bank could not be made.
    fn apply(&self, change: DirectChange) -> Result<(), PeerId> {
        let mut state = self.lock();
        match change {
            DirectChange::Met {
                slot,
                generation,
                peer,
                directory,
            } => {
                let about = *peer;
                state.peers.insert((slot, generation), Peer { about, directory });
                Ok(())
            }
            DirectChange::Bank {
                slot,
                generation,
                side,
                memory,
                ..
            } => {
                let peer = (slot, generation);
                self.add(&mut state, peer, side, *memory).ok_or(peer)
            }
            // What finds no number is TCP's.
            DirectChange::Declined { .. } => Ok(()),
            DirectChange::Parted { slot, generation } => {
                self.part(&mut state, (slot, generation));
                Ok(())
            }
        }
    }

    fn add(&self, state: &mut State, peer: PeerId, side: Side, memory: BankMemory) -> Option<()> {
        let slot = state.vacancy()?;
        let generation = state.next_generation();
        let known = state.peers.get(&peer)?;
        let entry = Entry {
            slot,
            generation,
            side,
            same_user: known.about.same_user,
            is_gone: false,
            addresses: addresses_of(&known.about),
        };
        let bank = Bank::with_peer(&entry, &self.own, memory, &known.directory).ok()?;
        let kept = Kept {
            entry,
            bank: Arc::new(bank),
            peer: Some(peer),
        };
        let bank = Arc::clone(&kept.bank);
        state.banks.insert(slot, kept);
        self.table.set(&entry);
        if side == Side::Accepting {
            // Threads that wait at listeners are woken by the new peer from now on.
            self.rouse(&bank);
        }
        Some(())
    }

    /// Parts with a peer that has ended: no connection with it is opened or accepted any more.
    fn part(&self, state: &mut State, peer: PeerId) {
        state.peers.remove(&peer);
        let banks = state.banks.values_mut();
        for kept in banks.filter(|kept| kept.peer == Some(peer)) {
            kept.entry.is_gone = true;
            self.table.set(&kept.entry);
            // Each waiter for the peer looks, and finds that the peer has gone.
            self.rouse(&kept.bank);
        }
    }

    /// Forgets banks whose peers have gone and of which no process has an end any more.
    fn sweep(&self, state: &mut State, descriptions: &Descriptions) {
        if state.banks.values().all(|kept| !kept.entry.is_gone) {
            return;
        }
        let held: BTreeSet<u16> = descriptions.direct_ends().map(|end| end.slot).collect();
        let table = &self.table;
        state.banks.retain(|slot, kept| {
            // What no holder stands for is closed by the engine, which gives ports and memory back.
            let stays = !kept.entry.is_gone || held.contains(slot) || self.has_left(&kept.bank);
            if !stays {
                table.clear(*slot);
            }
            stays
        });
    }

    /// Has the connections of a bank closed whose peer has gone and which no process has an end of.
    /// Returns `false` if there are none.
    fn has_left(&self, bank: &Arc<Bank>) -> bool {
        let mut left = false;
        for connection in bank.ends.connections() {
            self.close(bank, connection, What::Close);
            left = true;
        }
        left
    }

    /// The counters of direct connections.
    pub(super) fn counters(&self, processes: &[u16]) -> Vec<Counter> {
        self.counts.sums(processes.iter().copied())
    }
}

fn addresses_of(peer: &DirectPeer) -> Addresses {
    let mut addresses = Addresses {
        mac: peer.mac,
        ..Addresses::default()
    };
    for address in peer.bound.given() {
        match address {
            IpAddr::V4(address) => addresses.ipv4 = Some(address),
            IpAddr::V6(address) => addresses.ipv6 = Some(address),
        }
    }
    addresses
}
