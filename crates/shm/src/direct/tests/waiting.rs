//! Arming, audiences, ready bits, sleeps.

use core::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::direct::audience::Audience;

const READ: Wish = Wish {
    read: Some(1),
    edge: false,
    room: false,
};

/// An instance of the server that waits for an end.
fn instance(pair: &Pair) -> WaiterNumber {
    pair.server.waiters.claim(1, WaiterKind::Instance).unwrap()
}

fn collected(pair: &Pair, waiter: WaiterNumber) -> Vec<u16> {
    let mut numbers = Vec::new();
    let thread = pair.server.thread;
    let collect = || {
        pair.accepting
            .signals
            .collect(waiter, |number| numbers.push(number))
    };
    pair.server.waiters.collecting(waiter, thread, collect).unwrap();
    numbers
}

#[test]
fn instance_gets_one_bit_for_each_wait_and_only_from_its_mark_on() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    let waiter = instance(&pair);
    let thread = pair.server.thread;
    let low = Wish {
        read: Some(3),
        ..READ
    };
    assert_eq!(server.arm(thread, waiter, low).unwrap().readable, 0);
    pair.sends(&client, b"ab").unwrap();
    assert_eq!(collected(&pair, waiter), [0_u16; 0]);
    pair.sends(&client, b"c").unwrap();
    assert_eq!(collected(&pair, waiter), [client.id().number]);
    pair.sends(&client, b"d").unwrap();
    assert_eq!(collected(&pair, waiter), [0_u16; 0], "it was told");
    let look = server.arm(thread, waiter, READ).unwrap();
    assert_eq!(look.readable, 4, "what came meanwhile is in the look");
    client.shut_write(pair.client.thread).unwrap();
    assert_eq!(
        collected(&pair, waiter),
        [client.id().number],
        "an end is always told"
    );
}

#[test]
fn instance_that_wants_edges_is_told_of_bytes_behind_unread_ones() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    let waiter = instance(&pair);
    pair.sends(&client, b"unread").unwrap();
    let edge = Wish { edge: true, ..READ };
    assert_eq!(server.arm(pair.server.thread, waiter, edge).unwrap().readable, 6);
    assert_eq!(collected(&pair, waiter), [0_u16; 0]);
    pair.sends(&client, b"more").unwrap();
    assert_eq!(collected(&pair, waiter), [client.id().number]);
}

#[test]
fn reader_with_a_high_mark_is_told_when_the_ring_is_full() {
    let pair = Pair::within(BOUND, Class::K16);
    let (client, server) = pair.connect();
    let waiter = instance(&pair);
    let all = Wish {
        read: Some(1 << 30),
        ..READ
    };
    server.arm(pair.server.thread, waiter, all).unwrap();
    pair.sends(&client, &[0; 4 << 10]).unwrap();
    assert_eq!(collected(&pair, waiter), [0_u16; 0]);
    pair.sends(&client, &[0; 4 << 10]).unwrap();
    assert_eq!(
        collected(&pair, waiter),
        [client.id().number],
        "half of the ring at most"
    );
}

#[test]
fn writer_is_told_when_a_third_of_the_room_is_free() {
    let pair = Pair::within(BOUND, Class::K16);
    let (client, server) = pair.connect();
    let waiter = pair.client.waiters.claim(1, WaiterKind::Instance).unwrap();
    pair.sends(&client, &[0; 1 << 20]).unwrap();
    let room = Wish {
        read: None,
        edge: false,
        room: true,
    };
    let look = client.arm(pair.client.thread, waiter, room).unwrap();
    assert_eq!((look.room, look.has_room), (0, false));
    let bits = || {
        let mut count = 0;
        pair.opening.signals.collect(waiter, |_| count += 1);
        count
    };
    pair.receives(&server, 5000).unwrap();
    assert_eq!((bits(), client.look().has_room), (0, false));
    assert!(client.look().room > 0);
    pair.receives(&server, 500).unwrap();
    assert_eq!((bits(), client.look().has_room), (1, true));
}

