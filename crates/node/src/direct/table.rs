//! The table of a node's banks, and the addresses to which they lead.
//!
//! It lies in the node's region, outside of any lease. The engine writes it, every process reads
//! it. A *slot* is a bank and the side that this node has in it. The bank that a node has with
//! itself has a slot for each side.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use toehold_link::mq::MAX_BANKS_IN_ALL;
use toehold_shm::direct::Side;
use toehold_shm::{Carver, OutOfMemory, Words};

/// Slots of the bank that a node has with itself: the opening side, then the accepting side.
pub(crate) const OWN: [u16; 2] = [0, 1];

/// Slots of a node.
pub(crate) const SLOTS: usize = OWN.len() + MAX_BANKS_IN_ALL;

/// Words of a slot: a line of a cache.
const WORDS: usize = 8;

/// Tries to read a slot that the engine changes.
const TRIES: usize = 8;

mod at {
    /// Generation of the slot in the low half, flags above. It is changed last.
    pub(super) const STATE: usize = 0;
    pub(super) const IPV4: usize = 1;
    pub(super) const IPV6: usize = 2;
    pub(super) const MAC: usize = 4;
}

const LIVE: u64 = 1 << 32;
const ACCEPTING: u64 = 1 << 33;
const SAME_USER: u64 = 1 << 34;
/// The peer has gone: no connection is opened or accepted any more.
const GONE: u64 = 1 << 35;

/// The addresses of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// The address from the fabric, if it has one.
    pub(crate) ipv4: Option<Ipv4Addr>,
    pub(crate) ipv6: Option<Ipv6Addr>,
    /// The node's hardware address, from which its link-local address follows.
    pub(crate) mac: [u8; 6],
}

impl Addresses {
    /// All addresses of the node.
    pub(crate) fn all(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let given = [self.ipv4.map(IpAddr::V4), self.ipv6.map(IpAddr::V6)];
        let follows = IpAddr::V6(link_local(self.mac));
        given.into_iter().flatten().chain([follows])
    }

    /// Whether an address is one of them.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.all().any(|own| own == address)
    }
}

/// Whether a connection may have these ends, this node's first. The fabric gave this node the one
/// address, and the node behind the bank of `entry` the other. `own`: what the fabric gave this node.
pub(crate) fn may_come(own: Option<&Addresses>, entry: &Entry, [local, remote]: [SocketAddr; 2]) -> bool {
    match local.ip().is_loopback() {
        true => OWN.contains(&entry.slot) && remote.ip().is_loopback(),
        false => own.is_some_and(|own| own.has(local.ip())) && entry.addresses.has(remote.ip()),
    }
}

/// The address that follows from a hardware address.
//= RFC 4291 appendix A
fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// A slot of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) slot: u16,
    /// Tells this bank from earlier ones of the slot.
    pub(crate) generation: u32,
    /// The side that this node has.
    pub(crate) side: Side,
    /// Whether the other side runs as the same user.
    pub(crate) same_user: bool,
    /// Whether the other side has gone.
    pub(crate) is_gone: bool,
    /// The addresses of the other side.
    pub(crate) addresses: Addresses,
}

/// Handles of the table, cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct BankTable {
    words: Words<AtomicU64>,
    /// Changes whenever a slot does.
    epoch: Words<AtomicU64>,
}

impl BankTable {
    pub(crate) fn bytes_needed() -> usize {
        Words::wide_bytes_needed(SLOTS * WORDS) + Words::wide_bytes_needed(1)
    }

    pub(crate) fn create(carver: &mut Carver) -> Result<BankTable, OutOfMemory> {
        Ok(BankTable {
            words: carver.wide_words(SLOTS * WORDS)?,
            epoch: carver.wide_words(1)?,
        })
    }

