//! The link of a shard: the node's port on its fabric, or any other link of a
//! node whose engine is this process.

use std::os::fd::BorrowedFd;

use toehold_link::capture::Tap;
use toehold_link::mq::{Mesh, Port};
use toehold_link::steering::Flow;
use toehold_link::{
    Capabilities, Fence, Link, NeighborChange, Received, Transmit, TransmitError, Transmitter, Watch,
};

use toehold_shm::ArenaId;

use crate::clock;

/// A link. The port is told apart because it can do more than others. The node's processes share
/// it, and record what crosses it, whichever of them drives. The mesh is told apart because a node
/// with a process of its own has it.
pub(crate) enum NodeLink {
    Port(Box<Port>, Tap),
    Mesh(Box<Mesh>),
    Other(Box<dyn Link>),
}

impl NodeLink {
    /// The port, if the link is one.
    #[inline]
    pub(crate) fn port(&mut self) -> Option<&mut Port> {
        match self {
            NodeLink::Port(port, _) => Some(port),
            NodeLink::Mesh(_) | NodeLink::Other(_) => None,
        }
    }

    /// Makes it whole after a process was killed while it used it. What is recorded needs
    /// nothing: a frame is on the tape when all of it is. Other links than the port are of a
    /// node with one process.
    pub(super) fn mend(&mut self) {
        if let Some(port) = self.port() {
            port.mend();
        }
    }
}

/// Calls the same method of the link that it is.
macro_rules! delegate {
    ($self:ident, $link:ident => $call:expr) => {
        match $self {
            NodeLink::Port($link, _) => $call,
            NodeLink::Mesh($link) => $call,
            NodeLink::Other($link) => $call,
        }
    };
}

impl Transmitter for NodeLink {
    #[inline]
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        match self {
            NodeLink::Port(port, tap) => {
                port.transmit(frame)?;
                if tap.is_open() {
                    tap.record_sent(clock::now().0, frame);
                }
                Ok(())
            }
            NodeLink::Mesh(link) => link.transmit(frame),
            NodeLink::Other(link) => link.transmit(frame),
        }
    }

    fn fence(&self, destination: [u8; 6], flow: &Flow) -> Fence {
        delegate!(self, link => link.fence(destination, flow))
    }

    fn passed(&self, fence: Fence) -> bool {
        delegate!(self, link => link.passed(fence))
    }

    #[inline]
    fn payload_arena(&self) -> ArenaId {
        delegate!(self, link => link.payload_arena())
    }
}

impl Link for NodeLink {
    fn capabilities(&self) -> Capabilities {
        delegate!(self, link => link.capabilities())
    }

    fn address(&self) -> [u8; 6] {
        delegate!(self, link => link.address())
    }

    #[inline]
    fn receive(&mut self, now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        match self {
            NodeLink::Port(port, tap) if tap.is_open() => port.receive(now_ns, budget, &mut |frame| {
                tap.record_received(clock::now().0, frame);
                handler(frame);
            }),
            NodeLink::Port(port, _) => port.receive(now_ns, budget, handler),
            NodeLink::Mesh(link) => link.receive(now_ns, budget, handler),
            NodeLink::Other(link) => link.receive(now_ns, budget, handler),
        }
    }

    fn look_ahead(&mut self, most: usize, see: &mut dyn FnMut(&Received<'_>)) {
        delegate!(self, link => link.look_ahead(most, see));
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        delegate!(self, link => link.is_quiet())
    }

    #[inline]
    fn flush(&mut self) {
        delegate!(self, link => link.flush());
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        delegate!(self, link => link.descriptor())
    }

    fn prepare_sleep(&mut self) -> bool {
        delegate!(self, link => link.prepare_sleep())
    }

    fn finish_sleep(&mut self, now_ns: u64) {
        delegate!(self, link => link.finish_sleep(now_ns));
    }

    fn next_change(&mut self) -> Option<NeighborChange> {
        delegate!(self, link => link.next_change())
    }

    #[inline]
    fn watch(&self, watch: &mut Watch) -> bool {
        delegate!(self, link => link.watch(watch))
    }
}
