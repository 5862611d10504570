//! Resting of threads, and the handing over of the shard by the last thread that drives.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use toehold_shm::{LeaseGuard, Rest};
use toehold_stack::Instant;

use super::{Beside, Gone, Guard, Heard, Operation, ShardHandle, SpinBudget};
use crate::attachment::Attachment;
use crate::driver::Mode;
use crate::shard::{Pulse, Shard, Subscription};
use crate::{clock, interrupts};

/// Rounds that a call which is about to leave drives on behalf of threads that rest, before it
/// wakes one of them to do so.
const LAST_ROUNDS: usize = 3;

/// How long a thread sleeps at most before it looks whether the engine lives, and whether another
/// thread moves.
const SLICE: Duration = Duration::from_millis(200);

/// How long the engine waits for the seat at the link if another thread has it.
const SEAT_TAKEN_NS: u64 = 1_000_000;

impl ShardHandle {
    /// Sleeps until there is reason to look again.
    #[cold]
    pub(super) fn rest(
        &self,
        shard: &mut Guard<'_>,
        (subscription, beside): (Subscription, &[Beside<'_>]),
        ticket: u64,
        deadline: Option<Instant>,
        is_engine: bool,
    ) -> Result<(), Gone> {
        let undriven = shard.waiting.seats.driver().is_none_or(|driver| driver == ticket);
        if undriven {
            // From here on no thread drives; what came since the last look is reason enough not to
            // rest.
            shard.waiting.seats.clear_driver();
            if !settle_sleeper(shard) {
                // A link that has frames inside which are not due yet never
                // agrees to sleep. The others may use the time.
                return Ok(LeaseGuard::unlocked(shard, std::thread::yield_now)?);
            }
        }
        let Some(slot) = shard.waiting.seats.take_slot(self.process(), ticket) else {
            return Ok(LeaseGuard::unlocked(shard, std::thread::yield_now)?);
        };
        if shard.subscribe(subscription, slot) {
            let rested = if shard.waiting.seats.sleeper().is_none() {
                let until = if undriven {
                    clock::earlier(deadline, shard.next_due())
                } else {
                    deadline
                };
                self.sit(shard, slot, (until, beside), is_engine)
            } else if is_engine {
                // A program's thread still sits there, from before the engine drove for all. It
                // will not drive any more, and gives up its seat as soon as it runs. When that is
                // cannot be known, so the engine comes again.
                shard.wake_sleeper();
                self.park(shard, slot, Some(shard.now.plus_nanos(SEAT_TAKEN_NS)), &[])
            } else {
                self.park(shard, slot, deadline, beside)
            };
            rested?;
            shard.tick();
            shard.unsubscribe(subscription, slot);
        } else {
            LeaseGuard::unlocked(shard, std::thread::yield_now)?;
        }
        shard.waiting.seats.give_slot(slot);
        Ok(())
    }

    /// Rests until the engine's driver has done something about an operation.
    #[cold]
    pub(super) fn wait_for_driver<O: Operation>(
        &self,
        shard: &mut Guard<'_>,
        operation: &mut O,
        ticket: u64,
        spin: &SpinBudget,
        deadline: Option<Instant>,
    ) -> Result<Option<O::Output>, Gone> {
        if shard.waiting.seats.driver() == Some(ticket) {
            // The placement has changed while this call drove.
            shard.waiting.seats.clear_driver();
        }
        shard.check_sleeper();
        let is_limited = self.is_limited();
        if is_limited {
            self.call_driver(shard);
        }
        let subscription = operation.subscription();
        let Some(slot) = shard.waiting.seats.take_slot(self.process(), ticket) else {
            LeaseGuard::unlocked(shard, std::thread::yield_now)?;
            return Ok(operation.attempt(shard));
        };
        if shard.subscribe(subscription, slot) {
            let beside = operation.beside();
            self.parking.begin(slot, Self::rest_without_seat(beside));
            shard.waiting.seats.park(slot);
            let budget_ns = if is_limited { 0 } else { spin.get() };
            let mut in_time = false;
            LeaseGuard::unlocked(shard, || {
                in_time = spin
                    .crowd()
                    .look_alone(budget_ns, || !self.parking.is_resting(slot));
                self.park_until(slot, deadline, beside)
            })??;
            match in_time {
                true => spin.helped(),
                false if budget_ns > 0 => spin.in_vain(),
                false => {}
            }
            self.parking.end(slot);
            shard.unsubscribe(subscription, slot);
        } else {
            LeaseGuard::unlocked(shard, std::thread::yield_now)?;
        }
        shard.waiting.seats.give_slot(slot);
        shard.tick();
        Ok(operation.attempt(shard))
    }

    /// Sleeps on the link's descriptor.
    fn sit(
        &self,
        shard: &mut Guard<'_>,
        slot: u32,
        (until, beside): (Option<Instant>, &[Beside<'_>]),
        is_engine: bool,
    ) -> Result<(), Gone> {
        self.parking.begin(slot, Rest::Seated);
        let wake_at = until.unwrap_or(Instant::NEVER);
        shard.waiting.seats.set_sleeper(slot, wake_at);
        let heard = LeaseGuard::unlocked(shard, || {
            // A thread that leaves a request for the engine's driver rings if it sleeps.
            let slept = if !is_engine || self.channels.doze() {
                self.sleep_beside(&self.bells.sleeper, true, until, beside)
            } else {
                Ok(Heard::default())
            };
            if is_engine {
                self.channels.attend();
            }
            slept
        })??;
        shard.waiting.seats.leave_link(slot);
        if shard.waiting.seats.mode() == Mode::Seated {
            // The engine has taken this thread's place.
            self.dislodge(shard);
        }
        // It may have rung for one that is dead.
        if self.parking.end(slot) || heard.bell {
            self.bells.sleeper.clear();
        }
        if heard.link {
            shard.quiet();
        } else {
            shard.disarm();
        }
        Ok(())
    }

    /// Sleeps until the driver says otherwise, or a thread has to be relieved.
    fn park(
        &self,
        shard: &mut Guard<'_>,
        slot: u32,
        until: Option<Instant>,
        beside: &[Beside<'_>],
    ) -> Result<(), Gone> {
        self.parking.begin(slot, Self::rest_without_seat(beside));
        shard.waiting.seats.park(slot);
        let seated = shard.waiting.seats.seated_process();
        if shard.waiting.seats.mode() == Mode::Resting
            && seated.is_some_and(|seated| seated != self.process())
        {
            // The driver is to look from now on whether that process is stopped.
            self.rouse_driver(shard);
        }
        loop {
            let pulse = shard.waiting.seats.pulse();
            LeaseGuard::unlocked(shard, || self.park_for_a_slice(slot, until, beside))??;
            let woken = !self.parking.is_resting(slot)
                || self.attachment.is_none()
                || Beside::any(beside)
                || interrupts::is_pending();
            if woken || until.is_some_and(|until| clock::now() >= until) || self.relieve(shard, pulse) {
                break;
            }
        }
        self.parking.end(slot);
        shard.waiting.seats.unpark(slot);
        Ok(())
    }

    /// Takes a thread that has not moved for a slice of time from its seat: its process is stopped,
    /// most likely. When it goes on, it finds out. Returns `false` if no thread is to be relieved.
    #[cold]
    pub(crate) fn relieve(&self, shard: &mut Guard<'_>, before: Pulse) -> bool {
        if shard.waiting.seats.pulse() != before {
            return false;
        }
        if shard.waiting.seats.driver().is_some() {
            shard.waiting.seats.clear_driver();
        } else if shard.waiting.seats.sleeper().is_some() {
            // It may well have slept for so long, if there was nothing to do.
            if shard.poll_once(None) == 0 {
                return false;
            }
            shard.waiting.seats.clear_sleeper();
        }
        // Otherwise a thread was woken to drive, and did not come.
        true
    }

    /// Takes a process that is stopped from its seat, for another one to take. When it goes on, it
    /// finds out.
    #[cold]
    pub(crate) fn unseat(&self, shard: &mut Guard<'_>, stopped: u16) {
        shard.waiting.seats.clear_driver();
        shard.waiting.seats.clear_sleeper();
        shard.disarm();
        shard.poll_once(None);
        if let Some(parked) = shard.waiting.seats.parked_beside(stopped) {
            shard.waiting.notify(parked, shard.wakes.all());
        }
    }

    /// Sleeps on a word of memory, for a slice of time if the engine is another process. The kernel
    /// tells only threads that sleep at the link of its death.
    fn park_for_a_slice(&self, slot: u32, until: Option<Instant>, beside: &[Beside<'_>]) -> Result<(), Gone> {
        self.rest_on_word(slot, self.end_of_slice(until), beside);
        self.check_engine()
    }

    /// When to look whether the engine lives, if it is another process, and `until` is not sooner.
    pub(super) fn end_of_slice(&self, until: Option<Instant>) -> Option<Instant> {
        let slice = self.attachment.as_ref().map(|_| clock::now() + SLICE);
        clock::earlier(until, slice)
    }

    /// Sleeps on a word of memory until notified.
    fn park_until(&self, slot: u32, until: Option<Instant>, beside: &[Beside<'_>]) -> Result<(), Gone> {
        loop {
            self.park_for_a_slice(slot, until, beside)?;
            let woken = !self.parking.is_resting(slot)
                || self.attachment.is_none()
                || Beside::any(beside)
                || interrupts::is_pending();
            if woken || until.is_some_and(|until| clock::now() >= until) {
                return Ok(());
            }
        }
    }

    /// Becomes readable when the engine is gone, if that is another process.
    pub(crate) fn engine(&self) -> Option<BorrowedFd<'_>> {
        self.attachment.as_ref().map(Attachment::engine)
    }

    /// Fails if the engine is gone, and tells the node's other threads so.
    pub(crate) fn check_engine(&self) -> Result<(), Gone> {
        self.attachment.as_ref().map_or(Ok(()), Attachment::check)
    }

    /// Ends a call that has waited.
    #[inline]
    pub(super) fn leave(&self, shard: &mut Guard<'_>, ticket: u64) {
        if shard.waiting.seats.driver() == Some(ticket) {
            shard.waiting.seats.clear_driver();
        }
        self.care(shard);
    }

    /// Makes sure that a thread looks after the shard, if there is no driver.
    #[inline]
    pub(crate) fn care(&self, shard: &mut Guard<'_>) {
        if shard.waiting.seats.driver().is_none() {
            if shard.waiting.seats.somebody_rests() {
                self.hand_over(shard);
            } else if shard.waiting.seats.mode().rests() {
                self.rouse_driver(shard);
            }
        }
    }

    /// Makes sure that threads that rest wake up when needed, since no thread drives any more.
    #[cold]
    pub(crate) fn hand_over(&self, shard: &mut Guard<'_>) {
        if shard.waiting.seats.sleeper().is_some() {
            for _ in 0..LAST_ROUNDS {
                if settle_sleeper(shard) {
                    return;
                }
                shard.poll_once(None);
            }
            shard.wake_sleeper();
        } else if let Some(parked) = shard.waiting.seats.parked().next() {
            // One that was notified before leaves the queue, or waits again,
            // only after having come by here itself.
            let rests = |slot| shard.waiting.is_resting(slot, shard.wakes.all());
            if shard.waiting.seats.parked().all(rests) {
                shard.waiting.notify(parked, shard.wakes.all());
            }
        }
    }
}

/// Arms the link, on behalf of the thread that is seated if there is one, and makes sure that it
/// wakes up in time. Returns `false` if something has arrived.
fn settle_sleeper(shard: &mut Shard) -> bool {
    if !shard.arm() {
        return false;
    }
    shard.check_sleeper();
    true
}

impl Shard {
    /// Wakes the thread that is seated if it would sleep too long.
    #[cold]
    pub(crate) fn check_sleeper(&mut self) {
        let Some((slot, until)) = self.waiting.seats.sleeper() else {
            return;
        };
        if self.next_due().is_some_and(|due| until > due) {
            self.waiting.notify(slot, self.wakes.all());
        }
    }

    pub(crate) fn wake_sleeper(&self) {
        if let Some((slot, _)) = self.waiting.seats.sleeper() {
            self.waiting.notify(slot, self.wakes.all());
        }
    }
}
