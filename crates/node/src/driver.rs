//! The engine's driver: a thread that runs the shard when no thread of a
//! program does, or always, as the node's placement says.
//!
//! A program that has written and goes on to compute, waits for something else,
//! or has ended, still owes its peers retransmissions, acknowledgements and
//! windows. The driver sees to these, like a program's thread that waits: it
//! sits at the link's descriptor and uses no processor unless something happens.
//!
//! Under [`Placement::Adaptive`] it must cost a busy program nothing. So a call does not tell the
//! driver that it comes and goes; it leaves a mark. The driver looks for marks about every
//! millisecond, and less often the longer it has found nothing to do. Only when there is none, it
//! takes its seat; and the next call makes it get up again. While the program waits in a call for
//! long, the driver looks for nothing at all.
//!
//! Under [`Placement::Engine`] it is the only one to take frames from the link and to
//! send any. Programs write and read along the lanes of their connections' channels, and
//! leave it requests. It spins for a while after every frame and request if that has
//! helped before, then sleeps at the link.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use toehold_shm::{Carver, LeaseGuard, OutOfMemory, Words, ask_for_short_slices};
use toehold_stack::Instant;

use crate::clock;
use crate::placement::Placement;
use crate::processes::Processes;
use crate::shard::{Pulse, Shard, Subscription};
use crate::shards::OneShard;
use crate::wait::{Gone, Guard, Operation, ShardHandle, SpinBudget};

/// Time between two looks for marks. A program that leaves its calls is without
/// a driver for so long at most, unless it was busy for long.
const PERIOD: Duration = Duration::from_micros(600);

/// Looks in vain, since the driver last was of use, after which the time between two of them
/// doubles. A look takes a few microseconds of a processor that may be the program's.
const VAIN: u32 = 4;

/// Most periods between two looks, and before it takes a wait for one that lasts.
const MOST_PERIODS: u32 = 8;

/// How often a driver that rests looks for a stopped process that drives or sleeps at the link. It
/// looks while threads of other processes rely on that process. With that, and with the time
/// between looks of a driver that watches, a stopped process is noticed within 10 ms.
const STOPPED_LOOK: Duration = Duration::from_millis(8);

/// How long the driver goes on looking so often after it last saw such threads.
const RELIANCE: Duration = Duration::from_secs(1);

/// How long others may drive or sleep at the link without any sign of life before the driver looks
/// after them. Their process may be stopped.
const PATIENCE: Duration = Duration::from_millis(250);

/// The present mode of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Mode {
    /// There is no driver, or it does not run yet, or no longer.
    Absent = 0,
    /// Looks for marks now and then.
    Watching = 1,
    /// Sleeps until the program's threads that wait are done.
    Resting = 2,
    /// Sits at the link.
    Seated = 3,
    /// Sleeps as in [`Mode::Resting`], but looks often whether a process is stopped.
    Looking = 4,
}

impl Mode {
    pub(crate) fn from_word(word: u32) -> Mode {
        match word {
            1 => Mode::Watching,
            2 => Mode::Resting,
            3 => Mode::Seated,
            4 => Mode::Looking,
            _ => Mode::Absent,
        }
    }

    /// Whether the driver sleeps until the program's threads that wait are done.
    pub(crate) fn rests(self) -> bool {
        matches!(self, Mode::Resting | Mode::Looking)
    }
}

/// Processes from this number on are not known to be limited: a node has no more at once.
const MOST_LIMITED: u16 = 1 << 13;

/// The words by which programs and the driver tell each other things without the lease.
#[derive(Debug, Clone)]
pub(crate) struct Signals {
    words: Words,
}

/// A call has been made, or has driven, since the driver looked last.
const MARK: usize = 0;
/// A [`Placement`].
const PLACEMENT: usize = 1;
/// Counts the peers that joined.
const PEERS: usize = 2;
/// Counts the calls that began to wait.
const TURNS: usize = 3;
/// A bit for each process whose processor time is limited ([`crate::quota`]).
const LIMITED: usize = 4;

impl Signals {
    const WORDS: usize = LIMITED + (MOST_LIMITED as usize).div_ceil(32);

    pub(crate) fn bytes_needed() -> usize {
        Words::bytes_needed(Self::WORDS)
    }

