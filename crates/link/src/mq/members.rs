//! The nodes that are connected, as the process that connects them knows them.

use std::os::fd::{AsFd, OwnedFd};

use super::change::PeerDescriptors;
use super::control;
use super::direct::Direct;
use super::message::Introduction;
use super::name::{MemberName, NodeName};
use super::quotas::Caller;
use crate::steering::Steering;

/// A node that exchanges frames with this one.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: MemberName,
    pub(super) mac: [u8; 6],
    pub(super) incarnation: u64,
    pub(super) steering: Steering,
    /// The process that made the connection, or listened for it.
    pub(super) caller: Caller,
    /// The control connection, whose hang-up tells of the node's death.
    pub(super) control: OwnedFd,
    /// The peer hung up; the port may still have frames of it.
    pub(super) gone: bool,
    /// For processes of this node that come later.
    pub(super) descriptors: PeerDescriptors,
    /// Direct connections with it, if both have them.
    pub(super) direct: Option<Direct>,
}

impl Member {
    pub(super) fn is_connected(&self) -> bool {
        !self.gone && control::is_connected(self.control.as_fd())
    }

    /// Whether it belongs to what a node was before it said this, or says otherwise of
    /// the shard it is.
    pub(super) fn is_former(&self, introduction: &Introduction) -> bool {
        self.name.node == introduction.name.node
            && (self.name == introduction.name || self.incarnation != introduction.incarnation)
    }

    /// Whether two shards that say they are of one node can be.
    pub(super) fn agrees(&self, introduction: &Introduction) -> bool {
        let Steering { count, key, .. } = introduction.steering;
        (self.mac, self.steering.count, self.steering.key) == (introduction.mac, count, key)
    }
}

/// A slot keeps its place for as long as its peer lives; the generation tells
/// its present occupant from earlier ones.
#[derive(Debug, Default)]
struct Slot {
    generation: u16,
    member: Option<Member>,
}

/// Up to as many peers as the settings allow, by slot.
#[derive(Debug)]
pub(super) struct Members {
    slots: Vec<Slot>,
}

impl Members {
    pub(super) fn new(max_peers: usize) -> Members {
        let slots = std::iter::repeat_with(Slot::default).take(max_peers).collect();
        Members { slots }
    }

    /// How many peers there can be.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    fn iter(&self) -> impl Iterator<Item = (u16, &Member)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, entry)| Some((slot as u16, entry.member.as_ref()?)))
    }

    /// Peers that have not hung up.
    pub(super) fn connected(&self) -> impl Iterator<Item = &Member> {
        let members = self.iter().map(|(_, member)| member);
        members.filter(|member| !member.gone)
    }

    /// The processes of all peers, those that have hung up included: they have their slots still.
    pub(super) fn callers(&self) -> impl Iterator<Item = Caller> {
        self.iter().map(|(_, member)| member.caller)
    }

    /// The users of peers that have direct connections with this node.
    pub(super) fn with_direct(&self) -> impl Iterator<Item = (u32, &Direct)> {
        let members = self.iter().map(|(_, member)| member);
        members.filter_map(|member| Some((member.caller.uid, member.direct.as_ref()?)))
    }

    pub(super) fn get(&self, slot: u16) -> Option<&Member> {
        self.slots.get(usize::from(slot))?.member.as_ref()
    }

    /// The occupant of the slot, if it is the one of this generation.
    pub(super) fn of_generation(&self, slot: u16, generation: u16) -> Option<&Member> {
        let slot = self.slots.get(usize::from(slot))?;
        slot.member.as_ref().filter(|_| slot.generation == generation)
    }

    /// Which occupant of the slot the present one is.
    pub(super) fn generation(&self, slot: u16) -> Option<u16> {
        self.slots.get(usize::from(slot)).map(|slot| slot.generation)
    }

    pub(super) fn get_mut(&mut self, slot: u16) -> Option<&mut Member> {
        self.slots.get_mut(usize::from(slot))?.member.as_mut()
    }

    pub(super) fn by_name(&self, name: &MemberName) -> Option<u16> {
        self.iter()
            .find(|(_, member)| member.name == *name)
            .map(|(slot, _)| slot)
    }

    /// Whether another node has the address.
    pub(super) fn is_taken(&self, mac: [u8; 6], name: &NodeName) -> bool {
        self.iter()
            .any(|(_, member)| member.mac == mac && member.name.node != *name)
    }

    /// Those that something is true of.
    pub(super) fn all(&self, is: impl Fn(&Member) -> bool) -> Vec<u16> {
        let found = self.iter().filter(|(_, member)| is(member));
        found.map(|(slot, _)| slot).collect()
    }

    /// A free slot, and the generation of its next occupant; never 0.
    pub(super) fn vacancy(&self) -> Option<(u16, u16)> {
        let index = self.slots.iter().position(|slot| slot.member.is_none())?;
        let generation = self.slots[index].generation.checked_add(1).unwrap_or(1);
        Some((index as u16, generation))
    }

    /// Puts a peer into the slot that [`Members::vacancy`] gave.
    pub(super) fn insert(&mut self, (slot, generation): (u16, u16), member: Member) {
        if let Some(entry) = self.slots.get_mut(usize::from(slot)) {
            entry.generation = generation;
            entry.member = Some(member);
        }
    }

    /// The peer and its generation; the slot is free again.
    pub(super) fn remove(&mut self, slot: u16) -> Option<(u16, Member)> {
        let entry = self.slots.get_mut(usize::from(slot))?;
        Some((entry.generation, entry.member.take()?))
    }
}
