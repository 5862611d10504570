//! The interface of what the control socket's server serves: the node as the engine process has it.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use toehold_shm::Doorbell;

use super::status::{Counter, SocketStatus, StackStatus};
use crate::callers::Forwarded;
use crate::direct::BellsOf;
use crate::placement::Placement;
use crate::why::Reason;

/// A node that processes attach to. Calls come from the control thread, one at
/// a time; a call that takes long holds up every other process that asks.
pub trait Host: Send + Sync + 'static {
    /// Gives a process its place in the node.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told.
    fn attach(&self, client: Client) -> Result<Attachment, Refusal>;

    /// Gives a process a number that has all else from the one that it was forked from, if the
    /// node is still in that life.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told. It then has to attach.
    fn take_over(&self, _client: Client, _life: u64) -> Result<u16, Refusal> {
        Err(Refusal::new(
            "it gives nothing that could be taken over; attach to it",
        ))
    }

    /// Notes that a process that had attached is gone: it exited, was killed, or has hung up.
    /// Called exactly once for each process that attached.
    fn detached(&self, process: u16);

    /// The descriptors of the peer of a shard that has this slot in this generation,
    /// `None` if it has left.
    fn peer(&self, shard: u8, slot: u16, generation: u16) -> Option<Vec<OwnedFd>>;

    /// The descriptors of the bank of direct connections that has this slot in this generation,
    /// `None` if it is not there any more.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told.
    fn bank(&self, _process: u16, _slot: u16, _generation: u32) -> Result<Option<Vec<OwnedFd>>, Refusal> {
        Ok(None)
    }

    /// The descriptors of a set of bells, `None` if there is no such set.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told.
    fn bells(&self, _process: u16, _which: BellsOf) -> Result<Option<Vec<OwnedFd>>, Refusal> {
        Ok(None)
    }

    /// Rings a waiter on a bell of a set, if there is one.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told.
    fn ring(&self, _process: u16, _which: BellsOf, _waiter: u16) -> Result<(), Refusal> {
        Ok(())
    }

    /// Makes holders, at most `count` and at least one. Returns for each its number and the end
    /// that is handed to the process. The node keeps the other end and sees when the first is
    /// closed.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told.
    fn holders(&self, process: u16, count: u16) -> Result<Vec<(u32, OwnedFd)>, Refusal>;

    /// The number of the holder that a descriptor is.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told.
    fn identify(&self, process: u16, descriptor: OwnedFd) -> Result<u32, Refusal>;

    /// The holder that a descriptor is, as another descriptor of the same number, if no other
    /// process has one. The process that gets it is the only one to have it. Returns `None` if
    /// other processes have it.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told.
    fn inherit(&self, process: u16, descriptor: OwnedFd) -> Result<Option<(u32, OwnedFd)>, Refusal>;

    /// Takes a port from the kernel beside the node, for the listener that a holder will
    /// stand for; 0: any. What the kernel has against it is the inner error. A node without
    /// a kernel beside it has all ports.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told.
    fn take_port(
        &self,
        _process: u16,
        _holder: u32,
        address: SocketAddr,
        _only_ipv6: bool,
    ) -> Result<Result<u16, Errno>, Refusal> {
        Ok(Ok(address.port()))
    }

    /// Gives it back: the listener is closed.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told.
    fn release_port(&self, _process: u16, _holder: u32) -> Result<(), Refusal> {
        Ok(())
    }

    /// Carries the bytes between the connection of a shard that a holder stands for, and its
    /// descriptor. If it does already, it goes on.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told.
    fn relay(&self, _process: u16, _shard: u8, _holder: u32) -> Result<(), Refusal> {
        Err(Refusal::new("it has no connections"))
    }

    /// Has the kernel signal the owner of a connection that a holder stands for, when its peer
    /// announces urgent data. The first of two Unix sockets has that owner: urgent data are sent to
    /// it from the second.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told.
    fn own(&self, _process: u16, _shard: u8, _holder: u32, _messenger: [OwnedFd; 2]) -> Result<(), Refusal> {
        Err(Refusal::new("it has no connections"))
    }

    /// Forwards peers that connect to a holder's listener to one of the kernel's. Notes their
    /// addresses in a table of [`Callers`](crate::Callers). Listener and table come along.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told.
    fn forward(
        &self,
        _process: u16,
        _holder: u32,
        _descriptors: [OwnedFd; 2],
        _which: Forwarded,
    ) -> Result<(), Refusal> {
        Err(Refusal::new("it has no listeners"))
    }

    /// A descriptor that becomes readable when [`Host::handle_events`] is to be called.
    fn events(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Handles events that came without a request.
    fn handle_events(&self) {}

    /// A descriptor that is readable as long as something is to be closed that no process has any
    /// more.
    ///
    /// # Errors
    ///
    /// The refusal that the process is told.
    fn closings(&self) -> Result<OwnedFd, Refusal> {
        Err(Refusal::new("it has no connections"))
    }

    /// Rings the bell once all is closed that no process has any more by now.
    fn await_closing(&self, bell: Doorbell) {
        bell.ring();
    }

    /// The status of the stack.
    fn status(&self) -> StackStatus;

    /// Every socket of the node.
    fn sockets(&self) -> Vec<SocketStatus>;

    /// The counters of the node.
    fn counters(&self) -> Vec<Counter>;

    /// Changes the threads that run the stack, while it runs.
    ///
    /// # Errors
    ///
    /// The refusal that the client is told.
    fn set_placement(&self, placement: Placement) -> Result<(), Refusal>;

    /// Begins to record the node's frames into the file.
    ///
    /// # Errors
    ///
    /// The refusal that the client is told.
    fn start_capture(&self, file: File, settings: CaptureRequest) -> Result<(), Refusal>;

    /// Ends the recording, if there is one. As long as the file is not complete, to be
    /// called again.
    fn stop_capture(&self) -> CaptureSummary;

    /// Ends the recording of a client that is gone. The file gets what was recorded, and only
    /// [`Host::stop`] waits for that.
    fn leave_capture(&self);

    /// Begins another life of the node: a call has panicked, and what it left is not to be trusted.
    fn begin_anew(&self);

    /// Ends the node: delivers what was written and closed, resets the rest,
    /// and leaves the fabric. The last call.
    fn stop(&self);
}

