//! Closing by the engine: of ends that no process has any more, and of connections that wait at
//! closed listeners. It also ends what a process was doing with direct connections when it died.

use std::collections::HashSet;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use toehold_shm::direct::{
    ConnectionId, ListenerId, QUEUE_LEN, Side, Step, ThreadNumber, WAITERS, WaiterNumber, unwatch,
};

use super::closer::{Task, What};
use super::{Banks, ENGINE};
use crate::description::Descriptions;
use crate::direct::{Bank, DirectEnd};
use crate::shard::Shard;

impl Banks {
    pub(super) fn bank(&self, slot: u16) -> Option<Arc<Bank>> {
        self.lock().banks.get(&slot).map(|kept| Arc::clone(&kept.bank))
    }

    pub(super) fn all(&self) -> Vec<Arc<Bank>> {
        let state = self.lock();
        state.banks.values().map(|kept| Arc::clone(&kept.bank)).collect()
    }

    /// Closes the ends of holders that no process has any more.
    pub(in crate::engine::host) fn close_gone(&self, descriptions: &Descriptions, holders: &[u32]) {
        for &holder in holders {
            if let Some(end) = descriptions.direct_end(holder) {
                descriptions.set_direct_end(holder, None);
                let linger = descriptions
                    .of(holder)
                    .and_then(|description| description.settings().linger());
                let what = match linger.is_some_and(|span| span.is_zero()) {
                    true => What::Reset,
                    false => What::Close,
                };
                self.close_end(end, what);
            }
        }
    }

    fn close_end(&self, end: DirectEnd, what: What) {
        let DirectEnd {
            slot,
            number,
            generation,
        } = end;
        if let Some(bank) = self.bank(slot) {
            self.close(&bank, ConnectionId { number, generation }, what);
        }
    }

    pub(super) fn close(&self, bank: &Arc<Bank>, connection: ConnectionId, what: What) {
        self.closer.push(Task {
            bank: Arc::clone(bank),
            connection,
            what,
        });
    }

    /// Moves what waits at listeners that were closed to those that share their connections, or
    /// refuses it. After a second look, other listeners may have their numbers: a connection may
    /// have been offered in between.
    pub(in crate::engine::host) fn free_withdrawn(&self, shard: &mut Shard) {
        let Some(published) = &mut shard.published else {
            return;
        };
        for number in published.withdrawn() {
            self.closer.listeners.fetch_max(number + 1, Release);
            let heirs = published.heirs(number);
            for bank in self.all() {
                self.move_all(&bank, number, &heirs);
                self.refuse_all(&bank, number);
            }
            if !self.lock().emptied.insert(number) {
                self.lock().emptied.remove(&number);
                published.free(number);
            }
        }
    }

    fn move_all(&self, bank: &Arc<Bank>, closed: u16, heirs: &[ListenerId]) {
        if bank.side == Side::Opening {
            return;
        }
        for heir in heirs.iter().cycle().take(QUEUE_LEN) {
            match bank.move_waiting(closed, *heir, ENGINE) {
                None => break,
                Some((_, true)) => bank.tell_own_listener(heir.number),
                Some((connection, false)) => self.close(bank, connection, What::Refuse),
            }
        }
    }