    pub(crate) fn create(carver: &mut Carver) -> Result<Self, OutOfMemory> {
        Ok(Self {
            words: carver.words(Self::WORDS)?,
        })
    }

    /// Tells the driver that the program is busy with its sockets.
    #[inline]
    pub(crate) fn mark(&self) {
        let mark = self.words.word(MARK);
        if mark.load(Relaxed) == 0 {
            mark.store(1, Relaxed);
        }
    }

    fn take_mark(&self) -> bool {
        let mark = self.words.word(MARK);
        mark.load(Relaxed) != 0 && mark.swap(0, Relaxed) != 0
    }

    /// Tells the programs that there are peers to be mapped.
    pub(crate) fn peer_joined(&self) {
        self.words.word(PEERS).fetch_add(1, Release);
    }

    /// How many peers have joined so far.
    #[inline]
    pub(crate) fn peers_joined(&self) -> u32 {
        self.words.word(PEERS).load(Acquire)
    }

    /// Notes that a call begins to wait, and drives instead of the thread that did. The caller
    /// holds the lease.
    #[inline]
    pub(crate) fn turn(&self) {
        let turns = self.words.word(TURNS);
        turns.store(turns.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// How many calls have begun to wait so far.
    #[inline]
    pub(crate) fn turns(&self) -> u32 {
        self.words.word(TURNS).load(Relaxed)
    }

    /// Whether the processor time of a process is limited.
    #[inline]
    pub(crate) fn is_limited(&self, process: u16) -> bool {
        let word = self.words.get(LIMITED + usize::from(process / 32));
        word.is_some_and(|word| word.load(Relaxed) >> (process % 32) & 1 != 0)
    }

    pub(crate) fn set_limited(&self, process: u16, limited: bool) {
        if self.is_limited(process) != limited
            && let Some(word) = self.words.get(LIMITED + usize::from(process / 32))
        {
            word.fetch_xor(1 << (process % 32), Relaxed);
        }
    }

    #[inline]
    pub(crate) fn placement(&self) -> Placement {
        match self.words.word(PLACEMENT).load(Relaxed) {
            1 => Placement::Inline,
            2 => Placement::Engine,
            _ => Placement::Adaptive,
        }
    }

    pub(crate) fn set_placement(&self, placement: Placement) {
        let word = match placement {
            Placement::Adaptive => 0,
            Placement::Inline => 1,
            Placement::Engine => 2,
        };
        self.words.word(PLACEMENT).store(word, Release);
    }
}

/// The way in which the driver goes to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
    Watch,
    /// Rests, so long at most.
    Rest(Duration),
    /// Sits at the link, until then.
    Sit(Option<Instant>),
}

/// The thread that drove or slept at the link when the driver looked, and since when.
#[derive(Debug, Default)]
struct Seen {
    pulse: Option<Pulse>,
    since: Instant,
    /// When threads of one process last relied on another one's.
    relied: Option<Instant>,
}

/// The engine's end of a shard: the bells its driver sleeps on, and the flag that ends it.
pub(crate) struct Driver {
    shard: OneShard,
    processes: Arc<Processes>,
    stop: AtomicBool,
    spin: SpinBudget,
}

impl Driver {
    pub(crate) fn new(shard: OneShard, processes: Arc<Processes>) -> Driver {
        Driver {
            shard,
            processes,
            stop: AtomicBool::new(false),
            spin: SpinBudget::new(),
        }
    }

    /// Ends [`Driver::run`], now or when it begins.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Release);
        self.wake();
        // It may sleep where others do, and in memory that was ruined nothing says so.
        self.shard.bells.sleeper.ring();
    }

    /// Makes the driver look again, after its placement was changed. One that drives
    /// for all sleeps where others sleep, see [`Shard::wake_sleeper`].
    pub(crate) fn wake(&self) {
        self.shard.bells.driver.ring();
    }

    fn must_stop(&self) -> bool {
        self.stop.load(Acquire)
    }

