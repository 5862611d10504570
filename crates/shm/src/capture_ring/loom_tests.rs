//! Checks every interleaving of a capture ring's two ends: the writer with the lease, the reader
//! without it. `RUSTFLAGS="--cfg loom" cargo test --release -p toehold-shm --lib capture_ring`.
//!
//! A record is one byte of a ring of two. loom reports two unordered accesses to it. One case is a
//! reader that reads before the writer has finished. The other is a writer that overwrites a record
//! while it is read.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::positions::Positions;

const CAPACITY: u64 = 2;

struct Tape {
    written: AtomicU64,
    taken: AtomicU64,
    records: [UnsafeCell<u64>; CAPACITY as usize],
}

impl Tape {
    fn new() -> Arc<Tape> {
        Arc::new(Tape {
            written: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            records: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    fn positions(&self) -> Positions<'_> {
        Positions {
            written: &self.written,
            taken: &self.taken,
        }
    }

    fn record(&self, position: u64) -> &UnsafeCell<u64> {
        &self.records[(position % CAPACITY) as usize]
    }

    /// Appends a record. Returns `false` if there is no room, and the record is lost.
    fn append(&self, record: u64) -> bool {
        let (written, taken) = self.positions().to_write();
        if written - taken == CAPACITY {
            return false;
        }
        // SAFETY: loom checks that no other thread has access at the same time.
        self.record(written).with_mut(|place| unsafe { *place = record });
        self.positions().publish(written + 1);
        true
    }

    /// The next record after `position`, which advances.
    fn read(&self, position: &mut u64) -> Option<u64> {
        if self.positions().readable() == *position {
            return None;
        }
        // SAFETY: loom checks that no other thread has access at the same time.
        let record = self.record(*position).with(|place| unsafe { *place });
        *position += 1;
        self.positions().take(*position);
        Some(record)
    }
}

fn check(ends: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(ends);
}

/// Each end waits for the other here, so that every record arrives. The test checks that the two
/// never access a record at once.
#[test]
fn records_are_complete_and_not_overwritten_before_read() {
    check(|| {
        let tape = Tape::new();
        let writing = Arc::clone(&tape);
        let writer = thread::spawn(move || {
            for record in 1..=4 {
                while !writing.append(record) {
                    thread::yield_now();
                }
            }
        });
        let mut position = 0;
        for expected in 1..=4 {
            let record = loop {
                match tape.read(&mut position) {
                    Some(record) => break record,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(record, expected);
        }
        writer.join().unwrap();
    });
}

/// Each holder of the lease writes, and continues where the last one stopped.
#[test]
fn two_writers_take_turns_beside_reader() {
    check(|| {
        let tape = Tape::new();
        let writing = Arc::clone(&tape);
        let writers = thread::spawn(move || {
            assert!(writing.append(1));
            let next = Arc::clone(&writing);
            // The first writer ends before the second one begins, as with the lease.
            thread::spawn(move || assert!(next.append(2))).join().unwrap();
        });
        let mut position = 0;
        let mut read = Vec::new();
        while read.len() < 2 {
            match tape.read(&mut position) {
                Some(record) => read.push(record),
                None => thread::yield_now(),
            }
        }
        assert_eq!(read, [1, 2]);
        writers.join().unwrap();
    });
}
