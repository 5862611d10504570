//! Ports whose drivers were killed.

use super::port::{Node, frames_of, put};
use super::programs::Program;
use super::sleep::{sleep_on, wait};
use super::*;
use crate::NeighborChange;
use crate::mq::state::Offence;
use crate::mq::{BadRecord, Port};

/// What is beyond a gateway.
const BEYOND: u8 = 77;

fn random_from(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Frames from the first node to all others and back, each of which arrives once.
fn all_arrives(nodes: &mut [Mesh]) {
    for number in 1..nodes.len() as u8 {
        let payload = [number; 700];
        send(&mut nodes[0], number, &payload).unwrap();
        assert_eq!(take(&mut nodes[usize::from(number)]), [payload]);
        send(&mut nodes[usize::from(number)], 0, &payload).unwrap();
        assert_eq!(take(&mut nodes[0]), [payload]);
    }
}

#[test]
fn mend_rebuilds_state_from_records() {
    for (seed, count) in [(1, 4), (2, 4), (3, 4), (4, 20), (5, 20)] {
        println!("seed {seed}");
        let mut random = random_from(seed);
        let fabric = Fabric::new();
        let mut nodes: Vec<Mesh> = (0..count).map(|n| fabric.join(&format!("node-{n}"), n)).collect();
        nodes.push(
            Mesh::join(&MeshSettings {
                gateway: Gateway::Uplink,
                ..fabric.settings("gateway", count)
            })
            .unwrap(),
        );
        let peers = usize::from(count);
        drive(&mut nodes, |nodes| {
            nodes.iter().all(|node| node.connected() == peers)
        });
        let names = |node: &Mesh| {
            let mut names: Vec<_> = node
                .port
                .peers()
                .iter()
                .map(|peer| peer.name.to_string())
                .collect();
            names.sort_unstable();
            names
        };
        let before = names(&nodes[0]);
        for _ in 0..10 {
            nodes[0].port.state.disturb(&mut random);
            nodes[0].port.mend();
            assert_eq!(names(&nodes[0]), before);
            let mut told: Vec<_> = std::iter::from_fn(|| nodes[0].next_change()).collect();
            told.sort_unstable_by_key(|change| format!("{change:?}"));
            let joined = (1..=count).map(|number| NeighborChange::Joined(mac(number)));
            assert!(joined.clone().all(|change| told.contains(&change)) && told.len() == peers);
            all_arrives(&mut nodes);
            send(&mut nodes[0], BEYOND, b"abroad").unwrap();
            assert_eq!(take(nodes.last_mut().unwrap()), [b"abroad"]);
            while !nodes[0].prepare_sleep() {}
            send(&mut nodes[1], 0, b"wake up").unwrap();
            sleep_on(&mut nodes[0]);
            assert_eq!(take(&mut nodes[0]), [b"wake up"]);
        }
        assert!(nodes.iter().all(|node| node.statistics().corrupt == 0));
    }
}

#[test]
fn mend_finishes_dismissal_of_peer() {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    while nodes[0].next_change().is_some() {}
    let slot = nodes[0].port.state.live(0).unwrap();
    nodes[0].port.state.begin_to_dismiss(slot, None);
    nodes[0].port.mend();
    assert_eq!(nodes[0].port.connected(), 0);
    assert_eq!(nodes[0].next_change(), Some(NeighborChange::Left(mac(1))));
    assert!(nodes[0].port.has_departed());
    // Once only, and the slot is used again.
    nodes[0].agree();
    nodes[0].port.mend();
    assert!(!nodes[0].port.has_departed());
    assert_eq!(nodes[0].next_change(), None);
    drive(&mut nodes, |nodes| {
        nodes[1].statistics().lost == 1 && nodes.iter().all(|node| node.connected() == 1)
    });
    all_arrives(&mut nodes);
}

#[test]
fn mend_dismisses_all_shards_after_killed_dismissal() {
    let fabric = Fabric::new();
    let mut meshes = fabric.sharded([1, 3]);
    let slot = meshes[0].port.state.live(1).unwrap();
    let offence = Offence::Record(BadRecord::TooShort);
    meshes[0].port.state.begin_to_dismiss(slot, Some(offence));
    meshes[0].port.mend();
    assert_eq!(meshes[0].port.connected(), 0);
    let departed = std::iter::from_fn(|| meshes[0].port.departed());
    assert_eq!(departed.filter(|departed| departed.offence.is_some()).count(), 3);
}

/// What the program of the test below does: everything that a driver of the port may.
pub(super) fn use_it(port: &mut Port, seed: u64, goes_on: impl Fn() -> bool) {
    let mut random = random_from(seed);
    while goes_on() {
        for _ in 0..50 {
            let choice = random();
            for payload in frames_of(port, 1 + choice as usize % 9) {
                let _ = put(port, 1, &payload);
            }
            if choice >> 8 & 7 == 0 {
                let number = random() as u8;
                while put(port, 1, &[number; 1400]).is_ok() {}
            }
            if choice >> 16 & 3 != 0 {
                port.flush();
            }
            let _ = port.next_change();
            if port.prepare_sleep() && choice >> 24 & 1 == 0 {
                port.finish_sleep(0);
            }
        }
    }
}

/// One program's use of the port from beginning to end, which comes about when it may.
fn run_and_kill(program: &mut Program, peer: &mut Mesh, random: &mut impl FnMut() -> u64) {
    program.run(random());
    let well_formed = |payload: &Vec<u8>| payload.iter().all(|byte| *byte == payload[0]);
    for _ in 0..random() % 30 {
        for _ in 0..random() % 4 {
            let len = 1 + random() as usize % 2000;
            let _ = send(peer, 0, &vec![random() as u8; len]);
        }
        assert!(take(peer).iter().all(well_formed));
    }
    let sleeps = peer.prepare_sleep();
    program.kill();
    if sleeps {
        // Whatever it had to say, or not: it may have been killed before it rang.
        peer.finish_sleep(next_ms());
    }
}

#[test]
fn port_goes_on_after_kill_of_driver_at_any_point() {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = random_from(seed);
    let fabric = Fabric::new();
    let mut peer = fabric.join("peer", 1);
    let mut node = Node::new(&fabric.settings("node", 0), 1);
    node.meet(&mut peer);
    for round in 0..200 {
        let mut program = Program::start(&fabric, &node);
        program.drive(&node);
        run_and_kill(&mut program, &mut peer, &mut random);
        let port = &mut node.ports[0];
        while !peer.prepare_sleep() {
            take(&mut peer);
        }
        port.mend();
        assert!(wait(&peer, Duration::ZERO), "round {round}: it is rung");
        peer.finish_sleep(next_ms());
        // What was on the way arrives, and then everything does as usual.
        while !frames_of(port, 64).is_empty() {}
        port.flush();
        assert!(
            take(&mut peer)
                .iter()
                .all(|payload| payload.iter().all(|byte| *byte == payload[0]))
        );
        for payload in [vec![round as u8; 1], vec![round as u8; 1400]] {
            put(port, 1, &payload).unwrap();
            port.flush();
            assert_eq!(take(&mut peer), [&payload[..]], "round {round}");
            while !port.prepare_sleep() {}
            send(&mut peer, 0, &payload).unwrap();
            assert!(super::port::is_rung(port), "round {round}");
            port.finish_sleep(0);
            assert_eq!(frames_of(port, 8), [&payload[..]], "round {round}");
        }
        // A peer that waits for room is told.
        while put(port, 1, &[7; 1400]).is_ok() {}
        port.flush();
        while !port.prepare_sleep() {}
        assert!(
            !take(&mut peer).is_empty() && super::port::is_rung(port),
            "round {round}"
        );
        port.finish_sleep(0);
        assert_eq!((port.connected(), peer.connected()), (1, 1));
        assert!(!port.has_departed());
    }
    let statistics = peer.statistics();
    assert_eq!((statistics.corrupt, statistics.lost), (0, 0));
}
