use std::collections::VecDeque;

use proptest::prelude::*;

use super::{Channels, Direction, LaneState, Left};
use crate::{ByteQueue, Carver, Gather, Payload, Region};

const OWNER: u64 = 0x1_0000_0003;
const BLOCK: u32 = 64;
const BLOCKS: u32 = 64;

struct Memory {
    payload: Payload,
    channels: Channels,
}

fn memory() -> Memory {
    let len = Payload::bytes_needed(BLOCKS, BLOCK) + Channels::bytes_needed(100);
    let mut carver = Carver::new(Region::private(len).unwrap()).unwrap();
    let payload = carver.payload(BLOCKS, BLOCK).unwrap();
    let channels = carver.channels(100, &payload).unwrap();
    Memory { payload, channels }
}

/// The part of the lease's holder for a lane and its queue.
struct Stream {
    queue: ByteQueue,
    /// The lane's position of the queue's end if it is to be filled, and of its head otherwise.
    at: u64,
    limit: u64,
}

impl Stream {
    fn begin(memory: &Memory, position: u64) -> Stream {
        let mut queue = ByteQueue::EMPTY;
        queue.begin_at(&memory.payload, position as usize);
        Stream {
            queue,
            at: position,
            limit: position,
        }
    }

    fn publish(&mut self, memory: &mut Memory, direction: Direction, first: usize, limit: u64) {
        let lane = memory.channels.lane(0, direction).unwrap();
        let mut position = self.limit;
        while position < limit {
            let offset = first + (position - self.at) as usize;
            lane.set_block(position, self.queue.block_at(&memory.payload, offset).unwrap());
            position = (position / u64::from(BLOCK) + 1) * u64::from(BLOCK);
        }
        self.limit = self.limit.max(limit);
        lane.publish(self.limit, limit, LaneState::Open);
    }

    /// Takes in the written bytes, and makes room.
    fn serve_send(&mut self, memory: &mut Memory, room: usize) {
        let lane = memory.channels.lane(0, Direction::Send).unwrap();
        let more = lane.done() - self.at;
        self.queue.extend(more as usize);
        self.at += more;
        self.queue.begin_at(&memory.payload, self.at as usize);
        let held = self.queue.claim(&mut memory.payload, room);
        let limit = (self.at + held.min(room) as u64).min(lane.furthest(self.at));
        let len = self.queue.len();
        self.publish(memory, Direction::Send, len, limit);
    }

    /// Frees the bytes that were read, and publishes new ones.
    fn serve_receive(&mut self, memory: &mut Memory) {
        let lane = memory.channels.lane(0, Direction::Receive).unwrap();
        let read = lane.done() - self.at;
        self.queue.consume(&mut memory.payload, read as usize);
        self.at += read;
        self.queue.begin_at(&memory.payload, self.at as usize);
        let limit = (self.at + self.queue.len() as u64).min(lane.furthest(self.at));
        self.publish(memory, Direction::Receive, 0, limit);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write(usize),
    Fill(usize),
    ServeSend(usize),
    Acknowledge(usize),
    Arrive(usize),
    ServeReceive,
    Read(usize),
    Peek(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..500_usize).prop_map(Step::Write),
        (0..800_usize).prop_map(Step::Fill),
        (0..700_usize).prop_map(Step::ServeSend),
        (0..700_usize).prop_map(Step::Acknowledge),
        (0..700_usize).prop_map(Step::Arrive),
        Just(Step::ServeReceive),
        (0..500_usize).prop_map(Step::Read),
        (0..500_usize).prop_map(Step::Peek),
    ];
    prop::collection::vec(step, 0..120)
}

