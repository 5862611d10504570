//! Many threads on one node: one that waits drives for the others, and none is forgotten. Each test
//! runs with and without the engine, for with it a lost wake-up would be a delay only.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use toehold_socket::{Node, State, TcpListener, TcpStream};

use crate::fabric::join_pair;
use crate::support::{connect, connect_to, inline_pair, pair, within};

/// Runs a test without the engine on a cable and on a fabric, and with it.
fn both(seconds: u64, test: fn([Node; 2])) {
    within(seconds, move || test(inline_pair()));
    within(seconds, move || {
        let fabric = tempfile::tempdir().unwrap();
        test(join_pair(fabric.path()));
    });
    within(seconds, move || test(pair()));
}

#[test]
fn many_threads_share_one_stream() {
    both(60, |nodes| {
        let (client, server) = connect(&nodes);
        let received = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..200 {
                            (&mut &client).write_all(&[7; 501]).unwrap();
                        }
                    })
                })
                .collect();
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut buf = [0; 333];
                    loop {
                        let len = (&mut &server).read(&mut buf).unwrap();
                        if len == 0 {
                            break;
                        }
                        assert!(buf[..len].iter().all(|&byte| byte == 7));
                        received.fetch_add(len, Ordering::Relaxed);
                    }
                });
            }
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            client.shutdown(Shutdown::Write).unwrap();
            while client.info().unwrap().state != State::FinWait2 {
                nodes[1].drive(Some(Duration::from_millis(10))).unwrap();
            }
        });
        assert_eq!(received.into_inner(), 4 * 200 * 501);
    });
}

#[test]
fn a_thread_for_each_connection() {
    both(120, |nodes| {
        const CONNECTIONS: usize = 16;
        const MESSAGES: usize = 150;
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for stream in listener.incoming().take(CONNECTIONS) {
                    let mut stream = stream.unwrap();
                    scope.spawn(move || {
                        let mut buf = [0; 256];
                        loop {
                            match stream.read(&mut buf).unwrap() {
                                0 => break,
                                len => stream.write_all(&buf[..len]).unwrap(),
                            }
                        }
                    });
                }
            });
            for name in 0..CONNECTIONS {
                let node = &nodes[1];
                scope.spawn(move || {
                    let mut stream = TcpStream::connect(node, addr).unwrap();
                    for message in 0..MESSAGES {
                        if (message * 7 + name) % 50 == 0 {
                            std::thread::sleep(Duration::from_micros(200));
                        }
                        let sent = [name as u8, message as u8, 3, 4];
                        stream.write_all(&sent).unwrap();
                        let mut got = [0; 4];
                        stream.read_exact(&mut got).unwrap();
                        assert_eq!(got, sent);
                    }
                });
            }
        });
    });
}

/// One thread rests in `accept` all the time, another one comes and goes. The resting thread must
/// be woken for a connection although it was the other one that looked for frames last.
#[test]
fn a_driver_that_leaves_is_replaced() {
    both(60, |nodes| {
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (mut client, mut server) = connect(&nodes);
        client.set_nodelay(true).unwrap();
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                for _ in 0..50 {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.write_all(b"!").unwrap();
                }
            });
            for round in 0..50_u8 {
                client.write_all(&[round]).unwrap();
                let mut byte = [0];
                server.read_exact(&mut byte).unwrap();
                assert_eq!(byte[0], round);
                // Now only the resting thread can see this.
                let mut stream = TcpStream::connect(&nodes[1], addr).unwrap();
                stream.read_exact(&mut byte).unwrap();
                assert_eq!(&byte, b"!");
            }
            accepted.join().unwrap();
        });
    });
}

/// Threads with timeouts of all lengths come, go and time out.
#[test]
fn who_times_out_takes_nobody_along() {
    both(60, |nodes| {
        let idle: Vec<_> = (0..6).map(|_| connect(&nodes)).collect();
        let (mut client, mut server) = connect(&nodes);
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for (number, (_, stream)) in idle.iter().enumerate() {
                let done = &done;
                scope.spawn(move || {
                    while done.load(Ordering::Relaxed) == 0 {
                        let timeout = Duration::from_micros(300 * (number as u64 + 1));
                        stream.set_read_timeout(Some(timeout)).unwrap();
                        assert!((&mut &*stream).read(&mut [0; 1]).is_err());
                    }
                });
            }
            scope.spawn(|| {
                let mut byte = [0];
                while server.read(&mut byte).unwrap() == 1 {
                    server.write_all(&byte).unwrap();
                }
                done.store(1, Ordering::Relaxed);
            });
            for round in 0..400_u32 {
                let sent = [round as u8];
                client.write_all(&sent).unwrap();
                let mut got = [0];
                client.read_exact(&mut got).unwrap();
                assert_eq!(got, sent);
            }
            client.shutdown(Shutdown::Write).unwrap();
        });
    });
}

