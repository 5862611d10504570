//! Tests with the kernel's TCP and UDP on one or both ends of the link.

mod bad_frames;
mod device;
mod kernel;

use std::net::IpAddr;

use crate::Link;
use crate::interface::{Interface, Namespace};
use crate::test_frames::whole;

use super::*;

const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A host: a namespace with an interface whose other end is `tap`.
struct Host {
    namespace: Namespace,
    interface: Interface,
    tap: Tap,
}

impl Host {
    fn new(number: u8, change: impl FnOnce(&mut TapSettings)) -> Host {
        let namespace = Namespace::create().expect("a network namespace");
        let mut settings = TapSettings {
            interface_address: Some([2, 0, 0, 0, 1, number]),
            ..TapSettings::new("toe0", [2, 0, 0, 0, 0, number])
        };
        change(&mut settings);
        let (tap, mut interface) = Tap::create(&settings, &namespace).expect("a TAP device");
        for address in Self::addresses(number) {
            let prefix_len = if address.is_ipv4() { 24 } else { 64 };
            if address.is_ipv4() || settings.mtu >= 1280 {
                interface.add_address(address, prefix_len).expect("an address");
            }
        }
        interface.set_up(true).expect("the interface goes up");
        Host {
            namespace,
            interface,
            tap,
        }
    }

    fn addresses(number: u8) -> [IpAddr; 2] {
        [
            IpAddr::from([10, 9, 8, number]),
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)]),
        ]
    }
}

/// Returns received unicast frames. The kernel's own multicast frames, as when an
/// interface goes up, are skipped.
fn unicast(tap: &mut Tap) -> Vec<(Vec<u8>, crate::Offload)> {
    let mut frames = Vec::new();
    while tap.receive(0, 64, &mut |frame| frames.push((whole(frame), frame.offload))) != 0 {}
    frames.retain(|(frame, _)| frame[0] & 1 == 0);
    frames
}
