//! Waiting: a call that cannot be served at once drives the shard itself, or
//! rests until another one has done so.
//!
//! Of the threads that wait, one *drives*: it looks for frames, and holds the
//! lock while it spins. It is the one that most lately began to wait, since it
//! is the most likely to get something soon. One more may be *seated*: it sleeps
//! on the link's descriptor. All others are *parked* and rely on these two.
//!
//! *Invariant*, whenever the lock is free: if any thread rests, then there is a
//! driver, or the link is armed and a thread seated that wakes up in time for
//! the stack's timers, or a thread that rests was notified and is about to run.
//! A wake-up is never lost, because what is waited for is looked at with the
//! lock held after every moment without it, and because those who rest are
//! listed in [`Interests`](crate::interests::Interests) before the lock is let go.

use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use toehold_shm::Doorbell;
use toehold_stack::{Event, Instant};

use crate::clock;
use crate::engine::Mode;
use crate::lock::Guard;
use crate::node::Shared;
use crate::parker::{Parker, Rest};
use crate::shard::{Shard, Sleeper};
use crate::spin::SpinBudget;

/// Looks at the link between two looks at the clock: together about as long as
/// reading the clock takes.
const LOOKS: u32 = 8;

/// Rounds that a call which is about to leave drives on behalf of those who
/// rest, before it wakes one of them to do so.
const LAST_ROUNDS: usize = 3;

/// A call of the program.
pub(crate) trait Operation {
    /// What it comes to.
    type Output;

    /// Tries. `None`: not yet.
    fn attempt(&mut self, shard: &mut Shard) -> Option<Self::Output>;

    /// Takes frames from the link.
    #[inline]
    fn receive(&mut self, shard: &mut Shard) -> usize {
        shard.receive(None)
    }

    /// What to be woken for.
    fn subscription(&self) -> Subscription;
}

/// What wakes a thread that rests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subscription {
    /// A change of a connection or listener.
    Source(Event),
    /// A source registered with a poll.
    Poll(usize),
    /// Nothing but the need for a driver.
    Nothing,
}

/// How driving ended.
enum Drive<T> {
    Done(T),
    TimedOut,
    /// Spinning did not help.
    Idle,
    /// A call that began to wait later drives now.
    Displaced,
}

impl Shared {
    /// Waits until an operation that has just failed is done, `deadline` at
    /// most; `None` if that has passed.
    pub(crate) fn block<O: Operation>(
        &self,
        shard: &mut Guard<'_, Shard>,
        operation: &mut O,
        spin: &SpinBudget,
        deadline: Option<Instant>,
    ) -> Option<O::Output> {
        let ticket = shard.take_wheel();
        let mut budget_ns = spin.get();
        let output = loop {
            match self.drive(shard, operation, ticket, budget_ns, deadline) {
                Drive::Done(output) => {
                    if budget_ns > 0 {
                        spin.helped();
                    }
                    break Some(output);
                }
                Drive::TimedOut => break None,
                Drive::Idle if budget_ns > 0 => spin.in_vain(),
                Drive::Idle | Drive::Displaced => {}
            }
            self.rest(shard, operation, ticket, deadline);
            if let Some(output) = operation.attempt(shard) {
                break Some(output);
            }
            budget_ns = if shard.seats.driver.is_none() {
                spin.get()
            } else {
                0
            };
        };
        self.leave(shard, ticket);
        output
    }

