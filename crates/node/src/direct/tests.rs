//! Banks between nodes, as their processes find them.

mod kills;
mod limits;
mod stops;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use toehold_shm::direct::{ConnectionId, Found, ListenerId, ReceiveError, Side, Take, ThreadNumber};
use toehold_stack::Event;
use zerocopy::FromZeros;

use super::{ConnectFailure, Direct, Opened};
use crate::AttachedNode;
use crate::control::Connection;
use crate::engine::{Engine, Lifetime, Seat, StackHost};
use crate::fabric::Fabric;
use crate::settings::NodeSettings;

mod bells;
mod relay;
mod tcp;

const PATIENCE: Duration = Duration::from_secs(60);

fn fabric(path: &Path) -> Fabric {
    Fabric::open(path.to_str().unwrap()).unwrap()
}

pub(super) fn start(path: &Path, node: &str, direct: bool) -> Engine {
    start_with(path, node, direct, 16 << 20)
}

fn start_with(path: &Path, node: &str, direct: bool, payload_memory: u64) -> Engine {
    let seat = Seat {
        fabric: fabric(path),
        node: node.to_owned(),
        settings: NodeSettings {
            direct,
            connections: 1024,
            payload_memory,
            ..NodeSettings::default()
        },
        networks: Vec::new(),
        lifetime: Lifetime::UntilTold,
    };
    Engine::start(seat, StackHost::host).unwrap()
}

pub(super) fn attach(path: &Path, node: &str) -> AttachedNode {
    AttachedNode::attach(&fabric(path), node).unwrap()
}

fn address(engine: &Engine) -> IpAddr {
    engine.record().ipv4.addr().into()
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

fn counter(path: &Path, node: &str, name: &str) -> Option<u64> {
    let counters = Connection::open(&fabric(path), node).unwrap().counters().unwrap();
    let counter = counters.into_iter().find(|counter| counter.name == name);
    counter.map(|counter| counter.value)
}

#[test]
fn nodes_with_direct_connections_have_banks_that_lead_to_one_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let engines = [start(path, "client", true), start(path, "server", true)];
    let [client, server] = ["client", "server"].map(|node| attach(path, node));
    let ours = client.shards().unwrap().direct().unwrap();
    let theirs = server.shards().unwrap().direct().unwrap();
    let bank = eventually("no bank leads to the server", || {
        ours.towards(address(&engines[1])).pop()
    });
    assert!(bank.side == Side::Opening && ours.is_there(&bank));
    let there = eventually("the server accepts in no bank of the client", || {
        let accepting = theirs.accepting();
        accepting
            .iter()
            .find(|there| there.peer.incarnation() == bank.half.incarnation())
            .cloned()
    });
    assert_eq!(there.side, Side::Accepting);
    let inode = |fd| rustix::fs::fstat(fd).unwrap().st_ino;
    assert_eq!(inode(there.peer.fd()), inode(bank.half.fd()));
    assert_eq!(inode(there.signals.fd()), inode(bank.peer_signals.fd()));
    // A node has a bank with itself, whatever address of its own is asked for.
    for own in [IpAddr::from([127, 0, 0, 1]), address(&engines[0])] {
        let own = ours.towards(own).pop().unwrap();
        assert_eq!((own.slot(), own.side), (0, Side::Opening));
    }
    assert!(ours.towards([10, 255, 255, 1].into()).is_empty());
    assert_eq!(counter(path, "client", "direct_tcp_memory"), Some(0));
}

#[test]
fn node_without_direct_connections_has_none_and_no_peer_has_them_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let engines = [
        start(path, "plain", false),
        start(path, "other", true),
        start(path, "third", true),
    ];
    let plain = attach(path, "plain");
    assert!(plain.shards().unwrap().direct().is_none());
    assert_eq!(counter(path, "plain", "direct_opened"), None);
    let other = attach(path, "other");
    let direct = other.shards().unwrap().direct().unwrap();
    eventually("no bank leads to the third", || {
        direct.towards(address(&engines[2])).pop()
    });
    assert!(direct.towards(address(&engines[0])).is_empty());
}

