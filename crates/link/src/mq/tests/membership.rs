//! Which nodes are peers of each other.

use toehold_shm::ring::Corrupt;

use super::*;
use crate::NeighborChange;
use crate::mq::state::Offence;
use crate::mq::{DirectoryError, JoinError, Loss, PeerState, Refusal};

fn state(node: &Mesh, peer: &str) -> Option<PeerState> {
    node.peers()
        .into_iter()
        .find(|info| info.name == name(peer))
        .map(|info| info.state)
}

/// Makes a node believe that a peer broke the rules.
fn offend(node: &mut Mesh, peer: &str) {
    let slot = node.membership.members.by_name(&name(peer).into()).unwrap();
    node.port.dismiss(slot, Some(Offence::Ring(Corrupt::Padding)));
    node.agree();
}

#[test]
fn nodes_find_each_other_in_any_order() {
    let fabric = Fabric::new();
    let nodes = fabric.nodes(6);
    for node in &nodes {
        assert_eq!(node.connected(), 5);
        let statistics = node.statistics();
        assert_eq!(
            (statistics.connected, statistics.lost, statistics.replaced),
            (5, 0, 0),
            "{:?}",
            describe(&nodes)
        );
        for info in node.peers() {
            let PeerState::Connected {
                mac: address,
                incarnation,
                same_user,
                ..
            } = info.state
            else {
                panic!("{info:?}")
            };
            let peer = nodes.iter().find(|peer| peer.name() == info.name).unwrap();
            assert_eq!(
                (address, incarnation, same_user),
                (peer.address(), peer.incarnation(), true)
            );
        }
    }
    let memory = nodes[0].memory_per_peer();
    assert!((1 << 20..(1 << 20) + 16_384).contains(&memory), "{memory}");
}

#[test]
fn memory_grows_with_connected_peers_only() {
    let fabric = Fabric::new();
    let join = |number: u8, max_peers| {
        let settings = MeshSettings {
            max_peers,
            ..fabric.settings(&format!("node-{number}"), number)
        };
        Mesh::join(&settings).unwrap()
    };
    let mut nodes = vec![join(0, 16), join(1, MeshSettings::MAX_PEERS)];
    let mut one = None;
    for count in [2, 3, 5, 9, 17] {
        nodes.extend((nodes.len()..count).map(|number| join(number as u8, 16)));
        let peers = count - 1;
        drive(&mut nodes, |nodes| {
            nodes.iter().all(|node| node.connected() == peers)
        });
        for (from, node) in nodes.iter_mut().enumerate() {
            for to in (0..count).filter(|to| *to != from) {
                send(node, to as u8, b"met").unwrap();
            }
        }
        for node in &mut nodes {
            assert_eq!(take(node).len(), peers);
        }
        for node in &nodes[..2] {
            let memory = node.membership.memory();
            assert_eq!(memory, *one.get_or_insert(memory) * peers as u64, "{count} nodes");
        }
    }
    // A peer that is sent much takes as much as its ring is long, and no other peer takes more.
    let bound = nodes[0].memory_per_peer() as u64;
    let (one, before) = (one.unwrap_or_default(), nodes[0].membership.memory());
    assert!((1..bound / 16).contains(&one), "{one} of {bound}");
    for _ in 0..2_000 {
        send(&mut nodes[0], 1, &[7; 1_000]).unwrap();
        take(&mut nodes[1]);
    }
    let grown = nodes[0].membership.memory() - before + one;
    assert!((bound - 16_384..=bound).contains(&grown), "{grown} of {bound}");
}

#[test]
fn one_of_simultaneous_handshakes_goes_on() {
    for _ in 0..20 {
        let fabric = Fabric::new();
        let (mut a, mut b) = (fabric.join("a", 0), fabric.join("b", 1));
        // Neither knows of the other's call when it makes its own.
        for (node, other) in [(&mut a, "b"), (&mut b, "a")] {
            node.membership.acquaintances.found(name(other).into(), 0);
        }
        let mut nodes = [a, b];
        drive(&mut nodes, |nodes| nodes.iter().all(|node| node.connected() == 1));
        for _ in 0..10 {
            nodes.iter_mut().for_each(turn);
        }
        send(&mut nodes[0], 1, b"forth").unwrap();
        assert_eq!(take(&mut nodes[1]), [b"forth"]);
        send(&mut nodes[1], 0, b"back").unwrap();
        assert_eq!(take(&mut nodes[0]), [b"back"]);
        assert!(
            nodes
                .iter()
                .all(|node| node.statistics().connected == 1 && node.membership.handshakes.is_empty())
        );
    }
}

