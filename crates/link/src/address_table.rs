//! Behind which peer a hardware address was seen last.

use std::collections::HashMap;

/// Most addresses known at once. Peers' own are known beside them.
const MAX_ADDRESSES: usize = 4096;
/// How long an address is known that nobody sends from, in nanoseconds.
const AGE_NS: u64 = 300_000_000_000;
/// How often an address that sends on and on is noted.
const FRESH_NS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy)]
struct Entry {
    peer: usize,
    seen_ns: u64,
}

#[derive(Debug, Default)]
pub(crate) struct AddressTable {
    entries: HashMap<[u8; 6], Entry>,
    /// What was noted last: frames come in runs.
    last: Option<([u8; 6], Entry)>,
}

impl AddressTable {
    /// Notes where an address sends from. False if there is no room for it.
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

    /// The peer behind which the address is.
    pub(crate) fn find(&self, address: [u8; 6]) -> Option<usize> {
        self.entries.get(&address).map(|entry| entry.peer)
    }

    /// Forgets addresses that were not seen for long.
    pub(crate) fn age(&mut self, now_ns: u64) {
        self.last = None;
        self.entries
            .retain(|_, entry| now_ns.saturating_sub(entry.seen_ns) < AGE_NS);
    }

    /// Forgets what is behind a peer.
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
    fn an_address_moves_and_ages() {
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
    fn the_table_has_a_bound_and_room_again() {
        let mut table = AddressTable::default();
        for number in 0..MAX_ADDRESSES {
            assert!(table.learn(address(number), 0, 0));
        }
        assert!(!table.learn(address(MAX_ADDRESSES), 0, 1));
        assert!(table.learn(address(5), 1, 1), "it is known");
        assert!(
            table.learn(address(MAX_ADDRESSES), 0, AGE_NS),
            "others are too old"
        );
        assert_eq!(table.entries.len(), 2);
    }
}
