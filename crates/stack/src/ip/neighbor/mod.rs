//! The neighbour cache: hardware addresses of the nodes on the link, for IPv4
//! and IPv6 alike, with the states of RFC 4861 §7.3.
//!
//! It decides when to ask whom, and remembers who waits for the answer. It
//! neither reads nor writes packets: ARP and neighbour discovery do.

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

/// Forward progress is noted this often at most: every acknowledgement brings some.
const CONFIRM_INTERVAL: u64 = SECOND;
/// Records looked at when one has to go.
const EVICTION_SEARCH: usize = 8;

/// Answer to the question for a hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resolution {
    Known {
        neighbor: u32,
        mac: [u8; 6],
    },
    Asking {
        neighbor: u32,
    },
    /// The node that had the address is gone, as the link knows. It is asked for all the same: another
    /// one may have the address now.
    Gone,
    /// No record could be had for it.
    Full,
}

/// How a hardware address came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The neighbour spoke by itself: nothing says that it hears this stack.
    Spoke { create: bool },
    /// It answered this stack.
    Answered,
}

/// A question to be asked now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) neighbor: u32,
    pub(super) target: Address,
    /// Where to; everybody if unknown.
    pub(super) mac: Option<[u8; 6]>,
}

/// The cache: handles to its state.
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

    /// After somebody died in the middle of a change: whose hardware address is known is known
    /// still, and distrusted; all others are forgotten.
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

    /// Neighbours that may be asked for at once. The other records stay with
    /// those that exist, whatever addresses strangers make this stack ask for.
    fn most_incomplete(&self) -> u32 {
        (self.records.capacity() / 2).max(1)
    }

    /// Takes in that `address` has `mac`. Returns the record if frames waited for it.
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
            // Who dies meanwhile leaves it in pieces.
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

    /// Takes in an advertisement that must not replace what is known (RFC 4861
    /// §7.2.5, override flag clear), and tells whether it was taken.
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
        // Somebody else claims the address: what is known is kept, but distrusted.
        if record.state() == Reachable {
            self.enter(now, neighbor, Stale, state);
        }
        false
    }

    /// The link says that the node with this hardware address has the address. Returns whether
    /// another hardware address is on record.
    pub(super) fn bind(&mut self, address: &Address, mac: [u8; 6]) -> bool {
        let Some(neighbor) = self.find(address) else {
            return false;
        };
        let record = &mut self.records[neighbor];
        record.gone = 0;
        record.has_hardware_address() && record.mac != mac
    }

    /// The link says that the node is gone that had the address: what waits for it waits in vain.
    pub(super) fn lose(&mut self, cx: &mut Context<'_>, address: &Address, counters: &mut Counters) {
        let neighbor = match self.find(address) {
            Some(neighbor) => neighbor,
            // Nodes that are not there do not take the place of those that are.
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

    /// An upper layer has seen that its packets arrive at `mac`.
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

    /// Makes a record: one that is asked for, or one whose address is about to be entered.
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

    /// A record that is like one of a neighbour that failed: whoever called moves it on at once.
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

    /// Frees the record that was of use least recently. One that somebody waits
    /// for stays; so does one in use, if the newcomer was not asked for.
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

    /// Moves what was counted while no counters were at hand.
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

/// Records there are.
pub(super) fn capacity(config: &Config) -> u32 {
    if config.ethernet {
        config.neighbors.max(2)
    } else {
        2
    }
}

/// How long a neighbour counts as reachable after a sign of it.
//= RFC 4861 §6.3.2
// Uniformly between half the base time and one and a half.
fn reachable_time(seed: u64) -> u64 {
    let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    BASE_REACHABLE_TIME / 2 + random % BASE_REACHABLE_TIME
}
