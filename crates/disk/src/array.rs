//! Heads behind a bus: chunks of the disk on each head in turn (RAID-0).
//!
//! A disk of one head is an array of one, whose chunk does not matter.

use crate::head::{DiskHead, HeadTimes, Transfer};
use crate::speeds::{BusSpeeds, DiskKind};

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpan {
    /// The first byte.
    pub offset: u64,
    /// Bytes from there on.
    pub bytes: u64,
}

/// Chunks over heads. A span of the disk is one span on each head that it touches.
#[derive(Debug, Clone, Copy)]
struct Stripes {
    heads: u64,
    chunk: u64,
}

impl Stripes {
    /// Bytes on `head` among the first `bytes` of the disk.
    fn before(self, head: u64, bytes: u64) -> u64 {
        let row = self.chunk * self.heads;
        let rest = bytes % row;
        bytes / row * self.chunk + rest.saturating_sub(head * self.chunk).min(self.chunk)
    }

    /// The part of a span that lies on `head`.
    fn part(self, head: u64, span: DiskSpan) -> DiskSpan {
        let offset = self.before(head, span.offset);
        let end = self.before(head, span.offset.saturating_add(span.bytes));
        DiskSpan {
            offset,
            bytes: end - offset,
        }
    }
}

/// A disk of one or several heads. Each head has a clock of its own; a request is done when its
/// last head is, and when the bus has carried it.
#[derive(Debug, Clone)]
pub struct DiskArray {
    stripes: Stripes,
    heads: Vec<DiskHead>,
    bus: Option<BusSpeeds>,
    bus_free_ns: u64,
    busy_ns: u64,
    turns: fastrand::Rng,
}

impl DiskArray {
    /// Makes a disk of `capacity` bytes. `scale` divides seek, turn and overhead, and `seed` decides
    /// the parts of a turn.
    pub fn new(kind: &DiskKind, scale: u32, capacity: u64, seed: u64) -> Self {
        let heads = kind.heads().max(1);
        let head = DiskHead::new(kind.head.scaled(scale), capacity.div_ceil(heads.into()));
        Self {
            stripes: Stripes {
                heads: heads.into(),
                chunk: kind.array.map_or(1 << 20, |array| array.chunk_bytes).into(),
            },
            heads: vec![head; heads as usize],
            bus: kind.array.and_then(|array| array.bus),
            bus_free_ns: 0,
            busy_ns: 0,
            turns: fastrand::Rng::with_seed(seed),
        }
    }

    /// Serves a request that comes at `at_ns`. Returns when its first head begins, when the first
    /// byte moves, and when all is done. Both first times are later while the bus carries others. The
    /// request is sequential if it is on all of its heads.
    pub fn serve(&mut self, at_ns: u64, span: DiskSpan, transfer: Transfer) -> HeadTimes {
        let mut whole: Option<HeadTimes> = None;
        for (index, head) in (0..).zip(&mut self.heads) {
            let part = self.stripes.part(index, span);
            if part.bytes == 0 {
                continue;
            }
            let times = head.serve(at_ns, part.offset, part.bytes, transfer, self.turns.f64());
            self.busy_ns += times.service_ns();
            whole = Some(whole.map_or(times, |whole| joined(whole, times)));
        }
        let Some(mut whole) = whole else {
            return HeadTimes {
                begins_ns: at_ns,
                transfers_ns: at_ns,
                done_ns: at_ns,
                is_sequential: true,
            };
        };
        if let Some(bus) = self.bus {
            let carries = self.bus_free_ns.max(whole.transfers_ns);
            // WaitingReply for the bus is waiting, not service.
            whole.begins_ns += carries - whole.transfers_ns;
            whole.transfers_ns = carries;
            self.bus_free_ns = carries + bus.transfer_ns(span.bytes, transfer) as u64;
            whole.done_ns = whole.done_ns.max(self.bus_free_ns);
        }
        whole
    }

    /// When all requests so far are done, in nanoseconds of the caller's clock.
    pub fn free_ns(&self) -> u64 {
        let heads = self.heads.iter().map(DiskHead::free_ns);
        heads.fold(self.bus_free_ns, u64::max)
    }

    /// Nanoseconds of service, summed over the heads.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// The number of heads.
    pub fn heads(&self) -> usize {
        self.heads.len()
    }

    /// Makes the disk another kind. It begins when all requests so far are done, with its heads at the
    /// begin of the disk.
    pub fn set_kind(&mut self, kind: &DiskKind, scale: u32, capacity: u64) {
        let free_ns = self.free_ns();
        let mut next = Self::new(kind, scale, capacity, self.turns.u64(..));
        for head in &mut next.heads {
            head.rest_until(free_ns);
        }
        next.busy_ns = self.busy_ns;
        *self = next;
    }
}

