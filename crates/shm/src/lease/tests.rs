use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use proptest::prelude::*;

use super::{Lease, LeaseGuard, Leased, Revoked};
use crate::futex::now_ns;
use crate::{Carver, Region};

fn lease() -> Lease {
    let region = Region::private(Lease::BYTES_NEEDED).unwrap();
    Carver::new(region).unwrap().lease().unwrap()
}

/// A value that two threads must not change at once, with a handle for each of the processes 2 and
/// 3.
fn leased(lease: &Lease) -> [Arc<Leased<u64>>; 2] {
    [2, 3].map(|process| Arc::new(Leased::new(lease.with_holder(process), 0)))
}

#[test]
fn one_thread_at_a_time_has_lease() {
    let engine = lease();
    let program = engine.with_holder(2);
    assert_eq!(program.holder(), None);
    program.acquire().unwrap();
    assert_eq!(engine.holder(), Some(2));
    assert!(!engine.try_acquire() && !program.try_acquire());
    engine.release();
    assert_eq!(program.holder(), Some(2), "what is not held is not released");
    program.release();
    assert!(engine.try_acquire());
    assert!(!engine.seize(2) && !engine.seize(0) && !engine.seize(Lease::ENGINE));
    assert_eq!((engine.holder(), engine.epoch()), (Some(1), 0));
}

#[test]
fn spinner_does_not_starve_others() {
    let lease = lease();
    let [spinning, waiting] = leased(&lease);
    let stop = Arc::new(AtomicBool::new(false));
    let spinner = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let mut guard = spinning.lock().unwrap();
            while !stop.load(Relaxed) {
                if LeaseGuard::is_wanted(&guard) {
                    LeaseGuard::give_way(&mut guard).unwrap();
                }
                *guard += 1;
            }
        }
    });
    // The spinner has the lease, and holds it while no other thread wants it.
    while lease.holder().is_none() {
        std::thread::yield_now();
    }
    let others: Vec<_> = (0..3)
        .map(|_| {
            let waiting = waiting.clone();
            std::thread::spawn(move || (0..1000).for_each(|_| *waiting.lock().unwrap() += 1))
        })
        .collect();
    others.into_iter().for_each(|other| other.join().unwrap());
    stop.store(true, Relaxed);
    spinner.join().unwrap();
    assert!(!lease.is_wanted());
    assert_eq!(*waiting.lock().unwrap(), 3000);
}

#[test]
fn giver_does_not_overtake_sleeper() {
    let lease = lease();
    let [giver, sleeper] = leased(&lease);
    for round in 1..=50 {
        let mut guard = giver.lock().unwrap();
        let other = std::thread::spawn({
            let sleeper = sleeper.clone();
            move || *sleeper.lock().unwrap() += 1
        });
        while !lease.is_asleep_for() {
            std::thread::yield_now();
        }
        // It may not sleep yet: then it tries again, and still wants the lease.
        while !other.is_finished() {
            LeaseGuard::give_way(&mut guard).unwrap();
        }
        other.join().unwrap();
        drop(guard);
        assert_eq!(*sleeper.lock().unwrap(), round);
    }
}

#[test]
fn closed_lease_refuses_all_calls() {
    let engine = lease();
    let [here, there] = leased(&engine);
    let mut guard = here.lock().unwrap();
    let asleep = std::thread::spawn({
        let there = there.clone();
        move || there.lock().map(|_| ()).unwrap_err()
    });
    while !engine.is_asleep_for() {
        std::thread::yield_now();
    }
    engine.close();
    assert_eq!(asleep.join().unwrap(), Revoked);
    assert_eq!(LeaseGuard::give_way(&mut guard), Err(Revoked));
    assert!(!LeaseGuard::is_held(&guard));
    drop(guard);
    assert_eq!(engine.holder(), None);
    assert!(engine.is_closed() && here.try_lock().is_none() && there.lock().is_err());
}

#[test]
fn unlocked_skips_work_on_closed_lease() {
    let engine = lease();
    let [program, _] = leased(&engine);
    let mut guard = program.lock().unwrap();
    engine.close();
    let worked = LeaseGuard::unlocked(&mut guard, || unreachable!("it would rest for ever"));
    assert_eq!(worked, Err::<(), _>(Revoked));
    assert_eq!(engine.holder(), None);
}

