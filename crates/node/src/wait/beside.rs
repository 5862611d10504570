//! Descriptors of the kernel for which a thread waits besides the node.
//!
//! A thread that is seated sleeps on them as on the link. One that would be parked on a word of
//! memory cannot. It rests *polled*: on the descriptors and on a bell of the node's for threads
//! that rest so. The bell is its process's, and that of others if there are many. Every ring of
//! that bell wakes all of them, and each looks whether the ring was for it, without the lease. No
//! thread silences the bell, since one that did could take the ring from another that has not run
//! yet. So each waits through an epoll of its own. That reports the rings since the thread last
//! asked, and no others.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use toehold_shm::{Doorbell, Rest};
use toehold_stack::Instant;

use super::ShardHandle;
use crate::attachment::Attachment;
use crate::{clock, descriptors, interrupts};

/// How long a thread sleeps at once that no bell wakes, for lack of a descriptor.
const DEAF: Duration = Duration::from_millis(1);

/// Epolls that are kept for the next thread that rests, at most.
const SPARE: usize = 16;

/// A descriptor of the kernel that a call waits for as well, and the readiness that was found.
///
/// Errors and hang-ups are found in any case, as with a `pollfd`.
#[derive(Debug)]
pub struct Beside<'f> {
    descriptor: BorrowedFd<'f>,
    events: PollFlags,
    found: Cell<PollFlags>,
}

impl<'f> Beside<'f> {
    /// A descriptor, and the events for which it is waited.
    pub fn new(descriptor: BorrowedFd<'f>, events: PollFlags) -> Beside<'f> {
        Beside {
            descriptor,
            events,
            found: Cell::new(PollFlags::empty()),
        }
    }

    /// The readiness at the last look; nothing, if there was none.
    pub fn found(&self) -> PollFlags {
        self.found.get()
    }

    /// A copy with this descriptor and these events, of which nothing was found.
    #[must_use]
    pub fn again(&self) -> Beside<'f> {
        Beside::new(self.descriptor, self.events)
    }

    /// Takes over the result of another look at the descriptor.
    pub fn take_over(&self, other: &Beside<'_>) {
        self.found.set(other.found.get());
    }

    /// Forgets the results of the last look.
    pub fn forget(beside: &[Beside<'_>]) {
        beside.iter().for_each(|one| one.found.set(PollFlags::empty()));
    }

    /// Whether any of these is ready, as of the last look.
    pub fn any(beside: &[Beside<'_>]) -> bool {
        beside.iter().any(|one| !one.found().is_empty())
    }

    /// Looks at all of these, without waiting. Whether any is ready.
    pub fn look(beside: &[Beside<'_>]) -> bool {
        let [] = sleep_on([], beside, Some(Duration::ZERO));
        Self::any(beside)
    }
}

/// How long a call goes without looking at these descriptors, while it is kept busy by what
/// others wait for.
const GLANCE_NS: u64 = 1_000_000;

/// The descriptors beside a call's sockets. They are looked at when the call sleeps and, if it does
/// not come to that, now and then.
pub struct Glance<'a> {
    beside: &'a [Beside<'a>],
    /// When it last looked without sleeping.
    at: Option<Instant>,
}

impl<'a> Glance<'a> {
    /// A glance at these descriptors.
    pub fn new(beside: &'a [Beside<'a>]) -> Glance<'a> {
        Glance { beside, at: None }
    }

    /// The descriptors.
    pub fn beside(&self) -> &'a [Beside<'a>] {
        self.beside
    }

    /// Whether any is ready, as of the last sleep or look.
    pub fn finds(&mut self, now: Instant) -> bool {
        if self.beside.is_empty() {
            return false;
        }
        let last = *self.at.get_or_insert(now);
        if now.nanos_since(last) > GLANCE_NS {
            self.at = Some(now);
            return Beside::look(self.beside);
        }
        Beside::any(self.beside)
    }
}