/// Two heads' times of one request, as those of the whole.
fn joined(one: HeadTimes, other: HeadTimes) -> HeadTimes {
    HeadTimes {
        begins_ns: one.begins_ns.min(other.begins_ns),
        transfers_ns: one.transfers_ns.min(other.transfers_ns),
        done_ns: one.done_ns.max(other.done_ns),
        is_sequential: one.is_sequential && other.is_sequential,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::speeds::ArrayShape;

    const CAPACITY: u64 = 1 << 30;

    fn array(name: &str) -> DiskArray {
        DiskArray::new(&DiskKind::named(name).unwrap(), 1, CAPACITY, 1)
    }

    /// Seconds that reading or writing `total` bytes from the begin takes, one request at a time.
    fn stream(array: &mut DiskArray, total: u64, request: u64, transfer: Transfer) -> f64 {
        let mut now = 0;
        for offset in (0..total).step_by(request as usize) {
            let span = DiskSpan {
                offset,
                bytes: request,
            };
            now = array.serve(now, span, transfer).done_ns;
        }
        now as f64 / 1e9
    }

    proptest! {
        /// Parts of a span tile each head without gap, and every byte lies on one head.
        #[test]
        fn layout_is_a_bijection(heads in 1u64..8, chunk in 1u64..50, begin in 0u64..2000, bytes in 0u64..600) {
            let stripes = Stripes { heads, chunk };
            let mut places = std::collections::BTreeSet::new();
            for byte in begin..begin + bytes {
                let span = DiskSpan { offset: byte, bytes: 1 };
                let parts = (0..heads).map(|head| (head, stripes.part(head, span)));
                let held: Vec<_> = parts.filter(|(_, part)| part.bytes > 0).collect();
                prop_assert_eq!(held.len(), 1);
                prop_assert_eq!(held[0].0, byte / chunk % heads);
                prop_assert!(places.insert((held[0].0, held[0].1.offset)));
            }
            for head in 0..heads {
                let part = stripes.part(head, DiskSpan { offset: begin, bytes });
                let on_head: Vec<u64> = places.iter().filter(|place| place.0 == head).map(|place| place.1).collect();
                let tiled: Vec<u64> = (part.offset..part.offset + part.bytes).collect();
                prop_assert_eq!(on_head, tiled);
            }
        }

        /// An array of one head has the head's own times, whatever the chunk.
        #[test]
        fn array_of_one_head_is_the_head(chunk in 1u32..100, offsets in prop::collection::vec(0u64..CAPACITY / 512, 1..20)) {
            let mut kind = DiskKind::named("scsi").unwrap();
            let mut head = DiskHead::new(kind.head, CAPACITY);
            kind.array = Some(ArrayShape { heads: 1, chunk_bytes: chunk * 512, bus: None });
            let mut array = DiskArray::new(&kind, 1, CAPACITY, 3);
            let mut turns = fastrand::Rng::with_seed(3);
            for (index, offset) in offsets.into_iter().enumerate() {
                let (at, offset) = (index as u64 * 1_000_000, offset * 512);
                let whole = array.serve(at, DiskSpan { offset, bytes: 4096 }, Transfer::Read);
                prop_assert_eq!(whole, head.serve(at, offset, 4096, Transfer::Read, turns.f64()));
            }
        }
    }

    #[test]
    fn stream_over_three_heads_is_limited_by_the_bus() {
        let total = 64 << 20;
        for (transfer, rate) in [(Transfer::Read, 125.0), (Transfer::Write, 150.0)] {
            let mut raid = array("raid");
            let took = stream(&mut raid, total, 1 << 20, transfer);
            let reached = total as f64 / 1e6 / took;
            assert!(reached < rate && reached > 0.98 * rate, "{reached} MB/s");
        }
    }

    #[test]
    fn stream_over_one_head_has_its_rate() {
        let total = 64 << 20;
        let took = stream(&mut array("ide"), total, 128 << 10, Transfer::Read);
        let reached = total as f64 / 1e6 / took;
        assert!((reached - 36.9).abs() < 0.1, "{reached} MB/s");
    }

    #[test]
    fn requests_on_different_heads_overlap() {
        let mut kind = DiskKind::named("raid").unwrap();
        kind.array = kind.array.map(|shape| ArrayShape { bus: None, ..shape });
        let mut raid = DiskArray::new(&kind, 1, CAPACITY, 1);
        let mut read = |chunk: u64| {
            let span = DiskSpan {
                offset: chunk * 4096,
                bytes: 4096,
            };
            raid.serve(0, span, Transfer::Read)
        };
        let (first, other_head, first_head) = (read(30), read(31), read(60));
        assert_eq!((first.begins_ns, other_head.begins_ns), (0, 0));
        assert!(first_head.begins_ns > 0);
    }

    #[test]
    fn wait_for_the_bus_is_no_service() {
        let mut raid = array("raid");
        let span = DiskSpan {
            offset: 0,
            bytes: 1 << 20,
        };
        let first = raid.serve(0, span, Transfer::Read);
        let next = DiskSpan {
            offset: 1 << 20,
            ..span
        };
        let second = raid.serve(0, next, Transfer::Read);
        assert_eq!(second.transfers_ns, first.done_ns);
        assert!(second.service_ns() <= first.service_ns());
    }

    #[test]
    fn other_kind_keeps_what_is_under_way() {
        let mut disk = array("ide");
        let span = DiskSpan {
            offset: 0,
            bytes: 1 << 20,
        };
        let first = disk.serve(0, span, Transfer::Read);
        disk.set_kind(&DiskKind::named("raid").unwrap(), 1, CAPACITY);
        assert_eq!(disk.heads(), 3);
        let second = disk.serve(0, span, Transfer::Read);
        assert_eq!(second.begins_ns, first.done_ns);
        assert!(disk.busy_ns() > first.service_ns());
    }

    #[test]
    fn request_of_no_bytes_is_done_at_once() {
        let span = DiskSpan { offset: 77, bytes: 0 };
        assert_eq!(array("raid").serve(5, span, Transfer::Write).done_ns, 5);
    }
}
