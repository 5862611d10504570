//! Waiters that sleep on descriptors, and what makes these readable.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use toehold_shm::direct::{BELLS, ConnectionId, WaiterKind, WaiterNumber, Wish};

use super::*;
use crate::direct::{Bank, BellsOf, Ear};

const READ: Wish = Wish {
    read: Some(1),
    edge: false,
    room: false,
};

/// Waits until the ear is readable.
fn hears_within(ear: &Ear, longest: Duration) -> bool {
    let longest = Timespec::try_from(longest).unwrap();
    let mut polled = [PollFd::from_borrowed_fd(ear.as_fd(), PollFlags::IN)];
    poll(&mut polled, Some(&longest)).unwrap() == 1
}

fn is_readable(ear: &Ear) -> bool {
    hears_within(ear, Duration::ZERO)
}

/// A waiter that is rung on the bell of that number.
fn waiter_of_bell(direct: &Direct, bell: usize) -> WaiterNumber {
    let mut claimed = Vec::new();
    let found = std::iter::repeat_with(|| {
        let waiter = direct.waiters().claim(direct.process(), WaiterKind::Instance);
        claimed.push(waiter.unwrap());
        waiter.unwrap()
    })
    .take(BELLS)
    .find(|waiter| usize::from(waiter.get()) % BELLS == bell)
    .unwrap();
    claimed.retain(|waiter| *waiter != found);
    claimed.iter().for_each(|waiter| direct.waiters().free(*waiter));
    direct.waiters().set_on_descriptor(found, true);
    found
}

/// Opens an ear on which no earlier ring is left.
fn ear(direct: &Direct, waiter: WaiterNumber, banks: &[&Bank]) -> Ear {
    let ear = Ear::open(direct, waiter).unwrap();
    for bank in banks {
        assert!(ear.listen(bank) && ear.listen(bank));
    }
    ear.silence();
    assert!(!is_readable(&ear));
    ear
}

fn send(bank: &Bank, connection: ConnectionId, thread: ThreadNumber) {
    let end = bank.end(connection).unwrap();
    assert_eq!(end.send(thread, &[IoSlice::new(b"x")]), Ok(1));
}

fn receive(bank: &Bank, connection: ConnectionId, thread: ThreadNumber) -> usize {
    let mut buffer = [0; 16];
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let end = bank.end(connection).unwrap();
    end.receive(thread, &mut parts, Take::Remove, u64::MAX)
        .unwrap_or(0)
}

type Held = (std::sync::Arc<Bank>, ConnectionId);

fn connect(pair: &Pair, threads: [ThreadNumber; 2], listener: ListenerId) -> (Held, Held) {
    let opened = pair.client().connect(threads[0], pair.at(), None, WINDOW);
    let taken = pair.server().accept(threads[1], listener, WINDOW);
    (opened.unwrap().held(), taken.unwrap().held())
}

#[test]
fn ring_of_a_peer_is_heard_by_the_ear_of_its_waiter() {
    let pair = Pair::new();
    let (ours, theirs) = (pair.client(), pair.server());
    let threads = [thread(ours), thread(theirs)];
    let (_, listener) = pair.listen(pair.at(), 8);
    let ((bank, connection), (there, taken)) = connect(&pair, threads, listener);
    let [waiter, other] = [3, 4].map(|bell| waiter_of_bell(theirs, bell));
    let (rung, silent) = (ear(theirs, waiter, &[&there]), ear(theirs, other, &[&there]));
    let end = there.end(taken).unwrap();
    for _ in 0..3 {
        let sleep = theirs.waiters().begin_sleep(waiter, threads[1], [&there.signals]);
        end.arm(threads[1], waiter, READ).unwrap();
        assert!(!is_readable(&rung));
        send(&bank, connection, threads[0]);
        assert!(is_readable(&rung) && !is_readable(&silent));
        drop(sleep);
        rung.silence();
        assert!(!is_readable(&rung));
        assert_eq!(receive(&there, taken, threads[1]), 1);
    }
    // One that is awake costs its ringer no system call.
    end.arm(threads[1], waiter, READ).unwrap();
    send(&bank, connection, threads[0]);
    assert!(!is_readable(&rung));
}