#[test]
fn settle_waits_for_a_node_on_another_thread() {
    let fabric = Fabric::new();
    let mut b = fabric.join("b", 1);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let other = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            turn(&mut b);
        }
        b
    });
    let mut a = fabric.join("a", 0);
    assert!(a.settle(PATIENCE));
    assert_eq!(a.connected(), 1);
    stop.store(true, Ordering::Relaxed);
    let b = other.join().unwrap();
    // A node without a driver does not answer; its call times out.
    let mut c = fabric.join("c", 2);
    let asked = Instant::now();
    assert!(!c.settle(Duration::from_millis(50)));
    assert!(c.settle(PATIENCE), "given up after the handshake's own time");
    assert!(asked.elapsed() < Duration::from_secs(5));
    assert!(matches!(
        state(&c, "a"),
        Some(PeerState::Away {
            refusal: Some(Refusal::TimedOut)
        })
    ));
    drop((a, b));
}

#[test]
fn name_in_use_is_refused_and_dead_socket_is_replaced() {
    let fabric = Fabric::new();
    let first = fabric.join("twin", 0);
    let taken = Mesh::join(&fabric.settings("twin", 1));
    assert!(
        matches!(taken, Err(JoinError::Directory(DirectoryError::NameInUse(_)))),
        "{taken:?}"
    );
    let socket = fabric.path().join("twin.sock");
    assert!(socket.exists());
    drop(first);
    assert!(!socket.exists(), "a node takes its socket away");

    // A killed node leaves a socket without a listener.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let second = fabric.join("twin", 1);
    // Another program's file under the name is not removed.
    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, b"precious").unwrap();
    drop(second);
    assert!(socket.exists());
    let blocked = Mesh::join(&fabric.settings("twin", 2));
    assert!(
        matches!(blocked, Err(JoinError::Directory(DirectoryError::NotASocket(_)))),
        "{blocked:?}"
    );
    assert_eq!(std::fs::read(&socket).unwrap(), b"precious");
}

#[test]
fn settings_out_of_range_are_named() {
    let fabric = Fabric::new();
    let with = |change: fn(&mut MeshSettings)| {
        let mut settings = fabric.settings("a", 0);
        change(&mut settings);
        Mesh::join(&settings).map(drop)
    };
    assert!(matches!(
        with(|settings| settings.mtu = 67),
        Err(JoinError::Mtu(67))
    ));
    assert!(matches!(
        with(|settings| settings.mtu = 65_522),
        Err(JoinError::Mtu(65_522))
    ));
    assert!(matches!(
        with(|settings| settings.mac = [1, 0, 0, 0, 0, 0]),
        Err(JoinError::Address)
    ));
    assert!(matches!(
        with(|settings| settings.mac = [0; 6]),
        Err(JoinError::Address)
    ));
    for capacity in [0, 65_535, 65_537, 32 << 20] {
        let mut settings = fabric.settings("a", 0);
        settings.ring_capacity = capacity;
        assert!(
            matches!(Mesh::join(&settings), Err(JoinError::RingCapacity(_))),
            "{capacity}"
        );
    }
    let small = with(|settings| (settings.ring_capacity, settings.mtu) = (65_536, 65_521));
    assert!(matches!(small, Err(JoinError::RingTooSmall { .. })));
    assert!(matches!(
        with(|settings| settings.max_peers = 0),
        Err(JoinError::MaxPeers(0))
    ));
    assert!(matches!(
        with(|settings| settings.max_peers = 513),
        Err(JoinError::MaxPeers(513))
    ));
    let long = with(|settings| settings.directory.push("x".repeat(100)));
    assert!(
        matches!(long, Err(JoinError::Directory(DirectoryError::PathTooLong(_)))),
        "{long:?}"
    );
    let file = fabric.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let mut settings = fabric.settings("a", 0);
    settings.directory = file;
    assert!(matches!(
        Mesh::join(&settings),
        Err(JoinError::Directory(DirectoryError::Open { .. }))
    ));
}

#[test]
fn hardware_address_belongs_to_one_node() {
    let fabric = Fabric::new();
    let mut nodes = vec![fabric.join("a", 0), fabric.join("b", 1)];
    drive(&mut nodes, |nodes| {
        nodes[0].connected() == 1 && nodes[1].connected() == 1
    });
    // Taken by a peer, seen from one side; taken by oneself, from the other.
    nodes.push(fabric.join("c", 1));
    drive(&mut nodes, |nodes| {
        ["a", "b"].iter().all(|peer| {
            let refused = PeerState::Away {
                refusal: Some(Refusal::DuplicateAddress),
            };
            state(&nodes[2], peer) == Some(refused)
        })
    });
    assert_eq!(nodes[2].connected(), 0);
    send(&mut nodes[0], 1, b"still b's").unwrap();
    assert_eq!(take(&mut nodes[1]), [b"still b's"]);
    assert!(take(&mut nodes[2]).is_empty());
    // When the rightful owner goes, the other one gets in by itself.
    nodes.remove(1);
    drive(&mut nodes, |nodes| {
        nodes[0].connected() == 1 && nodes[1].connected() == 1
    });
    send(&mut nodes[0], 1, b"now c's").unwrap();
    assert_eq!(take(&mut nodes[1]), [b"now c's"]);
}

