//! Watching by polls in a shard, and telling threads of changes.

use toehold_shm::Steps;
use toehold_stack::{Change, Event};

use super::interests::{Entry, Interests, Key, Kind, Watched};
use super::polls::{MAX_DEPTH, Polls, Told};
use super::waiting::Waiting;
use super::{Interest, Shard};

impl Shard {
    /// Tells threads that wait for the source itself of every change, and polls of those
    /// that concern them.
    pub(super) fn tell(&mut self, key: Key, change: Change) {
        let mut steps = Steps::along(self.waiting.interests.capacity());
        let (mut next, mut one_is_awake) = (self.waiting.interests.next_of(key, None), false);
        while let Some(index) = next {
            steps.count();
            if let Some(&entry) = self.waiting.interests.get(index) {
                let interest = entry.interest();
                if entry.is(Kind::Thread) {
                    self.waiting.notify(entry.owner, self.wakes.all());
                } else if interest.concerns(change) && !(interest.is_exclusive() && one_is_awake) {
                    if entry.queued == 0 {
                        one_is_awake |= self.may_be_ready(index) && interest.is_exclusive();
                    } else if self.waiting.polls.is_watched(entry.owner) {
                        // Those that watch it have forgotten what they were told before.
                        self.has_news(entry.owner, 0);
                    }
                }
            }
            next = self.waiting.interests.next_of(key, Some(index));
        }
    }

    /// Queues a registration, or a waker, and wakes a thread that waits for its poll. Returns
    /// whether one does.
    fn may_be_ready(&mut self, index: u32) -> bool {
        let Waiting { interests, polls, .. } = &mut self.waiting;
        polls.may_be_ready(interests, index);
        let poll = self.waiting.interests.get(index).map(|entry| entry.owner);
        poll.is_some_and(|poll| self.has_news(poll, 0))
    }

    /// Wakes a thread that waits for a poll that may have something to tell, or for one that
    /// watches it. Returns whether one does.
    fn has_news(&mut self, poll: u32, depth: u32) -> bool {
        let key = Key::of_poll(poll);
        let mut woken = self.waiting.wake(key, self.wakes.all());
        if depth == MAX_DEPTH || !self.waiting.polls.is_watched(poll) {
            return woken;
        }
        let mut steps = Steps::along(self.waiting.interests.capacity());
        let mut next = self.waiting.interests.next_of(key, None);
        while let Some(index) = next {
            steps.count();
            let Waiting { interests, polls, .. } = &mut self.waiting;
            let watches =
                |entry: &&Entry| entry.is(Kind::Registration) && entry.interest().concerns(Change::DATA);
            if let Some(outer) = interests.get(index).filter(watches).map(|entry| entry.owner) {
                polls.may_be_ready(interests, index);
                woken |= self.has_news(outer, depth + 1);
            }
            next = self.waiting.interests.next_of(key, Some(index));
        }
        woken
    }

    /// Makes threads that wait for a poll look again at its sources.
    pub fn rouse_poll(&mut self, poll: u32) {
        self.waiting.wake(Key::of_poll(poll), self.wakes.all());
    }

    /// Forgets a connection or listener that the program lets go of. No poll watches it any more,
    /// and a thread that still waits for it finds out.
    pub fn forget(&mut self, source: Event) {
        let key = Key::of(source);
        self.waiting.wake(key, self.wakes.all());
        let Waiting { interests, polls, .. } = &mut self.waiting;
        loop {
            let registration = interests.of(key).find(|(_, entry)| !entry.is(Kind::Thread));
            let Some(registration) = registration.map(|(index, _)| index) else {
                return;
            };
            polls.remove(interests, registration);
        }
    }