#[test]
fn each_of_six_waiters_of_an_end_is_told() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    let waiters: Vec<_> = (0..6).map(|_| instance(&pair)).collect();
    for &waiter in &waiters {
        server.arm(pair.server.thread, waiter, READ).unwrap();
    }
    pair.sends(&client, b"x").unwrap();
    for &waiter in &waiters {
        assert_eq!(collected(&pair, waiter), [client.id().number]);
    }
    for &waiter in &waiters[1..] {
        server.disarm(pair.server.thread, waiter).unwrap();
    }
    server.arm(pair.server.thread, waiters[0], READ).unwrap();
    pair.sends(&client, b"x").unwrap();
    assert_eq!(collected(&pair, waiters[0]).len(), 1);
    assert_eq!(collected(&pair, waiters[5]).len(), 0);
    let bitmaps = || pair.server.waiters.journal().bitmaps_in_use();
    assert_eq!(bitmaps(), 1);
    server.close(pair.server.thread, false).unwrap();
    assert_eq!(bitmaps(), 0, "the bitmap is free with the end");
}

#[test]
fn thread_that_is_awake_leaves_the_audience_to_others() {
    let pair = Pair::new();
    let (_client, server) = pair.connect();
    let thread = pair.server.thread;
    server.arm(thread, pair.server.waiter, READ).unwrap();
    let waiter = instance(&pair);
    server.arm(thread, waiter, READ).unwrap();
    let audience = server.arming().audience();
    assert_eq!(audience, Audience::NONE.with(waiter).unwrap());
    let waiters = &pair.server.waiters;
    let sleep = waiters.begin_sleep(pair.server.waiter, thread, [&pair.accepting.signals]);
    server.arm(thread, pair.server.waiter, READ).unwrap();
    server.arm(thread, waiter, READ).unwrap();
    assert_eq!(server.arming().audience().waiters().count(), 2);
    drop(sleep);
}

#[test]
fn sleep_ends_by_a_ring_a_time_or_not_at_all_if_it_was_rung_before() {
    assert!(is_supported());
    let pair = Pair::new();
    let Node {
        waiters,
        thread,
        waiter,
    } = &pair.server;
    let now = crate::monotonic_ns();
    let sleep = waiters.begin_sleep(*waiter, *thread, [&pair.accepting.signals]);
    assert_eq!(sleep.wait(Some(now)), Woken::TimedOut);
    assert!(waiters.is_asleep(*waiter));
    assert!(waiters.ring(*waiter) && !waiters.ring(*waiter));
    assert_eq!(sleep.wait(None), Woken::Rung);
    drop(sleep);
    assert!(!waiters.is_asleep(*waiter) && !waiters.ring(*waiter));
}

#[test]
fn outer_instances_are_rung_with_the_inner_one() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    let [inner, middle, outer] = [(); 3].map(|()| instance(&pair));
    let waiters = &pair.server.waiters;
    let name = |inner: WaiterNumber, outer: WaiterNumber| {
        let audience = Audience::NONE.with(outer).unwrap();
        waiters.line(inner).outer.store(audience.to_word(), Relaxed);
    };
    name(inner, middle);
    name(middle, outer);
    // A circle, as a hostile peer may make one.
    name(outer, inner);
    let sleep = waiters.begin_sleep(outer, pair.server.thread, [&pair.accepting.signals]);
    server.arm(pair.server.thread, inner, READ).unwrap();
    pair.sends(&client, b"x").unwrap();
    assert_eq!(sleep.wait(None), Woken::Rung);
}

#[test]
fn listener_tells_all_that_sleep_and_one_exclusive_sleeper() {
    let pair = Pair::new();
    let waiters = &pair.server.waiters;
    let journal = waiters.journal();
    let listener = pair.found.listener.number;
    let all: Vec<_> = (0..4).map(|_| instance(&pair)).collect();
    let sleeps: Vec<_> = all
        .iter()
        .enumerate()
        .map(|(at, &waiter)| {
            pair.accepting.watch(listener, waiter, at >= 2);
            let thread = journal.claim(2).unwrap();
            waiters.begin_sleep(waiter, thread, [&pair.accepting.signals])
        })
        .collect();
    let offer = || {
        let client = pair.begin(MOST_WINDOW);
        pair.opening.offer(client.id(), &pair.found).unwrap();
    };
    let told = || {
        let past = Some(1);
        let ends: Vec<_> = sleeps
            .iter()
            .map(|sleep| sleep.wait(past) == Woken::Rung)
            .collect();
        ends
    };
    offer();
    assert_eq!(told(), [true, true, true, false]);
    offer();
    assert_eq!(
        told(),
        [true, true, true, true],
        "the other one, which was not told yet"
    );
    let bits = |waiter| pair.accepting.signals.collect(waiter, |_| ());
    assert_eq!(bits(all[0]), 1 << (listener % 64));
    pair.accepting.unwatch(listener, all[0]);
    offer();
    assert_eq!(bits(all[0]), 0);
}

