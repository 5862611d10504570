//! Checks of two nodes before they exchange frames.
//!
//! The node that dials sends a hello with its section of shared memory. The other one answers with
//! a welcome and its own section. From then on both may send frames. Either side refuses with a
//! reason and closes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use toehold_shm::ring::{PeerSection, Section, SectionError};
use toehold_shm::{Access, Arenas, Region, RegionError, direct};

use super::bell;
use super::control;
use super::directory::Directory;
use super::message::{Introduction, Message, Refusal};
use super::name::MemberName;
use super::quotas::Caller;
use super::record::PayloadView;
use super::settings::{Gateway, JoinError, MAX_PAYLOAD, MeshSettings};
use crate::credentials;
use crate::steering::Steering;

/// How long the other side may take for its next message.
pub(super) const TIMEOUT_NS: u64 = 1_000_000_000;

/// Handshakes under way at once. Beyond, the oldest one that was not dialled here ends.
pub(super) const MAX_HANDSHAKES: usize = 64;

/// The facts that this node tells its peers about itself.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) name: MemberName,
    pub(super) mac: [u8; 6],
    pub(super) steering: Steering,
    pub(super) incarnation: u64,
    pub(super) uid: u32,
    pub(super) ring_capacity: usize,
    /// Where payload lies that peers read in place, if they may.
    pub(super) payload: Option<Arenas>,
    pub(super) gateway: Gateway,
    /// The directory of its listeners, if it has direct connections. Only the first of its
    /// shards has them.
    pub(super) direct: Option<direct::Directory>,
}

/// Memory that this node makes for one peer alone, which maps it for reading.
#[derive(Debug)]
pub(super) struct Own {
    /// The section in which lies what this node sends to the peer.
    pub(super) section: Section,
    /// Payload that frames to the peer refer to lies there.
    pub(super) payload: Option<Region>,
}

impl Identity {
    pub(super) fn new(settings: &MeshSettings) -> Result<Identity, JoinError> {
        let incarnation = settings.incarnation.map_or_else(random, Ok)?;
        Ok(Identity {
            name: settings.member(),
            mac: settings.mac,
            steering: settings.steering,
            incarnation,
            // This user namespace does not know all users. An unknown one is never the same as this
            // node's.
            uid: credentials::own_uid().unwrap_or(u32::MAX),
            ring_capacity: settings.ring_capacity,
            payload: settings.payload.clone(),
            gateway: settings.gateway,
            direct: settings.direct.clone().filter(|_| settings.steering.index == 0),
        })
    }

    /// Makes memory for another peer. Nodes of another user get no payload to read in place:
    /// all their bytes come in the ring.
    pub(super) fn make_own(&self, uid: u32) -> Result<Own, Refusal> {
        let made = Section::create("toehold-mq", self.ring_capacity as u64, self.incarnation);
        let arenas = self.payload.as_ref().filter(|_| uid == self.uid);
        Ok(Own {
            section: made.map_err(|_| Refusal::NoResources)?,
            // Without it, payload is copied.
            payload: arenas.and_then(|arenas| arenas.create_memory("toehold-payload").ok()),
        })
    }

    /// Sends a hello or a welcome with the memory this node writes, and
    /// what rings this node's bell.
    pub(super) fn introduce(
        &self,
        socket: BorrowedFd<'_>,
        kind: fn(Introduction) -> Message,
        own: &Own,
        doorbell: BorrowedFd<'_>,
    ) -> Result<(), Refusal> {
        let payload = own.payload.as_ref();
        let introduction = Introduction {
            incarnation: self.incarnation,
            name: self.name,
            mac: self.mac,
            steering: self.steering,
            payload: payload.map(|memory| (0, memory.len() as u64)),
            gateway: self.gateway,
            direct: self.direct.is_some(),
        };
        let section = own.section.read_only_fd().map_err(|_| Refusal::NoResources)?;
        let payload = payload.map(Region::read_only_fd).transpose();
        let payload = payload.map_err(|_| Refusal::NoResources)?;
        let mut descriptors = vec![section.as_fd(), doorbell];
        descriptors.extend(payload.as_ref().map(AsFd::as_fd));
        control::send(socket, &kind(introduction).emit(), &descriptors).map_err(|_| Refusal::NoResources)
    }
}

fn random() -> Result<u64, JoinError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(JoinError::Random)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Tells the other side why not, if it still listens.
pub(super) fn refuse(socket: BorrowedFd<'_>, reason: Refusal) {
    let _ = control::send(socket, &Message::Refusal(reason).emit(), &[]);
}

/// A connection that has not come to an agreement yet.
#[derive(Debug)]
pub(super) struct Handshake {
    pub(super) id: u32,
    pub(super) socket: OwnedFd,
    /// The process at the other end, says the kernel.
    pub(super) caller: Caller,
    pub(super) deadline_ns: u64,
    pub(super) role: Role,
}

/// Which side this node is, and which message it awaits.
#[derive(Debug)]
pub(super) enum Role {
    /// The other node dialled; its hello is awaited.
    Answering,
    /// This node dialled and said hello; the welcome is awaited.
    Dialling { name: MemberName, own: Own },
    /// The other node dialled and said hello; its former life has to end first.
    Waiting(Box<Offer>),
}

impl Handshake {
    /// Splits off the awaited message. Returns it, and the connection as it began.
    pub(super) fn split(mut self) -> (Role, Handshake) {
        let role = std::mem::replace(&mut self.role, Role::Answering);
        (role, self)
    }

    pub(super) fn dials(&self, whom: &MemberName) -> bool {
        matches!(&self.role, Role::Dialling { name, .. } if name == whom)
    }
}

