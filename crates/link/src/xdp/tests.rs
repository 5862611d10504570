//! Tests with the kernel, over one end of a veth pair in a test's own namespace.

use super::*;
use crate::packet::PacketLink;
use crate::test_cable::{Cable, NODE, OTHER, OWN, next};
use crate::test_frames::{PARTIAL, frame_to, send, tcp_ipv4};
use crate::{Checksum, Link, NeighborChange, Offload, TransmitError};

/// The modes of veth, which has none without copies.
const MODES: [Mode; 2] = [Mode::Copy, Mode::Generic];

fn near(cable: &Cable) -> PacketLink {
    PacketLink::open("near", &cable.0, OWN).unwrap()
}

fn open(cable: &Cable, modes: &[Mode], queues: Option<u32>) -> Result<XdpLink, XdpError> {
    XdpLink::open("far", &cable.0, OWN, modes, queues).unwrap()
}

#[test]
fn program_passes_other_frames_to_kernel() {
    let maps = program::Maps { nodes: 3, sockets: 4 };
    let program = program::program(maps, 1792);
    assert_eq!(program.len() * size_of::<program::Instruction>(), 8 * 30);
    assert_eq!(program::key(NODE), [2, 0, 0, 0, 0, 1, 0, 0]);
}

#[test]
#[ignore = "needs namespaces, ip"]
fn unicast_uses_sockets_and_multicast_uses_packet_socket() {
    for mode in MODES {
        let cable = Cable::new();
        let (mut near, mut far) = (near(&cable), open(&cable, &[mode], None).unwrap());
        assert_eq!((far.mode(), far.queues()), (mode, 4));
        let to = |node, text: &[u8]| frame_to(node, OWN, text);
        let group = to([0xff; 6], b"a group");
        far.note_beyond(NeighborChange::Joined(NODE));
        for frame in [&to(OTHER, b"another"), &to(NODE, &[7; 1400]), &group] {
            send(&mut near, frame, Offload::default()).unwrap();
        }
        let mut came = [next(&mut far).0, next(&mut far).0];
        came.sort_by_key(|frame| frame[0]);
        assert_eq!(came, [to(NODE, &[7; 1400]), group], "{mode}");
        assert_eq!(far.statistics().frames_received, 1, "{mode}");

        far.note_beyond(NeighborChange::Left(NODE));
        far.note_beyond(NeighborChange::Joined(OTHER));
        for frame in [&to(NODE, b"gone"), &to(OTHER, b"another")] {
            send(&mut near, frame, Offload::default()).unwrap();
        }
        assert_eq!(next(&mut far).0, to(OTHER, b"another"), "{mode}");
        assert_eq!(far.statistics().frames_received, 2, "{mode}");
        assert_eq!(far.statistics().bad_length + far.statistics().dropped, 0);
    }
}

#[test]
#[ignore = "needs namespaces, ip"]
fn many_frames_leave_in_order_and_padded() {
    for mode in MODES {
        let cable = Cable::new();
        let (mut near, mut far) = (near(&cable), open(&cable, &[mode], None).unwrap());
        near.note_beyond(NeighborChange::Joined(NODE));
        // More frames than buffers, which are reused.
        for number in 0..3000_u32 {
            let frame = frame_to(NODE, OWN, &number.to_be_bytes());
            while send(&mut far, &frame, Offload::default()) == Err(TransmitError::Full) {
                far.flush();
            }
            far.flush();
            let (came, _) = next(&mut near);
            assert_eq!((came.len(), &came[..frame.len()]), (60, &frame[..]), "{mode}");
            assert!(came[frame.len()..].iter().all(|&byte| byte == 0));
        }
        let long = frame_to(NODE, OWN, &[1; 1523]);
        assert_eq!(
            send(&mut far, &long, Offload::default()),
            Err(TransmitError::TooLong)
        );
    }
}

