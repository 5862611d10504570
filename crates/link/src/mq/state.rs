//! What a port remembers: plain data in the node's region, which whoever holds the
//! node's lease goes on with.
//!
//! Any contents are survived: indices are checked, numbers wrap, loops are bounded. A record
//! says by itself who its peer is and whether frames are exchanged with it; all else follows
//! from the records, and is made anew of them ([`State::mend`]) if somebody was killed while
//! it changed something.

mod mend;

use core::sync::atomic::Ordering::Release;
use core::sync::atomic::compiler_fence;
use std::net::IpAddr;

use toehold_shm::ring::{ConsumerState, Corrupt, ProducerState};
use toehold_shm::{ArenaId, Carver, OutOfMemory, Table};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::activity::{Activity, FEW};
use super::addresses::{Addresses, pack, pack_shard};
use super::change::Joined;
use super::identity::{Bindings, Bound, Claim};
use super::name::{MAX_NAME, NodeName};
use super::peer::count;
use super::record::BadRecord;
use super::settings::{Gateway, MAX_PEERS, PortConfig};
use super::slots::Slots;
use super::statistics::{Conflict, Loss, PeerInfo, PeerState, PeerStatistics, PortStatistics};
use crate::NeighborChange;
use crate::steering::Steering;

/// Changes kept for a driver that does not ask; then the oldest are forgotten.
const MAX_CHANGES: usize = 8 * MAX_PEERS;

/// What there is once.
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

/// A [`Conflict`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct ConflictRecord {
    count: u64,
    address: [u8; 16],
    owner: [u8; 6],
    is_ipv4: u8,
    name_len: u8,
    name: [u8; MAX_NAME],
    unused: u8,
}

/// A [`NeighborChange`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct ChangeRecord {
    /// Of a change of an address; one of IPv4 as IPv6 has it.
    address: [u8; 16],
    mac: [u8; 6],
    kind: u16,
}

impl ChangeRecord {
    fn new(change: NeighborChange) -> ChangeRecord {
        let (kind, mac, address) = match change {
            NeighborChange::Joined(mac) => (0, mac, None),
            NeighborChange::Left(mac) => (1, mac, None),
            NeighborChange::Bound { mac, address } => (2, mac, Some(address)),
            NeighborChange::Unbound { mac, address } => (3, mac, Some(address)),
        };
        ChangeRecord {
            address: address.map_or([0; 16], in_ipv6),
            mac,
            kind,
        }
    }

    fn change(&self) -> NeighborChange {
        let mac = self.mac;
        let address = IpAddr::from(self.address).to_canonical();
        match self.kind {
            0 => NeighborChange::Joined(mac),
            2 => NeighborChange::Bound { mac, address },
            3 => NeighborChange::Unbound { mac, address },
            _ => NeighborChange::Left(mac),
        }
    }
}

fn in_ipv6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// A slot for a peer.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
pub(super) struct PeerRecord {
    pub(super) outgoing: ProducerState,
    pub(super) incoming: ConsumerState,
    pub(super) statistics: PeerStatistics,
    /// Bytes of the record that last found no room, or 0.
    pub(super) wanted: u64,
    /// Bytes of frames that the peer was not shown yet.
    pub(super) unpublished: u64,
    /// Which occupant of the slot it is, or was last; 0 for none.
    pub(super) generation: u32,
    /// [`LIVE`] and others.
    flags: u32,
    /// What the peer did, if it is condemned: [`Offence::code`].
    offence: u64,
    pub(super) incarnation: u64,
    pub(super) payload_offset: u64,
    pub(super) payload_len: u64,
    /// Bytes of the ring that the peer sends through.
    pub(super) ring_capacity: u64,
    /// If the peer is gone: the position up to which its frames are taken.
    last: u64,
    mac: [u8; 6],
    /// Which shard of its node it is.
    shard: u8,
    name_len: u8,
    name: [u8; MAX_NAME],
    /// How many shards its node has.
    shards: u8,
    steering_key: [u8; 16],
    /// The IP addresses that the fabric gave it.
    bound: Bound,
    /// An IPv4 address of no member, from which a packet of the peer was taken.
    pub(super) vouched: [u8; 4],
    /// Where payload lies that the peer reads in place.
    pub(super) arena: ArenaId,
    unused: [u8; 60],
}

const _: () = {
    assert!(size_of::<PeerRecord>() == 448);
    assert!(MAX_NAME == 63);
};

