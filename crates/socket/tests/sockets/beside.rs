//! Polls that wait for descriptors of the kernel as well.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFlags, eventfd};
use toehold_socket::{Beside, Events, Interest, Poll, Token, Waited, Waker};

use crate::support::{connect, pair, within};

fn count() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap()
}

fn ring(count: &OwnedFd) {
    rustix::io::write(count, &1_u64.to_ne_bytes()).unwrap();
}

/// Waits for one descriptor and the sockets.
fn wait(poll: &Poll, count: &OwnedFd, timeout: Option<Duration>) -> (Waited, PollFlags) {
    let beside = [Beside::new(count.as_fd(), PollFlags::IN)];
    let waited = poll.wait(&mut Events::with_capacity(8), timeout, &beside);
    (waited.unwrap(), beside[0].found())
}

#[test]
fn a_wait_ends_with_either() {
    within(20, || {
        let nodes = pair();
        let (mut client, server) = connect(&nodes);
        let poll = Poll::new(&nodes[0]).unwrap();
        let registry = poll.registry();
        let interest = Interest::READABLE | Interest::EDGE;
        registry.register(&server, Token(1), interest).unwrap();
        let count = count();
        let soon = Some(Duration::from_millis(20));
        assert_eq!(wait(&poll, &count, soon), (Waited::TimedOut, PollFlags::empty()));
        ring(&count);
        assert_eq!(wait(&poll, &count, None), (Waited::Beside, PollFlags::IN));
        rustix::io::read(&count, &mut [0; 8]).unwrap();
        client.write_all(b"x").unwrap();
        assert_eq!(wait(&poll, &count, None).0, Waited::Sockets);
        assert_eq!(wait(&poll, &count, soon).0, Waited::TimedOut);
    });
}

/// Of many threads, one has the seat at the link; the others rest in another way. Each is woken by
/// its own descriptor, and by its own sockets, again and again.
#[test]
fn many_wait_for_both_and_each_gets_its_own() {
    const THREADS: usize = 6;
    within(60, || {
        let nodes = pair();
        let (done, finished) = mpsc::channel();
        let others: Vec<_> = (0..THREADS)
            .map(|_| {
                let poll = Poll::new(&nodes[0]).unwrap();
                let waker = Waker::new(poll.registry(), Token(7)).unwrap();
                let count = count();
                let (here, done) = (count.try_clone().unwrap(), done.clone());
                let thread = std::thread::spawn(move || {
                    loop {
                        let (waited, found) = wait(&poll, &here, None);
                        if found.contains(PollFlags::IN) {
                            rustix::io::read(&here, &mut [0; 8]).unwrap();
                        }
                        if done.send(waited).is_err() {
                            return;
                        }
                    }
                });
                (waker, count, thread)
            })
            .collect();
        for round in 0..200 {
            for (index, (waker, count, _)) in others.iter().enumerate() {
                if (round + index) % 7 == 0 {
                    // Longer than any thread spins: all of them rest.
                    std::thread::sleep(Duration::from_micros(200));
                }
                let expected = if (round + index) % 2 == 0 {
                    waker.wake().unwrap();
                    Waited::Sockets
                } else {
                    ring(count);
                    Waited::Beside
                };
                assert_eq!(finished.recv().unwrap(), expected, "round {round}");
            }
        }
        drop(finished);
        for (_, count, thread) in others {
            ring(&count);
            thread.join().unwrap();
        }
    });
}

#[test]
fn what_is_ready_is_told_without_taking_it() {
    within(20, || {
        let nodes = pair();
        let (mut client, server) = connect(&nodes);
        let mut poll = Poll::new(&nodes[0]).unwrap();
        let interest = Interest::READABLE | Interest::EDGE | Interest::ONE_SHOT;
        poll.registry().register(&server, Token(1), interest).unwrap();
        assert!(!poll.is_ready().unwrap());
        client.write_all(b"x").unwrap();
        while !poll.is_ready().unwrap() {}
        assert!(poll.is_ready().unwrap());
        let mut events = Events::with_capacity(8);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!(events.iter().count(), 1);
        assert!(!poll.is_ready().unwrap());
    });
}
