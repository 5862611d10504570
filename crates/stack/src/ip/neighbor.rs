//! The neighbour cache: hardware addresses of the nodes on the link, for IPv4
//! and IPv6 alike, with the states of RFC 4861 §7.3.
//!
//! It decides when to ask whom, and remembers who waits for the answer. It
//! neither reads nor writes packets: ARP and neighbour discovery do.

use super::index::AddressIndex;
use super::list::Lists;
use super::state::{Context, State};
use crate::config::Config;
use crate::counters::Counters;
use crate::time::Instant;
use crate::tuple::Address;
use toehold_shm::{Carver, NONE, OutOfMemory, Slab, Table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const SECOND: u64 = 1_000_000_000;

/// Time between two questions to the same neighbour.
//= RFC 1122 §2.3.2.1
//= RFC 4861 §10
const RETRANS_TIMER: u64 = SECOND;
//= RFC 4861 §10
const MAX_MULTICAST_SOLICIT: u8 = 3;
//= RFC 4861 §10
const MAX_UNICAST_SOLICIT: u8 = 3;
//= RFC 4861 §10
const DELAY_FIRST_PROBE_TIME: u64 = 5 * SECOND;
//= RFC 4861 §10
const BASE_REACHABLE_TIME: u64 = 30 * SECOND;
/// Forward progress is noted this often at most: every acknowledgement brings some.
const CONFIRM_INTERVAL: u64 = SECOND;
/// Records looked at when one has to go.
const EVICTION_SEARCH: usize = 8;

/// What is known of a neighbour (RFC 4861 §7.3.2). The discriminant is also the
/// number of the list on which the record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Reachability {
    /// Asked for, no answer yet.
    Incomplete = 0,
    /// Known to have received packets lately.
    Reachable = 1,
    /// Known, but nobody has needed it since it was last confirmed.
    Stale = 2,
    /// In use again; a little time for an upper layer to confirm it.
    Delay = 3,
    /// Being asked whether it is still there.
    Probe = 4,
    /// Did not answer.
    Failed = 5,
}

use Reachability::{Delay, Failed, Incomplete, Probe, Reachable, Stale};

const LISTS: u32 = 6;
/// The states with a deadline. Within one all wait equally long, so that their
/// lists are in the order of deadlines.
const TIMED: [Reachability; 4] = [Incomplete, Reachable, Delay, Probe];

impl Reachability {
    fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Incomplete,
            1 => Reachable,
            2 => Stale,
            3 => Delay,
            4 => Probe,
            _ => Failed,
        }
    }
}

/// No event.
const QUIET: u8 = 0;
const RESOLVED: u8 = 1;
const FAILED: u8 = 2;

/// A neighbour. Plain data in shared memory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Neighbor {
    address: Address,
    /// When the present state ends, if it does by itself.
    deadline: Instant,
    /// When it was last known to receive packets.
    confirmed: Instant,
    /// Head of TCP's list of connections that wait for this neighbour.
    waiting_head: u32,
    mac: [u8; 6],
    state: u8,
    /// Questions asked in the present state.
    asked: u8,
    /// What has happened that TCP was not told.
    event: u8,
    /// Whether the record is on the list of events.
    event_listed: u8,
    /// Whether a question is due.
    question_due: u8,
    reserved: u8,
}

const _: () = assert!(size_of::<Neighbor>() == 48);

impl Neighbor {
    fn state(&self) -> Reachability {
        Reachability::from_byte(self.state)
    }

    fn has_hardware_address(&self) -> bool {
        !matches!(self.state(), Incomplete | Failed)
    }
}

