//! Forwards frames between two links, in both directions: what makes a kernel's interface
//! a member of a fabric, or two fabrics on different hosts one.
//!
//! A frame crosses as it is wherever the other link takes it so, super-frames and
//! unfinished checksums included; what the other link cannot take is finished or cut here.
//! A frame that finds no room waits for it, within bounds of memory and time, and without
//! holding up those for others (`held.rs`). Whatever is dropped is counted under a reason.
//!
//! Never learns addresses and never looks at IP, but at what has to be cut or fragmented, or whose
//! sender has to be told that it is too long (`too_long.rs`): which frames are for the other side is
//! for the links to know.

mod direction;
mod held;
mod rest;
mod statistics;
#[cfg(test)]
mod tests;
mod too_long;

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use self::direction::Direction;
use self::rest::{Spin, wait};
pub use self::statistics::BridgeStatistics;
use crate::Link;
use crate::steering::Steering;

/// How often the bell is looked at while frames come all the time, in nanoseconds.
const LOOK_NS: u64 = 5_000_000;
/// How often frames that wait for room are looked at while nothing else happens.
const HELD_PAUSE: Duration = Duration::from_millis(5);
/// After so many times in a row that a link would not sleep though nothing moved, as one does
/// that waits for room in the kernel, it is left alone for a moment.
const MAX_REFUSALS: u32 = 64;
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// Two links, and what goes between them. One thread drives it.
///
/// ```
/// use toehold_link::bridge::Bridge;
/// use toehold_link::loopback::{Loopback, LoopbackSettings};
///
/// let address = |number| [2, 0, 0, 0, 0, number];
/// let (near, left) = Loopback::pair([address(1), address(2)], LoopbackSettings::default())?;
/// let (right, far) = Loopback::pair([address(3), address(4)], LoopbackSettings::default())?;
/// let mut bridge = Bridge::new(left, right);
/// assert_eq!(bridge.round(), 0);
/// # drop((near, far));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Bridge<A: Link, B: Link> {
    a: A,
    b: B,
    forth: Direction,
    back: Direction,
    spin: Spin,
    /// Times in a row that a link would not sleep.
    refusals: u32,
    /// Time begins with the bridge.
    origin: Instant,
}

impl<A: Link, B: Link> Bridge<A, B> {
    /// Joins two links. Each is the bridge's alone.
    pub fn new(a: A, b: B) -> Bridge<A, B> {
        Bridge {
            a,
            b,
            forth: Direction::default(),
            back: Direction::default(),
            spin: Spin::new(),
            refusals: 0,
            origin: Instant::now(),
        }
    }

    /// Lets only frames from this hardware address pass from the first link to the second:
    /// a member of a fabric that is no gateway speaks for itself alone.
    #[must_use]
    pub fn only_from(mut self, source: [u8; 6]) -> Bridge<A, B> {
        self.forth.only_from(source);
        self
    }

    /// Lets only a shard's share of the frames pass from the second link to the first: its
    /// flows' segments and datagrams, and if it is the first one all else. For a bridge that
    /// is one of several between a device's queues and the shards of a member.
    #[must_use]
    pub fn only_share_of(mut self, steering: Steering) -> Bridge<A, B> {
        if steering.count > 1 {
            self.back.only_share_of(steering);
        }
        self
    }

    /// The links, to be asked what they have carried and dropped.
    pub fn links(&self) -> (&A, &B) {
        (&self.a, &self.b)
    }

    /// What went from the first link to the second, and from the second to the first.
    pub fn statistics(&self) -> [BridgeStatistics; 2] {
        [self.forth.statistics(), self.back.statistics()]
    }

    /// Forwards a burst in each direction. Returns how many frames came or went. Never
    /// waits.
    pub fn round(&mut self) -> usize {
        self.round_at(self.now_ns())
    }

    fn round_at(&mut self, now_ns: u64) -> usize {
        let moved = self.forth.round(now_ns, &mut self.a, &mut self.b)
            + self.back.round(now_ns, &mut self.b, &mut self.a);
        // What the one direction has put there, and the room that the other has given.
        if moved != 0 {
            self.a.flush();
            self.b.flush();
        }
        // Nobody here keeps anything by neighbour, but a link may have to know whose frames
        // to take.
        while let Some(change) = self.a.next_change() {
            self.b.note_beyond(change);
        }
        while let Some(change) = self.b.next_change() {
            self.a.note_beyond(change);
        }
        moved
    }

    /// Forwards frames until `bell` is readable. Sleeps while there is nothing to do.
    pub fn drive(&mut self, bell: BorrowedFd<'_>) {
        let mut look_ns = self.now_ns() + LOOK_NS;
        let mut idle_ns = None;
        loop {
            let now_ns = self.now_ns();
            if now_ns >= look_ns {
                look_ns = now_ns + LOOK_NS;
                if wait(&[Some(bell)], Some(Duration::ZERO)) {
                    return;
                }
            }
            if self.round_at(now_ns) != 0 {
                self.refusals = 0;
                if idle_ns.take().is_some() {
                    self.spin.helped();
                }
                continue;
            }
            let since_ns = *idle_ns.get_or_insert_with(|| {
                self.spin.begin();
                now_ns
            });
            if now_ns - since_ns < self.spin.ns() {
                std::thread::yield_now();
                continue;
            }
            self.spin.in_vain();
            idle_ns = None;
            if self.sleep(bell) {
                return;
            }
        }
    }

    /// Waits until something comes up. True: the bell was rung.
    fn sleep(&mut self, bell: BorrowedFd<'_>) -> bool {
        if !self.a.prepare_sleep() {
            return self.pause(bell);
        }
        let rung = if self.b.prepare_sleep() {
            self.refusals = 0;
            let waits = !self.forth.is_empty() || !self.back.is_empty();
            // What nothing is taken from may well be readable.
            let sources = [
                Some(bell),
                self.a.descriptor().filter(|_| !self.forth.is_stalled()),
                self.b.descriptor().filter(|_| !self.back.is_stalled()),
            ];
            let longest = [
                waits.then_some(HELD_PAUSE),
                self.a.longest_sleep(),
                self.b.longest_sleep(),
            ];
            let rung = wait(&sources, longest.into_iter().flatten().min());
            self.b.finish_sleep(self.now_ns());
            rung
        } else {
            self.pause(bell)
        };
        self.a.finish_sleep(self.now_ns());
        rung
    }

    /// A link has something to do, or waits for what nothing tells of.
    fn pause(&mut self, bell: BorrowedFd<'_>) -> bool {
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals <= MAX_REFUSALS {
            std::thread::yield_now();
            return false;
        }
        wait(&[Some(bell)], Some(REFUSED_PAUSE))
    }

    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}
