//! Polls: sets of connections and listeners, and which of them may be ready.
//!
//! The stack tells of changes; a level is what remains of them. So a source that was found ready
//! stays in the queue and is looked at again next time. A source that was not ready leaves the
//! queue until the stack tells of another change that its poll is interested in. One that is
//! watched for edges leaves it in any case.
//!
//! A poll may watch others: it is told when they have something to tell.
//!
//! A registration is an [`Entry`] of the shard's interests, linked into its
//! poll's set and, while it may be ready, into its poll's queue.

use toehold_shm::{Carver, OutOfMemory, Slab, Steps};
use toehold_stack::{Event, Readiness, Stack};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::interest::Interest;
use super::interests::{Entry, Interests, Key, Kind, Watched};

/// Polls of a node at once, at most.
pub(super) const CAPACITY: u32 = 1 << 14;

/// Polls in polls in polls are looked at so deep. A library that passes the kernel's calls on has
/// no deeper ones, nor any that watch themselves.
pub(super) const MAX_DEPTH: u32 = 6;

/// A report about a source to a poll.
#[derive(Debug, Clone, Copy)]
pub struct Told {
    /// The program's number for its registration.
    pub token: u64,
    /// The number that the registrations in several shards of one source have in common; 0 if it is
    /// in one.
    pub group: u16,
    /// Whether no more is told of the source here until it is registered anew.
    pub is_one_shot: bool,
    /// The readiness of the source.
    pub ready: Readiness,
}

/// One poll. Links are indices of entries plus one; 0: none.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Poll {
    queue_first: u32,
    queue_last: u32,
    queued: u32,
    set_first: u32,
    /// Registrations that it has with other polls.
    watchers: u32,
    /// Whether this is the engine's own poll, which no process is noted to have (not 0).
    kept: u32,
}

/// All polls of a shard.
#[derive(Debug)]
pub(crate) struct Polls {
    polls: Slab<Poll>,
}

impl Polls {
    pub(crate) fn bytes_needed() -> usize {
        Slab::<Poll>::bytes_needed(CAPACITY)
    }

    pub(crate) fn create(carver: &mut Carver) -> Result<Self, OutOfMemory> {
        Ok(Self {
            polls: carver.slab(CAPACITY)?,
        })
    }

    pub(crate) fn len(&self) -> u32 {
        self.polls.len()
    }

    /// A new poll, for a process that is then noted to have it; `None` if there are as many as
    /// there may be.
    pub(crate) fn open(&mut self) -> Option<u32> {
        self.polls.insert(Poll::default())
    }

    /// A new poll for the engine; `None` if there are as many as there may be.
    pub(crate) fn open_kept(&mut self) -> Option<u32> {
        let kept = Poll {
            kept: 1,
            ..Poll::default()
        };
        self.polls.insert(kept)
    }

    pub(super) fn is_open(&self, poll: u32) -> bool {
        self.polls.is_live(poll)
    }

    /// Ends a poll and all its registrations, and those of it.
    pub(crate) fn close(&mut self, interests: &mut Interests, poll: u32) {
        let of_it = |interests: &Interests| {
            let mut entries = interests.of(Key::of_poll(poll));
            entries
                .find(|(_, entry)| entry.is(Kind::Registration))
                .map(|(index, _)| index)
        };
        while let Some(entry) = of_it(interests) {
            self.remove(interests, entry);
        }
        while let Some(entry) = self
            .polls
            .get(poll)
            .and_then(|poll| poll.set_first.checked_sub(1))
        {
            if !self.remove(interests, entry) {
                break;
            }
        }
        self.polls.remove(poll);
    }

    /// Has an entry in its poll's set.
    pub(crate) fn insert(&mut self, interests: &mut Interests, entry: Entry) -> Option<u32> {
        if !self.is_open(entry.owner) {
            return None;
        }
        let index = interests.insert(entry)?;
        self.link(interests, index);
        Some(index)
    }

    /// Leaves sets, queues and counts as no change does, finished or not.
    #[cfg(test)]
    pub(super) fn disturb(&mut self, random: &mut impl FnMut() -> u64) {
        for index in self.polls.iter_live().map(|(index, _)| index).collect::<Vec<_>>() {
            let kept = self.polls[index].kept;
            let mut link = || (random() % 100) as u32;
            self.polls[index] = Poll {
                queue_first: link(),
                queue_last: link(),
                queued: link(),
                set_first: link(),
                watchers: link(),
                kept,
            };
        }
    }

