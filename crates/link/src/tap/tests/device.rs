//! Creation, configuration and deletion of devices.

use std::net::UdpSocket;

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::*;
use crate::test_frames::{PARTIAL, send, tcp_ipv4};
use crate::{Offload, Received, TransmitError};

#[test]
fn impossible_settings_return_error() {
    let settings = TapSettings::new("toe0", NEAR);
    let bad_mtu = |mtu| {
        TapSettings {
            mtu,
            ..settings.clone()
        }
        .check()
    };
    assert!(matches!(bad_mtu(67), Err(TapError::BadMtu(67))));
    assert!(matches!(bad_mtu(65_522), Err(TapError::BadMtu(_))));
    assert!(bad_mtu(68).is_ok() && bad_mtu(65_521).is_ok());
    let group = TapSettings {
        interface_address: Some([1, 0, 0, 0, 0, 1]),
        ..settings.clone()
    };
    assert!(matches!(group.check(), Err(TapError::BadAddress(_))));
    let named = TapSettings {
        name: "toe%d".into(),
        ..settings
    };
    assert!(matches!(named.check(), Err(TapError::Interface(_))));
}

#[test]
#[ignore = "needs namespaces, tun"]
fn device_has_requested_settings() {
    let mut host = Host::new(1, |settings| settings.mtu = 9000);
    let state = host.interface.state().unwrap();
    assert_eq!((state.mtu, state.up, state.carrier), (9000, true, true));
    assert_eq!(state.address, [2, 0, 0, 0, 1, 1]);
    let capabilities = host.tap.capabilities();
    assert_eq!((capabilities.mtu, capabilities.super_frame), (9000, 65_535));
    assert!(capabilities.checksum_offload);
    assert_eq!(host.tap.address(), NEAR);
    assert!(
        host.tap.description().offloads.tcp_v4,
        "every supported kernel has it"
    );

    host.tap.set_carrier(false).unwrap();
    assert!(!host.interface.state().unwrap().carrier);
    host.tap.set_carrier(true).unwrap();
    assert!(host.interface.state().unwrap().carrier);
}

#[test]
#[ignore = "needs namespaces, tun"]
fn mtu_bounds_match_kernel() {
    for mtu in [MIN_MTU, MAX_MTU] {
        let mut host = Host::new(1, |settings| settings.mtu = mtu);
        assert_eq!(host.interface.state().unwrap().mtu, u32::from(mtu));
        assert!(host.interface.set_mtu(u32::from(MAX_MTU) + 1).is_err());
    }
}

#[test]
#[ignore = "needs namespaces, tun"]
fn taken_name_returns_error() {
    let host = Host::new(1, |_| {});
    let again = |name: &str| Tap::create(&TapSettings::new(name, FAR), &host.namespace).map(drop);
    for name in ["toe0", "lo"] {
        let error = again(name).unwrap_err();
        assert!(matches!(error, TapError::NameTaken(_)), "{error}");
        assert!(error.to_string().contains(&format!("ip link delete {name}")));
    }
    again("toe1").unwrap();
    // In another namespace the name is free.
    Host::new(2, |_| {});
}

#[test]
#[ignore = "needs namespaces, tun"]
fn device_ends_with_last_descriptor() {
    let host = Host::new(1, |settings| settings.multi_queue = true);
    let second = host.tap.another_queue(&host.namespace).unwrap();
    drop(host.tap);
    Interface::open(&host.namespace, "toe0").unwrap();
    drop(second);
    let error = Interface::open(&host.namespace, "toe0").unwrap_err();
    assert!(error.to_string().contains("toe0"), "{error}");
}

#[test]
#[ignore = "needs namespaces, tun"]
fn second_queue_of_single_queue_device_is_refused() {
    let host = Host::new(1, |_| {});
    assert!(host.tap.another_queue(&host.namespace).is_err());
}

