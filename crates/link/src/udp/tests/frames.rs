//! Frames and their forms on the way.

use super::*;
use crate::layout::Layout;
use crate::test_frames::{PARTIAL, frame_to, send, tcp_ipv4, tcp_ipv6_vlan, udp_ipv4};
use crate::{Checksum, TransmitError};

fn to(mut frame: Vec<u8>, number: u8) -> Vec<u8> {
    frame[..6].copy_from_slice(&address(number));
    frame
}

fn super_frame(segment_size: u16) -> Offload {
    Offload {
        segment_size,
        ..PARTIAL
    }
}

#[test]
fn small_frames_share_datagram_in_order() {
    for key in [None, Some([1; 32])] {
        for offload in [true, false] {
            let mut links = fabric(2, |settings| {
                settings.key = key;
                settings.datagram = 1400;
                settings.offload = offload;
            });
            let frames: Vec<_> = (0..50)
                .map(|number| frame_to(address(2), address(1), &[number; 80]))
                .collect();
            let before = links[0].peers().next().unwrap().statistics.datagrams_sent;
            for frame in &frames {
                send(&mut links[0], frame, Offload::default()).unwrap();
            }
            let arrived = until(&mut links, 0, |_, arrived| arrived[1].len() == 50);
            let got: Vec<_> = arrived[1].iter().map(|(frame, _)| frame.clone()).collect();
            assert_eq!(got, frames);
            let sent = links[0].peers().next().unwrap().statistics.datagrams_sent - before;
            assert!((4..=5).contains(&sent), "{sent} datagrams");
            assert_eq!(links[0].statistics().send_calls, 1);
        }
    }
}

/// A stream of 64 KB arrives intact in few frames, for any datagram length.
#[test]
fn super_frame_is_cut_and_merged() {
    for datagram in [600, 1452, 9000, 65_000] {
        for make in [tcp_ipv4, tcp_ipv6_vlan] {
            let mut links = fabric(2, |settings| settings.datagram = datagram);
            let payload: Vec<u8> = (0..60_000).map(|at| (at / 3) as u8).collect();
            let frame = to(make(&payload), 2);
            let layout = Layout::of(&frame).unwrap();
            send(&mut links[0], &frame, super_frame(1400)).unwrap();
            let mut got = Vec::new();
            until(&mut links, 0, |_, arrived| {
                got.clear();
                arrived[1]
                    .iter()
                    .for_each(|(frame, _)| got.extend_from_slice(&frame[layout.payload..]));
                got.len() >= payload.len()
            });
            assert!(got == payload, "datagrams of {datagram}");
            let peer = links[0].peers().next().unwrap().statistics;
            assert_eq!(peer.fragmented, 0);
            assert!(links[1].statistics().merged > 0);
        }
    }
}

#[test]
fn consecutive_segments_are_merged() {
    let mut links = fabric(2, |_| {});
    send(&mut links[0], &to(tcp_ipv4(&[9; 4000]), 2), super_frame(1000)).unwrap();
    let arrived = until(&mut links, 0, |_, arrived| !arrived[1].is_empty());
    let [(frame, offload)] = &arrived[1][..] else {
        panic!("{} frames", arrived[1].len())
    };
    assert_eq!((frame.len(), *offload), (4054, super_frame(1000)));
    assert_eq!(Layout::of(frame).unwrap().packet_len(frame), 4040);
}

#[test]
fn uncuttable_long_frames_travel_in_fragments() {
    for key in [None, Some([1; 32])] {
        let mut links = fabric(2, |settings| {
            settings.key = key;
            settings.mtu = MAX_MTU;
            settings.datagram = 1200;
        });
        let long = [
            (frame_to(address(2), address(1), &[3; 64_000]), Offload::default()),
            (to(udp_ipv4(&[4; 8000]), 2), PARTIAL),
            // The wrong checksum must stay wrong.
            (to(tcp_ipv4(&[5; 9000]), 2), Offload::default()),
        ];
        for (frame, offload) in &long {
            send(&mut links[0], frame, *offload).unwrap();
        }
        let arrived = until(&mut links, 0, |_, arrived| arrived[1].len() == 3);
        assert!(arrived[1] == long);
        assert_eq!(links[0].peers().next().unwrap().statistics.fragmented, 3);
    }
}

