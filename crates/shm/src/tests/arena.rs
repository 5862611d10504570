//! Arenas: payload memory for one peer each, in its own file.

use std::sync::Arc;

use crate::{Access, ArenaId, Arenas, ByteQueue, Carver, MAX_PARTS, Payload, Region};

/// Blocks of private memory; an arena has a quarter of them.
const BLOCKS: u32 = 64;
const OF_ARENA: u32 = BLOCKS / 4;
const BLOCK: usize = 4096;

fn region(name: &str) -> Region {
    Region::create(name, Payload::bytes_needed_with(BLOCKS, BLOCK as u32, 3)).unwrap()
}

fn payload() -> Payload {
    let mut carver = Carver::new(region("toehold-arenas")).unwrap();
    carver.payload_with(BLOCKS, BLOCK as u32, 3).unwrap()
}

/// Begins a life of an arena. Returns the peer's view of it, and its id.
fn open(arenas: &Arenas) -> (Region, ArenaId) {
    let memory = arenas.create_memory("toehold-arena").unwrap();
    let view = Region::open(memory.read_only_fd().unwrap(), Access::ReadOnly).unwrap();
    let id = arenas.open(Arc::new(memory)).unwrap();
    (view, id)
}

fn bytes_of(view: &Region) -> Vec<u8> {
    let mut bytes = vec![0; view.len()];
    let gather = view.gather(0, view.len() as u64).unwrap();
    assert_eq!(gather.copy_to(0, &mut bytes), bytes.len());
    bytes
}

fn holds(view: &Region, secret: &[u8]) -> bool {
    bytes_of(view).windows(secret.len()).any(|bytes| bytes == secret)
}

fn text(queue: &ByteQueue, payload: &Payload) -> Vec<u8> {
    let mut bytes = vec![0; queue.len()];
    assert_eq!(queue.peek(payload, 0, &mut bytes), bytes.len());
    bytes
}

#[test]
fn arena_holds_data_for_its_peer_only() {
    let mut payload = payload();
    let arenas = payload.arenas().clone();
    let ((view, id), (other, other_id)) = (open(&arenas), open(&arenas));
    let mut queues = [ByteQueue::EMPTY; 3];
    queues[0].append_in(&mut payload, id, &b"for the one ".repeat(1000));
    queues[1].append_in(&mut payload, other_id, &b"for the other ".repeat(1000));
    queues[2].append(&mut payload, &b"for nobody ".repeat(1000));
    assert!(holds(&view, b"for the one ") && holds(&other, b"for the other "));
    assert!(!holds(&view, b"for the other ") && !holds(&other, b"for the one "));
    assert!(!holds(&view, b"for nobody ") && !holds(&other, b"for nobody "));
    // A frame can refer to all of it.
    let gather = queues[0].gather(&payload, 0, 12_000);
    assert_eq!(gather.len(), 12_000);
    for queue in &mut queues {
        queue.clear(&mut payload);
    }
    assert_eq!(payload.free_blocks(), BLOCKS);
}

#[test]
fn full_arena_leaves_the_rest_to_private_memory_within_one_bound() {
    let mut payload = payload();
    let arenas = payload.arenas().clone();
    let (view, id) = open(&arenas);
    let mut queue = ByteQueue::EMPTY;
    let bytes = vec![7; BLOCKS as usize * BLOCK];
    assert_eq!(queue.append_in(&mut payload, id, &bytes), bytes.len());
    assert_eq!(payload.free_blocks(), 0);
    assert_eq!(payload.allocate(), None);
    assert_eq!(payload.allocate_in(id), None);
    let shown = bytes_of(&view).iter().filter(|&&byte| byte == 7).count();
    assert_eq!(shown, OF_ARENA as usize * BLOCK);
    assert_eq!(text(&queue, &payload), bytes);
    // The first block read was in the arena, and returns there.
    queue.consume(&mut payload, OF_ARENA as usize * BLOCK);
    let block = payload.allocate_in(id).unwrap();
    assert!(block >= BLOCKS, "block {block} is private");
    payload.free(block);
    queue.clear(&mut payload);
    assert_eq!(payload.free_blocks(), BLOCKS);
}

