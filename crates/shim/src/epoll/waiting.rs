//! Waiting for an instance's sources, the kernel's and the node's at once.

use core::ffi::c_int;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use libc::epoll_event;
use rustix::event::PollFlags;
use toehold_posix::errno::{Errno, Outcome};
use toehold_socket::{Beside, Events};

use super::sockets::{ROUSE, Sockets};
use super::{Epoll, sift};
use crate::answer::outcome;
use crate::readiness::{USUAL, told};
use crate::{next, node, table, wait};

/// Events of the node's that are taken at once, at most.
const MOST: usize = 512;

/// Period of looks at the kernel's descriptors by a thread that always finds something on the node.
const KERNELS_TURN: Duration = Duration::from_micros(50);

/// Period of looks at the kernel's descriptors while the kernel's instance is kept ready for
/// threads that are still to leave it.
const LEAVING: Duration = Duration::from_millis(1);

/// How often events of no registration are passed over, and the pause after each time, until the
/// node's memory counts as damaged.
const UNKNOWN_ROUNDS: u32 = 500;
const UNKNOWN_PAUSE: Duration = Duration::from_millis(1);

/// Counts a thread that waits, until this is dropped.
struct Waiter<'a>(&'a AtomicU32);

impl<'a> Waiter<'a> {
    fn new(waiters: &'a AtomicU32) -> Self {
        waiters.fetch_add(1, SeqCst);
        Waiter(waiters)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Epoll {
    /// Whether it has something to tell of the node's.
    pub(crate) fn is_ready(&self) -> bool {
        self.take_over();
        let ready = self.present().map(|sockets| sockets.poll.is_ready());
        ready.is_some_and(|ready| ready.unwrap_or(false)) || self.has_lost()
    }

    /// `epoll_wait`.
    pub(crate) fn wait(
        &self,
        number: c_int,
        events: &mut [epoll_event],
        timeout: Option<Duration>,
    ) -> Outcome<c_int> {
        let began = Instant::now();
        let _waiter = Waiter::new(&self.waiters);
        loop {
            let number = self.present_number(number);
            let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            match self.wait_with_lost(number, events, left) {
                Err(Errno::NETDOWN) => {}
                waited => return waited,
            }
            // The node is gone: its connections have failed, and what is left is the kernel's.
            self.note_lost();
            if node::is_there() {
                continue;
            }
            let (lost, rest) = self.tell_lost(events);
            let count = lost + self.take_kernels(number, &[], rest)?.0;
            if count > 0 || left.is_some_and(|left| left.is_zero()) {
                return Ok(count as c_int);
            }
            wait::without_node(&[(number, libc::POLLIN)], left)?;
        }
    }

    /// Tells of connections that are lost, and of all others that have something to tell.
    fn wait_with_lost(
        &self,
        number: c_int,
        events: &mut [epoll_event],
        timeout: Option<Duration>,
    ) -> Outcome<c_int> {
        self.take_over();
        let (lost, rest) = self.tell_lost(events);
        let first = self.take_kernels_first(number, rest)?;
        let (kernels, rest) = rest.split_at_mut(first);
        if lost + first == 0 {
            return self.wait_for_both(number, rest, timeout, true);
        }
        let others = match rest.is_empty() {
            true => Ok(0),
            false => self.wait_for_both(number, rest, Some(Duration::ZERO), first == 0),
        };
        let others = self.untold(kernels, &mut rest[..others.unwrap_or(0) as usize]);
        Ok((lost + first + others) as c_int)
    }

    /// Takes the kernel's events first, into half of the room, if the node's have taken all of it
    /// before. Otherwise a program that always has as much on the node would never get them.
    fn take_kernels_first(&self, number: c_int, events: &mut [epoll_event]) -> Outcome<usize> {
        if !self.was_full.load(Relaxed) {
            return Ok(0);
        }
        self.was_full.store(false, Relaxed);
        let room = events.len().div_ceil(2);
        Ok(self.take_kernels(number, &[], &mut events[..room])?.0)
    }

    /// Waits for both. `with_kernels`: the kernel's were not told of yet.
    fn wait_for_both(
        &self,
        number: c_int,
        events: &mut [epoll_event],
        timeout: Option<Duration>,
        with_kernels: bool,
    ) -> Outcome<c_int> {
        let sockets = self.sockets()?;
        let began = Instant::now();
        let left = || timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        let mut has_kernels = with_kernels && self.has_kernels.load(SeqCst);
        let mut taken = Events::with_capacity(events.len().min(MOST));
        // The kernel's descriptors are looked at before any thread waits.
        let mut span = if has_kernels && self.is_kernels_turn() {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        let (mut are_leaving, mut unknown) = (false, 0);
        loop {
            let number = self.present_number(number);
            let beside = [Beside::new(table::borrow(&number), PollFlags::IN)];
            let beside = &beside[..usize::from(has_kernels && !are_leaving)];
            wait::on(&sockets.poll, &mut taken, span, beside)?;
            if taken.iter().any(|event| event.is_error()) && self.settle() {
                has_kernels = with_kernels;
                continue;
            }
            let mut is_unknown = false;
            let told_of = taken.iter().filter_map(|event| {
                let data = self.names.data(event.token());
                is_unknown |= data.is_none() && event.token() != ROUSE;
                Some((event, data?))
            });
            let names = self.names_asked(&taken);
            let mut count = 0;
            for ((event, data), place) in told_of.zip(events.iter_mut()) {
                let asked = names
                    .as_ref()
                    .map_or(USUAL, |names| names.get(&data).copied().unwrap_or(USUAL));
                *place = epoll_event {
                    events: told(event, asked),
                    u64: data,
                };
                count += 1;
            }
            if has_kernels && count == events.len() {
                self.was_full.store(true, Relaxed);
            }
            if has_kernels && count < events.len() && (count == 0 || self.is_kernels_turn()) {
                let (ours, kernels) = events.split_at_mut(count);
                let (taken, rouses) = self.take_kernels(number, ours, kernels)?;
                count += taken;
                are_leaving = rouses && self.has_sleepers();
            }
            has_kernels = with_kernels && self.has_kernels.load(SeqCst);
            span = left();
            if is_unknown && count == 0 {
                unknown = self.pass_over(&sockets, unknown)?;
            }
            if count > 0 || span.is_some_and(|span| span.is_zero()) {
                return Ok(count as c_int);
            }
            if are_leaving {
                span = Some(span.unwrap_or(LEAVING).min(LEAVING));
            }
        }
    }

    /// Passes over events of no registration that there is: it may just have ended. In the end they
    /// come of nonsense in the node's memory, which tells of them for ever.
    #[cold]
    fn pass_over(&self, sockets: &Arc<Sockets>, rounds: u32) -> Outcome<u32> {
        let is_present = self
            .present()
            .is_some_and(|present| Arc::ptr_eq(&present, sockets));
        if !is_present || rounds == UNKNOWN_ROUNDS {
            if is_present {
                sockets.poll.abandon_node();
            }
            return Err(Errno::NETDOWN);
        }
        std::thread::sleep(UNKNOWN_PAUSE);
        Ok(rounds + 1)
    }

    /// The names by which events are asked for, by what the program knows them by. Returns `None`
    /// if they are the usual ones.
    fn names_asked(&self, taken: &Events) -> Option<HashMap<u64, u32>> {
        if taken.is_empty() || !self.synonyms.load(Relaxed) {
            return None;
        }
        let known = taken.iter().filter_map(|event| self.names.data(event.token()));
        let mut names: HashMap<u64, u32> = known.map(|data| (data, 0)).collect();
        for watched in self.watched().values() {
            if let Some(asked) = names.get_mut(&watched.asked.data) {
                *asked |= watched.asked.events;
            }
        }
        Some(names)
    }

    /// The number by which the kernel knows the instance whose number was given.
    fn present_number(&self, number: c_int) -> c_int {
        self.kept.get().map_or(number, AsRawFd::as_raw_fd)
    }

    fn is_kernels_turn(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let due = looked.is_none_or(|looked| now.duration_since(looked) >= KERNELS_TURN);
        if due {
            *looked = Some(now);
        }
        due
    }

    /// Takes the kernel's events that the program was not told of yet. Returns how many, and
    /// whether the event that wakes threads in the kernel was among them.
    fn take_kernels(
        &self,
        number: c_int,
        told: &[epoll_event],
        events: &mut [epoll_event],
    ) -> Outcome<(usize, bool)> {
        if events.is_empty() {
            return Ok((0, false));
        }
        let most = events.len().min(c_int::MAX as usize) as c_int;
        let number = self.present_number(number);
        // SAFETY: `events` has room for `most` events, and is borrowed mutably for this call.
        let taken = outcome(unsafe { next::epoll_wait(number, events.as_mut_ptr(), most, 0) })?;
        let (count, rouses) = sift(self, number, &mut events[..taken as usize]);
        Ok((self.untold(told, &mut events[..count]), rouses))
    }

    /// Moves what was not told of already to the front: what is in both can be ready in both. How
    /// many those are.
    fn untold(&self, told: &[epoll_event], events: &mut [epoll_event]) -> usize {
        let is_told = |event: &epoll_event| {
            let mut told = told.iter();
            told.any(|told| { told.u64 } == { event.u64 } && { told.events } == { event.events })
        };
        if !events.iter().any(is_told) {
            return events.len();
        }
        // Programs may know several files by the same, of which each has its own to tell.
        let watched = self.watched();
        let both = watched.values().filter(|watched| watched.is_in_both());
        let both: Vec<u64> = both.map(|watched| watched.asked.data).collect();
        let mut kept = 0;
        for index in 0..events.len() {
            let event = events[index];
            if !(both.contains(&{ event.u64 }) && is_told(&event)) {
                events[kept] = event;
                kept += 1;
            }
        }
        kept
    }
}
