//! Frames that cross between a fabric and what is beyond its gateways.
//!
//! Members send a gateway the frames for addresses that no member has. A gateway sends frames from
//! such addresses, and from those alone: the receiver checks that. Frames from beyond one gateway
//! go to no other gateway, so no frame goes round. Ports of bridges do pass frames to each other,
//! and prevent such loops themselves.

use super::peer::{Beyond, Polled, count};
use super::port::Port;
use super::settings::Gateway;
use super::state::PeerRecord;
use crate::steering::Flow;
use crate::{Received, Transmit, TransmitError};

impl Port {
    /// Whether what is beyond this node must not reach what is beyond the peer.
    pub(super) fn is_barred(&self, slot: u16) -> bool {
        let is_gateway = self.state.head().gateways.contains(slot);
        let is_port = || self.state.get(slot).is_some_and(PeerRecord::is_bridge_port);
        is_gateway && !(self.is_bridge_port() && is_port())
    }

    /// Whether this node is the port of a bridge.
    fn is_bridge_port(&self) -> bool {
        Gateway::from_code(self.config.gateway) == Gateway::BridgePort
    }

    /// A frame for an address that no member has goes to the gateways, as far as it may. They
    /// get copies, since the stack asks [`fence`](crate::Transmitter::fence) for the node that has
    /// an address, which is none here.
    #[inline(never)]
    pub(super) fn transmit_unrouted(
        &mut self,
        frame: &Transmit<'_>,
        from_beyond: bool,
    ) -> Result<(), TransmitError> {
        let gateways = self.state.head().gateways;
        // Only looked for if there is a gateway with several shards.
        let mut flow = None;
        let (mut result, mut is_tried) = (Err(TransmitError::Unreachable), false);
        for slot in gateways.iter() {
            if from_beyond && self.is_barred(slot) {
                continue;
            }
            is_tried = true;
            let is_sharded = self.state.get(slot).is_some_and(PeerRecord::is_sharded);
            if is_sharded {
                let flow = flow.get_or_insert_with(|| Flow::of_frame(frame.headers));
                let steering = self.state.get(slot).map(PeerRecord::steering).unwrap_or_default();
                if flow.is_some_and(|flow| !steering.is_own(&flow)) {
                    continue;
                }
            }
            let sent = self.put(frame, slot, false);
            if sent.is_ok() || result == Err(TransmitError::Unreachable) {
                result = sent;
            }
        }
        let statistics = &mut self.state.head_mut().statistics;
        let counter = match is_tried {
            true => &mut statistics.sent_beyond,
            false => &mut statistics.unreachable,
        };
        count(counter, 1);
        result
    }

    /// Whether a gateway may send a frame that is not from itself: not in the name of a
    /// member, of which nothing comes from beyond.
    #[inline(never)]
    pub(super) fn may_pass(&mut self, source: Option<[u8; 6]>) -> bool {
        let honest = source.is_some_and(|source| source[0] & 1 == 0 && !self.state.addresses().has(source));
        if !honest {
            count(&mut self.state.head_mut().statistics.forged, 1);
        }
        honest
    }

    /// Hands over frames of a gateway. It may not speak for a member. It may not lead to what is
    /// beyond another gateway either, unless both are ports of bridges.
    #[inline(never)]
    pub(super) fn poll_gateway(
        &mut self,
        slot: u16,
        budget: usize,
        handler: &mut dyn FnMut(&Received<'_>),
    ) -> Polled {
        let beyond = Beyond {
            own: self.config.mac,
            is_barred: self.config.gateway != 0 && self.is_barred(slot),
        };
        self.poll_peer(slot, budget, Some(beyond), handler)
    }
}