/// Another node's offer, checked.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) introduction: Introduction,
    pub(super) ring_capacity: u64,
    pub(super) section: OwnedFd,
    pub(super) doorbell: OwnedFd,
    pub(super) payload: Option<OwnedFd>,
}

impl Offer {
    /// Checks everything that does not depend on the other peers.
    pub(super) fn check(
        identity: &Identity,
        directory: &Directory,
        introduction: Introduction,
        descriptors: Vec<OwnedFd>,
        uid: u32,
    ) -> Result<Offer, Refusal> {
        if introduction.name.node == identity.name.node {
            return Err(Refusal::Malformed);
        }
        if introduction.mac == identity.mac {
            return Err(Refusal::DuplicateAddress);
        }
        if introduction.gateway != Gateway::None && !directory.may_lead(uid) {
            return Err(Refusal::NotGateway);
        }
        // A user that could make the socket under that name may speak for it.
        if directory.owner(&introduction.name) != Some(uid) {
            return Err(Refusal::NotOwner);
        }
        let wanted = 2 + usize::from(introduction.payload.is_some());
        if descriptors.len() != wanted {
            return Err(Refusal::Malformed);
        }
        let mut descriptors = descriptors.into_iter();
        let section = open_section(descriptors.next(), introduction.incarnation)?;
        let doorbell = descriptors.next().ok_or(Refusal::Malformed)?;
        if !bell::is_sender(doorbell.as_fd()) {
            return Err(Refusal::BadDoorbell);
        }
        // Memory of another user is not worth its risks: its frames come inline.
        let offered = introduction.payload.filter(|_| uid == identity.uid);
        let payload = match offered {
            Some((offset, len)) => {
                if len > MAX_PAYLOAD {
                    return Err(Refusal::BadMemory);
                }
                let region = open_region(descriptors.next())?;
                let view = PayloadView::new(region, offset, len).ok_or(Refusal::BadMemory)?;
                view.into_fd()
            }
            None => None,
        };
        Ok(Offer {
            introduction: Introduction {
                payload: offered,
                ..introduction
            },
            ring_capacity: section.capacity(),
            section: section.into_fd(),
            doorbell,
            payload,
        })
    }
}

fn open_section(descriptor: Option<OwnedFd>, incarnation: u64) -> Result<PeerSection, Refusal> {
    let descriptor = descriptor.ok_or(Refusal::Malformed)?;
    match PeerSection::open(descriptor, MeshSettings::MAX_RING_CAPACITY as u64) {
        Ok(section) if section.incarnation() == incarnation => Ok(section),
        Err(SectionError::Version(_)) => Err(Refusal::Version),
        Err(SectionError::Region(error)) => Err(refusal_of(error)),
        _ => Err(Refusal::BadMemory),
    }
}

fn open_region(descriptor: Option<OwnedFd>) -> Result<Region, Refusal> {
    let descriptor = descriptor.ok_or(Refusal::Malformed)?;
    Region::open_within(descriptor, Access::ReadOnly, MAX_PAYLOAD).map_err(refusal_of)
}

fn refusal_of(error: RegionError) -> Refusal {
    if matches!(error, RegionError::Map { .. }) {
        Refusal::NoResources
    } else {
        Refusal::BadMemory
    }
}

/// The answer to a hello, which depends on the present state of the node that sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Welcome,
    /// The peer is the node's former life, or a connection it has given up.
    WelcomeInstead,
    Refuse(Refusal),
}

/// How things stand between this node and the one that sent a hello.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// This node's name, and the other one's.
    pub(super) names: [MemberName; 2],
    /// This node has said hello to the other one and awaits its welcome.
    pub(super) dialling: bool,
    /// Incarnation of the peer of that name, and whether its connection lives.
    pub(super) peer: Option<(u64, bool)>,
}

impl Standing {
    /// Decides which of two connections to the same node goes on. Both nodes come to the same
    /// answer from their own point of view. Of two connections made at the same time, the one
    /// dialled by the node with the lesser name goes on.
    pub(super) fn judge(&self, incarnation: u64) -> Verdict {
        match self.peer {
            Some((known, true)) if known == incarnation => Verdict::Refuse(Refusal::AlreadyConnected),
            Some(_) => Verdict::WelcomeInstead,
            None if self.dialling && self.names[0] < self.names[1] => Verdict::Refuse(Refusal::Simultaneous),
            None => Verdict::Welcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(names: [&str; 2], dialling: bool, peer: Option<(u64, bool)>) -> Standing {
        Standing {
            names: names.map(|name| name.parse().unwrap()),
            dialling,
            peer,
        }
    }

    #[test]
    fn one_of_two_simultaneous_connections_survives() {
        let a = standing(["a", "b"], true, None).judge(1);
        let b = standing(["b", "a"], true, None).judge(2);
        assert_eq!((a, b), (Verdict::Refuse(Refusal::Simultaneous), Verdict::Welcome));
    }

    #[test]
    fn dead_peer_is_replaced_and_living_peer_is_not() {
        assert_eq!(
            standing(["a", "b"], false, Some((1, true))).judge(2),
            Verdict::WelcomeInstead
        );
        assert_eq!(
            standing(["a", "b"], false, Some((1, false))).judge(1),
            Verdict::WelcomeInstead
        );
        let refused = Verdict::Refuse(Refusal::AlreadyConnected);
        assert_eq!(standing(["a", "b"], false, Some((1, true))).judge(1), refused);
        assert_eq!(standing(["b", "a"], false, None).judge(1), Verdict::Welcome);
    }
}
