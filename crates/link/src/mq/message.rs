//! The handshake's messages: one fixed layout for all kinds, sent as one packet.
//!
//! The first sixteen bytes keep their place in every version, so that nodes of
//! different versions can tell each other that they are.

use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::name::{MAX_NAME, MemberName, NodeName};
use super::settings::Gateway;
use crate::steering::Steering;

/// Version of the handshake, of the records and of what they mean. Sections have
/// one of their own.
pub(super) const VERSION: u16 = 6;

pub(super) const MAGIC: [u8; 8] = *b"toehold\0";
const KIND_HELLO: u16 = 1;
const KIND_WELCOME: u16 = 2;
const KIND_REFUSAL: u16 = 3;

/// Descriptors come in this order: section, what rings the sender's bell, then payload
/// memory if flagged.
const FLAG_PAYLOAD: u16 = 1;
/// The sender leads to hosts that are no members.
const FLAG_GATEWAY: u16 = 2;
/// The hosts to which the sender leads are behind a bridge.
const FLAG_BRIDGE_PORT: u16 = 4;
/// The sender has direct connections, and sends and takes messages about them after the welcome.
const FLAG_DIRECT: u16 = 8;

/// Bytes of a message.
pub(super) const MESSAGE_LEN: usize = size_of::<Layout>();

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Layout {
    magic: [u8; 8],
    version: u16,
    kind: u16,
    reason: u16,
    flags: u16,
    incarnation: u64,
    payload_offset: u64,
    payload_len: u64,
    mac: [u8; 6],
    shard: u8,
    shards: u8,
    steering_key: [u8; 16],
    name_len: u8,
    name: [u8; MAX_NAME],
}

const _: () = {
    assert!(size_of::<Layout>() == 128);
    assert!(offset_of!(Layout, version) == 8);
    assert!(offset_of!(Layout, reason) == 12);
    assert!(offset_of!(Layout, incarnation) == 16);
};

/// The facts that a node states about itself when it wants to exchange frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Introduction {
    /// Random; another value under the same name is another life of the node.
    pub(super) incarnation: u64,
    pub(super) name: MemberName,
    pub(super) mac: [u8; 6],
    /// Which of the node's shards it is, and how to find the one of a connection.
    pub(super) steering: Steering,
    /// Payload memory in the third descriptor: offset and length in bytes.
    pub(super) payload: Option<(u64, u64)>,
    /// Whether it leads to others that are no members.
    pub(super) gateway: Gateway,
    /// Whether it has direct connections.
    pub(super) direct: bool,
}

/// A message of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// First, from the node that dialled.
    Hello(Introduction),
    /// Answers the hello: from now on frames flow both ways.
    Welcome(Introduction),
    /// Refuses the frames of the node that said hello; the connection is closed.
    Refusal(Refusal),
}

/// Why a node does not exchange frames with another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u16)]
pub enum Refusal {
    /// One of the nodes runs another version of Toehold.
    #[error("the nodes run incompatible versions of Toehold")]
    Version = 1,
    /// The packet is no message of the handshake, or a wrong one.
    #[error("the handshake was malformed")]
    Malformed = 2,
    /// Another node has this hardware address.
    #[error("the hardware address is taken by another node of the fabric")]
    DuplicateAddress = 3,
    /// The hardware address is no address of a single node.
    #[error("the hardware address is zero or a group address")]
    BadAddress = 4,
    /// The node has as many peers as it can have.
    #[error("the node has no room for another peer")]
    Crowded = 5,
    /// Both nodes dialled; the other connection goes on.
    #[error("the other node's own connection takes precedence")]
    Simultaneous = 6,
    /// This very incarnation is connected already.
    #[error("the nodes are connected already")]
    AlreadyConnected = 7,
    /// The shared memory is missing, too small, too large or not sealed.
    #[error("the shared memory handed over is not acceptable")]
    BadMemory = 8,
    /// The name belongs to another user's node, or to none.
    #[error("the name's socket in the fabric's directory is not the caller's")]
    NotOwner = 9,
    /// The caller broke the rules of the ring a moment ago.
    #[error("the node misbehaved and has to wait")]
    TryLater = 10,
    /// Nothing came in time.
    #[error("the handshake took too long")]
    TimedOut = 11,
    /// Memory or descriptors could not be had.
    #[error("the node is out of memory or descriptors")]
    NoResources = 12,
    /// The doorbell that was handed over is no Unix datagram socket.
    #[error("the doorbell handed over is not acceptable")]
    BadDoorbell = 13,
    /// The caller's user or process has as many peers of the node as it may have.
    #[error("the user or the process has as many peers of the node as it may have")]
    Quota = 14,
    /// The caller says that it is a gateway, and its user has no right to be one.
    #[error("only the user that owns the fabric's directory, and root, may lead to others")]
    NotGateway = 15,
}

