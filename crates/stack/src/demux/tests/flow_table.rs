use proptest::prelude::*;

use super::*;

/// Ids that find a place even if all have the same hash: a full bucket, and the most that it can
/// displace.
pub(super) const ROOM: u32 = 12 + 15;

fn flow_table(capacity: u32) -> FlowTable {
    let Chosen::FlowTable(table) = create(DemuxStrategy::FlowTable, capacity) else {
        unreachable!()
    };
    table
}

proptest! {
    /// All tuples have the same two buckets and the same tag.
    #[test]
    fn table_under_flood_behaves_like_map(steps in steps(100, 3)) {
        let mut table = flow_table(64);
        table.index.set_hook(Some(|_| |_| 0x0123_4567_89ab_cdef));
        run(&mut table, &tuples(100), steps);
    }

    /// All tuples share their places until the key changes, so that many ids move.
    #[test]
    fn table_while_key_changes_behaves_like_map(steps in steps(100, 3)) {
        let mut table = flow_table(64);
        table.index.set_hook(Some(|rekeyed| match rekeyed % 3 {
            0 => |_| 0x0123_4567_89ab_cdef,
            1 => |hash| (hash & 1).wrapping_mul(0xc000_0030_0000_0101),
            _ => |hash| hash,
        }));
        run(&mut table, &tuples(100), steps);
    }

    /// Four hashes, so that buckets overlap and ids make room for others.
    #[test]
    fn table_with_few_buckets_behaves_like_map(steps in steps(100, 3)) {
        let mut table = flow_table(64);
        table.index.set_hook(Some(|_| |hash| (hash & 3).wrapping_mul(0x4000_0020_0000_0101)));
        run(&mut table, &tuples(100), steps);
    }
}

#[test]
fn flow_table_holds_its_capacity() {
    for capacity in [1, 2, 7, 8, 9, 64, 1000, 50_000] {
        let store = tuples(capacity);
        let mut table = flow_table(capacity);
        for id in 0..capacity {
            table.insert(id, &store[..]).unwrap();
        }
        assert_eq!(table.insert(capacity, &store[..]), Err(Full));
        assert_eq!(
            (table.index.stash_len(), table.index.rekeyed()),
            (0, 0),
            "of {capacity}"
        );
        for (id, tuple) in (0..).zip(&store) {
            assert_eq!(table.lookup(tuple, &store[..], &mut Unobserved), Some(id));
        }
    }
}

#[test]
fn removal_leaves_table_pristine() {
    let count = 5_000;
    let store = tuples(2 * count);
    let mut table = flow_table(count);
    // Twenty generations of connections in the same places.
    for generation in 0..20 {
        let from = (generation % 2) * count;
        let shifted = &store[from as usize..];
        for id in 0..count {
            table.insert(id, shifted).unwrap();
        }
        for id in (0..count).rev() {
            assert!(table.remove(id, shifted));
        }
        assert!(table.index.is_pristine(), "after generation {generation}");
    }
    assert_eq!(table.index.rekeyed(), 0);
}

#[test]
fn look_up_of_unknown_tuple_reads_one_bucket() {
    let count = 20_000;
    let store = tuples(2 * count);
    let mut table = flow_table(count);
    for id in 0..count {
        table.insert(id, &store[..]).unwrap();
    }
    let absent = &store[count as usize..];
    let mut counters = DemuxCounters::default();
    for tuple in absent {
        assert_eq!(table.lookup(tuple, &store[..], &mut counters), None);
    }
    // The cache is empty, so every comparison is a false match of a 16-bit tag: 8 in 65536 for a
    // bucket of 8.
    let examined = counters.demux_examined;
    assert!(examined < u64::from(count) / 1000, "{examined}");
}

#[test]
fn guesses_agree_with_look_ups() {
    let count = 20_000;
    let store = tuples(2 * count);
    let mut table = flow_table(count);
    let (mut moving, mut hits, mut strays) = (0, 0, 0);
    for id in 0..count {
        table.insert(id, &store[..]).unwrap();
        moving += u32::from(table.index.is_moving());
        let sampled = id / 2;
        let mut guesses = Vec::new();
        let wanted = [store[sampled as usize], store[(count + id) as usize]];
        table.guess_burst(&wanted, |id| guesses.push(id));
        hits += u32::from(guesses.contains(&sampled));
        strays += guesses.iter().filter(|id| **id != sampled).count();
    }
    assert!(moving > 0, "half a table was looked at");
    // Another id has the same tag in one of thousands of buckets.
    assert!(hits >= count - 20, "{hits}");
    assert!(strays < count as usize / 500, "{strays}");
}

/// All tuples share their places under the first key.
fn known_key(rekeyed: u32) -> fn(u64) -> u64 {
    if rekeyed == 0 { |_| 42 } else { |hash| hash }
}

/// An attacker that knows the key puts tuples into the same bucket until the table notices. Then
/// the key changes, and the attacker's knowledge is worthless. All ids are found at all times.
#[test]
fn flood_of_chosen_tuples_changes_key() {
    let count = 3_000;
    let store = tuples(count);
    let mut table = flow_table(count);
    table.index.set_hook(Some(known_key));
    let mut most_examined = 0;
    for id in 0..count {
        table.insert(id, &store[..]).unwrap();
        for found in [0, id / 2, id] {
            let mut counters = DemuxCounters::default();
            let tuple = &store[found as usize];
            assert_eq!(table.lookup(tuple, &store[..], &mut counters), Some(found));
            most_examined = most_examined.max(counters.demux_examined);
        }
        assert_eq!(
            table.index.rekeyed(),
            u32::from(id >= 4),
            "the fifth with one tag is no chance"
        );
    }
    assert!(
        most_examined <= 6,
        "{most_examined}: the cache's, and five with one tag"
    );
    assert!(!table.index.is_moving());
    for (id, tuple) in (0..).zip(&store) {
        assert_eq!(table.lookup(tuple, &store[..], &mut Unobserved), Some(id));
    }
}

