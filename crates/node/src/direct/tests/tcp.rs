//! Connections over TCP that wait at a listener which takes direct ones, too.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use toehold_shm::direct::{WaiterKind, WaiterNumber, unwatch, watch};
use toehold_stack::{ConnectionId, ListenerId as StackListener};

use super::*;
use crate::direct::Ear;

/// A server, a client that has no direct connections, and a listener.
struct Fixture {
    _directory: tempfile::TempDir,
    _engines: [Engine; 2],
    client: AttachedNode,
    server: AttachedNode,
    at: SocketAddr,
    listener: StackListener,
}

impl Fixture {
    fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let engines = [start(path, "client", false), start(path, "server", true)];
        let [client, server] = ["client", "server"].map(|node| attach(path, node));
        let at = SocketAddr::new(address(&engines[1]), PORT);
        let mut shard = server.shards().unwrap().get(0).enter().unwrap();
        let settings = shard.stack.default_settings();
        let listener = shard.listen(at, 8, &settings).unwrap();
        drop(shard);
        Fixture {
            _directory: directory,
            _engines: engines,
            client,
            server,
            at,
            listener,
        }
    }

    fn waiting(&self) -> u32 {
        let direct = self.server.shards().unwrap().direct().unwrap();
        let listener = direct.listener(&[self.listener]);
        listener.map_or(0, |listener| direct.tcp_waiting(listener))
    }

    /// Connects, and drives both nodes until `count` connections wait.
    fn connect(&self, count: u32) -> ConnectionId {
        let client = self.client.shards().unwrap().get(0);
        let mut shard = client.enter().unwrap();
        shard.tick();
        let (now, settings) = (shard.now, shard.stack.default_settings());
        let id = shard.stack.connect(now, None, self.at, &settings).unwrap();
        shard.respond();
        drop(shard);
        eventually("no connection waits", || {
            self.drive();
            (self.waiting() == count).then_some(())
        });
        id
    }

    fn drive(&self) {
        for node in [&self.client, &self.server] {
            node.shards().unwrap().get(0).enter().unwrap().poll_once(None);
        }
    }

    fn accept(&self) {
        let handle = self.server.shards().unwrap().get(0);
        handle.enter().unwrap().stack.accept(self.listener).unwrap();
    }
}

fn is_readable(ear: &Ear) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(ear.as_fd(), PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
}

fn instance(direct: &Direct) -> WaiterNumber {
    let waiter = direct
        .waiters()
        .claim(direct.process(), WaiterKind::Instance)
        .unwrap();
    direct.waiters().set_on_descriptor(waiter, true);
    waiter
}

#[test]
fn connections_over_tcp_are_counted_without_the_lease() {
    let fixture = Fixture::new();
    let direct = fixture.server.shards().unwrap().direct().unwrap();
    let handle = fixture.server.shards().unwrap().get(0);
    let listed = handle.enter().unwrap().direct_listener(fixture.listener);
    assert!(listed.is_some());
    assert_eq!(fixture.waiting(), 0);
    fixture.connect(1);
    fixture.connect(2);
    // The lease is another thread's all the while.
    let lease = handle.enter().unwrap();
    assert_eq!(fixture.waiting(), 2);
    assert_eq!(direct.listener(&[fixture.listener]), listed);
    drop(lease);
    fixture.accept();
    assert_eq!(fixture.waiting(), 1);
    handle.enter().unwrap().close(Event::Listener(fixture.listener));
    assert_eq!(fixture.waiting(), 0);
    assert_eq!(direct.listener(&[fixture.listener]), None);
}

#[test]
fn waiters_of_a_listener_are_told_of_connections_over_tcp() {
    let fixture = Fixture::new();
    let direct = fixture.server.shards().unwrap().direct().unwrap();
    let waiters = direct.waiters();
    let listener = direct.listener(&[fixture.listener]).unwrap();
    let own = direct.accepting().to_vec().pop().unwrap();
    let threads = [(); 3].map(|()| thread(direct));
    let all = [(); 3].map(|()| instance(direct));
    let ears = all.map(|waiter| Ear::open(direct, waiter).unwrap());
    // One is told of each connection, and one of the other two.
    watch(waiters, listener.number, all[0], false);
    watch(waiters, listener.number, all[1], true);
    watch(waiters, listener.number, all[2], true);
    let asleep: Vec<_> = (0..3)
        .map(|at| waiters.begin_sleep(all[at], threads[at], [&own.signals]))
        .collect();
    assert!(ears.iter().all(|ear| !is_readable(ear)));
    fixture.connect(1);
    // It is told after the lease was given back, perhaps by the engine.
    eventually("no waiter was told", || {
        let told = ears.each_ref().map(is_readable);
        (told[0] && told[1] != told[2]).then_some(())
    });
    let bits = own.signals.collect(all[0], |_| {});
    assert_eq!(bits, 1 << (listener.number % 64));
    fixture.connect(2);
    assert!(
        ears.iter().all(is_readable),
        "the other one was not told of another"
    );
    drop(asleep);
    all.iter()
        .for_each(|waiter| unwatch(waiters, listener.number, *waiter));
    ears.iter().for_each(Ear::silence);
    fixture.connect(3);
    assert!(ears.iter().all(|ear| !is_readable(ear)));
}

/// A process that dies may have had the lease when a connection came, and told no waiter.
#[test]
fn waiters_of_listeners_look_again_when_a_process_has_died() {
    let fixture = Fixture::new();
    let direct = fixture.server.shards().unwrap().direct().unwrap();
    let waiter = instance(direct);
    let listener = direct.listener(&[fixture.listener]).unwrap();
    watch(direct.waiters(), listener.number, waiter, true);
    let ear = Ear::open(direct, waiter).unwrap();
    let sleep = direct.waiters().begin_sleep(waiter, thread(direct), []);
    let dying = attach(fixture._directory.path(), "server");
    thread(dying.shards().unwrap().direct().unwrap());
    drop(dying);
    eventually("the waiter was not told", || is_readable(&ear).then_some(()));
    drop(sleep);
}
