//! Frames that found no room on the way out, and wait for it.
//!
//! Those for one destination stay in order; one whose destination takes nothing does not
//! hold up the others. What waits too long is dropped: the sender has sent it again by then.
//! Nothing waits for a destination after that, until it takes a frame: so the many can wait
//! for room without waiting for somebody who has stopped.

use std::collections::VecDeque;

use toehold_shm::Gather;

use super::statistics::BridgeStatistics;
use crate::loopback::copy_frame;
use crate::{Link, Offload, Transmit, TransmitError};

/// Most frames that wait, and bytes of them.
const MAX_FRAMES: usize = 1024;
const MAX_BYTES: usize = 4 << 20;
/// With so many bytes waiting, no more frames are taken: whoever sends them is to slow down.
const ENOUGH: usize = 256 << 10;
/// Destinations that nothing waits for.
const MAX_STUCK: usize = 64;
/// Buffers kept for the next frames that wait, so that waiting takes no fresh memory.
const MAX_SPARE: usize = 16;

/// How long one waits, in nanoseconds.
pub(super) const LONGEST_NS: u64 = 100_000_000;
/// Destinations without room that are told apart in one round. With more, the rest of the
/// frames wait for the next.
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

/// The frames of one direction that wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct Held {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// Buffers of frames that wait no longer.
    spare: Vec<Vec<u8>>,
    /// Destinations that took nothing for too long.
    stuck: Vec<[u8; 6]>,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether more frames would be too many.
    pub(super) fn is_enough(&self) -> bool {
        self.bytes >= ENOUGH
    }

    /// Whether nothing is to wait for this destination.
    pub(super) fn is_stuck(&self, destination: &[u8]) -> bool {
        self.stuck.iter().any(|stuck| stuck == destination)
    }

    /// The destination has taken a frame.
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

    /// Whether a frame for this destination has to wait behind another one.
    pub(super) fn concerns(&self, destination: &[u8]) -> bool {
        self.frames
            .iter()
            .any(|frame| frame.bytes.starts_with(destination))
    }

    /// Keeps a frame. False if there is no room for it here either.
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

    /// Tries again. Returns how many frames no longer wait.
    pub(super) fn retry(
        &mut self,
        now_ns: u64,
        to: &mut impl Link,
        statistics: &mut BridgeStatistics,
    ) -> usize {
        let mut refused = [[0; 6]; MAX_REFUSED];
        let mut refusals = 0;
        let before = self.frames.len();
        // Each comes up once: those that stay keep their order.
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

/// Sends a frame that waited. False: it has to go on waiting.
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

    /// Buffers are used again, by frames of other lengths.
    #[test]
    fn what_waited_arrives_as_it_was_though_others_waited_there_before() {
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
