//! The neighbour cache: hardware addresses of the nodes on the link, for IPv4
//! and IPv6 alike, with the states of RFC 4861 §7.3.
//!
//! It decides when to ask which neighbour, and remembers the connections that wait for an answer.
//! It neither reads nor writes packets: ARP and neighbour discovery do.

mod record;
mod timers;

pub(super) use record::Reachability;

use super::index::AddressIndex;
use super::list::Lists;
use super::state::{Context, State};
use crate::config::Config;
use crate::counters::Counters;
use crate::time::Instant;
use crate::tuple::Address;
use Reachability::{Delay, Failed, Incomplete, Probe, Reachable, Stale};
use core::sync::atomic::Ordering::Release;
use core::sync::atomic::compiler_fence;
use record::{LISTS, Neighbor, QUIET, RESOLVED, Tally};
use timers::{BASE_REACHABLE_TIME, SECOND};
use toehold_shm::{Carver, NONE, OutOfMemory, Slab, Table};

/// Shortest interval between two confirmations, since every acknowledgement brings one.
const CONFIRM_INTERVAL: u64 = SECOND;
/// Records examined when one must be evicted.
const EVICTION_SEARCH: usize = 8;

/// Result of asking for a hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resolution {
    Known {
        neighbor: u32,
        mac: [u8; 6],
    },
    Asking {
        neighbor: u32,
    },
    /// The node that had the address is gone, as the link reports. The stack asks for the address
    /// all the same: another node may have it now.
    Gone,
    /// No record is free for the address.
    Full,
}

/// How a hardware address was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The neighbour sent a message unasked: it may not hear this stack.
    Spoke { create: bool },
    /// The neighbour answered this stack.
    Answered,
}

/// A request to send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) neighbor: u32,
    pub(super) target: Address,
    /// Destination; all nodes if unknown.
    pub(super) mac: Option<[u8; 6]>,
}

/// The neighbour cache: handles to its state.
pub(super) struct Neighbors {
    records: Slab<Neighbor>,
    index: AddressIndex,
    /// One list for each state.
    states: Lists,
    events: Lists,
    questions: Lists,
    tally: Table<Tally>,
    reachable_time: u64,
}

impl Neighbors {
    pub(super) fn bytes_needed(config: &Config) -> usize {
        let capacity = capacity(config);
        Slab::<Neighbor>::bytes_needed(capacity)
            + AddressIndex::bytes_needed(capacity)
            + Lists::bytes_needed(capacity, LISTS)
            + 2 * Lists::bytes_needed(capacity, 1)
            + Table::<Tally>::bytes_needed(1)
    }

    pub(super) fn create(carver: &mut Carver, config: &Config) -> Result<Self, OutOfMemory> {
        let capacity = capacity(config);
        Ok(Self {
            records: carver.slab(capacity)?,
            index: AddressIndex::create(carver, capacity, config.secret)?,
            states: Lists::create(carver, capacity, LISTS)?,
            events: Lists::create(carver, capacity, 1)?,
            questions: Lists::create(carver, capacity, 1)?,
            tally: carver.table(1)?,
            reachable_time: reachable_time(config.seed),
        })
    }

    /// Repairs the cache after a process died in the middle of a change. Neighbours with a known
    /// hardware address become stale; all others are forgotten.
    pub(super) fn mend(&mut self, state: &mut State) {
        let torn = self.tally[0].learning.checked_sub(1);
        let live = self.records.iter_live();
        let known =
            live.filter(|&(neighbor, record)| record.has_hardware_address() && Some(neighbor) != torn);
        let known: Vec<_> = known.map(|(_, record)| (record.address, record.mac)).collect();
        self.records.mend(|_, _| false);
        self.index.forget();
        for lists in [&mut self.states, &mut self.events, &mut self.questions] {
            lists.forget();
        }
        self.tally[0] = Tally::default();
        for (address, mac) in known {
            if self.find(&address).is_none()
                && let Some(neighbor) = self.insert(&address)
            {
                self.records[neighbor].mac = mac;
                self.enter(Instant(0), neighbor, Stale, state);
            }
        }
    }

    fn find(&self, address: &Address) -> Option<u32> {
        self.index
            .find(address, |neighbor| self.records[neighbor].address)
    }