    fn refuse_all(&self, bank: &Arc<Bank>, listener: u16) {
        if bank.side == Side::Opening {
            return;
        }
        // A peer could go on filling the queue.
        let waiting = std::iter::from_fn(|| bank.take_any(listener, ENGINE));
        for connection in waiting.take(QUEUE_LEN) {
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

    /// Ends the unfinished steps of a process of the node that has died.
    pub(in crate::engine::host) fn bury(&self, process: u16, descriptions: &Descriptions) {
        self.counts.forget(process);
        let Some(dead) = NonZeroU16::new(process) else {
            return;
        };
        let steps = self.end_steps(dead);
        self.forget_waiters(dead);
        if !steps.0.is_empty() {
            // It may have charged memory without having noted that.
            self.closer.has_drifted.store(true, Release);
        }
        let mut accepted = false;
        let mut held = None;
        for bank in self.all() {
            if !bank.ends.forget_user(process) {
                continue;
            }
            let held = held.get_or_insert_with(|| Held::of(descriptions));
            match bank.side {
                Side::Opening => self.bury_opened(&bank, process, held, &steps),
                Side::Accepting => {
                    self.bury_taken(&bank, process, held, &steps);
                    accepted = true;
                }
            }
        }
        if accepted {
            self.tell_listeners();
        }
        // It may have had the lease when a connection came over TCP, and have told no waiter yet.
        if let Ok(bell) = self.listener_bell() {
            bell.ring_all();
        }
        // Those of connections that others have, or that are still to be closed, are the engine's.
        for port in self.ports.of(process) {
            self.ports.free(port, process);
        }
    }

    /// Takes the locks that a dead process's threads have, ends their waits, and frees their lines of
    /// the journal. Returns what they were doing.
    fn end_steps(&self, dead: NonZeroU16) -> Steps {
        let journal = self.own.waiters.journal();
        let mut steps = Steps::default();
        let threads: Vec<ThreadNumber> = journal.threads_of(dead).collect();
        for thread in threads {
            for (place, step) in journal.found(thread) {
                let Some(bank) = self.bank(place.bank as u16) else {
                    continue;
                };
                let _ = bank.recover(place.number, thread, self.thread);
                steps.0.insert((bank.slot(), place.number, step));
            }
            self.end_waits(thread);
            self.own.tape.tap.forget(thread.get().into());
            journal.free(thread);
        }
        steps
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
        let listeners = waiters.directory().listener_numbers();
        let all = (0..WAITERS as u16).filter_map(WaiterNumber::new);
        for waiter in all.filter(|waiter| waiters.process(*waiter) == Some(dead)) {
            (0..listeners).for_each(|listener| unwatch(waiters, listener, waiter));
            waiters.free(waiter);
        }
    }

    /// Tells sleepers of each listener that has connections: a process has died that may have been
    /// told of them.
    fn tell_listeners(&self) {
        let listeners = self.own.waiters.directory().listener_numbers();
        let accepting = self.all().into_iter().filter(|bank| bank.side == Side::Accepting);
        for bank in accepting {
            let waiting = (0..listeners).filter(|&listener| bank.has_any_waiting(listener));
            waiting.for_each(|listener| bank.tell_own_listener(listener));
        }
    }

    /// Cleans up connections that a dead process has opened. Of those that a holder stands for,
    /// only the owner changes. One that may have been offered is offered again, so that the other
    /// side closes it.
    fn bury_opened(&self, bank: &Arc<Bank>, process: u16, held: &Held, steps: &Steps) {
        let owned: Vec<ConnectionId> = bank.ends.owned_by(process).collect();
        for connection in owned {
            let number = connection.number;
            let was = |step| steps.0.contains(&(bank.slot(), number, step));
            let is_begun = bank.ends.generation(number) == connection.generation;
            if !is_begun || was(Step::Open) && !was(Step::Offer) {
                // Its port is free at once, since no peer knows of it.
                bank.ends.set_owner(connection, ENGINE);
                self.close(bank, connection, What::Abandon);
                continue;
            }
            // The port first: a connection that the engine owns has one of the engine's.
            if let Some(record) = bank.half.record(number, connection.generation) {
                self.ports.hand_over(record.local.port(), process, ENGINE);
            }
            bank.ends.set_owner(connection, ENGINE);
            match held.contains(bank, connection) {
                true => {}
                false if was(Step::Offer) => self.close(bank, connection, What::Settle),
                // It may have been closed: then only its other side is awaited.
                false => self.close(bank, connection, What::Close),
            }
        }
    }

    /// Cleans up connections that a dead process has taken, and that no holder stands for.
    fn bury_taken(&self, bank: &Arc<Bank>, process: u16, held: &Held, steps: &Steps) {
        let taken: Vec<ConnectionId> = bank.ends.taken_by(process).collect();
        for connection in taken {
            let number = connection.number;
            if held.contains(bank, connection) {
                continue;
            }
            let was_taking = steps.0.contains(&(bank.slot(), number, Step::Take));
            if bank.ends.generation(number) == connection.generation {
                let what = if was_taking { What::Reset } else { What::Close };
                self.close(bank, connection, what);
            } else if !bank.has_closed(connection) {
                self.close(bank, connection, What::Refuse);
            }
        }
    }
}

/// The steps of a dead process's threads: bank, number and step.
#[derive(Debug, Default)]
struct Steps(HashSet<(u16, u16, Step)>);

/// The ends that holders stand for.
#[derive(Debug)]
struct Held(HashSet<(u16, u16, u32)>);

impl Held {
    fn of(descriptions: &Descriptions) -> Held {
        let ends = descriptions.direct_ends();
        Held(ends.map(|end| (end.slot, end.number, end.generation)).collect())
    }

    fn contains(&self, bank: &Bank, connection: ConnectionId) -> bool {
        let ConnectionId { number, generation } = connection;
        self.0.contains(&(bank.slot(), number, generation))
    }
}