/// Frames are exchanged with the peer.
const LIVE: u32 = 1;
const SAME_USER: u32 = 2;
/// The peer was given an arena of this node's payload memory.
const SHARES_PAYLOAD: u32 = 4;
/// The peer gave its payload memory.
const GIVES_PAYLOAD: u32 = 8;
/// The peer hung up: what it had sent before is still to be taken.
const GONE: u32 = 16;
/// The peer's node has several shards.
const SHARDED: u32 = 32;
/// The peer is the port of a bridge.
const BRIDGE_PORT: u32 = 64;
/// The peer leads to others.
const GATEWAY: u32 = 128;
/// No more frames are exchanged with the peer, and the membership was not told yet.
const DEPARTED: u32 = 256;

/// What a peer broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offence {
    Ring(Corrupt),
    Record(BadRecord),
    /// The memory that it had handed over.
    Memory,
}

impl Offence {
    const RECORD: u64 = 1 << 8;
    const MEMORY: u64 = 1 << 9;

    fn code(self) -> u64 {
        match self {
            Offence::Ring(corrupt) => corrupt.code(),
            Offence::Record(bad) => Self::RECORD | bad.code(),
            Offence::Memory => Self::MEMORY,
        }
    }

    fn loss(code: u64, name: NodeName) -> Option<Loss> {
        if code == Self::MEMORY {
            Some(Loss::Memory(name))
        } else if code & Self::RECORD != 0 {
            Some(Loss::Record(name, BadRecord::from_code(code & !Self::RECORD)))
        } else {
            Corrupt::from_code(code).map(|corrupt| Loss::Ring(name, corrupt))
        }
    }
}

impl PeerRecord {
    fn new(joined: &Joined) -> PeerRecord {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let bytes = joined.name.as_str().as_bytes();
        let mut name = [0; MAX_NAME];
        name[..bytes.len()].copy_from_slice(bytes);
        let (payload_offset, payload_len) = joined.payload.unwrap_or_default();
        PeerRecord {
            outgoing: ProducerState::default(),
            incoming: ConsumerState::default(),
            statistics: PeerStatistics::default(),
            wanted: 0,
            unpublished: 0,
            generation: joined.generation.into(),
            flags: LIVE
                | flag(joined.same_user, SAME_USER)
                | flag(joined.shares_payload, SHARES_PAYLOAD)
                | flag(joined.payload.is_some(), GIVES_PAYLOAD)
                | flag(joined.steering.count > 1, SHARDED)
                | flag(joined.gateway != Gateway::None, GATEWAY)
                | flag(joined.gateway == Gateway::BridgePort, BRIDGE_PORT),
            offence: 0,
            incarnation: joined.incarnation,
            payload_offset,
            payload_len,
            ring_capacity: joined.ring_capacity,
            last: 0,
            mac: joined.mac,
            shard: joined.steering.index,
            name_len: bytes.len() as u8,
            name,
            shards: joined.steering.count,
            steering_key: joined.steering.key,
            bound: joined.bound,
            vouched: [0; 4],
            arena: ArenaId::PRIVATE,
            unused: [0; 60],
        }
    }

    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.flags & LIVE != 0
    }

    /// Whether the membership is still to be told that the peer is done with.
    fn is_departed(&self) -> bool {
        self.flags & DEPARTED != 0
    }

    /// Whether the peer leads to others.
    fn is_gateway(&self) -> bool {
        self.flags & GATEWAY != 0
    }

    #[inline]
    pub(super) fn shares_payload(&self) -> bool {
        self.flags & SHARES_PAYLOAD != 0
    }

    pub(super) fn gives_payload(&self) -> bool {
        self.flags & GIVES_PAYLOAD != 0
    }

    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.flags & GONE != 0
    }

    /// Whether frames for the peer's node have to be steered.
    #[inline]
    pub(super) fn is_sharded(&self) -> bool {
        self.flags & SHARDED != 0
    }

    /// Whether the peer leads to what a bridge connects.
    pub(super) fn is_bridge_port(&self) -> bool {
        self.flags & BRIDGE_PORT != 0
    }

    /// The peer's hardware address.
    #[inline]
    pub(super) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The IP addresses that the fabric gave the peer.
    #[inline]
    pub(super) fn bound(&self) -> Bound {
        self.bound
    }

    /// How connections are spread over the shards of the peer's node.
    pub(super) fn steering(&self) -> Steering {
        Steering {
            index: self.shard,
            count: self.shards.max(1),
            key: self.steering_key,
        }
    }

    /// Notes that the peer hung up. What it sent before, the ends of its streams, must
    /// not be lost because it did not wait for it to be taken; but no more than its
    /// ring holds, should somebody go on writing there.
    pub(super) fn hang_up(&mut self) {
        if !self.is_gone() {
            self.flags |= GONE;
            self.last = self.incoming.position().wrapping_add(self.ring_capacity);
        }
    }

    /// Whether a peer that is gone has no more frames to be taken.
    pub(super) fn is_at_last(&self) -> bool {
        self.last.wrapping_sub(self.incoming.position()) as i64 <= 0
    }

    /// `None` if it was scribbled on.
    fn name(&self) -> Option<NodeName> {
        NodeName::from_bytes(self.name.get(..usize::from(self.name_len))?).ok()
    }

    fn info(&self) -> Option<PeerInfo> {
        Some(PeerInfo {
            name: self.name()?,
            shard: self.shard,
            state: PeerState::Connected {
                mac: self.mac,
                incarnation: self.incarnation,
                same_user: self.flags & SAME_USER != 0,
                statistics: self.statistics,
            },
        })
    }

    /// What it did, if it is condemned.
    pub(super) fn loss(&self) -> Option<Loss> {
        Offence::loss(self.offence, self.name()?)
    }
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