    /// Rounds until the operation is done, as long as this call is the driver.
    #[inline]
    fn drive<O: Operation>(
        &self,
        shard: &mut Guard<'_, Shard>,
        operation: &mut O,
        ticket: u64,
        budget_ns: u64,
        deadline: Option<Instant>,
    ) -> Drive<O::Output> {
        if !shard.may_drive(ticket) {
            return if is_over(shard.now, deadline) {
                Drive::TimedOut
            } else {
                Drive::Displaced
            };
        }
        shard.tick();
        let mut idle_since = shard.now;
        loop {
            let mut looks = 1;
            let mut frames = operation.receive(shard);
            while frames == 0 && looks < LOOKS && budget_ns > 0 {
                // The peer may be the other thread of this core.
                std::hint::spin_loop();
                frames = operation.receive(shard);
                looks += 1;
            }
            if frames > 0 {
                shard.respond();
                if let Some(output) = operation.attempt(shard) {
                    return Drive::Done(output);
                }
            }
            shard.tick();
            if frames > 0 {
                idle_since = shard.now;
            }
            let idle = shard.now.nanos_since(idle_since) >= budget_ns && frames == 0;
            if idle || shard.housekeeping_due() {
                self.engine.mark();
                shard.housekeeping();
                if let Some(output) = operation.attempt(shard) {
                    return Drive::Done(output);
                }
            }
            if is_over(shard.now, deadline) {
                return Drive::TimedOut;
            }
            if idle {
                return Drive::Idle;
            }
            if self.lock.is_wanted() {
                self.lock.give_way(shard);
                if let Some(output) = operation.attempt(shard) {
                    return Drive::Done(output);
                }
                if !shard.may_drive(ticket) {
                    return Drive::Displaced;
                }
            }
        }
    }

    /// Sleeps until there is reason to look again.
    #[cold]
    fn rest<O: Operation>(
        &self,
        shard: &mut Guard<'_, Shard>,
        operation: &O,
        ticket: u64,
        deadline: Option<Instant>,
    ) {
        let undriven = shard.seats.driver.is_none_or(|driver| driver == ticket);
        if undriven {
            // From here on nobody drives; what came since the last look is
            // reason enough not to rest.
            shard.seats.driver = None;
            if !self.settle_sleeper(shard) {
                // A link that has frames inside which are not due yet never
                // agrees to sleep. The others may use the time.
                self.lock.unlocked(shard, std::thread::yield_now);
                return;
            }
        }
        let parker = Parker::current();
        shard.subscribe(operation.subscription(), &parker);
        if shard.seats.sleeper.is_none() {
            let until = if undriven {
                clock::earlier(deadline, shard.next_due())
            } else {
                deadline
            };
            self.sit(shard, &parker, ticket, until);
        } else {
            parker.begin(Rest::Parked);
            shard.seats.parked.push_back(parker.clone());
            self.lock.unlocked(shard, || parker.park(deadline));
            parker.end();
            shard.seats.parked.retain(|other| !Arc::ptr_eq(other, &parker));
            shard.tick();
        }
        shard.unsubscribe(operation.subscription(), &parker);
    }

    /// Sleeps on the link's descriptor.
    fn sit(&self, shard: &mut Guard<'_, Shard>, parker: &Arc<Parker>, ticket: u64, until: Option<Instant>) {
        parker.begin(Rest::Seated);
        shard.seats.sleeper = Some(Sleeper {
            parker: parker.clone(),
            ticket,
            until,
        });
        self.lock.unlocked(shard, || self.sleep(&self.bell, true, until));
        shard.seats.sleeper = None;
        if parker.end() {
            self.bell.clear();
        }
        shard.tick();
        shard.disarm();
    }

    /// Waits for a doorbell, and for the link's descriptor if wanted.
    pub(crate) fn sleep(&self, bell: &Doorbell, link: bool, until: Option<Instant>) {
        let left = until.map(|until| clock::timespec(until.since(clock::now())));
        let bell = PollFd::new(bell, PollFlags::IN);
        // A signal ends the sleep early, which does no harm.
        let _ = match &self.descriptor {
            Some(descriptor) if link => {
                poll(&mut [bell, PollFd::new(descriptor, PollFlags::IN)], left.as_ref())
            }
            _ => poll(&mut [bell], left.as_ref()),
        };
    }

