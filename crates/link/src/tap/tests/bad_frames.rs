//! Frames that no stack would send.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::test_frames::{PARTIAL, frame_to, send, tcp_ipv4, tcp_ipv6_vlan, udp_ipv4};
use crate::{Checksum, Offload, TransmitError};

#[test]
#[ignore = "needs namespaces, tun"]
fn wrong_lengths_are_refused() {
    let mut host = Host::new(1, |_| {});
    let tap = &mut host.tap;
    let super_frame = Offload {
        segment_size: 1000,
        ..PARTIAL
    };
    assert_eq!(send(tap, &[0; 13], PARTIAL), Err(TransmitError::TooLong));
    assert_eq!(send(tap, &[2; 1523], PARTIAL), Err(TransmitError::TooLong));
    assert_eq!(
        send(tap, &tcp_ipv4(&[0; 65_536]), super_frame),
        Err(TransmitError::TooLong)
    );
    assert_eq!(send(tap, &tcp_ipv4(&[0; 65_495]), super_frame), Ok(()));
    assert_eq!(tap.statistics().bad_length, 3);
    assert_eq!(tap.statistics().frames_sent, 1);
}

#[test]
#[ignore = "needs namespaces, tun"]
fn super_frames_without_transport_are_dropped() {
    let mut host = Host::new(1, |_| {});
    let super_frame = Offload {
        segment_size: 1000,
        ..PARTIAL
    };
    send(&mut host.tap, &frame_to(NEAR, FAR, &[0; 3000]), super_frame).unwrap();
    assert_eq!(host.tap.statistics().bad_super_frames, 1);
    let complete = Offload {
        checksum: Checksum::Complete,
        ..super_frame
    };
    send(&mut host.tap, &tcp_ipv4(&[1; 3000]), complete).unwrap();
    assert_eq!(host.tap.statistics().bad_checksums, 1);
}

/// Each frame is taken or refused, and the device goes on.
#[test]
#[ignore = "needs namespaces, tun"]
fn arbitrary_frames_do_no_harm() {
    let taps: Vec<Host> = [(true, true), (true, false), (false, false)]
        .into_iter()
        .map(|(vnet_header, super_frames)| {
            Host::new(1, |settings| {
                settings.vnet_header = vnet_header;
                settings.super_frames = super_frames;
            })
        })
        .collect();
    let taps = RefCell::new(taps);
    let strategy = (
        0usize..4,
        0usize..4000,
        0u16..3000,
        0usize..3,
        proptest::collection::vec((0usize..80, any::<u8>()), 0..5),
    );
    let result =
        TestRunner::new(Config::with_cases(1500)).run(&strategy, |(kind, len, size, checksum, noise)| {
            let mut frame = match kind {
                0 => tcp_ipv4(&vec![3; len]),
                1 => tcp_ipv6_vlan(&vec![3; len]),
                2 => udp_ipv4(&vec![3; len]),
                _ => frame_to(FAR, NEAR, &vec![3; len]),
            };
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 1, 1]);
            for (at, byte) in noise {
                if let Some(place) = frame.get_mut(at) {
                    *place = byte;
                }
            }
            let offload = Offload {
                checksum: [Checksum::Complete, Checksum::Partial, Checksum::Verified][checksum],
                segment_size: size,
            };
            for host in taps.borrow_mut().iter_mut() {
                let _ = send(&mut host.tap, &frame, offload);
                host.tap.receive(0, 64, &mut |_| {});
            }
            Ok(())
        });
    result.unwrap();
    for host in taps.borrow_mut().iter_mut() {
        send(&mut host.tap, &tcp_ipv4(b"still there"), PARTIAL).unwrap();
        assert!(!host.tap.is_gone());
        assert_eq!(host.tap.statistics().read_errors, 0);
    }
}