    /// Changes whenever a slot does.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.word(0).load(Acquire)
    }

    fn word(&self, slot: u16, at: usize) -> Option<&AtomicU64> {
        (at < WORDS).then(|| self.words.get(usize::from(slot) * WORDS + at))?
    }

    /// The slot of the node's bank, if there is one.
    pub(crate) fn get(&self, slot: u16) -> Option<Entry> {
        for _ in 0..TRIES {
            let state = self.word(slot, at::STATE)?.load(Acquire);
            if state & LIVE == 0 {
                return None;
            }
            let word = |at| self.word(slot, at).map_or(0, |word| word.load(Relaxed));
            let (ipv4, ipv6) = (word(at::IPV4), [word(at::IPV6), word(at::IPV6 + 1)]);
            let mac = word(at::MAC);
            std::sync::atomic::fence(Acquire);
            if self.word(slot, at::STATE)?.load(Relaxed) != state {
                continue;
            }
            return Some(Entry {
                slot,
                generation: state as u32,
                side: match state & ACCEPTING {
                    0 => Side::Opening,
                    _ => Side::Accepting,
                },
                same_user: state & SAME_USER != 0,
                is_gone: state & GONE != 0,
                addresses: addresses_of(ipv4, ipv6, mac),
            });
        }
        None
    }

    /// Whether a slot still is of this bank, and its other side there.
    #[inline]
    pub(crate) fn is_there(&self, slot: u16, generation: u32) -> bool {
        let state = self.word(slot, at::STATE).map_or(0, |word| word.load(Acquire));
        state & (LIVE | GONE) == LIVE && state as u32 == generation
    }

    /// All slots of banks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> {
        (0..SLOTS as u16).filter_map(|slot| self.get(slot))
    }

    /// Puts a bank into a slot. For the engine.
    pub(crate) fn set(&self, entry: &Entry) {
        let Entry {
            slot,
            generation,
            side,
            same_user,
            is_gone,
            addresses,
        } = *entry;
        let flag = |is, flag| if is { flag } else { 0 };
        let flags = LIVE
            | flag(side == Side::Accepting, ACCEPTING)
            | flag(same_user, SAME_USER)
            | flag(is_gone, GONE);
        let store = |at, value| {
            if let Some(word) = self.word(slot, at) {
                word.store(value, Relaxed);
            }
        };
        store(at::STATE, 0);
        std::sync::atomic::fence(Release);
        let ipv6 = addresses.ipv6.map_or(0, Ipv6Addr::to_bits);
        store(
            at::IPV4,
            addresses.ipv4.map_or(0, |address| address.to_bits().into()),
        );
        store(at::IPV6, ipv6 as u64);
        store(at::IPV6 + 1, (ipv6 >> 64) as u64);
        let [a, b, c, d, e, f] = addresses.mac;
        store(at::MAC, u64::from_le_bytes([a, b, c, d, e, f, 0, 0]));
        std::sync::atomic::fence(Release);
        store(at::STATE, u64::from(generation) | flags);
        self.epoch.word(0).fetch_add(1, Release);
    }

    /// Takes the bank out of a slot. For the engine.
    pub(crate) fn clear(&self, slot: u16) {
        if let Some(state) = self.word(slot, at::STATE) {
            state.store(0, Release);
        }
        self.epoch.word(0).fetch_add(1, Release);
    }
}

fn addresses_of(ipv4: u64, ipv6: [u64; 2], mac: u64) -> Addresses {
    let ipv4 = Ipv4Addr::from_bits(ipv4 as u32);
    let ipv6 = Ipv6Addr::from_bits(u128::from(ipv6[0]) | u128::from(ipv6[1]) << 64);
    let [a, b, c, d, e, f, ..] = mac.to_le_bytes();
    Addresses {
        ipv4: (!ipv4.is_unspecified()).then_some(ipv4),
        ipv6: (!ipv6.is_unspecified()).then_some(ipv6),
        mac: [a, b, c, d, e, f],
    }
}

#[cfg(test)]
pub(super) mod tests {
    use toehold_shm::Region;

    use super::*;

    pub(in crate::direct) fn table() -> BankTable {
        let region = Region::private(BankTable::bytes_needed()).unwrap();
        BankTable::create(&mut Carver::new(region).unwrap()).unwrap()
    }

    pub(in crate::direct) fn entry(slot: u16, generation: u32, side: Side) -> Entry {
        Entry {
            slot,
            generation,
            side,
            same_user: true,
            is_gone: false,
            addresses: Addresses {
                ipv4: Some([10, 77, 0, 2].into()),
                ipv6: Some("fd77::2".parse().unwrap()),
                mac: [2, 0, 0, 0, 0, 2],
            },
        }
    }

    #[test]
    fn bank_in_table_is_found_until_it_is_cleared() {
        let table = table();
        let last = SLOTS as u16 - 1;
        assert_eq!((table.get(last), table.iter().count()), (None, 0));
        let epoch = table.epoch();
        let made = entry(last, u32::MAX, Side::Accepting);
        table.set(&made);
        assert_ne!(table.epoch(), epoch);
        assert_eq!(table.get(last), Some(made));
        assert_eq!(table.iter().collect::<Vec<_>>(), [made]);
        assert!(table.is_there(last, u32::MAX) && !table.is_there(last, 0));
        let gone = Entry {
            is_gone: true,
            ..made
        };
        table.set(&gone);
        assert_eq!(table.get(last), Some(gone));
        assert!(!table.is_there(last, u32::MAX));
        table.clear(last);
        assert_eq!(table.get(last), None);
        assert_eq!(table.get(SLOTS as u16), None, "there is no such slot");
        assert!(!table.is_there(u16::MAX, 0));
    }

    #[test]
    fn addresses_of_a_node_are_those_of_the_fabric_and_the_link_local_one() {
        let addresses = entry(2, 1, Side::Opening).addresses;
        for own in ["10.77.0.2", "fd77::2", "fe80::ff:fe00:2"] {
            assert!(addresses.has(own.parse().unwrap()), "{own}");
        }
        for other in ["10.77.0.3", "fd77::3", "fe80::ff:fe00:3", "::", "0.0.0.0"] {
            assert!(!addresses.has(other.parse().unwrap()), "{other}");
        }
        let none = Addresses::default();
        assert!(!none.has("0.0.0.0".parse().unwrap()) && !none.has("::".parse().unwrap()));
    }
}
