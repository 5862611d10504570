//! The engine: a thread of the node's own, for the time when no thread of the
//! program is in a call.
//!
//! A program that has written and goes on to compute, or waits for something
//! else, still owes its peers retransmissions, acknowledgements and windows. The
//! engine sees to these, like a program's thread that waits: it sits at the
//! link's descriptor and uses no processor unless something happens.
//!
//! It must cost a busy program nothing. So a call does not tell the engine that
//! it comes and goes; it leaves a mark, and the engine looks for marks every few
//! milliseconds. Only when there is none, it takes its seat; and the next call
//! makes it get up again. While the program waits in a call for long, the engine
//! looks for nothing at all.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use toehold_shm::Doorbell;
use toehold_stack::Instant;

use crate::clock;

use crate::lock::Guard;
use crate::node::Shared;
use crate::shard::Shard;

/// Time between two looks for marks. A program that leaves its calls is without
/// a driver for so long at most.
const PERIOD: Duration = Duration::from_millis(10);

/// Who drives a node's stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// The program's threads while they are in a call on a socket of the node,
    /// whichever that is; nobody at other times.
    Inline,
    /// The program's threads while they are in a call; a thread of the node's
    /// own as soon as none has been for some milliseconds.
    #[default]
    Adaptive,
}

/// What the engine does at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// There is no engine, or it does not run yet, or no longer.
    Absent,
    /// Looks for marks now and then.
    Watching,
    /// Sleeps until the program's threads that wait are done.
    Resting,
    /// Drives.
    Seated,
}

/// The engine as the holder of the shard's lock sees it.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) mode: Mode,
    /// The call that drove or slept at the link when the engine looked last.
    waiting: Option<u64>,
}

/// The engine as everybody sees it.
#[derive(Debug)]
pub(crate) struct EngineSignals {
    /// Wakes the engine.
    bell: Doorbell,
    /// A call has been made, or has driven, since the engine looked last.
    mark: AtomicBool,
    stop: AtomicBool,
}

/// How the engine goes to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    Watch,
    Rest,
    /// At the link, until then.
    Sit(Option<Instant>),
}

impl Engine {
    pub(crate) fn new() -> Self {
        Self {
            mode: Mode::Absent,
            waiting: None,
        }
    }
}

impl EngineSignals {
    pub(crate) fn new(bell: Doorbell) -> Self {
        Self {
            bell,
            mark: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }

    /// Tells the engine that the program is busy with its sockets.
    #[inline]
    pub(crate) fn mark(&self) {
        if !self.mark.load(Relaxed) {
            self.mark.store(true, Relaxed);
        }
    }

    fn take_mark(&self) -> bool {
        self.mark.load(Relaxed) && self.mark.swap(false, Relaxed)
    }
}

impl Shared {
    /// Begins a call of the program.
    #[inline]
    pub(crate) fn enter(&self) -> Guard<'_, Shard> {
        self.engine.mark();
        let mut shard = self.lock.lock();
        if shard.engine.mode == Mode::Seated {
            self.dislodge(&mut shard);
        }
        shard
    }

    /// Makes the engine get up.
    #[cold]
    fn dislodge(&self, shard: &mut Guard<'_, Shard>) {
        shard.engine.mode = Mode::Watching;
        shard.disarm();
        self.engine.bell.ring();
    }

    /// The last of the program's threads that waited is done.
    #[cold]
    pub(crate) fn rouse_engine(&self, shard: &mut Guard<'_, Shard>) {
        shard.engine.mode = Mode::Watching;
        self.engine.bell.ring();
    }

    /// The engine's thread.
    pub(crate) fn run_engine(&self) {
        let mut plan = Plan::Watch;
        loop {
            let (at_link, until) = match plan {
                Plan::Watch => (false, Some(clock::now() + PERIOD)),
                Plan::Rest => (false, None),
                Plan::Sit(until) => (true, until),
            };
            self.sleep(&self.engine.bell, at_link, until);
            self.engine.bell.clear();
            if self.engine.stop.load(Acquire) {
                return;
            }
            // A busy program is not even asked for its lock.
            if plan != Plan::Watch || !self.engine.take_mark() {
                plan = self.plan();
            }
        }
    }

    /// Drives if nobody else does.
    fn plan(&self) -> Plan {
        let mut shard = self.lock.lock();
        if self.engine.stop.load(Acquire) {
            return Plan::Watch;
        }
        shard.tick();
        if shard.engine.mode == Mode::Seated {
            shard.disarm();
        }
        shard.engine.mode = Mode::Watching;
        let waiting = shard.waiting_call();
        let as_before = waiting.is_some() && waiting == shard.engine.waiting;
        shard.engine.waiting = waiting;
        if self.engine.take_mark() || shard.seats.driver.is_some() {
            Plan::Watch
        } else if as_before {
            shard.engine.mode = Mode::Resting;
            Plan::Rest
        } else if waiting.is_some() {
            Plan::Watch
        } else {
            self.drive_all(&mut shard)
        }
    }

    /// Rounds until there is nothing to do.
    fn drive_all(&self, shard: &mut Guard<'_, Shard>) -> Plan {
        loop {
            let frames = shard.poll_once(None);
            if frames == 0 {
                shard.housekeeping();
                if shard.arm() {
                    shard.engine.mode = Mode::Seated;
                    return Plan::Sit(shard.next_due());
                }
                // A link that holds frames back never agrees to sleep.
                self.lock.unlocked(shard, std::thread::yield_now);
            } else if self.lock.is_wanted() {
                self.lock.give_way(shard);
            }
            if self.engine.take_mark() || self.engine.stop.load(Acquire) {
                return Plan::Watch;
            }
        }
    }

    /// Ends the engine's thread.
    pub(crate) fn stop_engine(&self) {
        let mut shard = self.lock.lock();
        if shard.engine.mode == Mode::Seated {
            shard.disarm();
        }
        shard.engine.mode = Mode::Absent;
        self.engine.stop.store(true, Release);
        self.engine.bell.ring();
    }
}

impl Shard {
    /// The call that drives or sleeps at the link, by its number.
    fn waiting_call(&self) -> Option<u64> {
        self.seats
            .driver
            .or(self.seats.sleeper.as_ref().map(|sleeper| sleeper.ticket))
    }
}