#[test]
fn closed_arena_keeps_its_bytes_and_takes_no_more() {
    let mut payload = payload();
    let arenas = payload.arenas().clone();
    let (_, id) = open(&arenas);
    let mut queue = ByteQueue::EMPTY;
    queue.append_in(&mut payload, id, &[1; 3000]);
    arenas.close(id);
    queue.append_in(&mut payload, id, &[2; 3 * BLOCK]);
    let mut expected = vec![1; 3000];
    expected.extend([2; 3 * BLOCK]);
    assert_eq!(text(&queue, &payload), expected);
    // Another peer gets it only once its last block is free.
    let lives: Vec<ArenaId> = (0..2).map(|_| open(&arenas).1).collect();
    assert!(
        arenas
            .open(Arc::new(arenas.create_memory("toehold-arena").unwrap()))
            .is_none()
    );
    queue.clear(&mut payload);
    let (view, again) = open(&arenas);
    assert!(again != id && !lives.contains(&again));
    assert!(!holds(&view, &[1; 16]), "it has other memory");
    // A connection with the earlier life's id does not write into this one.
    let block = payload.allocate_in(id).unwrap();
    assert!(block < BLOCKS);
    payload.free(block);
    arenas.close(id);
    let block = payload.allocate_in(again).unwrap();
    assert!(block >= BLOCKS, "another life is closed");
    payload.free(block);
}

#[test]
fn process_that_does_not_map_an_arena_leaves_its_blocks_alone() {
    let region = region("toehold-two-handles");
    let fd = region.fd().unwrap().try_clone_to_owned().unwrap();
    let mut here = Carver::new(region).unwrap();
    let mut here = here.payload_with(BLOCKS, BLOCK as u32, 3).unwrap();
    // SAFETY: the test uses the two sets of handles one at a time.
    let mut there = unsafe { Carver::attach(Region::open(fd, Access::ReadWrite).unwrap()) };
    let mut there = there.payload_with(BLOCKS, BLOCK as u32, 3).unwrap();
    let memory = Arc::new(here.arenas().create_memory("toehold-arena").unwrap());
    let fd = memory.fd().unwrap().try_clone_to_owned().unwrap();
    let id = here.arenas().open(memory).unwrap();

    let mut queue = ByteQueue::EMPTY;
    queue.append_in(&mut here, id, &[5; 100]);
    let block = queue.block_at(&here, 0).unwrap();
    assert!(here.is_mapped(block) && !there.is_mapped(block));
    assert!(queue.gather(&there, 0, 100).is_empty());
    assert_eq!(queue.peek(&there, 0, &mut [0; 100]), 0);
    assert_eq!(queue.append_in(&mut there, id, &[6; 100]), 0);
    // Blocks that this process allocates itself are private.
    let own = there.allocate_in(id).unwrap();
    assert!(own < BLOCKS);
    there.free(own);

    there
        .arenas()
        .adopt(id, Arc::new(Region::open(fd, Access::ReadWrite).unwrap()));
    assert_eq!(queue.append_in(&mut there, id, &[6; 100]), 100);
    assert_eq!(text(&queue, &here), [[5; 100], [6; 100]].concat());
    queue.clear(&mut there);
    assert_eq!(here.free_blocks(), BLOCKS);
}

