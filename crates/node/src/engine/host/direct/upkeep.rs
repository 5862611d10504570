//! What the closing thread does each second: it frees what is over though no process has noticed,
//! refuses what was offered too late, and gives memory back.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use toehold_shm::direct::Side;

use super::closer::What;
use super::{Banks, ENGINE};
use crate::direct::Bank;

/// Banks of which one round looks at the connections.
const BANKS: usize = 8;

/// Connections of a queue that one round refuses at most.
const REFUSALS: usize = 64;

/// What one round leaves to the next.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Where the next round begins among the banks.
    turn: usize,
}

impl Banks {
    /// Does a round.
    pub(super) fn keep_up(&self, upkeep: &mut Upkeep) {
        let banks = self.all();
        let count = banks.len().min(BANKS);
        let in_turn = banks.iter().cycle().skip(upkeep.turn).take(count);
        for bank in in_turn {
            self.free_unnoticed(bank);
            if bank.side == Side::Accepting {
                self.refuse_stale(bank);
            }
        }
        upkeep.turn = (upkeep.turn + count).checked_rem(banks.len()).unwrap_or(0);
        self.correct_charge(&banks);
    }

    /// Frees connections that both sides have closed, this side first: the process that has closed it
    /// looks again only with its next call.
    fn free_unnoticed(&self, bank: &Arc<Bank>) {
        for connection in bank.ends.connections() {
            if bank.has_closed(connection) {
                self.free_if_over(bank, connection);
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
