//! Frames between nodes that mean well.

use toehold_shm::ByteQueue;

use super::*;
use crate::MIN_PRIVATE;
use crate::mq::record::{REFERENCE_FROM, WHOLE};
use crate::mq::{PeerState, PeerStatistics};

fn statistics(node: &Mesh) -> PeerStatistics {
    let PeerState::Connected { statistics, .. } = node.peers()[0].state else {
        panic!("not connected")
    };
    statistics
}

#[test]
fn frames_of_every_length_arrive_as_they_were_sent() {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let pattern: Vec<u8> = (0..65_500).map(|i| (i * 7 + i / 251) as u8).collect();
    let lengths = (0..700).chain([1486, 1500, 1501, 4000, 9000, 65_500]);
    for len in lengths {
        let [a, b] = &mut nodes;
        send(a, 1, &pattern[..len]).unwrap();
        let mut seen = 0;
        let frames = b.receive(0, 64, &mut |frame| {
            assert_eq!(whole(frame)[14..], pattern[..len]);
            assert_eq!(frame.offload.checksum, Checksum::Partial);
            assert_eq!(frame.offload.segment_size != 0, len + 14 > 1514);
            let private = if len + 14 <= WHOLE { len + 14 } else { MIN_PRIVATE };
            assert_eq!(frame.private.len(), private, "of {len}");
            seen += 1;
        });
        assert_eq!((frames, seen), (1, 1), "{len}");
    }
    let sent = statistics(&nodes[0]);
    let received = statistics(&nodes[1]);
    assert_eq!(sent.frames_sent, 706);
    assert_eq!(
        (sent.frames_sent, sent.bytes_sent),
        (received.frames_received, received.bytes_received)
    );
    assert_eq!((sent.full, sent.frames_sent_by_reference), (0, 0));
}

/// Their Ethernet headers stay behind if they say what both nodes know.
#[test]
fn short_packets_arrive_with_their_ethernet_headers() {
    const IPV4: [u8; 2] = [0x08, 0x00];
    const IPV6: [u8; 2] = [0x86, 0xdd];
    const VLAN: [u8; 2] = [0x81, 0x00];
    let fabric = Fabric::new();
    let [mut a, mut b] = fabric.pair();
    let (own, foreign) = (mac(0), mac(7));
    for source in [own, foreign] {
        for ether_type in [IPV4, IPV6, VLAN] {
            for checksum in [Checksum::Complete, Checksum::Partial, Checksum::Verified] {
                for len in [0, 1, 40, 46, 116, WHOLE - 15, WHOLE - 14, WHOLE - 13, 1400] {
                    let packet: Vec<u8> = (0..len).map(|at| (at * 11) as u8).collect();
                    let frame = [&mac(1)[..], &source, &ether_type, &packet].concat();
                    // Some of it as headers, the rest as payload.
                    let (headers, payload) = frame.split_at(14 + len / 2);
                    let offload = Offload {
                        checksum,
                        segment_size: 0,
                    };
                    a.transmit(&Transmit {
                        headers,
                        payload: &Gather::from_slice(payload),
                        offload,
                    })
                    .unwrap();
                    a.flush();
                    let frames = b.receive(0, 8, &mut |received| {
                        assert_eq!(whole(received), frame);
                        assert_eq!(received.offload, offload);
                    });
                    assert_eq!(frames, 1);
                }
            }
        }
    }
    assert_eq!(b.statistics().corrupt, 0);
}

#[test]
fn message_of_64_bytes_takes_two_cache_lines() {
    let fabric = Fabric::new();
    let mut settings = fabric.settings("a", 0);
    settings.ring_capacity = 64 << 10;
    let mut nodes = [Mesh::join(&settings).unwrap(), fabric.join("b", 1)];
    drive(&mut nodes, |nodes| nodes[0].connected() == 1);
    // Headers of IPv4, and of TCP with timestamps.
    let frame = [&mac(1)[..], &mac(0), &[0x08, 0x00], &[0; 52 + 64]].concat();
    let mut sent = 0;
    while crate::test_frames::send(&mut nodes[0], &frame, PARTIAL).is_ok() {
        sent += 1;
    }
    // One line stays free, that of the next record's header.
    assert_eq!(sent, (64 << 10) / 128 - 1);
}