#[test]
fn listener_is_listed_for_peers_until_it_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let engines = [start(path, "client", true), start(path, "server", true)];
    let [client, server] = ["client", "server"].map(|node| attach(path, node));
    let ours = client.shards().unwrap().direct().unwrap();
    let bank = eventually("no bank leads to the server", || {
        ours.towards(address(&engines[1])).pop()
    });
    let at = SocketAddr::new(address(&engines[1]), 80);
    let find = || -> Option<Found> { bank.peer_directory.find(at, 0) };
    assert_eq!(find(), None);
    let handle = server.shards().unwrap().get(0);
    let settings = toehold_stack::Settings::new_zeroed();
    let id = handle.enter().unwrap().listen(at, 9, &settings).unwrap();
    let found = find().unwrap();
    assert_eq!(found.listing.backlog, 9);
    handle.enter().unwrap().close(Event::Listener(id));
    assert_eq!(find(), None);
    assert!(!bank.peer_directory.is_current(&found));
    eventually("the number is not free", || {
        let shard = handle.enter().unwrap();
        shard.published.as_ref()?.withdrawn().is_empty().then_some(())
    });
}

#[test]
fn bank_of_peer_that_ended_leads_nowhere_and_another_life_has_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let client = start(path, "client", true);
    let server = start(path, "server", true);
    let there = address(&server);
    let node = attach(path, "client");
    let direct = node.shards().unwrap().direct().unwrap();
    let former = eventually("no bank leads to the server", || direct.towards(there).pop());
    drop(server);
    eventually("the bank leads to a server that has ended", || {
        direct.towards(there).is_empty().then_some(())
    });
    assert!(!direct.is_there(&former));
    let server = start(path, "server", true);
    assert_eq!(address(&server), there);
    let bank = eventually("no bank leads to the new server", || direct.towards(there).pop());
    assert_ne!(bank.generation(), former.generation());
    assert!(direct.is_there(&bank) && !direct.is_there(&former));
    drop((client, server));
}

/// As under `ulimit -v`.
#[test]
fn process_without_address_space_has_no_banks_and_counts_that() {
    const MARK: &str = "TOEHOLD_TEST_NO_ADDRESSES";
    const NAME: &str = "direct::tests::process_without_address_space_has_no_banks_and_counts_that";
    if std::env::var_os(MARK).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args(["--exact", NAME]).env(MARK, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let _engine = start(path, "node", true);
    let node = attach(path, "node");
    let direct = node.shards().unwrap().direct().unwrap();
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let limit = Rlimit {
        current: Some(pages * 4096 + (8 << 20)),
        ..getrlimit(Resource::As)
    };
    let former = getrlimit(Resource::As);
    setrlimit(Resource::As, limit).unwrap();
    let found = direct.towards([127, 0, 0, 1].into());
    setrlimit(Resource::As, former).unwrap();
    assert!(found.is_empty());
    assert_eq!(counter(path, "node", "direct_tcp_memory"), Some(1));
    assert_eq!(direct.towards([127, 0, 0, 1].into()).len(), 1);
}

#[test]
fn holder_stands_for_an_end_until_it_is_released() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let _engine = start(path, "node", true);
    let [one, other] = [(); 2].map(|()| attach(path, "node"));
    let (ours, theirs) = (one.shards().unwrap(), other.shards().unwrap());
    let end = super::DirectEnd {
        slot: 0,
        number: 77,
        generation: 3,
    };
    let holder = ours.get(0).holder().unwrap();
    assert_eq!(ours.direct_end(&holder), None);
    assert!(ours.hold_direct(&holder, end));
    // Another process is given the descriptor.
    let given = holder.descriptor().unwrap().try_clone_to_owned().unwrap();
    let (there, found) = theirs.identify_direct(given).unwrap();
    let found = found.unwrap();
    assert_eq!(found, end);
    ours.release_direct(&holder);
    assert_eq!(theirs.direct_end(&there), None);
    let given = holder.descriptor().unwrap().try_clone_to_owned().unwrap();
    assert!(theirs.identify_direct(given).unwrap().1.is_none());
}

/// A client and a server with a listener, in this process.
struct Pair {
    _directory: tempfile::TempDir,
    engines: Vec<Engine>,
    client: AttachedNode,
    server: AttachedNode,
}

const PORT: u16 = 80;
const WINDOW: u64 = 1 << 20;

