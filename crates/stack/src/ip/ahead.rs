//! Guesses the connection of a frame before the frame is handled.

use toehold_wire::{ipv4, ipv6, protocol};

use super::{Ip, addresses, ethernet};
use crate::tuple::{Address, FourTuple};

impl Ip {
    /// The probable four-tuple of a frame with this beginning. Almost nothing is checked, so that
    /// only speed may depend on the guess.
    #[inline]
    pub(crate) fn probable_ends(&self, beginning: &[u8]) -> Option<FourTuple> {
        let packet = if self.link.ethernet {
            beginning.get(ethernet::HEADER_LEN..)?
        } else {
            beginning
        };
        let (remote, local, transport) = match packet.first()? >> 4 {
            4 => {
                let header: &[u8; ipv4::HEADER_LEN] = packet.first_chunk()?;
                let address = |at: usize| {
                    let octets: [u8; 4] = header[at..at + 4].try_into().ok()?;
                    Some(addresses::from_v4(octets.into()))
                };
                let is_tcp = header[9] == protocol::TCP;
                (
                    is_tcp.then_some(address(12))??,
                    address(16)?,
                    packet.get(ipv4::HEADER_LEN..)?,
                )
            }
            _ => {
                let (header, transport) = packet.split_first_chunk::<{ ipv6::HEADER_LEN }>()?;
                let address = |at: usize| Some(Address(header[at..at + 16].try_into().ok()?));
                let is_tcp = header[6] == protocol::TCP;
                (is_tcp.then_some(address(8))??, address(24)?, transport)
            }
        };
        let &[a, b, c, d] = transport.first_chunk()?;
        Some(FourTuple {
            local,
            remote,
            local_port: u16::from_be_bytes([c, d]),
            remote_port: u16::from_be_bytes([a, b]),
        })
    }
}