#[test]
#[ignore = "needs namespaces, tun"]
fn frames_to_down_interface_are_counted() {
    let mut host = Host::new(1, |_| {});
    let frame = tcp_ipv4(b"payload");
    send(&mut host.tap, &frame, PARTIAL).unwrap();
    host.interface.set_up(false).unwrap();
    assert_eq!(
        send(&mut host.tap, &frame, PARTIAL),
        Err(TransmitError::Unreachable)
    );
    unicast(&mut host.tap);
    assert!(host.tap.prepare_sleep());
    host.interface.set_up(true).unwrap();
    send(&mut host.tap, &frame, PARTIAL).unwrap();
    let statistics = host.tap.statistics();
    assert_eq!((statistics.down, statistics.frames_sent), (1, 2));
    assert_eq!(
        (statistics.refused, statistics.read_errors, statistics.full),
        (0, 0, 0)
    );
}

/// Regression: frames beyond the queue's thousandth were lost if they were not
/// taken in time, even for a sender with a long path to fill.
#[test]
#[ignore = "needs namespaces, tun"]
fn late_burst_is_lost_only_beyond_queue() {
    const BURST: u32 = 3000;
    for (queue, least) in [(None, 0), (Some(BURST + 100), BURST)] {
        let mut host = Host::new(1, |settings| settings.offloads = Offloads::NONE);
        if let Some(frames) = queue {
            host.interface.set_queue(frames).expect("a queue");
        }
        host.namespace.run(|| broadcast(BURST)).expect("its namespace");
        let mut came = 0;
        while host
            .tap
            .receive(0, 64, &mut |frame| came += u32::from(is_broadcast(frame)))
            != 0
        {}
        assert!(came >= least, "{came} with {queue:?}");
        assert_eq!(came == BURST, queue.is_some(), "{came} with {queue:?}");
    }
}

/// Sends `count` broadcast datagrams, which need no address resolution.
fn broadcast(count: u32) {
    let socket = UdpSocket::bind("10.9.8.1:0").expect("a socket");
    socket.set_broadcast(true).expect("the right");
    for _ in 0..count {
        socket.send_to(&[0; 8], "10.9.8.255:9").expect("it is sent");
    }
}

fn is_broadcast(frame: &Received<'_>) -> bool {
    frame.private.starts_with(&[0xff; 6])
}

#[test]
#[ignore = "needs namespaces, tun"]
fn deleted_interface_is_gone() {
    let mut host = Host::new(1, |_| {});
    assert!(host.tap.descriptor().is_some());
    host.interface.delete().unwrap();
    assert_eq!(host.tap.receive(0, 64, &mut |_| {}), 0);
    assert!(host.tap.is_gone() && host.tap.descriptor().is_none());
    let frame = tcp_ipv4(b"payload");
    assert_eq!(
        send(&mut host.tap, &frame, Offload::default()),
        Err(TransmitError::Unreachable)
    );
    assert_eq!(host.tap.statistics().gone, 1);
    assert!(host.tap.prepare_sleep());
    assert!(host.tap.set_carrier(false).is_err());
}

#[test]
#[ignore = "needs namespaces, tun"]
fn device_parts_give_working_link() {
    let mut host = Host::new(1, |_| {});
    send(&mut host.tap, &tcp_ipv4(b"payload"), PARTIAL).unwrap();
    let (descriptor, description) = host.tap.into_parts();
    let mut tap = Tap::from_parts(descriptor, description.clone()).unwrap();
    assert_eq!(tap.description(), &description);
    send(&mut tap, &tcp_ipv4(b"payload"), PARTIAL).unwrap();
    unicast(&mut tap);
    assert_eq!(tap.statistics().read_errors, 0);
}

/// Runs as root in a container, or as another user.
#[test]
fn missing_right_returns_advice() {
    let refused = std::thread::spawn(|| {
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, none).unwrap();
        let made = Tap::create(&TapSettings::new("toe0", NEAR), &Namespace::Own).map(drop);
        (made.unwrap_err(), Namespace::create().unwrap_err())
    });
    let (device, namespace) = refused.join().unwrap();
    let known = matches!(
        device,
        TapError::NotPermitted(_) | TapError::NoAccess | TapError::NoDriver
    );
    assert!(known, "{device}");
    for error in [device.to_string(), namespace.to_string()] {
        assert!(
            error.contains("run as root") || error.contains("modprobe tun"),
            "{error}"
        );
    }
}