    /// A poll's set and its queue, whose links all agree with one another.
    #[cfg(test)]
    pub(super) fn lists(&self, interests: &Interests, poll: u32) -> [Vec<u32>; 2] {
        let state = &self.polls[poll];
        let (mut set, mut queue) = (Vec::new(), Vec::new());
        let (mut previous, mut next) = (0, state.set_first);
        while let Some(index) = next.checked_sub(1) {
            let entry = interests.get(index).unwrap();
            assert_eq!((entry.owner, entry.set_previous), (poll, previous));
            set.push(index);
            (previous, next) = (next, entry.set_next);
        }
        let (mut last, mut next) = (0, state.queue_first);
        while let Some(index) = next.checked_sub(1) {
            let entry = interests.get(index).unwrap();
            assert_eq!((entry.owner, entry.queued), (poll, 1));
            queue.push(index);
            (last, next) = (next, entry.queue_next);
        }
        assert_eq!((state.queue_last, state.queued), (last, queue.len() as u32));
        [set, queue]
    }

    /// Puts an entry into its poll's set, and counts it where it watches another poll.
    fn link(&mut self, interests: &mut Interests, index: u32) {
        let Some(entry) = interests.get_mut(index) else {
            return;
        };
        let Some(poll) = self.polls.get_mut(entry.owner) else {
            return;
        };
        let next = std::mem::replace(&mut poll.set_first, index + 1);
        entry.set_next = next;
        if let (true, Watched::Poll(inner)) = (entry.is(Kind::Registration), entry.watched())
            && let Some(inner) = self.polls.get_mut(inner)
        {
            inner.watchers += 1;
        }
        if let Some(next) = next.checked_sub(1).and_then(|next| interests.get_mut(next)) {
            next.set_previous = index + 1;
        }
    }

    /// Keeps the engine's polls and those that a process is noted to have, after a process died in
    /// the middle of a change.
    pub(super) fn mend(&mut self, is_owned: impl Fn(u32) -> bool) {
        self.polls.mend(|index, poll| poll.kept != 0 || is_owned(index));
    }

    /// Whether an entry makes sense that is no thread's.
    pub(super) fn is_sound(&self, entry: &Entry) -> bool {
        let is_known = match (entry.is(Kind::Registration), entry.watched()) {
            (true, Watched::Poll(inner)) => self.is_open(inner),
            (true, Watched::Socket(_)) => true,
            (false, _) => entry.is(Kind::Waker) && entry.key() == Key::of_poll(entry.owner),
        };
        is_known && self.is_open(entry.owner)
    }

    /// Makes sets and queues anew, of entries that make sense. Whatever is registered may be ready:
    /// the thread that was about to tell of it may have died.
    pub(super) fn mend_lists(&mut self, interests: &mut Interests) {
        let polls: Vec<u32> = self.polls.iter_live().map(|(index, _)| index).collect();
        for index in polls {
            let poll = &mut self.polls[index];
            *poll = Poll {
                kept: poll.kept,
                ..Poll::default()
            };
        }
        for index in interests.indices() {
            let Some(entry) = interests.get_mut(index).filter(|entry| !entry.is(Kind::Thread)) else {
                continue;
            };
            let is_queued = entry.is(Kind::Registration) || entry.queued != 0;
            entry.unlink();
            self.link(interests, index);
            if is_queued {
                self.may_be_ready(interests, index);
            }
        }
    }

    /// Whether other polls watch it.
    #[inline]
    pub(crate) fn is_watched(&self, poll: u32) -> bool {
        self.polls.get(poll).is_some_and(|poll| poll.watchers != 0)
    }

    /// Changes the events for which a registration is watched.
    pub(crate) fn change(interests: &mut Interests, entry: u32, token: u64, interest: Interest) {
        if let Some(entry) = interests.get_mut(entry) {
            entry.token = token;
            entry.interest = interest.word();
        }
    }

    /// Ends a registration. Returns `false` if there is no such registration.
    pub(crate) fn remove(&mut self, interests: &mut Interests, index: u32) -> bool {
        let Some(&entry) = interests.get(index).filter(|entry| !entry.is(Kind::Thread)) else {
            return false;
        };
        if entry.queued != 0 {
            self.unqueue(interests, &entry, index);
        }
        let (previous, next) = (entry.set_previous.checked_sub(1), entry.set_next.checked_sub(1));
        match previous.and_then(|previous| interests.get_mut(previous)) {
            Some(previous) => previous.set_next = entry.set_next,
            None => {
                if let Some(poll) = self.polls.get_mut(entry.owner) {
                    poll.set_first = entry.set_next;
                }
            }
        }
        if let Some(next) = next.and_then(|next| interests.get_mut(next)) {
            next.set_previous = entry.set_previous;
        }
        if let (true, Watched::Poll(inner)) = (entry.is(Kind::Registration), entry.watched())
            && let Some(inner) = self.polls.get_mut(inner)
        {
            inner.watchers = inner.watchers.saturating_sub(1);
        }
        interests.remove(index);
        true
    }