#[test]
fn sleep_and_bits_of_a_dead_thread_are_left_to_others() {
    let pair = Pair::new();
    let waiters = &pair.server.waiters;
    let waiter = instance(&pair);
    let dead = waiters.journal().claim(4).unwrap();
    core::mem::forget(waiters.begin_sleep(waiter, dead, [&pair.accepting.signals]));
    assert!(waiters.is_asleep(waiter));
    assert_eq!(waiters.recover(dead, pair.server.thread), [Some(waiter), None]);
    assert!(!waiters.is_asleep(waiter));
    // Killed while it had taken bits, with the lock.
    let local = waiters.journal().local(waiter);
    lock::lock(&local.lock, dead).unwrap();
    let line = waiters.journal().line(dead);
    line.collecting.store(u64::from(waiter.get()) + 1, Relaxed);
    assert_eq!(waiters.recover(dead, pair.server.thread), [None, Some(waiter)]);
    pair.accepting.signals.set_all(waiter);
    assert_eq!(collected(&pair, waiter).len(), CONNECTIONS);
}

#[test]
fn waiter_that_sleeps_on_a_descriptor_is_rung_by_its_own_way_too() {
    let mut pair = Pair::new();
    let rung = std::sync::Arc::new(core::sync::atomic::AtomicU32::new(0));
    let counter = std::sync::Arc::clone(&rung);
    pair.opening.ring_descriptor = Box::new(move |waiter| {
        counter.fetch_add(1 + u32::from(waiter.get()), Relaxed);
    });
    let (client, server) = pair.connect();
    let waiter = instance(&pair);
    pair.server.waiters.set_on_descriptor(waiter, true);
    let sleep = pair
        .server
        .waiters
        .begin_sleep(waiter, pair.server.thread, [&pair.accepting.signals]);
    server.arm(pair.server.thread, waiter, READ).unwrap();
    pair.sends(&client, b"x").unwrap();
    assert_eq!(rung.load(Relaxed), 1 + u32::from(waiter.get()));
    drop(sleep);
    pair.server.waiters.set_on_descriptor(waiter, false);
    assert!(pair.server.waiters.process(waiter).is_some());
    pair.server.waiters.free(waiter);
    assert!(pair.server.waiters.process(waiter).is_none());
}

/// A program that watches for edges and was told of room is told again after a call has found none.
#[test]
fn instance_told_of_room_is_told_again_after_a_call_that_found_none() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    let waiter = instance(&pair);
    let thread = pair.server.thread;
    let edge = Wish { edge: true, ..READ };
    assert!(server.arm(thread, waiter, edge).unwrap().has_room);
    let bytes = vec![7; 64 << 10];
    while server.send(thread, &[IoSlice::new(&bytes)]).is_ok() {}
    server.want_room(thread).unwrap();
    assert_eq!(collected(&pair, waiter), [0_u16; 0]);
    let mut into = vec![0; 16 << 20];
    let mut buffers = [IoSliceMut::new(&mut into)];
    let taken = client.receive(pair.client.thread, &mut buffers, Take::Remove, u64::MAX);
    assert!(taken.unwrap() > 0);
    assert_eq!(collected(&pair, waiter), [client.id().number]);
}

#[test]
fn end_roused_by_its_own_node_sets_the_bits_of_its_waiters() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    let waiter = instance(&pair);
    server.arm(pair.server.thread, waiter, READ).unwrap();
    assert!(server.note(Noted::ReadShut) && !server.note(Noted::ReadShut));
    server.rouse();
    assert_eq!(collected(&pair, waiter), [client.id().number]);
}
