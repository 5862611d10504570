//! With the kernel, over one end of a veth pair in a namespace of a test's own.

use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::*;
use crate::interface::{Interface, Namespace};
use crate::test_frames::{PARTIAL, frame_to, send, tcp_ipv4, whole};
use crate::{Checksum, Link, NeighborChange, Offload, TransmitError};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];
const NODE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Two ends of a cable, each a link; the second takes frames for everybody's test.
struct Cable {
    namespace: Namespace,
    near: PacketLink,
    far: PacketLink,
}

impl Cable {
    fn new() -> Cable {
        let namespace = Namespace::create().expect("a network namespace");
        let cable = "link add near type veth peer name far";
        let ip = |line: &str| {
            let done = namespace.run(|| Command::new("ip").args(line.split(' ')).output());
            assert!(done.unwrap().expect("ip").status.success(), "{line}");
        };
        ip(cable);
        for end in ["near", "far"] {
            let mut interface = Interface::open(&namespace, end).unwrap();
            interface.set_up(true).unwrap();
        }
        let [near, far] = ["near", "far"].map(|end| PacketLink::open(end, &namespace, OWN).unwrap());
        Cable { namespace, near, far }
    }

    fn interface(&self, name: &str) -> Interface {
        Interface::open(&self.namespace, name).unwrap()
    }
}

/// The next frame of these tests, which are those of the experimental EtherType and of TCP
/// over IPv4: not what the kernel says when an interface goes up.
fn next(link: &mut PacketLink) -> (Vec<u8>, Offload) {
    let patience = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    loop {
        let mut found = None;
        link.receive(0, 1, &mut |frame| found = Some((whole(frame), frame.offload)));
        match found {
            Some((frame, offload)) if matches!(frame[12..14], [0x88, 0xb5] | [8, 0]) => {
                return (frame, offload);
            }
            Some(_) => {}
            None => {
                let descriptor = link.descriptor().expect("it is there");
                let came = poll(
                    &mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)],
                    Some(&patience),
                );
                assert_eq!(came, Ok(1), "no frame comes");
            }
        }
    }
}

#[test]
#[ignore = "needs namespaces, ip"]
fn only_frames_for_known_nodes_and_groups_are_taken() {
    let mut cable = Cable::new();
    let to = |node, text: &[u8]| frame_to(node, OWN, text);
    let group = to([0xff; 6], b"a group");
    cable.far.note_beyond(NeighborChange::Joined(NODE));
    for frame in [&to(OTHER, b"another"), &to(NODE, b"a node"), &group] {
        send(&mut cable.near, frame, Offload::default()).unwrap();
    }
    assert_eq!(next(&mut cable.far).0, to(NODE, b"a node"));
    assert_eq!(next(&mut cable.far).0, group);

    cable.far.note_beyond(NeighborChange::Joined(OTHER));
    cable.far.note_beyond(NeighborChange::Left(NODE));
    for frame in [&to(NODE, b"gone"), &to(OTHER, b"another"), &group] {
        send(&mut cable.near, frame, Offload::default()).unwrap();
    }
    assert_eq!(next(&mut cable.far).0, to(OTHER, b"another"));
    assert_eq!(next(&mut cable.far).0, group);
    assert_eq!(cable.far.statistics().not_served, 0);
}

#[test]
#[ignore = "needs namespaces, ip"]
fn super_frames_and_unfinished_checksums_cross() {
    let mut cable = Cable::new();
    let mut frame = tcp_ipv4(&[7; 9000]);
    let destination = *frame.first_chunk().unwrap();
    cable.far.note_beyond(NeighborChange::Joined(destination));
    let offload = Offload {
        segment_size: 1448,
        ..PARTIAL
    };
    send(&mut cable.near, &frame, offload).unwrap();
    let (came, as_what) = next(&mut cable.far);
    assert_eq!((came.len(), as_what), (frame.len(), offload));
    assert_eq!(came[54..], frame[54..]);

    frame = tcp_ipv4(b"short");
    send(&mut cable.near, &frame, PARTIAL).unwrap();
    let (came, as_what) = next(&mut cable.far);
    assert_eq!(as_what.checksum, Checksum::Partial);
    assert_eq!(came[54..], frame[54..]);
    assert_eq!(cable.near.statistics().super_frames_sent, 1);
    assert_eq!(cable.far.statistics().super_frames_received, 1);
    assert_eq!(cable.near.statistics().segmented, 0);
}

#[test]
#[ignore = "needs namespaces, ip"]
fn an_interface_that_goes_down_comes_back() {
    let mut cable = Cable::new();
    cable.far.note_beyond(NeighborChange::Joined(NODE));
    let frame = frame_to(NODE, OWN, b"a frame");
    cable.interface("near").set_up(false).unwrap();
    let sent = send(&mut cable.near, &frame, Offload::default());
    assert_eq!(sent, Err(TransmitError::Unreachable));
    assert!(!cable.near.is_up() && !cable.near.is_gone());
    assert_eq!(cable.near.receive(0, 64, &mut |_| {}), 0);
    cable.interface("near").set_up(true).unwrap();
    assert!(cable.near.is_up());
    // Until the carrier is back, the kernel drops what is sent.
    let mut came = false;
    while !came {
        send(&mut cable.near, &frame, Offload::default()).unwrap();
        cable
            .far
            .receive(0, 64, &mut |found| came |= whole(found) == frame);
    }
    let statistics = cable.near.statistics();
    assert_eq!((statistics.down, statistics.gone), (1, 0));
    assert_eq!((statistics.read_errors, statistics.refused), (0, 0));
}

#[test]
#[ignore = "needs namespaces, ip"]
fn a_removed_interface_is_gone() {
    let mut cable = Cable::new();
    cable.interface("near").delete().unwrap();
    assert_eq!(cable.far.receive(0, 64, &mut |_| {}), 0);
    assert!(cable.far.is_gone() && cable.near.is_gone());
    let sent = send(
        &mut cable.near,
        &frame_to(NODE, OWN, b"a frame"),
        Offload::default(),
    );
    assert_eq!(sent, Err(TransmitError::Unreachable));
    assert_eq!(cable.near.statistics().gone, 1);
    assert!(cable.near.descriptor().is_none() && cable.near.prepare_sleep());
}

#[test]
#[ignore = "needs namespaces, ip"]
fn what_cannot_be_a_link_says_why() {
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
        PacketLink::open("near", &cable.namespace, OWN).unwrap_err()
    });
    let error = refused.join().unwrap();
    assert!(matches!(error, PacketError::NotPermitted(_)), "{error}");
    assert!(error.to_string().contains("run as root"));
}
