//! Structures that were disturbed, and such as a killed process has left.

mod model;
mod processes;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use toehold_shm::{Carver, Region};
use toehold_stack::{Event, Instant};

use self::model::Model;
use super::super::interests::{Entry, Key, Kind, Watched};
use super::super::{Interest, Subscription};
use super::{Shard, Waiting};
use crate::lookout::rouse_all;
use crate::wait::{Operation, SpinBudget};
use crate::{LocalNode, NodeConfig, Placement};

const INTERESTS: u32 = 256;
const HOLDERS: u32 = 64;

fn waiting() -> Waiting {
    let region = Region::private(Waiting::bytes_needed(INTERESTS, HOLDERS)).unwrap();
    Waiting::create(&mut Carver::new(region).unwrap(), (INTERESTS, HOLDERS), 0).unwrap()
}

fn source(number: u32) -> Event {
    Event::from_word(1 << 32 | u64::from(number))
}

fn random_from(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

impl Waiting {
    /// Leaves all that follows from the records as no change does, finished or not.
    fn disturb(&mut self, random: &mut impl FnMut() -> u64) {
        self.interests.disturb(random);
        self.polls.disturb(random);
        self.seats.disturb(random);
        self.holders.disturb(random);
    }

    fn register(&mut self, poll: u32, watched: impl Into<Watched>, token: u64) -> Option<u32> {
        let key = Key::of_watched(watched.into());
        let Waiting { interests, polls, .. } = self;
        let entry = Entry::of_poll(Kind::Registration, poll, key, token, Interest::READABLE);
        polls.insert(interests, entry)
    }

    /// Removes a process that is dead, as the engine does, except for its connections in the stack.
    fn forget_process(&mut self, process: u16) {
        for slot in self.seats.waiters_of(process) {
            self.seats.give_slot(slot);
            self.interests.remove_threads(slot);
        }
        for poll in self.owners.take(process) {
            self.polls.close(&mut self.interests, poll);
        }
    }
}

#[test]
fn whatever_is_disturbed_all_is_found_again() {
    for seed in 1..=60 {
        println!("seed {seed}");
        let mut model = Model::new(waiting(), 7, random_from(seed));
        for _ in 0..6 {
            (0..120).for_each(|_| model.step());
            model.check();
            model.disturb();
            model.waiting.mend();
            model.check_mended();
        }
        model.end();
        assert_eq!(model.waiting.lengths(), [0; 4]);
    }
}

#[test]
fn what_makes_no_sense_is_taken_out_and_nothing_else() {
    let mut waiting = waiting();
    let poll = waiting.polls.open().unwrap();
    waiting.owners.insert(2, poll).unwrap();
    let kept = waiting.register(poll, source(1), 11).unwrap();
    let Waiting { interests, polls, .. } = &mut waiting;
    let mut insert = |key, kind, owner| interests.insert(Entry::new(key, kind, owner)).unwrap();
    insert(Key::of(source(1)), Kind::Thread, 3);
    insert(Key::of(source(1)), Kind::Thread, u32::MAX);
    insert(Key::of(source(1)), Kind::Registration, 500);
    insert(Key::of(source(1)), Kind::Registration, u32::MAX);
    insert(Key::of_poll(77), Kind::Registration, poll);
    insert(Key::of_poll(77), Kind::Waker, poll);
    insert(Key::of(source(1)), Kind::Waker, poll);
    let ruined = insert(Key::of(source(1)), Kind::Thread, 0);
    interests.ruin(ruined);
    // Of a process that was about to be noted to have it, and one of a poll that is closed.
    polls.open().unwrap();
    waiting.owners.insert(2, 900).unwrap();
    waiting.mend();
    assert_eq!(waiting.lengths(), [0, 1, 1, 1]);
    let found = waiting.interests.registration(Key::of(source(1)), poll, 0);
    assert_eq!(found, Some(kept));
    assert_eq!(waiting.polls.lists(&waiting.interests, poll), [[kept], [kept]]);
}

#[test]
fn the_engines_polls_are_kept() {
    let mut waiting = waiting();
    let poll = waiting.polls.open_kept().unwrap();
    let entry = waiting.register(poll, source(1), 11).unwrap();
    waiting.mend();
    assert_eq!(waiting.polls.lists(&waiting.interests, poll), [[entry], [entry]]);
}

#[test]
fn what_a_registration_was_told_stays_and_a_waker_wakes_as_often_as_it_was_used() {
    let mut waiting = waiting();
    let poll = waiting.polls.open().unwrap();
    waiting.owners.insert(2, poll).unwrap();
    let spent = waiting.register(poll, source(1), 1).unwrap();
    let Waiting { interests, polls, .. } = &mut waiting;
    interests.get_mut(spent).unwrap().interest = Interest::SPENT.word();
    let mut waker = |token| {
        let key = Key::of_poll(poll);
        polls.insert(
            interests,
            Entry::of_poll(Kind::Waker, poll, key, token, Interest::READABLE),
        )
    };
    let [used, unused] = [2, 3].map(|token| waker(token).unwrap());
    polls.may_be_ready(interests, used);
    waiting.mend();
    let [mut set, queue] = waiting.polls.lists(&waiting.interests, poll);
    set.sort_unstable();
    assert_eq!((set, queue), (vec![spent, used, unused], vec![spent, used]));
    let told = waiting.interests.get(spent).unwrap().interest();
    assert_eq!(told, Interest::SPENT);
}

#[test]
fn who_sleeps_at_the_link_keeps_the_seat_and_who_drives_does_not() {
    let mut waiting = waiting();
    let slot = waiting.seats.take_slot(2, 1).unwrap();
    waiting.seats.set_sleeper(slot, Instant::NEVER);
    waiting.seats.set_driver(2, 9);
    waiting.seats.set_armed(true);
    waiting.mend();
    assert_eq!(waiting.seats.sleeper(), Some((slot, Instant::NEVER)));
    assert_eq!((waiting.seats.driver(), waiting.seats.is_armed()), (None, false));
    waiting.seats.give_slot(slot);
    waiting.seats.set_sleeper(slot, Instant::NEVER);
    waiting.mend();
    assert_eq!(waiting.seats.sleeper(), None);
    assert!(!waiting.seats.somebody_rests());
}

/// Waits for a mark.
struct Marked<'a>(&'a AtomicBool);

