//! The peers behind the kernel's connections that the engine makes on behalf of a node's peers.
//!
//! A process behind a filter of system calls cannot ask for them. One that waits for the kernel's
//! connections past the library does not. Both have a table that was mapped before. It has the ends
//! of the node's connection, by the port that the engine connects from, which no other socket has
//! meanwhile. The engine fills an entry before it connects.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use serde::{Deserialize, Serialize};
use toehold_shm::{Access, Region, Words};

use crate::descriptors;
use crate::ownership::Relayed;

/// Which of a node's listener's peers the engine forwards to the kernel's listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Forwarded {
    /// All peers.
    All,
    /// Peers that the program does not accept on the node, as long as it does not wait for them
    /// there. It may wait for the kernel's in a way of which the node is not told.
    Unattended,
}

/// The first word of a table: "TOECAL", and the version of the layout.
const MARK: u64 = u64::from_be_bytes(*b"TOECAL\0\x01");

/// Words of an entry: both addresses, as IPv6 has them, and both ports below a bit that says
/// that there is one.
const ENTRY: usize = 5;

/// The bit of an entry's last word that says that the entry is valid.
const IS_THERE: u64 = 1 << 32;

/// The entry of port 0, from which no socket connects, has the mark.
const ENTRIES: usize = 1 << 16;

const BYTES: usize = ENTRIES * ENTRY * size_of::<u64>();

/// The table of a process's listeners: by port, the ends of a connection.
#[derive(Debug)]
pub struct Callers(Words<AtomicU64>);

impl Callers {
    /// Makes an empty table. Returns `None` if the system has no memory or no descriptors.
    pub fn create() -> Option<Callers> {
        let region = Region::create("toehold-callers", BYTES).ok()?;
        let made = Words::<AtomicU64>::all_of(region, MARK)?;
        Callers::open(descriptors::copy(made.region().fd()?).ok()?)
    }

    /// The table that a descriptor is of. Returns `None` if it is something else.
    pub(crate) fn open(descriptor: OwnedFd) -> Option<Callers> {
        let region = Region::open_within(descriptor, Access::ReadWrite, BYTES as u64).ok()?;
        let words = Words::all_of(region, MARK)?;
        (words.len() >= ENTRIES * ENTRY).then_some(Callers(words))
    }

    /// The table's descriptor, of which another process makes the same table.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.region().fd()
    }

    /// Whether it is the same table, by whichever descriptor.
    pub(crate) fn is_same(&self, other: &Callers) -> bool {
        let file = |table: &Callers| {
            let status = rustix::fs::fstat(table.descriptor()?).ok()?;
            Some((status.st_dev, status.st_ino))
        };
        file(self).is_some_and(|own| file(other) == Some(own))
    }

    fn word(&self, port: u16, index: usize) -> &AtomicU64 {
        self.0.word(usize::from(port) * ENTRY + index)
    }

    /// Notes the ends of the peer's connection that the engine serves from a port, from now on.
    pub(crate) fn note(&self, port: u16, local: SocketAddr, peer: SocketAddr) {
        for (index, end) in [local, peer].into_iter().enumerate() {
            let bits = bits(end.ip());
            self.word(port, 2 * index).store((bits >> 64) as u64, Relaxed);
            self.word(port, 2 * index + 1).store(bits as u64, Relaxed);
        }
        let ports = u64::from(local.port()) << 16 | u64::from(peer.port());
        self.word(port, ENTRY - 1).store(IS_THERE | ports, Release);
    }

    /// Forgets a port from which the engine connects for no peer any more.
    pub(crate) fn forget(&self, port: u16) {
        self.word(port, ENTRY - 1).store(0, Relaxed);
    }

    /// The ends of the connection that comes from a port, if it is one of the node's.
    pub fn of(&self, port: u16) -> Option<Relayed> {
        let ports = self.word(port, ENTRY - 1).load(Acquire);
        (port != 0 && ports & IS_THERE != 0).then(|| Relayed {
            local: Some(self.end(port, 0, (ports >> 16) as u16)),
            peer: Some(self.end(port, 2, ports as u16)),
        })
    }

    fn end(&self, port: u16, first: usize, number: u16) -> SocketAddr {
        let half = |index| u128::from(self.word(port, index).load(Relaxed));
        let address = Ipv6Addr::from(half(first) << 64 | half(first + 1));
        let address = address.to_ipv4_mapped().map_or(address.into(), IpAddr::from);
        SocketAddr::new(address, number)
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_connects_from_a_port_is_found_until_it_does_not_any_more() {
        let here = Callers::create().unwrap();
        let there = Callers::open(here.descriptor().unwrap().try_clone_to_owned().unwrap()).unwrap();
        let ends = |local: &str, peer: &str| (local.parse().unwrap(), peer.parse().unwrap());
        for (port, (local, peer)) in [
            (1, ends("10.77.0.1:80", "10.77.0.2:4000")),
            (u16::MAX, ends("[fd77::1]:65535", "[fd77::2]:1")),
        ] {
            assert_eq!(here.of(port), None);
            there.note(port, local, peer);
            let found = Relayed {
                local: Some(local),
                peer: Some(peer),
            };
            assert_eq!(here.of(port), Some(found));
            there.forget(port);
            assert_eq!(here.of(port), None);
        }
        assert_eq!(here.of(0), None, "the mark");
        assert!(here.is_same(&there) && !here.is_same(&Callers::create().unwrap()));
    }

    #[test]
    fn other_memory_is_refused() {
        let region = Region::create("toehold-test", 4096).unwrap();
        assert!(Callers::open(region.into_fd().unwrap()).is_none());
        let (end, _other) = std::io::pipe().unwrap();
        assert!(Callers::open(end.into()).is_none());
    }
}
