//! Keyed hashes of tuples, which an attacker must not be able to predict.
//!
//! Every purpose has a key of its own, derived from the stack's secret. Initial sequence numbers
//! are public; they reveal nothing about other keys.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;
use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::sip;
use crate::time::Instant;
use crate::tuple::FourTuple;

/// The purpose of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// Slots in the table of connections.
    Flows = 1,
    /// Slots in the table of TIME-WAIT records.
    TimeWaits,
    /// Initial sequence numbers.
    InitialSequence,
    /// Offsets of timestamps.
    Timestamps,
    /// Start of the search for an ephemeral port.
    Ports,
    /// SYN cookies.
    Cookies,
    /// Cookies of Fast Open.
    FastOpen,
    /// Choice among listeners that share a port.
    Listeners,
    /// Slots in the table of servers with Fast Open.
    FastOpenCache,
}

/// A key of SipHash.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Key {
    halves: [u64; 2],
}

impl Key {
    /// The key for a purpose.
    pub(crate) fn derive(secret: &[u8; 16], purpose: Purpose) -> Self {
        let hasher = SipHasher24::new_with_key(secret);
        let half = |index: u8| hasher.hash(&[purpose as u8, index]);
        Self {
            halves: [half(0), half(1)],
        }
    }

    /// The key that replaces this one after an attack.
    pub(crate) fn successor(&self) -> Self {
        let hasher = SipHasher24::new_with_keys(self.halves[0], self.halves[1]);
        let half = |index: u8| hasher.hash(&[b'n', b'e', b'x', b't', index]);
        Self {
            halves: [half(0), half(1)],
        }
    }

    /// A hash of bytes that peers see: SipHash-2-4.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.halves[0], self.halves[1]);
        hasher.write(bytes);
        hasher.finish()
    }

    /// A hash for tables: SipHash-1-3, which no known attack predicts.
    #[inline]
    pub(crate) fn flow(&self, tuple: &FourTuple) -> u64 {
        sip::flow(self.halves, tuple)
    }

    /// The hashes of up to [`sip::BURST`] tuples.
    #[inline]
    pub(crate) fn flows(&self, tuples: &[FourTuple]) -> sip::Hashes {
        sip::Packed::new(self.halves, tuples).hashes()
    }

    /// A hash whose value peers see: SipHash-2-4. `extra` is hashed with the tuple.
    pub(crate) fn public(&self, tuple: &FourTuple, extra: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.halves[0], self.halves[1]);
        write_tuple(&mut hasher, tuple);
        hasher.write_u64(extra);
        hasher.finish()
    }
}

impl core::fmt::Debug for Key {
    /// Formats without the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key")
    }
}

/// Feeds a tuple to a hasher: two words for IPv4, five for IPv6. The hash covers the length, which
/// separates the families.
#[inline]
fn write_tuple(hasher: &mut impl Hasher, tuple: &FourTuple) {
    let ports = u32::from(tuple.local_port) << 16 | u32::from(tuple.remote_port);
    let local = u128::from_le_bytes(tuple.local.0);
    let remote = u128::from_le_bytes(tuple.remote.0);
    if is_mapped(local) && is_mapped(remote) {
        hasher.write_u64((local >> 64) as u64 & !0xffff_ffff | (remote >> 96) as u64);
    } else {
        hasher.write_u64(local as u64);
        hasher.write_u64((local >> 64) as u64);
        hasher.write_u64(remote as u64);
        hasher.write_u64((remote >> 64) as u64);
    }
    hasher.write_u32(ports);
}

/// Whether an address, read as a little-endian number, is an IPv4-mapped address.
#[inline]
fn is_mapped(address: u128) -> bool {
    address as u64 == 0 && (address >> 64) as u32 == 0xffff_0000
}

/// The keys of values that connections show to peers.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    initial_sequence: Key,
    timestamps: Key,
    ports: Key,
    pub(crate) cookies: Key,
    pub(crate) fast_open: Key,
    pub(crate) fast_open_cache: Key,
    listeners: Key,
}

impl Keys {
    /// Derives the keys from a stack's secret.
    pub(crate) fn new(secret: &[u8; 16]) -> Self {
        Self {
            initial_sequence: Key::derive(secret, Purpose::InitialSequence),
            timestamps: Key::derive(secret, Purpose::Timestamps),
            ports: Key::derive(secret, Purpose::Ports),
            cookies: Key::derive(secret, Purpose::Cookies),
            fast_open: Key::derive(secret, Purpose::FastOpen),
            fast_open_cache: Key::derive(secret, Purpose::FastOpenCache),
            listeners: Key::derive(secret, Purpose::Listeners),
        }
    }

    /// Sets the key of Fast Open cookies that several nodes share.
    pub(crate) fn set_fast_open_key(&mut self, key: &[u8; 16]) {
        let number = u128::from_le_bytes(*key);
        self.fast_open.halves = [number as u64, (number >> 64) as u64];
    }

    /// The initial sequence number of a connection opened at `now`.
    //= RFC 6528 §3 (ISN = M + F(localip, localport, remoteip, remoteport, secretkey))
    //= RFC 9293 §3.4.1 (the clock M ticks about every 4 microseconds)
    pub(crate) fn initial_sequence(&self, tuple: &FourTuple, now: Instant) -> Seq {
        let clock = (now.0 / 4_000) as u32;
        Seq(self.initial_sequence.public(tuple, 0) as u32) + clock
    }

