//! Accepting direct connections, and closing them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use toehold_shm::direct::{Beginning, ConnectionId, ListenerId, Record, Side, Step, ThreadNumber};

use super::Direct;
use super::bank::Bank;
use super::connect::{Opened, place};
use super::counts::Count;
use super::ports::Ports;
use super::table::{OWN, may_come};
use crate::clock;

/// The engine's number as a process.
const ENGINE: u16 = toehold_shm::Lease::ENGINE;

/// Ends that were closed here and whose other sides were not, of which a call looks at so many.
const LOOKS: usize = 8;

/// Connections of one bank that a call refuses at most.
const REFUSALS: usize = 64;

/// Ends that were closed, until the other side has closed its end as well: only then their
/// numbers, ports and memory are free.
#[derive(Debug, Default)]
pub(crate) struct Closing(Mutex<VecDeque<(Arc<Bank>, ConnectionId)>>);

impl Closing {
    pub(crate) fn push(&self, bank: &Arc<Bank>, connection: ConnectionId) {
        let mut closing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        closing.push_back((Arc::clone(bank), connection));
    }

    /// Frees what is over of up to `looks` ends, those that were closed first. `is_there` tells
    /// whether the other side of a bank is.
    pub(crate) fn reap(
        &self,
        thread: ThreadNumber,
        ports: &Ports,
        looks: usize,
        is_there: impl Fn(&Bank) -> bool,
    ) {
        for _ in 0..looks {
            let next = {
                let mut closing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                closing.pop_front()
            };
            let Some((bank, connection)) = next else { return };
            if !free_if_over(thread, &bank, connection, ports, is_there(&bank)) {
                self.push(&bank, connection);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Frees number, port and memory of an end, if both sides have closed the connection. Returns
/// `false` if the other side has not, and `is_there`.
pub(crate) fn free_if_over(
    thread: ThreadNumber,
    bank: &Bank,
    connection: ConnectionId,
    ports: &Ports,
    is_there: bool,
) -> bool {
    if bank.ends.generation(connection.number) != connection.generation {
        // It was freed before.
        return true;
    }
    let Ok(end) = bank.end(connection) else {
        return false;
    };
    if is_there && !end.is_over() {
        return false;
    }
    let record = bank.half.record(connection.number, connection.generation);
    let owner = bank.ends.owner(connection.number);
    let released = match is_there {
        true => end.release(thread),
        false => end.release_without_peer(thread),
    };
    if released == Ok(true) && bank.side == Side::Opening {
        bank.ends.free(connection);
        let owner = owner.and_then(|owner| u16::try_from(owner.get()).ok());
        if let (Some(record), Some(owner)) = (record, owner) {
            let port = record.local.port();
            // If its process has died meanwhile, the engine has the port.
            let _ = ports.free(port, owner) || ports.free(port, ENGINE);
        }
    }
    true
}

impl Direct {
    /// Takes the next connection that waits for a listener of this node, in whichever bank, and
    /// makes this side's end of it. Returns `None` if none waits.
    pub fn accept(&self, thread: ThreadNumber, listener: ListenerId, window: u64) -> Option<Opened> {
        let banks = self.accepting();
        let first = self.next_bank() % banks.len().max(1);
        let in_turn = banks.iter().cycle().skip(first).take(banks.len());
        for bank in in_turn {
            for _ in 0..REFUSALS {
                if !bank.has_waiting(listener) {
                    break;
                }
                match self.take(thread, bank, listener, window) {
                    Taken::Nothing => break,
                    Taken::Refused => {}
                    Taken::Opened(opened) => return Some(opened),
                }
            }
        }
        None
    }

    fn take(&self, thread: ThreadNumber, bank: &Arc<Bank>, listener: ListenerId, window: u64) -> Taken {
        // What is taken next is not known before: the journal names the bank, and then the end.
        let none = ConnectionId {
            number: 0,
            generation: 0,
        };
        let begun = bank.journal().begin(thread, place(bank, none), Step::Take);
        let Some((connection, theirs)) = bank.take(listener, self.process) else {
            bank.journal().end(thread, begun);
            return Taken::Nothing;
        };
        let ends = [theirs.remote, theirs.local];
        let record = Record {
            local: ends[0],
            remote: ends[1],
            listener: None,
            options: 0,
            opened_ns: clock::now().0,
            ..theirs
        };
        let mut opened = Opened::new(Arc::clone(bank), connection, ends, (thread, begun));
        opened.go_on(Step::Take);
        let entry = self.banks.entry(bank.slot());
        let own = self.banks.entry(OWN[0]).map(|own| own.addresses);
        let may_come = entry.is_some_and(|entry| may_come(own.as_ref(), &entry, ends));
        // One for an earlier listener of the number was offered late: it is refused like those that
        // the engine has found in the queue.
        let refusal = match bank.is_for(connection, &theirs, listener) && may_come {
            true => None,
            false => Some(Count::Offences),
        };
        let refusal = refusal.or_else(|| {
            let began = bank.begin(thread, connection.number, &Beginning { record, window });
            match began {
                Ok(end) => {
                    end.record_opening(thread, false);
                    None
                }
                Err(_) => Some(Count::TcpMemory),
            }
        });
        let Some(why) = refusal else {
            self.count(Count::Accepted, 1);
            return Taken::Opened(opened);
        };
        self.count(why, 1);
        let refused = bank.refuse(thread, connection.number, &record);
        if refused.is_ok() && !self.free_if_over(thread, bank, connection) {
            self.closing.push(bank, connection);
        }
        opened.held();
        Taken::Refused
    }

    fn free_if_over(&self, thread: ThreadNumber, bank: &Bank, connection: ConnectionId) -> bool {
        free_if_over(thread, bank, connection, &self.ports, self.is_there(bank))
    }

    /// Frees the ends that this process has closed and that are over.
    pub(super) fn reap(&self, thread: ThreadNumber, looks: usize) {
        let is_there = |bank: &Bank| self.is_there(bank);
        self.closing.reap(thread, &self.ports, looks, is_there);
    }

    /// Closes an end for its last holder: with a reset if bytes were not received, or `abort`.
    pub fn close(&self, thread: ThreadNumber, bank: &Arc<Bank>, connection: ConnectionId, abort: bool) {
        close(thread, bank, connection, abort);
        if !self.free_if_over(thread, bank, connection) {
            self.closing.push(bank, connection);
        }
        self.reap(thread, LOOKS);
    }
}

enum Taken {
    Nothing,
    Refused,
    Opened(Opened),
}

/// Closes an end. What a signal handler of the same thread has interrupted is closed by the engine.
pub(crate) fn close(thread: ThreadNumber, bank: &Bank, connection: ConnectionId, abort: bool) {
    if bank.ends.generation(connection.number) != connection.generation {
        return;
    }
    if let Ok(end) = bank.end(connection) {
        let _ = end.close(thread, abort);
    }
}
