//! Path MTUs that are smaller than the link's, by destination.
//!
//! The table is bounded; the oldest entry goes first. It accepts any report: TCP has compared the
//! quoted sequence number with its outstanding data before.

use super::index::AddressIndex;
use super::list::Lists;
use super::state::State;
use crate::time::Instant;
use crate::tuple::Address;
use toehold_shm::{Carver, OutOfMemory, Slab};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Destinations with a path MTU of their own.
const CAPACITY: u32 = 256;

/// Time for which a path MTU is believed.
//= RFC 1191 §6.3
//= RFC 8201 §4
const LIFETIME: u64 = 600_000_000_000;

/// The least packet that every IPv6 path must take.
//= RFC 8200 §5
pub(super) const LEAST_IPV6: u16 = 1280;

/// The smallest packet that this stack sends on an IPv4 path without letting routers fragment. A
/// forged ICMP message cannot go below.
//= RFC 1191 §3
pub(super) const LEAST_IPV4: u16 = 552;

/// The least packet that every IPv4 path takes; a smaller report is forged.
//= RFC 791 §3.2
pub(super) const LEAST_POSSIBLE_IPV4: u16 = 68;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Record {
    address: Address,
    expires: Instant,
    mtu: u16,
    /// Whether the path takes less than `mtu`, so that routers may fragment.
    may_fragment: u8,
    reserved: [u8; 5],
}

/// The table: handles to its state.
pub(super) struct PathMtus {
    records: Slab<Record>,
    index: AddressIndex,
    /// Entries in the order of expiry.
    order: Lists,
}

impl PathMtus {
    pub(super) fn bytes_needed() -> usize {
        Slab::<Record>::bytes_needed(CAPACITY)
            + AddressIndex::bytes_needed(CAPACITY)
            + Lists::bytes_needed(CAPACITY, 1)
    }

    pub(super) fn create(carver: &mut Carver, key: [u8; 16]) -> Result<Self, OutOfMemory> {
        Ok(Self {
            records: carver.slab(CAPACITY)?,
            index: AddressIndex::create(carver, CAPACITY, key)?,
            order: Lists::create(carver, CAPACITY, 1)?,
        })
    }

    /// Discards all paths. It may be called after a process died in the middle of a change.
    pub(super) fn forget(&mut self) {
        self.records.mend(|_, _| false);
        self.index.forget();
        self.order.forget();
    }

    fn find(&self, address: &Address) -> Option<u32> {
        self.index.find(address, |record| self.records[record].address)
    }

    /// The known limits of the path to `address`: the largest packet in bytes, and whether routers
    /// may fragment.
    pub(super) fn get(&self, address: &Address) -> Option<(u16, bool)> {
        if self.records.is_empty() {
            return None;
        }
        let record = &self.records[self.find(address)?];
        Some((record.mtu, record.may_fragment != 0))
    }

    /// Lowers the MTU of the path to `address` to `mtu` bytes. `present` is the present size of
    /// packets. Returns whether anything changed.
    pub(super) fn lower(
        &mut self,
        now: Instant,
        address: &Address,
        mtu: u16,
        present: u16,
        state: &mut State,
    ) -> bool {
        let least = if address.is_ipv4() {
            LEAST_IPV4.min(present)
        } else {
            LEAST_IPV6
        };
        let too_small = if address.is_ipv4() {
            mtu < LEAST_POSSIBLE_IPV4
        } else {
            mtu < LEAST_IPV6
        };
        //= RFC 1191 §3
        //= RFC 8201 §4
        // Neither an increase nor an impossible value is believed.
        if too_small || mtu >= present {
            return false;
        }
        if let Some(known) = self.find(address) {
            self.remove(known);
        } else if self.records.len() >= CAPACITY {
            let oldest = self.order.front(0);
            self.remove(oldest);
        }
        let record = Record {
            address: *address,
            expires: now.plus_nanos(LIFETIME),
            mtu: mtu.max(least),
            may_fragment: u8::from(mtu < least),
            reserved: [0; 5],
        };
        state.wake_at(record.expires);
        state.paths_changed();
        let Some(number) = self.records.insert(record) else {
            return false;
        };
        self.index.insert(address, number);
        self.order.push_back(0, number);
        true
    }

    fn remove(&mut self, number: u32) {
        let address = self.records[number].address;
        self.order.remove(0, number);
        self.index.remove(&address, number);
        self.records.remove(number);
    }

    /// Discards expired entries, so that larger packets are tried again. Returns the time of the
    /// next expiry.
    pub(super) fn expire(&mut self, now: Instant, state: &mut State) -> Instant {
        loop {
            let oldest = self.order.front(0);
            if oldest == toehold_shm::NONE {
                return Instant::NEVER;
            }
            let expires = self.records[oldest].expires;
            if expires > now {
                return expires;
            }
            self.remove(oldest);
            state.paths_changed();
        }
    }
}
