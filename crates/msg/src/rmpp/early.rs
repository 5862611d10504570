//! Packets that arrived before an earlier one.

use crate::payload::StoredBytes;
use toehold_wire::rmpp::{MissingRange, RangeList, Seq};

/// Packets that are kept behind the first missing one.
pub(crate) const MOST_EARLY: u32 = 64;

/// What the receiver does with a packet of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrivalOrder {
    /// The packet is the next one.
    Next,
    /// The packet was taken before, or is kept already.
    Repeated,
    /// The packet comes after a gap and may be kept.
    Early,
    /// The packet is too far behind a gap to be kept.
    TooEarly,
}

/// The next number, and packets that wait for it.
#[derive(Debug, Clone)]
pub(crate) struct EarlyFrames {
    next: Seq,
    /// By number modulo [`MOST_EARLY`]; empty until the first gap.
    kept: Vec<Option<StoredBytes>>,
    count: u32,
}

impl EarlyFrames {
    pub(crate) fn new() -> Self {
        Self {
            next: Seq(0),
            kept: Vec::new(),
            count: 0,
        }
    }

    /// The number that is expected next.
    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    /// Whether there is a gap with packets behind it.
    pub(crate) fn has_gap(&self) -> bool {
        self.count > 0
    }

    fn place(seq: Seq) -> usize {
        (seq.0 % MOST_EARLY) as usize
    }

    fn is_kept(&self, seq: Seq) -> bool {
        self.kept.get(Self::place(seq)).is_some_and(Option::is_some)
    }

    /// Judges a packet by its number.
    pub(crate) fn judge(&self, seq: Seq) -> ArrivalOrder {
        match seq.distance(self.next) {
            0 => ArrivalOrder::Next,
            1..=MOST_EARLY if self.is_kept(seq) => ArrivalOrder::Repeated,
            1..MOST_EARLY => ArrivalOrder::Early,
            _ if seq.lt(self.next) => ArrivalOrder::Repeated,
            _ => ArrivalOrder::TooEarly,
        }
    }

    /// Keeps a packet that was judged early.
    pub(crate) fn keep(&mut self, seq: Seq, packet: StoredBytes) {
        debug_assert_eq!(self.judge(seq), ArrivalOrder::Early);
        self.kept.resize(MOST_EARLY as usize, None);
        self.kept[Self::place(seq)] = Some(packet);
        self.count += 1;
    }

    /// Moves on behind the next packet. Returns the one behind it if that was kept; it is
    /// then the next one.
    pub(crate) fn advance(&mut self) -> Option<StoredBytes> {
        self.next += 1;
        let kept = self.kept.get_mut(Self::place(self.next))?.take();
        self.count -= u32::from(kept.is_some());
        kept
    }

    /// The ranges between the next packet and the last one that is kept.
    pub(crate) fn missing(&self) -> RangeList {
        let mut list = RangeList::new();
        let (mut start, mut left) = (self.next, self.count);
        for distance in 1..MOST_EARLY {
            if left == 0 {
                break;
            }
            let seq = self.next + distance;
            if self.is_kept(seq) {
                list.push(MissingRange { start, end: seq });
                start = seq + 1;
                left -= 1;
            }
        }
        list
    }

    /// Gives all kept packets away.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = StoredBytes> + use<> {
        self.count = 0;
        core::mem::take(&mut self.kept).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::PayloadPool;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn packets_in_any_order_equal_set(start: u32, numbers in proptest::collection::vec(0u32..100, 0..300)) {
            let mut pool = PayloadPool::new(64);
            let stored = pool.reserve_spare(1).unwrap();
            let mut early = EarlyFrames { next: Seq(start), ..EarlyFrames::new() };
            let (mut next, mut kept) = (0, BTreeSet::new());
            for number in numbers {
                let seq = Seq(start) + number;
                let expected = if number < next || kept.contains(&number) {
                    ArrivalOrder::Repeated
                } else if number == next {
                    ArrivalOrder::Next
                } else if number - next < MOST_EARLY {
                    ArrivalOrder::Early
                } else {
                    ArrivalOrder::TooEarly
                };
                prop_assert_eq!(early.judge(seq), expected);
                match expected {
                    ArrivalOrder::Next => loop {
                        next += 1;
                        let is_kept = kept.remove(&next);
                        prop_assert_eq!(early.advance().is_some(), is_kept);
                        if !is_kept {
                            break;
                        }
                    },
                    ArrivalOrder::Early => {
                        early.keep(seq, stored);
                        kept.insert(number);
                    }
                    _ => {}
                }
                prop_assert_eq!((early.next(), early.has_gap()), (Seq(start) + next, !kept.is_empty()));
                let list = early.missing();
                let asked: Vec<u32> = list.ranges().iter().flat_map(|ranges| ranges.iter())
                    .flat_map(|range| (0..range.end.distance(range.start)).map(move |more| (range.start + more).distance(Seq(start))))
                    .collect();
                let gaps = (next..kept.last().copied().unwrap_or(next)).filter(|number| !kept.contains(number));
                let gaps: Vec<u32> = gaps.collect();
                prop_assert!(gaps.starts_with(&asked) && asked.is_empty() == gaps.is_empty());
            }
        }
    }
}
