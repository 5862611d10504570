//! Bytes, ends of streams, rings that grow.

use super::*;

#[test]
fn bytes_sent_before_and_after_the_accept_arrive_in_order() {
    let pair = Pair::new();
    let client = pair.begin(MOST_WINDOW);
    assert_eq!(pair.sends(&client, b"early ").unwrap(), 6);
    pair.opening.offer(client.id(), &pair.found).unwrap();
    let server = pair.accept(MOST_WINDOW).unwrap();
    assert_eq!(pair.sends(&client, b"late").unwrap(), 4);
    assert_eq!(pair.receives(&server, 100).unwrap(), b"early late");
    assert_eq!(pair.receives(&server, 100), Err(ReceiveError::Empty));
    assert_eq!(
        (client.sent(), server.received(), client.unread_by_peer()),
        (10, 10, 0)
    );
    server
        .send(pair.server.thread, &[IoSlice::new(b"an"), IoSlice::new(b"swer")])
        .unwrap();
    let answer = receive(&client, pair.client.thread, 10, Take::Remove);
    assert_eq!(answer.unwrap(), b"answer");
}

#[test]
fn peek_leaves_the_bytes_and_until_bounds_them() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    pair.sends(&client, b"0123456789").unwrap();
    let thread = pair.server.thread;
    assert_eq!(receive(&server, thread, 4, Take::Peek).unwrap(), b"0123");
    let mut bytes = [0; 10];
    let received = server.receive(thread, &mut [IoSliceMut::new(&mut bytes)], Take::Remove, 6);
    assert_eq!((received, &bytes[..6]), (Ok(6), &b"012345"[..]));
    assert_eq!(server.look().readable, 4);
    let mut parts = [[0; 3], [0; 3]];
    let [one, two] = &mut parts;
    let mut into = [IoSliceMut::new(one), IoSliceMut::new(two)];
    assert_eq!(server.receive(thread, &mut into, Take::Remove, u64::MAX), Ok(4));
    assert_eq!((&parts[0], parts[1][0]), (b"678", b'9'));
}

#[test]
fn writer_without_room_gets_a_larger_ring_up_to_the_window() {
    let pair = Pair::new();
    let (client, server) = pair.connect_with(1 << 20);
    let bytes: Vec<u8> = (0..2 << 20).map(|at: u32| (at * 7 / 5) as u8).collect();
    let piece = |from: usize| &bytes[from..bytes.len().min(from + 100_000)];
    // Calls fill the first ring and the one that it grows to.
    let mut first = 0;
    while let Ok(len) = pair.sends(&client, piece(first)) {
        first += len;
    }
    assert_eq!(first, (16 << 10) + (256 << 10));
    // The next change waits until all of the first ring was read, and for a millisecond.
    assert_eq!(pair.receives(&server, 16 << 10).unwrap(), bytes[..16 << 10]);
    assert_eq!(pair.sends(&client, piece(first)), Err(SendError::Full));
    let mut sent = first;
    while sent < (1 << 20) + (16 << 10) {
        match pair.sends(&client, piece(sent)) {
            Ok(len) => sent += len,
            Err(error) => assert_eq!(error, SendError::Full),
        }
    }
    assert_eq!(sent, (1 << 20) + (16 << 10), "the window is full");
    assert_eq!(pair.sends(&client, &bytes[sent..]), Err(SendError::Full));
    assert!(!client.look().has_room);
    let rest = pair.receives(&server, 2 << 20).unwrap();
    assert_eq!(rest, bytes[16 << 10..sent]);
    assert!(client.look().has_room);
}

/// Regression: a program that wrote a megabyte before it read at the other end itself, or before it
/// accepted, waited for itself.
#[test]
fn large_write_that_nothing_reads_fits_within_the_window() {
    let bytes: Vec<u8> = (0..3 << 20).map(|at: u32| (at * 7 / 5) as u8).collect();
    let pair = Pair::new();
    let (client, server) = pair.connect_with(MOST_WINDOW);
    assert_eq!(pair.sends(&client, &bytes), Ok(bytes.len()));
    assert!(pair.receives(&server, bytes.len()).unwrap() == bytes);
    let early = pair.begin(MOST_WINDOW);
    pair.opening.offer(early.id(), &pair.found).unwrap();
    assert_eq!(pair.sends(&early, &bytes), Ok(bytes.len()));
    let accepted = pair.accept(1).unwrap();
    assert!(pair.receives(&accepted, bytes.len()).unwrap() == bytes);
}

/// Regression: the first small write beyond the ring got a ring of its own size, and the next one
/// waited for the reader.
#[test]
fn small_writes_that_nothing_reads_have_as_much_room_as_a_large_one() {
    let pair = Pair::new();
    let (client, _server) = pair.connect();
    let mut sent = 0;
    while let Ok(len) = pair.sends(&client, &[1; 1000]) {
        sent += len;
    }
    assert_eq!(sent, (16 << 10) + (256 << 10));
}

