//! A place for a value that threads use while others replace it.
//!
//! A user of the value counts itself in the word with the value's address. Neither use nor
//! replacement therefore costs more with more threads. A thread that replaces the value finds in
//! the same word how many still use the former one. Those users count themselves down in the former
//! value's node, and the last one frees it. No thread waits for another.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::Arc;

use crate::futex::AtomicU64;

/// Bits of the word for an address: a program's memory lies below 2⁴⁸. Without users, the word is
/// the plain address, which leak checkers find.
const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = ONE - 1;

/// One use. All bits from this one on count uses.
const ONE: u64 = 1 << ADDRESS_BITS;

/// A value in a place.
struct Node<T> {
    value: Arc<T>,
    /// After the replacement: the number of remaining users. Before it: minus the number of users
    /// that have ended since the exchange, until the replacing thread adds their number.
    users: AtomicU64,
}

/// A place for a shared value, or none.
///
/// ```
/// use std::sync::Arc;
/// use toehold_shm::Slot;
///
/// static SLOT: Slot<String> = Slot::new();
/// assert!(SLOT.get().is_none());
/// SLOT.replace(Some(Arc::new("first".to_owned())));
/// let used = SLOT.get().unwrap();
/// let former = SLOT.replace(None).unwrap();
/// assert_eq!(*used, *former);
/// ```
pub struct Slot<T> {
    word: AtomicU64,
    _value: PhantomData<Arc<T>>,
}

/// The value of a [`Slot`] while it is used. The value stays, whether the slot keeps it or not.
pub struct Used<'a, T> {
    slot: &'a Slot<T>,
    node: NonNull<Node<T>>,
}

fn node_of<T>(word: u64) -> Option<NonNull<Node<T>>> {
    NonNull::new(ptr::with_exposed_provenance_mut((word & ADDRESS) as usize))
}

fn word_of<T>(node: NonNull<Node<T>>) -> u64 {
    let address = node.as_ptr().expose_provenance() as u64;
    assert!(address <= ADDRESS, "an address of more than 48 bits");
    address
}

/// Adds `more`, possibly negative, to the users of a replaced node. Frees the node if none is left.
///
/// # Safety
///
/// The caller is one of the counted users, or has replaced the node and not added its users yet.
unsafe fn count<T>(node: NonNull<Node<T>>, more: i64) {
    // SAFETY: the caller is a counted user or the replacing thread, so the node lives.
    let before = unsafe { node.as_ref() }.users.fetch_add(more as u64, AcqRel);
    if before.wrapping_add(more as u64) == 0 {
        // SAFETY: `Box` has made the node, it is in no slot, and no user is left.
        drop(unsafe { Box::from_raw(node.as_ptr()) });
    }
}

impl<T> Slot<T> {
    /// An empty slot.
    #[cfg(not(loom))]
    pub const fn new() -> Slot<T> {
        Slot {
            word: AtomicU64::new(0),
            _value: PhantomData,
        }
    }

    /// An empty slot, for the model.
    #[cfg(loom)]
    pub fn new() -> Slot<T> {
        Slot {
            word: AtomicU64::new(0),
            _value: PhantomData,
        }
    }

    /// Uses the present value.
    #[inline]
    pub fn get(&self) -> Option<Used<'_, T>> {
        let mut word = self.word.load(Relaxed);
        loop {
            let node = node_of(word)?;
            if word >= !ADDRESS {
                // The count of users is full; soon there will be fewer.
                core::hint::spin_loop();
                word = self.word.load(Relaxed);
                continue;
            }
            match self
                .word
                .compare_exchange_weak(word, word + ONE, Acquire, Relaxed)
            {
                Ok(_) => return Some(Used { slot: self, node }),
                Err(other) => word = other,
            }
        }
    }

    /// Stores another value, or none, and returns the former one.
    pub fn replace(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
        let word = value.map_or(0, |value| {
            let users = AtomicU64::new(0);
            let node = Box::into_raw(Box::new(Node { value, users }));
            // `Box` returns no null pointer.
            NonNull::new(node).map_or(0, word_of)
        });
        let former = self.word.swap(word, AcqRel);
        let node = node_of::<T>(former)?;
        // SAFETY: `node` lives until the users of its word are counted, which happens below.
        let value = Arc::clone(unsafe { &node.as_ref().value });
        // SAFETY: this thread has replaced `node`, and has not counted the users of its word yet.
        unsafe { count(node, (former >> ADDRESS_BITS) as i64) };
        Some(value)
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Slot<T> {
        Slot::new()
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        self.replace(None);
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

impl<T> Used<'_, T> {
    /// The value with a reference count of its own, for longer use.
    pub fn share(&self) -> Arc<T> {
        // SAFETY: `self.node` stays alive as long as this use of it.
        Arc::clone(unsafe { &self.node.as_ref().value })
    }
}

impl<T> Deref for Used<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this use keeps the node alive as long as `self`.
        unsafe { &self.node.as_ref().value }
    }
}

