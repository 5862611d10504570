//! Locks of an end.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

use super::{check, me};
use crate::direct::lock::{lock, take_from_dead, try_lock, unlock_and_fence};
use crate::futex::model::ModelFutex;
use crate::futex::{AtomicU64, Futex};

#[test]
fn lock_lets_one_of_two_pass_and_wakes_the_other() {
    check(|| {
        let word = Arc::new((ModelFutex::new(), AtomicU64::new(0)));
        let other = thread::spawn({
            let word = Arc::clone(&word);
            move || enter(&word, 2)
        });
        enter(&word, 1);
        other.join().unwrap();
        assert_eq!(word.1.load(Relaxed), 2);
    });
}

fn enter(word: &(ModelFutex, AtomicU64), thread: u16) {
    lock(&word.0, me(thread)).unwrap();
    let value = word.1.load(Relaxed);
    word.1.store(value + 1, Relaxed);
    unlock_and_fence(&word.0);
}

#[test]
fn lock_taken_from_a_dead_thread_is_had_by_one_and_its_sleepers_wake() {
    check(|| {
        let word = Arc::new((ModelFutex::new(), AtomicU64::new(0)));
        assert!(try_lock(word.0.word(), me(7)));
        let other = thread::spawn({
            let word = Arc::clone(&word);
            move || enter(&word, 2)
        });
        assert!(take_from_dead(&word.0, me(7), me(1)));
        let value = word.1.load(Relaxed);
        word.1.store(value + 1, Relaxed);
        unlock_and_fence(&word.0);
        other.join().unwrap();
        assert_eq!(word.1.load(Relaxed), 2);
    });
}
