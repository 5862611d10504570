//! Waiting: a call that cannot be served at once drives the shard itself, or
//! rests until another one has done so.
//!
//! Of the threads that wait, in all processes of the node, one *drives*: it
//! looks for frames, after a short while without the lease. It is the one that
//! most lately began to wait, since it is the most likely to get something
//! soon. One more may be *seated*: it sleeps on the link's descriptor. All
//! others are *parked* and rely on these two.
//!
//! *Invariant*: whenever the lease is free and a thread rests, one of these holds:
//!
//! - a thread drives, or the engine does;
//! - a thread that rests was notified and is about to run;
//! - the link is armed, and a thread is seated that wakes up in time for the stack's timers.
//!
//! A wake-up is never lost. What is waited for is looked at with the lease held after every moment
//! without it. Threads that rest are listed among the shard's interests before the lease is let go.
//! When a process dies, the engine takes its threads from their seats. When one is stopped, threads
//! that rest find out by themselves, and take its place.

mod beside;
mod crowd;
mod lanes;
mod rest;
mod several;
pub(crate) mod spin;
#[cfg(test)]
mod tests;

use std::hint::spin_loop;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::PollFlags;
use toehold_link::Watch;
use toehold_shm::{Channels, Doorbell, LeaseGuard, Leased, Parking, Revoked};
use toehold_stack::{AcceptLengths, Instant};

pub(crate) use self::beside::Ears;
pub(crate) use self::beside::sleep_on;
pub use self::beside::{Beside, Glance};
use self::crowd::Crowd;
pub use self::several::Everywhere;
pub use self::spin::SpinBudget;
use crate::attachment::Attachment;
use crate::description::Descriptions;
use crate::driver::{Mode, Signals};
use crate::placement::Placement;
use crate::shard::{Bells, Leaving, Shard, Subscription};
use crate::{clock, interrupts};

/// Looks at the link between two looks at the clock: together about as long as
/// reading the clock takes.
const LOOKS: u32 = 8;

/// How long a thread that looks for frames keeps the lease while no other thread wants it. An
/// answer that comes at once waits for no lease then. Still, a thread that loses its processor
/// while it looks hardly ever has the lease. The engine's driver does not keep it: it waits for
/// nothing itself, and programs want the lease for every call.
const KEEP_LEASE_NS: u64 = 5_000;

/// Length of a pause after which peers are told what they may be waiting for. A program that sends
/// small messages all the time pauses for a tenth of it.
const PATIENCE_NS: u64 = 5_000;

/// Pause up to which spinning helps nothing: the frames after it would have come in time anyway.
const SHORT_PAUSE_NS: u64 = 2_000;

/// The shard, for the time that this thread holds its lease.
pub type Guard<'a> = LeaseGuard<'a, Shard, Leaving>;

/// A call of the program.
pub trait Operation {
    /// The operation's result.
    type Output;

    /// Whether it is the engine's driver that waits, which drives whatever the
    /// node's placement is.
    const IS_DRIVER: bool = false;

    /// Whether it waits for the peer to have taken what was sent. If the peer is on this node, the
    /// thread that drives says so.
    const IS_FOR_ROOM: bool = false;

    /// Tries the operation. Returns `None` if it cannot be done yet.
    fn attempt(&mut self, shard: &mut Shard) -> Option<Self::Output>;

    /// Takes frames from the link.
    #[inline]
    fn receive(&mut self, shard: &mut Shard) -> usize {
        shard.receive(None)
    }

    /// The reason to be woken.
    fn subscription(&self) -> Subscription;

    /// Descriptors of the kernel that end its sleep as well. It is for the operation to
    /// look at what was found.
    fn beside(&self) -> &[Beside<'_>] {
        &[]
    }
}

/// The node is gone, or what it held: its engine died, or had to begin anew
/// because a program died while it ran the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the node is gone")]
pub struct Gone;

impl From<Revoked> for Gone {
    fn from(_: Revoked) -> Self {
        Gone
    }
}