/// An attacker that knows only the bucket of a tuple, and fills a few buckets.
#[test]
fn flood_of_few_buckets_changes_key() {
    let count = 10_000;
    let store = tuples(count);
    let mut table = flow_table(count);
    // All bits of the tag, and three bits for each bucket.
    table.index.set_hook(Some(|rekeyed| {
        if rekeyed == 0 {
            |hash| hash & 0xe000_00e0_0000_ffff
        } else {
            |hash| hash
        }
    }));
    let noticed = (0..count).find(|&id| {
        table.insert(id, &store[..]).unwrap();
        table.index.rekeyed() == 1
    });
    assert!(noticed.is_some_and(|id| id < 200), "{noticed:?}");
}

/// Random tuples do not trigger the detection of an attack.
#[test]
fn random_tuples_do_not_change_key() {
    let count = 200_000;
    let store = tuples(count);
    let mut table = flow_table(count);
    for id in 0..count {
        table.insert(id, &store[..]).unwrap();
        assert_eq!((table.index.rekeyed(), table.index.stash_len()), (0, 0), "{id}");
    }
}

/// The table grows from few buckets to those of its capacity, and every insertion moves the
/// contents of one bucket.
#[test]
fn growing_table_finds_every_id() {
    let count = 20_000;
    let store = tuples(2 * count);
    let mut table = flow_table(count);
    let mut sizes = vec![table.index.bucket_count()];
    let mut moving = 0;
    for id in 0..count {
        table.insert(id, &store[..]).unwrap();
        let now = table.index.bucket_count();
        if sizes.last() != Some(&now) {
            sizes.push(now);
        }
        moving += u32::from(table.index.is_moving());
        // A burst on the index itself does not move ids.
        let wanted: [u32; 8] =
            std::array::from_fn(|at| (mixed(u64::from(id) * 8 + at as u64) % u64::from(2 * count)) as u32);
        let burst = wanted.map(|number| store[number as usize]);
        let mut ids = [0; 8];
        table
            .index
            .find_burst(&burst, &mut ids, &store[..], &mut Unobserved);
        for (number, found) in wanted.into_iter().zip(ids) {
            assert_eq!(found, if number <= id { number } else { NONE });
            let tuple = &store[number as usize];
            let alone = table.index.find(tuple, &store[..], &mut Unobserved);
            assert_eq!(alone, (number <= id).then_some(number));
        }
        assert_eq!(table.len(), id + 1);
    }
    assert_eq!(sizes, [70, 139, 278, 556, 1112, 2223]);
    assert!(
        (2_000..5_000).contains(&moving),
        "an insertion a bucket, while it moves: {moving}"
    );
    assert!(table.index.is_moving() || moving > 0);
}

/// Look-ups move ids as well, so that growth ends without insertions.
#[test]
fn look_ups_complete_growth() {
    let count = 20_000;
    let store = tuples(count);
    for in_bursts in [false, true] {
        let mut table = flow_table(count);
        let mut id = 0;
        while !table.index.is_moving() {
            table.insert(id, &store[..]).unwrap();
            id += 1;
        }
        for n in 0..200 {
            let tuple = store[n % id as usize];
            let mut found = [0];
            if in_bursts {
                table.lookup_burst(&[tuple], &mut found, &store[..], &mut Unobserved);
            } else {
                found[0] = table.lookup(&tuple, &store[..], &mut Unobserved).unwrap();
            }
            assert_eq!(found, [(n % id as usize) as u32]);
        }
        assert!(!table.index.is_moving());
        assert_eq!(table.len(), id);
    }
}

/// Where even other keys do not help, the table reports it and stays unchanged.
#[test]
fn constant_hash_fills_table_early_and_loses_no_id() {
    let store = tuples(100);
    let mut table = flow_table(100);
    table.index.set_hook(Some(|_| |_| 42));
    let mut inside: Vec<u32> = Vec::new();
    let fill = |table: &mut FlowTable, inside: &mut Vec<u32>| {
        for id in 0..100 {
            if !inside.contains(&id) && table.insert(id, &store[..]).is_ok() {
                inside.push(id);
            }
        }
    };
    fill(&mut table, &mut inside);
    assert!(
        (ROOM..=2 * ROOM).contains(&(inside.len() as u32)),
        "{}",
        inside.len()
    );
    for gone in [0, 5, ROOM as usize - 1] {
        // Its place goes to an id that had to stay in the former generation, or to the next
        // insertion.
        assert!(table.remove(inside.remove(gone), &store[..]));
        fill(&mut table, &mut inside);
        assert!(inside.len() as u32 >= ROOM);
    }
    let before = table.index.contents();
    for id in (0..100).filter(|id| !inside.contains(id)) {
        assert_eq!(table.insert(id, &store[..]), Err(Full));
        let found = table.index.find(&store[id as usize], &store[..], &mut Unobserved);
        assert_eq!(found, None);
    }
    assert_eq!(table.index.contents(), before);
    assert_eq!(table.len() as usize, inside.len());
    for id in inside {
        let found = table.lookup(&store[id as usize], &store[..], &mut Unobserved);
        assert_eq!(found, Some(id));
        assert!(table.remove(id, &store[..]));
    }
    assert!(table.index.is_pristine());
}