#[test]
fn node_with_all_its_peers_refuses_more() {
    let fabric = Fabric::new();
    let hub = Mesh::join(&MeshSettings {
        max_peers: 2,
        ..fabric.settings("hub", 0)
    })
    .unwrap();
    let mut nodes = vec![hub];
    for number in 1..=2 {
        nodes.push(fabric.join(&format!("n{number}"), number));
        drive(&mut nodes, |nodes| nodes[0].connected() == usize::from(number));
    }
    nodes.push(fabric.join("n3", 3));
    let crowded = PeerState::Away {
        refusal: Some(Refusal::Crowded),
    };
    drive(&mut nodes, |nodes| {
        nodes[3].connected() == 2 && state(&nodes[3], "hub") == Some(crowded)
    });
    nodes.remove(1);
    drive(&mut nodes, |nodes| {
        nodes[0].connected() == 2 && nodes[2].connected() == 2
    });
}

#[test]
fn restarted_node_replaces_its_former_life() {
    let fabric = Fabric::new();
    let mut nodes = vec![fabric.join("a", 0), fabric.join("b", 1)];
    drive(&mut nodes, |nodes| {
        nodes[0].connected() == 1 && nodes[1].connected() == 1
    });
    assert_eq!(nodes[0].next_change(), Some(NeighborChange::Joined(mac(1))));
    let ghost = nodes.pop().unwrap();
    let old = ghost.incarnation();
    drop(ghost);
    // The new life dials before the hang-up of the old one was noticed.
    nodes.push(fabric.join("b", 1));
    drive(&mut nodes, |nodes| nodes[1].connected() == 1);
    let Some(PeerState::Connected { incarnation, .. }) = state(&nodes[0], "b") else {
        panic!()
    };
    assert_ne!(incarnation, old);
    assert_eq!(incarnation, nodes[1].incarnation());
    let statistics = nodes[0].statistics();
    assert_eq!(statistics.connected, 2);
    assert_eq!(statistics.replaced + statistics.lost, 1);
    assert!(matches!(
        nodes[0].last_loss(),
        Some(Loss::Replaced(_) | Loss::HungUp(_))
    ));
    assert_eq!(nodes[0].next_change(), Some(NeighborChange::Left(mac(1))));
    assert_eq!(nodes[0].next_change(), Some(NeighborChange::Joined(mac(1))));
    assert_eq!(nodes[0].next_change(), None);
    send(&mut nodes[0], 1, b"new life").unwrap();
    assert_eq!(take(&mut nodes[1]), [b"new life"]);
}

#[test]
fn lost_connection_between_living_nodes_is_made_again() {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    for _ in 0..3 {
        // Cut from one side only, as after an offence.
        offend(&mut nodes[0], "node-1");
        assert_eq!(nodes[0].connected(), 0);
        drive(&mut nodes, |nodes| {
            nodes[1].statistics().lost != 0 && nodes.iter().all(|node| node.connected() == 1)
        });
    }
    send(&mut nodes[0], 1, b"again").unwrap();
    assert_eq!(take(&mut nodes[1]), [b"again"]);
}

#[test]
fn gone_node_is_forgotten_after_a_while() {
    let fabric = Fabric::new();
    let mut nodes = Vec::from(fabric.pair());
    nodes.pop();
    drive(&mut nodes, |nodes| nodes[0].connected() == 0);
    assert_eq!(nodes[0].statistics().lost, 1);
    assert_eq!(send(&mut nodes[0], 1, b"?"), Err(TransmitError::Unreachable));
    assert!(matches!(state(&nodes[0], "node-1"), Some(PeerState::Away { .. })));
}

#[test]
fn driver_hears_of_peer_cut_off_before_it_sleeps() {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let a = &mut nodes[0];
    assert_eq!(a.next_change(), Some(NeighborChange::Joined(mac(1))));
    a.receive(0, 1, &mut |_| {});
    offend(a, "node-1");
    assert!(!a.prepare_sleep(), "there is something to ask about");
    assert_eq!(a.next_change(), Some(NeighborChange::Left(mac(1))));
    assert!(a.prepare_sleep());
}

/// A thread that slept before its first housekeeping never dialled, and its node lacked peers.
#[test]
fn member_asleep_before_its_first_housekeeping_is_woken_to_dial() {
    let fabric = Fabric::new();
    let _first = crate::mq::Membership::join(&fabric.settings("first", 1)).unwrap();
    let second = crate::mq::Membership::join(&fabric.settings("second", 2)).unwrap();
    assert!(second.wait(Instant::now() + PATIENCE));
}