#[test]
fn every_state_of_the_checksum_crosses() {
    let fabric = Fabric::new();
    let [mut a, mut b] = fabric.pair();
    for checksum in [Checksum::Complete, Checksum::Partial, Checksum::Verified] {
        let offload = Offload {
            checksum,
            segment_size: 1448,
        };
        crate::test_frames::send(&mut a, &frame_to(mac(1), mac(0), b"x"), offload).unwrap();
        a.flush();
        assert_eq!(
            b.receive(0, 8, &mut |frame| assert_eq!(frame.offload, offload)),
            1
        );
    }
}

#[test]
fn bounds_of_frames_are_kept() {
    let fabric = Fabric::new();
    let mut settings = fabric.settings("a", 0);
    settings.mtu = 9000;
    settings.ring_capacity = 64 << 10;
    let a = Mesh::join(&settings).unwrap();
    let capabilities = a.capabilities();
    assert_eq!(
        (capabilities.mtu, capabilities.super_frame),
        (9000, 32_768 - 8 - 8 - 22)
    );
    assert!(capabilities.any_thread && capabilities.local && capabilities.checksum_offload);

    let b = fabric.join("b", 1);
    let mut nodes = [a, b];
    drive(&mut nodes, |nodes| nodes[0].connected() == 1);
    let [a, b] = &mut nodes;
    let mut try_len = |len: usize, segment_size| {
        let mut frame = frame_to(mac(1), mac(0), &[]);
        frame.resize(len, 0);
        let sent = crate::test_frames::send(
            a,
            &frame,
            Offload {
                segment_size,
                ..PARTIAL
            },
        );
        a.flush();
        take(b);
        sent
    };
    assert_eq!(try_len(9022, 0), Ok(()));
    assert_eq!(try_len(9023, 0), Err(TransmitError::TooLong));
    assert_eq!(try_len(32_752, 8000), Ok(()));
    assert_eq!(try_len(32_753, 8000), Err(TransmitError::TooLong));
    assert_eq!(try_len(13, 0), Err(TransmitError::TooLong));
    assert_eq!(a.port_statistics().bad_length, 3);
}

#[test]
fn group_frames_reach_all_peers_and_unknown_addresses_none() {
    let fabric = Fabric::new();
    let mut nodes = fabric.nodes(4);
    for group in [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1]] {
        let frame = frame_to(group, mac(2), b"to all");
        crate::test_frames::send(&mut nodes[2], &frame, PARTIAL).unwrap();
        nodes[2].flush();
        for (number, node) in nodes.iter_mut().enumerate() {
            let expected: &[Vec<u8>] = if number == 2 { &[] } else { &[b"to all".to_vec()] };
            assert_eq!(take(node), expected);
        }
    }
    assert_eq!(send(&mut nodes[0], 77, b"?"), Err(TransmitError::Unreachable));
    assert_eq!(nodes[0].port_statistics().unreachable, 1);
    for (from, to) in [(0, 1), (1, 3), (3, 0), (2, 1)] {
        send(&mut nodes[from], to as u8, &[from as u8, to as u8]).unwrap();
        assert_eq!(take(&mut nodes[to]), [[from as u8, to as u8]]);
    }
}

#[test]
fn full_peer_does_not_delay_other_peers() {
    let fabric = Fabric::new();
    let mut nodes = fabric.nodes(3);
    let mut sent = 0u32;
    while send(&mut nodes[0], 1, &sent.to_be_bytes().repeat(300)).is_ok() {
        sent += 1;
    }
    assert_eq!(send(&mut nodes[0], 1, &[0; 1200]), Err(TransmitError::Full));
    // Broadcasts go to the others; for the full one they are dropped and counted.
    let frame = frame_to([0xff; 6], mac(0), &[9; 1400]);
    assert_eq!(crate::test_frames::send(&mut nodes[0], &frame, PARTIAL), Ok(()));
    nodes[0].flush();
    assert_eq!(take(&mut nodes[2]), [[9; 1400]]);
    let dropped: u64 = nodes[0]
        .peers()
        .iter()
        .map(|peer| match peer.state {
            PeerState::Connected { statistics, .. } => statistics.group_frames_dropped,
            _ => 0,
        })
        .sum();
    assert_eq!(dropped, 1);
    // Nothing of what was taken is lost.
    let received = take(&mut nodes[1]);
    assert_eq!(received.len() as u32, sent);
    for (number, payload) in received.iter().enumerate() {
        assert_eq!(*payload, (number as u32).to_be_bytes().repeat(300));
    }
    assert_eq!(send(&mut nodes[0], 1, &[0; 1200]), Ok(()));
}

