//! Direct connections: two nodes of one host exchange bytes in memory that both map.
//!
//! A *bank* is [`CONNECTIONS`] connections that one node opens to another one. The node that
//! opens is side 0, the node that accepts is side 1. Each side makes three memories:
//!
//! | memory | written by | mapped by the peer |
//! | --- | --- | --- |
//! | [`Half`]: lines and byte rings of this side | this node | for reading, as a [`PeerHalf`] |
//! | [`Signals`] to this side: ready bits, bells, accept queues | both | for writing: hints only |
//! | [`Ends`]: locks and what this side has seen | this node | never |
//!
//! A node has two more, whatever the number of its banks. One is the [`Directory`] of its listeners
//! and waiters, which peers read as a [`PeerDirectory`]. The other is the [`Journal`] of its
//! threads.
//!
//! [`bank`] is the layout of all of them. A word that a peer writes is loaded once, checked, and
//! then used. No word of a peer can make this node access memory outside of the peer's half.

mod accept_queue;
mod audience;
pub mod bank;
#[cfg(not(loom))]
mod bell_set;
#[cfg(not(loom))]
mod bitmaps;
#[cfg(not(loom))]
mod byte_ring;
#[cfg(not(loom))]
mod directory;
#[cfg(not(loom))]
mod end;
#[cfg(not(loom))]
mod ending;
#[cfg(not(loom))]
mod ends;
#[cfg(not(loom))]
mod half;
#[cfg(not(loom))]
mod handle;
#[cfg(not(loom))]
mod interruptible;
#[cfg(not(loom))]
mod journal;
mod lines;
mod lock;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod numbers;
#[cfg(not(loom))]
mod port_batch;
mod ready_set;
#[cfg(not(loom))]
mod record;
#[cfg(not(loom))]
mod recording;
#[cfg(not(loom))]
mod recover;
#[cfg(not(loom))]
mod signals;
#[cfg(all(test, not(any(loom, miri))))]
mod tests;
mod waiter;
#[cfg(not(loom))]
mod waiters;

pub use accept_queue::{ConnectionId, OfferError};
pub use audience::WaiterNumber;
pub use bank::{CONNECTIONS, Class, LISTENERS, PROCESSES, QUEUE_LEN, THREADS, WAITERS};
#[cfg(not(loom))]
pub use bell_set::{BELLS, BellError, BellSet};
#[cfg(not(loom))]
pub use directory::{Directory, Found, Listing, PeerDirectory};
#[cfg(not(loom))]
pub use end::{Amount, ArmError, End, Look, Noted, ReceiveError, SendError, Take, Wish};
#[cfg(not(loom))]
pub use ends::Ends;
#[cfg(not(loom))]
pub use half::{Half, PeerHalf};
#[cfg(not(loom))]
pub use handle::{Bank, BeginError, Beginning, ConnectError, unwatch, watch};
#[cfg(not(loom))]
pub use interruptible::{Interruptible, end_own_sleep};
#[cfg(not(loom))]
pub use journal::{Begun, Journal, Place, Side, Step};
pub use lines::{MOST_WINDOW, Offence, StreamState};
pub use lock::{Reentered, ThreadNumber};
#[cfg(not(loom))]
pub use memory::MemoryError;
#[cfg(not(loom))]
pub use port_batch::{IDLE_NS, MOST_PORTS, PortBatch};
#[cfg(not(loom))]
pub use record::{ListenerId, Record};
#[cfg(not(loom))]
pub use recording::{ControlFlag, SegmentRecorder, StreamSegment};
#[cfg(not(loom))]
pub use signals::Signals;
#[cfg(not(loom))]
pub use waiters::{MOST_SIGNALS, Sleep, WaiterKind, Waiters, Woken, is_supported};
