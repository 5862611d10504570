//! Closed connections whose unacknowledged bytes the peer may still be reading
//! where they lie: the bytes stay until the link says that it has passed them.

use toehold_link::{Fence, Transmitter};
use toehold_shm::{NONE, Steps};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Tcp, flag};

/// A closed connection that waits.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Limbo {
    fence: u64,
    connection: u32,
    next: u32,
}

impl Tcp {
    /// Puts a closed connection behind a fence, or frees its bytes if the peer
    /// has finished with them already.
    pub(super) fn enter_limbo(&mut self, index: u32, out: &dyn Transmitter) {
        let pcb = &mut self.pcbs[index];
        pcb.clear(flag::FENCE_WANTED);
        let fence = out.fence(pcb.path.destination, &pcb.tuple.flow());
        if out.passed(fence) {
            self.drop_queued(index);
            return;
        }
        pcb.set(flag::IN_LIMBO);
        let limbo = Limbo {
            fence: fence.0,
            connection: index,
            next: self.shard[0].limbo_head,
        };
        // There is room for every connection.
        if let Some(new) = self.limbo.insert(limbo) {
            self.shard[0].limbo_head = new;
        }
    }

    /// Frees the bytes of closed connections that the peer can no longer read.
    pub(super) fn sweep_limbo(&mut self, out: &dyn Transmitter) {
        let mut at = std::mem::replace(&mut self.shard[0].limbo_head, NONE);
        let mut steps = Steps::along(self.limbo.capacity());
        while at != NONE {
            steps.count();
            let Limbo {
                fence,
                connection,
                next,
            } = self.limbo[at];
            if out.passed(Fence(fence)) {
                self.touch(connection);
                self.limbo.remove(at);
                self.pcbs[connection].clear(flag::IN_LIMBO);
                self.drop_queued(connection);
                self.free_if_done(connection);
            } else {
                self.limbo[at].next = std::mem::replace(&mut self.shard[0].limbo_head, at);
            }
            at = next;
        }
    }
}
