//! Ends whose owners the kernel signals (SIGURG) when their peers announce urgent data.

use std::sync::Arc;

use toehold_shm::direct::{ConnectionId, Wish};

use super::super::super::relay::Messenger;
use super::carrier::Carrier;
use crate::direct::{Bank, DirectEnd};

/// An end that has an owner.
pub(super) struct OwnedEnd {
    bank: Arc<Bank>,
    connection: ConnectionId,
    messenger: Messenger,
    /// Position after the urgent byte that the owner was told of last.
    told: u64,
}

impl OwnedEnd {
    pub(super) fn bank(&self) -> &Arc<Bank> {
        &self.bank
    }
}

impl Carrier<'_> {
    /// Has the owner of an end signalled from now on, and no former one.
    pub(super) fn own(&mut self, of: DirectEnd, messenger: Messenger) {
        let connection = of.connection();
        let Some(bank) = self.banks.bank(of.slot) else {
            return;
        };
        let known = self.owned.get_mut(&(of.slot, of.number));
        if let Some(known) = known.filter(|known| known.connection == connection) {
            known.messenger = messenger;
            return;
        }
        let Ok(end) = bank.end(connection) else { return };
        // What was announced and not taken yet may have come since the program has asked.
        let told = end.urgent_taken();
        end.note_owner_told(told);
        let owned = OwnedEnd {
            bank: Arc::clone(&bank),
            connection,
            messenger,
            told,
        };
        self.owned.insert((of.slot, of.number), owned);
        let wish = Wish {
            read: None,
            edge: false,
            room: false,
        };
        // The carrier looks from time to time at banks whose bell the ear lacks.
        let _ = self.ear.listen(&bank);
        let _ = end.arm(self.thread, self.waiter, wish);
        self.announce();
    }

    /// Signals the owners of ends whose peers have announced urgent data, and forgets ends that are
    /// over.
    pub(super) fn announce(&mut self) {
        let banks = self.banks;
        self.owned.retain(|_, owned| {
            let OwnedEnd { bank, connection, .. } = owned;
            let is_open = bank.ends.generation(connection.number) == connection.generation
                && !bank.has_closed(*connection)
                && banks.bank(bank.slot()).is_some();
            let Ok(end) = bank.end(*connection) else {
                return false;
            };
            let urgent = end.urgent();
            if is_open && urgent > owned.told {
                owned.told = urgent;
                // A program that is about to read past the mark is interrupted before that.
                owned.messenger.signal();
                end.note_owner_told(urgent);
            }
            is_open
        });
    }
}
