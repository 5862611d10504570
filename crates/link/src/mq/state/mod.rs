//! The state of a port: plain data in the node's region. Each holder of the node's lease goes on
//! with it.
//!
//! Any contents are survived: indices are checked, numbers wrap, loops are bounded. A record alone
//! says which peer it is of and whether frames are exchanged with that peer. All else follows from
//! the records. It is rebuilt from them ([`State::mend`]) if a process was killed in the middle of
//! a change.

mod changes;
mod claims;
mod mend;
mod peer_record;

use core::sync::atomic::Ordering::Release;
use core::sync::atomic::compiler_fence;

use toehold_shm::{Carver, OutOfMemory, Table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use self::changes::{ChangeRecord, MAX_CHANGES};
use self::claims::ConflictRecord;
use self::peer_record::{DEPARTED, LIVE};
pub(super) use self::peer_record::{Offence, PeerRecord};
use super::activity::{Activity, FEW};
use super::addresses::{Addresses, pack, pack_shard};
use super::change::Joined;
use super::identity::Bindings;
use super::settings::{Gateway, MAX_PEERS, PortConfig};
use super::slots::Slots;
use super::statistics::{PeerInfo, PortStatistics};
use crate::NeighborChange;

/// The part of the state that exists once.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Head {
    pub(super) config: PortConfig,
    pub(super) statistics: PortStatistics,
    /// The address and the slot that the last look-up found.
    recent: [u64; 2],
    /// Peers that frames were put into the rings of since the last flush.
    pub(super) sent: Slots,
    /// Peers that were given room since the last flush, and do not fence for both.
    pub(super) released: Slots,
    /// Slots whose peers left or broke the rules, to be told to the membership.
    pub(super) departed: Slots,
    /// Live peers that lead to others.
    pub(super) gateways: Slots,
    /// All live peers.
    members: Slots,
    pub(super) activity: Activity,
    /// Number of times that a peer came or went.
    pub(super) epoch: u64,
    /// Position among the peers where the next round begins.
    pub(super) first: u32,
    /// Whether the sleep of this node was announced to its peers.
    pub(super) sleeping: u32,
    /// Whether a change was added outside of the calls after which drivers ask.
    pub(super) unannounced: u32,
    first_change: u32,
    changes: u32,
    live: u32,
    /// Rings of which none was lost, if no more came in one go.
    pub(super) rings_held: u32,
    unused: u32,
    /// The claim that was refused last.
    conflict: ConflictRecord,
    /// Slots of the peers that frames are exchanged with, in no order.
    slots: [u16; MAX_PEERS],
}

/// A process's handles to all of it.
#[derive(Debug)]
pub(super) struct State {
    head: Table<Head>,
    records: Table<PeerRecord>,
    /// Of the live peers.
    addresses: Addresses,
    /// Of the live peers and of the node itself.
    bindings: Bindings,
    changes: Table<ChangeRecord>,
}

/// Which peer has which addresses.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) addresses: &'a Addresses,
    pub(super) bindings: &'a Bindings,
}

impl State {
    pub(super) fn bytes_needed(max_peers: usize) -> usize {
        Table::<Head>::bytes_needed(1)
            + Table::<PeerRecord>::bytes_needed(max_peers)
            + Addresses::bytes_needed(max_peers)
            + Bindings::bytes_needed(max_peers)
            + Table::<ChangeRecord>::bytes_needed(MAX_CHANGES)
    }

    pub(super) fn carve(carver: &mut Carver, max_peers: usize) -> Result<State, OutOfMemory> {
        Ok(State {
            head: carver.table(1)?,
            records: carver.table(max_peers)?,
            addresses: Addresses::carve(carver, max_peers)?,
            bindings: Bindings::carve(carver, max_peers)?,
            changes: carver.table(MAX_CHANGES)?,
        })
    }

    #[inline]
    pub(super) fn head(&self) -> &Head {
        &self.head[0]
    }

    #[inline]
    pub(super) fn head_mut(&mut self) -> &mut Head {
        &mut self.head[0]
    }

