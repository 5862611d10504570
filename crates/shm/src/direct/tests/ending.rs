//! Connections that come to nothing, and what is left by threads that died.

use super::*;

fn refuse(pair: &Pair, id: ConnectionId) {
    let record = pair.beginning(id.generation, Side::Accepting, 0).record;
    pair.accepting
        .refuse(pair.server.thread, id.number, &record)
        .unwrap();
}

#[test]
fn connection_that_is_abandoned_leaves_no_number_and_no_memory() {
    let pair = Pair::new();
    let client = pair.begin(MOST_WINDOW);
    let reserved = pair.opening.ends.reserve(1).unwrap();
    let journal = pair.client.waiters.journal();
    assert!(journal.charged_bytes() > 0);
    for id in [client.id(), reserved] {
        let abandon = |process| pair.opening.abandon(pair.client.thread, id, process);
        assert_eq!(abandon(2), Ok(false), "it is another process's");
        assert_eq!((abandon(1), abandon(1)), (Ok(true), Ok(false)));
    }
    assert_eq!((journal.charged_bytes(), pair.opening.ends.in_use()), (0, 0));
    assert_eq!(pair.opening.ends.connections().count(), 0);
}

#[test]
fn connection_that_is_refused_is_reset_and_charges_nothing() {
    let pair = Pair::new();
    let client = pair.begin(MOST_WINDOW);
    pair.opening.offer(client.id(), &pair.found).unwrap();
    assert!(!pair.opening.is_answered(client.id()));
    let (taken, _) = pair.accepting.take(pair.found.listener, 1).unwrap();
    refuse(&pair, taken);
    assert!(pair.opening.is_answered(client.id()) && pair.accepting.has_closed(taken));
    assert_eq!(pair.server.waiters.journal().charged_bytes(), 0);
    let received = receive(&client, pair.client.thread, 1, Take::Remove);
    assert_eq!(received, Err(ReceiveError::Reset));
    client.close(pair.client.thread, false).unwrap();
    assert_eq!(client.release(pair.client.thread), Ok(true));
    let there = pair.accepting.end(taken).unwrap();
    assert_eq!(there.release(pair.server.thread), Ok(true));
}

#[test]
fn connection_offered_again_is_taken_once() {
    let pair = Pair::new();
    let client = pair.begin(MOST_WINDOW);
    pair.opening.offer(client.id(), &pair.found).unwrap();
    pair.opening.offer_again(client.id()).unwrap();
    assert!(pair.accept(1).is_some() && pair.accept(1).is_none());
    let never = ConnectionId {
        generation: client.id().generation + 1,
        ..client.id()
    };
    assert_eq!(pair.opening.offer_again(never), Err(OfferError::Disorder));
}

/// The process was stopped between its look at the directory and its offer.
#[test]
fn connection_offered_after_the_queue_was_emptied_is_found() {
    let pair = Pair::new();
    let directory = pair.server.waiters.directory();
    let listener = pair.found.listener;
    let live = pair.begin(MOST_WINDOW);
    pair.opening.offer(live.id(), &pair.found).unwrap();
    assert_eq!(pair.accepting.take_stale(listener.number, 1), None);
    assert!(pair.accept(1).is_some());
    directory.withdraw(listener);
    assert_eq!(pair.accepting.take_any(listener.number, 1), None);
    let late = pair.begin(MOST_WINDOW);
    assert_eq!(
        pair.opening.offer(late.id(), &pair.found),
        Err(ConnectError::Closed)
    );
    directory.free_number(listener.number);
    let listing = Listing {
        address: "10.0.0.2:81".parse().unwrap(),
        ..pair.found.listing
    };
    assert_eq!(directory.publish(&listing).unwrap().number, listener.number);
    assert_eq!(
        pair.accepting.take_stale(listener.number, 1),
        Some(late.id()),
        "the listener that has the number now is another one"
    );
    refuse(&pair, late.id());
    let received = receive(&late, pair.client.thread, 1, Take::Remove);
    assert_eq!(received, Err(ReceiveError::Reset));
}

