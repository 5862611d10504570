//! Checks every interleaving of a stamp ring's two ends, within loom's bounds:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p toehold-trace --lib loom`.

use super::*;
use loom::sync::Arc;
use loom::thread;

const ENTRIES: usize = 2;
const MESSAGES: u32 = 4;

/// A record whose four fields all tell its number. So a mixed record shows.
fn record(number: u32) -> StampRecord {
    StampRecord {
        message: number,
        pair: PairId(number as u16),
        begin: u64::from(number) << 8,
        end: u64::from(number) << 16,
    }
}

fn storage() -> Arc<Vec<AtomicU64>> {
    Arc::new((0..words_for(ENTRIES)).map(|_| AtomicU64::new(0)).collect())
}

fn check(ends: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(ends);
}

/// Checks that records are whole, and that their numbers rise.
fn assert_whole(records: &[StampRecord]) {
    for found in records {
        assert_eq!(*found, record(found.message), "a torn or mixed record");
    }
    assert!(records.windows(2).all(|pair| pair[0].message < pair[1].message));
}

#[test]
fn reader_beside_a_writer_sees_whole_records_and_loses_only_counted_ones() {
    check(|| {
        let words = storage();
        let shared = Arc::clone(&words);
        let mut writer = StampWriter::new(&shared[..]).unwrap();
        let taking = Arc::clone(&words);
        let reader = thread::spawn(move || {
            let mut reader = StampReader::new(&taking[..]).unwrap();
            let mut found = Vec::new();
            reader.take_into(&mut found);
            reader.take_into(&mut found);
            assert_whole(&found);
            // The next reader begins where this one stopped.
            (found, reader.taken)
        });
        (1..=MESSAGES).for_each(|number| writer.write(record(number)));
        let dropped = writer.dropped();
        let (mut found, taken) = reader.join().unwrap();
        let mut rest = StampReader::new(&words[..]).unwrap();
        rest.taken = taken;
        rest.take_into(&mut found);
        assert_whole(&found);
        assert_eq!(found.len() as u64 + dropped, u64::from(MESSAGES));
        assert_eq!(rest.dropped(), dropped);
    });
}

#[test]
fn writer_beside_a_slow_reader_overwrites_no_record_that_is_read() {
    check(|| {
        let words = storage();
        let mut writer = StampWriter::new(&words[..]).unwrap();
        (1..=ENTRIES as u32).for_each(|number| writer.write(record(number)));
        let taking = Arc::clone(&words);
        let reader = thread::spawn(move || {
            let mut found = Vec::new();
            let taken = StampReader::new(&taking[..]).unwrap().take_into(&mut found);
            // Both records were there before the thread began.
            assert!(taken >= ENTRIES);
            assert_eq!(found[..ENTRIES], [record(1), record(2)]);
            assert_whole(&found);
        });
        writer.write(record(3));
        reader.join().unwrap();
    });
}
