//! What the engine closes: ends that no process has any more, connections that wait at closed
//! listeners, and what a process was doing with direct connections when it died.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU16;
use std::sync::Arc;

use toehold_shm::direct::{
    ConnectionId, LISTENERS, Side, Step, ThreadNumber, WAITERS, WaiterNumber, unwatch,
};

use super::closer::{Task, What};
use super::{Banks, ENGINE};
use crate::description::Descriptions;
use crate::direct::{Bank, DirectEnd, find_listed};
use crate::shard::Shard;

impl Banks {
    pub(super) fn bank(&self, slot: u16) -> Option<Arc<Bank>> {
        self.lock().banks.get(&slot).map(|kept| Arc::clone(&kept.bank))
    }

    fn all(&self) -> Vec<Arc<Bank>> {
        let state = self.lock();
        state.banks.values().map(|kept| Arc::clone(&kept.bank)).collect()
    }

    /// No process has these holders any more: closes the ends that they stood for.
    pub(in crate::engine::host) fn close_gone(&self, descriptions: &Descriptions, holders: &[u32]) {
        for &holder in holders {
            if let Some(end) = descriptions.direct_end(holder) {
                descriptions.set_direct_end(holder, None);
                self.close_end(end);
            }
        }
    }

    fn close_end(&self, end: DirectEnd) {
        let DirectEnd {
            slot,
            number,
            generation,
        } = end;
        if let Some(bank) = self.bank(slot) {
            self.close(&bank, ConnectionId { number, generation }, What::Close);
        }
    }

    fn close(&self, bank: &Arc<Bank>, connection: ConnectionId, what: What) {
        self.closer.push(Task {
            bank: Arc::clone(bank),
            connection,
            what,
        });
    }

    /// Refuses what waits at listeners that were closed, and lets other listeners have their
    /// numbers: after a second look, since a connection may have been offered in between.
    pub(in crate::engine::host) fn free_withdrawn(&self, shard: &mut Shard) {
        let Some(published) = &mut shard.published else {
            return;
        };
        for number in published.withdrawn() {
            for bank in self.all() {
                self.refuse_all(&bank, number);
            }
            if !self.lock().emptied.insert(number) {
                self.lock().emptied.remove(&number);
                published.free(number);
            }
        }
    }

    fn refuse_all(&self, bank: &Arc<Bank>, listener: u16) {
        if bank.side == Side::Opening {
            return;
        }
        while let Some(connection) = bank.take_any(listener, ENGINE) {
            self.close(bank, connection, What::Refuse);
        }
    }

    /// Tells every waiter of this node that may wait in a bank to look there.
    pub(super) fn rouse(&self, bank: &Bank) {
        let waiters = &self.own.waiters;
        let all = (0..WAITERS as u16).filter_map(WaiterNumber::new);
        for waiter in all.filter(|waiter| waiters.process(*waiter).is_some()) {
            bank.signals.set_all(waiter);
            bank.ring_own(waiter);
        }
    }

    /// A process of the node has died: ends what it was doing.
    pub(in crate::engine::host) fn bury(&self, process: u16, descriptions: &Descriptions) {
        self.counts.forget(process);
        let Some(dead) = NonZeroU16::new(process) else {
            return;
        };
        let journal = self.own.waiters.journal();
        let threads: Vec<ThreadNumber> = journal.threads_of(dead).collect();
        if threads.is_empty() {
            // It has never used a direct connection.
            return;
        }
        let mut steps = HashMap::new();
        for &thread in &threads {
            for (place, step) in journal.found(thread) {
                let Some(bank) = self.bank(place.bank as u16) else {
                    continue;
                };
                let _ = bank.recover(place.number, thread, self.thread);
                // A connection's own step counts, and not that of what was to be taken.
                let known = steps.entry((bank.slot(), place.number)).or_insert(step);
                if step == Step::Offer || step == Step::Open {
                    *known = step;
                }
            }
            self.end_waits(thread);
            journal.free(thread);
        }
        self.forget_waiters(dead);
        let held: BTreeSet<(u16, u16, u32)> = descriptions
            .direct_ends()
            .map(|end| (end.slot, end.number, end.generation))
            .collect();
        for bank in self.all() {
            match bank.side {
                Side::Opening => self.bury_opened(&bank, process, &held, &steps),
                Side::Accepting => self.bury_taken(&bank, process, &held, &steps),
            }
        }
        self.bury_ports(process);
    }