impl<T> Drop for Used<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let mut word = self.slot.word.load(Relaxed);
        // No other node has this address before this one is freed.
        while node_of(word) == Some(self.node) {
            let fewer = word - ONE;
            match self
                .slot
                .word
                .compare_exchange_weak(word, fewer, Release, Relaxed)
            {
                Ok(_) => return,
                Err(other) => word = other,
            }
        }
        // SAFETY: the node was replaced while this use was counted, so it lives until the count
        // drops here.
        unsafe { count(self.node, -1) };
    }
}

impl<T: fmt::Debug> fmt::Debug for Used<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn value_lives_while_used() {
        let slot = Slot::new();
        assert!(slot.get().is_none());
        let first = Arc::new(1);
        assert!(slot.replace(Some(Arc::clone(&first))).is_none());
        let (one, two) = (slot.get().unwrap(), slot.get().unwrap());
        drop(slot.get());
        assert_eq!(slot.replace(Some(Arc::new(2))).as_deref(), Some(&1));
        assert_eq!((*one, *two, *slot.get().unwrap()), (1, 1, 2));
        drop(one);
        assert_eq!(Arc::strong_count(&first), 2);
        drop(two);
        assert_eq!(Arc::strong_count(&first), 1);
        let used = slot.get().unwrap();
        assert_eq!(slot.replace(None).as_deref(), Some(&2));
        let shared = used.share();
        drop(used);
        assert_eq!(Arc::strong_count(&shared), 1);
        slot.replace(Some(Arc::clone(&first)));
        drop(slot);
        assert_eq!(Arc::strong_count(&first), 1);
    }

    /// Runs under the real scheduler.
    #[test]
    fn threads_use_and_replace_values() {
        const ROUNDS: usize = if cfg!(miri) { 50 } else { 20_000 };
        static SLOT: Slot<[usize; 4]> = Slot::new();
        let values: Vec<_> = (0..3).map(|value| Arc::new([value; 4])).collect();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        if let Some(used) = SLOT.get() {
                            let again = SLOT.get();
                            assert!(used.iter().all(|&part| part == used[0]));
                            drop(if thread == 0 { Some(used) } else { again });
                        }
                    }
                });
                let values = &values;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let value = values.get(round % 4).cloned();
                        SLOT.replace(value);
                    }
                });
            }
        });
        SLOT.replace(None);
        for value in values {
            assert_eq!(Arc::strong_count(&value), 1);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    use super::*;

    /// Records its drop.
    struct Canary(Arc<AtomicBool>);

    impl Drop for Canary {
        fn drop(&mut self) {
            assert!(!self.0.swap(true, Relaxed), "dropped twice");
        }
    }

    fn canary() -> (Arc<AtomicBool>, Arc<Canary>) {
        let dropped = Arc::new(AtomicBool::new(false));
        (Arc::clone(&dropped), Arc::new(Canary(dropped)))
    }

    fn looks(slot: &Slot<Canary>) {
        if let Some(used) = slot.get() {
            assert!(!used.0.load(Relaxed), "used after its end");
        }
    }

    #[test]
    fn values_are_dropped_once_and_after_use() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let (first, one) = canary();
            let (second, two) = canary();
            slot.replace(Some(one));
            let users: Vec<_> = (0..2)
                .map(|_| {
                    let slot = Arc::clone(&slot);
                    thread::spawn(move || looks(&slot))
                })
                .collect();
            drop(slot.replace(Some(two)));
            for user in users {
                user.join().unwrap();
            }
            assert!(first.load(Relaxed) && !second.load(Relaxed));
            drop(slot.replace(None));
            assert!(second.load(Relaxed));
        });
    }

    #[test]
    fn two_threads_may_replace_at_once() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let (first, one) = canary();
            let (second, two) = canary();
            slot.replace(Some(one));
            let user = thread::spawn({
                let slot = Arc::clone(&slot);
                move || looks(&slot)
            });
            let other = thread::spawn({
                let slot = Arc::clone(&slot);
                move || drop(slot.replace(None))
            });
            drop(slot.replace(Some(two)));
            user.join().unwrap();
            other.join().unwrap();
            drop(slot);
            assert!(first.load(Relaxed) && second.load(Relaxed));
        });
    }
}
