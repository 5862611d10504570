//! A peer that writes anything into its half, the signals and its directory.

use core::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::direct::lines::Layout;
use crate::futex::AtomicU64;

pub(super) struct Random(pub(super) u64);

impl Random {
    /// Small and large numbers alike.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let value = self.0 >> 3;
        value >> (self.0 >> 58)
    }
}

/// The words of the server's half that the client believes.
fn words(pair: &Pair, number: u16) -> [&AtomicU64; 15] {
    let half = &pair.accepting.half;
    let (write, read) = (half.write_line(number), half.read_line(number));
    let arm = half.arm_line(number);
    let record = half.record_line(number);
    [
        &write.w,
        &write.layout,
        &write.state,
        &write.urgent,
        &read.r,
        &read.window,
        &read.class_limit,
        &arm.read_generation,
        &arm.read_mark,
        &arm.room_generation,
        &arm.room_mark,
        &arm.audience,
        &arm.closed,
        &record.generation,
        &record.ports,
    ]
}

/// Everything that the client does with an end.
fn use_end(pair: &Pair, client: &End<'_>, random: &mut Random) {
    let thread = pair.client.thread;
    let bytes = vec![7; 1 + (random.next() % 40_000) as usize];
    let _ = pair.sends(client, &bytes);
    if let Ok(received) = receive(client, thread, (random.next() % 100_000) as usize, Take::Remove) {
        assert!(received.len() < 100_000);
    }
    let wish = Wish {
        read: Some(random.next()),
        edge: random.next().is_multiple_of(2),
        room: random.next().is_multiple_of(2),
    };
    let look = client.arm(thread, pair.client.waiter, wish).unwrap();
    assert!(look.readable <= 2 * MOST_WINDOW && look.room <= MOST_WINDOW);
    let _ = client.unread_by_peer();
}

#[test]
fn each_word_of_a_hostile_half_costs_its_connection_alone() {
    let pair = Pair::new();
    let (neighbour, peer) = pair.connect();
    let mut random = Random(7);
    for word in 0..15 {
        for _ in 0..60 {
            let (client, server) = pair.connect();
            server
                .send(pair.server.thread, &[IoSlice::new(b"some bytes")])
                .unwrap();
            for _ in 0..4 {
                words(&pair, client.id().number)[word].store(random.next(), Relaxed);
                use_end(&pair, &client, &mut random);
            }
            client.close(pair.client.thread, true).unwrap();
            // The peer says that it is over.
            let closed = words(&pair, client.id().number)[12];
            closed.store(client.id().generation.into(), Relaxed);
            words(&pair, client.id().number)[13].store(client.id().generation.into(), Relaxed);
            client.release(pair.client.thread).unwrap();
            pair.opening.ends.free(client.id());
        }
    }
    pair.sends(&neighbour, b"as ever").unwrap();
    assert_eq!(pair.receives(&peer, 9).unwrap(), b"as ever");
}

#[test]
fn all_words_at_once_neither_hang_nor_crash() {
    let pair = Pair::new();
    let mut random = Random(99);
    let (client, _server) = pair.connect();
    let generation = u64::from(client.id().generation);
    for round in 0..5000 {
        for word in words(&pair, client.id().number) {
            if !random.next().is_multiple_of(3) {
                word.store(random.next(), Relaxed);
            }
        }
        if round % 2 == 0 {
            words(&pair, client.id().number)[13].store(generation, Relaxed);
        }
        let state = &pair.opening.half.write_line(client.id().number).state;
        state.store(0, Relaxed);
        use_end(&pair, &client, &mut random);
    }
}