#[test]
fn rings_stay_within_the_payload_bound() {
    let pair = Pair::within(40 << 10, Class::M4);
    let (client, server) = pair.connect();
    let journal = pair.client.waiters.journal();
    assert_eq!(journal.charged_bytes(), 16 << 10);
    let bytes = vec![1; 1 << 20];
    assert_eq!(
        pair.sends(&client, &bytes),
        Ok(16 << 10),
        "no larger ring is allowed"
    );
    let other = pair.begin(MOST_WINDOW);
    assert_eq!(
        journal.charged_bytes(),
        20 << 10,
        "when half is used, connections get 4 KiB"
    );
    for _ in 0..5 {
        pair.begin(MOST_WINDOW);
    }
    let id = pair.opening.ends.reserve(1).unwrap();
    let beginning = pair.beginning(id.generation, Side::Opening, 1);
    let refused = pair.opening.begin(pair.client.thread, id.number, &beginning);
    assert_eq!(refused.map(|_| ()).unwrap_err(), BeginError::Payload);
    assert_eq!(pair.sends(&other, &bytes), Ok(4 << 10));
    assert_eq!(pair.receives(&server, 1 << 20).unwrap().len(), 16 << 10);
}

#[test]
fn reader_that_maps_small_rings_alone_gets_no_larger_ones() {
    let pair = Pair::within(BOUND, Class::K16);
    let (client, server) = pair.connect();
    assert_eq!(pair.sends(&client, &[1; 100_000]), Ok(16 << 10));
    assert_eq!(pair.sends(&client, &[1; 100_000]), Err(SendError::Full));
    assert_eq!(pair.receives(&server, 100_000).unwrap().len(), 16 << 10);
}

#[test]
fn stream_shut_by_its_writer_ends_after_the_bytes_before() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    pair.sends(&client, b"last").unwrap();
    client.shut_write(pair.client.thread).unwrap();
    assert_eq!(pair.sends(&client, b"more"), Err(SendError::Shut));
    assert_eq!(server.look().peer, StreamState::Fin(4));
    assert_eq!(pair.receives(&server, 2).unwrap(), b"la");
    assert_eq!(pair.receives(&server, 20).unwrap(), b"st");
    assert_eq!(pair.receives(&server, 20).unwrap(), b"");
    server.send(pair.server.thread, &[IoSlice::new(b"yes")]).unwrap();
    let answer = receive(&client, pair.client.thread, 10, Take::Remove);
    assert_eq!(answer.unwrap(), b"yes");
}

#[test]
fn connection_reset_gives_the_bytes_before_and_then_the_reset() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    pair.sends(&client, b"last").unwrap();
    client.reset(pair.client.thread).unwrap();
    client.shut_write(pair.client.thread).unwrap();
    assert_eq!(pair.sends(&client, b"more"), Err(SendError::Closed));
    assert_eq!(pair.receives(&server, 20).unwrap(), b"last");
    assert_eq!(pair.receives(&server, 20), Err(ReceiveError::Reset));
}

#[test]
fn end_closed_with_unread_bytes_resets_and_takes_no_more() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    pair.sends(&client, b"unread").unwrap();
    server.close(pair.server.thread, false).unwrap();
    assert_eq!(pair.sends(&client, b"more"), Err(SendError::Closed));
    let received = receive(&client, pair.client.thread, 1, Take::Remove);
    assert_eq!(received, Err(ReceiveError::Reset));
    assert!(client.look().is_peer_closed && !client.is_over());
}

#[test]
fn call_that_a_signal_handler_repeats_on_the_same_thread_is_refused() {
    let pair = Pair::new();
    let (client, _server) = pair.connect();
    let word = &client.own().writer.lock;
    lock::lock(word, pair.client.thread).unwrap();
    assert_eq!(pair.sends(&client, b"x"), Err(SendError::Reentered(Reentered)));
    lock::unlock_and_fence(word);
    assert_eq!(pair.sends(&client, b"x"), Ok(1));
}

#[test]
fn urgent_position_errors_and_shut_flags_are_kept() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    pair.sends(&client, b"ab").unwrap();
    client.set_urgent(pair.client.thread, 2).unwrap();
    assert_eq!(server.look().urgent, 2);
    server.set_error(104);
    assert_eq!((server.take_error(), server.take_error()), (104, 0));
    assert!(!server.has_noted(Noted::ReadShut));
    server.note(Noted::ReadShut);
    assert!(server.has_noted(Noted::ReadShut));
    server.set_window(pair.server.thread, 5);
    assert_eq!(
        pair.sends(&client, &[0; 100]),
        Ok(100),
        "the old window was believed"
    );
    assert_eq!(pair.sends(&client, &[0; 1 << 20]).unwrap_err(), SendError::Full);
}