impl Pair {
    fn new() -> Pair {
        Pair::with_payload(16 << 20)
    }

    fn with_payload(payload_memory: u64) -> Pair {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let start = |node| start_with(path, node, true, payload_memory);
        let engines = vec![start("client"), start("server")];
        let [client, server] = ["client", "server"].map(|node| attach(path, node));
        let pair = Pair {
            _directory: directory,
            engines,
            client,
            server,
        };
        eventually("no bank leads to the server", || {
            pair.client().towards(pair.at().ip()).pop()
        });
        eventually("the server has no bank of the client", || {
            (pair.server().accepting().len() == 2).then_some(())
        });
        pair
    }

    fn at(&self) -> SocketAddr {
        SocketAddr::new(address(&self.engines[1]), PORT)
    }

    fn client(&self) -> &Direct {
        self.client.shards().unwrap().direct().unwrap()
    }

    fn server(&self) -> &Direct {
        self.server.shards().unwrap().direct().unwrap()
    }

    /// Listens, and says what the listener is in the stack and for peers.
    fn listen(&self, at: SocketAddr, backlog: u32) -> (Event, ListenerId) {
        let mut shard = self.server.shards().unwrap().get(0).enter().unwrap();
        let settings = toehold_stack::Settings::new_zeroed();
        let id = shard.listen(at, backlog, &settings).unwrap();
        let listener = shard.direct_listener(id).unwrap();
        (Event::Listener(id), listener)
    }

    fn close_listener(&self, event: Event) {
        let handle = self.server.shards().unwrap().get(0);
        handle.enter().unwrap().close(event);
        eventually("the listener's number is not free", || {
            let shard = handle.enter().unwrap();
            shard.published.as_ref()?.withdrawn().is_empty().then_some(())
        });
    }
}

fn thread(direct: &Direct) -> ThreadNumber {
    direct.journal().claim(direct.process()).unwrap()
}

#[test]
fn connection_carries_bytes_both_ways_and_its_number_and_port_come_back() {
    let pair = Pair::new();
    let (ours, theirs) = (pair.client(), pair.server());
    let threads = [thread(ours), thread(theirs)];
    let (_, listener) = pair.listen(pair.at(), 8);
    assert!(theirs.accept(threads[1], listener, WINDOW).is_none());
    let opened = ours.connect(threads[0], pair.at(), None, WINDOW).unwrap();
    let local = opened.local_addr();
    let taken = theirs.accept(threads[1], listener, WINDOW).unwrap();
    assert_eq!((taken.local_addr(), taken.peer_addr()), (pair.at(), local));
    assert_eq!(local.ip(), address(&pair.engines[0]));
    let sides = [(opened.held(), threads[0]), (taken.held(), threads[1])];
    for (from, to) in [(0, 1), (1, 0)] {
        let ((bank, connection), thread) = &sides[from];
        let sent = bank.end(*connection).unwrap();
        assert_eq!(sent.send(*thread, &[std::io::IoSlice::new(b"bytes")]), Ok(5));
        let ((bank, connection), thread) = &sides[to];
        let mut buffer = [0; 16];
        let end = bank.end(*connection).unwrap();
        let mut parts = [std::io::IoSliceMut::new(&mut buffer)];
        assert_eq!(end.receive(*thread, &mut parts, Take::Remove, u64::MAX), Ok(5));
        assert_eq!(&buffer[..5], b"bytes");
    }
    let ((bank, connection), thread) = &sides[0];
    let in_use = bank.ends.in_use();
    ours.close(*thread, bank, *connection, false);
    assert_eq!(bank.ends.in_use(), in_use, "the other side has not closed it");
    let ((there, taken), thread) = &sides[1];
    let mut buffer = [0; 16];
    let mut parts = [std::io::IoSliceMut::new(&mut buffer)];
    let end = there.end(*taken).unwrap();
    assert_eq!(end.receive(*thread, &mut parts, Take::Remove, u64::MAX), Ok(0));
    theirs.close(*thread, there, *taken, false);
    // The next call of the client finds that it is over.
    let again = ours.connect(threads[0], pair.at(), None, WINDOW).unwrap();
    let (bank, connection) = again.held();
    ours.close(threads[0], &bank, connection, false);
    assert_eq!(bank.ends.in_use(), 1, "only the second one waits for the server");
}

