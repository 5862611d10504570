//! Peers that die, return, and exceed their limits.

use std::io::{ErrorKind, Read, Write};

use rustix::process::{Signal, kill_process};
use toehold_node::fabric::Fabric;
use toehold_socket::{Node, TcpListener, TcpStream};

use crate::support::{Fabrics, eventually, wait_for_end};

const SERVER: &str = "10.77.0.1:80";

fn connection(fabrics: &Fabrics) -> (Fabric, Node, TcpStream, TcpStream) {
    let fabric = Fabric::existing(fabrics.0.path().join("default").to_str().unwrap()).unwrap();
    let [web, db] = ["web", "db"].map(|node| Node::attach(&fabric, node).unwrap());
    let listener = TcpListener::bind(&web, SERVER).unwrap();
    let client = TcpStream::connect(&db, SERVER).unwrap();
    let (server, _) = listener.accept().unwrap();
    (fabric, db, client, server)
}

/// An established connection is reset, and a new one fails with EHOSTUNREACH. Both happen at once:
/// no timer of TCP or of ARP has to expire.
#[test]
fn node_whose_engine_died_is_unreachable_until_it_is_back() {
    let fabrics = Fabrics::new();
    fabrics.succeeds("up web db");
    let (fabric, db, mut client, mut server) = connection(&fabrics);
    client.write_all(b"hello").unwrap();
    server.read_exact(&mut [0; 5]).unwrap();
    let engine = fabrics.engine("web");
    kill_process(engine, Signal::KILL).unwrap();
    wait_for_end(engine);
    let lost = client.read(&mut [0; 5]).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::ConnectionReset);
    for _ in 0..3 {
        let refused = TcpStream::connect(&db, SERVER).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::HostUnreachable);
    }
    fabrics.succeeds("up web --ipv4 10.77.0.1/16");
    let web = Node::attach(&fabric, "web").unwrap();
    let listener = TcpListener::bind(&web, SERVER).unwrap();
    eventually("a connection", || TcpStream::connect(&db, SERVER).is_ok());
    drop(listener);
}

/// The second shard of a node counts as one more peer of its process.
#[test]
fn peers_over_a_quota_are_refused_and_counted() {
    let fabrics = Fabrics::new();
    fabrics.succeeds("up web --peers-per-process 1");
    fabrics.succeeds("up db --shards 2");
    let counted = |name: &str| {
        let stat = fabrics.json("stat web --json");
        let counters = stat["counters"].as_array().unwrap().clone();
        let counter = counters.into_iter().find(|counter| counter["name"] == name);
        counter.and_then(|counter| counter["value"].as_u64()).unwrap()
    };
    eventually("a refusal", || counted("fabric_over_quota") > 0);
    assert_eq!(counted("fabric_connected"), 1);
    fabrics.succeeds("up late");
    eventually("a later peer", || counted("fabric_connected") == 2);
}