/// The kernel at the other end of a veth pair leaves checksums partial.
#[test]
#[ignore = "needs namespaces, ip"]
fn partial_checksums_and_super_frames_of_veth_peer_are_recognised() {
    for mode in MODES {
        let cable = Cable::new();
        let (mut near, mut far) = (near(&cable), open(&cable, &[mode], None).unwrap());
        let frame = tcp_ipv4(&[7; 1000]);
        far.note_beyond(NeighborChange::Joined(*frame.first_chunk().unwrap()));
        send(&mut near, &frame, PARTIAL).unwrap();
        let (came, offload) = next(&mut far);
        assert_eq!(came[54..], frame[54..]);
        assert_eq!(offload.checksum, Checksum::Partial, "{mode}");
        assert_eq!(far.statistics().unfinished, 1, "{mode}");
        let wrong = frame;
        send(&mut near, &wrong, Offload::default()).unwrap();
        assert_eq!(next(&mut far).1.checksum, Checksum::Complete, "{mode}");

        let long = tcp_ipv4(&[7; 9000]);
        let offload = Offload {
            segment_size: 1400,
            ..PARTIAL
        };
        send(&mut near, &long, offload).unwrap();
        let mut payload = Vec::new();
        while payload.len() < 9000 {
            payload.extend_from_slice(&next(&mut far).0[54..]);
        }
        assert_eq!(payload, [7; 9000], "{mode}");
    }
}

#[test]
#[ignore = "needs namespaces, ip"]
fn frames_of_queue_without_socket_use_packet_socket() {
    let cable = Cable::new();
    let (mut near, mut far) = (near(&cable), open(&cable, &MODES, Some(1)).unwrap());
    assert_eq!((far.mode(), far.queues()), (Mode::Copy, 1));
    far.note_beyond(NeighborChange::Joined(NODE));
    // Flows are spread by their hash.
    for port in 0..64 {
        let mut frame = tcp_ipv4(b"a flow");
        frame[..6].copy_from_slice(&NODE);
        frame[35] = port;
        send(&mut near, &frame, Offload::default()).unwrap();
    }
    (0..64).for_each(|_| drop(next(&mut far)));
    let came = (
        far.statistics().frames_received,
        far.packet().statistics().frames_received,
    );
    // The packet socket may also receive multicast frames of the kernel.
    assert!(came.0 < 64 && came.0 + came.1 >= 64, "{came:?}");
}

#[test]
#[ignore = "needs namespaces, ip"]
fn foreign_program_stays_attached() {
    let cable = Cable::new();
    let first = open(&cable, &MODES, None).unwrap();
    assert!(cable.ip("-d link show far").contains("xdp"));
    let error = open(&cable, &MODES, None).unwrap_err();
    assert!(matches!(error, XdpError::Taken(_)), "{error}");
    assert!(error.to_string().contains("ip link set far xdp off"));
    drop(first);
    assert!(
        !cable.ip("-d link show far").contains("xdp"),
        "the program is detached with its link"
    );
    open(&cable, &[Mode::Generic], None).unwrap();
}

#[test]
#[ignore = "needs namespaces, ip"]
fn unsupported_mode_of_veth_returns_error() {
    let cable = Cable::new();
    let error = open(&cable, &[Mode::ZeroCopy], None).unwrap_err();
    assert!(
        matches!(
            error,
            XdpError::Mode {
                mode: Mode::ZeroCopy,
                ..
            }
        ),
        "{error}"
    );
    assert!(!cable.ip("-d link show far").contains("xdp"));
    cable.interface("far").set_mtu(9000).unwrap();
    let error = open(&cable, &MODES, None).unwrap_err();
    assert!(matches!(error, XdpError::Mtu(9000, _)), "{error}");
}

#[test]
#[ignore = "needs namespaces, ip"]
fn removed_interface_is_gone() {
    let cable = Cable::new();
    let mut far = open(&cable, &MODES, None).unwrap();
    assert!(far.descriptor().is_some());
    cable.interface("far").delete().unwrap();
    assert_eq!(far.receive(0, 64, &mut |_| {}), 0);
    assert!(far.packet().is_gone() && far.descriptor().is_none());
    let frame = frame_to(NODE, OWN, b"a frame");
    let _ = send(&mut far, &frame, Offload::default());
    far.flush();
    assert!(far.prepare_sleep());
}