/// Bytes that change often.
fn bytes(from: &mut u32, len: usize) -> Vec<u8> {
    let start = *from;
    *from += len as u32;
    (start..*from)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn behaves_like_a_queue(steps: &[Step], origin: u64) {
    let mut memory = memory();
    let channels = memory.channels.clone();
    let lane = |direction| channels.lane(0, direction).unwrap();
    channels.begin(0, OWNER, [origin, origin / 3]);
    let mut sending = Stream::begin(&memory, origin);
    let mut receiving = Stream::begin(&memory, origin / 3);
    let (mut sent, mut received) = (VecDeque::new(), VecDeque::<u8>::new());
    // The written and the received bytes that the other side knows of.
    let (mut taken, mut shown) = (0, 0);
    let mut number = 0;
    for step in steps {
        match *step {
            Step::Write(len) => {
                let bytes = bytes(&mut number, len);
                let room = (sending.limit - lane(Direction::Send).done()) as usize;
                let mut lock = lane(Direction::Send).lock(2, || true).unwrap();
                let moved = lock.write(OWNER, &bytes);
                assert!(!lock.release());
                assert_eq!((moved.len, moved.left), (len.min(room), room - len.min(room)));
                sent.extend(&bytes[..moved.len]);
            }
            Step::Fill(len) => {
                let mut filled = Vec::new();
                let room = (sending.limit - lane(Direction::Send).done()) as usize;
                let mut lock = lane(Direction::Send).lock(2, || true).unwrap();
                assert_eq!(
                    lock.fill(OWNER, len, |_| Err(7)).err(),
                    (len.min(room) > 0).then_some(7)
                );
                let moved = lock.fill(OWNER, len, |places| {
                    let most: usize = places.iter().map(|place| place.len()).sum();
                    assert!(most == len.min(room) || places.len() == 8);
                    filled = bytes(&mut number, most - most / 3);
                    let mut rest = &filled[..];
                    for place in places {
                        let (now, later) = rest.split_at(rest.len().min(place.len()));
                        place[..now.len()].copy_from_slice(now);
                        rest = later;
                    }
                    Ok::<_, ()>(filled.len())
                });
                let moved = moved.unwrap();
                assert!(!lock.release());
                assert_eq!((moved.len, moved.left), (filled.len(), room - filled.len()));
                sent.extend(filled);
            }
            Step::ServeSend(room) => {
                sending.serve_send(&mut memory, room);
                taken = sent.len();
                assert_eq!(sending.queue.len(), taken);
            }
            Step::Acknowledge(len) => {
                let mut head = vec![0; len.min(taken)];
                sending.queue.read(&mut memory.payload, &mut head);
                assert_eq!(head, sent.drain(..head.len()).collect::<Vec<u8>>());
                taken -= head.len();
            }
            Step::Arrive(len) => {
                let bytes = bytes(&mut number, len);
                let gather = Gather::from_slice(&bytes);
                let queued = receiving
                    .queue
                    .append_gather(&mut memory.payload, &gather, 0, len);
                received.extend(&bytes[..queued]);
            }
            Step::ServeReceive => {
                receiving.serve_receive(&mut memory);
                shown = (receiving.limit - receiving.at) as usize;
                assert!(shown == received.len() || shown > (super::LANE_BLOCKS - 1) * BLOCK as usize);
            }
            Step::Read(len) => {
                let mut into = vec![0; len];
                let mut lock = lane(Direction::Receive).lock(3, || true).unwrap();
                let moved = lock.read(OWNER, &mut into, false);
                assert!(!lock.release());
                assert_eq!((moved.len, moved.left), (len.min(shown), shown - len.min(shown)));
                shown -= moved.len;
                assert_eq!(
                    into[..moved.len],
                    received.drain(..moved.len).collect::<Vec<u8>>()
                );
            }
            Step::Peek(len) => {
                let mut into = vec![0; len];
                let mut lock = lane(Direction::Receive).lock(3, || true).unwrap();
                let moved = lock.read(OWNER, &mut into, true);
                assert!(!lock.release());
                assert_eq!(moved.len, len.min(shown));
                assert!(received.iter().take(moved.len).eq(&into[..moved.len]));
            }
        }
    }
    sending.queue.clear(&mut memory.payload);
    receiving.queue.clear(&mut memory.payload);
    assert_eq!(memory.payload.free_blocks(), BLOCKS);
}

proptest! {
    #[test]
    fn lanes_behave_like_queues(steps in steps(), origin in 0_u64..10_000) {
        behaves_like_a_queue(&steps, origin);
    }

    /// Another program of the node may have written anything.
    #[test]
    fn nonsense_in_lane_ends_copies(done: u64, limit: u64, block: u32, len in 0_usize..5000, fills: bool) {
        let memory = memory();
        memory.channels.begin(1, OWNER, [limit, 0]);
        let lane = memory.channels.lane(1, Direction::Send).unwrap();
        for position in 0..super::LANE_BLOCKS as u64 {
            lane.set_block(position * u64::from(BLOCK), block);
        }
        lane.publish(limit, 0, LaneState::Open);
        lane.advance(done);
        let mut lock = lane.lock(2, || true).unwrap();
        let moved = if fills {
            lock.fill(OWNER, len, |places| Ok::<_, ()>(places.iter().map(|place| place.len()).sum())).unwrap()
        } else {
            lock.write(OWNER, &vec![7; len])
        };
        let possible = limit.wrapping_sub(done) <= super::LANE_BLOCKS as u64 * u64::from(BLOCK);
        prop_assert!(moved.len <= len);
        prop_assert!(moved.len == 0 || (possible && block < BLOCKS));
        prop_assert!(!lock.release());
    }
}

#[test]
fn lane_admits_its_owner_only() {
    let mut memory = memory();
    memory.channels.begin(0, OWNER, [0, 0]);
    let mut sending = Stream::begin(&memory, 0);
    sending.serve_send(&mut memory, 100);
    let lane = memory.channels.lane(0, Direction::Send).unwrap();
    let mut lock = lane.lock(2, || true).unwrap();
    assert_eq!(lock.write(OWNER + 1, b"x").state, LaneState::Closed);
    assert_eq!(lock.write(OWNER, b"x").len, 1);
    memory.channels.end(0);
    assert_eq!(lock.write(OWNER, b"x").len, 0);
    assert!(!lock.release());
}

#[test]
fn special_lane_is_left_and_ending_lane_is_read() {
    let memory = memory();
    memory.channels.begin(0, OWNER, [0, 0]);
    let lane = memory.channels.lane(0, Direction::Receive).unwrap();
    for (state, bytes) in [
        (LaneState::Special, 0),
        (LaneState::Ending, 3),
        (LaneState::Open, 3),
    ] {
        lane.publish(3, 0, state);
        let mut lock = lane.lock(2, || true).unwrap();
        let moved = lock.read(OWNER, &mut [0; 8], true);
        assert_eq!((moved.len, moved.state), (bytes, state));
        assert!(!lock.release());
    }
}

#[test]
fn bury_takes_lock_of_dead_process() {
    let memory = memory();
    memory.channels.begin(7, OWNER, [0, 0]);
    let lane = memory.channels.lane(3, Direction::Receive).unwrap();
    let dead = lane.lock(5, || true).unwrap();
    assert!(!lane.enter());
    let mut asked = 0;
    let waited = lane.lock(6, || {
        asked += 1;
        asked < 3
    });
    assert!(waited.is_none(), "nobody lets go");
    memory.channels.bury(4);
    assert!(!lane.enter());
    memory.channels.bury(5);
    core::mem::forget(dead);
    assert!(lane.enter() && !lane.leave());
    let mut requests = Vec::new();
    memory.channels.take_requests(|channel| requests.push(channel));
    assert_eq!(requests, (0..8).collect::<Vec<u32>>());
    assert!(!memory.channels.has_requests());
}

#[test]
fn mend_takes_lock_of_dead_lease_holder() {
    let memory = memory();
    memory.channels.begin(2, OWNER, [0, 0]);
    let lane = |channel| memory.channels.lane(channel, Direction::Send).unwrap();
    assert!(lane(1).enter());
    let kept = lane(2).lock(5, || true).unwrap();
    memory.channels.leave_request(0);
    // The process takes the requests, and dies before it serves them.
    memory.channels.take_requests(drop);
    memory.channels.mend();
    assert!(lane(1).lock(6, || false).is_some_and(|lock| !lock.release()));
    assert!(!lane(2).enter(), "one that lives has it");
    assert!(kept.release());
    let mut requests = Vec::new();
    memory.channels.take_requests(|channel| requests.push(channel));
    assert_eq!(requests, [0, 1, 2]);
}

#[test]
fn failed_lock_attempt_is_told() {
    let memory = memory();
    let lane = memory.channels.lane(0, Direction::Send).unwrap();
    let lock = lane.lock(2, || true).unwrap();
    assert!(!lane.enter());
    assert!(lock.release());
    assert!(lane.enter() && !lane.leave());
}

#[test]
fn requests_are_left_for_attendant() {
    let Memory { channels, .. } = memory();
    assert_eq!(channels.leave_request(99), Left::Unattended);
    channels.attend();
    assert_eq!(channels.leave_request(7), Left::Attended);
    assert!(!channels.doze(), "there are requests");
    let mut taken = Vec::new();
    channels.take_requests(|channel| taken.push(channel));
    assert_eq!(taken, [7, 99]);
    assert!(channels.doze());
    assert_eq!(channels.leave_request(7), Left::MustRing);
    assert_eq!(channels.leave_request(8), Left::Attended);
    channels.retire();
    assert_eq!(channels.leave_request(8), Left::Unattended);
}

/// One thread writes, another one takes and checks, under the real scheduler.
#[test]
fn stream_between_threads_is_complete() {
    const TOTAL: usize = 1 << 20;
    let mut memory = memory();
    let channels = memory.channels.clone();
    memory.channels.begin(0, OWNER, [0, 0]);
    let mut sending = Stream::begin(&memory, 0);
    let byte_at = |position: usize| (position % 251) as u8;
    let writer = std::thread::spawn({
        let channels = channels.clone();
        move || {
            let lane = channels.lane(0, Direction::Send).unwrap();
            let mut done = 0;
            while done < TOTAL {
                let end = TOTAL.min(done + 1 + done % 333);
                let bytes: Vec<u8> = (done..end).map(byte_at).collect();
                let mut lock = lane.lock(2, || true).unwrap();
                let moved = lock.write(OWNER, &bytes);
                assert!(!lock.release());
                done += moved.len;
                if moved.left == 0 {
                    std::thread::yield_now();
                }
            }
        }
    });
    let mut read = 0;
    while read < TOTAL {
        sending.serve_send(&mut memory, 600);
        let mut out = [0; 300];
        let len = sending.queue.read(&mut memory.payload, &mut out);
        for &byte in &out[..len] {
            assert_eq!(byte, byte_at(read));
            read += 1;
        }
        if len == 0 {
            std::thread::yield_now();
        }
    }
    writer.join().unwrap();
    let lane = channels.lane(0, Direction::Send).unwrap();
    assert_eq!(lane.done(), TOTAL as u64);
}

#[test]
fn record_without_room_is_not_written_in_part() {
    let mut memory = memory();
    memory.channels.begin(0, OWNER, [0, 0]);
    let mut sending = Stream::begin(&memory, 0);
    sending.serve_send(&mut memory, 100);
    let lane = memory.channels.lane(0, Direction::Send).unwrap();
    let mut lock = lane.lock(2, || true).unwrap();
    let room = (sending.limit - lane.done()) as usize;
    let moved = lock.write_whole(OWNER, &vec![7; room + 1]);
    assert_eq!((moved.len, moved.left, moved.state), (0, room, LaneState::Open));
    assert_eq!(lock.write_whole(OWNER, &vec![7; room]).len, room);
    assert_eq!(lock.write_whole(OWNER, b"x").len, 0);
    assert_eq!(lock.write_whole(OWNER + 1, b"x").state, LaneState::Closed);
    assert!(!lock.release());
}
