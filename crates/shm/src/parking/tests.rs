use std::time::Duration;

use super::{Parking, Rest};
use crate::futex::now_ns;
use crate::{Access, Carver, Region};

fn parking(slots: u32) -> Parking {
    let region = Region::private(Parking::bytes_needed(slots)).unwrap();
    Carver::new(region).unwrap().parking(slots).unwrap()
}

/// Two mappings of the same slots, as in two processes.
fn both() -> [Parking; 2] {
    let region = Region::create("toehold-test", Parking::bytes_needed(4)).unwrap();
    let fd = region.fd().unwrap().try_clone_to_owned().unwrap();
    let other = Region::open(fd, Access::ReadWrite).unwrap();
    // SAFETY: slots consist of atomic words, which every process may use at any time.
    let mut there = unsafe { Carver::attach(other) };
    let mut here = Carver::new(region).unwrap();
    [&mut here, &mut there].map(|carver| carver.parking(4).unwrap())
}

#[test]
fn notification_before_or_after_rest_wakes() {
    let [here, there] = both();
    for early in [true, false].into_iter().cycle().take(200) {
        here.begin(3, Rest::Parked);
        let other = std::thread::spawn({
            let there = there.clone();
            move || {
                let marked = there.mark(3);
                there.wake(3);
                marked
            }
        });
        let notified = if early {
            let notified = other.join();
            here.park(3, None);
            notified
        } else {
            here.park(3, None);
            other.join()
        };
        assert_eq!(notified.unwrap(), Some(Rest::Parked));
        assert!(here.end(3));
    }
}

#[test]
fn rest_ends_at_deadline() {
    let parking = parking(1);
    parking.begin(0, Rest::Parked);
    let until = now_ns() + Duration::from_millis(20).as_nanos() as u64;
    parking.park(0, Some(until));
    assert!(now_ns() >= until);
    assert!(!parking.end(0));
}

#[test]
fn awake_thread_is_not_notified() {
    let parking = parking(2);
    assert_eq!(parking.mark(1), None);
    assert!(!parking.end(1));
    parking.begin(1, Rest::Seated);
    assert!(parking.is_resting(1) && !parking.is_resting(0));
    assert_eq!(parking.mark(1), Some(Rest::Seated));
    assert_eq!(parking.mark(1), None, "it was told already");
    assert!(!parking.is_resting(1));
    assert!(parking.end(1));
    assert_eq!(parking.rouse(1), None);
}

#[test]
fn thread_marked_by_dead_process_is_roused() {
    let [here, there] = both();
    for rest in [Rest::Parked, Rest::Seated] {
        here.begin(0, rest);
        // The process dies before it wakes the thread, or rings for it.
        assert_eq!(there.mark(0), Some(rest));
        assert_eq!(there.mark(0), None);
        assert_eq!(there.rouse(0), Some(rest));
        assert!(here.end(0));
    }
}

#[test]
fn nonsense_in_slot_is_harmless() {
    let parking = parking(1);
    for word in [4, 8, 12, 0x8000_0001, u32::MAX] {
        parking.begin(0, Rest::Parked);
        parking
            .word(0)
            .unwrap()
            .store(word, core::sync::atomic::Ordering::Relaxed);
        parking.park(0, None);
        assert!(!parking.is_resting(0));
        assert_eq!((parking.mark(0), parking.rouse(0)), (None, None));
        parking.end(0);
        parking.begin(0, Rest::Seated);
        assert_eq!(parking.mark(0), Some(Rest::Seated));
    }
    parking.begin(1, Rest::Parked);
    parking.park(u32::MAX, None);
    assert_eq!(
        (parking.mark(1), parking.is_resting(1), parking.end(1)),
        (None, false, false)
    );
}