#[test]
fn arenas_are_repaired_after_incomplete_change() {
    let mut payload = payload();
    let arenas = payload.arenas().clone();
    let (_, id) = open(&arenas);
    let (mut kept, mut lost) = (ByteQueue::EMPTY, ByteQueue::EMPTY);
    kept.append_in(&mut payload, id, &[1; 3 * BLOCK]);
    lost.append_in(&mut payload, id, &[2; 2 * BLOCK]);
    lost.append(&mut payload, &[3; BLOCK]);
    let resting = payload.allocate_in(id).unwrap();
    payload.retire(resting);
    payload.disturb();

    let mut owned = Vec::new();
    assert!(kept.claim_blocks(&payload, &mut owned));
    let chain = payload.mend(&owned);
    let mut stray = ByteQueue::of_chain(&payload, chain);
    assert_eq!((stray.blocks(), payload.free_blocks()), (3, BLOCKS - 6));
    assert_eq!(text(&kept, &payload), vec![1; 3 * BLOCK]);
    stray.clear(&mut payload);
    kept.clear(&mut payload);
    assert_eq!(payload.free_blocks(), BLOCKS);
    arenas.close_others(|_| false);
    // All arenas are free again.
    (0..3).for_each(|_| drop(open(&arenas)));
}

#[test]
fn arena_returns_pages_when_peer_has_left() {
    let mut payload = payload();
    let arenas = payload.arenas().clone();
    let memory = arenas.create_memory("toehold-arena").unwrap();
    let fd = memory.fd().unwrap().try_clone_to_owned().unwrap();
    let pages = || rustix::fs::fstat(&fd).unwrap().st_blocks * 512 / BLOCK as i64;
    let id = arenas.open(Arc::new(memory)).unwrap();
    let mut queue = ByteQueue::EMPTY;
    queue.append_in(&mut payload, id, &[1; 8 * BLOCK]);
    assert_eq!(pages(), 8);
    queue.consume(&mut payload, 4 * BLOCK);
    arenas.close(id);
    payload.discard_unused();
    assert_eq!(pages(), 8, "some are in use");
    queue.clear(&mut payload);
    assert_eq!(pages(), 0);
}

#[test]
fn idle_arenas_return_pages_beyond_private_memory() {
    let mut payload = payload();
    let arenas = payload.arenas().clone();
    let lives: Vec<_> = (0..3).map(|_| open(&arenas).1).collect();
    let mut queue = ByteQueue::EMPTY;
    for &id in &lives {
        queue.append_in(&mut payload, id, &vec![1; OF_ARENA as usize * BLOCK]);
        queue.clear(&mut payload);
    }
    payload.discard_unused();
    let mut reader = vec![0; BLOCK];
    // 48 blocks were touched; with 17 private ones they are more than 64.
    queue.append(&mut payload, &vec![2; 17 * BLOCK]);
    payload.discard_unused();
    for &id in &lives {
        let block = payload.allocate_in(id).unwrap();
        assert!(block >= BLOCKS && payload.bytes(block).iter().all(|&byte| byte == 0));
        payload.free(block);
    }
    assert_eq!(queue.peek(&payload, 16 * BLOCK, &mut reader), BLOCK);
    assert_eq!(reader, vec![2; BLOCK], "what is in use stays");
    queue.clear(&mut payload);
}

#[test]
fn missing_blocks_are_refused_and_lists_bounded() {
    let mut payload = payload();
    let all = BLOCKS + 3 * OF_ARENA;
    for block in [BLOCKS, all - 1, all, u32::MAX] {
        assert!(!payload.is_mapped(block), "block {block}");
        assert_eq!(payload.next(block), crate::NONE);
        payload.free_chain(block);
    }
    let (_, id) = open(&payload.arenas().clone());
    // As many parts as a gather has, some of each memory.
    let mut queue = ByteQueue::EMPTY;
    for _ in 0..MAX_PARTS / 2 {
        queue.append_in(&mut payload, id, &[1; BLOCK]);
        queue.append(&mut payload, &[1; BLOCK]);
    }
    assert_eq!(queue.gather(&payload, 0, usize::MAX).len(), MAX_PARTS * BLOCK);
    queue.clear(&mut payload);
}
