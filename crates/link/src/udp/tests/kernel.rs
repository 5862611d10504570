//! Tests with the kernel's TCP on both ends, and with changing paths in between.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::interface::{Interface, Namespace};
use crate::tap::{Tap, TapSettings};
use crate::test_frames::{PARTIAL, frame_to, send, tcp_ipv4};
use crate::{Received, Transmit};

/// Returns a kernel's namespace, and the other end of its TAP device.
fn host(number: u8) -> (Namespace, Tap) {
    let namespace = Namespace::create().expect("a network namespace");
    let settings = TapSettings {
        interface_address: Some(address(number)),
        ..TapSettings::new("toe0", address(number))
    };
    let (tap, mut interface) = Tap::create(&settings, &namespace).expect("a TAP device");
    for address in addresses(number) {
        let prefix_len = if address.is_ipv4() { 24 } else { 64 };
        interface.add_address(address, prefix_len).expect("an address");
    }
    interface.set_up(true).expect("the interface goes up");
    (namespace, tap)
}

fn addresses(number: u8) -> [IpAddr; 2] {
    [
        IpAddr::from([10, 6, 5, number]),
        IpAddr::from([0xfd06, 0, 0, 0, 0, 0, 0, u16::from(number)]),
    ]
}

fn forward(from: &mut impl Link, to: &mut impl Link, now_ns: u64) -> usize {
    let count = from.receive(now_ns, 64, &mut |frame: &Received<'_>| {
        let _ = to.transmit(&Transmit {
            headers: frame.private,
            payload: &frame.rest,
            offload: frame.offload,
        });
    });
    to.flush();
    count
}

/// Passes frames between a host's kernel and its fabric until `done` is set.
fn drive(tap: &mut Tap, link: &mut UdpLink, done: &AtomicBool) {
    let began = Instant::now();
    while !done.load(Ordering::Relaxed) {
        let now_ns = began.elapsed().as_nanos() as u64;
        if forward(tap, link, now_ns) + forward(link, tap, now_ns) != 0 || !link.prepare_sleep() {
            continue;
        }
        let descriptors = [tap.descriptor().unwrap(), link.descriptor().unwrap()];
        let mut waits = descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        poll(&mut waits, Some(&tick)).unwrap();
        link.finish_sleep(now_ns);
    }
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Transfers a stream from the second kernel to the first, and back.
fn transfer(kernels: &[Namespace], address: IpAddr, bytes: &[u8]) {
    let listener = kernels[0]
        .run(|| TcpListener::bind((address, 0)))
        .unwrap()
        .unwrap();
    let to = listener.local_addr().unwrap();
    let mut client = kernels[1].run(|| TcpStream::connect(to)).unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || {
            let mut got = Vec::new();
            server.read_to_end(&mut got).unwrap();
            server.write_all(&got).unwrap();
        });
        client.write_all(bytes).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
        echo.join().unwrap();
    });
}

/// Two kernels have a TAP device each, whose frames cross this host's UDP. Streams
/// flow both ways, with and without a key, in long datagrams and short ones.
#[test]
#[ignore = "needs namespaces, tun"]
fn streams_between_kernels_cross_fabric() {
    let bytes: Vec<u8> = (0..4 << 20).map(|at: usize| (at ^ (at >> 8)) as u8).collect();
    for (key, datagram, offload) in [
        (None, 1452, true),
        (Some([9; 32]), 65_000, true),
        (None, 1200, false),
    ] {
        let links = fabric(2, |settings| {
            settings.key = key;
            settings.datagram = datagram;
            settings.offload = offload;
        });
        let (kernels, taps): (Vec<_>, Vec<_>) = (1..=2).map(host).unzip();
        let mut ends: Vec<(Tap, UdpLink)> = taps.into_iter().zip(links).collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _stop = Stop(&done);
            for (tap, link) in &mut ends {
                scope.spawn(|| drive(tap, link, &done));
            }
            for address in addresses(1) {
                transfer(&kernels, address, &bytes);
            }
        });
        for (tap, link) in &ends {
            assert!(tap.statistics().super_frames_sent > 0, "{:?}", link.statistics());
            let counted = link.statistics();
            assert_eq!(
                (counted.malformed, counted.bad_length, counted.not_authentic),
                (0, 0, 0),
                "{counted:?}"
            );
        }
    }
}

/// The path's MTU decreases: datagrams become shorter, and frames still arrive.
#[test]
#[ignore = "needs namespaces"]
fn shrinking_path_is_noticed() {
    let namespace = Namespace::create().unwrap();
    let mut interface = Interface::open(&namespace, "lo").unwrap();
    interface.set_mtu(4000).unwrap();
    interface.set_up(true).unwrap();
    for offload in [true, false] {
        interface.set_mtu(4000).unwrap();
        let open = |number| lone(number, |settings| settings.offload = offload);
        let mut links: Vec<UdpLink> = (1..=2)
            .map(|number| namespace.run(|| open(number)).unwrap())
            .collect();
        introduce(&mut links);
        until(&mut links, 0, |links, _| links.iter().all(all_connected));
        let datagram = |links: &[UdpLink]| links[0].peers().next().unwrap().datagram;
        assert_eq!(datagram(&links), 4000 - 28);
        interface.set_mtu(1400).unwrap();
        let mut frame = tcp_ipv4(&[4; 30_000]);
        frame[..6].copy_from_slice(&address(2));
        let super_frame = Offload {
            segment_size: 1440,
            ..PARTIAL
        };
        send(&mut links[0], &frame, super_frame).unwrap();
        until(&mut links, 0, |links, _| datagram(links) == 1400 - 28);
        assert!(links[0].peers().next().unwrap().statistics.too_long > 0);
        let plain = frame_to(address(2), address(1), &[1; 1480]);
        send(&mut links[0], &plain, Offload::default()).unwrap();
        let arrived = until(&mut links, 0, |_, arrived| !arrived[1].is_empty());
        assert!(arrived[1][0].0 == plain);
        assert_eq!(links[0].peers().next().unwrap().statistics.refused, 0);
    }
}

/// The state of a peer without a route tells the error.
#[test]
#[ignore = "needs namespaces"]
fn peer_without_route_is_away() {
    let namespace = Namespace::create().unwrap();
    let mut links = vec![namespace.run(|| lone(1, |_| {})).unwrap()];
    links[0].add_peer("192.0.2.1:7005".parse().unwrap()).unwrap();
    until(&mut links, 0, |links, _| {
        let peer = links[0].peers().next().unwrap();
        peer.state
            == UdpPeerState::Away {
                error: Some(rustix::io::Errno::NETUNREACH),
            }
    });
}
