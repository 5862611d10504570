//! Messages of peers about direct connections: one fixed layout for all kinds, sent as one packet
//! over the connection of their handshake.
//!
//! Only two nodes that have both said in the handshake that they have direct connections send
//! these messages. An older node sends none and receives none.

use core::mem::size_of;

use toehold_shm::direct::{BELLS, bank};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::mq::message::{MAGIC, VERSION};

const KIND_DIRECTORY: u16 = 4;
const KIND_OPEN: u16 = 5;
const KIND_ACCEPT: u16 = 6;
const KIND_DECLINE: u16 = 7;
const KIND_OPEN_WITH_BELLS: u16 = 8;
const KIND_ACCEPT_WITH_BELLS: u16 = 9;

/// Bytes of a message.
pub(in crate::mq) const DIRECT_MESSAGE_LEN: usize = size_of::<Layout>();

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Layout {
    magic: [u8; 8],
    version: u16,
    kind: u16,
    bank: u16,
    unused: u16,
    /// Version of what lies in the memory that comes along.
    layout: u64,
}

const _: () = assert!(size_of::<Layout>() == 24);

/// A message about direct connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mq) enum DirectMessage {
    /// First from either side, with the directory of its listeners.
    Directory,
    /// The sender opens connections in a bank from now on, once that is accepted. Its half of the
    /// memory and the signals to it come along.
    Open(u8),
    /// [`Open`](DirectMessage::Open) to a node of the sender's own user: the bells on which the
    /// sender is rung come along, too.
    OpenWithBells(u8),
    /// The answer, with the other half and the signals to the sender of that.
    Accept(u8),
    /// [`Accept`](DirectMessage::Accept) that answers bells with bells.
    AcceptWithBells(u8),
    /// Declines an [`Open`](DirectMessage::Open): the receiver opens no such bank.
    Decline(u8),
}

impl DirectMessage {
    /// Descriptors that come along.
    pub(in crate::mq) fn descriptors(self) -> usize {
        match self {
            DirectMessage::Directory => 1,
            DirectMessage::Open(_) | DirectMessage::Accept(_) => 2,
            DirectMessage::OpenWithBells(_) | DirectMessage::AcceptWithBells(_) => 2 + BELLS,
            DirectMessage::Decline(_) => 0,
        }
    }

    /// The message's bytes.
    pub(in crate::mq) fn emit(self) -> [u8; DIRECT_MESSAGE_LEN] {
        let (kind, bank) = match self {
            DirectMessage::Directory => (KIND_DIRECTORY, 0),
            DirectMessage::Open(bank) => (KIND_OPEN, bank),
            DirectMessage::OpenWithBells(bank) => (KIND_OPEN_WITH_BELLS, bank),
            DirectMessage::Accept(bank) => (KIND_ACCEPT, bank),
            DirectMessage::AcceptWithBells(bank) => (KIND_ACCEPT_WITH_BELLS, bank),
            DirectMessage::Decline(bank) => (KIND_DECLINE, bank),
        };
        let mut layout = Layout::new_zeroed();
        (layout.magic, layout.version, layout.kind) = (MAGIC, VERSION, kind);
        (layout.bank, layout.layout) = (bank.into(), bank::VERSION.into());
        zerocopy::transmute!(layout)
    }

    /// Reads a message. Returns `None` if it is none, or is of a node that lays its memory out
    /// otherwise.
    pub(in crate::mq) fn parse(bytes: &[u8]) -> Option<DirectMessage> {
        let layout = Layout::read_from_bytes(bytes).ok()?;
        let said = (layout.magic, layout.version, layout.layout);
        if said != (MAGIC, VERSION, bank::VERSION.into()) {
            return None;
        }
        let bank = u8::try_from(layout.bank).ok()?;
        match layout.kind {
            KIND_DIRECTORY => Some(DirectMessage::Directory),
            KIND_OPEN => Some(DirectMessage::Open(bank)),
            KIND_OPEN_WITH_BELLS => Some(DirectMessage::OpenWithBells(bank)),
            KIND_ACCEPT => Some(DirectMessage::Accept(bank)),
            KIND_ACCEPT_WITH_BELLS => Some(DirectMessage::AcceptWithBells(bank)),
            KIND_DECLINE => Some(DirectMessage::Decline(bank)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_message_survives_the_wire() {
        for message in [
            DirectMessage::Directory,
            DirectMessage::Open(0),
            DirectMessage::OpenWithBells(9),
            DirectMessage::Accept(15),
            DirectMessage::AcceptWithBells(1),
            DirectMessage::Decline(7),
        ] {
            assert_eq!(DirectMessage::parse(&message.emit()), Some(message));
        }
    }

    #[test]
    fn direct_message_of_another_version_or_layout_is_none() {
        let bytes = DirectMessage::Directory.emit();
        assert_eq!(DirectMessage::parse(&bytes[..23]), None);
        // The magic number, the version, the kind, a bank beyond all, and the layout.
        for at in [0, 8, 10, 13, 16] {
            let mut changed = bytes;
            changed[at] ^= 0x40;
            assert_eq!(DirectMessage::parse(&changed), None, "{at}");
        }
    }
}
