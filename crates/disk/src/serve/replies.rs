//! Replies that wait for their time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fuser::{ReplyData, ReplyEmpty, ReplyWrite};

use super::lock;

/// Replies that wait at most. The kernel has fewer requests under way than that.
const MOST_PENDING: usize = 4096;

/// Buffers that are kept for later requests.
const MOST_SPARE: usize = 64;

/// The first guess of a timer's lateness, in nanoseconds.
const USUAL_AIM_NS: i64 = 50_000;

/// A disk never replies earlier than this before a request is due.
const MOST_AIM_NS: i64 = 1_000_000;

/// The part of each lateness by which the aim changes: one in so many.
const AIM_MEMORY: i64 = 16;

/// What a reply says.
#[derive(Debug)]
pub(super) enum DiskReply {
    /// Bytes that were read.
    Data(ReplyData, Vec<u8>),
    /// Bytes that were written.
    Written(ReplyWrite, u32),
    /// Requests before a flush are done.
    Flushed(ReplyEmpty),
}

impl DiskReply {
    /// Replies. Returns the buffer, if there is one.
    pub(super) fn send(self) -> Option<Vec<u8>> {
        match self {
            Self::Data(reply, bytes) => {
                reply.data(&bytes);
                return Some(bytes);
            }
            Self::Written(reply, bytes) => reply.written(bytes),
            Self::Flushed(reply) => reply.ok(),
        }
        None
    }

    fn refuse(self) {
        let error = fuser::Errno::EIO;
        match self {
            Self::Data(reply, _) => reply.error(error),
            Self::Written(reply, _) => reply.error(error),
            Self::Flushed(reply) => reply.error(error),
        }
    }
}

#[derive(Debug)]
struct WaitingReply {
    due_ns: u64,
    /// Of replies that are due at once, the first to come is the first to go.
    turn: u64,
    reply: DiskReply,
}

impl WaitingReply {
    fn order(&self) -> (u64, u64) {
        (self.due_ns, self.turn)
    }
}

impl PartialEq for WaitingReply {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for WaitingReply {}

impl PartialOrd for WaitingReply {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for WaitingReply {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

#[derive(Debug, Default)]
struct Replies {
    waiting: BinaryHeap<Reverse<WaitingReply>>,
    spare: Vec<Vec<u8>>,
    turn: u64,
    is_over: bool,
}

/// Replies in the order in which they are due. One thread adds, another sends.
#[derive(Debug)]
pub(super) struct ReplyQueue {
    replies: Mutex<Replies>,
    changed: Condvar,
}

/// How early the sender has to wake so that replies are on time in the mean.
#[derive(Debug)]
struct Aim {
    early_ns: i64,
}

impl Aim {
    fn learn(&mut self, late_ns: i64) {
        self.early_ns = (self.early_ns + late_ns / AIM_MEMORY).clamp(0, MOST_AIM_NS);
    }
}

impl ReplyQueue {
    pub(super) fn new() -> Self {
        Self {
            replies: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// A buffer of so many bytes, whatever they are.
    pub(super) fn buffer(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = lock(&self.replies).spare.pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        buffer
    }

    /// Sends a reply when it is due; an error at once if too many wait.
    pub(super) fn add(&self, due_ns: u64, reply: DiskReply) {
        let mut replies = lock(&self.replies);
        if replies.waiting.len() >= MOST_PENDING {
            drop(replies);
            return reply.refuse();
        }
        let turn = replies.turn;
        replies.turn += 1;
        let is_first = replies
            .waiting
            .peek()
            .is_none_or(|Reverse(first)| due_ns < first.due_ns);
        replies
            .waiting
            .push(Reverse(WaitingReply { due_ns, turn, reply }));
        drop(replies);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Lets [`ReplyQueue::run`] return.
    pub(super) fn end(&self) {
        lock(&self.replies).is_over = true;
        self.changed.notify_one();
    }

    /// Sends replies until [`ReplyQueue::end`]. Tells the lateness of each, in nanoseconds.
    pub(super) fn run(&self, started: Instant, mut replied: impl FnMut(i64)) {
        let now_ns = || i64::try_from(started.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let mut aim = Aim {
            early_ns: USUAL_AIM_NS,
        };
        while let Some((waiting, has_slept)) = self.next(&aim, now_ns) {
            let due_ns = i64::try_from(waiting.due_ns).unwrap_or(i64::MAX);
            let buffer = waiting.reply.send();
            let late_ns = now_ns().saturating_sub(due_ns);
            if has_slept {
                aim.learn(late_ns);
            }
            replied(late_ns);
            let mut replies = lock(&self.replies);
            if replies.spare.len() < MOST_SPARE {
                replies.spare.extend(buffer);
            }
        }
    }

    /// Waits for the next reply that is due. Returns with it whether a timer decided when, or `None`
    /// at the end.
    fn next(&self, aim: &Aim, now_ns: impl Fn() -> i64) -> Option<(WaitingReply, bool)> {
        let mut replies = lock(&self.replies);
        let mut has_slept = false;
        loop {
            if replies.is_over {
                return None;
            }
            let Some(Reverse(first)) = replies.waiting.peek() else {
                has_slept = false;
                replies = self.changed.wait(replies).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let wakes_ns = i64::try_from(first.due_ns).unwrap_or(i64::MAX) - aim.early_ns;
            let left = u64::try_from(wakes_ns - now_ns()).unwrap_or(0);
            if left == 0 {
                let Reverse(waiting) = replies.waiting.pop()?;
                return Some((waiting, has_slept));
            }
            has_slept = true;
            let woken = self.changed.wait_timeout(replies, Duration::from_nanos(left));
            replies = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aim_follows_lateness_within_its_bounds() {
        let mut aim = Aim { early_ns: 0 };
        let timer_ns = 80_000;
        for _ in 0..200 {
            aim.learn(timer_ns - aim.early_ns);
        }
        assert!((aim.early_ns - timer_ns).abs() < 100, "{}", aim.early_ns);
        aim.learn(i64::MAX / 2);
        assert_eq!(aim.early_ns, MOST_AIM_NS);
        for _ in 0..200 {
            aim.learn(-1_000_000);
        }
        assert_eq!(aim.early_ns, 0);
    }
}
