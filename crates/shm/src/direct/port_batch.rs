//! Batches of ports, from which a process takes some without asking the node.
//!
//! A batch is a range of up to 64 ports that the kernel reserves for the node. A word has a bit for
//! each port that is free. The lease is needed to get a batch and to give it back, not to take a
//! port.

use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::bank::PortLine;
use super::journal::Journal;

/// Most ports of a batch.
pub const MOST_PORTS: u16 = 64;

/// How long a batch is kept of which no port was taken.
pub const IDLE_NS: u64 = 1_000_000_000;

/// A process's batch of ports.
#[derive(Debug, Clone, Copy)]
pub struct PortBatch<'a> {
    line: &'a PortLine,
}

/// Set in the range of a batch that gives out no port any more.
const RETIRED: u64 = 1 << 32;

impl Journal {
    /// The batch of process `process`, the node's own number of it; `None` if the number is
    /// none that has one.
    pub fn port_batch(&self, process: u16) -> Option<PortBatch<'_>> {
        self.ports(process).map(|line| PortBatch { line })
    }
}

impl PortBatch<'_> {
    /// The ports of the batch; empty if there is none.
    pub fn range(&self) -> Range<u16> {
        let word = self.line.range.load(Acquire);
        let first = word as u16;
        first..first.saturating_add((word >> 16) as u16 & 0xff)
    }

    fn is_retired(&self) -> bool {
        self.line.range.load(Acquire) & RETIRED != 0
    }

    /// Gives the process ports that the kernel has reserved for the node. The process has no
    /// batch. The caller has the lease.
    ///
    /// # Panics
    ///
    /// If there are more than [`MOST_PORTS`].
    pub fn fill(&self, ports: Range<u16>, now_ns: u64) {
        let len = ports.end.saturating_sub(ports.start);
        assert!(len <= MOST_PORTS, "{len} ports of a batch");
        self.line.used_ns.store(now_ns, Relaxed);
        let range = u64::from(ports.start) | u64::from(len) << 16;
        self.line.returned.store(0, Relaxed);
        self.line.range.store(range, Release);
        self.line.free.store(all(len), Release);
    }

    /// Takes a free port; `None` if there is none. `now_ns` is the monotonic clock, as far as
    /// the caller knows it.
    pub fn take(&self, now_ns: u64) -> Option<u16> {
        let free = &self.line.free;
        if self.is_retired() {
            return None;
        }
        let mut found = free.load(Acquire);
        while found != 0 {
            let bit = found.trailing_zeros();
            match free.compare_exchange_weak(found, found & (found - 1), AcqRel, Acquire) {
                Ok(_) => {
                    self.line.used_ns.store(now_ns, Relaxed);
                    return self.range().nth(bit as usize);
                }
                Err(other) => found = other,
            }
        }
        None
    }

    /// Gives a port back that was taken from this batch. Returns `false` if it lies in another
    /// one. The last port of a retired batch that comes back makes the batch
    /// [ended](PortBatch::ended).
    pub fn put(&self, port: u16) -> bool {
        let range = self.range();
        if !range.contains(&port) {
            return false;
        }
        self.line.free.fetch_or(1 << (port - range.start), AcqRel);
        true
    }

    /// Whether no port was taken for [`IDLE_NS`].
    pub fn is_idle(&self, now_ns: u64) -> bool {
        let used_ns = self.line.used_ns.load(Relaxed);
        !self.range().is_empty() && now_ns.saturating_sub(used_ns) >= IDLE_NS
    }

    /// Lets no port of the batch be taken any more: before it is given back, or after its
    /// process has died. The caller has the lease.
    pub fn retire(&self) {
        self.line.range.fetch_or(RETIRED, AcqRel);
    }

    /// Takes the range of a retired batch whose ports have all come back, so that the kernel can
    /// have it again. The caller has the lease.
    pub fn ended(&self) -> Option<Range<u16>> {
        if !self.is_retired() {
            return None;
        }
        let range = self.range();
        // A port that comes back late, or was taken at the last moment, is counted next time.
        let back = self.line.free.swap(0, AcqRel);
        let back = self.line.returned.fetch_or(back, AcqRel) | back;
        if back != all(range.len() as u16) {
            return None;
        }
        self.line.range.store(0, Release);
        Some(range)
    }
}

fn all(ports: u16) -> u64 {
    match ports {
        MOST_PORTS.. => u64::MAX,
        ports => (1 << ports) - 1,
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::direct::bank::PROCESSES;

    fn journal() -> Journal {
        Journal::create("toehold-test", 1).unwrap()
    }

    #[test]
    fn batch_gives_each_port_once_and_takes_it_back() {
        let journal = journal();
        let batch = journal.port_batch(5).unwrap();
        assert_eq!(batch.take(0), None);
        batch.fill(40_000..40_003, 7);
        let mut ports = [(); 3].map(|()| batch.take(8).unwrap());
        ports.sort();
        assert_eq!((ports, batch.take(8)), ([40_000, 40_001, 40_002], None));
        assert!(batch.put(40_001) && !batch.put(40_003) && !batch.put(39_999));
        assert_eq!(batch.take(9), Some(40_001));
        let other = journal.port_batch(6).unwrap();
        assert!(other.range().is_empty() && other.take(0).is_none());
        assert!(journal.port_batch(PROCESSES as u16).is_none());
    }

    #[test]
    fn batch_retired_ends_when_the_last_port_is_back() {
        let journal = journal();
        let batch = journal.port_batch(5).unwrap();
        batch.fill(65_472..65_535, 0);
        let port = batch.take(0).unwrap();
        assert!(!batch.is_idle(IDLE_NS - 1) && batch.is_idle(IDLE_NS));
        assert_eq!(batch.ended(), None);
        batch.retire();
        assert_eq!((batch.take(0), batch.ended()), (None, None));
        assert!(batch.put(port));
        assert_eq!((batch.take(0), batch.ended()), (None, Some(65_472..65_535)));
        assert!(batch.range().is_empty() && batch.ended().is_none());
        batch.fill(100..164, 0);
        assert_eq!(
            (0..64).filter_map(|_| batch.take(0)).sum::<u16>(),
            (100..164).sum()
        );
    }

    #[test]
    fn batch_of_random_words_gives_ports_of_its_range_alone() {
        let journal = journal();
        let batch = journal.port_batch(0).unwrap();
        let mut random = 1_u64;
        for _ in 0..2000 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            batch.line.range.store(random >> (random >> 59), Relaxed);
            batch.line.free.store(random, Relaxed);
            let range = batch.range();
            assert!(batch.take(0).is_none_or(|port| range.contains(&port)));
            batch.put(range.start);
            let _ = batch.ended();
        }
    }

    #[test]
    fn ports_taken_by_two_threads_are_never_the_same() {
        const ROUNDS: usize = 100_000;
        let journal = journal();
        let batch = journal.port_batch(1).unwrap();
        batch.fill(1000..1003, 0);
        let used = [const { core::sync::atomic::AtomicBool::new(false) }; 3];
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let port = batch.take(0).unwrap();
                        let used = &used[usize::from(port - 1000)];
                        assert!(!used.swap(true, AcqRel));
                        used.store(false, Release);
                        assert!(batch.put(port));
                    }
                });
            }
        });
        batch.retire();
        assert_eq!(batch.ended(), Some(1000..1003));
    }
}
