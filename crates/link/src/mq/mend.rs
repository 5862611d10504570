//! A port whose driver was killed in the middle of anything.
//!
//! What may be half done, and what becomes of it: a peer that was being let go of is let go
//! of; a frame that was being received is received again, or was; one that was being sent is
//! sent, or was never there; who was to be rung is rung.

use super::peer::Peer;
use super::port::Port;

impl Port {
    /// Makes the port whole after a process of the node was killed while it drove it. Every
    /// peer is rung, since it may have been about to be, no sleep is announced any more, and
    /// every process has to look anew who is there. For the process that connects the node,
    /// which has mapped all peers: one that it has not is let go of.
    pub fn mend(&mut self) {
        self.state.mend();
        if let Some(arenas) = &self.payload {
            let live = |id| self.state.iter().any(|(_, record)| record.arena == id);
            arenas.close_others(live);
        }
        self.mappings.sweep(&self.state);
        while let Some((slot, _)) = self.unmapped() {
            self.dismiss(slot, None);
        }
        for position in 0..self.state.len() {
            let slot = self.state.live(position);
            let peer = slot.and_then(|slot| self.mappings.peer(&mut self.state, slot));
            if let Some(mut peer) = peer {
                peer.mend();
            }
        }
    }
}

impl Peer<'_> {
    fn mend(&mut self) {
        self.record.unpublished = 0;
        self.producer().mend();
        self.consumer().mend();
        self.mapping.ring();
    }
}
