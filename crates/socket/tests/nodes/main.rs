//! Nodes that several processes share, and what becomes of them when processes die.

mod descriptors;
mod engine_killed;
mod exhaustion;
mod forks;
mod killed;
mod processes;
mod programs;
mod roles;
mod sharing;
mod support;
