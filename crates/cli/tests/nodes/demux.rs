//! Strategies of demultiplexing, chosen for nodes.

use std::io::{Read, Write};

use serde_json::Value;
use toehold_node::fabric::Fabric;
use toehold_socket::{Node, TcpListener, TcpStream};

use crate::support::Fabrics;

/// A counter of a node; `None` if it does not count that.
fn counter(fabrics: &Fabrics, node: &str, name: &str) -> Option<u64> {
    let stat = fabrics.json(&format!("stat {node} --json"));
    let counters = stat["counters"].as_array().unwrap();
    let counter = counters.iter().find(|counter| counter["name"] == name)?;
    counter["value"].as_u64()
}

#[test]
fn every_strategy_serves_a_node_and_says_what_it_costs() {
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
            // Each SYN has found nothing among those there were.
            assert!(examined >= 45, "{examined}");
        }
        assert_eq!(
            counter(&fabrics, "db", "demux_lookups"),
            None,
            "not counted unasked"
        );
    }
}

#[test]
fn what_is_no_strategy_is_refused() {
    let fabrics = Fabrics::new();
    for wrong in ["linear", "sequent:0", "bsd:3"] {
        let said = fabrics.fails(&format!("up web --demux {wrong}"));
        assert!(said.contains("hashed-move-to-front[:chains]"), "{said}");
    }
    assert_eq!(fabrics.json("ps --json"), Value::Array(Vec::new()));
}