#[test]
fn process_taken_for_dead_gets_error() {
    let engine = lease();
    let [program, _] = leased(&engine);
    let mut guard = program.lock().unwrap();
    assert!(engine.seize(2));
    let worked = LeaseGuard::unlocked(&mut guard, || unreachable!("the lease is another's"));
    assert_eq!(worked, Err::<(), _>(Revoked));
    drop(guard);
    assert_eq!((engine.holder(), engine.epoch()), (Some(1), 1));
}

#[test]
#[should_panic(expected = "revoked")]
fn revoked_guard_panics() {
    let engine = lease();
    let [program, _] = leased(&engine);
    let mut guard = program.lock().unwrap();
    engine.close();
    assert!(LeaseGuard::give_way(&mut guard).is_err());
    *guard += 1;
}

#[test]
fn broken_word_admits_no_second_guard() {
    let engine = lease();
    let [program, _] = leased(&engine);
    let guard = program.lock().unwrap();
    engine.state().store(0, Relaxed);
    assert!(program.try_lock().is_none());
    drop(guard);
    assert!(program.lock().is_ok());
}

#[test]
fn others_get_lease_while_unlocked() {
    let engine = lease();
    let [here, there] = leased(&engine);
    let mut guard = here.lock().unwrap();
    let seen = LeaseGuard::unlocked(&mut guard, || {
        *there.lock().unwrap() = 7;
        engine.holder()
    });
    assert_eq!(seen, Ok(None));
    assert_eq!(engine.holder(), Some(2));
}

/// After a process has died, the engine's steps must suffice for any word, whether the process or
/// another program wrote it.
fn after_a_death_all_goes_on(word: u32) {
    let engine = lease();
    engine.state().store(word, Relaxed);
    for process in [2, 3] {
        let _ = engine.with_holder(process).try_acquire();
    }
    while let Some(holder) = engine.holder().filter(|&holder| holder != Lease::ENGINE) {
        assert!(engine.seize(holder), "{word:#x} from {holder}");
    }
    let _ = engine.seize(4);
    if engine.holder() == Some(Lease::ENGINE) {
        engine.release();
    }
    let program = engine.with_holder(2);
    if engine.is_closed() {
        assert_eq!(program.acquire(), Err(Revoked));
        return;
    }
    assert!(program.try_acquire(), "{word:#x}");
    program.give_way().unwrap();
    program.release();
    assert!(engine.try_acquire() && !engine.is_wanted());
    engine.release();
    assert_eq!(engine.state().load(Relaxed), 0, "nothing is left over");
}

proptest! {
    #[test]
    fn leftovers_in_word_disappear(flags in 0_u32..16, holder in 0_u32..6, noise: u32) {
        after_a_death_all_goes_on(flags << 28 | holder);
        after_a_death_all_goes_on(noise);
    }
}

mod processes;

#[test]
fn waiter_calls_vigil() {
    let engine = lease();
    engine.acquire().unwrap();
    let word = engine.clone();
    // A process whose vigil finds the engine dead closes the lease.
    let program = engine.with_holder(2).with_vigil(Arc::new(move || word.close()));
    assert_eq!(program.acquire(), Err(Revoked));
}

#[test]
fn limited_wait_times_out() {
    let engine = lease();
    let program = engine.with_holder(2);
    engine.acquire().unwrap();
    assert_eq!(program.acquire_until(now_ns() + 1), Ok(false));
    engine.release();
    assert_eq!(program.acquire_until(0), Ok(true));
    assert_eq!(engine.holder(), Some(2));
}

#[test]
fn panic_with_guard_closes_lease() {
    let lease = lease();
    let [breaking, waiting] = leased(&lease);
    let panicked = std::thread::spawn(move || {
        let mut guard = breaking.lock().unwrap();
        *guard += 1;
        panic!("in the middle of a change");
    });
    assert!(panicked.join().is_err());
    assert!(waiting.lock().is_err() && lease.is_closed());
}

#[test]
fn panic_without_guard_keeps_lease_open() {
    struct Last(Arc<Leased<u64>>);
    impl Drop for Last {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    let lease = lease();
    let [using, other] = leased(&lease);
    let panicked = std::thread::spawn(move || {
        let _last = Last(using);
        panic!("with nothing half done");
    });
    assert!(panicked.join().is_err());
    assert!(other.lock().is_ok());
}
