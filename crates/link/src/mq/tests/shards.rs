//! Nodes with several shards: each is a member of its own, and frames go to the one
//! they are for.

use super::hostile::Liar;
use super::*;
use crate::NeighborChange;
use crate::mq::{PeerState, Refusal};
use crate::steering::Steering;

pub(super) const KEY: [u8; 16] = *b"everybody knows ";

impl Fabric {
    fn shard(&self, name: &str, number: u8, steering: Steering, life: u64) -> Mesh {
        Mesh::join(&MeshSettings {
            steering,
            incarnation: Some(life),
            ..self.settings(name, number)
        })
        .unwrap()
    }

    /// A node with shards, which have not been driven yet.
    fn shards(&self, name: &str, number: u8, count: u8, life: u64) -> Vec<Mesh> {
        let shard = |index| self.shard(name, number, steering(index, count), life);
        (0..count).map(shard).collect()
    }

    /// Two nodes with shards, connected.
    pub(super) fn sharded(&self, counts: [u8; 2]) -> Vec<Mesh> {
        let mut meshes = self.shards("node-0", 0, counts[0], 1);
        meshes.extend(self.shards("node-1", 1, counts[1], 2));
        connect(&mut meshes, counts);
        meshes
    }
}

/// Drives the shards of two nodes until each knows all of the other's.
fn connect(meshes: &mut [Mesh], counts: [u8; 2]) {
    drive(meshes, |meshes| {
        let (one, other) = meshes.split_at(counts[0].into());
        one.iter().all(|mesh| mesh.connected() == other.len())
            && other.iter().all(|mesh| mesh.connected() == one.len())
    });
}

fn steering(index: u8, count: u8) -> Steering {
    Steering {
        index,
        count,
        key: KEY,
    }
}

pub(super) fn octets(number: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, number]
}