    #[cfg(test)]
    pub(super) fn state_of(&self, address: &Address) -> Option<Reachability> {
        self.find(address).map(|neighbor| self.records[neighbor].state())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> u32 {
        self.records.len()
    }

    /// The hardware address for a packet that is about to be sent.
    pub(super) fn resolve(&mut self, cx: &mut Context<'_>, address: &Address) -> Resolution {
        let neighbor = match self.find(address) {
            Some(neighbor) => neighbor,
            None => match self.add(cx, address, true) {
                Some(neighbor) => neighbor,
                None => return Resolution::Full,
            },
        };
        match self.records[neighbor].state() {
            Incomplete if self.records[neighbor].gone != 0 => return Resolution::Gone,
            Incomplete => return Resolution::Asking { neighbor },
            Failed if self.tally[0].incomplete >= self.most_incomplete() => {
                self.tally[0].refused = self.tally[0].refused.wrapping_add(1);
                return Resolution::Full;
            }
            Failed => {
                self.records[neighbor].event = QUIET;
                self.enter(cx.now, neighbor, Incomplete, cx.state);
                self.ask(neighbor);
                return match self.records[neighbor].gone {
                    0 => Resolution::Asking { neighbor },
                    _ => Resolution::Gone,
                };
            }
            //= RFC 4861 §7.3.3
            // The first packet to a stale neighbour starts the delay.
            Stale => self.enter(cx.now, neighbor, Delay, cx.state),
            Reachable | Delay | Probe => {}
        }
        Resolution::Known {
            neighbor,
            mac: self.records[neighbor].mac,
        }
    }

    /// Most neighbours in resolution at once. The other records stay with existing neighbours,
    /// whatever addresses strangers make this stack ask for.
    fn most_incomplete(&self) -> u32 {
        (self.records.capacity() / 2).max(1)
    }

    /// Learns that `address` has `mac`. Returns the record if frames waited for it.
    pub(super) fn learn(
        &mut self,
        cx: &mut Context<'_>,
        address: &Address,
        mac: [u8; 6],
        evidence: Evidence,
    ) -> Option<u32> {
        let neighbor = match (self.find(address), evidence) {
            (Some(neighbor), _) => neighbor,
            (None, Evidence::Spoke { create: true }) => self.add(cx, address, false)?,
            (None, _) => return None,
        };
        let record = &mut self.records[neighbor];
        record.gone = 0;
        let before = record.state();
        let known = record.has_hardware_address();
        let changed = known && record.mac != mac;
        if record.mac != mac {
            // A process killed between these writes leaves the address half written.
            self.tally[0].learning = neighbor + 1;
            compiler_fence(Release);
            record.mac = mac;
            compiler_fence(Release);
            self.tally[0].learning = 0;
        }
        if changed {
            cx.state.paths_changed();
        }
        if evidence == Evidence::Answered {
            //= RFC 4861 §7.2.5
            record.confirmed = cx.now;
            self.enter(cx.now, neighbor, Reachable, cx.state);
        } else if changed || !known {
            //= RFC 4861 §7.2.3
            self.enter(cx.now, neighbor, Stale, cx.state);
        }
        if before != Incomplete {
            return None;
        }
        self.tell(neighbor, RESOLVED);
        Some(neighbor)
    }

    /// Handles an advertisement that must not replace a known address (RFC 4861 §7.2.5, override
    /// flag clear). Returns whether it was accepted.
    pub(super) fn may_replace(
        &mut self,
        now: Instant,
        address: &Address,
        mac: [u8; 6],
        state: &mut State,
    ) -> bool {
        let Some(neighbor) = self.find(address) else {
            return false;
        };
        let record = &self.records[neighbor];
        if !record.has_hardware_address() || record.mac == mac {
            return true;
        }
        //= RFC 4861 §7.2.5
        // Another node claims the address: the known one is kept, but must be confirmed.
        if record.state() == Reachable {
            self.enter(now, neighbor, Stale, state);
        }
        false
    }

    /// Learns from the link which hardware address has the address. Returns whether another
    /// hardware address is on record.
    pub(super) fn bind(&mut self, address: &Address, mac: [u8; 6]) -> bool {
        let Some(neighbor) = self.find(address) else {
            return false;
        };
        let record = &mut self.records[neighbor];
        record.gone = 0;
        record.has_hardware_address() && record.mac != mac
    }

    /// Learns from the link that the node with the address is gone, and fails the connections that
    /// wait for it.
    pub(super) fn lose(&mut self, cx: &mut Context<'_>, address: &Address, counters: &mut Counters) {
        let neighbor = match self.find(address) {
            Some(neighbor) => neighbor,
            // Absent nodes must not displace records of present ones.
            None if self.records.len() >= self.records.capacity() / 2 => return,
            None => match self.insert(address) {
                Some(neighbor) => neighbor,
                None => return,
            },
        };
        self.records[neighbor].gone = 1;
        self.fail(cx, neighbor, counters);
    }

    /// The hardware address on record, whether confirmed or not.
    pub(super) fn hardware_address(&self, address: &Address) -> Option<[u8; 6]> {
        let record = &self.records[self.find(address)?];
        record.has_hardware_address().then_some(record.mac)
    }

    /// Whether this stack waits for an answer of `address`.
    pub(super) fn is_asked(&self, address: &Address) -> bool {
        self.find(address)
            .is_some_and(|neighbor| matches!(self.records[neighbor].state(), Incomplete | Probe))
    }

    /// Notes that an upper layer has seen its packets arrive at `mac`.
    //= RFC 4861 §7.3.1
    #[inline]
    pub(super) fn confirm(&mut self, now: Instant, neighbor: u32, mac: [u8; 6], state: &mut State) {
        let Some(record) = self.records.get_mut(neighbor) else {
            return;
        };
        if now.nanos_since(record.confirmed) < CONFIRM_INTERVAL && record.state == Reachable as u8 {
            return;
        }
        if !record.has_hardware_address() || record.mac != mac {
            return;
        }
        record.confirmed = now;
        self.enter(now, neighbor, Reachable, state);
    }

    /// Adds a record: one to resolve, or one whose address the caller is about to set.
    fn add(&mut self, cx: &mut Context<'_>, address: &Address, ask: bool) -> Option<u32> {
        if ask && self.tally[0].incomplete >= self.most_incomplete() {
            self.tally[0].refused = self.tally[0].refused.wrapping_add(1);
            return None;
        }
        if self.records.len() >= self.records.capacity() && !self.evict(cx, ask) {
            self.tally[0].refused = self.tally[0].refused.wrapping_add(1);
            return None;
        }
        self.insert(address)
    }

    /// Inserts a record in the state of a failed neighbour. The caller changes the state at once.
    fn insert(&mut self, address: &Address) -> Option<u32> {
        let neighbor = self.records.insert(Neighbor {
            address: *address,
            deadline: Instant::NEVER,
            confirmed: Instant(0),
            waiting_head: NONE,
            mac: [0; 6],
            state: Failed as u8,
            asked: 0,
            event: QUIET,
            event_listed: 0,
            question_due: 0,
            gone: 0,
        })?;
        self.index.insert(address, neighbor);
        self.states.push_back(Failed as u32, neighbor);
        Some(neighbor)
    }

    /// Frees the least recently used record. A record that connections wait for stays. A record in
    /// use also stays if the newcomer was not asked for.
    fn evict(&mut self, cx: &mut Context<'_>, asked_for: bool) -> bool {
        let order = [Failed, Stale, Reachable, Delay, Probe];
        let order = if asked_for { &order[..] } else { &order[..2] };
        for &list in order {
            let mut at = self.states.front(list as u32);
            for _ in 0..EVICTION_SEARCH {
                if at == NONE {
                    break;
                }
                let record = &self.records[at];
                let awaited =
                    record.waiting_head != NONE || record.event != QUIET || cx.packets.is_waited_for(at);
                if !awaited {
                    self.remove(at, cx.state);
                    self.tally[0].evicted = self.tally[0].evicted.wrapping_add(1);
                    return true;
                }
                at = self.states.after(at);
            }
        }
        false
    }

    fn remove(&mut self, neighbor: u32, state: &mut State) {
        let record = self.records[neighbor];
        self.states.remove(record.state() as u32, neighbor);
        if record.event_listed != 0 {
            self.events.remove(0, neighbor);
        }
        if record.question_due != 0 {
            self.questions.remove(0, neighbor);
        }
        self.index.remove(&record.address, neighbor);
        self.records.remove(neighbor);
        if record.has_hardware_address() {
            state.paths_changed();
        }
    }

    /// Moves counts that were kept while no counters were available.
    #[inline]
    pub(super) fn settle(&mut self, counters: &mut Counters) {
        let tally = &mut self.tally[0];
        counters.neighbor_evictions += u64::from(core::mem::take(&mut tally.evicted));
        counters.neighbor_table_full += u64::from(core::mem::take(&mut tally.refused));
    }

    pub(super) fn waiting_head(&self, neighbor: u32) -> u32 {
        self.records
            .get(neighbor)
            .map_or(NONE, |record| record.waiting_head)
    }

    pub(super) fn set_waiting_head(&mut self, neighbor: u32, head: u32) {
        if let Some(record) = self.records.get_mut(neighbor) {
            record.waiting_head = head;
        }
    }
}

/// Number of records.
pub(super) fn capacity(config: &Config) -> u32 {
    if config.ethernet {
        config.neighbors.max(2)
    } else {
        2
    }
}

/// How long a neighbour counts as reachable after a confirmation.
//= RFC 4861 §6.3.2
// Uniformly between half the base time and one and a half.
fn reachable_time(seed: u64) -> u64 {
    let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    BASE_REACHABLE_TIME / 2 + random % BASE_REACHABLE_TIME
}