    /// Number of live peers.
    #[inline]
    pub(super) fn len(&self) -> usize {
        (self.head().live as usize).min(self.records.len())
    }

    /// The slot at `position` of those of live peers.
    #[inline]
    pub(super) fn live(&self, position: usize) -> Option<u16> {
        let slots = self.head().slots.get(..self.len())?;
        slots.get(position).copied()
    }

    #[inline]
    pub(super) fn get(&self, slot: u16) -> Option<&PeerRecord> {
        self.records.get(usize::from(slot))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u16) -> Option<&mut PeerRecord> {
        self.records.get_mut(usize::from(slot))
    }

    /// Live peers and their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u16, &PeerRecord)> {
        let slots = self.head().slots.iter().take(self.len());
        slots.filter_map(|&slot| Some((slot, self.get(slot)?)))
    }

    pub(super) fn infos(&self) -> Vec<PeerInfo> {
        self.connected().filter_map(PeerRecord::info).collect()
    }

    /// Live peers that have not hung up.
    pub(super) fn connected(&self) -> impl Iterator<Item = &PeerRecord> {
        let records = self.iter().map(|(_, record)| record);
        records.filter(|record| !record.is_gone())
    }

    /// Nodes of which the first shard is there.
    pub(super) fn nodes(&self) -> usize {
        self.connected().filter(|record| record.shard == 0).count()
    }

    /// The slot whose peer has the address.
    #[inline]
    pub(super) fn route(&mut self, mac: [u8; 6]) -> Option<u16> {
        let address = pack(mac);
        let [recent, slot] = self.head().recent;
        if recent == address {
            return Some(slot as u16);
        }
        let slot = self.find(address)?;
        self.head_mut().recent = [address, slot.into()];
        Some(slot)
    }

    /// Finds the slot of an address without keeping the result.
    #[inline]
    pub(super) fn find(&self, address: u64) -> Option<u16> {
        self.addresses.find(address)
    }

    /// The hardware addresses of the live peers.
    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// A record to be changed, and which peer has which addresses.
    #[inline]
    pub(super) fn split(&mut self, slot: u16) -> (Option<&mut PeerRecord>, Known<'_>) {
        let known = Known {
            addresses: &self.addresses,
            bindings: &self.bindings,
        };
        (self.records.get_mut(usize::from(slot)), known)
    }

    /// Says what the node itself is and has, in a fresh region.
    pub(super) fn begin(&mut self, config: PortConfig) {
        self.head_mut().config = config;
        self.bind_own();
    }

    fn bind_own(&mut self) {
        let PortConfig { mac, bound, .. } = self.head().config;
        for address in bound.all(mac) {
            self.bindings.insert(address, mac);
        }
    }

    /// The slots of all peers that have the address: the shards of one node.
    pub(super) fn shards_of(&self, mac: [u8; 6]) -> Slots {
        let mut slots = Slots::default();
        self.addresses.of_node(mac).for_each(|slot| slots.insert(slot));
        slots
    }

    /// Live peers that have to be told when this node sleeps: they do not ring anyhow.
    pub(super) fn awake(&self) -> Slots {
        let head = self.head();
        match head.activity.resting() {
            resting if resting.is_empty() => head.members,
            resting => head.members.without(resting),
        }
    }

    /// A peer has rung, or has to be looked at for another reason.
    pub(super) fn rouse(&mut self, slot: u16) {
        if self.get(slot).is_some_and(PeerRecord::is_live) {
            self.head_mut().activity.rouse(slot);
        }
    }

    /// The node wakes up. Peers that were silent need not be told, unless something else
    /// is awaited of them than frames.
    pub(super) fn end_sleep(&mut self) {
        let State { head, records, .. } = self;
        head[0].activity.end_sleep(|slot| {
            let record = records.get(usize::from(slot)).filter(|record| record.is_live());
            record.is_some_and(|record| record.wanted == 0 && !record.is_gone())
        });
    }

    /// Puts a peer into its slot.
    pub(super) fn insert(&mut self, joined: &Joined) {
        self.remove(joined.slot, 0);
        let position = self.len();
        let Some(record) = self.records.get_mut(usize::from(joined.slot)) else {
            return;
        };
        *record = PeerRecord::new(joined);
        let address = pack_shard(joined.mac, joined.steering.index);
        self.addresses.insert(address, joined.slot);
        let head = self.head_mut();
        head.departed.remove(joined.slot);
        head.members.insert(joined.slot);
        head.activity.note(joined.slot);
        if joined.gateway != Gateway::None {
            head.gateways.insert(joined.slot);
        }
        if let Some(slot) = head.slots.get_mut(position) {
            *slot = joined.slot;
            head.live = position as u32 + 1;
        }
        head.epoch = head.epoch.wrapping_add(1);
        self.add_change(NeighborChange::Joined(joined.mac));
        // The new peer may have an address that no member had before.
        for position in 0..self.len() {
            if let Some(record) = self.live(position).and_then(|slot| self.get_mut(slot)) {
                record.vouched = [0; 4];
            }
        }
        self.bind(joined.slot, true);
    }

    /// No more frames are exchanged with the slot's peer, if it has one. `mark`: a flag that
    /// its record has then.
    fn remove(&mut self, slot: u16, mark: u32) {
        let Some(record) = self.get_mut(slot).filter(|record| record.is_live()) else {
            return;
        };
        record.flags = record.flags & !LIVE | mark;
        let (mac, bound) = (record.mac, record.bound);
        let last = self.len().saturating_sub(1);
        if let Some(position) = (0..self.len()).find(|&position| self.live(position) == Some(slot)) {
            let head = self.head_mut();
            head.slots.swap(position, last);
            head.live = last as u32;
        }
        self.find_anew();
        let head = self.head_mut();
        head.members.remove(slot);
        head.activity.forget(slot);
        if last <= FEW {
            head.activity.rouse_all();
        }
        head.recent = [0; 2];
        head.sent.remove(slot);
        head.released.remove(slot);
        head.gateways.remove(slot);
        head.epoch = head.epoch.wrapping_add(1);
        // A node is there until the last of its shards has gone: their frames still count.
        if self.shards_of(mac).is_empty() {
            self.add_change(NeighborChange::Left(mac));
            for address in bound.given() {
                self.add_change(NeighborChange::Unbound { mac, address });
            }
        }
    }

    /// Rebuilds the tables of addresses from the live peers.
    fn find_anew(&mut self) {
        self.addresses.clear();
        self.bindings.clear();
        self.bind_own();
        for position in 0..self.len() {
            let slot = self.live(position);
            if let Some((slot, record)) = slot.and_then(|slot| Some((slot, self.get(slot)?))) {
                let address = pack_shard(record.mac, record.shard);
                self.addresses.insert(address, slot);
                self.bind(slot, false);
            }
        }
    }

    /// Removes a peer that is gone or has broken a rule, and notes that the membership is to be
    /// told. After a broken rule its whole node cannot be trusted, with all shards.
    pub(super) fn dismiss(&mut self, slot: u16, offence: Option<Offence>) {
        let sharded = self.get(slot).filter(|record| record.is_sharded());
        if let Some(mac) = sharded.filter(|_| offence.is_some()).map(|record| record.mac) {
            let shards = self.shards_of(mac);
            shards.iter().for_each(|slot| self.dismiss_one(slot, offence));
        }
        self.dismiss_one(slot, offence);
    }

    fn dismiss_one(&mut self, slot: u16, offence: Option<Offence>) {
        let Some(record) = self.get_mut(slot).filter(|record| record.is_live()) else {
            return;
        };
        record.offence = offence.map_or(0, Offence::code);
        // The next write decides it.
        compiler_fence(Release);
        self.remove(slot, DEPARTED);
        self.head_mut().departed.insert(slot);
    }

    /// A slot whose peer the membership has to be told of; once.
    pub(super) fn next_departed(&mut self) -> Option<u16> {
        let slot = self.head_mut().departed.pop()?;
        if let Some(record) = self.get_mut(slot) {
            record.flags &= !DEPARTED;
        }
        Some(slot)
    }
}
