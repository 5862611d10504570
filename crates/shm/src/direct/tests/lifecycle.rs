//! Numbers, queues, closing, deaths.

use super::*;
use crate::direct::bank::EndLines;

fn close_both(pair: &Pair, client: End<'_>, server: End<'_>) {
    client.close(pair.client.thread, false).unwrap();
    assert!(!client.is_over());
    server.close(pair.server.thread, false).unwrap();
    assert!(client.is_over() && server.is_over());
}

#[test]
fn number_is_free_when_both_ends_have_closed() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    let id = client.id();
    assert!(!client.release(pair.client.thread).unwrap());
    close_both(&pair, client, server);
    assert!(client.release(pair.client.thread).unwrap());
    assert!(!client.release(pair.client.thread).unwrap());
    assert!(pair.opening.ends.free(id));
    assert_eq!(pair.client.waiters.journal().charged_bytes(), 0);
    // The accepting side has not given its memory back yet: the next connection does.
    let again = pair.begin(MOST_WINDOW);
    assert_eq!(
        (again.id().number, again.id().generation),
        (id.number, id.generation + 1)
    );
    pair.opening.offer(again.id(), &pair.found).unwrap();
    let server = pair.accept(MOST_WINDOW).unwrap();
    assert_eq!(pair.server.waiters.journal().charged_bytes(), 16 << 10);
    pair.sends(&again, b"new").unwrap();
    assert_eq!(pair.receives(&server, 9).unwrap(), b"new");
    assert!(!server.is_over());
}

#[test]
fn memory_of_large_rings_is_given_back_at_the_end_and_of_small_ones_when_trimmed() {
    let pair = Pair::new();
    let before = pair.opening.half.memory_used();
    let (client, server) = pair.connect();
    pair.sends(&client, &[1; 200 << 10]).unwrap();
    pair.receives(&server, 1 << 20).unwrap();
    let number = client.id().number;
    assert!(!pair.opening.trim(pair.client.thread, number).unwrap());
    close_both(&pair, client, server);
    client.release(pair.client.thread).unwrap();
    let lines = 64 << 10;
    assert!(pair.opening.half.memory_used() <= before + lines);
    pair.opening.ends.free(client.id());
    let (client, server) = pair.connect();
    pair.sends(&client, &[1; 8 << 10]).unwrap();
    pair.receives(&server, 1 << 20).unwrap();
    close_both(&pair, client, server);
    client.release(pair.client.thread).unwrap();
    let kept = pair.opening.half.memory_used();
    assert!(pair.opening.trim(pair.client.thread, number).unwrap());
    assert!(pair.opening.half.memory_used() < kept);
}

#[test]
fn offer_beyond_the_backlog_is_refused() {
    let pair = Pair::new();
    let directory = pair.server.waiters.directory();
    directory.set_backlog(pair.found.listener, 1);
    let found = pair
        .opening
        .peer_directory
        .find(pair.found.listing.address, 0)
        .unwrap();
    for _ in 0..2 {
        let client = pair.begin(MOST_WINDOW);
        pair.opening.offer(client.id(), &found).unwrap();
    }
    let third = pair.begin(MOST_WINDOW);
    let full = pair.opening.offer(third.id(), &found);
    assert_eq!(full, Err(ConnectError::Offer(OfferError::Full)));
    assert_eq!(pair.opening.pending(found.listener), 2);
}

#[test]
fn connections_of_a_listener_that_closes_are_refused_or_the_offerer_is_told() {
    let pair = Pair::new();
    let queued = pair.begin(MOST_WINDOW);
    pair.opening.offer(queued.id(), &pair.found).unwrap();
    pair.server.waiters.directory().withdraw(pair.found.listener);
    let late = pair.begin(MOST_WINDOW);
    assert_eq!(
        pair.opening.offer(late.id(), &pair.found),
        Err(ConnectError::Closed)
    );
    let number = pair.found.listener.number;
    let refused: Vec<_> = core::iter::from_fn(|| pair.accepting.take_any(number, 1)).collect();
    assert_eq!(refused, [queued.id(), late.id()]);
    for id in refused {
        let beginning = pair.beginning(id.generation, Side::Accepting, 0);
        let end = pair.accepting.begin(pair.server.thread, id.number, &beginning);
        end.unwrap().close(pair.server.thread, true).unwrap();
    }
    let received = receive(&queued, pair.client.thread, 1, Take::Remove);
    assert_eq!(received, Err(ReceiveError::Reset));
    assert!(!pair.accepting.has_waiting(pair.found.listener));
}