/// Two nodes of which the first can send by reference to `payload`.
fn with_payload(fabric: &Fabric, payload: &Payload) -> [Mesh; 2] {
    let a = Mesh::join(&MeshSettings {
        payload: Some(payload.arenas().clone()),
        ..fabric.settings("a", 0)
    })
    .unwrap();
    let mut nodes = [a, fabric.join("b", 1)];
    drive(&mut nodes, |nodes| nodes.iter().all(|node| node.connected() == 1));
    nodes
}

fn send_gather(node: &mut Mesh, to: [u8; 6], payload: Gather<'_>) -> Result<(), TransmitError> {
    let headers = frame_to(to, mac(0), &[0xab; 52]);
    let offload = Offload {
        checksum: Checksum::Partial,
        segment_size: 1448,
    };
    let sent = node.transmit(&Transmit {
        headers: &headers,
        payload: &payload,
        offload,
    });
    node.flush();
    sent
}

#[test]
fn payload_is_copied_if_it_cannot_be_referenced() {
    let fabric = Fabric::new();
    let mut payload = shared_payload(16);
    let mut queue = ByteQueue::EMPTY;
    let pattern: Vec<u8> = (0..30_000u32).map(|i| (i * 11 + i / 253) as u8).collect();
    let [mut a, mut b] = with_payload(&fabric, &payload);
    let arena = arena_of(&a.port);
    assert_eq!(queue.append_in(&mut payload, arena, &pattern), pattern.len());
    let mut private = ByteQueue::EMPTY;
    assert_eq!(private.append(&mut payload, &pattern), pattern.len());

    for (offset, len) in [
        (0, 30_000),
        (1, 8192),
        (4095, 4100),
        (100, REFERENCE_FROM),
        (7, 29_000),
    ] {
        let gather = queue.gather(&payload, offset, len);
        let before = statistics(&a).frames_sent_by_reference;
        send_gather(&mut a, mac(1), gather).unwrap();
        assert_eq!(statistics(&a).frames_sent_by_reference, before + 1);
        let frames = b.receive(0, 8, &mut |frame| {
            assert_eq!(frame.private.len(), 66);
            assert_eq!(whole(frame)[66..], pattern[offset..offset + gather.len()]);
        });
        assert_eq!(frames, 1);
    }
    // Short payload, payload that lies elsewhere even in part, and group frames travel inline.
    let by_reference = statistics(&a).frames_sent_by_reference;
    let mut mixed = queue.gather(&payload, 0, 7000);
    mixed.push(&pattern[7000..9000]);
    let inline = [
        private.gather(&payload, 0, 9000),
        queue.gather(&payload, 0, REFERENCE_FROM - 1),
        Gather::from_slice(&pattern[..9000]),
        mixed,
    ];
    for gather in inline {
        send_gather(&mut a, mac(1), gather).unwrap();
        assert_eq!(
            b.receive(0, 8, &mut |frame| assert_eq!(
                whole(frame)[66..],
                pattern[..gather.len()]
            )),
            1
        );
    }
    send_gather(&mut a, [0xff; 6], queue.gather(&payload, 0, 9000)).unwrap();
    assert_eq!(
        b.receive(0, 8, &mut |frame| assert_eq!(whole(frame)[66..], pattern[..9000])),
        1
    );
    assert_eq!(statistics(&a).frames_sent_by_reference, by_reference);
    queue.clear(&mut payload);
    private.clear(&mut payload);
}

