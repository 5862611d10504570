//! Banks between nodes, as their processes find them.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use toehold_shm::direct::{Found, Side};
use toehold_stack::Event;
use zerocopy::FromZeros;

use crate::AttachedNode;
use crate::control::Connection;
use crate::engine::{Engine, Lifetime, Seat, StackHost};
use crate::fabric::Fabric;
use crate::settings::NodeSettings;

const PATIENCE: Duration = Duration::from_secs(60);

fn fabric(path: &Path) -> Fabric {
    Fabric::open(path.to_str().unwrap()).unwrap()
}

fn start(path: &Path, node: &str, direct: bool) -> Engine {
    let seat = Seat {
        fabric: fabric(path),
        node: node.to_owned(),
        settings: NodeSettings {
            direct,
            connections: 1024,
            payload_memory: 16 << 20,
            ..NodeSettings::default()
        },
        networks: Vec::new(),
        lifetime: Lifetime::UntilTold,
    };
    Engine::start(seat, StackHost::host).unwrap()
}

fn attach(path: &Path, node: &str) -> AttachedNode {
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
    assert!(bank.side() == Side::Opening && ours.is_there(&bank));
    let there = eventually("the server accepts in no bank of the client", || {
        let accepting = theirs.accepting();
        accepting
            .into_iter()
            .find(|there| there.peer_half().incarnation() == bank.half().incarnation())
    });
    assert_eq!(there.side(), Side::Accepting);
    let inode = |fd| rustix::fs::fstat(fd).unwrap().st_ino;
    assert_eq!(inode(there.peer_half().fd()), inode(bank.half().fd()));
    assert_eq!(inode(there.own_signals().fd()), inode(bank.peer_signals().fd()));
    // A node has a bank with itself, whatever address of its own is asked for.
    for own in [IpAddr::from([127, 0, 0, 1]), address(&engines[0])] {
        let own = ours.towards(own).pop().unwrap();
        assert_eq!((own.slot(), own.side()), (0, Side::Opening));
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
    let find = || -> Option<Found> { bank.peer_directory().find(at, 0) };
    assert_eq!(find(), None);
    let handle = server.shards().unwrap().get(0);
    let settings = toehold_stack::Settings::new_zeroed();
    let id = handle.enter().unwrap().listen(at, 9, &settings).unwrap();
    let found = find().unwrap();
    assert_eq!(found.listing.backlog, 9);
    handle.enter().unwrap().close(Event::Listener(id));
    assert_eq!(find(), None);
    assert!(!bank.peer_directory().is_current(&found));
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
    let (there, found) = theirs.identify_direct(given).unwrap().unwrap();
    assert_eq!(found, end);
    ours.release_direct(&holder);
    assert_eq!(theirs.direct_end(&there), None);
    let given = holder.descriptor().unwrap().try_clone_to_owned().unwrap();
    assert!(theirs.identify_direct(given).unwrap().is_none());
}
