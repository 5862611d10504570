//! A port whose driver was killed in the middle of anything.
//!
//! A change may be half done; this is what becomes of it. A peer that was being let go of is let go
//! of. A frame that was being received is received again, or was received. A frame that was being
//! sent is sent, or was never there. A peer that was to be rung is rung.

use super::peer::Peer;
use super::port::Port;

impl Port {
    /// Repairs the port after a process of the node was killed while it drove the port. Every peer
    /// is rung, since a ring may have been due. No sleep is announced any more, and every process
    /// has to look for new peers again.
    ///
    /// Only the process that connects the node calls this. It has mapped all peers; a peer that it
    /// has not mapped is let go of.
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