    /// Takes an entry out of the middle of its poll's queue.
    fn unqueue(&mut self, interests: &mut Interests, entry: &Entry, index: u32) {
        let Some(poll) = self.polls.get_mut(entry.owner) else {
            return;
        };
        poll.queued = poll.queued.saturating_sub(1);
        if poll.queue_first == index + 1 {
            poll.queue_first = entry.queue_next;
            if poll.queue_first == 0 {
                poll.queue_last = 0;
            }
            return;
        }
        let mut before = poll.queue_first;
        for _ in 0..poll.queued {
            let Some(place) = before.checked_sub(1).and_then(|at| interests.get_mut(at)) else {
                return;
            };
            if place.queue_next == index + 1 {
                place.queue_next = entry.queue_next;
                if poll.queue_last == index + 1 {
                    poll.queue_last = before;
                }
                return;
            }
            before = place.queue_next;
        }
    }

    /// Notes that the entry's source has changed, or its waker was used. Threads that wait for the
    /// poll have to be told, which is not done here.
    pub(crate) fn may_be_ready(&mut self, interests: &mut Interests, index: u32) {
        let Some(entry) = interests.get_mut(index).filter(|entry| entry.queued == 0) else {
            return;
        };
        entry.queued = 1;
        entry.queue_next = 0;
        let Some(poll) = self.polls.get_mut(entry.owner) else {
            return;
        };
        poll.queued += 1;
        let last = std::mem::replace(&mut poll.queue_last, index + 1);
        match last.checked_sub(1).and_then(|last| interests.get_mut(last)) {
            Some(last) => last.queue_next = index + 1,
            None => poll.queue_first = index + 1,
        }
    }

    fn pop(&mut self, interests: &mut Interests, poll: u32) -> Option<(u32, Entry)> {
        let poll = self.polls.get_mut(poll)?;
        let index = poll.queue_first.checked_sub(1)?;
        let entry = interests.get_mut(index)?;
        poll.queue_first = entry.queue_next;
        if poll.queue_first == 0 {
            poll.queue_last = 0;
        }
        poll.queued = poll.queued.saturating_sub(1);
        entry.queued = 0;
        Some((index, *entry))
    }

    /// Whether there is something to tell.
    pub(crate) fn is_ready(&self, interests: &Interests, stack: &mut Stack, poll: u32) -> bool {
        self.is_ready_in(interests, stack, poll, 0)
    }

    fn is_ready_in(&self, interests: &Interests, stack: &mut Stack, poll: u32, depth: u32) -> bool {
        let Some(poll) = self.polls.get(poll).filter(|_| depth < MAX_DEPTH) else {
            return false;
        };
        let mut next = poll.queue_first;
        for _ in 0..poll.queued {
            let Some(entry) = next.checked_sub(1).and_then(|index| interests.get(index)) else {
                return false;
            };
            if self.ready(interests, stack, entry, depth).is_some() {
                return true;
            }
            next = entry.queue_next;
        }
        false
    }

    /// Notes that a registration was told: a level is looked at again the next time.
    fn told(&mut self, interests: &mut Interests, index: u32, entry: &Entry) {
        let interest = entry.interest();
        if entry.is(Kind::Waker) {
            return;
        }
        if interest.is_one_shot() {
            if let Some(entry) = interests.get_mut(index) {
                entry.interest = Interest::SPENT.word();
            }
        } else if !interest.is_edge() {
            self.may_be_ready(interests, index);
        }
    }

    /// Tells what is ready, in turn: the source that was told last is looked at last. Calls `tell`
    /// at most `room` times.
    pub(crate) fn collect(
        &mut self,
        interests: &mut Interests,
        stack: &mut Stack,
        poll: u32,
        room: usize,
        tell: &mut dyn FnMut(Told),
    ) {
        let queued = self.polls.get(poll).map_or(0, |poll| poll.queued);
        let mut told = 0;
        for _ in 0..queued {
            if told == room {
                return;
            }
            let Some((index, entry)) = self.pop(interests, poll) else {
                return;
            };
            if let Some(ready) = self.ready(interests, stack, &entry, 0) {
                tell(Told {
                    token: entry.token,
                    group: entry.group,
                    is_one_shot: entry.interest().is_one_shot(),
                    ready,
                });
                told += 1;
                self.told(interests, index, &entry);
            }
        }
    }