#[test]
fn payload_memory_can_be_attached_before_peers_come() {
    let fabric = Fabric::new();
    let mut payload = shared_payload(4);
    let mut a = fabric.join("a", 0);
    a.attach_payload(payload.arenas().clone());
    let mut nodes = [a, fabric.join("b", 1)];
    drive(&mut nodes, |nodes| nodes[0].connected() == 1);
    let block = block_for(&mut payload, &nodes[0].port);
    send_gather(
        &mut nodes[0],
        mac(1),
        Gather::from_slice(&payload.bytes(block)[..4096]),
    )
    .unwrap();
    assert_eq!(statistics(&nodes[0]).frames_sent_by_reference, 1);
}

#[test]
fn fence_is_passed_when_peer_is_done_or_gone() {
    let fabric = Fabric::new();
    let mut payload = shared_payload(4);
    let [mut a, mut b] = with_payload(&fabric, &payload);
    let block = block_for(&mut payload, &a.port);
    assert_eq!(b.fence(mac(0), &flow()), Fence::default(), "b shares no payload");
    assert_eq!(a.fence([0xff; 6], &flow()), Fence::default());
    assert!(a.passed(Fence::default()));

    let before = a.fence(mac(1), &flow());
    assert!(a.passed(before), "nothing was sent");
    send_gather(&mut a, mac(1), Gather::from_slice(payload.bytes(block))).unwrap();
    let first = a.fence(mac(1), &flow());
    send_gather(&mut a, mac(1), Gather::from_slice(payload.bytes(block))).unwrap();
    let second = a.fence(mac(1), &flow());
    assert!(!a.passed(first) && !a.passed(second));
    // The burst of one: its record is given back after the handler has run.
    assert_eq!(b.receive(0, 1, &mut |_| assert!(!a.passed(first))), 1);
    assert!(a.passed(first) && !a.passed(second));
    assert_eq!(take(&mut b).len(), 1);
    assert!(a.passed(second));

    send_gather(&mut a, mac(1), Gather::from_slice(payload.bytes(block))).unwrap();
    let third = a.fence(mac(1), &flow());
    assert!(!a.passed(third));
    drop(b);
    let mut nodes = [a];
    drive(&mut nodes, |nodes| nodes[0].passed(third));
    assert_eq!(nodes[0].connected(), 0);
}

use crate::{Fence, NeighborChange};

#[test]
fn frames_of_departed_node_are_received_before_its_removal() {
    let fabric = Fabric::new();
    let mut nodes = Vec::from(fabric.pair());
    assert_eq!(changes(&mut nodes[0]), [NeighborChange::Joined(mac(1))]);
    for payload in [b"some", b"data", b"fin."] {
        send(&mut nodes[1], 0, payload).unwrap();
    }
    nodes.pop();
    // The hang-up is noticed before any of them is looked at.
    drive(&mut nodes, |nodes| nodes[0].connected() == 0);
    assert_eq!(changes(&mut nodes[0]), []);
    assert!(!nodes[0].prepare_sleep(), "there is something to take");
    assert_eq!(take(&mut nodes[0]), [b"some", b"data", b"fin."]);
    assert_eq!(changes(&mut nodes[0]), [NeighborChange::Left(mac(1))]);
    assert_eq!(
        (nodes[0].statistics().lost, nodes[0].statistics().corrupt),
        (1, 0)
    );
}

#[test]
fn restarted_node_waits_for_frames_of_its_former_life() {
    let fabric = Fabric::new();
    let mut nodes = Vec::from(fabric.pair());
    send(&mut nodes[1], 0, b"the last word").unwrap();
    nodes.pop();
    nodes.push(fabric.join("node-1", 1));
    // It is there, and gets no answer as long as they were not taken.
    drive(&mut nodes, |nodes| !nodes[0].membership.handshakes.is_empty());
    for _ in 0..20 {
        nodes.iter_mut().for_each(turn);
    }
    assert_eq!((nodes[0].connected(), nodes[1].connected()), (0, 0));
    assert_eq!(take(&mut nodes[0]), [b"the last word"]);
    drive(&mut nodes, |nodes| {
        nodes[1].connected() == 1 && nodes[0].connected() == 1
    });
    let joined = NeighborChange::Joined(mac(1));
    assert_eq!(
        changes(&mut nodes[0]),
        [joined, NeighborChange::Left(mac(1)), joined]
    );
}

/// The changes that the node reports, in order.
fn changes(node: &mut Mesh) -> Vec<NeighborChange> {
    std::iter::from_fn(|| node.next_change()).collect()
}