/// Several processes listen at one address, and one of them ends.
#[test]
fn connection_of_a_closed_listener_is_moved_to_another_once() {
    let pair = Pair::new();
    let directory = pair.server.waiters.directory();
    let closed = pair.found.listener;
    let listing = Listing {
        group: 1,
        ..pair.found.listing
    };
    let heirs = [(); 2].map(|()| directory.publish(&listing).unwrap());
    let waiting = [(); 3].map(|()| {
        let client = pair.begin(MOST_WINDOW);
        pair.opening.offer(client.id(), &pair.found).unwrap();
        client.id()
    });
    let (first, record) = pair.accepting.take(closed, 1).unwrap();
    assert!(first == waiting[0] && pair.accepting.is_for(first, &record, closed));
    directory.withdraw(closed);
    let move_to = |heir: ListenerId| pair.accepting.move_waiting(closed.number, heir, 2);
    assert_eq!(move_to(heirs[0]), Some((waiting[1], true)));
    assert_eq!(move_to(heirs[1]), Some((waiting[2], true)));
    assert_eq!(move_to(heirs[1]), None);
    for (heir, id) in heirs.into_iter().zip(&waiting[1..]) {
        assert_eq!(
            pair.accepting.take_stale(heir.number, 2),
            None,
            "it is awaited there"
        );
        let (taken, record) = pair.accepting.take(heir, 1).unwrap();
        assert_eq!(taken, *id);
        assert!(pair.accepting.is_for(taken, &record, heir));
        let reused = ListenerId {
            generation: heir.generation + 1,
            ..heir
        };
        assert!(!pair.accepting.is_for(taken, &record, reused));
        assert_eq!(pair.accepting.take(heir, 1), None);
    }
}

#[test]
fn end_of_a_peer_that_has_gone_is_released_when_it_is_closed() {
    let pair = Pair::new();
    let (client, _server) = pair.connect();
    let thread = pair.client.thread;
    assert_eq!(client.release_without_peer(thread), Ok(false));
    client.close(thread, false).unwrap();
    assert_eq!(client.release(thread), Ok(false));
    assert_eq!(client.release_without_peer(thread), Ok(true));
    assert_eq!(pair.client.waiters.journal().charged_bytes(), 0);
}

#[test]
fn charge_that_a_dead_thread_did_not_note_is_corrected() {
    let pair = Pair::new();
    let (_client, _server) = pair.connect();
    let journal = pair.client.waiters.journal();
    let charged = journal.charged_bytes();
    assert_eq!(pair.opening.ends.charged_bytes(), charged);
    assert!(journal.charge(4096, BOUND));
    let count = || pair.opening.ends.charged_bytes();
    assert!(!journal.correct_charge(|| {
        journal.discharge(1);
        count()
    }));
    assert!(journal.correct_charge(count));
    assert_eq!(journal.charged_bytes(), charged);
}

#[test]
fn bitmap_that_a_dead_thread_had_in_its_hands_is_free_unless_an_audience_names_it() {
    let pair = Pair::new();
    let (_client, server) = pair.connect();
    let journal = pair.server.waiters.journal();
    let dead = journal.claim(3).unwrap();
    let owners = journal.bitmap_owners();
    for names in [false, true] {
        let word = &server.own().state.arm_lock;
        lock::lock(word, dead).unwrap();
        owners[0].store(dead.get().into(), core::sync::atomic::Ordering::Relaxed);
        if names {
            server.arming().set_audience(audience::Audience::in_bitmap(0));
        }
        let number = server.id().number;
        pair.accepting.recover(number, dead, pair.server.thread).unwrap();
        pair.server.waiters.recover(dead, pair.server.thread);
        assert_eq!(journal.bitmaps_in_use(), usize::from(names));
    }
    server.close(pair.server.thread, true).unwrap();
    assert_eq!(journal.bitmaps_in_use(), 0);
}

#[test]
fn listener_that_no_process_knows_is_withdrawn() {
    let pair = Pair::new();
    let directory = pair.server.waiters.directory();
    let number = pair.found.listener.number;
    assert_eq!(directory.listener_numbers(), number + 1);
    assert!(directory.withdraw_unknown(|known| known == number).is_empty());
    assert!(directory.lists(pair.found.listener, pair.found.listing.address));
    assert_eq!(directory.withdraw_unknown(|_| false), [number]);
    assert!(!pair.opening.peer_directory.is_current(&pair.found));
    assert!(!directory.lists(pair.found.listener, pair.found.listing.address));
}
