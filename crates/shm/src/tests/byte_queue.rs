//! Compares byte queues with plain models.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::payload;
use crate::{ByteQueue, Gather, MAX_PARTS, Payload};

const BLOCKS: u32 = 12;
const BLOCK_LEN: u32 = 64;

/// A queue, and the same bytes in plain memory. Placed bytes behind the end are `Some`.
struct Pair {
    queue: ByteQueue,
    bytes: VecDeque<u8>,
    behind: Vec<Option<u8>>,
}

#[derive(Debug, Clone)]
enum Step {
    Append(usize),
    AppendGather(usize, usize),
    Place(usize, usize),
    Extend,
    Read(usize),
    Peek(usize, usize),
    Gather(usize, usize),
    Consume(usize),
    CopyFromOther(usize, usize, usize),
    Trim,
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let len = 0..150_usize;
    prop_oneof![
        4 => len.clone().prop_map(Step::Append),
        2 => (0..50_usize, len.clone()).prop_map(|(from, len)| Step::AppendGather(from, len)),
        4 => (0..300_usize, len.clone()).prop_map(|(gap, len)| Step::Place(gap, len)),
        2 => Just(Step::Extend),
        4 => len.clone().prop_map(Step::Read),
        2 => (0..400_usize, len.clone()).prop_map(|(offset, len)| Step::Peek(offset, len)),
        4 => (0..400_usize, 0..800_usize).prop_map(|(offset, len)| Step::Gather(offset, len)),
        4 => len.clone().prop_map(Step::Consume),
        2 => (0..200_usize, 0..100_usize, len).prop_map(|(at, from, len)| Step::CopyFromOther(at, from, len)),
        1 => Just(Step::Trim),
        1 => Just(Step::Clear),
    ]
}

impl Pair {
    const fn new() -> Self {
        Self {
            queue: ByteQueue::EMPTY,
            bytes: VecDeque::new(),
            behind: Vec::new(),
        }
    }

    /// Bytes `placed` at `offset` from the head, in the model.
    fn place(&mut self, offset: usize, placed: &[u8]) {
        for (at, &byte) in placed.iter().enumerate() {
            match (offset + at).checked_sub(self.bytes.len()) {
                None => self.bytes[offset + at] = byte,
                Some(behind) => {
                    self.behind.resize(self.behind.len().max(behind + 1), None);
                    self.behind[behind] = Some(byte);
                }
            }
        }
    }

    fn grow(&mut self, n: usize) {
        let grown: Vec<_> = self.behind.drain(..n).collect();
        self.bytes
            .extend(grown.into_iter().map(|byte| byte.expect("placed before")));
    }

