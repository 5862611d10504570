//! The stack under test with its clock, its outgoing packets and the threads
//! that wait in its calls.
//!
//! packetdrill plays a script on one thread, the driver, and makes calls that may block on another,
//! a guest. Time passes only while the driver waits, and never past a point at which a guest has
//! something to do. Before the clock moves, every guest has gone to sleep in full knowledge of the
//! stack's state, or has left its call. In the latter case it has read the time of its return.

use crate::descriptors::Descriptors;
use crate::fast_open::FastOpen;
use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;
use toehold_link::{Offload, Received, Transmit, TransmitError, Transmitter};
use toehold_posix::errno::{Errno, Outcome};
use toehold_shm::{Carver, Gather, Region};
use toehold_stack::{Config, Instant, Stack};

/// Where the clock begins: an hour after its zero, so that nothing looks as if
/// it had happened at the beginning of time.
const BEGINNING: Instant = Instant(3_600_000_000_000);
/// How far a look at the clock moves it: packetdrill spins on it.
const LOOK: Duration = Duration::from_micros(1);
/// How long the stack may be silent before a packet that is expected is given up.
const LONGEST_SILENCE: Duration = Duration::from_secs(600);
/// Packets kept for packetdrill; more are dropped as by a full device queue.
const MOST_PACKETS: usize = 4096;
/// How long the driver waits, in real time, for a guest to get somewhere.
const GUEST_PATIENCE: Duration = Duration::from_secs(2);

/// A packet on its way to packetdrill.
struct Packet {
    sent_at: Instant,
    bytes: Vec<u8>,
}

/// Packets the stack has sent and packetdrill has not looked at.
#[derive(Default)]
struct Outbox {
    packets: VecDeque<Packet>,
    now: Instant,
}

impl Transmitter for Outbox {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        if self.packets.len() >= MOST_PACKETS {
            return Err(TransmitError::Full);
        }
        let mut bytes = vec![0; frame.len()];
        let (headers, payload) = bytes.split_at_mut(frame.headers.len());
        headers.copy_from_slice(frame.headers);
        frame.payload.copy_to(0, payload);
        self.packets.push_back(Packet {
            sent_at: self.now,
            bytes,
        });
        Ok(())
    }
}

/// The state of a guest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guest {
    /// In a call, and not asleep in it.
    Running,
    /// Asleep, after it had looked at the state of this generation.
    Asleep {
        generation: u64,
        deadline: Option<Instant>,
    },
    /// Back from a call, about to read the time.
    Returned,
}

/// Everything that calls share.
pub(crate) struct State {
    pub(crate) stack: Stack,
    pub(crate) descriptors: Descriptors,
    pub(crate) now: Instant,
    pub(crate) fast_open: FastOpen,
    outbox: Outbox,
    guests: HashMap<ThreadId, Guest>,
    /// Counts changes that may let a guest go on.
    generation: u64,
}

impl State {
    /// Lets the stack send, and has guests look again.
    fn settle_stack(&mut self) {
        self.outbox.now = self.now;
        self.stack.poll_transmit(self.now, &mut self.outbox);
        // Readiness is asked for when it matters; the list only has to stay short.
        while self.stack.next_event().is_some() {}
        self.generation += 1;
    }

    /// The next point in time at which anything happens by itself.
    fn next_deadline(&self) -> Option<Instant> {
        let asleep = self.guests.values().filter_map(|guest| match guest {
            Guest::Asleep { deadline, .. } => *deadline,
            _ => None,
        });
        asleep.chain(self.stack.poll_timeout()).min()
    }

    /// Whether every guest has got as far as it can at this point in time.
    fn guests_wait(&self) -> bool {
        self.guests
            .values()
            .all(|guest| matches!(guest, Guest::Asleep { generation, .. } if *generation == self.generation))
    }

    fn run_timers(&mut self) {
        if self
            .stack
            .poll_timeout()
            .is_some_and(|deadline| deadline <= self.now)
        {
            self.stack.handle_timeout(self.now);
        }
        self.settle_stack();
    }
}

type Guard<'a> = MutexGuard<'a, State>;

/// How long a call may wait for what it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all: EAGAIN.
    None,
    /// This long, then EAGAIN.
    For(Duration),
    /// For ever.
    Endless,
}

