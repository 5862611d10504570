//! Demultiplexing strategies of nodes.

use std::io::{Read, Write};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use toehold_demux_lab::set_up::{PACKETS, printed};
use toehold_node::fabric::Fabric;
use toehold_socket::{Node, TcpListener, TcpStream};

use crate::support::{Fabrics, eventually};

/// A counter of a node; `None` if the node does not count it.
fn counter(fabrics: &Fabrics, node: &str, name: &str) -> Option<u64> {
    let stat = fabrics.json(&format!("stat {node} --json"));
    let counters = stat["counters"].as_array().unwrap();
    let counter = counters.iter().find(|counter| counter["name"] == name)?;
    counter["value"].as_u64()
}

#[test]
fn every_strategy_serves_node_and_counts_its_work() {
    for strategy in [
        "bsd",
        "move-to-front",
        "sequent:3",
        "hashed-move-to-front:3",
        "flow-table",
    ] {
        let fabrics = Fabrics::new();
        fabrics.succeeds(&format!("up web --demux {strategy} --demux-counters yes"));
        fabrics.succeeds("up db");
        let fabric = Fabric::open(fabrics.0.path().join("default").to_str().unwrap()).unwrap();
        let [web, db] = ["web", "db"].map(|node| Node::attach(&fabric, node).unwrap());
        let listener = TcpListener::bind(&web, "10.77.0.1:80").unwrap();
        let mut streams: Vec<_> = (0..10)
            .map(|_| {
                let client = TcpStream::connect(&db, "10.77.0.1:80").unwrap();
                (client, listener.accept().unwrap().0)
            })
            .collect();
        for (client, server) in streams.iter_mut().rev() {
            client.write_all(b"question").unwrap();
            let mut said = [0; 8];
            server.read_exact(&mut said).unwrap();
            assert_eq!(&said, b"question");
        }
        let lookups = counter(&fabrics, "web", "demux_lookups").unwrap();
        let examined = counter(&fabrics, "web", "demux_examined").unwrap();
        assert!(
            lookups >= 30 && examined >= 10,
            "{strategy}: {examined} of {lookups}"
        );
        if strategy == "bsd" {
            // Each SYN has found no connection among the existing ones.
            assert!(examined >= 45, "{examined}");
        }
        assert_eq!(
            counter(&fabrics, "db", "demux_lookups"),
            None,
            "not counted unasked"
        );
    }
}

/// Two nodes, one for each end of connections that send messages in turn.
struct Ends {
    fabrics: Fabrics,
    streams: Vec<(TcpStream, TcpStream)>,
}

impl Ends {
    fn new(strategy: &str, connections: u32) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let current = limit.maximum;
        setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
        let fabrics = Fabrics::new();
        fabrics.succeeds(&format!("up web db --demux {strategy} --demux-counters yes"));
        let fabric = Fabric::open(fabrics.0.path().join("default").to_str().unwrap()).unwrap();
        let [web, db] = ["web", "db"].map(|node| Node::attach(&fabric, node).unwrap());
        let listener = TcpListener::bind(&web, "10.77.0.1:80").unwrap();
        let open = |_| {
            let client = TcpStream::connect(&db, "10.77.0.1:80").unwrap();
            (client, listener.accept().unwrap().0)
        };
        let streams = (0..connections).map(open).collect();
        Self { fabrics, streams }
    }

    /// The look-ups of both ends, and the entries they examined.
    fn counted(&self) -> [u64; 2] {
        let both = |name| {
            let of = |node| counter(&self.fabrics, node, name).unwrap();
            of("web") + of("db")
        };
        ["demux_lookups", "demux_examined"].map(both)
    }

    /// Sends one message of 100 bytes on each connection, and waits for its acknowledgement.
    fn send_on_all(&mut self) {
        let [before, _] = self.counted();
        let packets = 2 * self.streams.len() as u64;
        // All at once would take longer than the peer's retransmission timeout.
        for (client, server) in &mut self.streams {
            client.write_all(&[7; 100]).unwrap();
            server.read_exact(&mut [0; 100]).unwrap();
        }
        eventually("an acknowledgement of each message", || {
            self.counted()[0] >= before + packets
        });
    }
}

/// The demux paper's section 4, with its numbers of connections: the nodes' counts for the packets
/// of messages match the paper's calculation.
#[test]
fn cost_of_messages_on_thousands_of_connections_matches_paper() {
    for (strategy, connections) in [("bsd", 3600), ("sequent:19", 5040)] {
        let mut ends = Ends::new(strategy, connections);
        let [lookups, examined] = ends.counted();
        (0..2).for_each(|_| ends.send_on_all());
        let counted = ends.counted();
        let each = (counted[1] - examined) as f64 / (counted[0] - lookups) as f64;
        let packets = f64::from(PACKETS * connections);
        let reckoned = printed(strategy.parse().unwrap(), connections).unwrap() / packets;
        // Each also examines its cache, and chains are not all of one length.
        let ratio = each / reckoned;
        assert!((0.98..1.04).contains(&ratio), "{strategy}: {each} for a packet");
    }
}

#[test]
fn unknown_strategy_is_refused() {
    let fabrics = Fabrics::new();
    for wrong in ["linear", "sequent:0", "bsd:3"] {
        let said = fabrics.fails(&format!("up web --demux {wrong}"));
        assert!(said.contains("hashed-move-to-front[:chains]"), "{said}");
    }
    assert_eq!(fabrics.list("ps --json"), Value::Array(Vec::new()));
}
