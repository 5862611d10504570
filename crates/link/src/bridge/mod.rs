//! Forwards frames between two links, in both directions. A bridge makes a kernel's
//! interface a member of a fabric, or joins two fabrics on different hosts.
//!
//! A frame crosses unchanged where the other link takes it, with its super-frame
//! and partial checksum. Otherwise the bridge cuts it or fills the checksum in. A
//! frame without room waits, within bounds of memory and time, and without holding
//! up frames for others (`held.rs`). Dropped frames are counted by reason.
//!
//! A bridge never learns addresses: the links know which frames are for the other
//! side. It reads IP headers only of frames that it cuts, fragments or reports as
//! too long (`too_long.rs`).

mod direction;
mod held;
mod spin;
mod statistics;
#[cfg(test)]
mod tests;
mod too_long;

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use self::direction::Direction;
use self::spin::{Spin, wait};
pub use self::statistics::BridgeStatistics;
use crate::Link;
use crate::steering::Steering;

/// Interval of polls of the bell during steady traffic, in nanoseconds.
const LOOK_NS: u64 = 5_000_000;
/// Interval of retries of waiting frames while nothing else happens.
const HELD_PAUSE: Duration = Duration::from_millis(5);
/// Number of refusals to sleep in a row, without a moved frame, after which the
/// bridge pauses for a moment. A link refuses, for example, while it waits for room
/// in the kernel.
const MAX_REFUSALS: u32 = 64;
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// Two links, and the frames between them. One thread drives it.
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
    /// Number of refusals to sleep in a row.
    refusals: u32,
    /// The bridge's time zero.
    origin: Instant,
}

impl<A: Link, B: Link> Bridge<A, B> {
    /// Joins two links, which belong to the bridge from now on.
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

    /// Lets only frames from this hardware address pass from the first link to the
    /// second. A member of a fabric that is no gateway may only send frames of its
    /// own.
    #[must_use]
    pub fn only_from(mut self, source: [u8; 6]) -> Bridge<A, B> {
        self.forth.only_from(source);
        self
    }

    /// Lets only a shard's share of the frames pass from the second link to the
    /// first: the segments and datagrams of its flows. The first shard also passes
    /// all other frames. For one of several bridges between a device's queues and a
    /// member's shards.
    #[must_use]
    pub fn only_share_of(mut self, steering: Steering) -> Bridge<A, B> {
        if steering.count > 1 {
            self.back.only_share_of(steering);
        }
        self
    }

    /// The links, for their statistics.
    pub fn links(&self) -> (&A, &B) {
        (&self.a, &self.b)
    }

    /// Counters from the first link to the second, and from the second to the
    /// first.
    pub fn statistics(&self) -> [BridgeStatistics; 2] {
        [self.forth.statistics(), self.back.statistics()]
    }

    /// Forwards a burst in each direction. Returns the number of frames that came
    /// or went. Never blocks.
    pub fn round(&mut self) -> usize {
        self.round_at(self.now_ns())
    }

    fn round_at(&mut self, now_ns: u64) -> usize {
        let moved = self.forth.round(now_ns, &mut self.a, &mut self.b)
            + self.back.round(now_ns, &mut self.b, &mut self.a);
        // Publishes what one direction has put into a link, and the room from
        // the other.
        if moved != 0 {
            self.a.flush();
            self.b.flush();
        }
        // The bridge keeps no state by neighbour, but the other link may need to
        // know which senders to accept.
        while let Some(change) = self.a.next_change() {
            self.b.note_beyond(change);
        }
        while let Some(change) = self.b.next_change() {
            self.a.note_beyond(change);
        }
        moved
    }

    /// Forwards frames until `bell` is readable. Sleeps while there is nothing
    /// to do.
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

    /// Sleeps until a link has work. Returns `true` if the bell was rung.
    fn sleep(&mut self, bell: BorrowedFd<'_>) -> bool {
        if !self.a.prepare_sleep() {
            return self.pause(bell);
        }
        let rung = if self.b.prepare_sleep() {
            self.refusals = 0;
            let waits = !self.forth.is_empty() || !self.back.is_empty();
            // A link that frames are not taken from may well be readable.
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

    /// Pauses while a link has work, or waits for an event without a
    /// descriptor.
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