#[test]
fn connection_to_no_listener_or_to_a_full_one_is_tcps() {
    let pair = Pair::new();
    let ours = pair.client();
    let own = thread(ours);
    let connect = || ours.connect(own, pair.at(), None, WINDOW).map(Opened::held);
    let failed = connect().map(drop);
    assert_eq!(failed, Err(ConnectFailure::UseTcp));
    pair.listen(pair.at(), 1);
    let waiting = [connect().unwrap(), connect().unwrap()];
    assert_eq!(connect().map(drop), Err(ConnectFailure::UseTcp));
    assert_eq!(waiting[0].0.ends.in_use(), 2, "the number came back");
    for (name, value) in [
        ("direct_opened", 2),
        ("direct_tcp_queue", 1),
        ("direct_tcp_unlisted", 1),
    ] {
        assert_eq!(
            counter(pair._directory.path(), "client", name),
            Some(value),
            "{name}"
        );
    }
    // The stack decides whether a port is free that the program has chosen.
    let bound = SocketAddr::new(address(&pair.engines[0]), 5555);
    assert!(ours.connect(own, pair.at(), Some(bound), WINDOW).is_err());
}

#[test]
fn connection_that_waits_at_a_listener_is_reset_when_that_is_closed() {
    let pair = Pair::new();
    let ours = pair.client();
    let own = thread(ours);
    let (event, _) = pair.listen(pair.at(), 8);
    let (bank, connection) = ours.connect(own, pair.at(), None, WINDOW).unwrap().held();
    pair.close_listener(event);
    let end = bank.end(connection).unwrap();
    let mut buffer = [0; 16];
    let received = eventually("the connection was not reset", || {
        let mut parts = [std::io::IoSliceMut::new(&mut buffer)];
        let received = end.receive(own, &mut parts, Take::Remove, u64::MAX);
        (received != Err(ReceiveError::Empty)).then_some(received)
    });
    assert_eq!(received, Err(ReceiveError::Reset));
    ours.close(own, &bank, connection, false);
    eventually("the number did not come back", || {
        ours.close(own, &bank, connection, false);
        (bank.ends.in_use() == 0).then_some(())
    });
}

#[test]
fn programs_of_one_node_connect_by_all_of_its_addresses() {
    let pair = Pair::new();
    let theirs = pair.server();
    let own = thread(theirs);
    let any: SocketAddr = "[::]:90".parse().unwrap();
    let (_, listener) = pair.listen(any, 8);
    let v4 = address(&pair.engines[1]);
    let v6: IpAddr = pair.engines[1].record().ipv6.addr().into();
    for to in [IpAddr::from([127, 0, 0, 1]), "::1".parse().unwrap(), v4, v6] {
        let to = SocketAddr::new(to, 90);
        let opened = theirs.connect(own, to, None, WINDOW).unwrap();
        assert_eq!(opened.local_addr().ip(), to.ip());
        let taken = theirs.accept(own, listener, WINDOW).unwrap();
        assert_eq!((taken.local_addr(), taken.peer_addr()), (to, opened.local_addr()));
        for (bank, connection) in [opened.held(), taken.held()] {
            theirs.close(own, &bank, connection, false);
        }
    }
}

#[test]
fn end_of_a_holder_that_no_process_has_is_closed_by_the_engine() {
    let pair = Pair::new();
    let (ours, theirs) = (pair.client(), pair.server());
    let threads = [thread(ours), thread(theirs)];
    let (_, listener) = pair.listen(pair.at(), 8);
    let opened = ours.connect(threads[0], pair.at(), None, WINDOW).unwrap();
    let shards = pair.client.shards().unwrap();
    let holder = shards.get(0).holder().unwrap();
    assert!(shards.hold_direct(&holder, opened.end()));
    let (bank, _) = opened.held();
    let listed = Connection::open(&fabric(pair._directory.path()), "client")
        .unwrap()
        .sockets()
        .unwrap();
    let shown = listed.iter().find(|socket| socket.direct.is_some()).unwrap();
    assert_eq!(shown.remote, Some(pair.at()));
    assert_eq!(shown.process, Some(ours.process()));
    let (there, taken) = theirs.accept(threads[1], listener, WINDOW).unwrap().held();
    drop(holder);
    let end = there.end(taken).unwrap();
    let mut buffer = [0; 16];
    eventually("the end is not closed", || {
        let mut parts = [std::io::IoSliceMut::new(&mut buffer)];
        (end.receive(threads[1], &mut parts, Take::Remove, u64::MAX) == Ok(0)).then_some(())
    });
    theirs.close(threads[1], &there, taken, false);
    eventually("the number did not come back", || {
        (bank.ends.in_use() == 0).then_some(())
    });
}

