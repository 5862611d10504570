//! A model of a shard's waiting structures: the operations of processes, and the state that must be
//! found after them.

use std::collections::BTreeSet;

use super::super::super::interests::{Entry, Key, Kind, Watched};
use super::super::Waiting;
use super::{HOLDERS, source};
use crate::shard::Interest;

/// Sources that there are.
const SOURCES: u64 = 12;

struct Waiter {
    slot: u32,
    ticket: u64,
    is_parked: bool,
}

#[derive(Clone, Copy)]
struct Poll {
    index: u32,
    record: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Listed {
    index: u32,
    kind: u32,
    owner: u32,
    token: u64,
}

/// A process, and a model of all that is its.
pub(super) struct Model<R> {
    pub(super) waiting: Waiting,
    process: u16,
    random: R,
    waiters: Vec<Waiter>,
    polls: Vec<Poll>,
    /// Interests by what is waited for.
    listed: Vec<(Watched, Listed)>,
    /// Wakers that were used.
    used: BTreeSet<u32>,
    /// Numbers of the holders that stand for something, and whether each is relayed.
    holders: Vec<(u32, bool)>,
    tokens: u64,
}

impl<R: FnMut() -> u64> Model<R> {
    pub(super) fn new(waiting: Waiting, process: u16, random: R) -> Model<R> {
        Model {
            waiting,
            process,
            random,
            waiters: Vec::new(),
            polls: Vec::new(),
            listed: Vec::new(),
            used: BTreeSet::new(),
            holders: Vec::new(),
            tokens: 0,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        ((self.random)() % bound as u64) as usize
    }

    /// A poll of its own, or a source.
    fn something(&mut self) -> Watched {
        let poll = self.below(4 * self.polls.len().max(1));
        match self.polls.get(poll) {
            Some(poll) => Watched::Poll(poll.index),
            None => Watched::Socket(source(((self.random)() % SOURCES) as u32)),
        }
    }

    pub(super) fn disturb(&mut self) {
        self.waiting.disturb(&mut self.random);
    }

    /// Does anything that a process may do.
    pub(super) fn step(&mut self) {
        match (self.random)() % 12 {
            0 => self.begin_to_rest(),
            1 => self.change_rest(),
            2 => self.open(),
            3 if self.below(3) == 0 => self.close(),
            4..=6 => self.register(),
            7 => self.deregister(),
            8 => self.use_waker(),
            9 => self.hold(),
            10 => self.let_go(),
            _ => self.tell(),
        }
    }

    fn begin_to_rest(&mut self) {
        let ticket = self.waiting.seats.next_ticket();
        let Some(slot) = self.waiting.seats.take_slot(self.process, ticket) else {
            return;
        };
        let watched = self.something();
        let entry = super::Entry::new(Key::of_watched(watched), Kind::Thread, slot);
        if let Some(index) = self.waiting.interests.insert(entry) {
            self.list(watched, index, Kind::Thread, slot, 0);
        }
        let is_parked = self.below(3) != 0;
        if is_parked {
            self.waiting.seats.park(slot);
        }
        self.waiters.push(Waiter {
            slot,
            ticket,
            is_parked,
        });
    }

    fn list(&mut self, watched: Watched, index: u32, kind: Kind, owner: u32, token: u64) {
        let kind = kind as u32;
        let listed = Listed {
            index,
            kind,
            owner,
            token,
        };
        self.listed.push((watched, listed));
    }

    fn change_rest(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        let at = self.below(self.waiters.len());
        let slot = self.waiters[at].slot;
        if self.waiters[at].is_parked && self.below(2) == 0 {
            self.waiting.seats.unpark(slot);
            self.waiters[at].is_parked = false;
            return;
        }
        let thread = Kind::Thread as u32;
        let own = |listed: &Listed| (listed.kind, listed.owner) == (thread, slot);
        for (_, listed) in self.listed.iter().filter(|(_, listed)| own(listed)) {
            self.waiting.interests.remove(listed.index);
        }
        self.listed.retain(|(_, listed)| !own(listed));
        self.waiting.seats.give_slot(slot);
        self.waiters.remove(at);
    }

    fn open(&mut self) {
        if self.polls.len() == 8 {
            return;
        }
        let index = self.waiting.polls.open().unwrap();
        let record = self.waiting.owners.insert(self.process, index).unwrap();
        self.polls.push(Poll { index, record });
    }

    fn close(&mut self) {
        if self.polls.is_empty() {
            return;
        }
        let at = self.below(self.polls.len());
        let Poll { index, record } = self.polls.remove(at);
        let Waiting { interests, polls, .. } = &mut self.waiting;
        polls.close(interests, index);
        self.waiting.owners.remove(record);
        let thread = Kind::Thread as u32;
        self.listed.retain(|(watched, listed)| {
            listed.kind == thread || (listed.owner != index && *watched != Watched::Poll(index))
        });
        self.forget_wakers();
    }

    fn forget_wakers(&mut self) {
        let left: BTreeSet<u32> = self.listed.iter().map(|(_, listed)| listed.index).collect();
        self.used.retain(|waker| left.contains(waker));
    }

    fn register(&mut self) {
        if self.polls.is_empty() {
            return;
        }
        let at = self.below(self.polls.len());
        let poll = self.polls[at].index;
        self.tokens += 1;
        let token = self.tokens;
        let is_waker = self.below(4) == 0;
        let (watched, kind) = match is_waker {
            true => (Watched::Poll(poll), Kind::Waker),
            false => (self.something(), Kind::Registration),
        };
        let Waiting { interests, polls, .. } = &mut self.waiting;
        let key = Key::of_watched(watched);
        let entry = Entry::of_poll(kind, poll, key, token, Interest::READABLE);
        if let Some(index) = polls.insert(interests, entry) {
            self.list(watched, index, kind, poll, token);
        }
    }

    fn in_polls(&mut self) -> Option<usize> {
        let thread = Kind::Thread as u32;
        let in_polls = (0..self.listed.len()).filter(|&at| self.listed[at].1.kind != thread);
        let in_polls: Vec<usize> = in_polls.collect();
        (!in_polls.is_empty()).then(|| in_polls[self.below(in_polls.len())])
    }

    fn deregister(&mut self) {
        if let Some(at) = self.in_polls() {
            let (_, listed) = self.listed.remove(at);
            let Waiting { interests, polls, .. } = &mut self.waiting;
            assert!(polls.remove(interests, listed.index));
            self.forget_wakers();
        }
    }

    fn use_waker(&mut self) {
        if let Some(at) = self.in_polls() {
            let Listed { index, kind, .. } = self.listed[at].1;
            let Waiting { interests, polls, .. } = &mut self.waiting;
            polls.may_be_ready(interests, index);
            if kind == Kind::Waker as u32 {
                self.used.insert(index);
            }
        }
    }

    /// Something has changed: its polls have something in their queues.
    fn tell(&mut self) {
        let key = Key::of_watched(self.something());
        let Waiting { interests, polls, .. } = &mut self.waiting;
        let concerned = interests
            .of(key)
            .filter(|(_, entry)| entry.is(Kind::Registration));
        let concerned: Vec<u32> = concerned.map(|(index, _)| index).collect();
        for index in concerned {
            polls.may_be_ready(interests, index);
        }
    }

    /// Holders of processes do not meet.
    fn hold(&mut self) {
        let number = u32::from(self.process) * 8 % HOLDERS + self.below(8) as u32;
        assert!(self.waiting.holders.set(number, self.process, source(number)));
        self.holders.retain(|(held, _)| *held != number);
        let is_relayed = self.below(3) == 0;
        if is_relayed {
            self.waiting.holders.relay(number, source(number + 1));
        }
        self.holders.push((number, is_relayed));
    }

    fn let_go(&mut self) {
        if let Some((number, _)) = self.holders.pop() {
            assert!(self.waiting.holders.take(number).is_some());
        }
    }

    /// Everything is found where it should be.
    pub(super) fn check(&mut self) {
        let everything = (0..SOURCES as u32).map(|number| Watched::Socket(source(number)));
        let watched = everything.chain(self.polls.iter().map(|poll| Watched::Poll(poll.index)));
        for watched in watched {
            let key = Key::of_watched(watched);
            let mut found: Vec<Listed> = (self.waiting.interests.of(key))
                .map(|(index, entry)| Listed {
                    index,
                    kind: [Kind::Thread, Kind::Registration, Kind::Waker]
                        .into_iter()
                        .find(|kind| entry.is(*kind))
                        .unwrap() as u32,
                    owner: entry.owner,
                    token: entry.token,
                })
                .collect();
            let same = self.listed.iter().filter(|(other, _)| *other == watched);
            let mut expected: Vec<Listed> = same.map(|(_, listed)| *listed).collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{watched:?}");
            if let Watched::Poll(poll) = watched {
                let registration = Kind::Registration as u32;
                let watchers = expected.iter().filter(|listed| listed.kind == registration);
                assert_eq!(self.waiting.polls.is_watched(poll), watchers.count() != 0);
            }
        }
        for poll in &self.polls {
            let [mut set, _] = self.waiting.polls.lists(&self.waiting.interests, poll.index);
            set.sort_unstable();
            assert_eq!(set, self.of_poll(poll.index, |_| true));
        }
        let parked: BTreeSet<u32> = self.waiting.seats.parked().collect();
        assert_eq!(parked, self.parked().into_iter().collect());
        let relays = self.holders.iter().filter(|(_, is_relayed)| *is_relayed).count();
        assert_eq!(self.waiting.holders.relays() as usize, relays);
        let lengths = [
            self.waiters.len(),
            self.listed.len(),
            self.polls.len(),
            self.polls.len() + self.holders.len(),
        ];
        assert_eq!(self.waiting.lengths(), lengths.map(|len| len as u32));
    }

    fn of_poll(&self, poll: u32, is: impl Fn(&Listed) -> bool) -> Vec<u32> {
        let thread = Kind::Thread as u32;
        let own = |listed: &&Listed| listed.kind != thread && listed.owner == poll && is(listed);
        let own = self.listed.iter().map(|(_, listed)| listed).filter(own);
        let mut own: Vec<u32> = own.map(|listed| listed.index).collect();
        own.sort_unstable();
        own
    }

    /// The waiters that are parked, in the order of their calls.
    fn parked(&self) -> Vec<u32> {
        let parked = self.waiters.iter().filter(|waiter| waiter.is_parked);
        let mut parked: Vec<(u64, u32)> = parked.map(|waiter| (waiter.ticket, waiter.slot)).collect();
        parked.sort_unstable();
        parked.into_iter().map(|(_, slot)| slot).collect()
    }

    /// Checks the shard, and that all registrations, and the wakers that were used, are in their
    /// polls' queues.
    pub(super) fn check_mended(&mut self) {
        self.check();
        for poll in &self.polls {
            let [_, mut queue] = self.waiting.polls.lists(&self.waiting.interests, poll.index);
            queue.sort_unstable();
            let waker = Kind::Waker as u32;
            let expected = |listed: &Listed| listed.kind != waker || self.used.contains(&listed.index);
            assert_eq!(queue, self.of_poll(poll.index, expected));
        }
        assert_eq!(self.waiting.seats.parked().collect::<Vec<_>>(), self.parked());
        let waiters = self.waiting.seats.waiters.iter_live();
        assert!(
            waiters
                .into_iter()
                .all(|(slot, waiter)| u32::from(waiter.word) == slot)
        );
    }

    /// Takes everything out, and looks whether nothing is left.
    pub(super) fn end(&mut self) {
        self.end_quietly();
        self.check();
    }

    /// Takes everything out.
    pub(super) fn end_quietly(&mut self) {
        while !self.waiters.is_empty() {
            self.change_rest();
        }
        while !self.polls.is_empty() {
            self.close();
        }
        while !self.holders.is_empty() {
            self.let_go();
        }
    }
}
