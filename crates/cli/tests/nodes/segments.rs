//! Fabrics joined through memory, and kernel interfaces on it. Processes use a file in place of the
//! device memory of virtual machines.

use std::fs;

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use toehold_node::fabric::Fabric;
use toehold_socket::Node;

use crate::support::{Fabrics, engine_of, eventually, wait_for_end};
use crate::uplinks::both_ways;
use crate::uplinks::kernel::{namespace, talk};

const SIDES: [&str; 2] = ["left", "right"];

/// A fabric on each side of a segment: node `a` on the left, node `b` on the right.
struct Sides(Fabrics);

impl Sides {
    fn new() -> Sides {
        let fabrics = Fabrics::new();
        fabrics.succeeds("up --fabric left a");
        fabrics.succeeds("up --fabric right b --ipv4 10.77.0.2/16 --ipv6 fd77::2/64");
        let sides = Sides(fabrics);
        SIDES.iter().for_each(|side| sides.uplink(side));
        sides.wait();
        sides
    }

    fn segment(&self) -> String {
        self.0.0.path().join("segment").display().to_string()
    }

    fn uplink(&self, side: &str) {
        let segment = self.segment();
        self.0.succeeds(&format!(
            "uplink --fabric {side} to-{side} --segment {segment} --segment-size 4M --segment-members 3"
        ));
    }

    fn counter(&self, side: &str, name: &str) -> u64 {
        let shown = self.0.json(&format!("stat --fabric {side} to-{side} --json"));
        let mut counters = shown["counters"].as_array().unwrap().iter();
        let counter = counters.find(|counter| counter["name"] == name);
        counter.unwrap_or_else(|| panic!("no {name}"))["value"]
            .as_u64()
            .unwrap()
    }

    /// Waits until the uplinks know each other and their nodes.
    fn wait(&self) {
        eventually("the fabrics' union", || {
            SIDES.iter().all(|side| {
                let shown = self.0.json(&format!("stat --fabric {side} to-{side} --json"));
                shown["status"]["stack"]["peers"].as_u64() >= Some(1)
                    && self.counter(side, "segment_members_connected") == 1
            })
        });
    }

    fn attach(&self, side: &str, node: &str) -> Node {
        let fabric = Fabric::existing(self.0.0.path().join(side).to_str().unwrap()).unwrap();
        Node::attach(&fabric, node).unwrap()
    }
}

impl Drop for Sides {
    fn drop(&mut self) {
        for side in SIDES {
            let _ = self.0.run(&format!("down --fabric {side} --all"));
        }
    }
}

#[test]
fn fabrics_joined_through_memory_are_one_network() {
    let sides = Sides::new();
    let (a, b) = (sides.attach("left", "a"), sides.attach("right", "b"));
    both_ways(&a, &b, "10.77.0.1:80");
    both_ways(&b, &a, "[fd77::2]:80");
    assert!(
        sides.counter("left", "mesh_to_segment_super_frames") > 0,
        "long frames stay long"
    );

    // A killed uplink has left its number behind; the next one takes another.
    let engine = engine_of(&sides.0.0.path().join("right/to-right.json"));
    kill_process(engine, Signal::KILL).unwrap();
    wait_for_end(engine);
    sides.uplink("right");
    eventually("the loss of the dead one", || {
        sides.counter("left", "segment_members_present") == 1
    });
    sides.wait();
    both_ways(&a, &b, "10.77.0.1:81");
    assert_eq!(sides.counter("right", "segment_member"), 2);
    assert_eq!(sides.counter("left", "segment_broken"), 0);
}

#[test]
fn impossible_segment_is_explained() {
    let fabrics = Fabrics::new();
    let says = |line: &str, why: &str| {
        let said = fabrics.fails(line);
        assert!(said.contains(why), "{line}: {said}");
    };
    let directory = fabrics.0.path().display().to_string();
    says(
        &format!("uplink x --segment {directory}/none"),
        "give a length in bytes to create it",
    );
    let segment = format!("uplink x --segment {directory}/segment");
    says(
        &format!("{segment} --segment-size lots"),
        "choose a number of bytes, such as 16M",
    );
    says(
        &format!("{segment} --segment-size 64K"),
        "are too few for a segment of 8 members",
    );
    says(&format!("{segment} --segment-members 1"), "from 2 to 64 members");
    says(
        &format!("{segment} --member 1 --udp 127.0.0.1:0"),
        "cannot be used with",
    );
    fs::write(format!("{directory}/other"), [1; 65_536]).unwrap();
    says(
        &format!("uplink x --segment {directory}/other"),
        "fill it with zeros",
    );
    let left = fabrics.0.path().join("default");
    assert!(!left.exists(), "nothing stays behind");
}

#[test]
#[ignore = "needs namespaces, tun"]
fn kernels_exchange_data_through_memory() {
    let fabrics = Fabrics::new();
    let spaces = [namespace(), namespace()];
    let segment = fabrics.0.path().join("segment").display().to_string();
    for (number, (_, path)) in spaces.iter().enumerate() {
        fabrics.succeeds(&format!(
            "device toe{number} --netns {path} --segment {segment} --segment-size 4M --member {number}"
        ));
    }
    let [(a, _), (b, _)] = &spaces;
    for to in ["10.77.0.1", "fd77::1"] {
        talk([a, b], to.parse().unwrap());
    }
}

#[test]
#[ignore = "needs namespaces, tun"]
fn interfaces_with_same_name_on_two_hosts_coexist() {
    let fabrics = Fabrics::new();
    let spaces = [namespace(), namespace()];
    let segment = fabrics.0.path().join("segment").display().to_string();
    let device = |name: &str, side: usize| {
        let (side, path) = (SIDES[side], &spaces[side].1);
        fabrics.list(&format!(
            "device {name} --json --bridged --fabric {side} --netns {path} \
             --segment {segment} --segment-size 4M --segment-members 4"
        ))
    };
    let first = [0, 1].map(|side| device("toe0", side));
    let address = |records: &Value| records[0]["mac"].as_str().unwrap().to_owned();
    assert_ne!(address(&first[0]), address(&first[1]));
    let is_heard_of = |name: &str, side: &str| {
        let shown = fabrics.json(&format!("stat --fabric {side} toe0 --json"));
        shown["status"]["stack"]["beyond"].to_string().contains(name)
    };
    device("toe1", 0);
    eventually("word of the other host", || is_heard_of("toe1", "right"));
    // Regression: it was refused, since the names behind a bridge port counted as the fabric's.
    device("toe1", 1);
    for side in SIDES {
        fabrics.succeeds(&format!("down --fabric {side} --all"));
    }
}
