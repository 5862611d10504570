//! Compares payload memory with a plain model.

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::payload;
use crate::{ByteQueue, Carver, NONE, Payload, Region};

#[derive(Debug, Clone)]
enum Step {
    /// Allocate a block and append it to the chain.
    Grow(usize),
    /// Free the first block of the chain.
    Shrink(usize),
    /// Retire the first block of the chain.
    Retire(usize),
    /// Free the whole chain.
    Clear(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_usize).prop_map(Step::Grow),
        2 => (0..3_usize).prop_map(Step::Shrink),
        2 => (0..3_usize).prop_map(Step::Retire),
        1 => (0..3_usize).prop_map(Step::Clear),
    ]
}

proptest! {
    #[test]
    fn chains_share_no_blocks(steps in prop::collection::vec(step(), 0..200)) {
        let mut payload = payload(9, 64);
        let mut chains: [Vec<u32>; 3] = Default::default();
        for step in steps {
            match step {
                Step::Grow(chain) => match payload.allocate() {
                    Some(block) => {
                        prop_assert_eq!(payload.next(block), NONE);
                        prop_assert!(chains.iter().all(|chain| !chain.contains(&block)));
                        payload.bytes_mut(block).fill(chain as u8);
                        if let Some(&last) = chains[chain].last() {
                            payload.set_next(last, block);
                        }
                        chains[chain].push(block);
                    }
                    None => prop_assert_eq!(payload.free_blocks(), 0),
                },
                Step::Shrink(chain) | Step::Retire(chain) if chains[chain].is_empty() => {}
                Step::Shrink(chain) => payload.free(chains[chain].remove(0)),
                Step::Retire(chain) => payload.retire(chains[chain].remove(0)),
                Step::Clear(chain) => {
                    payload.free_chain(chains[chain].first().copied().unwrap_or(NONE));
                    chains[chain].clear();
                }
            }
            let used: usize = chains.iter().map(Vec::len).sum();
            prop_assert_eq!(payload.free_blocks() as usize, 9 - used);
            for (number, chain) in chains.iter().enumerate() {
                for (at, &block) in chain.iter().enumerate() {
                    prop_assert_eq!(payload.next(block), chain.get(at + 1).copied().unwrap_or(NONE));
                    prop_assert!(payload.bytes(block).iter().all(|&byte| byte == number as u8));
                }
            }
        }
    }
}

#[test]
fn last_freed_block_is_allocated_first() {
    let mut payload = payload(4, 64);
    let blocks: Vec<u32> = (0..4).map(|_| payload.allocate().unwrap()).collect();
    assert_eq!(payload.allocate(), None);
    payload.free(blocks[1]);
    payload.free(blocks[3]);
    assert_eq!(payload.allocate(), Some(blocks[3]));
    assert_eq!(payload.allocate(), Some(blocks[1]));
}

#[test]
fn retired_blocks_return_in_turn() {
    // 4 MiB of 64 KiB blocks have to accumulate.
    let mut payload = payload(100, 1 << 16);
    let blocks: Vec<u32> = (0..64).map(|_| payload.allocate().unwrap()).collect();
    blocks[..63].iter().for_each(|&block| payload.retire(block));
    assert_eq!(payload.allocate(), Some(64), "63 blocks still rest");
    payload.retire(blocks[63]);
    assert_eq!(payload.allocate(), Some(blocks[0]));
    assert_eq!(payload.allocate(), Some(65), "63 blocks rest again");
    assert_eq!(payload.free_blocks(), 97);
    // Once no other block is left, they no longer rest.
    let rest: Vec<u32> = core::iter::from_fn(|| payload.allocate()).collect();
    assert_eq!(rest.len(), 97);
    assert_eq!(rest[34..], blocks[1..]);
}

#[test]
fn cyclic_chain_is_freed_once() {
    let mut payload = payload(4, 64);
    let blocks: Vec<u32> = (0..3).map(|_| payload.allocate().unwrap()).collect();
    payload.set_next(blocks[0], blocks[1]);
    payload.set_next(blocks[1], blocks[2]);
    payload.set_next(blocks[2], blocks[0]);
    payload.free_chain(blocks[0]);
    assert_eq!(payload.free_blocks(), 4);
    // No chain, a missing block, and a block that was never in use.
    for head in [NONE, 7, 3] {
        payload.free_chain(head);
    }
    assert_eq!(payload.free_blocks(), 4);
    let mut blocks: Vec<u32> = core::iter::from_fn(|| payload.allocate()).collect();
    blocks.sort_unstable();
    assert_eq!(blocks, [0, 1, 2, 3]);
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "not in use"))]
fn double_free_changes_nothing() {
    let mut payload = payload(4, 64);
    let block = payload.allocate().unwrap();
    payload.free(block);
    payload.free(block);
    assert_eq!(payload.free_blocks(), 4);
}

