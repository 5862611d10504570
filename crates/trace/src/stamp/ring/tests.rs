use super::*;
use std::thread;

fn storage(entries: usize) -> Vec<AtomicU64> {
    (0..words_for(entries)).map(|_| AtomicU64::new(0)).collect()
}

fn record(number: u32) -> StampRecord {
    StampRecord {
        message: number,
        pair: PairId(number as u16),
        begin: u64::MAX - u64::from(number),
        end: u64::from(number),
    }
}

#[test]
fn full_ring_drops_whole_pairs_and_counts_them() {
    let words = storage(4);
    let mut writer = StampWriter::new(&words).unwrap();
    let mut reader = StampReader::new(&words).unwrap();
    (0..6).for_each(|number| writer.write(record(number)));
    let mut found = Vec::new();
    assert_eq!(reader.take_into(&mut found), 4);
    assert_eq!(found, (0..4).map(record).collect::<Vec<_>>());
    assert_eq!((writer.dropped(), reader.dropped()), (2, 2));
    writer.write(record(9));
    assert_eq!(reader.take_into(&mut found), 1);
    assert_eq!(found[4], record(9));
}

#[test]
fn storage_without_room_for_an_entry_is_refused() {
    let words = storage(0);
    assert_eq!(StampWriter::new(&words).err(), Some(RingError::TooSmall(16)));
    assert_eq!(StampReader::new(&[]).err(), Some(RingError::TooSmall(0)));
}

#[test]
fn reader_of_an_impossible_count_takes_nothing() {
    let words = storage(4);
    let mut writer = StampWriter::new(&words).unwrap();
    let mut reader = StampReader::new(&words).unwrap();
    writer.write(record(1));
    let mut found = Vec::new();
    for count in [u64::MAX, 5, 1 << 63] {
        words[WRITTEN].store(count, Relaxed);
        assert_eq!(reader.take_into(&mut found), 0);
    }
    words[WRITTEN].store(1, Relaxed);
    assert_eq!(reader.take_into(&mut found), 1);
}

#[test]
fn writer_overwrites_nothing_for_an_impossible_count() {
    let words = storage(4);
    let mut writer = StampWriter::new(&words).unwrap();
    (0..4).for_each(|number| writer.write(record(number)));
    for count in [u64::MAX, 5, 1 << 63] {
        words[TAKEN].store(count, Relaxed);
        writer.write(record(7));
    }
    assert_eq!(writer.dropped(), 3);
    let mut found = Vec::new();
    StampReader::new(&words).unwrap().take_into(&mut found);
    assert_eq!(found, (0..4).map(record).collect::<Vec<_>>());
}

#[test]
fn stamps_of_another_thread_come_in_order_and_unbroken() {
    const COUNT: u32 = 20_000;
    let words = storage(64);
    let mut reader = StampReader::new(&words).unwrap();
    let mut writer = StampWriter::new(&words).unwrap();
    thread::scope(|scope| {
        let dropped = scope.spawn(move || {
            (0..COUNT).for_each(|number| writer.write(record(number)));
            writer.dropped()
        });
        let mut found = Vec::new();
        while !dropped.is_finished() {
            if reader.take_into(&mut found) == 0 {
                thread::yield_now();
            }
        }
        reader.take_into(&mut found);
        assert!(found.iter().all(|found| *found == record(found.message)));
        assert!(found.is_sorted_by_key(|record| record.message));
        assert_eq!(found.len() as u64 + dropped.join().unwrap(), u64::from(COUNT));
    });
}
