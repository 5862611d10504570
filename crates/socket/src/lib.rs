//! TcpListener, TcpStream and Poll on a Toehold node: std's names and meanings,
//! without the kernel.
//!
//! A [`Node`] holds the memory, the TCP/IP stack and the link of one network
//! identity. [`TcpListener::bind`] and [`TcpStream::connect`] take it as their
//! first argument; everything else is as in `std::net`. [`Poll`] waits for many
//! sockets, as mio's does.
//!
//! A call that has to wait drives the stack itself: it looks for frames, for as
//! long as that is likely to help, and then sleeps until the link wakes it. Of
//! several threads that wait one does so on behalf of all. While no thread of
//! the program is in a call, a thread of the node's own takes care of what
//! arrives and of the timers; see [`Placement`].
//!
//! | file | what |
//! | --- | --- |
//! | `node`, `config` | making a node, ending it |
//! | `stream`, `listener`, `poll` | the sockets |
//! | `wait` | who drives and who rests; with `lock`, `parker`, `spin` |
//! | `engine` | driving while the program is away |
//! | `shard`, `interests` | a stack, its link, and who waits for what |
#![forbid(unsafe_code)]

mod clock;
mod config;
mod engine;
mod error;
mod interests;
mod listener;
mod lock;
mod node;
mod parker;
mod poll;
mod shard;
mod spin;
mod stream;
mod wait;

pub use config::{NodeConfig, local_tcp};
pub use engine::Placement;
pub use error::NodeError;
pub use listener::{Incoming, TcpListener};
pub use node::{Node, StackInfo};
pub use poll::{Event, Events, Interest, Iter, Poll, Registry, Source, Token, Waker};
pub use stream::{ConnectOptions, Keepalive, TcpStream};
pub use toehold_link::impair::{ImpairSettings, Impairments};
pub use toehold_stack::{
    CongestionAlgorithm, Counters, DemuxStrategy, Info, Settings, SocketOption, State, TcpConfig,
};