#[test]
fn lengths_other_than_powers_of_two_are_refused() {
    let mut carver = Carver::new(Region::private(1 << 16).unwrap()).unwrap();
    for len in [0, 32, 100, u32::MAX] {
        let carver = std::panic::AssertUnwindSafe(&mut carver);
        let refused = std::panic::catch_unwind(move || { carver }.0.payload(1, len));
        assert!(refused.is_err(), "{len}");
    }
    assert!(
        carver.payload(1 << 20, 16384).is_err(),
        "more than the region holds"
    );
}

#[test]
fn area_finds_offsets_of_its_bytes() {
    let mut carver = Carver::new(Region::create("toehold-test", 1 << 18).unwrap()).unwrap();
    let table = carver.table::<u8>(100).unwrap();
    let mut payload = carver.payload(4, 16384).unwrap();
    let area = payload.area();
    assert_eq!((area.offset() % 4096, area.len()), (0, 4 * 16384));
    payload.allocate().unwrap();
    let block = payload.allocate().unwrap();
    payload.bytes_mut(block)[5..10].copy_from_slice(b"there");

    let bytes = payload.bytes(block);
    let offset = area.offset_of(bytes[5..].as_ptr(), 5).unwrap();
    assert_eq!(offset, (area.offset() + 16384 + 5) as u64);
    assert_eq!(
        offset,
        (bytes[5..].as_ptr().addr() - area.region().base().addr()) as u64
    );
    assert_eq!(
        area.offset_of(bytes.as_ptr(), 3 * 16384),
        Some((area.offset() + 16384) as u64)
    );
    assert_eq!(area.offset_of(bytes.as_ptr(), 3 * 16384 + 1), None);
    assert_eq!(area.offset_of(bytes.as_ptr(), usize::MAX), None);
    assert_eq!(area.offset_of(table.as_ptr(), 1), None);
    assert_eq!(area.offset_of(core::ptr::null(), 0), None);

    // A reader in another mapping finds the bytes at that offset.
    let peer = Region::open(area.region().read_only_fd().unwrap(), crate::Access::ReadOnly).unwrap();
    let mut copy = [0; 5];
    assert_eq!(peer.gather(offset, 5).unwrap().copy_to(0, &mut copy), 5);
    assert_eq!(&copy, b"there");
}

#[test]
fn blocks_never_used_stay_untouched() {
    let region = Region::create("toehold-untouched-payload", Payload::bytes_needed(4096, 16384)).unwrap();
    let mut payload = Carver::new(region).unwrap().payload(4096, 16384).unwrap();
    for _ in 0..4 {
        let block = payload.allocate().unwrap();
        payload.bytes_mut(block).fill(1);
    }
    let resident = super::resident_kib("toehold-untouched-payload");
    // One huge page more if the kernel gives huge pages to shared memory.
    assert!((64..=2 * 2048 + 128).contains(&resident), "{resident} KiB");
}

/// A killed process may leave any state of the lists of free blocks.
#[test]
fn payload_memory_is_repaired_after_incomplete_change() {
    let mut payload = payload(8, 64);
    let mut kept = ByteQueue::EMPTY;
    assert_eq!(kept.append(&mut payload, &[1; 150]), 150);
    let mut lost = ByteQueue::EMPTY;
    assert_eq!(lost.append(&mut payload, &[2; 70]), 70);
    let resting = payload.allocate().unwrap();
    payload.retire(resting);
    payload.disturb();

    let mut owned = Vec::new();
    assert!(kept.claim_blocks(&payload, &mut owned));
    assert!(
        !kept.claim_blocks(&payload, &mut owned),
        "they are another's already"
    );
    let chain = payload.mend(&owned);
    let mut stray = ByteQueue::of_chain(&payload, chain);
    assert_eq!((stray.blocks(), payload.free_blocks()), (2, 3));
    let mut read = [0; 200];
    assert_eq!(kept.peek(&payload, 0, &mut read), 150);
    assert_eq!(read[..150], [1; 150]);
    stray.clear(&mut payload);
    let mut all = ByteQueue::EMPTY;
    assert_eq!(all.append(&mut payload, &[3; 400]), 5 * 64);
    assert_eq!(kept.read(&mut payload, &mut read), 150);
    assert_eq!(read[..150], [1; 150]);
}

#[test]
fn damaged_queue_claims_nothing() {
    let mut payload = payload(8, 64);
    let mut queue = ByteQueue::EMPTY;
    queue.append(&mut payload, &[1; 150]);
    let claims = |queue: &ByteQueue, payload: &Payload| queue.claim_blocks(payload, &mut Vec::new());
    assert!(claims(&queue, &payload));
    assert!(claims(&ByteQueue::EMPTY, &payload));
    for byte in [0, 4, 12, 16, 20] {
        let mut damaged = queue;
        damaged.as_mut_bytes()[byte] ^= 1;
        damaged.as_mut_bytes()[byte + 1] ^= 1;
        assert!(!claims(&damaged, &payload), "byte {byte}");
    }
    payload.set_next(0, 0);
    assert!(!claims(&queue, &payload), "it bites its tail");
}