#[test]
fn connection_whose_record_is_of_another_generation_is_not_taken() {
    let pair = Pair::new();
    let client = pair.begin(MOST_WINDOW);
    let ConnectionId { number, generation } = client.id();
    let mut record = pair.opening.half.record(number, generation).unwrap();
    record.generation += 1;
    pair.opening.half.set_record(number, &record);
    pair.opening.offer(client.id(), &pair.found).unwrap();
    assert!(pair.accept(1).is_none());
    assert!(
        !pair.accepting.has_waiting(pair.found.listener),
        "its slot is empty"
    );
}

/// Locks of an end, and what a thread that has one was doing.
type LockOf = fn(&EndLines) -> &crate::futex::AtomicU32;

#[test]
fn locks_of_a_dead_thread_are_taken_and_both_nodes_told() {
    let locks: [(Step, LockOf); 3] = [
        (Step::Send, |end| &end.writer.lock),
        (Step::Receive, |end| &end.reader.lock),
        (Step::Arm, |end| &end.state.arm_lock),
    ];
    for (step, word) in locks {
        let pair = Pair::new();
        let (client, server) = pair.connect();
        let journal = pair.client.waiters.journal();
        let dead = journal.claim(3).unwrap();
        let _ = journal.begin(dead, pair.opening.place(client.id().number), step);
        lock::lock(word(client.own()), dead).unwrap();
        let found: Vec<_> = journal.found(dead).collect();
        assert_eq!(found.len(), 1);
        let (place, _) = found[0];
        assert_eq!(place.number, client.id().number);
        let taken = pair.opening.recover(place.number, dead, pair.client.thread);
        assert_eq!(taken, Ok(1));
        journal.free(dead);
        pair.sends(&client, b"on").unwrap();
        assert_eq!(pair.receives(&server, 9).unwrap(), b"on");
        let empty = receive(&client, pair.client.thread, 1, Take::Remove);
        assert_eq!(empty, Err(ReceiveError::Empty));
    }
}

/// Killed after `w` was stored and before any thread was told: the engine's post wakes the reader.
#[test]
fn reader_of_a_writer_that_died_before_it_told_is_woken() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    let dead = pair.client.waiters.journal().claim(3).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut bytes = [0; 8];
            receive_some(&pair.accepting, &server, &pair.server, &mut bytes, 1).unwrap()
        });
        while !pair.server.waiters.is_asleep(pair.server.waiter) {
            std::thread::yield_now();
        }
        // Its lock, its bytes and its position, and no more.
        lock::lock(&client.own().writer.lock, dead).unwrap();
        let line = pair.opening.half.write_line(client.id().number);
        line.w.store(3, core::sync::atomic::Ordering::Release);
        pair.opening
            .recover(client.id().number, dead, pair.client.thread)
            .unwrap();
        assert_eq!(reader.join().unwrap(), 3);
    });
}

#[test]
fn connections_come_and_go_with_two_offering_and_two_taking_threads() {
    const EACH: usize = 20_000;
    let pair = Pair::new();
    let taken = core::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for process in [2, 3] {
            let (pair, taken) = (&pair, &taken);
            scope.spawn(move || {
                let thread = pair.client.waiters.journal().claim(process).unwrap();
                for _ in 0..EACH {
                    let ConnectionId { number, generation } = pair.opening.ends.reserve(process).unwrap();
                    let beginning = pair.beginning(generation, Side::Opening, 4096);
                    let end = pair.opening.begin(thread, number, &beginning).unwrap();
                    end.send(thread, &[IoSlice::new(&generation.to_le_bytes())])
                        .unwrap();
                    while pair.opening.offer(end.id(), &pair.found).is_err() {
                        std::thread::yield_now();
                    }
                    end.close(thread, false).unwrap();
                    while !end.is_over() {
                        std::thread::yield_now();
                    }
                    assert!(end.release(thread).unwrap() && pair.opening.ends.free(end.id()));
                }
            });
            scope.spawn(move || {
                let thread = pair.server.waiters.journal().claim(process).unwrap();
                while taken.load(core::sync::atomic::Ordering::Relaxed) < 2 * EACH {
                    let Some((id, _)) = pair.accepting.take(pair.found.listener, process) else {
                        std::thread::yield_now();
                        continue;
                    };
                    taken.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
                    let beginning = pair.beginning(id.generation, Side::Accepting, 4096);
                    let end = pair.accepting.begin(thread, id.number, &beginning).unwrap();
                    let bytes = receive(&end, thread, 9, Take::Remove).unwrap();
                    assert_eq!(bytes, id.generation.to_le_bytes(), "bytes of this connection");
                    end.close(thread, false).unwrap();
                    end.release(thread).unwrap();
                }
            });
        }
    });
    assert_eq!(pair.opening.ends.in_use(), 0);
    assert_eq!(pair.client.waiters.journal().charged_bytes(), 0);
}