/// Data for one thread are taken from the link by others; none may be missed.
#[test]
fn no_wake_up_is_lost() {
    both(120, |nodes| {
        let pairs: Vec<_> = (0..3).map(|_| connect(&nodes)).collect();
        std::thread::scope(|scope| {
            for (client, server) in &pairs {
                scope.spawn(move || {
                    let mut byte = [0];
                    while (&mut &*server).read(&mut byte).unwrap() == 1 {
                        (&mut &*server).write_all(&byte).unwrap();
                    }
                });
                scope.spawn(move || {
                    for round in 0..3000_u32 {
                        let sent = [round as u8];
                        (&mut &*client).write_all(&sent).unwrap();
                        let mut got = [0];
                        (&mut &*client).read_exact(&mut got).unwrap();
                        assert_eq!(got, sent);
                    }
                    client.shutdown(Shutdown::Write).unwrap();
                });
            }
        });
    });
}

/// A thread that drives gives the lock to another one, which takes the wheel
/// and with it data for the first.
#[test]
fn who_gives_way_misses_nothing() {
    both(60, |nodes| {
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        let pairs = [(); 2].map(|()| connect_to(&nodes[1], &listener));
        let barrier = Barrier::new(3);
        const ROUNDS: u32 = 2000;
        std::thread::scope(|scope| {
            let readers = pairs.each_ref().map(|(_, server)| {
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        barrier.wait();
                        let mut byte = [0];
                        (&mut &*server).read_exact(&mut byte).unwrap();
                        assert_eq!(byte[0], round as u8);
                        // The other one waits until this one has told.
                        (&mut &*server).write_all(&byte).unwrap();
                    }
                })
            });
            for round in 0..ROUNDS {
                barrier.wait();
                let (first, second) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
                for _ in 0..round % 97 * 20 {
                    std::hint::spin_loop();
                }
                for client in [&pairs[first].0, &pairs[second].0] {
                    (&mut &*client).write_all(&[round as u8]).unwrap();
                    (&mut &*client).read_exact(&mut [0; 1]).unwrap();
                }
            }
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
    });
}

/// Until the timers of handshakes and neighbours are over: they, too, would wake
/// a thread that has been forgotten.
const QUIET: Duration = Duration::from_millis(1500);

/// A thread sleeps at the link without any timer; another one's call needs one.
#[test]
fn who_sleeps_is_woken_for_timers_of_others() {
    within(30, || {
        let nodes = inline_pair();
        let (sleeping, _peer) = connect(&nodes);
        let (mut client, _silent) = connect(&nodes);
        client.set_user_timeout(Some(Duration::from_millis(50))).unwrap();
        let sleeper = std::thread::spawn({
            let mut sleeping = sleeping.try_clone().unwrap();
            move || sleeping.read(&mut [0; 1]).unwrap()
        });
        std::thread::sleep(QUIET);
        // No thread drives the other node, and this thread does not drive this one.
        client.write_all(b"anybody?").unwrap();
        let mut looks = 0..2000;
        let error = loop {
            if let Some(error) = client.take_error().unwrap() {
                break error;
            }
            assert!(looks.next().is_some(), "no timer ran");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        sleeping.shutdown(Shutdown::Read).unwrap();
        assert_eq!(sleeper.join().unwrap(), 0);
    });
}

/// A thread that sleeps is told what a call of another thread changes without any frame.
#[test]
fn who_sleeps_is_woken_by_a_call_of_another_thread() {
    within(20, || {
        let nodes = inline_pair();
        let (client, _server) = connect(&nodes);
        let reader = std::thread::spawn({
            let mut client = client.try_clone().unwrap();
            move || client.read(&mut [0; 1]).unwrap()
        });
        std::thread::sleep(QUIET);
        client.shutdown(Shutdown::Read).unwrap();
        assert_eq!(reader.join().unwrap(), 0);
    });
}

/// A thread sleeps at the link, another one comes, drives, and leaves.
#[test]
fn who_sleeps_is_woken_after_another_one_has_driven() {
    within(20, || {
        let nodes = inline_pair();
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (mut client, mut server) = connect(&nodes);
        let accepting = std::thread::spawn(move || listener.accept().map(drop));
        std::thread::sleep(QUIET);
        let answering = std::thread::spawn(move || {
            let mut byte = [0];
            for _ in 0..500 {
                server.read_exact(&mut byte).unwrap();
                server.write_all(&byte).unwrap();
            }
            server
        });
        for _ in 0..500 {
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0; 1]).unwrap();
        }
        let _server = answering.join().unwrap();
        TcpStream::connect(&nodes[1], addr).unwrap();
        accepting.join().unwrap().unwrap();
    });
}
