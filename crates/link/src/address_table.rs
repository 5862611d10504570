//! The peer behind which each hardware address was seen last.

use std::collections::HashMap;

/// Most learnt addresses. The peers' own are known besides.
const MAX_ADDRESSES: usize = 4096;
/// Time for which a silent address is known, in nanoseconds.
const AGE_NS: u64 = 300_000_000_000;
/// Interval at which a busy address is noted again, in nanoseconds.
const FRESH_NS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy)]
struct Entry {
    peer: usize,
    seen_ns: u64,
}

#[derive(Debug, Default)]
pub(crate) struct AddressTable {
    entries: HashMap<[u8; 6], Entry>,
    /// The last noted entry: frames come in runs.
    last: Option<([u8; 6], Entry)>,
}

impl AddressTable {
    /// Notes the peer behind an address. Returns `false` if the table is full.
    pub(crate) fn learn(&mut self, address: [u8; 6], peer: usize, now_ns: u64) -> bool {
        if let Some((last, entry)) = self.last
            && (last, entry.peer) == (address, peer)
            && now_ns.saturating_sub(entry.seen_ns) < FRESH_NS
        {
            return true;
        }
        if self.entries.len() >= MAX_ADDRESSES && !self.entries.contains_key(&address) {
            self.age(now_ns);
            if self.entries.len() >= MAX_ADDRESSES {
                return false;
            }
        }
        let entry = Entry {
            peer,
            seen_ns: now_ns,
        };
        self.entries.insert(address, entry);
        self.last = Some((address, entry));
        true
    }

    /// Returns the peer behind an address.
    pub(crate) fn find(&self, address: [u8; 6]) -> Option<usize> {
        self.entries.get(&address).map(|entry| entry.peer)
    }

    /// Forgets addresses that were not seen for long.
    pub(crate) fn age(&mut self, now_ns: u64) {
        self.last = None;
        self.entries
            .retain(|_, entry| now_ns.saturating_sub(entry.seen_ns) < AGE_NS);
    }

    /// Forgets all addresses behind a peer.
    pub(crate) fn forget(&mut self, peer: usize) {
        self.last = None;
        self.entries.retain(|_, entry| entry.peer != peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> [u8; 6] {
        let [a, b, c, d] = (number as u32).to_be_bytes();
        [2, 0, a, b, c, d]
    }

    #[test]
    fn address_moves_and_ages() {
        let mut table = AddressTable::default();
        assert!(table.learn(address(1), 0, 0));
        assert!(table.learn(address(1), 3, 1));
        assert_eq!(table.find(address(1)), Some(3));
        table.learn(address(2), 4, AGE_NS / 2);
        table.age(AGE_NS + 1);
        assert_eq!((table.find(address(1)), table.find(address(2))), (None, Some(4)));
        table.forget(4);
        assert_eq!(table.find(address(2)), None);
    }

    #[test]
    fn full_table_has_room_after_ageing() {
        let mut table = AddressTable::default();
        for number in 0..MAX_ADDRESSES {
            assert!(table.learn(address(number), 0, 0));
        }
        assert!(!table.learn(address(MAX_ADDRESSES), 0, 1));
        assert!(table.learn(address(5), 1, 1), "the address is known");
        assert!(
            table.learn(address(MAX_ADDRESSES), 0, AGE_NS),
            "the other addresses have expired"
        );
        assert_eq!(table.entries.len(), 2);
    }
}
