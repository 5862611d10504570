//! TcpListener, TcpStream and Poll on a Toehold node: std's names and meanings,
//! without the kernel.
//!
//! A [`Node`] holds the memory, the TCP/IP stack and the link of one network identity.
//! [`TcpListener::bind`] and [`TcpStream::connect`] take it as their first argument; the other
//! methods are those of `std::net`. [`Poll`] waits for many sockets, like mio's.
//!
//! A call that has to wait drives the stack itself. It looks for frames, for as long as that is
//! likely to help, and then sleeps until the link wakes it. Of several threads that wait one does
//! so on behalf of all. While no thread of the program is in a call, a thread of the node's own
//! takes care of arrivals and timers; see [`Placement`].
//!
//! | file | what |
//! | --- | --- |
//! | `node` | a node as programs hold it |
//! | `stream`, `listener`, `poll` | the sockets |
#![forbid(unsafe_code)]

mod error;
mod listener;
mod node;
mod poll;
mod stream;

pub use listener::{Incoming, TcpListener};
pub use node::{Node, StackInfo};
pub use poll::{Beside, Event, Events, Interest, Iter, Poll, Registry, Source, Token, Waited, Waker};
pub use stream::{ConnectOptions, Keepalive, ReceiveOptions, SendOptions, TcpStream};
pub use toehold_link::impair::{ImpairSettings, Impairments};
pub use toehold_node::fabric::Fabric;
pub use toehold_node::{AttachError, Description, NodeConfig, NodeError, Placement, Relayed, local_tcp};
pub use toehold_stack::{
    CongestionAlgorithm, CongestionState, Counters, DemuxStrategy, Details, Info, NetworkReport, Readiness,
    Settings, SocketOption, State, TcpConfig,
};
