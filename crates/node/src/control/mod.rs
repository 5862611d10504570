//! The control protocol: the messages between a node's engine process and its clients, over a Unix
//! socket in the fabric's directory.
//!
//! The server runs in a thread of the engine process and serves a [`Host`]. It never waits for a
//! client: it keeps at most one answer for each, and drops those that do not take it. A process
//! attaches over a [`Connection`] and keeps that open for as long as it is a process of the node.
//! The server sees its end by the connection's or by the process's, whichever is noticed first. A
//! forked child may hold a copy of the one, but not of the other.
//!
//! The server serves the node's own user and root, and the users that its settings and its fabric's
//! directory let in ([`crate::fabric::Access`]). It also serves a process that has the door of an
//! attached process, or what keeps the node (`door`): the descriptor is the permission. It checks
//! what they send all the same: a program of the node may be broken.

mod connection;
mod door;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod keepers;
mod message;
mod nanoseconds;
mod packet;
pub(crate) mod peers;
mod requests;
mod server;
mod session;
mod status;
#[cfg(test)]
mod tests;

pub use self::connection::{Attached, Connection, ControlError};
pub use self::door::{Door, enter, leads_somewhere, tell};
pub use self::host::{Attachment, CaptureRequest, CaptureSummary, Client, Host, Refusal};
pub use self::keepers::Lifetime;
pub(crate) use self::keepers::{KeeperEnd, KeeperPair, keeper_pair};
pub use self::message::{BUILD, MAX_DESCRIPTORS, MAX_HOLDERS, VERSION};
pub(crate) use self::server::Server;
pub use self::status::{
    Counter, DeviceState, DirectStatus, InterfaceStatus, KernelStatus, NodeStatus, ProcessStatus,
    RemoteStatus, SocketState, SocketStatus, StackStatus, TcpStatus, TimerStatus,
};