/// The stack under test.
pub(crate) struct Node {
    state: Mutex<State>,
    changed: Condvar,
    driver: ThreadId,
}

impl Node {
    /// A stack with this configuration, driven by the present thread.
    pub(crate) fn new(config: &Config, fast_open: FastOpen) -> Result<Self, String> {
        let region = Region::private(Stack::region_len(config)).map_err(|error| error.to_string())?;
        let mut carver = Carver::new(region).map_err(|error| error.to_string())?;
        let stack = Stack::create(&mut carver, config).map_err(|error| error.to_string())?;
        let state = State {
            stack,
            descriptors: Descriptors::default(),
            now: BEGINNING,
            fast_open,
            outbox: Outbox::default(),
            guests: HashMap::new(),
            generation: 0,
        };
        Ok(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            driver: thread::current().id(),
        })
    }

    fn lock(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call that never waits.
    pub(crate) fn call<T>(&self, call: impl FnOnce(&mut State) -> Outcome<T>) -> Outcome<T> {
        let mut state = self.enter();
        let outcome = call(&mut state);
        state.settle_stack();
        self.leave(state);
        outcome
    }

    /// Makes a call that waits for as long as `attempt` answers EAGAIN and
    /// `patience` lasts.
    pub(crate) fn call_waiting<T>(
        &self,
        patience: impl FnOnce(&mut State) -> Outcome<Patience>,
        mut attempt: impl FnMut(&mut State) -> Outcome<T>,
    ) -> Outcome<T> {
        let mut state = self.enter();
        let outcome = match patience(&mut state) {
            Err(error) => Err(error),
            Ok(patience) => {
                let deadline = match patience {
                    Patience::For(span) => Some(state.now + span),
                    Patience::None | Patience::Endless => None,
                };
                loop {
                    let outcome = attempt(&mut state);
                    state.settle_stack();
                    let over = deadline.is_some_and(|deadline| state.now >= deadline);
                    if outcome.as_ref().err() != Some(&Errno::AGAIN) || patience == Patience::None || over {
                        break outcome;
                    }
                    match self.sleep(state, deadline) {
                        (guard, true) => state = guard,
                        (guard, false) => {
                            state = guard;
                            break Err(Errno::INTR);
                        }
                    }
                }
            }
        };
        self.leave(state);
        outcome
    }

    fn enter(&self) -> Guard<'_> {
        let mut state = self.lock();
        let caller = thread::current().id();
        if caller != self.driver {
            state.guests.insert(caller, Guest::Running);
        }
        state
    }

    fn leave(&self, mut state: Guard<'_>) {
        if let Some(guest) = state.guests.get_mut(&thread::current().id()) {
            *guest = Guest::Returned;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until something has changed: a guest asleep, the driver by letting
    /// time pass. False if nothing can ever change.
    fn sleep<'a>(&'a self, mut state: Guard<'a>, deadline: Option<Instant>) -> (Guard<'a>, bool) {
        let caller = thread::current().id();
        let generation = state.generation;
        if caller == self.driver {
            let next = state.next_deadline().into_iter().chain(deadline).min();
            return match next {
                Some(next) => (self.advance(state, next), true),
                None => (state, false),
            };
        }
        state
            .guests
            .insert(caller, Guest::Asleep { generation, deadline });
        self.changed.notify_all();
        while state.generation == generation {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.guests.insert(caller, Guest::Running);
        (state, true)
    }

    /// Waits, in real time, until no guest has anything left to do now.
    fn await_guests<'a>(&'a self, mut state: Guard<'a>) -> Guard<'a> {
        self.changed.notify_all();
        while !state.guests_wait() {
            let (guard, timeout) = self
                .changed
                .wait_timeout(state, GUEST_PATIENCE)
                .unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if timeout.timed_out() {
                eprintln!("toehold: a call neither waits nor returns; time goes on without it");
                state.guests.clear();
            }
        }
        state
    }

    /// Moves the clock to `target`, stopping wherever something happens.
    fn advance<'a>(&'a self, mut state: Guard<'a>, target: Instant) -> Guard<'a> {
        state = self.await_guests(state);
        while let Some(next) = state.next_deadline().filter(|next| *next <= target) {
            // A timer may be early by a tick of the wheel; time still moves.
            state.now = next.max(state.now.plus_nanos(1)).min(target.max(state.now));
            state.run_timers();
            state = self.await_guests(state);
            if state.now >= target {
                break;
            }
        }
        state.now = state.now.max(target);
        state
    }

    /// The time, in microseconds. The driver's looks move the clock on.
    pub(crate) fn time_us(&self) -> u64 {
        let mut state = self.lock();
        let caller = thread::current().id();
        if state.guests.remove(&caller).is_some() {
            self.changed.notify_all();
        } else {
            let target = state.now + LOOK;
            state = self.advance(state, target);
        }
        state.now.0 / 1000
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, span: Duration) {
        let state = self.lock();
        let target = state.now + span;
        drop(self.advance(state, target));
    }

    /// Puts a packet into the stack.
    pub(crate) fn inject(&self, bytes: &[u8]) {
        let mut state = self.lock();
        state = self.await_guests(state);
        let now = state.now;
        let frame = Received {
            private: bytes,
            rest: Gather::EMPTY,
            offload: Offload::default(),
        };
        state.stack.handle_frame(now, &frame);
        state.settle_stack();
        drop(self.await_guests(state));
    }

    /// The next packet from the stack, waiting for it as long as it can still
    /// come; and when it was sent, in microseconds.
    pub(crate) fn sniff(&self) -> Option<(Vec<u8>, u64)> {
        let mut state = self.lock();
        let end = state.now + LONGEST_SILENCE;
        loop {
            state = self.await_guests(state);
            if let Some(packet) = state.outbox.packets.pop_front() {
                return Some((packet.bytes, packet.sent_at.0 / 1000));
            }
            let next = state.next_deadline().filter(|next| *next <= end)?;
            let next = next.max(state.now.plus_nanos(1));
            state = self.advance(state, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn node() -> Arc<Node> {
        let flags = crate::flags::parse("local=10.0.0.1/8").expect("well-formed");
        Arc::new(Node::new(&flags.config, flags.fast_open).expect("memory"))
    }

    #[test]
    fn time_passes_only_when_the_driver_lets_it() {
        let node = node();
        let before = node.time_us();
        std::thread::sleep(Duration::from_millis(5));
        let looked = node.time_us();
        assert_eq!(looked, before + 1);
        node.pass(Duration::from_secs(60));
        assert_eq!(node.time_us(), looked + 60_000_001);
    }

    #[test]
    fn a_guest_wakes_at_its_deadline_and_not_later() {
        let node = node();
        let before = node.time_us();
        let guest = Arc::clone(&node);
        let thread = std::thread::spawn(move || {
            let patience = |_: &mut State| Ok(Patience::For(Duration::from_millis(30)));
            let outcome = guest.call_waiting::<()>(patience, |_| Err(Errno::AGAIN));
            (outcome, guest.time_us())
        });
        while node.lock().guests.is_empty() {
            std::thread::yield_now();
        }
        node.pass(Duration::from_secs(1));
        let (outcome, returned) = thread.join().expect("no panic");
        assert_eq!(outcome, Err(Errno::AGAIN));
        assert_eq!(returned, before + 30_000);
    }

    #[test]
    fn a_guest_that_waits_for_something_goes_on_when_it_happens() {
        let node = node();
        let guest = Arc::clone(&node);
        let thread = std::thread::spawn(move || {
            let outcome = guest.call_waiting(
                |_| Ok(Patience::Endless),
                |state| {
                    if state.generation > 50 {
                        Ok(7)
                    } else {
                        Err(Errno::AGAIN)
                    }
                },
            );
            guest.time_us();
            outcome
        });
        while node.lock().generation < 50 {
            let _ = node.call(|_| Ok(()));
        }
        let _ = node.call(|_| Ok(()));
        node.pass(Duration::from_secs(1));
        assert_eq!(thread.join().expect("no panic"), Ok(7));
    }

    #[test]
    fn a_driver_that_nothing_can_wake_is_told() {
        let outcome = node().call_waiting::<()>(|_| Ok(Patience::Endless), |_| Err(Errno::AGAIN));
        assert_eq!(outcome, Err(Errno::INTR));
    }

    #[test]
    fn silence_has_an_end() {
        assert!(node().sniff().is_none());
    }
}