impl Refusal {
    const ALL: [Refusal; 15] = [
        Refusal::Version,
        Refusal::Malformed,
        Refusal::DuplicateAddress,
        Refusal::BadAddress,
        Refusal::Crowded,
        Refusal::Simultaneous,
        Refusal::AlreadyConnected,
        Refusal::BadMemory,
        Refusal::NotOwner,
        Refusal::TryLater,
        Refusal::TimedOut,
        Refusal::NoResources,
        Refusal::BadDoorbell,
        Refusal::Quota,
        Refusal::NotGateway,
    ];

    fn from_code(code: u16) -> Refusal {
        Refusal::ALL
            .into_iter()
            .find(|&reason| reason as u16 == code)
            .unwrap_or(Refusal::Malformed)
    }
}

impl Message {
    /// The message's bytes.
    pub(super) fn emit(&self) -> [u8; MESSAGE_LEN] {
        let mut layout = Layout::new_zeroed();
        layout.magic = MAGIC;
        layout.version = VERSION;
        let introduction = match self {
            Message::Hello(introduction) => (KIND_HELLO, introduction),
            Message::Welcome(introduction) => (KIND_WELCOME, introduction),
            Message::Refusal(reason) => {
                layout.kind = KIND_REFUSAL;
                layout.reason = *reason as u16;
                return zerocopy::transmute!(layout);
            }
        };
        let (
            kind,
            Introduction {
                incarnation,
                name,
                mac,
                steering,
                payload,
                gateway,
                direct,
            },
        ) = introduction;
        layout.kind = kind;
        layout.incarnation = *incarnation;
        layout.mac = *mac;
        let Steering { index, count, key } = steering;
        (layout.shard, layout.shards, layout.steering_key) = (*index, *count, *key);
        let name = name.node.as_str().as_bytes();
        layout.name_len = name.len() as u8;
        layout.name[..name.len()].copy_from_slice(name);
        layout.flags |= match gateway {
            Gateway::None => 0,
            Gateway::Uplink => FLAG_GATEWAY,
            Gateway::BridgePort => FLAG_GATEWAY | FLAG_BRIDGE_PORT,
        };
        if *direct {
            layout.flags |= FLAG_DIRECT;
        }
        if let Some((offset, len)) = payload {
            layout.flags |= FLAG_PAYLOAD;
            (layout.payload_offset, layout.payload_len) = (*offset, *len);
        }
        zerocopy::transmute!(layout)
    }

    /// Checks everything that can be checked without the descriptors.
    pub(super) fn parse(bytes: &[u8]) -> Result<Message, Refusal> {
        let version = bytes
            .get(..16)
            .filter(|head| head.starts_with(&MAGIC))
            .ok_or(Refusal::Malformed)?;
        if u16::from_ne_bytes([version[8], version[9]]) != VERSION {
            return Err(Refusal::Version);
        }
        let layout = Layout::read_from_bytes(bytes).map_err(|_| Refusal::Malformed)?;
        match layout.kind {
            KIND_HELLO => layout.introduction().map(Message::Hello),
            KIND_WELCOME => layout.introduction().map(Message::Welcome),
            KIND_REFUSAL => Ok(Message::Refusal(Refusal::from_code(layout.reason))),
            _ => Err(Refusal::Malformed),
        }
    }
}

