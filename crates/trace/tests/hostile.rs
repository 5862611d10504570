//! Stamps of a hostile actor change no other actor's figures, and never cause a panic.

mod simulator;

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use proptest::prelude::*;
use simulator::{figures, simulate, worlds};
use toehold_trace::account::{BlockStamps, TimeAccount};
use toehold_trace::stamp::{StampReader, StampRecord, StampWriter, words_for};

/// Records as a ring of these words gives them.
fn read(words: &[u64]) -> Vec<StampRecord> {
    let words: Vec<AtomicU64> = words.iter().copied().map(AtomicU64::new).collect();
    let mut records = Vec::new();
    if let Ok(mut reader) = StampReader::new(&words) {
        reader.take_into(&mut records);
        assert!(records.len() <= words.len());
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_words_are_a_ring_without_a_panic(
        words in proptest::collection::vec(any::<u64>(), 0..80),
        count in 0_u64..30,
    ) {
        read(&words);
        let mut words = words;
        if let Some(written) = words.first_mut() {
            *written = count;
        }
        read(&words);
        let words: Vec<AtomicU64> = words.into_iter().map(AtomicU64::new).collect();
        if let Ok(mut writer) = StampWriter::new(&words) {
            let records = read(&[vec![1], vec![0; 18]].concat());
            words[8].store(count, Relaxed);
            (0..100).for_each(|_| writer.write(records[0]));
        }
    }

    #[test]
    fn random_blocks_give_an_account_or_an_error(
        starts in proptest::collection::vec(any::<u64>(), 0..40),
        stamps in proptest::collection::vec((any::<u32>(), any::<u16>(), any::<u64>(), any::<u64>()), 0..40),
        block in any::<u32>(),
    ) {
        let (_, world) = &worlds()[1];
        let mut words = vec![0; words_for(stamps.len())];
        words[0] = stamps.len() as u64;
        for (number, (message, pair, begin, end)) in stamps.iter().enumerate() {
            let message = if message % 2 == 0 { message % 512 } else { *message };
            words[16 + 3 * number] = u64::from(message) << 32 | u64::from(*pair % 64);
            (words[17 + 3 * number], words[18 + 3 * number]) = (*begin, *end);
        }
        let stamps = read(&words);
        let blocks = [0, 1, 2, 3, block].map(|block| BlockStamps {
            block,
            round_starts: starts.clone(),
            stamps: stamps.clone(),
        });
        let _ = TimeAccount::of(&world.plan, &blocks, 0.4);
    }
}

#[test]
fn nonsense_among_stamps_is_counted_and_changes_little() {
    let (_, world) = &worlds()[1];
    let mut blocks = simulate(world);
    let honest = TimeAccount::of(&world.plan, &blocks, 0.4).unwrap();
    let mut added = 0;
    for (number, block) in blocks.iter_mut().enumerate() {
        for (at, mut stamp) in block.stamps.clone().into_iter().enumerate().step_by(9) {
            match (at + number) % 3 {
                0 => stamp.message = u32::MAX - at as u32,
                1 => stamp.end = stamp.begin.wrapping_sub(1),
                _ => (stamp.begin, stamp.end) = (stamp.end, u64::MAX / 2),
            }
            block.stamps.push(stamp);
            added += 1;
        }
    }
    let account = TimeAccount::of(&world.plan, &blocks, 0.4).unwrap();
    assert_eq!(account.invalid_stamps, added);
    assert_eq!(account.invalid_blocks, 0);
    for (honest, found) in figures(&honest).iter().zip(figures(&account)) {
        assert!((honest - found).abs() < 2.0, "{honest} and {found}");
    }
}

#[test]
fn block_whose_clock_goes_back_is_left_out() {
    let (_, world) = &worlds()[0];
    let mut blocks = simulate(world);
    blocks[3].round_starts[7] = blocks[3].round_starts[6] - 1;
    blocks[4].round_starts.truncate(1);
    blocks[5].stamps.clear();
    let account = TimeAccount::of(&world.plan, &blocks, 0.4).unwrap();
    assert_eq!(account.invalid_blocks, 3);
}
