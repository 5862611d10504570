//! Upkeep by the engine of ends that programs have.

use super::*;

#[test]
fn idle_connection_shrinks_and_its_memory_comes_back() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    let thread = pair.client.thread;
    let journal = pair.client.waiters.journal();
    let fresh = (journal.charged_bytes(), pair.opening.half.memory_used());
    pair.sends(&client, &[1; 200 << 10]).unwrap();
    assert!(
        client.class() > Class::K16 && !client.shrink(thread),
        "it is not idle"
    );
    pair.receives(&server, 1 << 20).unwrap();
    let grown = (journal.charged_bytes(), pair.opening.half.memory_used());
    assert!(grown.0 > fresh.0 && grown.1 >= fresh.1 + (180 << 10));
    assert!(client.shrink(thread) && !client.shrink(thread));
    assert_eq!((client.class(), journal.charged_bytes()), (Class::K16, fresh.0));
    assert!(pair.opening.half.memory_used() <= fresh.1 + (32 << 10));
    // Bytes go on, in the small ring and in larger ones again.
    for len in [1, 16 << 10, 100 << 10, 1] {
        let bytes: Vec<u8> = (0..len).map(|at: usize| at as u8).collect();
        assert_eq!(pair.sends(&client, &bytes), Ok(len));
        assert_eq!(pair.receives(&server, 1 << 20).unwrap(), bytes);
        client.shrink(thread);
    }
}

#[test]
fn end_whose_lock_is_taken_neither_shrinks_nor_times_out() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    pair.sends(&client, &[1; 100 << 10]).unwrap();
    pair.receives(&server, 1 << 20).unwrap();
    let stopped = pair.client.waiters.journal().claim(3).unwrap();
    lock::lock(&client.own().writer.lock, stopped).unwrap();
    let thread = pair.client.thread;
    assert!(!client.shrink(thread) && !client.trim_unused(thread) && !client.time_out(thread));
    lock::unlock_and_fence(&client.own().writer.lock);
    assert!(client.shrink(thread));
}

/// A peer reads all of our half, also where no byte was ever written.
#[test]
fn pages_that_a_peer_makes_by_reading_come_back() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    let before = pair.opening.half.memory_used();
    let rings = pair.accepting.peer.bytes(client.id().number).unwrap();
    for page in (0..bank::RING_BYTES).step_by(4096) {
        // SAFETY: `rings` points to `RING_BYTES` mapped bytes, which the half keeps until the test
        // ends.
        assert_eq!(unsafe { rings.add(page).read_volatile() }, 0);
    }
    let made = pair.opening.half.memory_used();
    assert!(
        made > before + (5 << 20),
        "{made} bytes of memory, {before} before"
    );
    assert!(client.trim_unused(pair.client.thread));
    assert!(pair.opening.half.memory_used() <= before + (16 << 10));
    pair.sends(&client, b"on").unwrap();
    assert_eq!(pair.receives(&server, 9).unwrap(), b"on");
}

#[test]
fn writer_that_waits_in_vain_times_out() {
    let pair = Pair::within(BOUND, Class::K16);
    let (client, server) = pair.connect();
    let thread = pair.client.thread;
    client.set_user_timeout(700);
    assert_eq!((client.user_timeout(), client.blocked_at()), (700, None));
    while pair.sends(&client, &[1; 1 << 10]).is_ok() {}
    assert_eq!(client.blocked_at(), Some(0));
    pair.receives(&server, 1).unwrap();
    assert_eq!(client.blocked_at(), None);
    while pair.sends(&client, &[1; 1]).is_ok() {}
    assert_eq!(client.blocked_at(), Some(1));
    assert!(client.time_out(thread));
    assert_eq!((client.take_error(), client.blocked_at()), (110, None));
    assert_eq!(pair.sends(&client, b"x"), Err(SendError::Closed));
    while pair.receives(&server, 1 << 20).is_ok() {}
    assert_eq!(pair.receives(&server, 1), Err(ReceiveError::Reset));
}

#[test]
fn class_of_another_users_peer_grows_when_it_fills_the_present_one() {
    let pair = Pair::within(BOUND, Class::K16);
    let (client, server) = pair.connect();
    let most = pair.sends(&client, &[1; 1 << 20]).unwrap();
    assert_eq!((most, server.granted_class()), (16 << 10, Class::K16));
    assert!(server.grant_larger() && server.granted_class() == Class::K64);
    assert!(!server.grant_larger(), "the peer does not fill it");
    assert_eq!(pair.sends(&client, &[1; 1 << 20]), Ok(64 << 10));
    assert!(server.grant_larger());
    assert_eq!(pair.receives(&server, 1 << 20).unwrap().len(), 80 << 10);
}
