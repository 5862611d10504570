//! A table of the library.

use core::ffi::c_void;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;
use zerocopy::{Immutable, IntoBytes};

use crate::library::{Opaque, Parameters, Rte};

/// Most keys of one look-up (`RTE_HASH_LOOKUP_BULK_MAX`).
pub const BURST: usize = 64;

/// A table has no memory or no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("DPDK's table has no room")]
pub struct Full;

/// A table from keys to numbers, for one thread. Keys are compared byte by
/// byte.
pub struct Table<K> {
    rte: &'static Rte,
    raw: NonNull<Opaque>,
    keys: PhantomData<K>,
}

// SAFETY: the table is memory of the process and has no tie to the thread that
// created it.
unsafe impl<K> Send for Table<K> {}

impl<K> fmt::Debug for Table<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

impl<K> Drop for Table<K> {
    fn drop(&mut self) {
        // SAFETY: `raw` comes from `create` of this library, and `self` is its
        // only owner, which ends here.
        unsafe { (self.rte.free)(self.raw.as_ptr()) }
    }
}

impl<K: IntoBytes + Immutable> Table<K> {
    /// Creates an empty table for `entries` keys. The library rounds up to a
    /// power of two.
    pub fn create(rte: &'static Rte, entries: u32) -> Result<Self, Full> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        // Each table needs a unique name.
        let name = format!("toehold {}", MADE.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).expect("no zero");
        let parameters = Parameters {
            name: name.as_ptr(),
            entries,
            reserved: 0,
            key_len: size_of::<K>() as u32,
            hash: ptr::null(),
            hash_begins_with: 0,
            socket_id: -1,
            flags: 0,
        };
        // SAFETY: the parameters and the name, which the library copies, live
        // until the call returns.
        let raw = unsafe { (rte.create)(&parameters) };
        Ok(Self {
            rte,
            raw: NonNull::new(raw).ok_or(Full)?,
            keys: PhantomData,
        })
    }

    /// Enters a key with a number, or replaces the number of a present key.
    pub fn insert(&mut self, key: &K, number: u32) -> Result<(), Full> {
        let number = ptr::without_provenance_mut(number as usize);
        // SAFETY: `raw` is valid while `self` lives, and has keys of this type's
        // length. The library copies the key, and does not dereference the number.
        match unsafe { (self.rte.add)(self.raw.as_ptr(), bytes(key), number) } {
            0 => Ok(()),
            _ => Err(Full),
        }
    }

    /// Removes a key. Returns `false` if it is not there.
    pub fn remove(&mut self, key: &K) -> bool {
        // SAFETY: `raw` is valid while `self` lives, and has keys of this
        // type's length.
        unsafe { (self.rte.remove)(self.raw.as_ptr(), bytes(key)) >= 0 }
    }

    /// Looks up at most [`BURST`] keys. Returns a bit for each key that is there.
    /// `numbers` then has their numbers; its other elements have no meaning.
    ///
    /// # Panics
    ///
    /// If there are more than [`BURST`] keys.
    #[inline]
    pub fn look_up(&self, keys: &[K], numbers: &mut [usize; BURST]) -> u64 {
        assert!(keys.len() <= BURST);
        let mut pointers = [ptr::null(); BURST];
        for (pointer, key) in pointers.iter_mut().zip(keys) {
            *pointer = bytes(key);
        }
        let mut there = 0;
        // SAFETY: `raw` is valid while `self` lives, and has keys of this type's
        // length. The array holds a pointer for each key. Numbers are as long as
        // pointers and may have any bits.
        let result = unsafe {
            let numbers = numbers.as_mut_ptr().cast::<*mut c_void>();
            let count = keys.len() as u32;
            (self.rte.look_up)(
                self.raw.as_ptr(),
                pointers.as_mut_ptr(),
                count,
                &mut there,
                numbers,
            )
        };
        if result < 0 { 0 } else { there }
    }
}

fn bytes<K: IntoBytes + Immutable>(key: &K) -> *const c_void {
    key.as_bytes().as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs librte_hash.so.23"]
    fn entered_key_is_found_until_removed() {
        let rte = Rte::load().unwrap();
        let mut table = Table::<[u8; 36]>::create(rte, 4000).unwrap();
        let key = |n: u32| {
            let mut key = [n as u8; 36];
            key[..4].copy_from_slice(&n.to_le_bytes());
            key
        };
        for n in 0..3000 {
            table.insert(&key(n), n + 7).unwrap();
        }
        assert!(table.remove(&key(2)) && !table.remove(&key(2)));
        assert!(!table.remove(&key(3000)));
        let keys: Vec<_> = (0..3100).map(key).collect();
        let mut numbers = [0; BURST];
        for (first, keys) in keys.chunks(BURST).enumerate() {
            let there = table.look_up(keys, &mut numbers);
            for (at, number) in numbers[..keys.len()].iter().enumerate() {
                let n = first * BURST + at;
                let expected = n < 3000 && n != 2;
                assert_eq!(there >> at & 1 == 1, expected, "{n}");
                assert!(!expected || *number == n + 7, "{n}: {number}");
            }
        }
        assert_eq!(table.look_up(&[], &mut numbers), 0);
    }

    #[test]
    #[ignore = "needs librte_hash.so.23"]
    fn insert_into_full_table_returns_full() {
        let rte = Rte::load().unwrap();
        let mut table = Table::<u64>::create(rte, 8).unwrap();
        let entered = (0..100).filter(|n| table.insert(n, 1).is_ok()).count();
        assert!((1..=8).contains(&entered), "{entered}");
        assert_eq!(Table::<u64>::create(rte, u32::MAX).unwrap_err(), Full);
    }
}
