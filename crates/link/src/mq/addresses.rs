//! Which peer has a hardware address: plain data in the node's region.
//!
//! A table with open addressing, at most half full: to find one of 512 peers costs as much as to
//! find one of two. Peers choose their addresses, and can choose them so that all are found in one
//! place. A look-up then compares as many words as there are peers. Any contents are survived.

use toehold_shm::{Carver, OutOfMemory, Table};

/// The part of a packed address that is no number of a shard.
const MAC: u64 = (1 << 48) - 1;

/// A hardware address as a word; never zero for a valid one.
#[inline]
pub(super) fn pack(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// A shard's address as a word: the hardware address and the shard's number. The first shard has
/// the word of the bare address.
#[inline]
pub(super) fn pack_shard(mac: [u8; 6], shard: u8) -> u64 {
    pack(mac) | u64::from(shard) << 48
}

/// The slots of live peers by their addresses.
#[derive(Debug)]
pub(super) struct Addresses {
    /// Keys that [`pack_shard`] made; 0 where there is none.
    keys: Table<u64>,
    slots: Table<u16>,
}

impl Addresses {
    fn places(max_peers: usize) -> usize {
        (2 * max_peers).next_power_of_two()
    }

    pub(super) fn bytes_needed(max_peers: usize) -> usize {
        let places = Self::places(max_peers);
        Table::<u64>::bytes_needed(places) + Table::<u16>::bytes_needed(places)
    }

    pub(super) fn carve(carver: &mut Carver, max_peers: usize) -> Result<Addresses, OutOfMemory> {
        let places = Self::places(max_peers);
        Ok(Addresses {
            keys: carver.table(places)?,
            slots: carver.table(places)?,
        })
    }

    /// Where the shards of the node with the address may be: from there on.
    #[inline]
    fn place(&self, address: u64) -> usize {
        // The golden ratio's multiples are far from one another (Knuth, volume 3, §6.4).
        ((address & MAC).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize & (self.keys.len() - 1)
    }

    /// The places where the shards of the node with the address may be, up to the first empty one.
    #[inline]
    fn search(&self, address: u64) -> impl Iterator<Item = (u64, usize)> + '_ {
        let (first, mask) = (self.place(address), self.keys.len() - 1);
        let places = (0..=mask).map(move |step| (first + step) & mask);
        let found = places.map(|place| (self.keys.get(place).copied().unwrap_or_default(), place));
        found.take_while(|(key, _)| *key != 0)
    }

    /// The slot of the shard that [`pack_shard`] made this of.
    #[inline]
    pub(super) fn find(&self, address: u64) -> Option<u16> {
        let (_, place) = self.search(address).find(|(key, _)| *key == address)?;
        self.slots.get(place).copied()
    }

    /// The slots of all shards that have the address.
    pub(super) fn of_node(&self, mac: [u8; 6]) -> impl Iterator<Item = u16> + '_ {
        let mac = pack(mac);
        let found = self.search(mac).filter(move |(key, _)| key & MAC == mac);
        found.filter_map(|(_, place)| self.slots.get(place).copied())
    }

    /// Whether a live peer has the address.
    pub(super) fn has(&self, mac: [u8; 6]) -> bool {
        self.of_node(mac).next().is_some()
    }

    pub(super) fn insert(&mut self, address: u64, slot: u16) {
        let taken = self.search(address).count();
        let place = (self.place(address) + taken) & (self.keys.len() - 1);
        if let (Some(key), Some(place)) = (self.keys.get_mut(place), self.slots.get_mut(place)) {
            (*key, *place) = (address, slot);
        }
    }

    /// Leaves nothing as it was.
    #[cfg(test)]
    pub(super) fn disturb(&mut self, random: &mut impl FnMut() -> u64) {
        self.keys.iter_mut().for_each(|key| *key = random());
        self.slots.iter_mut().for_each(|slot| *slot = random() as u16);
    }

    /// Forgets all addresses. The caller then inserts those of the present peers.
    pub(super) fn clear(&mut self) {
        self.keys.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use toehold_shm::Region;

    use super::*;
    use crate::mq::settings::MAX_PEERS;

    fn addresses(max_peers: usize) -> Addresses {
        let region = Region::private(Addresses::bytes_needed(max_peers)).unwrap();
        Addresses::carve(&mut Carver::new(region).unwrap(), max_peers).unwrap()
    }

    fn mac(number: u16) -> [u8; 6] {
        let [high, low] = number.to_be_bytes();
        [2, 0, 0, 0, high, low]
    }

    #[test]
    fn every_peer_is_found() {
        let mut addresses = addresses(MAX_PEERS);
        for slot in 0..MAX_PEERS as u16 {
            assert_eq!(addresses.find(pack(mac(slot))), None);
            addresses.insert(pack(mac(slot)), slot);
        }
        for slot in 0..MAX_PEERS as u16 {
            assert_eq!(addresses.find(pack(mac(slot))), Some(slot));
            assert!(addresses.has(mac(slot)));
            let steps = addresses
                .search(pack(mac(slot)))
                .position(|(key, _)| key == pack(mac(slot)));
            assert!(steps.is_some_and(|steps| steps < 16), "{slot}: {steps:?}");
        }
        assert!(!addresses.has(mac(MAX_PEERS as u16)));
        addresses.clear();
        assert!(!addresses.has(mac(0)));
    }

    #[test]
    fn shards_of_node_are_found_together() {
        let mut addresses = addresses(4);
        addresses.insert(pack(mac(7)), 0);
        for (slot, shard) in [(1, 2), (2, 1)] {
            addresses.insert(pack_shard(mac(9), shard), slot);
        }
        assert_eq!(addresses.find(pack_shard(mac(9), 1)), Some(2));
        assert_eq!(addresses.find(pack_shard(mac(9), 3)), None);
        assert_eq!(addresses.of_node(mac(9)).collect::<Vec<_>>(), [1, 2]);
        assert!(addresses.has(mac(9)) && addresses.find(pack(mac(9))).is_none());
    }

    #[test]
    fn corrupt_table_ends_every_search() {
        let mut addresses = addresses(4);
        addresses.keys.fill(u64::MAX);
        addresses.slots.fill(u16::MAX);
        assert_eq!(addresses.find(1), None);
        addresses.insert(1, 3);
        assert_eq!(addresses.find(1), Some(3));
    }
}