    /// Drives as the placement says, until stopped.
    ///
    /// # Errors
    ///
    /// If the shard is gone.
    pub(crate) fn run(&self) -> Result<(), Gone> {
        ask_for_short_slices();
        let mut plan = Plan::Watch;
        // Looks since it last took frames. That it sits down says nothing: a program that waits
        // for a processor leaves no marks either.
        let mut vain = 0_u32;
        let mut seen = Seen::default();
        while !self.must_stop() {
            let until = match (self.shard.signals.placement(), plan) {
                (Placement::Engine, _) => {
                    self.drive_always()?;
                    plan = Plan::Watch;
                    continue;
                }
                (Placement::Inline, _) if seen.relied.is_none() => Some(clock::now() + PATIENCE),
                (Placement::Inline, _) => Some(clock::now() + STOPPED_LOOK),
                (_, Plan::Rest(longest)) => Some(clock::now() + longest),
                (_, Plan::Watch) => Some(clock::now() + PERIOD * periods(vain)),
                (_, Plan::Sit(until)) => until,
            };
            let at_link = matches!(plan, Plan::Sit(_));
            self.shard.sleep(&self.shard.bells.driver, at_link, until)?;
            self.shard.bells.driver.clear();
            // A busy program is not even asked for its lease.
            if plan == Plan::Watch && self.shard.signals.take_mark() {
                vain = vain.saturating_add(1);
                continue;
            }
            plan = self.plan(&mut seen, &mut vain)?;
        }
        self.leave()
    }

    /// Drives if no other thread does.
    fn plan(&self, seen: &mut Seen, vain: &mut u32) -> Result<Plan, Gone> {
        let mut shard = self.shard.lease.lock()?;
        shard.tick();
        self.relieve_stopped(&mut shard, seen)?;
        if shard.waiting.seats.mode() == Mode::Seated {
            shard.disarm();
        }
        shard.waiting.seats.set_mode(Mode::Watching);
        let as_before = shard.waiting.seats.waits_as_before();
        let adaptive = self.shard.signals.placement() == Placement::Adaptive;
        if !adaptive || self.shard.signals.take_mark() || shard.waiting.seats.driver().is_some() {
            Ok(Plan::Watch)
        } else if as_before && periods(*vain) == MOST_PERIODS {
            let is_relied = seen.relied.is_some();
            let (mode, longest) = match is_relied {
                true => (Mode::Looking, STOPPED_LOOK),
                false => (Mode::Resting, PATIENCE),
            };
            shard.waiting.seats.set_mode(mode);
            Ok(Plan::Rest(longest))
        } else if shard.waiting.seats.waiting_call().is_some() {
            *vain = vain.saturating_add(VAIN);
            Ok(Plan::Watch)
        } else {
            self.drive_all(&mut shard, vain)
        }
    }

    /// Takes a process from its seat that has not moved for too long, or that is stopped while threads
    /// of others rely on it.
    fn relieve_stopped(&self, shard: &mut Guard<'_>, seen: &mut Seen) -> Result<(), Gone> {
        let pulse = shard.waiting.seats.pulse();
        let process = shard.waiting.seats.seated_process();
        let relies = process.is_some_and(|process| shard.waiting.seats.relies_on(process));
        if relies {
            seen.relied = Some(shard.now);
        } else if seen
            .relied
            .is_some_and(|relied| shard.now.nanos_since(relied) >= RELIANCE.as_nanos() as u64)
        {
            seen.relied = None;
        }
        if process.is_none() || seen.pulse != Some(pulse) {
            seen.pulse = Some(pulse);
            seen.since = shard.now;
            return Ok(());
        }
        if let Some(process) = process.filter(|_| relies) {
            let is_halted = LeaseGuard::unlocked(shard, || self.processes.is_halted(process))?;
            shard.tick();
            if is_halted && shard.waiting.seats.pulse() == pulse {
                self.shard.unseat(shard, process);
                seen.pulse = None;
                return Ok(());
            }
        }
        if shard.now.nanos_since(seen.since) >= PATIENCE.as_nanos() as u64 {
            self.shard.relieve(shard, pulse);
            seen.since = shard.now;
        }
        Ok(())
    }

    /// Rounds until there is nothing to do.
    fn drive_all(&self, shard: &mut Guard<'_>, vain: &mut u32) -> Result<Plan, Gone> {
        loop {
            let frames = shard.poll_once(None);
            if frames > 0 {
                *vain = 0;
            }
            if frames == 0 {
                shard.housekeeping();
                if shard.arm() {
                    shard.waiting.seats.set_mode(Mode::Seated);
                    return Ok(Plan::Sit(shard.next_due()));
                }
                // A link that holds frames back never agrees to sleep.
                LeaseGuard::unlocked(shard, std::thread::yield_now)?;
            } else if self.shard.lease.is_wanted() {
                LeaseGuard::give_way(shard)?;
            }
            if self.shard.signals.take_mark() || self.must_stop() {
                return Ok(Plan::Watch);
            }
        }
    }