/// Who has which addresses.
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

    /// The same without keeping what was found.
    #[inline]
    pub(super) fn find(&self, address: u64) -> Option<u16> {
        self.addresses.find(address)
    }

    /// Who has which address.
    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// A record to be changed, and who has which addresses.
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

    /// Gives a live peer its addresses, but those that another member has.
    fn bind(&mut self, slot: u16, tells: bool) {
        let Some(&PeerRecord { mac, bound, .. }) = self.get(slot) else {
            return;
        };
        for address in bound.all(mac) {
            match self.bindings.insert(address, mac) {
                Some(owner) => {
                    if let Some(record) = self.get_mut(slot) {
                        record.bound.forget(address);
                    }
                    self.refuse_claim(slot, 1, Claim::Ip(address, owner));
                }
                None if tells && bound.given().any(|given| given == address) => {
                    self.add_change(NeighborChange::Bound { mac, address })
                }
                None => {}
            }
        }
    }

    /// Counts frames of a peer that were not taken, and keeps what the last one claimed.
    #[cold]
    pub(super) fn refuse_claim(&mut self, slot: u16, frames: usize, claim: Claim) {
        let Some(record) = self.records.get_mut(usize::from(slot)) else {
            return;
        };
        let (len, name) = (record.name_len, record.name);
        let head = &mut self.head[0];
        let Claim::Ip(address, owner) = claim else {
            return count(&mut record.statistics.forged, frames);
        };
        count(&mut head.statistics.claims_refused, frames);
        head.conflict = ConflictRecord {
            count: head.statistics.claims_refused,
            address: in_ipv6(address),
            owner,
            is_ipv4: address.is_ipv4().into(),
            name_len: len,
            name,
            unused: 0,
        };
    }

    /// The claim that was refused last, if any was.
    pub(super) fn conflict(&self) -> Option<Conflict> {
        let ConflictRecord {
            count,
            address,
            owner,
            is_ipv4,
            name_len,
            name,
            ..
        } = self.head().conflict;
        let address = IpAddr::from(address);
        let mut peers = self.iter().map(|(_, record)| record);
        (count != 0).then_some(Conflict {
            name: NodeName::from_bytes(name.get(..usize::from(name_len))?).ok()?,
            address: match is_ipv4 {
                0 => address,
                _ => address.to_canonical(),
            },
            owner: (
                owner,
                peers
                    .find(|record| record.mac == owner)
                    .and_then(PeerRecord::name),
            ),
            count,
        })
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
        // What was nobody's may be this one's now.
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

    /// Makes the table of addresses again, of those who are there.
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

    /// The same, to be told to the membership: the peer is gone, or has broken a rule.
    /// In that case it is its node that cannot be trusted, with all shards.
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

    fn add_change(&mut self, change: NeighborChange) {
        let head = &mut self.head[0];
        let (first, count) = (head.first_change as usize, head.changes as usize);
        let at = first.wrapping_add(count) % MAX_CHANGES;
        if count >= MAX_CHANGES {
            head.first_change = ((first + 1) % MAX_CHANGES) as u32;
            head.changes = MAX_CHANGES as u32;
        } else {
            head.changes += 1;
        }
        head.unannounced = 1;
        if let Some(place) = self.changes.get_mut(at) {
            *place = ChangeRecord::new(change);
        }
    }

    pub(super) fn next_change(&mut self) -> Option<NeighborChange> {
        let head = &mut self.head[0];
        let count = (head.changes as usize).min(MAX_CHANGES);
        head.changes = count.checked_sub(1)? as u32;
        let at = head.first_change as usize % MAX_CHANGES;
        head.first_change = ((at + 1) % MAX_CHANGES) as u32;
        self.changes.get(at).map(ChangeRecord::change)
    }
}
