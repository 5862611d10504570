//! Real threads, for a bounded time.

use super::*;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 / 7) as u8).collect()
}

/// A stream of messages of many sizes to a reader that sleeps whenever there is nothing.
fn stream(pair: &Pair, total: usize, sizes: &[usize], low: u64) {
    let (client, server) = pair.connect();
    let bytes = pattern(total);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut received = vec![0; total];
            let mut at = 0;
            while at < total {
                let into = &mut received[at..];
                let low = low.min(into.len() as u64);
                let len = receive_some(&pair.accepting, &server, &pair.server, into, low).unwrap();
                assert!(len > 0);
                at += len;
            }
            received
        });
        let mut at = 0;
        for &size in sizes.iter().cycle() {
            let size = size.min(total - at);
            send_all(&pair.opening, &client, &pair.client, &bytes[at..at + size]).unwrap();
            at += size;
            if at == total {
                break;
            }
        }
        assert!(reader.join().unwrap() == bytes);
    });
}

#[test]
fn stream_of_small_messages_loses_no_byte_and_no_wake_up() {
    stream(&Pair::new(), 4 << 20, &[1, 64, 7, 200], 1);
}

#[test]
fn stream_of_large_messages_grows_its_ring_and_loses_nothing() {
    stream(&Pair::new(), 64 << 20, &[65536, 100, 300_000, 4096], 1);
}

#[test]
fn stream_to_a_reader_that_wants_many_bytes_goes_on() {
    stream(&Pair::within(BOUND, Class::K16), 8 << 20, &[3000, 1], 1 << 20);
}

#[test]
fn messages_to_and_fro_lose_no_wake_up() {
    const ROUNDS: u32 = 100_000;
    let pair = Pair::new();
    let (client, server) = pair.connect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                let mut bytes = [0; 4];
                let low = 4;
                let received = receive_some(&pair.accepting, &server, &pair.server, &mut bytes, low);
                assert_eq!((received, u32::from_le_bytes(bytes)), (Ok(4), round));
                send_all(&pair.accepting, &server, &pair.server, &bytes).unwrap();
            }
        });
        for round in 0..ROUNDS {
            send_all(&pair.opening, &client, &pair.client, &round.to_le_bytes()).unwrap();
            let mut bytes = [0; 4];
            let received = receive_some(&pair.opening, &client, &pair.client, &mut bytes, 4);
            assert_eq!((received, u32::from_le_bytes(bytes)), (Ok(4), round));
        }
    });
}

/// Two threads send on one connection, two receive: each byte comes once.
#[test]
fn several_threads_at_both_ends_share_a_stream() {
    const EACH: usize = 300_000;
    let pair = Pair::new();
    let (client, server) = pair.connect();
    let node = |node: &Node| Node {
        waiters: node.waiters.clone(),
        thread: node.waiters.journal().claim(1).unwrap(),
        waiter: node.waiters.claim(1, WaiterKind::Thread).unwrap(),
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=2_u8)
            .map(|value| {
                let (pair, client, node) = (&pair, &client, node(&pair.client));
                scope.spawn(move || {
                    for _ in 0..EACH / 100 {
                        send_all(&pair.opening, client, &node, &[value; 100]).unwrap();
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (pair, server, node) = (&pair, &server, node(&pair.server));
                scope.spawn(move || {
                    let mut counts = [0; 3];
                    let mut bytes = [0; 777];
                    loop {
                        let len = receive_some(&pair.accepting, server, &node, &mut bytes, 1).unwrap();
                        if len == 0 {
                            return counts;
                        }
                        bytes[..len]
                            .iter()
                            .for_each(|&byte| counts[usize::from(byte)] += 1);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        client.shut_write(pair.client.thread).unwrap();
        let counts: Vec<[usize; 3]> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        let sum = |value: usize| counts.iter().map(|counts| counts[value]).sum::<usize>();
        assert_eq!([sum(0), sum(1), sum(2)], [0, EACH, EACH]);
    });
}

/// An instance with many connections: bits say where to look, and no bit is lost.
#[test]
fn instance_with_many_connections_hears_of_every_message() {
    const SOURCES: usize = 70;
    const ROUNDS: usize = 300;
    let pair = Pair::new();
    let ends: Vec<_> = (0..SOURCES).map(|_| pair.connect()).collect();
    let waiter = pair.server.waiters.claim(1, WaiterKind::Instance).unwrap();
    let wish = Wish {
        read: Some(1),
        edge: false,
        room: false,
    };
    let thread = pair.server.thread;
    for (_, server) in &ends {
        server.arm(thread, waiter, wish).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                for (client, _) in &ends {
                    send_all(&pair.opening, client, &pair.client, &[round as u8]).unwrap();
                }
            }
        });
        let mut left = SOURCES * ROUNDS;
        while left > 0 {
            let sleep = pair
                .server
                .waiters
                .begin_sleep(waiter, thread, [&pair.accepting.signals]);
            if pair.accepting.signals.is_empty(waiter) {
                sleep.wait(None);
            }
            drop(sleep);
            let mut found = Vec::new();
            pair.accepting
                .signals
                .collect(waiter, |number| found.push(number));
            for number in found {
                let (_, server) = ends
                    .iter()
                    .find(|(client, _)| client.id().number == number)
                    .unwrap();
                loop {
                    match pair.receives(server, 4096) {
                        Ok(bytes) => left -= bytes.len(),
                        Err(error) => assert_eq!(error, ReceiveError::Empty),
                    }
                    if server.arm(thread, waiter, wish).unwrap().readable == 0 {
                        break;
                    }
                }
            }
        }
    });
}
