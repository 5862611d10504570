//! A node: one network identity, shared by the processes of its programs.
//!
//! Its state lies in a region. It has the stack, the threads that wait, and the lease that lets one
//! thread of one process at a time touch it. A process that has attached to the region reaches the
//! state through a [`ShardHandle`]. An *engine process* keeps the node alive: it has the node's
//! place in its fabric and hands every process that attaches what it needs.
//!
//! | file or folder | what |
//! | --- | --- |
//! | `memory` | what lies in a shard's region |
//! | `shards` | the ways to all shards of a node |
//! | `shard` | a stack, its link, and the threads that wait and what for |
//! | `wait` | which thread drives and which ones rest |
//! | `driver` | driving while no program does |
//! | `local` | a node whose engine is this process |
//! | `attached`, `attachment`, `lookout` | a node whose engine is another process |
//! | `estate` | what forked children take over of such a node |
//! | `holder` | descriptors that keep connections and listeners open |
//! | `description` | what all holders of a socket share beside its stack |
//! | `direct` | connections that need neither the stack nor the lease |
//! | `ownership` | that a process has a connection, a listener, a poll |
//! | `kernel` | the kernel's stack beside the node's, over a TAP device |
//! | `config`, `settings` | what a node is told when it is made: by a program, by a command |
//! | `placement` | which threads run the node's stack |
//! | `processes`, `quota` | the node's processes as the system sees them, and which have little processor time |
//! | `fabric` | where nodes find one another: names, addresses, records |
//! | `control` | the messages between an engine process and its clients |
//! | `engine` | the engine process |
//! | `run` | what a program is told that runs on a node: where the library is, and the node |
//! | `usage` | what programs have used of a node |
//! | `uplink` | members without a stack, which lead to other hosts or to the kernel |

#![forbid(unsafe_code)]

mod as_text;
mod attached;
mod attachment;
mod callers;
mod clock;
mod config;
pub mod control;
mod description;
mod descriptors;
pub mod direct;
mod driver;
pub mod engine;
mod error;
mod estate;
pub mod fabric;
mod holder;
pub mod interrupts;
pub mod kernel;
mod local;
mod lookout;
mod memory;
mod ownership;
mod placement;
mod probe;
mod processes;
mod quota;
pub mod run;
mod seen;
pub mod settings;
mod shard;
mod shards;
pub mod uplink;
pub mod usage;
mod wait;
pub mod why;

pub use toehold_shm::{Direction, Lane, LaneLock, LaneState, Moved, note_fork};

pub use self::attached::{AttachError, AttachedNode};
pub use self::callers::{Callers, Forwarded};
pub use self::config::{NodeConfig, local_tcp};
pub use self::description::Description;
pub use self::descriptors::keep_above;
pub use self::error::NodeError;
pub use self::holder::{Holder, HolderError};
pub use self::local::LocalNode;
pub use self::ownership::{Ownership, Relayed};
pub use self::placement::{InvalidPlacement, Placement};
pub use self::shard::{Interest, Shard, Subscription, Told, Watched};
pub use self::shards::Shards;
pub use self::wait::{Beside, Everywhere, Glance, Gone, Guard, Operation, ShardHandle, SpinBudget};
