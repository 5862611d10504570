//! Links over this host's loopback device, under the test's clock.

mod fabric;
mod fake_peer;
mod frames;
mod hostile;
mod kernel;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::test_frames::{receive_all, whole};
use crate::{Link, NeighborChange, Offload};

const SECOND: u64 = 1_000_000_000;

fn address(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 9, number]
}

/// Creates a link without peers, on a port of its own.
fn lone(number: u8, change: impl FnOnce(&mut UdpSettings)) -> UdpLink {
    let mut settings = UdpSettings::new("127.0.0.1:0".parse().unwrap(), Vec::new(), address(number));
    change(&mut settings);
    UdpLink::open(&settings).expect("a link")
}

fn introduce(links: &mut [UdpLink]) {
    let sockets: Vec<SocketAddr> = links.iter().map(|link| link.local_address().unwrap()).collect();
    for link in links {
        // Every link gets all addresses, as from one list.
        sockets.iter().for_each(|&socket| link.add_peer(socket).unwrap());
    }
}

/// Creates links that know one another.
fn fabric(count: u8, change: impl Fn(&mut UdpSettings)) -> Vec<UdpLink> {
    let mut links: Vec<UdpLink> = (1..=count).map(|number| lone(number, &change)).collect();
    introduce(&mut links);
    until(&mut links, 0, |links, _| links.iter().all(all_connected));
    links
}

fn all_connected(link: &UdpLink) -> bool {
    link.peers()
        .all(|peer| matches!(peer.state, UdpPeerState::Connected { .. }))
}

/// The frames received over each link, in order.
type Arrived = Vec<Vec<(Vec<u8>, Offload)>>;

/// Drives the links at one point in time until `done` returns true. Returns the
/// received frames.
fn until(links: &mut [UdpLink], now_ns: u64, mut done: impl FnMut(&[UdpLink], &Arrived) -> bool) -> Arrived {
    let patience = Instant::now() + Duration::from_secs(20);
    let mut arrived: Arrived = links.iter().map(|_| Vec::new()).collect();
    loop {
        for (link, frames) in links.iter_mut().zip(&mut arrived) {
            link.receive(now_ns, 64, &mut |frame| {
                frames.push((whole(frame), frame.offload))
            });
            link.flush();
        }
        if done(links, &arrived) {
            return arrived;
        }
        assert!(
            Instant::now() < patience,
            "{:?}",
            links.iter().map(UdpLink::statistics).collect::<Vec<_>>()
        );
        let mut waits: Vec<_> = links
            .iter()
            .map(|link| PollFd::from_borrowed_fd(link.descriptor().unwrap(), PollFlags::IN))
            .collect();
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: 5_000_000,
        };
        poll(&mut waits, Some(&tick)).unwrap();
        links.iter_mut().for_each(|link| link.finish_sleep(now_ns));
    }
}

fn changes(link: &mut UdpLink) -> Vec<NeighborChange> {
    std::iter::from_fn(|| link.next_change()).collect()
}