/// Numbers that go with the records.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Tally {
    /// Records in the state `Incomplete`.
    incomplete: u32,
    /// Records removed for others, since counters were last at hand.
    evicted: u32,
    /// Records that could not be had, since counters were last at hand.
    refused: u32,
}

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
            Incomplete => return Resolution::Asking { neighbor },
            Failed if self.tally[0].incomplete >= self.most_incomplete() => {
                self.tally[0].refused += 1;
                return Resolution::Full;
            }
            Failed => {
                self.records[neighbor].event = QUIET;
                self.enter(cx.now, neighbor, Incomplete, cx.state);
                self.ask(neighbor);
                return Resolution::Asking { neighbor };
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
        let before = record.state();
        let known = record.has_hardware_address();
        let changed = known && record.mac != mac;
        record.mac = mac;
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

    /// Moves a record into a state, even if it is in it already.
    fn enter(&mut self, now: Instant, neighbor: u32, next: Reachability, state: &mut State) {
        let span = match next {
            Incomplete | Probe => Some(RETRANS_TIMER),
            Reachable => Some(self.reachable_time),
            Delay => Some(DELAY_FIRST_PROBE_TIME),
            Stale | Failed => None,
        };
        let record = &mut self.records[neighbor];
        let before = record.state();
        record.deadline = span.map_or(Instant::NEVER, |span| now.plus_nanos(span));
        record.state = next as u8;
        if before != next {
            record.asked = 0;
        }
        state.wake_at(record.deadline);
        if before == Reachable && next == Stale {
            // Connections must ask for their path again, which starts the delay.
            state.paths_changed();
        }
        if before == Incomplete {
            self.tally[0].incomplete -= 1;
        }
        if next == Incomplete {
            self.tally[0].incomplete += 1;
        }
        self.states.remove(before as u32, neighbor);
        self.states.push_back(next as u32, neighbor);
    }

    /// Makes a record: one that is asked for, or one whose address is about to be entered.
    fn add(&mut self, cx: &mut Context<'_>, address: &Address, ask: bool) -> Option<u32> {
        if ask && self.tally[0].incomplete >= self.most_incomplete() {
            self.tally[0].refused += 1;
            return None;
        }
        if self.records.len() >= self.records.capacity() && !self.evict(cx, ask) {
            self.tally[0].refused += 1;
            return None;
        }
        // Begins as one that failed: whoever called moves it on at once.
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
            reserved: 0,
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
                    self.tally[0].evicted += 1;
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

    fn ask(&mut self, neighbor: u32) {
        let record = &mut self.records[neighbor];
        record.asked = record.asked.saturating_add(1);
        if record.question_due == 0 {
            record.question_due = 1;
            self.questions.push_back(0, neighbor);
        }
    }

    fn tell(&mut self, neighbor: u32, event: u8) {
        let record = &mut self.records[neighbor];
        record.event = event;
        if record.event_listed == 0 {
            record.event_listed = 1;
            self.events.push_back(0, neighbor);
        }
    }

    /// Does what time has come for, and returns when there is more to do.
    pub(super) fn handle_timeout(&mut self, cx: &mut Context<'_>, counters: &mut Counters) -> Instant {
        let mut next = Instant::NEVER;
        for list in TIMED {
            loop {
                let first = self.states.front(list as u32);
                if first == NONE {
                    break;
                }
                let deadline = self.records[first].deadline;
                if deadline > cx.now {
                    next = next.min(deadline);
                    break;
                }
                self.expire(cx, first, counters);
            }
        }
        next
    }

    /// The time of a record in its state is over.
    fn expire(&mut self, cx: &mut Context<'_>, neighbor: u32, counters: &mut Counters) {
        let record = &self.records[neighbor];
        let (current, asked) = (record.state(), record.asked);
        match current {
            //= RFC 4861 §7.3.3
            Reachable => self.enter(cx.now, neighbor, Stale, cx.state),
            //= RFC 4861 §7.3.3
            Delay => {
                self.enter(cx.now, neighbor, Probe, cx.state);
                self.ask(neighbor);
            }
            //= RFC 4861 §7.2.2
            Incomplete if asked < MAX_MULTICAST_SOLICIT => {
                self.enter(cx.now, neighbor, Incomplete, cx.state);
                self.ask(neighbor);
            }
            //= RFC 4861 §7.3.3
            Probe if asked < MAX_UNICAST_SOLICIT => {
                self.enter(cx.now, neighbor, Probe, cx.state);
                self.ask(neighbor);
            }
            _ => {
                if current == Probe {
                    cx.state.paths_changed();
                }
                self.enter(cx.now, neighbor, Failed, cx.state);
                while cx.packets.drop_waiting(neighbor) {
                    counters.drop_unresolved += 1;
                }
                self.tell(neighbor, FAILED);
            }
        }
    }

    /// The first question that is due, if any. It stays due until
    /// [`Neighbors::question_asked`].
    pub(super) fn next_question(&mut self) -> Option<Question> {
        loop {
            let neighbor = self.questions.front(0);
            if neighbor == NONE {
                return None;
            }
            let record = &self.records[neighbor];
            let mac = match record.state() {
                Incomplete => None,
                Probe => Some(record.mac),
                // Answered before the question left.
                _ => {
                    self.question_asked(neighbor);
                    continue;
                }
            };
            return Some(Question {
                neighbor,
                target: record.address,
                mac,
            });
        }
    }

    pub(super) fn question_asked(&mut self, neighbor: u32) {
        self.questions.remove(0, neighbor);
        self.records[neighbor].question_due = 0;
    }

    /// The next neighbour TCP waits for that has answered (true) or not (false).
    pub(super) fn next_event(&mut self) -> Option<(u32, bool)> {
        while let Some(neighbor) = self.events.pop_front(0) {
            let record = &mut self.records[neighbor];
            let event = core::mem::replace(&mut record.event, QUIET);
            record.event_listed = 0;
            if event != QUIET && record.waiting_head != NONE {
                return Some((neighbor, event == RESOLVED));
            }
        }
        None
    }

    /// Moves what was counted while no counters were at hand.
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