    /// Ends the one-shot registrations of a source that the poll was told of in another shard.
    pub(crate) fn spend(&self, interests: &mut Interests, poll: u32, group: u16) {
        let mut steps = Steps::along(interests.capacity());
        let mut next = self
            .polls
            .get(poll)
            .and_then(|poll| poll.set_first.checked_sub(1));
        while let Some(entry) = next.and_then(|index| interests.get_mut(index)) {
            steps.count();
            if entry.group == group && entry.interest().is_one_shot() {
                entry.interest = Interest::SPENT.word();
            }
            next = entry.set_next.checked_sub(1);
        }
    }

    /// The present readiness of an entry's source that is to be told.
    fn ready(
        &self,
        interests: &Interests,
        stack: &mut Stack,
        entry: &Entry,
        depth: u32,
    ) -> Option<Readiness> {
        let readable = |readable| Readiness {
            readable,
            ..Readiness::default()
        };
        if entry.is(Kind::Waker) {
            // It is for threads that wait for the poll itself.
            return (depth == 0).then(|| readable(true));
        }
        let interest = entry.interest();
        interest.select(match entry.watched() {
            Watched::Socket(source) => readiness(stack, source, interest),
            Watched::Poll(inner) => readable(self.is_ready_in(interests, stack, inner, depth + 1)),
        })
    }
}

/// The readiness of a registration's source.
fn readiness(stack: &mut Stack, source: Event, interest: Interest) -> Readiness {
    match source {
        Event::Connection(id) => {
            let readiness = stack.readiness(id);
            if interest.is_writable() && !readiness.writable {
                // Room is told of only if a thread wants it.
                stack.want_write(id);
            }
            readiness
        }
        Event::Listener(id) => {
            let waiting = stack.accept_queue_len(id);
            Readiness {
                readable: waiting != Ok(0),
                error: waiting.is_err(),
                ..Readiness::default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use toehold_shm::Region;

    use super::*;

    fn sets() -> (Polls, Interests) {
        let region = Region::private(Polls::bytes_needed() + Interests::bytes_needed(64)).unwrap();
        let mut carver = Carver::new(region).unwrap();
        let polls = Polls::create(&mut carver).unwrap();
        (polls, Interests::create(&mut carver, 64).unwrap())
    }

    fn register(polls: &mut Polls, interests: &mut Interests, poll: u32, number: u32) -> u32 {
        let key = Key::of(Event::from_word(1 << 32 | u64::from(number)));
        let token = number.into();
        let entry = Entry::of_poll(Kind::Registration, poll, key, token, Interest::READABLE);
        polls.insert(interests, entry).unwrap()
    }

    fn queue(polls: &mut Polls, interests: &mut Interests, poll: u32) -> Vec<u64> {
        std::iter::from_fn(|| polls.pop(interests, poll))
            .map(|(_, entry)| entry.token)
            .collect()
    }

    #[test]
    fn the_queue_keeps_its_order_when_entries_leave_it() {
        for gone in [vec![0], vec![4], vec![2], vec![0, 1, 4], vec![0, 1, 2, 3, 4]] {
            let (mut polls, mut interests) = sets();
            let poll = polls.open().unwrap();
            let entries: Vec<u32> = (0..5)
                .map(|number| register(&mut polls, &mut interests, poll, number))
                .collect();
            for &entry in entries.iter().chain(&entries) {
                polls.may_be_ready(&mut interests, entry);
            }
            for &number in &gone {
                assert!(polls.remove(&mut interests, entries[number]));
            }
            let expected: Vec<u64> = (0..5)
                .filter(|number| !gone.contains(&(*number as usize)))
                .collect();
            assert_eq!(
                queue(&mut polls, &mut interests, poll),
                expected,
                "without {gone:?}"
            );
            if let Some(&left) = entries.iter().find(|&&entry| interests.get(entry).is_some()) {
                polls.may_be_ready(&mut interests, left);
                assert_eq!(queue(&mut polls, &mut interests, poll).len(), 1);
            }
        }
    }

    #[test]
    fn closing_a_poll_ends_its_registrations_and_no_others() {
        let (mut polls, mut interests) = sets();
        let (first, second) = (polls.open().unwrap(), polls.open().unwrap());
        for number in 0..10 {
            register(&mut polls, &mut interests, first, number);
        }
        let kept = register(&mut polls, &mut interests, second, 3);
        polls.close(&mut interests, first);
        assert!(interests.get(kept).is_some());
        polls.close(&mut interests, second);
        assert!(interests.is_empty());
    }
}
