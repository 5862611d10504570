//! What the network said of an attempt to connect that it ended, for programs that ask (MSG_ERRQUEUE, ip(7)).
//!
//! There is a record for each control block, at the same index. It bears the generation that it is of, so that nothing
//! has to be forgotten when the block serves another connection.

use core::net::{IpAddr, SocketAddr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Tcp;
use crate::Stack;
use crate::ip::IcmpOrigin;
use crate::socket::{ConnectionId, SocketError};
use crate::tuple::Address;

/// One record. All zeroes: none.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Report {
    from: [u8; 16],
    /// Of the connection that it is about; 0: of none.
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
    /// What it means.
    pub error: SocketError,
    /// The sender of the message.
    pub from: IpAddr,
    /// The type of the message.
    pub kind: u8,
    /// The code of the message.
    pub code: u8,
    /// Where the SYN was to go.
    pub to: SocketAddr,
    /// The beginning of the SYN, which the message quotes: its ports and its sequence number.
    pub quoted: [u8; 8],
}

impl Tcp {
    /// The network has ended an attempt to connect.
    pub(super) fn refused_by_network(&mut self, index: u32, error: SocketError, origin: &IcmpOrigin) {
        self.reports[index as usize] = Report {
            from: origin.from.0,
            generation: self.pcbs[index].generation,
            kind: origin.kind,
            code: origin.code,
            error: error as u8,
            reserved: 0,
        };
        self.finish(index, Some(error));
    }

    fn take_report(&mut self, index: u32) -> Option<NetworkReport> {
        let pcb = &self.pcbs[index];
        let report = &mut self.reports[index as usize];
        if report.generation != pcb.generation {
            return None;
        }
        report.generation = 0;
        let mut quoted = [0; 8];
        quoted[..2].copy_from_slice(&pcb.tuple.local_port.to_be_bytes());
        quoted[2..4].copy_from_slice(&pcb.tuple.remote_port.to_be_bytes());
        quoted[4..].copy_from_slice(&pcb.iss.0.to_be_bytes());
        Some(NetworkReport {
            error: SocketError::from_code(report.error)?,
            from: Address(report.from).into(),
            kind: report.kind,
            code: report.code,
            to: pcb.tuple.remote_addr(),
            quoted,
        })
    }
}

impl Stack {
    /// Takes what the network said of an attempt to connect that it ended. `None`: nothing, or it was taken before.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn take_report(&mut self, id: ConnectionId) -> Result<Option<NetworkReport>, SocketError> {
        let index = self.tcp.enter(id)?;
        Ok(self.tcp.take_report(index))
    }
}
