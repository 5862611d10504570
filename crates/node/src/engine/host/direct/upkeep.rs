//! The closing thread's work of each second. It waits for no lock of a process.
//!
//! It frees connections that are over though no process has noticed, and refuses what was offered
//! too late. It ends connections whose writers wait in vain (TCP_USER_TIMEOUT), and gives memory
//! back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::time::{Duration, Instant};

use toehold_shm::direct::{CONNECTIONS, Class, ConnectionId, End, Side, ThreadNumber};

use super::closer::What;
use super::{Banks, ENGINE};
use crate::direct::Bank;

/// Banks of which one round looks at the connections.
const BANKS: usize = 8;

/// Connections of a queue that one round refuses at most.
const REFUSALS: usize = 64;

/// Bytes that a half has beside rings in use: its lines, and small rings that ended connections have
/// left to later ones. What is beyond that goes back to the system.
const KEPT_BYTES: u64 = 24 << 20;

/// The largest class of which every connection has a ring.
const FIRST_CLASS: Class = Class::K16;

/// The state that one round leaves to the next.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Where the next round begins among the banks.
    turn: usize,
    /// Connections that were seen idle with large rings, or with writers that wait, by slot and
    /// number.
    seen: HashMap<(u16, u16), Seen>,
    /// Bytes of rings beyond the first class that the peer of a bank with another user's node may
    /// have this node map, by slot.
    granted: HashMap<u16, u64>,
}

/// A connection as a round has found it.
#[derive(Debug, Clone, Copy)]
struct Seen {
    generation: u32,
    state: State,
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A number of bytes was sent, and no more.
    Idle(u64),
    /// A writer waits, and the peer has read so many bytes.
    Blocked(u64),
}

impl Banks {
    /// Does a round.
    pub(super) fn keep_up(&self, upkeep: &mut Upkeep) {
        let banks = self.all();
        let count = banks.len().min(BANKS);
        let in_turn = banks.iter().cycle().skip(upkeep.turn).take(count);
        for bank in in_turn {
            self.look_after(bank, upkeep);
            if bank.side == Side::Accepting {
                self.refuse_stale(bank);
            }
            self.trim(bank);
        }
        upkeep
            .seen
            .retain(|(slot, _), _| banks.iter().any(|bank| bank.slot() == *slot));
        upkeep
            .granted
            .retain(|slot, _| banks.iter().any(|bank| bank.slot() == *slot));
        upkeep.turn = (upkeep.turn + count).checked_rem(banks.len()).unwrap_or(0);
        self.correct_charge(&banks);
    }

    /// Looks at each connection of a bank. One that both sides have closed, this side first, is freed:
    /// the process that has closed it looks again only with its next call.
    fn look_after(&self, bank: &Arc<Bank>, upkeep: &mut Upkeep) {
        let mut granted = 0;
        for connection in bank.ends.connections() {
            if bank.has_closed(connection) {
                self.free_if_over(bank, connection);
                continue;
            }
            let Ok(end) = bank.end(connection) else {
                continue;
            };
            upkeep.look_at(bank.slot(), &end, connection, self.thread());
            if !bank.same_user() {
                self.grant(bank, &end, upkeep);
                granted += beyond_first(end.granted_class());
            }
        }
        if !bank.same_user() {
            upkeep.granted.insert(bank.slot(), granted);
        }
    }

    /// Lets a peer of another user write to a larger ring. What this node maps for all such peers
    /// stays below half of its payload memory.
    fn grant(&self, bank: &Bank, end: &End<'_>, upkeep: &mut Upkeep) {
        let larger = end.granted_class().larger();
        let more = larger.map_or(u64::MAX, Class::bytes);
        let all: u64 = upkeep.granted.values().sum();
        if all.saturating_add(more) <= self.own.payload_bound / 2 && end.grant_larger() {
            *upkeep.granted.entry(bank.slot()).or_default() += more;
        }
    }

    /// Gives pages of a half back that no connection uses: those that ended connections have left, and
    /// those that a peer has made by reading.
    fn trim(&self, bank: &Bank) {
        let wanted = bank.ends.charged_bytes() + KEPT_BYTES;
        if bank.half.memory_used() <= wanted {
            return;
        }
        for number in 0..CONNECTIONS as u16 {
            match bank.ends.generation(number) {
                0 => drop(bank.trim(self.thread(), number)),
                generation => {
                    if let Ok(end) = bank.end(ConnectionId { number, generation }) {
                        end.trim_unused(self.thread());
                    }
                }
            }
        }
    }

    /// Refuses connections that were offered to listeners after these were closed and their queues
    /// emptied.
    fn refuse_stale(&self, bank: &Arc<Bank>) {
        for listener in 0..self.closer.listeners.load(Acquire) {
            if !bank.has_any_waiting(listener) {
                continue;
            }
            let stale = std::iter::from_fn(|| bank.take_stale(listener, ENGINE));
            for connection in stale.take(REFUSALS) {
                self.close(bank, connection, What::Refuse);
            }
        }
    }

    /// Counts the memory of all rings anew, if a process has died that may have charged some without
    /// having noted that. Tries again in the next round if a process changes it meanwhile.
    fn correct_charge(&self, banks: &[Arc<Bank>]) {
        let has_drifted = &self.closer.has_drifted;
        if !has_drifted.swap(false, AcqRel) {
            return;
        }
        let count = || banks.iter().map(|bank| bank.ends.charged_bytes()).sum();
        if !self.own.waiters.journal().correct_charge(count) {
            has_drifted.store(true, Release);
        }
    }
}

impl Upkeep {
    /// Shrinks the rings of a connection that was idle since the round before, and ends one whose
    /// writer waits for longer than its program wants.
    fn look_at(&mut self, slot: u16, end: &End<'_>, connection: ConnectionId, thread: ThreadNumber) {
        let key = (slot, connection.number);
        let timeout = end.user_timeout();
        let state = match end.blocked_at() {
            Some(r) if timeout > 0 => State::Blocked(r),
            None if end.class() > FIRST_CLASS => State::Idle(end.sent()),
            _ => {
                self.seen.remove(&key);
                return;
            }
        };
        let now = Instant::now();
        let fresh = Seen {
            generation: connection.generation,
            state,
            since: now,
        };
        let seen = self.seen.entry(key).or_insert(fresh);
        if (seen.generation, seen.state) != (fresh.generation, fresh.state) {
            *seen = fresh;
        }
        let is_done = match seen.state {
            State::Idle(_) => now > seen.since && end.shrink(thread),
            State::Blocked(_) => {
                let timeout = Duration::from_millis(timeout.into());
                now.duration_since(seen.since) >= timeout && end.time_out(thread)
            }
        };
        if is_done {
            self.seen.remove(&key);
        }
    }
}

/// Bytes of the rings larger than the first class that a peer may write to.
fn beyond_first(class: Class) -> u64 {
    let larger = Class::ALL
        .into_iter()
        .filter(|&each| each > FIRST_CLASS && each <= class);
    larger.map(Class::bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_granted_are_those_of_all_larger_rings() {
        assert_eq!(beyond_first(Class::K4), 0);
        assert_eq!(beyond_first(Class::K16), 0);
        assert_eq!(beyond_first(Class::K256), (64 << 10) + (256 << 10));
    }
}