/// One process's way to a shard.
pub struct ShardHandle {
    pub(crate) lease: Leased<Shard, Leaving>,
    pub(crate) signals: Signals,
    pub(crate) parking: Parking,
    /// The channels by which this process leaves and takes bytes without the lease.
    pub(crate) channels: Channels,
    /// The numbers of connections that wait at the shard's listeners.
    pub(crate) accept_lengths: AcceptLengths,
    /// The state that the holders of its sockets share, outside of the lease.
    pub(crate) descriptions: Descriptions,
    pub(crate) bells: Bells,
    /// The link's descriptor, to sleep on without the lease.
    pub(crate) descriptor: Option<Arc<OwnedFd>>,
    /// The epolls of its threads that rest on descriptors of their own.
    pub(crate) ears: Ears,
    /// How long its threads drive without finding frames, whatever each waits for.
    pub(crate) driving: SpinBudget,
    /// The process's connection with the node's engine, if that is another process.
    pub(crate) attachment: Option<Attachment>,
}

/// The sources that have woken a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    bell: bool,
    link: bool,
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

impl ShardHandle {
    /// Begins a call of the program.
    ///
    /// # Errors
    ///
    /// If there is nothing left to call.
    #[inline]
    pub fn enter(&self) -> Result<Guard<'_>, Gone> {
        self.announce();
        let shard = self.lease.lock()?;
        self.entered(shard)
    }

    /// Begins a call of the program, if no thread has the lease.
    #[inline]
    pub fn try_enter(&self) -> Result<Option<Guard<'_>>, Gone> {
        self.announce();
        match self.lease.try_lock() {
            Some(shard) => self.entered(shard).map(Some),
            None => Ok(None),
        }
    }

    /// Announces that a call of this process is about to take the lease.
    #[inline]
    pub(crate) fn announce(&self) {
        if self.is_limited() {
            begin_turn();
        } else {
            self.signals.mark();
        }
    }

    /// Whether the processor time of this process is limited, so that the engine had better drive.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.signals.is_limited(self.process()) && self.signals.placement() == Placement::Adaptive
    }

    /// Whether threads of this process drive while they wait.
    #[inline]
    pub(crate) fn may_drive_inline(&self) -> bool {
        self.signals.placement() != Placement::Engine && !self.is_limited()
    }

    #[inline]
    fn entered<'a>(&'a self, mut shard: Guard<'a>) -> Result<Guard<'a>, Gone> {
        if shard.waiting.seats.mode() == Mode::Seated {
            self.dislodge(&mut shard);
        }
        self.map_peers(&mut shard)?;
        if let Some(attachment) = &self.attachment {
            attachment.count_call()?;
        }
        // What this thread has left a request for comes before what it does now.
        shard.serve();
        Ok(shard)
    }

    /// Maps peers that joined since this process last did so.
    #[inline]
    fn map_peers(&self, shard: &mut Guard<'_>) -> Result<(), Gone> {
        match &self.attachment {
            Some(attachment) if attachment.misses_peers(&self.signals) => {
                attachment.map_peers(&self.signals, shard)
            }
            _ => Ok(()),
        }
    }

    /// The number of this process in the node.
    #[inline]
    pub fn process(&self) -> u16 {
        self.lease.lease().me()
    }

    /// Waits until an operation that has just failed is done, `deadline` at
    /// most; `None` if that has passed, or a [signal](crate::interrupts) came.
    ///
    /// # Errors
    ///
    /// If the node goes away in the meantime. The guard is of no use then.
    pub fn block<O: Operation>(
        &self,
        shard: &mut Guard<'_>,
        operation: &mut O,
        spin: &SpinBudget,
        deadline: Option<Instant>,
    ) -> Result<Option<O::Output>, Gone> {
        let ticket = self.take_wheel(shard, self.drives::<O>());
        let spin = if self.drives::<O>() && !O::IS_DRIVER {
            &self.driving
        } else {
            spin
        };
        let mut budget_ns = spin.get();
        let mut has_slept = false;
        let output = loop {
            if !self.drives::<O>() {
                match self.wait_for_driver(shard, operation, ticket, spin, deadline)? {
                    Some(output) => break Some(output),
                    None if is_over(shard.now, deadline) || interrupts::is_pending() => break None,
                    None => continue,
                }
            }
            match self.drive(shard, operation, ticket, (budget_ns, spin), deadline)? {
                Drive::Done(output) => {
                    // What it was woken for, it has not spun for.
                    if budget_ns > 0 && !has_slept {
                        spin.helped();
                    }
                    break Some(output);
                }
                Drive::TimedOut => break None,
                Drive::Idle if budget_ns > 0 => spin.in_vain(),
                Drive::Idle | Drive::Displaced => {}
            }
            let wish = (operation.subscription(), operation.beside());
            self.rest(shard, wish, ticket, deadline, O::IS_DRIVER)?;
            if let Some(output) = operation.attempt(shard) {
                break Some(output);
            }
            if !O::IS_DRIVER && interrupts::is_pending() {
                break None;
            }
            has_slept = true;
            budget_ns = if shard.waiting.seats.driver().is_none() {
                spin.get_again()
            } else {
                0
            };
        };
        self.leave(shard, ticket);
        Ok(output)
    }

    /// Whether threads that wait for this operation drive.
    #[inline]
    fn drives<O: Operation>(&self) -> bool {
        O::IS_DRIVER || self.may_drive_inline()
    }

    /// Rounds until the operation is done, as long as this call is the driver.
    #[inline]
    fn drive<O: Operation>(
        &self,
        shard: &mut Guard<'_>,
        operation: &mut O,
        ticket: u64,
        (budget_ns, spin): (u64, &SpinBudget),
        deadline: Option<Instant>,
    ) -> Result<Drive<O::Output>, Gone> {
        if !self.may_drive(shard, ticket) {
            return Ok(if is_over(shard.now, deadline) {
                Drive::TimedOut
            } else {
                Drive::Displaced
            });
        }
        shard.tick();
        let mut idle_since = shard.now;
        let keep_ns = if O::IS_DRIVER || spin.crowd().is_here() {
            0
        } else {
            budget_ns.min(KEEP_LEASE_NS)
        };
        let patience_ns = if O::IS_FOR_ROOM { 0 } else { PATIENCE_NS };
        loop {
            let frames = self.receive(shard, operation, keep_ns > 0);
            if frames > 0 {
                shard.respond();
                if let Some(output) = operation.attempt(shard) {
                    return Ok(Drive::Done(output));
                }
            }
            shard.tick();
            if frames > 0 {
                if budget_ns > 0 && shard.now.nanos_since(idle_since) > SHORT_PAUSE_NS {
                    // What came for others would have had to wake a thread, too.
                    spin.helped();
                }
                idle_since = shard.now;
            }
            let idle = shard.now.nanos_since(idle_since) >= budget_ns && frames == 0;
            if idle || shard.housekeeping_due() {
                self.signals.mark();
                if let Some(attachment) = &self.attachment {
                    attachment.check_at(shard.now)?;
                }
                self.map_peers(shard)?;
                shard.waiting.seats.beat();
                shard.housekeeping();
                if let Some(output) = operation.attempt(shard) {
                    return Ok(Drive::Done(output));
                }
            }
            if is_over(shard.now, deadline) {
                return Ok(Drive::TimedOut);
            }
            let idle_ns = shard.now.nanos_since(idle_since);
            if frames == 0 && (idle || idle_ns >= patience_ns) && shard.owes() {
                shard.settle_debts();
                // Within the node, that may be all that was waited for.
                continue;
            }
            if idle {
                return Ok(Drive::Idle);
            }
            let keeps = keep_ns > 0 && !self.lease.is_wanted() && !shard.waiting.due.is_any();
            if keeps && shard.now.nanos_since(idle_since) < keep_ns {
                continue;
            }
            let look_ns = if shard.owes() {
                patience_ns.min(budget_ns)
            } else {
                budget_ns
            };
            let until = idle_since.plus_nanos(look_ns);
            let until = until.min(shard.housekeeping_at());
            let until = clock::earlier(Some(until), deadline).unwrap_or(until);
            let given_ns = self.look(shard, spin.crowd(), until, O::IS_DRIVER)?;
            idle_since = idle_since.plus_nanos(given_ns).min(shard.now);
            // Others may have driven meanwhile, and this call is not listed
            // among those to be told.
            if let Some(output) = operation.attempt(shard) {
                return Ok(Drive::Done(output));
            }
            if !self.may_drive(shard, ticket) {
                return Ok(Drive::Displaced);
            }
        }
    }

    /// Takes frames from the link, looking for them a few times if that may pay and no thread wants
    /// the lease.
    #[inline]
    fn receive<O: Operation>(&self, shard: &mut Shard, operation: &mut O, again: bool) -> usize {
        let mut frames = operation.receive(shard);
        let mut looks = 1;
        while frames == 0 && again && looks < LOOKS && !self.lease.is_wanted() {
            // The peer may be the other thread of this core.
            spin_loop();
            if !shard.is_quiet() {
                frames = operation.receive(shard);
            }
            looks += 1;
        }
        frames
    }

    /// Looks for frames without the lease, until there seem to be some or until a point in time,
    /// and lets others have the processor. Returns for how many nanoseconds it did. If the link
    /// cannot be looked at in that way, lets others have the lease if they want it.
    #[cold]
    fn look(
        &self,
        shard: &mut Guard<'_>,
        crowd: &Crowd,
        until: Instant,
        is_driver: bool,
    ) -> Result<u64, Gone> {
        let mut watch = Watch::new();
        let mut given_ns = 0;
        // A thread that was just woken may wait for this processor.
        let offers = std::mem::take(&mut shard.has_woken);
        let turns = self.signals.turns();
        let is_displaced = || self.signals.turns() != turns;
        if shard.watch(&mut watch) {
            LeaseGuard::unlocked(shard, || {
                if is_driver {
                    // Its programs may be on its processor. What they have of its time counts:
                    // engines that only gave way to one another would keep each other looking.
                    let seen = || watch.changed() || self.channels.has_requests();
                    crowd.look(until, offers, seen, || false);
                } else {
                    given_ns = crowd.look(until, false, || watch.changed(), is_displaced);
                }
            })?;
        } else if shard.waiting.due.is_any() {
            LeaseGuard::unlocked(shard, || ())?;
        } else if self.lease.is_wanted() {
            LeaseGuard::give_way(shard)?;
        }
        // Time never goes back for a stack: others may have run it meanwhile.
        shard.tick();
        Ok(given_ns)
    }

    /// Waits for a doorbell, for the link's descriptor if wanted, and for the end of
    /// the engine. Whether the doorbell has rung, or why it never will.
    pub(crate) fn sleep(&self, bell: &Doorbell, link: bool, until: Option<Instant>) -> Result<bool, Gone> {
        self.sleep_beside(bell, link, until, &[]).map(|heard| heard.bell)
    }

    /// Waits for a doorbell, for the link's descriptor if wanted, for the end of the engine, and
    /// for other descriptors. Returns what has rung, the link's descriptor among it.
    fn sleep_beside(
        &self,
        bell: &Doorbell,
        link: bool,
        until: Option<Instant>,
        beside: &[Beside<'_>],
    ) -> Result<Heard, Gone> {
        let left = until.map(|until| until.since(clock::now()));
        // Whatever there is none of, the bell stands in for.
        let bell = bell.as_fd();
        let link = self.descriptor.as_ref().filter(|_| link);
        let has_link = link.is_some();
        let descriptors = [
            bell,
            link.map_or(bell, AsFd::as_fd),
            self.attachment.as_ref().map_or(bell, Attachment::engine),
        ];
        let [bell, link, engine] = sleep_on(descriptors, beside, left);
        if engine.intersects(PollFlags::HUP | PollFlags::ERR) {
            self.check_engine()?;
        }
        Ok(Heard {
            bell: bell.contains(PollFlags::IN),
            link: has_link && link.contains(PollFlags::IN),
        })
    }

    /// Ends a call that did not wait: tells the threads concerned of its changes.
    #[inline]
    pub fn settle(&self, shard: &mut Guard<'_>) {
        if shard.stack.has_output() {
            shard.tick();
            shard.transmit();
        }
        shard.dispatch();
        if shard.waiting.seats.sleeper().is_some() && shard.waiting.seats.driver().is_none() {
            shard.check_sleeper();
        }
        if let Some(attachment) = &self.attachment {
            // The next call says what came of it.
            let _ = attachment.check_at(shard.now);
        }
    }

    /// Numbers a call that begins to wait, and makes it the driver if it drives.
    #[inline]
    fn take_wheel(&self, shard: &mut Guard<'_>, drives: bool) -> u64 {
        let ticket = shard.waiting.seats.next_ticket();
        if drives {
            shard.waiting.seats.set_driver(self.process(), ticket);
            self.signals.turn();
            shard.disarm();
        }
        ticket
    }

    /// Whether a call that drives is the driver; it becomes the driver if there is none.
    #[inline]
    fn may_drive(&self, shard: &mut Guard<'_>, ticket: u64) -> bool {
        match shard.waiting.seats.driver() {
            Some(driver) => driver == ticket,
            None => {
                shard.waiting.seats.set_driver(self.process(), ticket);
                shard.disarm();
                true
            }
        }
    }
}

/// Begins a turn of a process whose processor time is limited. If its time is over, the kernel
/// takes the processor from it here, and not a moment later, when it has the lease.
#[cold]
fn begin_turn() {
    std::thread::yield_now();
}

fn is_over(now: Instant, deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| now >= deadline)
}