    /// Ends the watching of a connection or listener by a process that lets go of it. Other
    /// processes may still have it.
    pub fn unwatch(&mut self, source: Event, process: u16) {
        let Waiting {
            interests,
            polls,
            owners,
            ..
        } = &mut self.waiting;
        for poll in owners.of(process) {
            let registered = |interests: &Interests| {
                let mut registrations = interests.registrations(Key::of(source), poll);
                registrations.next().map(|(index, _)| index)
            };
            while let Some(registration) = registered(interests) {
                polls.remove(interests, registration);
            }
        }
    }

    /// A new poll, of a process that [has](crate::ShardHandle::own) it before it lets go of the
    /// lease. `None` if there are as many as a node may have.
    pub fn open_poll(&mut self) -> Option<u32> {
        self.waiting.polls.open()
    }

    /// A new poll of the engine, which never dies without its shards; `None` if there are as many
    /// as a node may have.
    pub(crate) fn open_kept_poll(&mut self) -> Option<u32> {
        self.waiting.polls.open_kept()
    }

    /// Ends a poll.
    pub fn close_poll(&mut self, poll: u32) {
        let Waiting { interests, polls, .. } = &mut self.waiting;
        polls.close(interests, poll);
    }

    /// The registration of a source with a poll that has this name.
    pub fn registration(&self, poll: u32, source: impl Into<Watched>, name: u32) -> Option<u32> {
        let key = Key::of_watched(source.into());
        self.waiting.interests.registration(key, poll, name)
    }

    /// Registers a source with a poll, under a name that no other registration of the two has. What
    /// is in several shards is registered in each, with a number other than 0 that these
    /// registrations have in common ([`Told::group`]). Returns `None` if there is no room for it.
    pub fn register(
        &mut self,
        poll: u32,
        (source, name, group): (impl Into<Watched>, u32, u16),
        token: u64,
        interest: Interest,
    ) -> Option<u32> {
        let key = Key::of_watched(source.into());
        let entry = Entry::of_poll(Kind::Registration, poll, key, token, interest);
        let index = self.insert(entry.named(name).in_group(group))?;
        // It may be ready from the start.
        self.may_be_ready(index);
        Some(index)
    }

    /// Changes a registration.
    pub fn reregister(&mut self, registration: u32, token: u64, interest: Interest) {
        Polls::change(&mut self.waiting.interests, registration, token, interest);
        self.may_be_ready(registration);
    }

    /// A waker of a poll. Returns `None` if there is no room for it.
    pub fn open_waker(&mut self, poll: u32, token: u64) -> Option<u32> {
        let key = Key::of_poll(poll);
        self.insert(Entry::of_poll(Kind::Waker, poll, key, token, Interest::READABLE))
    }

    /// Makes the waker's poll return.
    pub fn use_waker(&mut self, waker: u32) {
        self.may_be_ready(waker);
    }

    /// Ends a registration or a waker.
    pub fn deregister(&mut self, registration: u32) {
        let Waiting { interests, polls, .. } = &mut self.waiting;
        polls.remove(interests, registration);
    }

    fn insert(&mut self, entry: Entry) -> Option<u32> {
        let Waiting { interests, polls, .. } = &mut self.waiting;
        polls.insert(interests, entry)
    }

    /// Calls `tell` with each of a poll's sources that are ready, `room` times at most.
    pub fn collect(&mut self, poll: u32, room: usize, tell: &mut dyn FnMut(Told)) {
        let Self { waiting, stack, .. } = self;
        let Waiting { interests, polls, .. } = waiting;
        polls.collect(interests, stack, poll, room, tell);
    }

    /// Ends the one-shot registrations of a group's source that the poll was told of in another
    /// shard.
    pub fn spend(&mut self, poll: u32, group: u16) {
        let Waiting { interests, polls, .. } = &mut self.waiting;
        polls.spend(interests, poll, group);
    }

    /// Whether a poll has something to tell. It still has, after this.
    pub fn is_poll_ready(&mut self, poll: u32) -> bool {
        let Self { waiting, stack, .. } = self;
        waiting.polls.is_ready(&waiting.interests, stack, poll)
    }
}