#[test]
fn ring_within_a_node_is_heard_by_the_ear_of_its_waiter() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let _engine = start(path, "node", true);
    let [one, other] = [(); 2].map(|()| attach(path, "node"));
    let [ours, theirs] = [&one, &other].map(|node| node.shards().unwrap().direct().unwrap());
    let own = thread(ours);
    let [waiter, next] = [5, 6].map(|bell| waiter_of_bell(ours, bell));
    let (rung, silent) = (ear(ours, waiter, &[]), ear(ours, next, &[]));
    let sleep = ours.waiters().begin_sleep(waiter, own, []);
    // By another process of the node.
    assert!(theirs.waiters().ring(waiter));
    assert!(is_readable(&rung) && !is_readable(&silent));
    drop(sleep);
    rung.silence();
    ours.waiters().set_on_descriptor(waiter, false);
    let sleep = ours.waiters().begin_sleep(waiter, own, []);
    assert!(theirs.waiters().ring(waiter));
    assert!(!is_readable(&rung), "it sleeps on a word");
    drop(sleep);
}

#[test]
fn connection_of_programs_of_one_node_is_heard() {
    let pair = Pair::new();
    let direct = pair.server();
    let own = thread(direct);
    let (_, listener) = pair.listen(pair.at(), 8);
    let (bank, connection) = direct.connect(own, pair.at(), None, WINDOW).unwrap().held();
    let (there, taken) = direct.accept(own, listener, WINDOW).unwrap().held();
    let waiter = waiter_of_bell(direct, 0);
    let rung = ear(direct, waiter, &[&there]);
    let sleep = direct.waiters().begin_sleep(waiter, own, [&there.signals]);
    there.end(taken).unwrap().arm(own, waiter, READ).unwrap();
    send(&bank, connection, own);
    assert!(is_readable(&rung));
    drop(sleep);
}

#[test]
fn process_that_waits_for_no_descriptor_has_no_bells() {
    let pair = Pair::new();
    let (ours, theirs) = (pair.client(), pair.server());
    let threads = [thread(ours), thread(theirs)];
    let (_, listener) = pair.listen(pair.at(), 8);
    let ((bank, connection), (there, taken)) = connect(&pair, threads, listener);
    let waiter = theirs
        .waiters()
        .claim(theirs.process(), WaiterKind::Thread)
        .unwrap();
    let sleep = theirs.waiters().begin_sleep(waiter, threads[1], [&there.signals]);
    there.end(taken).unwrap().arm(threads[1], waiter, READ).unwrap();
    send(&bank, connection, threads[0]);
    drop(sleep);
    theirs.waiters().ring(waiter);
    for bank in [&bank, &there] {
        let (slot, generation) = (bank.slot(), bank.generation());
        let sets = [
            BellsOf::OwnSide { slot, generation },
            BellsOf::OtherSide { slot, generation },
        ];
        assert!(sets.iter().all(|which| !bank.bells(*which).is_fetched()));
    }
}

/// A thread of another process may have taken the ring that was meant for both.
#[test]
fn death_of_a_process_that_sleeps_is_heard_by_others_on_its_waiter() {
    let pair = Pair::new();
    let direct = pair.server();
    let waiter = waiter_of_bell(direct, 7);
    let bank = direct.accepting().to_vec().pop().unwrap();
    let rung = ear(direct, waiter, &[&bank]);
    let sleep = direct
        .waiters()
        .begin_sleep(waiter, thread(direct), [&bank.signals]);
    let dying = attach(pair._directory.path(), "server");
    let of_dying = dying.shards().unwrap().direct().unwrap();
    let asleep = of_dying.waiters().begin_sleep(waiter, thread(of_dying), []);
    std::mem::forget(asleep);
    assert!(direct.waiters().ring(waiter));
    rung.silence();
    drop(dying);
    assert!(hears_within(&rung, PATIENCE), "the engine has not rung");
    drop(sleep);
}

