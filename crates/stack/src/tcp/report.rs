//! The network's error that ended an attempt to connect, for programs that ask for it
//! (MSG_ERRQUEUE, ip(7)).
//!
//! Each control block has a record at the same index. The record holds the generation of its
//! connection, so that a reused block needs no cleanup.

use core::net::{IpAddr, SocketAddr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::pcb::Pcb;
use crate::Stack;
use crate::ip::IcmpOrigin;
use crate::socket::{ConnectionId, SocketError};
use crate::tuple::Address;

/// An error. All zeroes: none.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Report {
    from: [u8; 16],
    /// Generation of the connection; 0: none.
    generation: u32,
    kind: u8,
    code: u8,
    /// A [`SocketError`].
    error: u8,
    reserved: u8,
}

const _: () = assert!(size_of::<Report>() == 24);

/// An ICMP error that ended an attempt to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkReport {
    /// The error of the socket.
    pub error: SocketError,
    /// The sender of the message.
    pub from: IpAddr,
    /// The type of the message.
    pub kind: u8,
    /// The code of the message.
    pub code: u8,
    /// The destination of the SYN.
    pub to: SocketAddr,
    /// The beginning of the SYN, as the message quotes it: ports and sequence number.
    pub quoted: [u8; 8],
}

impl Report {
    /// The record of an attempt to connect, of a block of this generation, that ended so.
    pub(super) fn new(generation: u32, error: SocketError, origin: &IcmpOrigin) -> Self {
        Self {
            from: origin.from.0,
            generation,
            kind: origin.kind,
            code: origin.code,
            error: error as u8,
            reserved: 0,
        }
    }

    /// Takes the error of a connection, if the record is that connection's.
    pub(crate) fn take(&mut self, pcb: &Pcb) -> Option<NetworkReport> {
        if self.generation != pcb.generation {
            return None;
        }
        self.generation = 0;
        let mut quoted = [0; 8];
        quoted[..2].copy_from_slice(&pcb.tuple.local_port.to_be_bytes());
        quoted[2..4].copy_from_slice(&pcb.tuple.remote_port.to_be_bytes());
        quoted[4..].copy_from_slice(&pcb.iss.0.to_be_bytes());
        Some(NetworkReport {
            error: SocketError::from_code(self.error)?,
            from: Address(self.from).into(),
            kind: self.kind,
            code: self.code,
            to: pcb.tuple.remote_addr(),
            quoted,
        })
    }
}

impl Stack {
    /// Takes the network error that ended an attempt to connect. Returns `None` if there is none,
    /// or it was taken before.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn take_report(&mut self, id: ConnectionId) -> Result<Option<NetworkReport>, SocketError> {
        let index = self.tcp.enter(id)?;
        let pcb = &self.tcp.pcbs[index];
        Ok(self.tcp.reports[index as usize].take(pcb))
    }
}
