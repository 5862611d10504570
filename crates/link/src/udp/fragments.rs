//! Reassembles frames that were too long for a datagram and could not be cut.
//!
//! Frames of a peer, fragments of a frame, and time are all bounded. A frame with
//! an inconsistent fragment is dropped.

use super::header::Fragment;
use crate::Checksum;

/// Most incomplete frames of one peer. The oldest makes room for another one.
const MAX_FRAMES: usize = 4;
/// Most fragments of a frame: of the longest frame, in the shortest datagrams.
const MAX_FRAGMENTS: usize = 160;
/// Longest wait for the rest of a frame, in nanoseconds.
const PATIENCE_NS: u64 = 500_000_000;

/// The incomplete frames of one peer.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    frames: Vec<Partial>,
}

#[derive(Debug)]
struct Partial {
    id: u32,
    bytes: Vec<u8>,
    checksum: Checksum,
    /// Start and end of each received part.
    parts: Vec<(usize, usize)>,
    filled: usize,
    since_ns: u64,
}

/// The result of taking a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// More fragments are needed.
    Waiting,
    /// The frame is complete.
    Whole(Vec<u8>, Checksum),
    /// The fragment is inconsistent. Its frame is dropped.
    Odd,
}

impl Fragments {
    /// Takes a fragment. Returns the result, and the number of other frames dropped
    /// to make room.
    pub(super) fn take(
        &mut self,
        fragment: Fragment,
        part: &[u8],
        checksum: Checksum,
        now_ns: u64,
    ) -> (Outcome, u64) {
        let id = fragment.id.get();
        let total = usize::from(fragment.total.get());
        let start = usize::from(fragment.offset.get());
        let end = start + part.len();
        if part.is_empty() || end > total {
            return (Outcome::Odd, 0);
        }
        let mut given_up = 0;
        let at = match self.frames.iter().position(|frame| frame.id == id) {
            Some(at) => at,
            None => {
                if self.frames.len() == MAX_FRAMES {
                    self.frames.remove(0);
                    given_up += 1;
                }
                self.frames.push(Partial {
                    id,
                    bytes: vec![0; total],
                    checksum,
                    parts: Vec::new(),
                    filled: 0,
                    since_ns: now_ns,
                });
                self.frames.len() - 1
            }
        };
        let frame = &mut self.frames[at];
        let overlaps = frame
            .parts
            .iter()
            .any(|&(first, last)| start < last && first < end);
        if frame.bytes.len() != total
            || frame.checksum != checksum
            || overlaps
            || frame.parts.len() == MAX_FRAGMENTS
        {
            self.frames.remove(at);
            return (Outcome::Odd, given_up);
        }
        frame.bytes[start..end].copy_from_slice(part);
        frame.parts.push((start, end));
        frame.filled += part.len();
        if frame.filled < total {
            return (Outcome::Waiting, given_up);
        }
        let frame = self.frames.remove(at);
        (Outcome::Whole(frame.bytes, frame.checksum), given_up)
    }

    /// Drops frames whose rest has not come in time. Returns their number.
    pub(super) fn expire(&mut self, now_ns: u64) -> u64 {
        let before = self.frames.len();
        self.frames
            .retain(|frame| now_ns.saturating_sub(frame.since_ns) < PATIENCE_NS);
        (before - self.frames.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fragment(id: u32, offset: usize, total: usize) -> Fragment {
        Fragment {
            id: id.into(),
            offset: (offset as u16).into(),
            total: (total as u16).into(),
        }
    }

    const WHOLE: Checksum = Checksum::Complete;

    #[test]
    fn frame_is_whole_after_last_part() {
        let mut fragments = Fragments::default();
        assert_eq!(
            fragments.take(fragment(1, 4, 6), &[4, 5], WHOLE, 0).0,
            Outcome::Waiting
        );
        assert_eq!(
            fragments.take(fragment(2, 0, 3), &[9], WHOLE, 0).0,
            Outcome::Waiting
        );
        let (outcome, _) = fragments.take(fragment(1, 0, 6), &[0, 1, 2, 3], WHOLE, 0);
        assert_eq!(outcome, Outcome::Whole(vec![0, 1, 2, 3, 4, 5], WHOLE));
        assert_eq!(fragments.expire(PATIENCE_NS), 1);
    }

    #[test]
    fn inconsistent_fragment_drops_frame() {
        let mut fragments = Fragments::default();
        for odd in [
            (fragment(1, 0, 7), Checksum::Complete),
            (fragment(1, 2, 6), Checksum::Complete),
            (fragment(1, 4, 6), Checksum::Partial),
        ] {
            assert_eq!(
                fragments.take(fragment(1, 0, 6), &[0; 4], WHOLE, 0).0,
                Outcome::Waiting
            );
            assert_eq!(fragments.take(odd.0, &[0; 2], odd.1, 0).0, Outcome::Odd);
            assert!(fragments.frames.is_empty());
        }
        assert_eq!(
            fragments.take(fragment(1, 5, 6), &[0; 2], WHOLE, 0).0,
            Outcome::Odd
        );
        assert_eq!(fragments.take(fragment(1, 5, 6), &[], WHOLE, 0).0, Outcome::Odd);
    }

    #[test]
    fn number_of_frames_is_bounded() {
        let mut fragments = Fragments::default();
        for id in 0..100 {
            let (outcome, given_up) = fragments.take(fragment(id, 0, 60_000), &[0; 100], WHOLE, 0);
            assert_eq!(
                (outcome, given_up),
                (Outcome::Waiting, u64::from(id >= MAX_FRAMES as u32))
            );
            assert!(fragments.frames.len() <= MAX_FRAMES);
        }
        for part in 1..MAX_FRAGMENTS {
            assert_eq!(
                fragments
                    .take(fragment(99, part * 100, 60_000), &[0; 100], WHOLE, 0)
                    .0,
                Outcome::Waiting
            );
        }
        assert_eq!(
            fragments
                .take(fragment(99, 50_000, 60_000), &[0; 100], WHOLE, 0)
                .0,
            Outcome::Odd
        );
    }

    proptest! {
        #[test]
        fn fragments_in_any_order_give_frame(
            bytes in proptest::collection::vec(any::<u8>(), 1..3000), size in 50usize..1000, seed: u64,
        ) {
            let mut parts: Vec<_> = bytes.chunks(size).enumerate().collect();
            parts.sort_by_key(|(at, _)| (*at as u64 + 1).wrapping_mul(seed | 1));
            let mut fragments = Fragments::default();
            let mut whole = None;
            for (at, part) in parts {
                prop_assert!(whole.is_none());
                match fragments.take(fragment(7, at * size, bytes.len()), part, WHOLE, 0).0 {
                    Outcome::Whole(frame, _) => whole = Some(frame),
                    outcome => prop_assert_eq!(outcome, Outcome::Waiting),
                }
            }
            prop_assert_eq!(whole, Some(bytes));
        }
    }
}