    /// The end of a call that has waited.
    #[inline]
    fn leave(&self, shard: &mut Guard<'_, Shard>, ticket: u64) {
        if shard.seats.driver == Some(ticket) {
            shard.seats.driver = None;
        }
        if shard.seats.driver.is_none() {
            if shard.somebody_rests() {
                self.hand_over(shard);
            } else if shard.engine.mode == Mode::Resting {
                self.rouse_engine(shard);
            }
        }
    }

    /// Nobody drives any more: sees to it that those who rest wake up when needed.
    #[cold]
    fn hand_over(&self, shard: &mut Guard<'_, Shard>) {
        if shard.seats.sleeper.is_some() {
            for _ in 0..LAST_ROUNDS {
                if self.settle_sleeper(shard) {
                    return;
                }
                shard.poll_once(None);
            }
            shard.wake_sleeper();
        } else if let Some(parked) = shard.seats.parked.front() {
            // One that was notified before leaves the queue, or waits again,
            // only after having come by here itself.
            if shard.seats.parked.iter().all(|parked| parked.is_resting()) {
                parked.notify(shard.bell());
            }
        }
    }

    /// Arms the link, on behalf of the thread that is seated if there is one,
    /// and makes sure that it wakes up in time. False: something has arrived.
    fn settle_sleeper(&self, shard: &mut Guard<'_, Shard>) -> bool {
        if !shard.arm() {
            return false;
        }
        shard.check_sleeper();
        true
    }

    /// The end of a call that did not wait: tells those concerned what it changed.
    #[inline]
    pub(crate) fn settle(&self, shard: &mut Guard<'_, Shard>) {
        if shard.stack.has_output() {
            shard.tick();
            shard.transmit();
        }
        shard.dispatch();
        if shard.seats.sleeper.is_some() && shard.seats.driver.is_none() {
            shard.check_sleeper();
        }
    }
}

fn is_over(now: Instant, deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| now >= deadline)
}

impl Shard {
    /// Makes a call that begins to wait the driver, and numbers it.
    #[inline]
    fn take_wheel(&mut self) -> u64 {
        self.seats.last_ticket += 1;
        self.seats.driver = Some(self.seats.last_ticket);
        self.disarm();
        self.seats.last_ticket
    }

    /// Whether the call is the driver; it becomes the driver if there is none.
    #[inline]
    fn may_drive(&mut self, ticket: u64) -> bool {
        if self.seats.driver.is_none() {
            self.seats.driver = Some(ticket);
            self.disarm();
        }
        self.seats.driver == Some(ticket)
    }

    #[inline]
    fn somebody_rests(&self) -> bool {
        self.seats.sleeper.is_some() || !self.seats.parked.is_empty()
    }

    /// Wakes the thread that is seated if it would sleep too long.
    #[cold]
    fn check_sleeper(&mut self) {
        let Some(sleeper) = &self.seats.sleeper else {
            return;
        };
        let Some(due) = self.next_due() else { return };
        if sleeper.until.is_none_or(|until| until > due) {
            sleeper.parker.notify(self.bell());
        }
    }

    fn wake_sleeper(&self) {
        if let Some(sleeper) = &self.seats.sleeper {
            sleeper.parker.notify(self.bell());
        }
    }

    fn subscribe(&mut self, subscription: Subscription, parker: &Arc<Parker>) {
        match subscription {
            Subscription::Source(source) => self.interests.add_thread(source, parker.clone()),
            Subscription::Poll(poll) => {
                if let Some(poll) = self.polls.get_mut(poll) {
                    poll.set_waiting(Some(parker.clone()));
                }
            }
            Subscription::Nothing => {}
        }
    }

    fn unsubscribe(&mut self, subscription: Subscription, parker: &Arc<Parker>) {
        match subscription {
            Subscription::Source(source) => self.interests.remove_thread(source, parker),
            Subscription::Poll(poll) => {
                if let Some(poll) = self.polls.get_mut(poll) {
                    poll.set_waiting(None);
                }
            }
            Subscription::Nothing => {}
        }
    }
}