    fn run(
        &mut self,
        step: &Step,
        payload: &mut Payload,
        other: &Self,
        fresh: &mut impl Iterator<Item = u8>,
    ) {
        let mut new = |len: usize| fresh.by_ref().take(len).collect::<Vec<u8>>();
        match *step {
            Step::Append(len) => {
                let bytes = new(len);
                let done = self.queue.append(payload, &bytes);
                assert!(done == len || payload.free_blocks() == 0);
                self.place(self.bytes.len(), &bytes[..done]);
                self.grow(done);
            }
            Step::AppendGather(from, len) => {
                let parts = [new(len / 2 + 1), new(len / 2 + 1)];
                let whole = parts.concat();
                let mut gather = Gather::from_slice(&parts[0]);
                gather.push(&parts[1]);
                let expected = len.min(whole.len().saturating_sub(from));
                let done = self.queue.append_gather(payload, &gather, from, len);
                assert!(done == expected || payload.free_blocks() == 0);
                self.place(self.bytes.len(), &whole[from.min(whole.len())..][..done]);
                self.grow(done);
            }
            Step::Place(gap, len) => {
                let bytes = new(len);
                let offset = self.bytes.len() + gap;
                let before = (self.queue.blocks(), payload.free_blocks());
                let done = self
                    .queue
                    .write_at(payload, offset, &Gather::from_slice(&bytes), 0, len);
                assert!(done == len || payload.free_blocks() < offset as u32 / BLOCK_LEN + 3);
                if done == 0 {
                    assert_eq!((self.queue.blocks(), payload.free_blocks()), before);
                }
                self.place(offset, &bytes[..done]);
            }
            Step::Extend => {
                let n = self.behind.iter().take_while(|byte| byte.is_some()).count();
                self.queue.extend(n);
                self.grow(n);
            }
            Step::Read(len) => {
                let mut read = vec![0; len];
                let n = self.queue.read(payload, &mut read);
                assert_eq!(n, len.min(self.bytes.len()));
                assert!(self.bytes.drain(..n).eq(read[..n].iter().copied()));
            }
            Step::Peek(offset, len) => {
                let mut peeked = vec![0; len];
                let n = self.queue.peek(payload, offset, &mut peeked);
                assert_eq!(n, len.min(self.bytes.len().saturating_sub(offset)));
                assert!(self.bytes.iter().skip(offset).take(n).eq(&peeked[..n]));
            }
            Step::Gather(offset, len) => {
                let gather = self.queue.gather(payload, offset, len);
                let expected = len.min(self.bytes.len().saturating_sub(offset));
                let full = gather.parts().count() == MAX_PARTS;
                assert!(gather.len() == expected || full && gather.len() < expected);
                let mut copy = vec![0; gather.len()];
                gather.copy_to(0, &mut copy);
                assert!(self.bytes.iter().skip(offset).take(copy.len()).eq(&copy));
            }
            Step::Consume(n) => {
                self.queue.consume(payload, n);
                self.bytes.drain(..n.min(self.bytes.len()));
            }
            Step::CopyFromOther(gap, from, len) => {
                let offset = self.bytes.len() + gap;
                let source: Vec<u8> = other.bytes.iter().skip(from).take(len).copied().collect();
                // Either found before, or searched for.
                let mut finder = other.queue;
                let block = finder.seek(payload, from).filter(|_| from < other.bytes.len());
                let found = block.map(|block| other.queue.at_block(payload, from, block).unwrap());
                let other = if gap % 2 == 0 { found } else { None }.unwrap_or(other.queue);
                let done = self.queue.write_at_from(payload, offset, &other, from, len);
                assert!(done == source.len() || payload.free_blocks() < offset as u32 / BLOCK_LEN + 3);
                self.place(offset, &source[..done]);
            }
            Step::Trim => {
                self.queue.trim(payload);
                self.behind.clear();
            }
            Step::Clear => {
                self.queue.clear(payload);
                self.bytes.clear();
                self.behind.clear();
            }
        }
    }

