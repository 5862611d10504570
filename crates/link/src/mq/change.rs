//! Changes of a node's peers, from the process that connects nodes to those that exchange frames.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::identity::Bound;
use super::name::NodeName;
use super::settings::Gateway;
use super::statistics::Loss;
use crate::steering::Steering;

/// A peer came or went. To be applied to the node's port in the order in which
/// they were told.
#[derive(Debug)]
pub enum Change {
    /// Frames can be exchanged with a peer from now on.
    Joined(Box<Joined>),
    /// A peer is gone. What it had sent before is still taken, unless it is `at_once`.
    Left {
        /// The slot it has.
        slot: u16,
        /// Which occupant of the slot it is.
        generation: u16,
        /// Nothing of it counts any more.
        at_once: bool,
    },
}

/// A peer to exchange frames with.
#[derive(Debug)]
pub struct Joined {
    /// The slot it has from now on.
    pub slot: u16,
    /// Which occupant of the slot it is: never 0.
    pub generation: u16,
    /// The peer's name.
    pub name: NodeName,
    /// The peer's hardware address.
    pub mac: [u8; 6],
    /// Which of its node's shards it is, and how to find the one of a connection.
    pub steering: Steering,
    /// Which life of the node this is.
    pub incarnation: u64,
    /// The addresses that the fabric gave it.
    pub bound: Bound,
    /// Whether it runs as the same user.
    pub same_user: bool,
    /// Whether it can read payload in the arena that this node has for it.
    pub shares_payload: bool,
    /// Where its payload memory lies in what was handed over: offset and length.
    pub payload: Option<(u64, u64)>,
    /// Bytes of the ring that it sends through.
    pub ring_capacity: u64,
    /// Whether it leads to others that are no members.
    pub gateway: Gateway,
    /// The descriptors by which a process maps the peer's memory.
    pub descriptors: PeerDescriptors,
}

/// Descriptors that a process of the node needs to exchange frames with a peer.
#[derive(Debug)]
pub struct PeerDescriptors {
    /// The section that this node writes.
    pub own_section: OwnedFd,
    /// The section that the peer writes.
    pub peer_section: OwnedFd,
    /// The descriptor that rings the peer's bell.
    pub doorbell: OwnedFd,
    /// The arena of what this node sends to the peer, if it may read it in place.
    pub own_payload: Option<OwnedFd>,
    /// The peer's payload memory, if it gave any.
    pub payload: Option<OwnedFd>,
}

impl PeerDescriptors {
    /// Duplicates all descriptors.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left.
    pub fn try_clone(&self) -> Result<PeerDescriptors, Errno> {
        let clone = |descriptor| rustix::io::fcntl_dupfd_cloexec(descriptor, 0);
        Ok(PeerDescriptors {
            own_section: clone(&self.own_section)?,
            peer_section: clone(&self.peer_section)?,
            doorbell: clone(&self.doorbell)?,
            own_payload: self.own_payload.as_ref().map(clone).transpose()?,
            payload: self.payload.as_ref().map(clone).transpose()?,
        })
    }

    /// In the order of the fields, to be sent to another process of the node.
    pub fn into_list(self) -> Vec<OwnedFd> {
        let mut list = vec![self.own_section, self.peer_section, self.doorbell];
        list.extend(self.own_payload);
        list.extend(self.payload);
        list
    }

    /// Of what [`PeerDescriptors::into_list`] gave. `None` unless there are three to five. Which
    /// of the last two is there, if one is, the port knows.
    pub fn from_list(list: Vec<OwnedFd>) -> Option<PeerDescriptors> {
        let mut list = list.into_iter();
        let descriptors = PeerDescriptors {
            own_section: list.next()?,
            peer_section: list.next()?,
            doorbell: list.next()?,
            own_payload: list.next(),
            payload: list.next(),
        };
        list.next().is_none().then_some(descriptors)
    }

    /// Returns the descriptors if they are what is expected: this node's payload memory for the
    /// peer, and the peer's for this node. What came alone is what is expected alone.
    pub(super) fn expected(mut self, shares: bool, gives: bool) -> Option<PeerDescriptors> {
        if gives && !shares && self.payload.is_none() {
            std::mem::swap(&mut self.own_payload, &mut self.payload);
        }
        let is_it = (self.own_payload.is_some(), self.payload.is_some()) == (shares, gives);
        is_it.then_some(self)
    }
}

/// A peer that no frames are exchanged with any more: it hung up and all it had sent
/// is taken, or it broke the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departed {
    /// The slot it had.
    pub slot: u16,
    /// Which occupant of the slot it was.
    pub generation: u16,
    /// The peer's offence, if it broke the rules.
    pub offence: Option<Loss>,
}
