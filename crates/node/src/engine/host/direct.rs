//! The banks of a node's direct connections, as its engine has them.
//!
//! The engine makes the bank that the node has with itself, takes banks in that were exchanged
//! with peers, and gives processes their descriptors. It knows nothing of bytes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use toehold_link::mq::{BankMemory, DirectChange, DirectPeer, Membership};
use toehold_shm::direct::{Directory, Journal, MemoryError, PeerDirectory, Side};

use crate::control::Counter;
use crate::direct::{Addresses, Bank, BankTable, Counts, Entry, OWN, SLOTS};
use crate::shard::Shard;

/// A peer, as its membership names it: slot and generation there.
type PeerId = (u16, u16);

/// The engine's part in direct connections.
#[derive(Debug)]
pub(super) struct Banks {
    table: BankTable,
    counts: Counts,
    directory: Directory,
    journal: Journal,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// By slot.
    banks: BTreeMap<u16, Kept>,
    peers: HashMap<PeerId, Peer>,
    /// The last that was given to a bank. It does not come again in a life of the node.
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
    bank: Bank,
    /// `None`: the node itself.
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
        (table, counts): (BankTable, Counts),
        directory: &Directory,
        own: Addresses,
        life: u64,
    ) -> Result<Banks, MemoryError> {
        let journal = Journal::create("toehold-journal", life)?;
        let mut state = State {
            banks: BTreeMap::new(),
            peers: HashMap::new(),
            generation: 0,
        };
        let generation = state.next_generation();
        let entries = [Side::Opening, Side::Accepting].map(|side| Entry {
            slot: OWN[side as usize],
            generation,
            side,
            same_user: true,
            is_gone: false,
            addresses: own,
        });
        let banks = Bank::with_itself([&entries[0], &entries[1]], directory, life)?;
        for (entry, bank) in entries.into_iter().zip(banks) {
            table.set(&entry);
            let kept = Kept {
                entry,
                bank,
                peer: None,
            };
            state.banks.insert(entry.slot, kept);
        }
        Ok(Banks {
            table,
            counts,
            directory: directory.clone(),
            journal,
            state: Mutex::new(state),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a process attaches to: the directory, then the journal.
    pub(super) fn to_list(&self) -> std::io::Result<Vec<OwnedFd>> {
        let all = [self.directory.fd(), self.journal.fd()];
        all.into_iter().map(|fd| fd.try_clone_to_owned()).collect()
    }

    /// What a process needs to map a bank. `None`: it is not there any more.
    pub(super) fn descriptors(&self, slot: u16, generation: u32) -> Option<Vec<OwnedFd>> {
        let state = self.lock();
        let kept = state.banks.get(&slot)?;
        let is_it = kept.entry.generation == generation;
        is_it.then(|| kept.bank.to_list().ok())?
    }

    /// Has the membership of the node's first shard do what has come up, and takes in what that
    /// means for direct connections.
    pub(super) fn housekeeping(&self, membership: &mut Membership) {
        membership.set_bank_room(self.lock().room());
        membership.housekeeping();
        while let Some(change) = membership.next_direct_change() {
            if let Err((slot, generation)) = self.apply(change) {
                // The peer would offer connections that nothing takes.
                membership.disconnect(slot, generation);
            }
        }
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
        let bank = Bank::with_peer(&entry, memory, &known.directory).ok()?;
        let kept = Kept {
            entry,
            bank,
            peer: Some(peer),
        };
        state.banks.insert(slot, kept);
        self.table.set(&entry);
        Some(())
    }

    /// The peer has ended: no connection with it is opened or accepted any more.
    fn part(&self, state: &mut State, peer: PeerId) {
        state.peers.remove(&peer);
        let banks = state.banks.values_mut();
        for kept in banks.filter(|kept| kept.peer == Some(peer)) {
            kept.entry.is_gone = true;
            self.table.set(&kept.entry);
        }
        self.sweep(state);
    }

    /// Forgets banks whose peers have gone and of which no process has an end any more.
    fn sweep(&self, state: &mut State) {
        let table = &self.table;
        state.banks.retain(|slot, kept| {
            let stays = !kept.entry.is_gone;
            if !stays {
                table.clear(*slot);
            }
            stays
        });
    }

    /// Frees the numbers of listeners that were closed.
    pub(super) fn free_withdrawn(&self, shard: &mut Shard) {
        let Some(published) = &mut shard.published else {
            return;
        };
        for number in published.withdrawn() {
            published.free(number);
        }
    }

    /// A process of the node has ended.
    pub(super) fn forget(&self, process: u16) {
        self.counts.forget(process);
    }

    /// What is counted of direct connections.
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