impl Layout {
    fn introduction(&self) -> Result<Introduction, Refusal> {
        let name = self
            .name
            .get(..usize::from(self.name_len))
            .ok_or(Refusal::Malformed)?;
        let node = NodeName::from_bytes(name).map_err(|_| Refusal::Malformed)?;
        let steering = Steering {
            index: self.shard,
            count: self.shards,
            key: self.steering_key,
        };
        let has = |flag| self.flags & flag != 0;
        let gateway = match (has(FLAG_GATEWAY), has(FLAG_BRIDGE_PORT)) {
            (false, _) => Gateway::None,
            (true, false) => Gateway::Uplink,
            (true, true) => Gateway::BridgePort,
        };
        if !steering.is_valid() {
            return Err(Refusal::Malformed);
        }
        if self.mac[0] & 1 == 1 || self.mac == [0; 6] {
            return Err(Refusal::BadAddress);
        }
        let payload = has(FLAG_PAYLOAD).then_some((self.payload_offset, self.payload_len));
        Ok(Introduction {
            incarnation: self.incarnation,
            name: MemberName {
                node,
                shard: self.shard,
            },
            mac: self.mac,
            steering,
            payload,
            gateway,
            direct: has(FLAG_DIRECT),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn introduction() -> Introduction {
        Introduction {
            incarnation: 0x1234_5678_9abc_def0,
            name: "alpha".parse().unwrap(),
            mac: [2, 0, 0, 0, 0, 7],
            steering: Steering::SOLE,
            payload: Some((4096, 1 << 24)),
            gateway: Gateway::None,
            direct: false,
        }
    }

    #[test]
    fn messages_survive_the_wire() {
        for message in [
            Message::Hello(introduction()),
            Message::Welcome(Introduction {
                payload: None,
                direct: true,
                ..introduction()
            }),
            Message::Welcome(Introduction {
                gateway: Gateway::Uplink,
                ..introduction()
            }),
            Message::Hello(Introduction {
                gateway: Gateway::BridgePort,
                ..introduction()
            }),
            Message::Hello(Introduction {
                name: "alpha#2".parse().unwrap(),
                steering: Steering {
                    index: 2,
                    count: 5,
                    key: *b"a node's own key",
                },
                ..introduction()
            }),
        ] {
            assert_eq!(Message::parse(&message.emit()), Ok(message));
        }
        for reason in Refusal::ALL {
            assert_eq!(
                Message::parse(&Message::Refusal(reason).emit()),
                Ok(Message::Refusal(reason))
            );
        }
    }

    #[test]
    fn message_of_another_version_returns_its_version() {
        let mut bytes = Message::Hello(introduction()).emit().to_vec();
        bytes[8..10].copy_from_slice(&99u16.to_ne_bytes());
        assert_eq!(Message::parse(&bytes), Err(Refusal::Version));
        bytes.truncate(16);
        assert_eq!(Message::parse(&bytes), Err(Refusal::Version));
        bytes.truncate(15);
        assert_eq!(Message::parse(&bytes), Err(Refusal::Malformed));
    }

    #[test]
    fn group_and_zero_addresses_and_bad_names_are_refused() {
        let with = |change: fn(&mut Layout)| {
            let mut layout = Layout::read_from_bytes(&Message::Hello(introduction()).emit()).unwrap();
            change(&mut layout);
            Message::parse(layout.as_bytes())
        };
        assert_eq!(with(|layout| layout.mac = [0xff; 6]), Err(Refusal::BadAddress));
        assert_eq!(with(|layout| layout.mac = [0; 6]), Err(Refusal::BadAddress));
        assert_eq!(with(|layout| layout.name_len = 0), Err(Refusal::Malformed));
        assert_eq!(with(|layout| layout.name_len = 64), Err(Refusal::Malformed));
        assert_eq!(with(|layout| layout.name[1] = b'/'), Err(Refusal::Malformed));
        assert_eq!(with(|layout| layout.name[0] = b'.'), Err(Refusal::Malformed));
        assert_eq!(with(|layout| layout.kind = 77), Err(Refusal::Malformed));
        assert_eq!(with(|layout| layout.shard = 1), Err(Refusal::Malformed));
        assert_eq!(with(|layout| layout.shards = 0), Err(Refusal::Malformed));
        assert_eq!(with(|layout| layout.shards = 17), Err(Refusal::Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), honest in any::<bool>()) {
            let mut bytes = bytes;
            if honest && bytes.len() >= 10 {
                bytes[..8].copy_from_slice(&MAGIC);
                bytes[8..10].copy_from_slice(&VERSION.to_ne_bytes());
            }
            let _ = Message::parse(&bytes);
        }
    }
}
