//! Words of a hostile peer, one at a time: a neighbour's connections with the same node go on.

use core::sync::atomic::Ordering::Relaxed;

use super::hostile::Random;
use super::*;
use crate::futex::AtomicU64;

/// Values tried of each word.
const VALUES: usize = 40;

/// A value that some limit may be wrong by one for, or any.
fn value(random: &mut Random, present: u64) -> u64 {
    let special = [
        0,
        1,
        present.wrapping_add(1),
        present.wrapping_sub(1),
        u64::MAX,
        1 << 63,
    ];
    match random.next() % 3 {
        0 => special[(random.next() % special.len() as u64) as usize],
        _ => random.next() ^ random.next() << 40,
    }
}

/// A node once more, with a thread and a waiter of its own.
fn another(node: &Node) -> Node {
    Node::of(node.waiters.clone())
}

/// A connection of the neighbour from its beginning to its end.
fn lives(neighbour: &Pair) {
    let (client, server) = neighbour.connect();
    let threads = [neighbour.client.thread, neighbour.server.thread];
    assert_eq!(neighbour.sends(&client, b"as ever"), Ok(7));
    assert_eq!(neighbour.receives(&server, 9).unwrap(), b"as ever");
    server.send(threads[1], &[IoSlice::new(b"and back")]).unwrap();
    assert_eq!(
        receive(&client, threads[0], 9, Take::Remove).unwrap(),
        b"and back"
    );
    client.close(threads[0], false).unwrap();
    server.close(threads[1], false).unwrap();
    assert!(client.release(threads[0]).unwrap() && server.release(threads[1]).unwrap());
    assert!(neighbour.opening.ends.free(client.id()));
}

/// What a peer that opens connections writes beside its lines: its record, and the signals to us.
fn words_of_opener(pair: &Pair, number: u16) -> Vec<&AtomicU64> {
    let record = pair.opening.half.record_line(number);
    let signals = &pair.opening.peer_signals;
    let listener = pair.found.listener.number;
    let queue = signals.queue(listener).unwrap();
    let ready = signals.ready(pair.server.waiter);
    let mut words = vec![
        &record.generation,
        &record.ports,
        &record.listener,
        &record.listener_generation,
        &record.options,
        &record.iss,
        &record.opened_ns,
        queue.head,
        queue.tail,
        ready.summary,
        ready.listeners,
        &signals.bell_line(pair.server.waiter).told,
    ];
    words.extend(record.local.iter().chain(&record.remote));
    words.extend(queue.slots[..3].iter().chain(&ready.words[..3]));
    words
}

#[test]
fn each_word_of_a_hostile_opener_leaves_the_neighbours_connections_alone() {
    let neighbour = Pair::new();
    let mut random = Random(5);
    // A fresh peer for each word: a queue that it has spoilt stays so, for it alone.
    let count = words_of_opener(&neighbour, 0).len();
    for word in 0..count {
        let hostile = Pair::between(Node::new(), another(&neighbour.server), BOUND, Class::M4);
        for _ in 0..VALUES {
            let client = hostile.begin(MOST_WINDOW);
            let poke = |random: &mut Random| {
                let word = words_of_opener(&hostile, client.id().number)[word];
                word.store(value(random, word.load(Relaxed)), Relaxed);
            };
            poke(&mut random);
            let _ = hostile.opening.offer(client.id(), &hostile.found);
            poke(&mut random);
            let _ = hostile.accepting.take_stale(hostile.found.listener.number, 1);
            if let Some((id, record)) = hostile.accepting.take(hostile.found.listener, 1) {
                assert!(usize::from(id.number) < CONNECTIONS);
                let thread = hostile.server.thread;
                hostile.accepting.refuse(thread, id.number, &record).unwrap();
            }
            hostile
                .accepting
                .signals
                .collect(hostile.server.waiter, |number| {
                    assert!(usize::from(number) < CONNECTIONS);
                });
            lives(&neighbour);
        }
    }
}

/// What a peer that accepts connections writes beside its lines: its directory.
fn words_of_listener(pair: &Pair, number: u16) -> Vec<&AtomicU64> {
    let directory = pair.server.waiters.directory();
    let waiter = pair.server.waiters.line(pair.server.waiter);
    let watch = directory.watch_line(pair.found.listener.number).unwrap();
    let entry = directory.entry(&pair.found);
    let arm = pair.accepting.half.arm_line(number);
    let mut words = vec![
        &entry.sequence,
        &entry.port,
        &entry.generation,
        &entry.listener,
        &entry.options,
        &entry.window,
        &waiter.sleep,
        &waiter.bell,
        &waiter.outer,
        &arm.audience,
    ];
    words.extend(&entry.address);
    words.extend(watch.all[..2].iter().chain(&watch.exclusive[..2]));
    words.extend(&directory.audience_line(0).words[..2]);
    words
}

#[test]
fn each_word_of_a_hostile_listener_leaves_the_neighbours_connections_alone() {
    let neighbour = Pair::new();
    let mut random = Random(6);
    let count = words_of_listener(&neighbour, 0).len();
    for word in 0..count {
        let hostile = Pair::between(another(&neighbour.client), Node::new(), BOUND, Class::M4);
        let (client, _server) = hostile.connect();
        for _ in 0..VALUES {
            let word = words_of_listener(&hostile, client.id().number)[word];
            word.store(value(&mut random, word.load(Relaxed)), Relaxed);
            let address = hostile.found.listing.address;
            let found = hostile.opening.peer_directory.find(address, random.next());
            let found = found.unwrap_or(hostile.found);
            let late = hostile.begin(MOST_WINDOW);
            let _ = hostile.opening.offer(late.id(), &found);
            let _ = hostile.sends(&client, b"x");
            client.reset(hostile.client.thread).unwrap();
            lives(&neighbour);
        }
    }
}
