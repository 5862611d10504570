//! Nodes that several processes share, and what becomes of them when processes die.

mod engine_killed;
mod killed;
mod processes;
mod programs;
mod sharing;
mod support;
