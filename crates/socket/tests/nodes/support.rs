//! A fabric with nodes whose engines run in this process, as they would in their own.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use toehold_node::Placement;
use toehold_node::control::{Connection, NodeStatus};
use toehold_node::engine::{Engine, Lifetime, Seat, StackHost};
use toehold_node::settings::NodeSettings;
use toehold_socket::{Fabric, Node, TcpListener, TcpStream};

use crate::shared::PLACEMENT;
pub(crate) use crate::shared::{pattern, within};

/// A fabric of its own, and the engines of its nodes.
pub(crate) struct World {
    engines: Vec<Engine>,
    directory: TempDir,
}

/// Engines are threads of the test's process here. While that starts a program, the program has
/// copies of all descriptors until it is executed. An engine counts it as one more process that has
/// them.
static STARTING: RwLock<()> = RwLock::new(());

/// Starts a program, unless a test wants no copies just now.
pub(crate) fn spawn(command: &mut Command) -> Child {
    let _copies = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn().unwrap()
}

/// While this is held, no program has copies of what an engine has.
pub(crate) fn without_copies() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub(crate) fn new(names: &[&str], placement: Placement) -> World {
        let nodes: Vec<_> = names.iter().map(|name| (*name, shards())).collect();
        World::sharded(&nodes, placement)
    }

    /// Nodes with these numbers of shards.
    pub(crate) fn sharded(nodes: &[(&str, u16)], placement: Placement) -> World {
        let directory = tempfile::tempdir().unwrap();
        let engines = nodes
            .iter()
            .map(|(name, shards)| start_sharded(directory.path(), name, placement, *shards));
        World {
            engines: engines.collect(),
            directory,
        }
    }

    /// A node with direct connections, and one without.
    pub(crate) fn half_direct(names: [&str; 2]) -> World {
        let directory = tempfile::tempdir().unwrap();
        let how = (Placement::default(), shards());
        let engines = names
            .iter()
            .zip([true, false])
            .map(|(name, direct)| start_with(directory.path(), name, how, direct));
        World {
            engines: engines.collect(),
            directory,
        }
    }

    /// Ends the engines before the directory.
    pub(crate) fn end_engines(&mut self) {
        self.engines.clear();
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn attach(&self, node: &str) -> Node {
        attach(self.path(), node)
    }

    /// The node's IPv4 address.
    pub(crate) fn address(&self, node: usize) -> Ipv4Addr {
        self.engines[node].record().ipv4.addr()
    }
}

pub(crate) fn fabric(path: &Path) -> Fabric {
    Fabric::open(path.to_str().unwrap()).unwrap()
}

pub(crate) fn attach(path: &Path, node: &str) -> Node {
    Node::attach(&fabric(path), node).unwrap()
}

/// All tests can be run with several shards: `TOEHOLD_TEST_SHARDS=3 cargo test …`.
fn shards() -> u16 {
    let shards = std::env::var("TOEHOLD_TEST_SHARDS");
    shards.map_or(1, |shards| shards.parse().unwrap())
}

pub(crate) fn start_engine(path: &Path, name: &str, placement: Placement) -> Engine {
    start_sharded(path, name, placement, shards())
}

/// A node whose connections are all of TCP.
pub(crate) fn start_sharded(path: &Path, name: &str, placement: Placement, shards: u16) -> Engine {
    start_with(path, name, (placement, shards), false)
}

fn start_with(path: &Path, name: &str, (placement, shards): (Placement, u16), direct: bool) -> Engine {
    let seat = Seat {
        fabric: fabric(path),
        node: name.to_owned(),
        settings: NodeSettings {
            placement: in_placement(placement),
            shards,
            direct,
            connections: 4096,
            payload_memory: 32 << 20,
            ..NodeSettings::default()
        },
        networks: Vec::new(),
        lifetime: Lifetime::UntilTold,
    };
    Engine::start(seat, StackHost::host).unwrap()
}

fn in_placement(placement: Placement) -> Placement {
    match std::env::var(PLACEMENT) {
        Ok(name) if placement == Placement::default() => name.parse().unwrap(),
        _ => placement,
    }
}

