//! Fabrics of many engine processes.

use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use toehold_node::fabric::Fabric;
use toehold_socket::{Node, TcpListener, TcpStream};

use crate::support::{Fabrics, eventually};

/// Engines started by one command.
const AT_ONCE: usize = 16;

const SETTINGS: &str = "--peers 512 --payload-memory 1M --connections 1024 --json";

/// Bytes of the ring to a peer that has only announced itself; a whole ring has 1 MiB.
const MOST_OF_A_RING: u64 = 64 << 10;

/// Engine processes in a fabric; each is a peer of all others.
struct Crowd {
    fabrics: Fabrics,
    fabric: Fabric,
    /// The nodes' addresses.
    nodes: Vec<IpAddr>,
}

impl Crowd {
    fn new() -> Crowd {
        // For each peer, an attached process has its doorbell.
        let maximum = getrlimit(Resource::Nofile).maximum;
        let current = maximum;
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
        let fabrics = Fabrics::new();
        let path = fabrics.0.path().join("default");
        std::fs::create_dir(&path).unwrap();
        let fabric = Fabric::existing(path.to_str().unwrap()).unwrap();
        Crowd {
            fabrics,
            fabric,
            nodes: Vec::new(),
        }
    }

    fn grow(&mut self, nodes: usize) {
        while self.nodes.len() < nodes {
            let first = self.nodes.len();
            let names: Vec<_> = (first..nodes.min(first + AT_ONCE))
                .map(|node| format!("n{node}"))
                .collect();
            let started = self.fabrics.list(&format!("up {} {SETTINGS}", names.join(" ")));
            self.nodes.extend(started.as_array().unwrap().iter().map(address));
        }
    }

    /// The nodes' status of their peers.
    fn stacks(&self) -> Vec<Value> {
        let lines = self.fabrics.list("ps --json");
        let lines = lines.as_array().unwrap().iter();
        lines.map(|line| line["status"]["stack"].clone()).collect()
    }

    fn all_have(&self, peers: usize) -> bool {
        self.stacks().iter().all(|stack| stack["peers"] == peers)
    }

    fn attach(&self, node: usize) -> Node {
        Node::attach(&self.fabric, &format!("n{node}")).unwrap()
    }
}

fn address(started: &Value) -> IpAddr {
    let (address, _) = started["ipv4"].as_str().unwrap().split_once('/').unwrap();
    address.parse().unwrap()
}

/// No program listens there, so that the other stack refuses.
fn is_refused_by(node: &Node, other: IpAddr) -> bool {
    TcpStream::connect(node, (other, 9)).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn talk(crowd: &Crowd, node: &Node, other: usize) {
    let theirs = crowd.attach(other);
    let listener = TcpListener::bind(&theirs, (crowd.nodes[other], 80)).unwrap();
    let mut here = TcpStream::connect(node, (crowd.nodes[other], 80)).unwrap();
    let (mut there, _) = listener.accept().unwrap();
    say(&mut here, &mut there);
    say(&mut there, &mut here);
}

fn say(one: &mut TcpStream, another: &mut TcpStream) {
    let mut heard = [0; 5];
    one.write_all(b"hello").unwrap();
    another.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
}

fn everybody_is_met(sizes: &[usize]) {
    let mut crowd = Crowd::new();
    for &size in sizes {
        crowd.grow(size);
        eventually("their meeting", || crowd.all_have(size - 1));
        // The size of the rings follows the number of peers.
        for stack in crowd.stacks() {
            let each = stack["peer_memory"].as_u64().unwrap() / (size as u64 - 1);
            assert!((1..MOST_OF_A_RING).contains(&each), "{each}");
        }
        println!(
            "{size} nodes: {}",
            crowd.fabrics.succeeds("stat n0").lines().nth(2).unwrap()
        );
    }
    let node = crowd.attach(0);
    let (others, last) = (&crowd.nodes[1..], crowd.nodes.len() - 1);
    assert!(others.iter().all(|other| is_refused_by(&node, *other)));
    for other in [1, last / 2, last] {
        talk(&crowd, &node, other);
    }
    // The memory of a node that left is used again when it returns.
    crowd.fabrics.succeeds("down n5");
    eventually("that it is gone", || crowd.all_have(last - 1));
    let again = crowd.fabrics.list(&format!("up n5 {SETTINGS}"));
    eventually("that it is back", || crowd.all_have(last));
    assert!(is_refused_by(&node, address(&again[0])));
}

#[test]
fn node_among_many_meets_all_others() {
    everybody_is_met(&[16, 64]);
}

#[test]
#[ignore = "slow: 512 engine processes take minutes, 10 GiB, and 2 million descriptors"]
fn node_among_512_meets_all_others() {
    everybody_is_met(&[16, 64, 512]);
}
