//! What crosses between a fabric and what is beyond its gateways.
//!
//! Members send a gateway the frames for addresses that nobody of them has. A gateway sends
//! frames from such addresses, and from those alone: whoever receives them looks. What comes
//! from beyond one gateway goes to no other, so that a frame never goes round.

use super::peer::{Polled, count};
use super::port::Port;
use super::settings::MAX_PEERS;
use super::state::{State, pack};
use crate::{Received, Transmit, TransmitError};

/// The part of a packed address that is no number of a shard.
const MAC: u64 = (1 << 48) - 1;

/// Hardware addresses of live peers.
pub(super) struct Members {
    addresses: [u64; MAX_PEERS],
    len: usize,
}

impl Members {
    /// Whether one of them has the address.
    pub(super) fn contains(&self, mac: [u8; 6]) -> bool {
        has(self.addresses.get(..self.len).unwrap_or_default(), mac)
    }
}

/// Whether one of the words that [`pack_shard`](super::state::pack_shard) made is of this address.
fn has(packed: &[u64], mac: [u8; 6]) -> bool {
    let mac = pack(mac);
    packed.iter().any(|address| address & MAC == mac)
}

impl State {
    /// The addresses of all live peers, to be asked while a peer is in use.
    pub(super) fn members(&self) -> Members {
        let mut members = Members {
            addresses: [0; MAX_PEERS],
            len: self.len(),
        };
        for (copy, &address) in members.addresses.iter_mut().zip(self.addresses()) {
            *copy = address;
        }
        members
    }

    /// Whether a live peer has the address.
    pub(super) fn is_member(&self, mac: [u8; 6]) -> bool {
        has(self.addresses(), mac)
    }
}

impl Port {
    /// A frame for an address that no member has. What comes from beyond this gateway does not
    /// go on to another one: so a frame never goes round.
    #[inline(never)]
    pub(super) fn transmit_unrouted(
        &mut self,
        frame: &Transmit<'_>,
        from_beyond: bool,
    ) -> Result<(), TransmitError> {
        if from_beyond {
            count(&mut self.state.head_mut().statistics.unreachable, 1);
            return Err(TransmitError::Unreachable);
        }
        self.transmit_beyond(frame)
    }

    /// To the gateways: no member has the address. They get copies, since the stack asks
    /// [`fence`](crate::Transmitter::fence) for the node that has an address, which is none here.
    fn transmit_beyond(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let mut gateways = self.state.head().gateways;
        let counter = match gateways.is_empty() {
            true => &mut self.state.head_mut().statistics.unreachable,
            false => &mut self.state.head_mut().statistics.sent_beyond,
        };
        count(counter, 1);
        let mut result = Err(TransmitError::Unreachable);
        for slot in gateways.take() {
            let sent = self.put(frame, slot, false);
            if sent.is_ok() || result == Err(TransmitError::Unreachable) {
                result = sent;
            }
        }
        result
    }

    /// Whether a gateway may send a frame that is not from itself: not in the name of a
    /// member, of which nothing comes from beyond.
    #[inline(never)]
    pub(super) fn may_pass(&mut self, source: Option<[u8; 6]>) -> bool {
        let honest = source.is_some_and(|source| source[0] & 1 == 0 && !self.state.is_member(source));
        if !honest {
            count(&mut self.state.head_mut().statistics.forged, 1);
        }
        honest
    }

    /// Hands over frames of a gateway, which may not speak for a member, nor lead to what is
    /// beyond another gateway.
    #[inline(never)]
    pub(super) fn poll_gateway(
        &mut self,
        slot: u8,
        budget: usize,
        handler: &mut dyn FnMut(&Received<'_>),
    ) -> Polled {
        let (own, is_gateway) = (self.config.mac, self.config.gateway != 0);
        let members = self.state.members();
        let mut polled = Polled::default();
        let Some(mut peer) = self.mappings.peer(&mut self.state, slot) else {
            return polled;
        };
        let gateway = peer.record.mac();
        let mut forged = 0;
        let mut judge = |frame: &Received<'_>| {
            let source = frame.private.get(6..).and_then(<[u8]>::first_chunk).copied();
            let honest = source.is_some_and(|source: [u8; 6]| {
                let is_other = source[0] & 1 == 0 && source != own && !members.contains(source);
                source == gateway || (is_other && !is_gateway)
            });
            match honest {
                true => handler(frame),
                false => forged += 1,
            }
        };
        polled = peer.poll(budget, own, &mut self.private, &mut judge);
        count(&mut peer.record.statistics.forged, forged);
        if polled.frames != 0 && !peer.mapping.rings.is_fenced_for() {
            self.state.head_mut().released.insert(slot);
        }
        polled
    }
}