    /// The offset added to the clock in a connection's timestamps. It is the same for every
    /// incarnation of a tuple, so that their timestamps keep growing.
    //= RFC 7323 §5.4 (a random offset for each connection)
    pub(crate) fn timestamp_offset(&self, tuple: &FourTuple) -> u32 {
        self.timestamps.public(tuple, 0) as u32
    }

    /// The index, of `count` listeners that share a port, of the one for this tuple.
    pub(crate) fn listener_of(&self, tuple: &FourTuple, count: usize) -> usize {
        (self.listeners.public(tuple, 0) % count.max(1) as u64) as usize
    }

    /// The start of the search for an ephemeral port. The tuple's local port is ignored.
    //= RFC 6056 §3.3.3 (the offset is F(local_IP, remote_IP, remote_port, secret_key))
    pub(crate) fn port_offset(&self, tuple: &FourTuple) -> u32 {
        self.ports.public(
            &FourTuple {
                local_port: 0,
                ..*tuple
            },
            0,
        ) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;
    use core::time::Duration;
    use siphasher::sip::SipHasher13;

    fn tuple(local: &str, remote: &str) -> FourTuple {
        FourTuple::new(local.parse::<SocketAddr>().unwrap(), remote.parse().unwrap())
    }

    fn variants() -> Vec<FourTuple> {
        [
            ("10.0.0.1:80", "10.0.0.2:1000"),
            ("10.0.0.2:80", "10.0.0.1:1000"),
            ("10.0.0.1:81", "10.0.0.2:1000"),
            ("10.0.0.1:80", "10.0.0.2:1001"),
            ("10.0.0.1:1000", "10.0.0.2:80"),
            ("10.0.0.1:80", "10.0.0.3:1000"),
            ("[fd00::1]:80", "[fd00::2]:1000"),
            ("[fd00::2]:80", "[fd00::1]:1000"),
            ("[fd00::1]:80", "[::ffff:10.0.0.2]:1000"),
            ("[::10.0.0.1]:80", "[::10.0.0.2]:1000"),
        ]
        .map(|(local, remote)| tuple(local, remote))
        .to_vec()
    }

    #[test]
    fn flow_hash_is_siphash_of_addresses_and_ports() {
        let key = Key { halves: [7, 8] };
        let v4 = tuple("10.1.2.3:80", "10.4.5.6:1000");
        let bytes = [10, 4, 5, 6, 10, 1, 2, 3, 0xe8, 3, 80, 0];
        assert_eq!(key.flow(&v4), SipHasher13::new_with_keys(7, 8).hash(&bytes));
        let v6 = tuple("[fd00::1]:80", "[fd00::2]:1000");
        let mut bytes = [v6.local.0, v6.remote.0].concat();
        bytes.extend([0xe8, 3, 80, 0]);
        assert_eq!(key.flow(&v6), SipHasher13::new_with_keys(7, 8).hash(&bytes));
    }

    #[test]
    fn hash_depends_on_every_field_and_purpose() {
        let mut seen = std::collections::HashSet::new();
        for purpose in [Purpose::Flows, Purpose::TimeWaits, Purpose::Cookies] {
            let key = Key::derive(&[3; 16], purpose);
            for key in [key, key.successor()] {
                for tuple in variants() {
                    assert!(seen.insert(key.flow(&tuple)));
                    assert!(seen.insert(key.public(&tuple, 0)));
                    assert!(seen.insert(key.public(&tuple, 1)));
                }
            }
        }
    }

    #[test]
    fn initial_sequence_numbers_follow_the_clock_and_hide_the_tuple() {
        //= RFC 6528 §3
        //= RFC 9293 §3.4.1
        let keys = Keys::new(&[1; 16]);
        let start = Instant(5_000_000_000);
        let first = tuple("10.0.0.1:80", "10.0.0.2:1000");
        let isn = keys.initial_sequence(&first, start);
        let later = keys.initial_sequence(&first, start + Duration::from_micros(400));
        assert_eq!(later.distance(isn), 100);
        // After 4.77 hours the clock has wrapped around once.
        let around = keys.initial_sequence(&first, start + Duration::from_micros(4 << 32));
        assert_eq!(around, isn);
        let other = keys.initial_sequence(&tuple("10.0.0.1:80", "10.0.0.2:1001"), start);
        assert!(other.distance(isn) > 1 << 16 && isn.distance(other) > 1 << 16);
        assert_ne!(Keys::new(&[2; 16]).initial_sequence(&first, start), isn);
    }

    #[test]
    fn timestamp_offsets_differ_by_connection_and_stay_with_the_tuple() {
        //= RFC 7323 §5.4
        let keys = Keys::new(&[1; 16]);
        let offsets: std::collections::HashSet<_> =
            variants().iter().map(|t| keys.timestamp_offset(t)).collect();
        assert_eq!(offsets.len(), variants().len());
        assert_eq!(
            keys.timestamp_offset(&variants()[0]),
            keys.timestamp_offset(&variants()[0])
        );
    }

    #[test]
    fn port_offsets_depend_on_the_destination_only() {
        //= RFC 6056 §3.3.3
        let keys = Keys::new(&[1; 16]);
        let [a, b] = [
            tuple("10.0.0.1:80", "10.0.0.2:1000"),
            tuple("10.0.0.1:81", "10.0.0.2:1000"),
        ];
        assert_eq!(keys.port_offset(&a), keys.port_offset(&b));
        assert_ne!(
            keys.port_offset(&a),
            keys.port_offset(&tuple("10.0.0.1:80", "10.0.0.2:1001"))
        );
    }
}
