//! Compares slabs with a plain model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::{Carver, Region, Slab};

fn slab(capacity: u32) -> Slab<[u32; 3]> {
    let region = Region::private(Slab::<[u32; 3]>::bytes_needed(capacity)).unwrap();
    Carver::new(region).unwrap().slab(capacity).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u32),
    Remove(u32),
    Change(u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any::<u32>().prop_map(Step::Insert),
        2 => (0..12_u32).prop_map(Step::Remove),
        1 => (0..12_u32, any::<u32>()).prop_map(|(index, value)| Step::Change(index, value)),
    ]
}

proptest! {
    #[test]
    fn slab_behaves_as_map(steps in prop::collection::vec(step(), 0..200)) {
        let mut slab = slab(10);
        let mut model = BTreeMap::new();
        for step in steps {
            match step {
                Step::Insert(value) => match slab.insert([value; 3]) {
                    Some(index) => prop_assert!(model.insert(index, [value; 3]).is_none()),
                    None => prop_assert_eq!(model.len(), 10),
                },
                Step::Remove(index) => prop_assert_eq!(slab.remove(index), model.remove(&index).is_some()),
                Step::Change(index, value) => {
                    prop_assert_eq!(slab.get(index), model.get(&index));
                    if let (Some(here), Some(there)) = (slab.get_mut(index), model.get_mut(&index)) {
                        here[1] = value;
                        there[1] = value;
                        prop_assert_eq!(slab[index][1], value);
                    }
                }
            }
            prop_assert_eq!(slab.len() as usize, model.len());
            prop_assert_eq!(slab.is_empty(), model.is_empty());
            prop_assert!(slab.iter_live().map(|(index, value)| (index, *value)).eq(model.clone()));
        }
    }
}

#[test]
fn fills_up_and_empties_again() {
    let mut slab = slab(1000);
    for round in 0..3 {
        let indices: Vec<u32> = (0..1000).map(|value| slab.insert([value; 3]).unwrap()).collect();
        assert_eq!(slab.insert([0; 3]), None);
        assert_eq!(slab.len(), slab.capacity());
        assert!(
            indices
                .iter()
                .zip(0..)
                .all(|(&index, value)| slab[index] == [value; 3]),
            "round {round}"
        );
        assert!(indices.iter().all(|&index| slab.remove(index)));
        assert!(slab.is_empty());
    }
}

#[test]
fn free_slot_is_not_removed() {
    let mut slab = slab(4);
    let index = slab.insert([1; 3]).unwrap();
    assert!(!slab.remove(index + 1) && !slab.remove(4) && !slab.remove(u32::MAX));
    assert!(slab.remove(index));
    assert!(!slab.remove(index));
    assert_eq!(slab.len(), 0);
    assert!(slab.get(u32::MAX).is_none() && !slab.is_live(u32::MAX));
}

#[test]
#[should_panic(expected = "index out of bounds")]
fn indexing_beyond_the_capacity_panics() {
    let _ = slab(4)[4];
}

#[test]
fn slots_never_used_stay_untouched() {
    // 64 MiB of slots; a few of them used.
    let capacity = 1 << 16;
    let len = Slab::<[u8; 1024]>::bytes_needed(capacity);
    let region = Region::create("toehold-untouched-slab", len).unwrap();
    let mut slab = Carver::new(region).unwrap().slab::<[u8; 1024]>(capacity).unwrap();
    for _ in 0..8 {
        slab.insert([1; 1024]).unwrap();
    }
    let resident = super::resident_kib("toehold-untouched-slab");
    assert!((8..=64).contains(&resident), "{resident} KiB");
}

/// A killed process may leave any state of the list of free slots and of the head.
#[test]
fn slab_is_repaired_after_incomplete_change() {
    let mut slab = slab(6);
    for value in 0..5 {
        assert_eq!(slab.insert([value; 3]), Some(value));
    }
    slab.remove(1);
    slab.remove(3);
    slab.disturb();
    slab.mend(|index, value| {
        assert_eq!(value[0], index);
        index != 4
    });
    let live: Vec<u32> = slab.iter_live().map(|(index, _)| index).collect();
    assert_eq!((live, slab.len()), (vec![0, 2], 2));
    let mut again: Vec<u32> = std::iter::from_fn(|| slab.insert([9; 3])).collect();
    again.sort_unstable();
    assert_eq!(again, [1, 3, 4, 5]);
}