/// How a node is.
pub(crate) fn status(path: &Path, node: &str) -> NodeStatus {
    Connection::open(&fabric(path), node).unwrap().status().unwrap()
}

/// How often a node has begun anew.
pub(crate) fn resets(path: &Path, node: &str) -> u64 {
    counter(path, node, "node_resets")
}

/// How often its stack was mended.
pub(crate) fn mends(path: &Path, node: &str) -> u64 {
    counter(path, node, "node_mends")
}

fn counter(path: &Path, node: &str, name: &str) -> u64 {
    let counters = Connection::open(&fabric(path), node).unwrap().counters().unwrap();
    let counter = counters.iter().find(|counter| counter.name == name);
    counter.unwrap().value
}

/// Asserts that a node holds nothing of any process any more.
pub(crate) fn assert_empty(path: &Path, node: &str) {
    eventually("the node holds something of somebody who is gone", || {
        let stack = status(path, node).stack;
        let held = [
            stack.connections,
            stack.listeners,
            stack.waiters,
            stack.interests,
            stack.polls,
            stack.possessions,
        ];
        let held = (held, stack.payload_used);
        (held == ([0; 6], 0)).then_some(()).ok_or(held)
    });
}

/// What is counted where something is dropped or refused, beside all that begins with
/// `drop_`. What is sent twice on a machine that has other things to do is none of that.
const DROPS: [&str; 10] = [
    "icmp_errors_limited",
    "neighbor_evictions",
    "neighbor_table_full",
    "tcp_paws_drops",
    "tcp_bad_acks",
    "tcp_out_of_order_drops",
    "tcp_aborted_on_timeout",
    "tcp_time_wait_overflows",
    "context_memory_out",
    "payload_memory_out",
];

/// What finds nothing but what was there before, or asks where the window is.
const SENT_TWICE: [&str; 3] = ["tcp_retransmits", "tcp_window_probes", "tcp_keepalive_probes"];

/// What may become of it: the peer has it already, or has forgotten the connection.
const UNWANTED: [&str; 2] = ["tcp_out_of_window", "tcp_no_connection"];

/// Asserts that the nodes of a world have dropped nothing. No packet gets lost between them, and no
/// peer sends what is not wanted.
pub(crate) fn assert_nothing_dropped(path: &Path, nodes: &[&str]) {
    let mut sums = HashMap::<String, u64>::new();
    for node in nodes {
        let counters = Connection::open(&fabric(path), node).unwrap().counters().unwrap();
        for counter in &counters {
            *sums.entry(counter.name.clone()).or_default() += counter.value;
        }
        let drops = |name: &str| name.starts_with("drop_") || DROPS.contains(&name);
        let (drops, others): (Vec<_>, Vec<_>) =
            counters.into_iter().partition(|counter| drops(&counter.name));
        let known = DROPS
            .iter()
            .all(|name| drops.iter().any(|counter| counter.name == *name));
        assert!(known && !others.is_empty());
        let dropped: Vec<_> = drops.into_iter().filter(|counter| counter.value > 0).collect();
        assert!(dropped.is_empty(), "{node} has dropped: {dropped:?}");
    }
    let twice: u64 = SENT_TWICE.iter().map(|name| sums[*name]).sum();
    for name in UNWANTED {
        assert!(sums[name] <= twice, "{name}: of {twice} sent twice, {sums:?}");
    }
}

/// Waits until it is so; fails, with what is instead, if it never is.
pub(crate) fn eventually<T, E: std::fmt::Debug>(what: &str, mut test: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match test() {
            Ok(value) => return value,
            Err(instead) => assert!(Instant::now() < deadline, "{what}: {instead:?}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends what comes back to where it comes from, until that ends.
pub(crate) fn give_back(stream: &mut TcpStream) {
    let mut bytes = vec![0; 1 << 14];
    while let Ok(len @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
}

/// Serves echoes on a node until the process ends: whatever becomes of its connections.
pub(crate) fn serve_echoes(node: &Node, address: Ipv4Addr) -> SocketAddr {
    let listener = TcpListener::bind(node, (address, 0)).unwrap();
    let local = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || give_back(&mut stream));
        }
    });
    local
}

/// Numbers that a seed determines (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
