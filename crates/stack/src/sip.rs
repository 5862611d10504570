//! SipHash-1-3 of four-tuples: one, or many at once.
//!
//! A tuple is two words for IPv4 and five for IPv6. The last word holds the ports and the length in
//! bytes, as SipHash requires. The functions for many tuples are loops in which every lane does the
//! same work, so that compilers can use vectors.

use toehold_shm::{Vectors, with_vectors};

use crate::tuple::{Address, FourTuple};

/// Tuples hashed at once, at most.
pub(crate) const BURST: usize = 32;

/// Tuples in a group: as many words as the widest vectors have.
const LANES: usize = 8;
const GROUPS: usize = BURST / LANES;

const IPV4_WORDS: usize = 2;
const IPV6_WORDS: usize = 5;
const IPV4_LEN: u64 = 12;
const IPV6_LEN: u64 = 36;

/// Words of the tuples of a group, by position.
type Group<const WORDS: usize> = [[u64; LANES]; WORDS];

/// Hashes of a burst, group by group; flattened they have the order of the tuples.
pub(crate) type Hashes = [[u64; LANES]; GROUPS];

/// SipHash-1-3 of whole words. The last word has the length in its highest byte.
#[inline(always)]
fn sip13<const WORDS: usize>(key: [u64; 2], words: [u64; WORDS]) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    for word in words {
        v[3] ^= word;
        v = round(v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    v = round(round(round(v)));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline(always)]
fn round([mut a, mut b, mut c, mut d]: [u64; 4]) -> [u64; 4] {
    a = a.wrapping_add(b);
    c = c.wrapping_add(d);
    b = b.rotate_left(13) ^ a;
    d = d.rotate_left(16) ^ c;
    a = a.rotate_left(32).wrapping_add(d);
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    d = d.rotate_left(21) ^ a;
    [a, b, c.rotate_left(32), d]
}

/// The hash of one tuple.
#[inline]
pub(crate) fn flow(key: [u64; 2], tuple: &FourTuple) -> u64 {
    if is_ipv4(tuple) {
        sip13(key, ipv4_words(tuple))
    } else {
        sip13(key, ipv6_words(tuple))
    }
}

/// Up to [`BURST`] tuples as words, lane by lane. Packing is separate from hashing, since it does
/// not vectorise.
pub(crate) struct Packed {
    key: [u64; 2],
    groups: usize,
    ipv4: [Group<IPV4_WORDS>; GROUPS],
    ipv6: [Group<IPV6_WORDS>; GROUPS],
    /// For each group, a bit for each lane with an IPv6 tuple.
    is_ipv6: [u8; GROUPS],
}

impl Packed {
    /// Packs tuples, of which there are at most [`BURST`].
    #[inline]
    pub(crate) fn new(key: [u64; 2], tuples: &[FourTuple]) -> Self {
        let mut new = Self {
            key,
            groups: tuples.len().div_ceil(LANES),
            ipv4: [[[0; LANES]; IPV4_WORDS]; GROUPS],
            ipv6: [[[0; LANES]; IPV6_WORDS]; GROUPS],
            is_ipv6: [0; GROUPS],
        };
        for (group, tuples) in tuples.chunks(LANES).take(GROUPS).enumerate() {
            for (lane, tuple) in tuples.iter().enumerate() {
                if is_ipv4(tuple) {
                    put(&mut new.ipv4[group], lane, ipv4_words(tuple));
                } else {
                    put(&mut new.ipv6[group], lane, ipv6_words(tuple));
                    new.is_ipv6[group] |= 1 << lane;
                }
            }
        }
        new
    }

    /// The hashes of the tuples.
    #[inline]
    pub(crate) fn hashes(&self) -> Hashes {
        with_vectors(self)
    }
}

#[inline(always)]
fn put<const WORDS: usize>(group: &mut Group<WORDS>, lane: usize, words: [u64; WORDS]) {
    for (lanes, word) in group.iter_mut().zip(words) {
        lanes[lane] = word;
    }
}

impl Vectors for &Packed {
    type Output = Hashes;

    #[inline(always)]
    fn run(self) -> Hashes {
        let mut hashes = Hashes::default();
        for (group, hashes) in hashes.iter_mut().enumerate().take(self.groups) {
            let is_ipv6 = self.is_ipv6[group];
            if is_ipv6 != u8::MAX {
                *hashes = lanes(self.key, &self.ipv4[group]);
            }
            if is_ipv6 != 0 {
                let others = lanes(self.key, &self.ipv6[group]);
                for (lane, hash) in hashes.iter_mut().enumerate() {
                    *hash = if is_ipv6 >> lane & 1 == 0 {
                        *hash
                    } else {
                        others[lane]
                    };
                }
            }
        }
        hashes
    }
}

/// The hashes of a group: a loop that compilers turn into vectors.
#[inline(always)]
fn lanes<const WORDS: usize>(key: [u64; 2], group: &Group<WORDS>) -> [u64; LANES] {
    let mut hashes = [0; LANES];
    for (lane, hash) in hashes.iter_mut().enumerate() {
        *hash = sip13::<WORDS>(key, core::array::from_fn(|word| group[word][lane]));
    }
    hashes
}

/// The two words of an address, in the order of its bytes.
#[inline(always)]
pub(crate) fn halves(address: &Address) -> [u64; 2] {
    let halves: [u64; 2] = zerocopy::transmute!(address.0);
    halves.map(u64::from_le)
}

#[inline(always)]
fn ports(tuple: &FourTuple) -> u64 {
    u64::from(tuple.local_port) << 16 | u64::from(tuple.remote_port)
}

#[inline(always)]
fn ipv4_words(tuple: &FourTuple) -> [u64; IPV4_WORDS] {
    let [_, local] = halves(&tuple.local);
    let [_, remote] = halves(&tuple.remote);
    [local & !0xffff_ffff | remote >> 32, ports(tuple) | IPV4_LEN << 56]
}

#[inline(always)]
fn ipv6_words(tuple: &FourTuple) -> [u64; IPV6_WORDS] {
    let [local, remote] = [halves(&tuple.local), halves(&tuple.remote)];
    [
        local[0],
        local[1],
        remote[0],
        remote[1],
        ports(tuple) | IPV6_LEN << 56,
    ]
}

/// Whether both addresses are IPv4-mapped, in one comparison.
#[inline(always)]
fn is_ipv4(tuple: &FourTuple) -> bool {
    let prefix = |half: u64| u64::from(half as u32 ^ 0xffff_0000);
    let [local, remote] = [halves(&tuple.local), halves(&tuple.remote)];
    local[0] | remote[0] | prefix(local[1]) | prefix(remote[1]) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use siphasher::sip::SipHasher13;

    fn tuple(n: u32) -> FourTuple {
        if n.is_multiple_of(3) {
            let remote = format!("[fd00::{:x}:{n:x}]:{}", n * 7, n * 31 + 1);
            FourTuple::new("[fd00::1]:80".parse().unwrap(), remote.parse().unwrap())
        } else {
            let remote = format!("10.{n}.2.{n}:{}", n * 31 + 1);
            FourTuple::new("10.0.0.1:80".parse().unwrap(), remote.parse().unwrap())
        }
    }

    fn bytes(tuple: &FourTuple) -> Vec<u8> {
        let mut bytes = if is_ipv4(tuple) {
            [&tuple.remote.0[12..], &tuple.local.0[12..]].concat()
        } else {
            [tuple.local.0, tuple.remote.0].concat()
        };
        bytes.extend(tuple.remote_port.to_le_bytes());
        bytes.extend(tuple.local_port.to_le_bytes());
        bytes
    }

    #[test]
    fn single_and_burst_hashes_equal_siphash() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let reference = SipHasher13::new_with_keys(key[0], key[1]);
        let all: Vec<_> = (0..100).map(tuple).collect();
        let only = |ipv4| all.iter().copied().filter(move |tuple| is_ipv4(tuple) == ipv4);
        for tuples in [all.clone(), only(true).collect(), only(false).collect()] {
            for count in 0..=BURST {
                let burst = &tuples[..count];
                let hashes = Packed::new(key, burst).hashes();
                for (tuple, hash) in burst.iter().zip(hashes.as_flattened()) {
                    assert_eq!(*hash, reference.hash(&bytes(tuple)), "{tuple:?}");
                    assert_eq!(*hash, flow(key, tuple));
                }
            }
        }
    }

    #[test]
    fn tuple_with_one_ipv6_address_is_ipv6() {
        for (local, remote, expected) in [
            ("10.0.0.1:1", "10.0.0.2:1", true),
            ("0.0.0.0:1", "255.255.255.255:1", true),
            ("[::1]:1", "10.0.0.2:1", false),
            ("10.0.0.2:1", "[::1]:1", false),
            ("[::fffe:a00:1]:1", "10.0.0.2:1", false),
            ("10.0.0.2:1", "[8000::ffff:a00:1]:1", false),
        ] {
            let tuple = FourTuple::new(local.parse().unwrap(), remote.parse().unwrap());
            assert_eq!(is_ipv4(&tuple), expected, "{tuple:?}");
        }
    }
}
