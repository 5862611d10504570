//! The Internet checksum (RFC 1071): partial sums and checksum fields.
//!
//! A *partial sum* is a `u32` that is congruent, modulo 0xffff, to the sum of
//! some bytes taken as big-endian 16-bit words. It is zero only if all bytes
//! are zero. [`combine`] adds partial sums. [`finish`] turns one into the value
//! of a checksum field.
//!
//! ```
//! use toehold_wire::checksum::{combine, finish, sum};
//! let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
//! assert_eq!(finish(sum(&bytes)), !0xddf2);
//! // The parts may have any length; the last argument tells whether the
//! // second one begins at an odd place.
//! let (head, tail) = bytes.split_at(3);
//! assert_eq!(finish(combine(sum(head), sum(tail), true)), !0xddf2);
//! ```

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length in bytes from which vector registers are faster.
const LONG: usize = 96;

/// Most 8-byte words before the accumulators are folded. Each word adds less
/// than 2^32 to both accumulators, and together they must stay below 2^64.
const MAX_WORDS: usize = 1 << 30;

/// Returns the partial sum of `bytes`, at most 0xffff. The first byte is the
/// high half of a word, and so is a last odd byte (RFC 1071 §1).
#[inline]
#[must_use]
pub fn sum(bytes: &[u8]) -> u32 {
    let total = if bytes.len() >= LONG {
        sum_long(bytes)
    } else {
        sum_short(bytes)
    };
    //= RFC 1071 §2
    // The words were summed in native byte order, so the sum is in that order
    // too.
    u32::from(u16::from_be(fold_wide(total)))
}

/// Sums a few words in native byte order.
#[inline]
fn sum_short(bytes: &[u8]) -> u64 {
    let (words, mut rest) = bytes.as_chunks::<4>();
    let mut total: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    if let Some((half, tail)) = rest.split_first_chunk::<2>() {
        total += u64::from(u16::from_ne_bytes(*half));
        rest = tail;
    }
    if let [last] = *rest {
        total += u64::from(u16::from_ne_bytes([last, 0]));
    }
    total
}

#[inline(never)]
fn sum_long(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut total = sum_short(rest);
    for words in words.chunks(MAX_WORDS) {
        total = u64::from(fold_wide(total)) + sum_words(words);
    }
    total
}

/// Sums words with two additions and a shift each, a form that the compiler
/// vectorises. `whole` wraps, but `high` holds the sum of the high halves, from
/// which the sum of the low halves follows.
#[inline]
fn sum_words(words: &[[u8; 8]]) -> u64 {
    let (mut whole, mut high) = (0u64, 0u64);
    for word in words {
        let word = u64::from_ne_bytes(*word);
        whole = whole.wrapping_add(word);
        high += word >> 32;
    }
    whole.wrapping_sub(high << 32) + high
}

/// Folds carries back until 16 bits are left. The result is zero only for zero.
#[inline]
const fn fold_wide(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    fold(sum as u32)
}

/// Folds a partial sum to 16 bits. The result is zero only for zero.
#[inline]
const fn fold(sum: u32) -> u16 {
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// Returns the partial sum of two pieces. `odd` is true if the second piece
/// begins at an odd offset from the start of the summed bytes.
#[inline]
#[must_use]
pub const fn combine(first: u32, second: u32, odd: bool) -> u32 {
    //= RFC 1071 §2
    let second = if odd {
        fold(second).swap_bytes() as u32
    } else {
        second
    };
    let (total, carry) = first.overflowing_add(second);
    total + carry as u32
}

/// Returns the value of the checksum field, given the partial sum of all
/// covered bytes with the field itself as zero.
#[inline]
#[must_use]
pub const fn finish(sum: u32) -> u16 {
    !fold(sum)
}

/// Returns whether a checksum is right, given the partial sum of all covered
/// bytes, the checksum field included.
#[inline]
#[must_use]
pub const fn is_valid(sum: u32) -> bool {
    fold(sum) == 0xffff
}

/// Returns the partial sum of the pseudo-header between two addresses of one
/// family. `len` is the length in bytes of transport header and data. For
/// addresses of different families there is no pseudo-header; the result is
/// then the sum of its would-be fields.
#[inline]
#[must_use]
pub fn pseudo_header(src: IpAddr, dst: IpAddr, protocol: u8, len: u32) -> u32 {
    combine(
        combine(address(src), address(dst), false),
        tail(protocol, len),
        false,
    )
}

#[inline]
fn address(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(v4) => sum(&v4.octets()),
        IpAddr::V6(v6) => sum(&v6.octets()),
    }
}

#[inline]
fn tail(protocol: u8, len: u32) -> u32 {
    (len >> 16) + (len & 0xffff) + u32::from(protocol)
}

/// Returns the partial sum of the IPv4 pseudo-header, see [`pseudo_header`].
#[inline]
#[must_use]
pub fn pseudo_header_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: u32) -> u32 {
    //= RFC 9293 §3.1
    let total = u64::from(src.to_bits()) + u64::from(dst.to_bits()) + u64::from(tail(protocol, len));
    u32::from(fold_wide(total))
}

