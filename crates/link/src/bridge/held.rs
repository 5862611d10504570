//! Frames without room on the way out, which wait for it.
//!
//! Frames for one destination stay in order. A full destination does not hold up
//! others. A frame that waits too long is dropped: by then its sender has sent it
//! again. After that no frame waits for its destination until that takes one. So
//! frames can wait for room in a crowd without waiting for a stopped receiver.

use std::collections::VecDeque;

use toehold_shm::Gather;

use super::statistics::BridgeStatistics;
use crate::loopback::copy_frame;
use crate::{Link, Offload, Transmit, TransmitError};

/// Most waiting frames.
const MAX_FRAMES: usize = 1024;
const MAX_BYTES: usize = 4 << 20;
/// Waiting bytes above which no frames are taken, so that their senders slow
/// down.
const ENOUGH: usize = 256 << 10;
/// Most destinations for which no frame waits.
const MAX_STUCK: usize = 64;
/// Most spare buffers, which later frames reuse without fresh memory.
const MAX_SPARE: usize = 16;

/// Longest wait of a frame, in nanoseconds.
pub(super) const LONGEST_NS: u64 = 100_000_000;
/// Most full destinations that are told apart in one round. Beyond, the remaining
/// frames wait for the next round.
const MAX_REFUSED: usize = 16;

#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    offload: Offload,
    since_ns: u64,
}

impl Frame {
    fn destination(&self) -> [u8; 6] {
        self.bytes.first_chunk().copied().unwrap_or_default()
    }
}

/// The waiting frames of one direction, oldest first.
#[derive(Debug, Default)]
pub(super) struct Held {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
    /// Destinations that took no frame for too long.
    stuck: Vec<[u8; 6]>,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns whether no more frames should be taken.
    pub(super) fn is_enough(&self) -> bool {
        self.bytes >= ENOUGH
    }

    /// Returns whether no frame waits for this destination any more.
    pub(super) fn is_stuck(&self, destination: &[u8]) -> bool {
        self.stuck.iter().any(|stuck| stuck == destination)
    }

    /// Notes that the destination has taken a frame.
    pub(super) fn note_sent(&mut self, destination: &[u8]) {
        if !self.stuck.is_empty() {
            self.stuck.retain(|stuck| stuck != destination);
        }
    }

    fn note_stuck(&mut self, destination: [u8; 6]) {
        if self.is_stuck(&destination) {
            return;
        }
        if self.stuck.len() == MAX_STUCK {
            self.stuck.remove(0);
        }
        self.stuck.push(destination);
    }

    /// Returns whether a frame for this destination has to wait behind another one.
    pub(super) fn concerns(&self, destination: &[u8]) -> bool {
        self.frames
            .iter()
            .any(|frame| frame.bytes.starts_with(destination))
    }

    /// Keeps a frame. Returns `false` if there is no room.
    pub(super) fn keep(&mut self, now_ns: u64, frame: &Transmit<'_>) -> bool {
        if self.frames.len() >= MAX_FRAMES || self.bytes + frame.len() > MAX_BYTES {
            return false;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        copy_frame(frame, &mut bytes);
        self.bytes += bytes.len();
        self.frames.push_back(Frame {
            bytes,
            offload: frame.offload,
            since_ns: now_ns,
        });
        true
    }

    /// Tries to send again. Returns the number of frames that no longer wait.
    pub(super) fn retry(
        &mut self,
        now_ns: u64,
        to: &mut impl Link,
        statistics: &mut BridgeStatistics,
    ) -> usize {
        let mut refused = [[0; 6]; MAX_REFUSED];
        let mut refusals = 0;
        let before = self.frames.len();
        // Each frame comes up once, and those that stay keep their order.
        for _ in 0..before {
            let Some(frame) = self.frames.pop_front() else {
                break;
            };
            let destination = frame.destination();
            let waits = refusals == MAX_REFUSED || refused[..refusals].contains(&destination);
            let kept = if now_ns.saturating_sub(frame.since_ns) >= LONGEST_NS {
                statistics.late += 1;
                self.note_stuck(destination);
                false
            } else if waits {
                true
            } else {
                let is_full = !send(&frame, to, statistics);
                if is_full {
                    refused[refusals] = destination;
                    refusals += 1;
                }
                is_full
            };
            if kept {
                self.frames.push_back(frame);
            } else {
                self.bytes -= frame.bytes.len();
                if self.spare.len() < MAX_SPARE {
                    self.spare.push(frame.bytes);
                }
            }
        }
        before - self.frames.len()
    }
}

/// Sends a frame that waited. Returns `false` if it has to wait on.
fn send(frame: &Frame, to: &mut impl Link, statistics: &mut BridgeStatistics) -> bool {
    let sent = to.transmit(&Transmit {
        headers: &frame.bytes,
        payload: &Gather::EMPTY,
        offload: frame.offload,
    });
    match sent {
        Ok(()) => statistics.forwarded += 1,
        Err(TransmitError::Full) => return false,
        Err(TransmitError::Unreachable) => statistics.unreachable += 1,
        Err(TransmitError::TooLong) => statistics.too_long += 1,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MIN_PRIVATE;
    use crate::loopback::{Loopback, LoopbackSettings};
    use crate::test_frames::{frame_to, receive_all};

    /// A reused buffer held a frame of another length before.
    #[test]
    fn frame_in_reused_buffer_arrives_unchanged() {
        let ends = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
        let (mut near, mut far) = Loopback::pair(ends, LoopbackSettings::default()).unwrap();
        let (mut held, mut statistics) = (Held::default(), BridgeStatistics::default());
        for lens in [[900, 3], [2, 1200], [500, 500]] {
            let frames = lens.map(|len| frame_to(ends[1], ends[0], &vec![len as u8; len]));
            for frame in &frames {
                let (headers, payload) = frame.split_at(MIN_PRIVATE.min(frame.len()));
                assert!(held.keep(
                    0,
                    &Transmit {
                        headers,
                        payload: &Gather::from_slice(payload),
                        offload: Offload::default(),
                    }
                ));
            }
            assert_eq!(held.retry(0, &mut near, &mut statistics), 2);
            near.flush();
            assert_eq!(receive_all(&mut far, 0), frames);
            assert_eq!((held.bytes, held.spare.len()), (0, 2));
        }
    }
}
