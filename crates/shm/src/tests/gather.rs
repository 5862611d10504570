//! Compares gathers with their bytes in one piece.

use proptest::prelude::*;

use crate::{Gather, MAX_PARTS};

fn gather<'a>(parts: &'a [Vec<u8>]) -> Gather<'a> {
    let mut gather = Gather::EMPTY;
    for part in parts {
        assert!(gather.push(part));
    }
    gather
}

/// RFC 1071, word for word.
fn plain_sum(bytes: &[u8]) -> u32 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

proptest! {
    #[test]
    fn copies_slices_and_sums_as_one_piece(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..=MAX_PARTS),
        offset in 0..200_usize,
        len in 0..200_usize,
    ) {
        let whole = parts.concat();
        let gather = gather(&parts);
        prop_assert_eq!(gather.len(), whole.len());
        prop_assert_eq!(gather.is_empty(), whole.is_empty());
        //= RFC 1071 §1
        prop_assert_eq!(gather.checksum(), plain_sum(&whole));

        let start = offset.min(whole.len());
        let expected = &whole[start..(start + len).min(whole.len())];
        let mut copy = vec![0; len];
        let copied = gather.copy_to(offset, &mut copy);
        prop_assert_eq!(&copy[..copied], expected);
        prop_assert!(copy[copied..].iter().all(|&byte| byte == 0));

        let slice = gather.slice(offset, len);
        prop_assert_eq!(slice.len(), expected.len());
        let mut copy = vec![0; slice.len()];
        slice.copy_to(0, &mut copy);
        prop_assert_eq!(&copy[..], expected);
        prop_assert_eq!(slice.checksum(), plain_sum(expected));
        prop_assert!(slice.parts().all(|(_, len)| len > 0));
        prop_assert_eq!(slice.parts().map(|(_, len)| len).sum::<usize>(), expected.len());
    }
}

#[test]
fn long_runs_of_ones_sum_without_overflow() {
    let ones = vec![0xff_u8; 1 << 20];
    assert_eq!(Gather::from_slice(&ones).checksum(), plain_sum(&ones));
    let odd = gather(&[vec![0xff; 65_535], vec![0xff; 65_535], vec![1; 3]].map(Vec::from)).checksum();
    assert_eq!(odd, plain_sum(&[vec![0xff; 131_070], vec![1; 3]].concat()));
}

#[test]
fn excess_part_is_refused() {
    let mut gather = Gather::EMPTY;
    for _ in 0..MAX_PARTS {
        assert!(gather.push(b"ab"));
    }
    assert!(!gather.push(b"c"));
    assert!(gather.push(b""), "nothing to add is always fine");
    assert_eq!(gather.len(), 2 * MAX_PARTS);
    assert_eq!(gather.copy_to(usize::MAX, &mut [0; 4]), 0);
    assert!(gather.slice(usize::MAX, usize::MAX).is_empty());
}