    /// Ends a dead thread's sleep, and has others look at what it may have been told of.
    fn end_waits(&self, thread: ThreadNumber) {
        let waiters = &self.own.waiters;
        for waiter in waiters.recover(thread, self.thread).into_iter().flatten() {
            for bank in self.all() {
                bank.signals.set_all(waiter);
            }
            waiters.ring(waiter);
        }
    }

    /// Frees the waiters of a dead process.
    fn forget_waiters(&self, dead: NonZeroU16) {
        let waiters = &self.own.waiters;
        let all = (0..WAITERS as u16).filter_map(WaiterNumber::new);
        for waiter in all.filter(|waiter| waiters.process(*waiter) == Some(dead)) {
            (0..LISTENERS as u16).for_each(|listener| unwatch(waiters, listener, waiter));
            waiters.free(waiter);
        }
    }

    /// Connections that the process has opened: of those that a holder stands for, only the owner
    /// changes. One that may have been offered is offered again, so that the other side closes it.
    fn bury_opened(
        &self,
        bank: &Arc<Bank>,
        process: u16,
        held: &BTreeSet<(u16, u16, u32)>,
        steps: &HashMap<(u16, u16), Step>,
    ) {
        bank.ends.free_reserved(process);
        if bank.ends.in_use() == 0 {
            return;
        }
        let connections: Vec<ConnectionId> = bank.ends.connections().collect();
        for connection in connections {
            let ConnectionId { number, generation } = connection;
            if bank.ends.owner(number).map(u32::from) != Some(process.into()) {
                continue;
            }
            bank.ends.set_owner(connection, ENGINE);
            if held.contains(&(bank.slot(), number, generation)) {
                continue;
            }
            match steps.get(&(bank.slot(), number)) {
                Some(Step::Offer) => self.settle_offer(bank, connection),
                // It was offered and closed: only its other side is awaited.
                None if bank.half.record(number, generation).is_some() => {
                    self.close(bank, connection, What::Close);
                }
                _ => {
                    bank.ends.free(connection);
                }
            }
        }
    }

    fn settle_offer(&self, bank: &Arc<Bank>, connection: ConnectionId) {
        let record = bank.half.record(connection.number, connection.generation);
        let found = record.and_then(|record| {
            let found = find_listed(&bank.peer_directory, [record.local, record.remote])?;
            (record.listener == Some(found.listener)).then_some(found)
        });
        if let Some(found) = found {
            // A second offer of a connection is ignored. If the queue is full, the first one counts.
            let _ = bank.offer(connection, &found);
        }
        self.close(bank, connection, What::Close);
    }

    /// Connections that the process has taken, and that no holder stands for.
    fn bury_taken(
        &self,
        bank: &Arc<Bank>,
        process: u16,
        held: &BTreeSet<(u16, u16, u32)>,
        steps: &HashMap<(u16, u16), Step>,
    ) {
        let was_taking = steps
            .iter()
            .any(|((slot, _), step)| *slot == bank.slot() && *step == Step::Take);
        if !was_taking {
            return;
        }
        let taken: Vec<ConnectionId> = bank.ends.taken_by(process).collect();
        for connection in taken {
            let ConnectionId { number, generation } = connection;
            if held.contains(&(bank.slot(), number, generation)) {
                continue;
            }
            let is_begun = bank.ends.generation(number) == generation;
            match (is_begun, steps.get(&(bank.slot(), number))) {
                (true, Some(Step::Take)) => self.close(bank, connection, What::Reset),
                // It was closed, and only its other side is awaited.
                (true, _) => self.close(bank, connection, What::Await),
                // It has ended, or its end was not begun when the process died. One that has ended
                // ends again.
                (false, _) => self.close(bank, connection, What::Refuse),
            }
        }
    }

    /// The ports of a dead process: those of connections that others have stay taken.
    fn bury_ports(&self, process: u16) {
        let ports = self.ports.of(process);
        if ports.is_empty() {
            return;
        }
        let mut used = BTreeSet::new();
        for bank in self.all().iter().filter(|bank| bank.side == Side::Opening) {
            if bank.ends.in_use() == 0 {
                continue;
            }
            let records = bank
                .ends
                .connections()
                .filter_map(|connection| bank.half.record(connection.number, connection.generation));
            used.extend(records.map(|record| record.local.port()));
        }
        for port in ports {
            match used.contains(&port) {
                true => self.ports.hand_over(port, ENGINE),
                false => self.ports.free(port),
            }
        }
    }
}
