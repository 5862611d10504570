//! Tests with the kernel, over one end of a veth pair in a test's own namespace.

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::*;
use crate::interface::Namespace;
use crate::test_cable::{Cable, NODE, OTHER, OWN, next};
use crate::test_frames::{PARTIAL, frame_to, send, tcp_ipv4, whole};
use crate::{Checksum, Link, NeighborChange, Offload, TransmitError};

/// The links at both ends.
fn links(cable: &Cable) -> [PacketLink; 2] {
    ["near", "far"].map(|end| PacketLink::open(end, &cable.0, OWN).unwrap())
}

#[test]
#[ignore = "needs namespaces, ip"]
fn link_takes_frames_for_known_nodes_and_multicast_only() {
    let cable = Cable::new();
    let [mut near, mut far] = links(&cable);
    let to = |node, text: &[u8]| frame_to(node, OWN, text);
    let group = to([0xff; 6], b"a group");
    far.note_beyond(NeighborChange::Joined(NODE));
    for frame in [&to(OTHER, b"another"), &to(NODE, b"a node"), &group] {
        send(&mut near, frame, Offload::default()).unwrap();
    }
    assert_eq!(next(&mut far).0, to(NODE, b"a node"));
    assert_eq!(next(&mut far).0, group);

    far.note_beyond(NeighborChange::Joined(OTHER));
    far.note_beyond(NeighborChange::Left(NODE));
    for frame in [&to(NODE, b"gone"), &to(OTHER, b"another"), &group] {
        send(&mut near, frame, Offload::default()).unwrap();
    }
    assert_eq!(next(&mut far).0, to(OTHER, b"another"));
    assert_eq!(next(&mut far).0, group);
    assert_eq!(far.statistics().not_served, 0);
}

#[test]
#[ignore = "needs namespaces, ip"]
fn super_frames_and_partial_checksums_cross() {
    let cable = Cable::new();
    let [mut near, mut far] = links(&cable);
    let mut frame = tcp_ipv4(&[7; 9000]);
    let destination = *frame.first_chunk().unwrap();
    far.note_beyond(NeighborChange::Joined(destination));
    let offload = Offload {
        segment_size: 1448,
        ..PARTIAL
    };
    send(&mut near, &frame, offload).unwrap();
    let (came, as_what) = next(&mut far);
    assert_eq!((came.len(), as_what), (frame.len(), offload));
    assert_eq!(came[54..], frame[54..]);

    frame = tcp_ipv4(b"short");
    send(&mut near, &frame, PARTIAL).unwrap();
    let (came, as_what) = next(&mut far);
    assert_eq!(as_what.checksum, Checksum::Partial);
    assert_eq!(came[54..], frame[54..]);
    assert_eq!(near.statistics().super_frames_sent, 1);
    assert_eq!(far.statistics().super_frames_received, 1);
    assert_eq!(near.statistics().segmented, 0);
}

#[test]
#[ignore = "needs namespaces, ip"]
fn interface_carries_frames_after_down_and_up() {
    let cable = Cable::new();
    let [mut near, mut far] = links(&cable);
    far.note_beyond(NeighborChange::Joined(NODE));
    let frame = frame_to(NODE, OWN, b"a frame");
    cable.interface("near").set_up(false).unwrap();
    let sent = send(&mut near, &frame, Offload::default());
    assert_eq!(sent, Err(TransmitError::Unreachable));
    assert!(!near.is_up() && !near.is_running() && !near.is_gone());
    assert_eq!(near.receive(0, 64, &mut |_| {}), 0);
    cable.interface("near").set_up(true).unwrap();
    assert!(near.is_up());
    // Until the carrier is back, the kernel drops sent frames.
    let mut came = false;
    while !came {
        send(&mut near, &frame, Offload::default()).unwrap();
        far.receive(0, 64, &mut |found| came |= whole(found) == frame);
    }
    let statistics = near.statistics();
    assert_eq!((statistics.down, statistics.gone), (1, 0));
    assert_eq!((statistics.read_errors, statistics.refused), (0, 0));
}

#[test]
#[ignore = "needs namespaces, ip"]
fn removed_interface_is_gone() {
    let cable = Cable::new();
    let [mut near, mut far] = links(&cable);
    cable.interface("near").delete().unwrap();
    assert_eq!(far.receive(0, 64, &mut |_| {}), 0);
    assert!(far.is_gone() && near.is_gone());
    let sent = send(&mut near, &frame_to(NODE, OWN, b"a frame"), Offload::default());
    assert_eq!(sent, Err(TransmitError::Unreachable));
    assert_eq!(near.statistics().gone, 1);
    assert!(near.descriptor().is_none() && near.prepare_sleep());
}

#[test]
#[ignore = "needs namespaces, ip"]
fn impossible_link_returns_reason() {
    let namespace = Namespace::create().unwrap();
    let open = |name: &str| PacketLink::open(name, &namespace, OWN).unwrap_err();
    assert!(matches!(open("lo"), PacketError::NotEthernet(_)));
    assert!(matches!(open("eth0"), PacketError::Interface(_)));
    let cable = Cable::new();
    let refused = std::thread::spawn(move || {
        let none = CapabilitySets {
            effective: CapabilitySet::SYS_ADMIN,
            permitted: CapabilitySet::SYS_ADMIN,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, none).unwrap();
        PacketLink::open("near", &cable.0, OWN).unwrap_err()
    });
    let error = refused.join().unwrap();
    assert!(matches!(error, PacketError::NotPermitted(_)), "{error}");
    assert!(error.to_string().contains("run as root"));
}