#[test]
fn no_ring_is_lost_between_looks_and_sleeps_on_an_ear() {
    const BYTES: usize = 5_000;
    let pair = Pair::new();
    let (ours, theirs) = (pair.client(), pair.server());
    let threads = [thread(ours), thread(theirs)];
    let (_, listener) = pair.listen(pair.at(), 8);
    let ((bank, connection), (there, taken)) = connect(&pair, threads, listener);
    let waiter = waiter_of_bell(theirs, 1);
    let rung = ear(theirs, waiter, &[&there]);
    let received = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for sent in 0..BYTES {
                // What is sent before the other thread sleeps is one case, and after it another.
                while received.load(Acquire) < sent {
                    std::thread::yield_now();
                }
                send(&bank, connection, threads[0]);
            }
        });
        let end = there.end(taken).unwrap();
        while received.load(Acquire) < BYTES {
            let got = receive(&there, taken, threads[1]);
            if got > 0 {
                received.fetch_add(got, Release);
                continue;
            }
            let sleep = theirs.waiters().begin_sleep(waiter, threads[1], [&there.signals]);
            let look = end.arm(threads[1], waiter, READ).unwrap();
            if look.readable == 0 {
                assert!(hears_within(&rung, PATIENCE), "a ring was lost");
            }
            drop(sleep);
            rung.silence();
        }
    });
}

/// Runs a test in a process of its own. Returns `true` in that process.
fn is_apart(name: &str) -> bool {
    const MARK: &str = "TOEHOLD_TEST_APART";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = format!("direct::tests::bells::{name}");
    let output = command.args(["--exact", &name]).env(MARK, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

fn eventfds() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links
        .filter(|link| link.to_str().is_some_and(|link| link.contains("eventfd")))
        .count()
}

#[test]
fn end_of_a_peer_is_heard_and_its_bells_are_closed() {
    if !is_apart("end_of_a_peer_is_heard_and_its_bells_are_closed") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let client = start(path, "client", true);
    let node = attach(path, "client");
    let direct = node.shards().unwrap().direct().unwrap();
    let waiter = waiter_of_bell(direct, 2);
    let rung = ear(direct, waiter, &[]);
    let before = eventfds();
    let server = start(path, "server", true);
    let there = address(&server);
    let bank = eventually("no bank leads to the server", || direct.towards(there).pop());
    assert!(rung.listen(&bank));
    // What the engines have for one another, and this process of that.
    assert!(eventfds() >= before + 4 * BELLS + BELLS);
    rung.silence();
    let sleep = direct
        .waiters()
        .begin_sleep(waiter, thread(direct), [&bank.signals]);
    drop(server);
    assert!(hears_within(&rung, PATIENCE), "the end of the peer was not heard");
    drop(sleep);
    drop(bank);
    eventually("bells of a peer that has ended are open", || {
        direct.towards(there).is_empty().then_some(())?;
        (eventfds() <= before).then_some(())
    });
    drop((client, rung));
}

/// As of a server with as many clients as `ulimit -n` lets it have.
#[test]
fn process_without_room_for_bells_has_the_engine_ring() {
    if !is_apart("process_without_room_for_bells_has_the_engine_ring") {
        return;
    }
    let pair = Pair::new();
    let (ours, theirs) = (pair.client(), pair.server());
    let threads = [thread(ours), thread(theirs)];
    let (_, listener) = pair.listen(pair.at(), 8);
    let ((bank, connection), (there, taken)) = connect(&pair, threads, listener);
    let waiter = waiter_of_bell(theirs, 6);
    let rung = ear(theirs, waiter, &[&there]);
    let sleep = theirs.waiters().begin_sleep(waiter, threads[1], [&there.signals]);
    there.end(taken).unwrap().arm(threads[1], waiter, READ).unwrap();
    let former = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(3),
        ..former
    };
    setrlimit(Resource::Nofile, none).unwrap();
    send(&bank, connection, threads[0]);
    let (slot, generation) = (bank.slot(), bank.generation());
    let set = bank.bells(BellsOf::OtherSide { slot, generation });
    assert!(!set.is_fetched() && is_readable(&rung));
    setrlimit(Resource::Nofile, former).unwrap();
    // The next ring is its own.
    assert!(set.get().is_some());
    drop(sleep);
}
