//! Closed connections whose unacknowledged bytes the peer may still be reading in place. The bytes
//! stay until the link reports that the peer has passed them.

use toehold_link::{Fence, Transmitter};
use toehold_shm::{NONE, Steps};

use super::Tcp;
use super::pcb::flag;
use super::state::DeferredFree;

impl Tcp {
    /// Puts a closed connection behind a fence, or frees its bytes if the peer has passed them
    /// already.
    pub(super) fn defer_free(&mut self, index: u32, out: &dyn Transmitter) {
        let pcb = &mut self.pcbs[index];
        pcb.clear(flag::FENCE_WANTED);
        let fence = match pcb.path.is_loopback() {
            true => Fence(self.state[0].loopback_sent),
            false => out.fence(pcb.path.destination, &pcb.tuple.flow()),
        };
        if self.has_passed(index, fence, out) {
            self.drop_queued(index);
            return;
        }
        self.pcbs[index].set(flag::IN_DEFERRED_FREE);
        let deferred = DeferredFree {
            fence: fence.0,
            connection: index,
            next: self.state[0].deferred_head,
        };
        // The slab has room for every connection.
        if let Some(new) = self.deferred_free.insert(deferred) {
            self.state[0].deferred_head = new;
        }
    }

    /// Whether the peer no longer reads a connection's bytes, if a fence was set when they were
    /// sent.
    fn has_passed(&self, index: u32, fence: Fence, out: &dyn Transmitter) -> bool {
        match self.pcbs[index].path.is_loopback() {
            true => self.state[0].loopback_taken.wrapping_sub(fence.0) as i64 >= 0,
            false => out.passed(fence),
        }
    }

    /// Frees the bytes of closed connections that the peer no longer reads.
    pub(super) fn sweep_deferred_free(&mut self, out: &dyn Transmitter) {
        let mut at = std::mem::replace(&mut self.state[0].deferred_head, NONE);
        let mut steps = Steps::along(self.deferred_free.capacity());
        while at != NONE {
            steps.count();
            let DeferredFree {
                fence,
                connection,
                next,
            } = self.deferred_free[at];
            if self.has_passed(connection, Fence(fence), out) {
                self.touch(connection);
                self.deferred_free.remove(at);
                self.pcbs[connection].clear(flag::IN_DEFERRED_FREE);
                self.drop_queued(connection);
                self.free_if_done(connection);
            } else {
                self.deferred_free[at].next = std::mem::replace(&mut self.state[0].deferred_head, at);
            }
            at = next;
        }
    }
}