impl Operation for Marked<'_> {
    type Output = ();

    fn attempt(&mut self, _: &mut Shard) -> Option<()> {
        self.0.load(Relaxed).then_some(())
    }

    fn subscription(&self) -> Subscription {
        Subscription::Nothing
    }
}

#[test]
fn those_who_rest_go_on_in_a_shard_that_was_mended() {
    let config = |name, host| {
        NodeConfig::alone(name)
            .ipv4([10, 0, 0, host], 24)
            .placement(Placement::Inline)
    };
    let [node, _other] = LocalNode::pair([config("a", 1), config("b", 2)]).unwrap();
    let shards = node.shards().unwrap();
    let handle = shards.get(0);
    let mut random = random_from(1);
    for _ in 0..20 {
        let (mark, begun) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut shard = handle.enter().unwrap();
                    begun.fetch_add(1, Relaxed);
                    let mut operation = Marked(&mark);
                    let waited = handle.block(&mut shard, &mut operation, &SpinBudget::new(), None);
                    assert_eq!(waited, Ok(Some(())));
                });
            }
            loop {
                let mut shard = handle.enter().unwrap();
                let rest = begun.load(Relaxed) == 3
                    && shard.waiting.seats.waiters.len() == 3
                    && shard.waiting.seats.driver().is_none();
                if rest {
                    mark.store(true, Relaxed);
                    shard.waiting.disturb(&mut random);
                    assert!(shard.mend(9));
                    break;
                }
                drop(shard);
                std::thread::yield_now();
            }
            let wake = handle.bells.wake(&handle.parking, &handle.channels);
            rouse_all(&[wake]);
        });
        let shard = handle.enter().unwrap();
        assert!(!shard.waiting.seats.somebody_rests() && shard.waiting.interests.is_empty());
    }
}