#[test]
fn offences_reset_the_connection() {
    let offends = |offend: fn(&Pair, &[&AtomicU64; 15]), expected: Offence| {
        let pair = Pair::new();
        let (client, server) = pair.connect();
        let thread = pair.client.thread;
        server
            .send(pair.server.thread, &[IoSlice::new(&[1; 100])])
            .unwrap();
        receive(&client, thread, 50, Take::Remove).unwrap();
        pair.sends(&client, &[2; 16 << 10]).unwrap();
        pair.receives(&server, 10).unwrap();
        pair.sends(&client, &[2; 10]).unwrap();
        offend(&pair, &words(&pair, client.id().number));
        let sent = pair.sends(&client, &[3; 1 << 20]);
        let received = loop {
            match receive(&client, thread, 60, Take::Remove) {
                Ok(bytes) if !bytes.is_empty() => {}
                other => break other,
            }
        };
        let is_expected =
            sent == Err(SendError::Offence(expected)) || received == Err(ReceiveError::Offence(expected));
        assert!(is_expected, "{sent:?} {received:?}");
        assert!(matches!(server.look().peer, StreamState::Reset(_)));
    };
    offends(|_, words| words[0].store(99, Relaxed), Offence::WritePosition);
    offends(
        |_, words| words[0].store(50 + 16385, Relaxed),
        Offence::WritePosition,
    );
    offends(
        |_, words| words[0].store(u64::MAX, Relaxed),
        Offence::WritePosition,
    );
    offends(|_, words| words[4].store(9, Relaxed), Offence::ReadPosition);
    offends(
        |_, words| words[4].store(u64::MAX >> 1, Relaxed),
        Offence::ReadPosition,
    );
    offends(|_, words| words[2].store(3, Relaxed), Offence::End);
    offends(|_, words| words[2].store(1 | 99 << 2, Relaxed), Offence::End);
    offends(|_, words| words[2].store(1 | 101 << 2, Relaxed), Offence::End);
    offends(|_, words| words[1].store(7 | 100 << 3, Relaxed), Offence::Layout);
    offends(
        |_, words| {
            let layout = Layout {
                class: Class::M4,
                from: 99,
            };
            words[1].store(layout.to_word(), Relaxed);
        },
        Offence::Layout,
    );
    offends(
        |_, words| {
            let layout = Layout {
                class: Class::K64,
                from: 101,
            };
            words[1].store(layout.to_word(), Relaxed);
        },
        Offence::Layout,
    );
}

#[test]
fn class_above_the_limit_or_changed_before_the_old_ring_was_read_is_an_offence() {
    let pair = Pair::within(BOUND, Class::K16);
    let (client, _server) = pair.connect();
    let write = pair.accepting.half.write_line(client.id().number);
    let layout = |class, from| Layout { class, from }.to_word();
    write.layout.store(layout(Class::K64, 0), Relaxed);
    let received = receive(&client, pair.client.thread, 9, Take::Remove);
    assert_eq!(received, Err(ReceiveError::Offence(Offence::Layout)));
    let (client, _server) = pair.connect();
    let write = pair.accepting.half.write_line(client.id().number);
    write.w.store(10, Relaxed);
    write.layout.store(layout(Class::K4, 10), Relaxed);
    receive(&client, pair.client.thread, 5, Take::Remove).unwrap();
    write.w.store(20, Relaxed);
    write.layout.store(layout(Class::K16, 20), Relaxed);
    let received = receive(&client, pair.client.thread, 9, Take::Remove);
    assert_eq!(received, Err(ReceiveError::Offence(Offence::Layout)));
}

#[test]
fn nonsense_in_signals_and_waiters_rings_and_takes_nothing_of_others() {
    let pair = Pair::new();
    let (client, server) = pair.connect();
    let mut random = Random(3);
    for _ in 0..500 {
        let waiter = WaiterNumber::new((random.next() % WAITERS as u64) as u16).unwrap();
        let line = pair.server.waiters.line(waiter);
        line.sleep.store(random.next(), Relaxed);
        line.bell.store(random.next(), Relaxed);
        line.outer.store(random.next(), Relaxed);
        let arm = pair.accepting.half.arm_line(client.id().number);
        arm.audience.store(random.next() | random.next() << 40, Relaxed);
        arm.read_mark.store(0, Relaxed);
        arm.read_generation.store(random.next(), Relaxed);
        let _ = pair.sends(&client, b"x");
        let _ = pair.receives(&server, 1);
        let queue = pair
            .opening
            .peer_signals
            .queue(pair.found.listener.number)
            .unwrap();
        queue.slots[(random.next() % 4096) as usize].store(random.next(), Relaxed);
        queue.head.store(random.next(), Relaxed);
        queue.tail.store(random.next(), Relaxed);
        let taken = pair.accepting.take(pair.found.listener, 1);
        assert_eq!(taken, None, "no record names this listener with that generation");
        pair.opening.tell_listener((random.next() % 2000) as u16);
        let ends = pair.opening.signals.bell_line(pair.client.waiter);
        ends.told.store(random.next(), Relaxed);
        pair.opening.signals.collect(pair.client.waiter, |number| {
            assert!(usize::from(number) < CONNECTIONS);
        });
    }
}
