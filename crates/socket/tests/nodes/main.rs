//! Nodes that several processes share, and what becomes of them when processes die.

mod attaching;
mod bounds;
mod descriptors;
mod engine_killed;
mod exhaustion;
mod forks;
mod killed;
mod lanes;
mod lingering;
mod polls;
mod processes;
mod programs;
mod relays;
mod roles;
mod scribbled;
mod shards;
#[path = "../shared/mod.rs"]
mod shared;
mod sharing;
mod stopped;
mod support;
mod switching;