/// A process that asks to be attached.
#[derive(Debug)]
pub struct Client {
    /// The process's number in `/proc`, as the node's process has it; 0 if it has none there.
    pub pid: u32,
    /// The process's user.
    pub uid: u32,
    /// A descriptor that becomes readable when the process has ended; absent where the system
    /// cannot tell.
    pub pidfd: Option<OwnedFd>,
}

/// A process's place in the node.
#[derive(Debug)]
pub struct Attachment {
    /// Number of the process in the node.
    pub process: u16,
    /// The facts that the process must know beside the descriptors, in a form that both understand.
    pub description: serde_json::Value,
    /// The descriptors, at most [`super::MAX_DESCRIPTORS`].
    pub descriptors: Vec<OwnedFd>,
}

/// The options of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureRequest {
    /// Bytes kept of each frame.
    pub snap_len: u32,
}

/// The numbers of frames of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureSummary {
    /// Frames seen, in both directions.
    pub frames: u64,
    /// Frames that are missing in the file because it did not keep up or failed.
    pub lost: u64,
    /// Failed writes. After the first one nothing more is written.
    pub write_errors: u64,
    /// Whether the recording has ended, and the file has all that it will get.
    pub complete: bool,
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// A sentence that tells the client what to do.
    pub why: String,
    /// The reason why the process that asked is not on the node, where that is what was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

impl Refusal {
    /// Says why.
    pub fn new(why: impl Into<String>) -> Self {
        let why = why.into();
        Refusal { why, reason: None }
    }

    /// Says why, of a process that is not on the node for a reason.
    pub fn because(reason: Reason, why: impl Into<String>) -> Self {
        let why = why.into();
        Refusal {
            why,
            reason: Some(reason),
        }
    }
}
