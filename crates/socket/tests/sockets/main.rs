//! Sockets as programs use them: on two nodes of this process, on a fabric, and
//! between processes.

mod beside;
mod engine;
mod errors;
mod fabric;
mod lanes;
mod listeners;
mod nests;
mod options;
mod polls;
mod polls_like_epoll;
mod processes;
mod shards;
#[path = "../shared/mod.rs"]
mod shared;
mod streams;
mod support;
mod threads;
mod waiting;