/// Of each step of connecting and accepting, what a process leaves that dies there.
#[test]
fn what_a_process_leaves_that_dies_while_it_connects_comes_back() {
    let pair = Pair::new();
    let theirs = pair.server();
    let own = thread(theirs);
    let (_, listener) = pair.listen(pair.at(), 8);
    for step in ["reserved", "offered"] {
        let dying = attach(pair._directory.path(), "client");
        let direct = dying.shards().unwrap().direct().unwrap();
        let dead = thread(direct);
        let bank = direct.towards(pair.at().ip()).pop().unwrap();
        let process = direct.process();
        match step {
            "reserved" => {
                bank.ends.reserve(process).unwrap();
            }
            _ => {
                // It dies before a holder stands for the end.
                std::mem::forget(direct.connect(dead, pair.at(), None, WINDOW).unwrap());
            }
        }
        assert_eq!(bank.ends.in_use(), 1, "{step}");
        drop(dying);
        if step == "offered" {
            let (there, taken) =
                eventually("it is not accepted", || theirs.accept(own, listener, WINDOW)).held();
            let end = there.end(taken).unwrap();
            let mut buffer = [0; 16];
            eventually("it does not end", || {
                let mut parts = [std::io::IoSliceMut::new(&mut buffer)];
                (end.receive(own, &mut parts, Take::Remove, u64::MAX) == Ok(0)).then_some(())
            });
            theirs.close(own, &there, taken, false);
        }
        eventually("the number did not come back", || {
            (bank.ends.in_use() == 0).then_some(())
        });
    }
}

#[test]
fn what_a_process_leaves_that_dies_while_it_accepts_is_reset() {
    let pair = Pair::new();
    let ours = pair.client();
    let own = thread(ours);
    let (_, listener) = pair.listen(pair.at(), 8);
    let (bank, connection) = ours.connect(own, pair.at(), None, WINDOW).unwrap().held();
    let dying = attach(pair._directory.path(), "server");
    let direct = dying.shards().unwrap().direct().unwrap();
    let dead = thread(direct);
    std::mem::forget(direct.accept(dead, listener, WINDOW).unwrap());
    drop(dying);
    let end = bank.end(connection).unwrap();
    let mut buffer = [0; 16];
    eventually("it is not reset", || {
        let mut parts = [std::io::IoSliceMut::new(&mut buffer)];
        (end.receive(own, &mut parts, Take::Remove, u64::MAX) == Err(ReceiveError::Reset)).then_some(())
    });
}

#[test]
fn last_number_of_a_bank_is_followed_by_another_bank() {
    let pair = Pair::new();
    let ours = pair.client();
    let own = thread(ours);
    pair.listen(pair.at(), 10_000);
    let former = ours.towards(pair.at().ip()).len();
    let bank = ours.towards(pair.at().ip()).pop().unwrap();
    let reserved: Vec<_> = (0..toehold_shm::direct::CONNECTIONS)
        .map(|_| bank.ends.reserve(ours.process()).unwrap())
        .collect();
    // All are taken: TCP it is, and the engine is told.
    let failed = ours.connect(own, pair.at(), None, WINDOW).map(Opened::held);
    assert_eq!(failed.map(drop), Err(ConnectFailure::UseTcp));
    assert_eq!(
        counter(pair._directory.path(), "client", "direct_tcp_numbers"),
        Some(1)
    );
    eventually("there is no other bank", || {
        (ours.towards(pair.at().ip()).len() > former).then_some(())
    });
    let (other, _) = ours.connect(own, pair.at(), None, WINDOW).unwrap().held();
    assert_ne!(other.slot(), bank.slot());
    assert_eq!(reserved.len(), bank.ends.in_use());
}