#[test]
fn long_segment_without_checksum_is_cut() {
    let mut links = fabric(2, |settings| {
        settings.mtu = 9000;
        settings.datagram = 1200;
    });
    send(&mut links[0], &to(tcp_ipv4(&[5; 8000]), 2), PARTIAL).unwrap();
    let arrived = until(&mut links, 0, |_, arrived| {
        arrived[1]
            .iter()
            .map(|(frame, _)| frame.len() - 54)
            .sum::<usize>()
            == 8000
    });
    assert!(
        arrived[1]
            .iter()
            .all(|(_, offload)| offload.checksum == Checksum::Partial)
    );
    assert_eq!(links[0].peers().next().unwrap().statistics.fragmented, 0);
}

#[test]
fn datagrams_of_super_frame_stay_whole() {
    let mut links = fabric(2, |settings| {
        settings.mtu = 9000;
        settings.datagram = 1200;
    });
    send(&mut links[0], &to(udp_ipv4(&[6; 5000]), 2), super_frame(2000)).unwrap();
    let arrived = until(&mut links, 0, |_, arrived| arrived[1].len() == 3);
    let lens: Vec<_> = arrived[1].iter().map(|(frame, _)| frame.len() - 42).collect();
    assert_eq!(lens, [2000, 2000, 1000]);
}

#[test]
fn multicast_reaches_all_and_addresses_are_learnt() {
    let mut links = fabric(3, |_| {});
    let group = frame_to([0xff; 6], address(1), b"all");
    send(&mut links[0], &group, PARTIAL).unwrap();
    let arrived = until(&mut links, 0, |_, arrived| {
        arrived[1..].iter().all(|frames| frames.len() == 1)
    });
    assert!(arrived[1..].iter().all(|frames| frames[0].0 == group));
    assert!(arrived[0].is_empty(), "the sender does not get its own frame");

    // An address behind node 2 is unknown at first, and then learnt.
    let behind = [4, 4, 4, 4, 4, 4];
    send(&mut links[0], &frame_to(behind, address(1), b"who?"), PARTIAL).unwrap();
    until(&mut links, 0, |_, arrived| {
        arrived[1..].iter().all(|frames| frames.len() == 1)
    });
    send(&mut links[1], &frame_to(address(1), behind, b"me"), PARTIAL).unwrap();
    until(&mut links, 0, |_, arrived| arrived[0].len() == 1);
    send(&mut links[0], &frame_to(behind, address(1), b"you"), PARTIAL).unwrap();
    send(&mut links[0], &frame_to(address(3), address(1), b"end"), PARTIAL).unwrap();
    let arrived = until(&mut links, 0, |_, arrived| {
        arrived[1..].iter().all(|frames| !frames.is_empty())
    });
    assert_eq!((arrived[1].len(), arrived[2].len()), (1, 1));
    assert_eq!(links[0].statistics().flooded, 1);
}

#[test]
fn wrong_lengths_are_refused() {
    let mut links = fabric(2, |_| {});
    let link = &mut links[0];
    assert_eq!(send(link, &[2; 13], PARTIAL), Err(TransmitError::TooLong));
    assert_eq!(send(link, &[2; 1523], PARTIAL), Err(TransmitError::TooLong));
    assert_eq!(
        send(link, &[2; 65_558], super_frame(1000)),
        Err(TransmitError::TooLong)
    );
    assert_eq!(link.statistics().bad_length, 3);
    // A frame that cannot be cut, and one with a wrong checksum.
    let other = frame_to(address(2), address(1), &[0; 3000]);
    assert_eq!(send(link, &other, super_frame(1000)), Ok(()));
    let wrong = Offload {
        checksum: Checksum::Complete,
        segment_size: 1000,
    };
    assert_eq!(send(link, &to(tcp_ipv4(&[1; 3000]), 2), wrong), Ok(()));
    let statistics = link.statistics();
    assert_eq!((statistics.bad_length, statistics.bad_checksums), (4, 1));
    assert_eq!(link.peers().next().unwrap().statistics.frames_sent, 0);
}

#[test]
fn receive_keeps_budget() {
    let mut links = fabric(2, |_| {});
    for number in 0..20 {
        send(
            &mut links[0],
            &frame_to(address(2), address(1), &[number; 80]),
            PARTIAL,
        )
        .unwrap();
    }
    links[0].flush();
    let mut got = Vec::new();
    let patience = Instant::now() + Duration::from_secs(20);
    while got.len() < 20 {
        assert!(Instant::now() < patience);
        let before = got.len();
        let count = links[1].receive(0, 3, &mut |frame| got.push(whole(frame)));
        assert!(count <= 3 && got.len() == before + count);
        assert_eq!(links[1].prepare_sleep(), got.len() == 20 || count < 3);
    }
    assert!(receive_all(&mut links[1], 0).is_empty());
}