    /// Drives in the place of all programs, until the placement changes.
    fn drive_always(&self) -> Result<(), Gone> {
        let mut shard = self.shard.lease.lock()?;
        if shard.waiting.seats.mode() == Mode::Seated {
            shard.disarm();
        }
        shard.waiting.seats.set_mode(Mode::Watching);
        let channels = &self.shard.channels;
        channels.attend();
        let driven = self.shard.block(&mut shard, &mut Always(self), &self.spin, None);
        channels.retire();
        if driven.is_ok() {
            shard.serve();
        }
        driven.map(drop)
    }

    /// Has a thread that still rests drive from now on.
    fn leave(&self) -> Result<(), Gone> {
        let mut shard = self.shard.lease.lock()?;
        if shard.waiting.seats.mode() == Mode::Seated {
            shard.disarm();
        }
        shard.waiting.seats.set_mode(Mode::Absent);
        if shard.waiting.seats.driver().is_none() && shard.waiting.seats.somebody_rests() {
            self.shard.hand_over(&mut shard);
        }
        Ok(())
    }
}

/// How many periods go by until the next look.
fn periods(vain: u32) -> u32 {
    (1 << (vain / VAIN).min(31)).min(MOST_PERIODS)
}

/// Waits, while the driver drives for all, for the end of that.
struct Always<'a>(&'a Driver);

impl Operation for Always<'_> {
    type Output = ();

    const IS_DRIVER: bool = true;

    fn receive(&mut self, shard: &mut Shard) -> usize {
        usize::from(shard.serve()) + shard.receive(None)
    }

    fn attempt(&mut self, _: &mut Shard) -> Option<()> {
        let goes_on = self.0.shard.signals.placement() == Placement::Engine && !self.0.must_stop();
        (!goes_on).then_some(())
    }

    fn subscription(&self) -> Subscription {
        Subscription::Nothing
    }
}

impl ShardHandle {
    /// Delivers what was written and closed, for some time at most; what is left then is reset. No
    /// other thread uses the shard any more.
    pub(crate) fn drain(&self, longest: Duration) -> Result<(), Gone> {
        let mut shard = self.lease.lock()?;
        let deadline = clock::now() + longest;
        loop {
            shard.tick();
            let frames = shard.receive(None);
            shard.housekeeping();
            if shard.stack.undelivered() == 0 || shard.now >= deadline {
                break;
            }
            if frames == 0 && shard.arm() {
                let until = clock::earlier(Some(deadline), shard.next_due());
                LeaseGuard::unlocked(&mut shard, || self.sleep(&self.bells.sleeper, true, until))??;
                shard.disarm();
            }
        }
        shard.stack.abort_undelivered();
        shard.transmit();
        Ok(())
    }

    /// Makes the driver get up from the link.
    #[cold]
    pub(crate) fn dislodge(&self, shard: &mut Guard<'_>) {
        shard.waiting.seats.set_mode(Mode::Watching);
        shard.disarm();
        self.bells.driver.ring();
    }

    /// Wakes the driver for a thread that waits and leaves driving to the engine, if no thread
    /// drives.
    #[cold]
    pub(crate) fn call_driver(&self, shard: &mut Guard<'_>) {
        let seats = &shard.waiting.seats;
        let is_driven = seats.driver().is_some() || seats.sleeper().is_some();
        if !is_driven && !matches!(seats.mode(), Mode::Seated | Mode::Absent) {
            self.rouse_driver(shard);
        }
    }

    /// Wakes the driver, since the last of the program's threads that waited is done.
    #[cold]
    pub(crate) fn rouse_driver(&self, shard: &mut Guard<'_>) {
        shard.waiting.seats.set_mode(Mode::Watching);
        self.bells.driver.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_in_vain_become_rarer_up_to_a_bound() {
        assert_eq!(
            [0, VAIN - 1, VAIN, 2 * VAIN, 3 * VAIN].map(periods),
            [1, 1, 2, 4, 8]
        );
        assert_eq!(periods(u32::MAX), MOST_PERIODS);
    }
}
