//! Finds records by IP address: hash chains in shared memory.
//!
//! The hash is keyed, so that no attacker can choose addresses that meet in one chain.

use crate::tuple::Address;
use core::hash::Hasher;
use siphasher::sip::SipHasher13;
use toehold_shm::{Carver, NONE, OutOfMemory, Steps, Table};

/// Maps addresses to record numbers. The caller owns the records with their addresses, and tells
/// the address of a record.
pub(super) struct AddressIndex {
    heads: Table<u32>,
    /// For each record: the next one of its chain.
    next: Table<u32>,
    key: [u8; 16],
}

fn buckets_for(records: u32) -> usize {
    (records as usize).next_power_of_two()
}

impl AddressIndex {
    pub(super) fn bytes_needed(records: u32) -> usize {
        Table::<u32>::bytes_needed(buckets_for(records)) + Table::<u32>::bytes_needed(records as usize)
    }

    pub(super) fn create(carver: &mut Carver, records: u32, key: [u8; 16]) -> Result<Self, OutOfMemory> {
        let mut heads = carver.table::<u32>(buckets_for(records))?;
        let next = carver.table(records as usize)?;
        if carver.is_fresh() {
            heads.fill(NONE);
        }
        Ok(Self { heads, next, key })
    }

    /// Removes all records. It may be called after a process died in the middle of a change.
    pub(super) fn forget(&mut self) {
        self.heads.fill(NONE);
    }

    fn bucket(&self, address: &Address) -> usize {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(&address.0);
        // The number of buckets is a power of two, so the mask keeps this in range.
        (hasher.finish() as usize) & (self.heads.len() - 1)
    }

    /// The record of `address`; `address_of` returns the address of a record.
    pub(super) fn find(&self, address: &Address, address_of: impl Fn(u32) -> Address) -> Option<u32> {
        let mut at = self.heads[self.bucket(address)];
        let mut steps = Steps::along(self.next.len() as u32);
        while at != NONE {
            steps.count();
            if address_of(at) == *address {
                return Some(at);
            }
            at = self.next[at as usize];
        }
        None
    }

    /// Inserts a record whose address is not in the index yet.
    pub(super) fn insert(&mut self, address: &Address, record: u32) {
        let bucket = self.bucket(address);
        self.next[record as usize] = self.heads[bucket];
        self.heads[bucket] = record;
    }

    pub(super) fn remove(&mut self, address: &Address, record: u32) {
        let bucket = self.bucket(address);
        let after = self.next[record as usize];
        if self.heads[bucket] == record {
            self.heads[bucket] = after;
            return;
        }
        let mut at = self.heads[bucket];
        let mut steps = Steps::along(self.next.len() as u32);
        while at != NONE {
            steps.count();
            if self.next[at as usize] == record {
                self.next[at as usize] = after;
                return;
            }
            at = self.next[at as usize];
        }
    }
}
