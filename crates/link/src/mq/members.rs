//! Peers by slot and by hardware address.

use super::name::NodeName;
use super::peer::Peer;

/// A slot keeps its place for as long as its peer lives; the generation tells
/// its present occupant from earlier ones.
#[derive(Debug, Default)]
struct Slot {
    generation: u16,
    peer: Option<Box<Peer>>,
}

/// Up to 128 peers. Look-ups by address compare a few packed words in a row:
/// for so few that is as fast as a hash, and nobody can choose bad addresses.
#[derive(Debug)]
pub(super) struct Table {
    slots: Vec<Slot>,
    /// Slots in use, in no order, and the addresses of their peers.
    live: Vec<u8>,
    addresses: Vec<u64>,
    /// The slot that the last look-up found.
    recent: (u64, u8),
}

/// A hardware address as a word; never zero for a valid one.
#[inline]
pub(super) fn pack(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

impl Table {
    pub(super) fn new(max_peers: usize) -> Table {
        let slots = std::iter::repeat_with(Slot::default).take(max_peers).collect();
        Table {
            slots,
            live: Vec::with_capacity(max_peers),
            addresses: Vec::with_capacity(max_peers),
            recent: (0, 0),
        }
    }

    /// Number of peers.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// The slot at `position` of those in use.
    #[inline]
    pub(super) fn live(&self, position: usize) -> Option<u8> {
        self.live.get(position).copied()
    }

    /// The slot whose peer has the address.
    #[inline]
    pub(super) fn route(&mut self, mac: [u8; 6]) -> Option<u8> {
        let address = pack(mac);
        if self.recent.0 == address {
            return Some(self.recent.1);
        }
        let slot = self.find(address)?;
        self.recent = (address, slot);
        Some(slot)
    }

    /// The same without keeping what was found.
    #[inline]
    pub(super) fn find(&self, address: u64) -> Option<u8> {
        let position = self.addresses.iter().position(|&known| known == address)?;
        self.live(position)
    }

    #[inline]
    pub(super) fn get(&self, slot: u8) -> Option<&Peer> {
        self.slots.get(usize::from(slot))?.peer.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u8) -> Option<&mut Peer> {
        self.slots.get_mut(usize::from(slot))?.peer.as_deref_mut()
    }

    /// Which occupant of the slot the present one is; never 0 for a peer.
    #[inline]
    pub(super) fn generation(&self, slot: u8) -> u16 {
        self.slots
            .get(usize::from(slot))
            .map_or(0, |slot| slot.generation)
    }

    pub(super) fn by_name(&self, name: &NodeName) -> Option<u8> {
        self.live
            .iter()
            .copied()
            .find(|&slot| self.get(slot).is_some_and(|peer| peer.name == *name))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.live.iter().filter_map(|&slot| self.get(slot))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.slots.iter_mut().filter_map(|slot| slot.peer.as_deref_mut())
    }

    /// Whether another peer can be inserted.
    pub(super) fn has_room(&self) -> bool {
        self.live.len() < self.slots.len()
    }

    /// Puts a peer into a free slot; gives it back if there is none.
    pub(super) fn insert(&mut self, peer: Peer) -> Result<(u8, u16), Box<Peer>> {
        let Some(index) = self.slots.iter().position(|slot| slot.peer.is_none()) else {
            return Err(Box::new(peer));
        };
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.checked_add(1).unwrap_or(1);
        self.live.push(index as u8);
        self.addresses.push(pack(peer.mac));
        slot.peer = Some(Box::new(peer));
        Ok((index as u8, slot.generation))
    }

    pub(super) fn remove(&mut self, slot: u8) -> Option<Box<Peer>> {
        let peer = self.slots.get_mut(usize::from(slot))?.peer.take()?;
        if let Some(position) = self.live.iter().position(|&live| live == slot) {
            self.live.swap_remove(position);
            self.addresses.swap_remove(position);
        }
        self.recent = (0, 0);
        Some(peer)
    }
}