/// Sleeps until one of some descriptors is readable or has failed, or one of others is ready,
/// or the time is over. What the first ones have.
pub(crate) fn sleep_on<const N: usize>(
    own: [BorrowedFd<'_>; N],
    beside: &[Beside<'_>],
    left: Option<Duration>,
) -> [PollFlags; N] {
    let mut found = [PollFlags::empty(); N];
    if beside.is_empty() && !interrupts::are_watched() {
        let left = left.map(clock::timespec);
        let mut polled = own.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        // A signal ends the sleep early, which does no harm.
        let _ = poll(&mut polled, left.as_ref());
        return polled.map(|polled| polled.revents());
    }
    for (found, now) in found.iter_mut().zip(sleep_on_many(&own, beside, left)) {
        *found = now;
    }
    found
}

/// Sleeps on any number of the node's descriptors, and on descriptors of the caller's. Returns what
/// has happened at the node's.
pub(super) fn sleep_on_many(
    own: &[BorrowedFd<'_>],
    beside: &[Beside<'_>],
    left: Option<Duration>,
) -> Vec<PollFlags> {
    let own_count = own.len();
    if interrupts::are_watched() {
        let own = own.iter().map(|descriptor| (*descriptor, PollFlags::IN.bits()));
        let others = beside.iter().map(|one| (one.descriptor, one.events.bits()));
        let slept = interrupts::sleep(&own.chain(others).collect::<Vec<_>>(), left);
        let found = slept
            .unwrap_or_default()
            .into_iter()
            .map(PollFlags::from_bits_retain);
        let mut found: Vec<PollFlags> = found.collect();
        let of_others = found.split_off(own_count.min(found.len()));
        for (one, found) in beside.iter().zip(of_others) {
            one.found.set(found);
        }
        return found;
    }
    let own = own
        .iter()
        .map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN));
    let others = beside
        .iter()
        .map(|one| PollFd::from_borrowed_fd(one.descriptor, one.events));
    let mut polled: Vec<PollFd<'_>> = own.chain(others).collect();
    let left = left.map(clock::timespec);
    if poll(&mut polled, left.as_ref()).is_err() {
        // A signal ends the sleep early, which does no harm.
        return Vec::new();
    }
    for (one, polled) in beside.iter().zip(&polled[own_count..]) {
        one.found.set(polled.revents());
    }
    polled[..own_count].iter().map(PollFd::revents).collect()
}

/// Epolls on this process's bell for threads that rest on descriptors of their own.
#[derive(Debug, Default)]
pub(crate) struct Ears {
    spare: Mutex<Vec<OwnedFd>>,
}

impl Ears {
    /// An epoll on the bell. Returns `None` if the system has no descriptor left.
    fn take(&self, bell: &Doorbell) -> Option<OwnedFd> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.or_else(|| {
            let ear = descriptors::keep(epoll::create(CreateFlags::CLOEXEC).ok()?);
            epoll::add(&ear, bell, EventData::new_u64(0), EventFlags::IN | EventFlags::ET).ok()?;
            Some(ear)
        })
    }

    fn give_back(&self, ear: OwnedFd) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE {
            spare.push(ear);
        }
    }

    /// Discards the rings so far. Returns `false` if the system does not let it.
    fn silence(ear: &OwnedFd) -> bool {
        let mut heard = Vec::with_capacity(1);
        epoll::wait(ear, spare_capacity(&mut heard), Some(&Timespec::default())).is_ok()
    }
}

impl ShardHandle {
    /// The way in which a thread rests that has no seat.
    pub(super) fn rest_without_seat(beside: &[Beside<'_>]) -> Rest {
        if beside.is_empty() {
            Rest::Parked
        } else {
            Rest::Polled
        }
    }

    /// Rests without the lease, parked or polled, until notified, until one of the
    /// descriptors is ready, or until a time.
    pub(super) fn rest_on_word(&self, word: u32, until: Option<Instant>, beside: &[Beside<'_>]) {
        if beside.is_empty() {
            return self.parking.park(word, until.map(|until| until.0));
        }
        let mut ear = self.ears.take(self.bells.resters.of(self.process()));
        let engine = self.attachment.as_ref().map(Attachment::engine);
        while self.parking.is_resting(word) {
            let mut left = until.map(|until| until.since(clock::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let found = match &ear {
                Some(ear) => sleep_on([ear.as_fd(), engine.unwrap_or(ear.as_fd())], beside, left),
                None => {
                    left = Some(left.map_or(DEAF, |left| left.min(DEAF)));
                    let [] = sleep_on([], beside, left);
                    [PollFlags::empty(); 2]
                }
            };
            if found[0].contains(PollFlags::IN)
                && let Some(heard) = ear.take()
            {
                ear = Ears::silence(&heard).then_some(heard);
            }
            let ended = engine.is_some() && found[1].intersects(PollFlags::HUP | PollFlags::ERR);
            if ended || Beside::any(beside) || interrupts::is_pending() {
                break;
            }
        }
        if let Some(ear) = ear {
            self.ears.give_back(ear);
        }
    }
}