    fn check(&self, payload: &Payload) {
        assert_eq!(self.queue.len(), self.bytes.len());
        assert_eq!(self.queue.is_empty(), self.bytes.is_empty());
        let reach = self.bytes.len() + self.behind.len();
        let least = reach.div_ceil(BLOCK_LEN as usize) as u32;
        assert!(
            (least..=least + 1).contains(&self.queue.blocks()),
            "{reach} bytes in {} blocks",
            self.queue.blocks()
        );
        let mut all = vec![0; self.bytes.len()];
        assert_eq!(self.queue.peek(payload, 0, &mut all), all.len());
        assert!(self.bytes.iter().eq(&all));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn two_queues_behave_as_plain_memory(
        steps in prop::collection::vec((any::<bool>(), step()), 0..120),
        seed in any::<u8>(),
    ) {
        let mut payload = payload(BLOCKS, BLOCK_LEN);
        let mut pairs = [Pair::new(), Pair::new()];
        let mut fresh = (0_u32..).map(|at| (at ^ at >> 7) as u8 ^ seed);
        for (which, step) in &steps {
            let [first, second] = &mut pairs;
            let (pair, other) = if *which { (first, second) } else { (second, first) };
            pair.run(step, &mut payload, other, &mut fresh);
            pairs.iter().for_each(|pair| pair.check(&payload));
            let held: u32 = pairs.iter().map(|pair| pair.queue.blocks()).sum();
            prop_assert_eq!(payload.free_blocks(), BLOCKS - held);
        }
        for pair in &mut pairs {
            pair.queue.clear(&mut payload);
            prop_assert_eq!(pair.queue, ByteQueue::EMPTY);
        }
        prop_assert_eq!(payload.free_blocks(), BLOCKS);
    }
}

#[test]
fn emptied_queue_holds_no_block() {
    let mut payload = payload(4, 64);
    let mut queue = ByteQueue::EMPTY;
    for len in [1, 63, 64, 65, 200, 256] {
        assert_eq!(queue.append(&mut payload, &vec![7; len]), len);
        assert_eq!(queue.blocks() as usize, len.div_ceil(64));
        queue.consume(&mut payload, len);
        assert_eq!((queue, payload.free_blocks()), (ByteQueue::EMPTY, 4));
    }
}

#[test]
fn zeroes_are_an_empty_queue() {
    use zerocopy::FromZeros;
    assert_eq!(ByteQueue::new_zeroed(), ByteQueue::EMPTY);
    assert_eq!(size_of::<ByteQueue>(), 32);
}

#[test]
fn consecutive_gathers_cover_queue() {
    let mut payload = payload(64, 64);
    let mut queue = ByteQueue::EMPTY;
    let bytes: Vec<u8> = (0..64 * 64).map(|at| (at / 13) as u8).collect();
    queue.append(&mut payload, &bytes);
    let mut seen = Vec::new();
    while seen.len() < bytes.len() {
        let gather = queue.gather(&payload, seen.len(), 1000);
        let mut part = vec![0; gather.len()];
        assert!(gather.copy_to(0, &mut part) > 0);
        seen.extend(part);
    }
    assert_eq!(seen, bytes);
}

#[test]
fn offsets_beyond_all_bounds_place_nothing() {
    let mut payload = payload(4, 64);
    let mut queue = ByteQueue::EMPTY;
    let gather = Gather::from_slice(b"bytes");
    for offset in [4 * 64, u32::MAX as usize - 2, u32::MAX as usize, usize::MAX] {
        assert_eq!(queue.write_at(&mut payload, offset, &gather, 0, 5), 0);
        assert_eq!(queue.peek(&payload, offset, &mut [0; 4]), 0);
        assert!(queue.gather(&payload, offset, usize::MAX).is_empty());
    }
    assert_eq!((queue, payload.free_blocks()), (ByteQueue::EMPTY, 4));
    assert_eq!(
        queue.write_at(&mut payload, 0, &gather, usize::MAX, usize::MAX),
        0
    );
    queue.consume(&mut payload, usize::MAX);
    assert_eq!(queue, ByteQueue::EMPTY);
}

/// Earlier the bytes of a stream passed through all of the memory, and were in no cache when they
/// were read.
#[test]
fn taken_blocks_are_reused_first() {
    let mut payload = payload(64, 64);
    let mut queue = ByteQueue::EMPTY;
    let mut used = [
        std::collections::BTreeSet::new(),
        std::collections::BTreeSet::new(),
    ];
    for (used, remove) in used.iter_mut().zip([ByteQueue::take, ByteQueue::consume]) {
        queue.append(&mut payload, &[7; 100]);
        for _ in 0..32 {
            queue.append(&mut payload, &[7; 64]);
            used.extend(queue.block_at(&payload, 100));
            remove(&mut queue, &mut payload, 64);
        }
        queue.clear(&mut payload);
    }
    let [read, sent] = used.map(|used| used.len());
    assert!(read <= 3 && sent >= 30, "{read} and {sent} blocks");
}