/// Returns the partial sum of the IPv6 pseudo-header, see [`pseudo_header`].
#[inline]
#[must_use]
pub fn pseudo_header_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, len: u32) -> u32 {
    //= RFC 8200 §8.1
    combine(
        combine(sum(&src.octets()), sum(&dst.octets()), false),
        tail(protocol, len),
        false,
    )
}

/// Returns the new value of the checksum field after one covered 16-bit word
/// changed from `old` to `new` (RFC 1624).
#[inline]
#[must_use]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    //= RFC 1624 §3
    // HC' = ~(~HC + ~m + m')
    finish(!checksum as u32 + !old as u32 + new as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 to the letter: adds 16-bit words one by one.
    fn plain(bytes: &[u8]) -> u16 {
        let mut total = 0u64;
        for pair in bytes.chunks(2) {
            total += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
        while total > 0xffff {
            total = (total >> 16) + (total & 0xffff);
        }
        total as u16
    }

    #[test]
    fn sum_matches_example_of_rfc_1071() {
        //= RFC 1071 §3
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes), 0xddf2);
    }

    #[test]
    fn update_matches_example_of_rfc_1624() {
        //= RFC 1624 §4
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn known_ipv4_header_is_valid() {
        let mut header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8, 0x00, 0x01,
            0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(finish(sum(&header)), 0xb861);
        header[10..12].copy_from_slice(&[0xb8, 0x61]);
        assert!(is_valid(sum(&header)));
    }

    #[test]
    fn sum_with_carries_matches_plain_sum() {
        let bytes = [0xff; 300];
        for start in 0..9 {
            for end in start..bytes.len() {
                assert_eq!(
                    sum(&bytes[start..end]),
                    u32::from(plain(&bytes[start..end])),
                    "{start}..{end}"
                );
            }
        }
        assert_eq!(sum(&[]), 0);
        assert_eq!(sum(&[0; 200]), 0);
    }

    proptest! {
        #[test]
        fn sum_matches_plain_sum(bytes in proptest::collection::vec(any::<u8>(), 0..700), start in 0usize..16) {
            let bytes = bytes.get(start..).unwrap_or(&[]);
            prop_assert_eq!(sum(bytes), u32::from(plain(bytes)));
        }

        #[test]
        fn combined_pieces_match_whole(bytes in proptest::collection::vec(any::<u8>(), 0..300), cuts in any::<[u8; 2]>()) {
            let first = usize::from(cuts[0]).min(bytes.len());
            let second = (first + usize::from(cuts[1])).min(bytes.len());
            let mut total = sum(&bytes[..first]);
            total = combine(total, sum(&bytes[first..second]), first % 2 == 1);
            total = combine(total, sum(&bytes[second..]), second % 2 == 1);
            prop_assert_eq!(finish(total), finish(sum(&bytes)));
        }

        #[test]
        fn combine_accepts_any_partial_sum(a in any::<u32>(), b in any::<u32>()) {
            let expected = (u64::from(a) + u64::from(b)) % 0xffff;
            prop_assert_eq!(u64::from(combine(a, b, false)) % 0xffff, expected);
        }

        #[test]
        fn update_matches_new_sum(mut words in proptest::collection::vec(any::<u16>(), 1..30), at in any::<usize>(), new: u16) {
            let bytes = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
            let before = finish(sum(&bytes(&words)));
            let at = at % words.len();
            let after = update(before, words[at], new);
            words[at] = new;
            // Zero has two forms; only data that are all zero have the negative
            // one.
            //= RFC 1624 §3
            let expected = finish(sum(&bytes(&words)));
            prop_assert!(after == expected || words.iter().all(|word| *word == 0));
        }

        #[test]
        fn pseudo_headers_agree(src4: [u8; 4], dst4: [u8; 4], src6: [u8; 16], dst6: [u8; 16], protocol: u8, len in 0u32..0x2_0000) {
            let (a, b) = (Ipv4Addr::from(src4), Ipv4Addr::from(dst4));
            let mut bytes = [&src4[..], &dst4].concat();
            bytes.extend([0, protocol]);
            bytes.extend(&len.to_be_bytes()[if len > 0xffff { 0 } else { 2 }..]);
            prop_assert_eq!(finish(pseudo_header_v4(a, b, protocol, len)), finish(sum(&bytes)));
            prop_assert_eq!(finish(pseudo_header(a.into(), b.into(), protocol, len)), finish(sum(&bytes)));
            let (a, b) = (Ipv6Addr::from(src6), Ipv6Addr::from(dst6));
            let mut bytes = [&src6[..], &dst6].concat();
            bytes.extend(len.to_be_bytes());
            bytes.extend([0, 0, 0, protocol]);
            prop_assert_eq!(finish(pseudo_header_v6(a, b, protocol, len)), finish(sum(&bytes)));
            prop_assert_eq!(finish(pseudo_header(a.into(), b.into(), protocol, len)), finish(sum(&bytes)));
        }
    }
}