/// The beginning of a TCP segment over IPv4 from port `port` to port 80, and what is
/// sent with it.
pub(super) fn segment(from: u8, to: u8, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [mac(to), mac(from)].concat();
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend((40 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
    frame.extend(port.to_be_bytes());
    frame.extend(80_u16.to_be_bytes());
    frame.extend([0; 16]);
    frame.extend(payload);
    frame
}

pub(super) fn transmit(mesh: &mut Mesh, frame: &[u8]) -> Result<(), TransmitError> {
    let sent = mesh.transmit(&Transmit {
        headers: frame,
        payload: &Gather::EMPTY,
        offload: PARTIAL,
    });
    mesh.flush();
    sent
}

/// Whole frames, as they were sent.
pub(super) fn frames(mesh: &mut Mesh) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while mesh.receive(0, 64, &mut |frame| frames.push(whole(frame))) != 0 {}
    frames
}

#[test]
fn segments_reach_their_shard_and_no_other() {
    for counts in [[1, 3], [3, 1], [2, 2], [4, 3]] {
        let fabric = Fabric::new();
        let mut meshes = fabric.sharded(counts);
        let (one, other) = meshes.split_at_mut(counts[0].into());
        let receiver = steering(0, counts[1]);
        let mut used = vec![0; counts[1].into()];
        for port in 1000..1200 {
            let sender = usize::from(port) % one.len();
            let frame = segment(0, 1, port, b"for one");
            transmit(&mut one[sender], &frame).unwrap();
            let flow = Flow::between((octets(0), port), (octets(1), 80));
            let owner = usize::from(receiver.shard_of(&flow));
            used[owner] += 1;
            for (index, mesh) in other.iter_mut().enumerate() {
                let expected = if index == owner {
                    vec![frame.clone()]
                } else {
                    vec![]
                };
                assert_eq!(frames(mesh), expected, "{counts:?}, port {port}, shard {index}");
            }
        }
        assert!(used.iter().all(|&used| used > 20), "{used:?}");
    }
}

/// The datagrams of one flow arrive in the order in which they were sent.
#[test]
fn datagrams_reach_the_shard_of_their_flow_and_no_other() {
    let fabric = Fabric::new();
    let mut meshes = fabric.sharded([1, 3]);
    let (one, other) = meshes.split_at_mut(1);
    let mut expected = vec![Vec::new(); other.len()];
    for number in 0..3 {
        for port in 1000..1060 {
            let mut frame = segment(0, 1, port, &[number]);
            frame[23] = toehold_wire::protocol::UDP;
            transmit(&mut one[0], &frame).unwrap();
            let flow = Flow::between((octets(0), port), (octets(1), 80));
            expected[usize::from(steering(0, 3).shard_of(&flow))].push(frame);
        }
    }
    assert!(expected.iter().all(|frames| frames.len() > 20));
    for (mesh, expected) in other.iter_mut().zip(expected) {
        assert_eq!(frames(mesh), expected);
    }
}

#[test]
fn frames_without_flow_reach_all_shards() {
    let fabric = Fabric::new();
    let counts = [2, 3];
    let mut meshes = fabric.sharded(counts);
    let (one, other) = meshes.split_at_mut(2);
    let mut fragment = segment(0, 1, 1000, b"the first of several");
    fragment[20] = 0x20;
    let question = frame_to([0xff; 6], mac(0), b"who has this address?");
    let answer = frame_to(mac(1), mac(0), b"I have");
    for frame in [fragment, question, answer] {
        transmit(&mut one[1], &frame).unwrap();
        for mesh in other.iter_mut() {
            assert_eq!(frames(mesh), std::slice::from_ref(&frame));
        }
        assert!(frames(&mut one[0]).is_empty(), "not to the node's own");
    }
    assert_eq!(
        one[1].transmit(&Transmit {
            headers: &frame_to(mac(9), mac(0), b"nobody"),
            payload: &Gather::EMPTY,
            offload: PARTIAL,
        }),
        Err(TransmitError::Unreachable)
    );
}

#[test]
fn payload_is_kept_until_its_shard_has_read_it() {
    let fabric = Fabric::new();
    let mut payload = shared_payload(4);
    let mut meshes = vec![
        Mesh::join(&MeshSettings {
            payload: Some(payload.arenas().clone()),
            ..fabric.settings("node-0", 0)
        })
        .unwrap(),
    ];
    meshes.extend(fabric.shards("node-1", 1, 2, 2));
    connect(&mut meshes, [1, 2]);
    let (sender, receivers) = meshes.split_at_mut(1);
    let mut queue = toehold_shm::ByteQueue::EMPTY;
    for port in 1000..1016 {
        let flow = Flow::between((octets(0), port), (octets(1), 80));
        let owner = usize::from(steering(0, 2).shard_of(&flow));
        sender[0]
            .transmit(&Transmit {
                headers: &segment(0, 1, port, &[]),
                payload: &Gather::EMPTY,
                offload: PARTIAL,
            })
            .unwrap();
        sender[0].flush();
        assert_eq!(frames(&mut receivers[owner]).len(), 1);
        // What the link said of the frame before is of the shard that the next one is for.
        let arena = sender[0].payload_arena();
        assert_eq!(queue.append_in(&mut payload, arena, &[7; 2000]), 2000);
        let sent = sender[0].transmit(&Transmit {
            headers: &segment(0, 1, port, &[]),
            payload: &queue.gather(&payload, 0, 1000),
            offload: PARTIAL,
        });
        assert_eq!(sent, Ok(()));
        sender[0].flush();
        let fence = sender[0].fence(mac(1), &flow);
        assert!(!sender[0].passed(fence));
        assert!(frames(&mut receivers[1 - owner]).is_empty());
        assert!(
            !sender[0].passed(fence),
            "the other shard has nothing to do with it"
        );
        assert_eq!(frames(&mut receivers[owner]).len(), 1);
        assert!(sender[0].passed(fence));
        queue.clear(&mut payload);
    }
    let peers = sender[0].peers();
    let by_reference = peers.iter().map(|peer| match &peer.state {
        PeerState::Connected { statistics, .. } => statistics.frames_sent_by_reference,
        _ => 0,
    });
    assert_eq!(by_reference.sum::<u64>(), 16);
}

#[test]
fn node_has_left_after_its_last_shard_and_frame() {
    let fabric = Fabric::new();
    let mut meshes = fabric.sharded([1, 3]);
    let mut shards = meshes.split_off(1);
    while meshes[0].next_change().is_some() {}
    for (index, mut shard) in shards.drain(..).enumerate().rev() {
        transmit(&mut shard, &segment(1, 0, 2000 + index as u16, b"the end")).unwrap();
        drop(shard);
        assert_eq!(meshes[0].next_change(), None);
        drive(&mut meshes, |meshes| {
            // What a shard has sent before it left comes first.
            frames(&mut meshes[0]);
            turn(&mut meshes[0]);
            meshes[0].connected() == index
        });
    }
    drive(&mut meshes, |meshes| {
        meshes[0].next_change() == Some(NeighborChange::Left(mac(1)))
    });
    assert_eq!(meshes[0].next_change(), None, "told once");
}

#[test]
fn node_comes_back_with_another_number_of_shards() {
    let fabric = Fabric::new();
    let mut before = 2;
    let mut meshes = fabric.sharded([1, before]);
    for (life, count) in [(3, 4), (4, 1), (5, 2), (6, 2)] {
        // Killed: what it sent last is still to be taken when it comes back.
        for shard in meshes.iter_mut().skip(1) {
            for port in 1000..1010 {
                transmit(shard, &segment(1, 0, port, b"last words")).unwrap();
            }
        }
        meshes.truncate(1);
        meshes.extend(fabric.shards("node-1", 1, count, life));
        let mut words = 0;
        drive(&mut meshes, |meshes| {
            words += frames(&mut meshes[0]).len();
            let peers = meshes[0].port.peers();
            let living = peers.iter().filter(|peer| match peer.state {
                PeerState::Connected { incarnation, .. } => incarnation == life,
                _ => false,
            });
            let living = living.count();
            // The former life and the present one are never there together.
            assert!(living == 0 || living == peers.len(), "{peers:?}");
            living == count.into() && meshes.iter().skip(1).all(|mesh| mesh.connected() == 1)
        });
        assert_eq!(words, 10 * before as usize);
        before = count;
    }
}

#[test]
fn contradictory_shards_are_refused() {
    let fabric = Fabric::new();
    let mut nodes = Vec::from(fabric.pair());
    let first = Liar::dial_as(&fabric, "node-0", 9, steering(0, 2));
    first.hello();
    drive(&mut nodes, |nodes| nodes[0].connected() == 2);
    let other_count = steering(1, 3);
    let other_key = Steering {
        key: [1; 16],
        ..steering(1, 2)
    };
    for lie in [other_count, other_key] {
        let liar = Liar::dial_as(&fabric, "node-0", 9, lie);
        liar.hello();
        assert_eq!(liar.refusal(&mut nodes), Some(Refusal::Malformed), "{lie:?}");
    }
    // Under another name no node may have the address of a node's shards.
    let mut thief = Liar::dial_as(&fabric, "node-0", 8, steering(1, 2));
    thief.steal_address(9);
    thief.hello();
    assert_eq!(thief.refusal(&mut nodes), Some(Refusal::DuplicateAddress));
    assert_eq!(nodes[0].connected(), 2);
    let second = Liar::dial_as(&fabric, "node-0", 9, steering(1, 2));
    second.hello();
    drive(&mut nodes, |nodes| nodes[0].connected() == 3);
}

#[test]
fn offending_shard_is_cut_off_with_its_node() {
    let fabric = Fabric::new();
    let mut nodes = Vec::from(fabric.pair());
    let mut liars: Vec<Liar> = (0..3)
        .map(|index| Liar::dial_as(&fabric, "node-0", 9, steering(index, 3)))
        .collect();
    for (liar, connected) in liars.iter().zip(2..) {
        liar.hello();
        drive(&mut nodes, |nodes| nodes[0].connected() == connected);
    }
    while nodes[0].next_change().is_some() {}
    liars[1].break_the_ring();
    drive(&mut nodes, |nodes| {
        frames(&mut nodes[0]);
        nodes[0].connected() == 1
    });
    assert_eq!(nodes[0].next_change(), Some(NeighborChange::Left(mac(9))));
    assert_eq!(nodes[0].next_change(), None);
    assert_eq!(send(&mut nodes[0], 9, b"who?"), Err(TransmitError::Unreachable));
    send(&mut nodes[0], 1, b"nothing has happened").unwrap();
    assert_eq!(take(&mut nodes[1]), [b"nothing has happened"]);
}

#[test]
fn missing_shard_is_unreachable_and_delays_no_peer() {
    let fabric = Fabric::new();
    let mut meshes = vec![fabric.join("node-0", 0)];
    meshes.push(fabric.shard("node-1", 1, steering(0, 2), 7));
    drive(&mut meshes, |meshes| {
        meshes.iter().all(|mesh| mesh.connected() == 1)
    });
    let (mut reached, mut missing) = (0, 0);
    for port in 1000..1100 {
        match transmit(&mut meshes[0], &segment(0, 1, port, b"?")) {
            Ok(()) => reached += 1,
            Err(error) => {
                assert_eq!(error, TransmitError::Unreachable);
                missing += 1;
            }
        }
    }
    assert_eq!(frames(&mut meshes[1]).len(), reached);
    assert!(reached > 20 && missing > 20, "{reached} and {missing}");
    assert_eq!(meshes[0].port_statistics().unreachable, missing);
}

#[test]
fn impossible_shard_settings_are_refused() {
    let fabric = Fabric::new();
    for (index, count) in [(1, 1), (0, 0), (2, 2), (16, 17), (0, 17)] {
        let settings = MeshSettings {
            steering: steering(index, count),
            ..fabric.settings("node-0", 0)
        };
        assert!(Mesh::join(&settings).is_err(), "{index} of {count}");
    }
}
