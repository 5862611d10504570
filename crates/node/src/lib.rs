//! A node: one network identity, shared by the processes of its programs.
//!
//! An *engine process* keeps the node alive: it has the node's place in its
//! fabric and hands every process that attaches what it needs.
//!
//! | folder | what |
//! | --- | --- |
//! | `fabric` | where nodes find one another: names, addresses, records |
//! | `control` | what an engine process and those who reach it say to one another |
//! | `engine` | the engine process |
//! | `settings` | what a node is told: one table |
//! | `placement` | who runs the node's stack |

#![forbid(unsafe_code)]

mod as_text;
pub mod control;
pub mod engine;
pub mod fabric;
mod placement;
pub mod settings;

pub use self::placement::{InvalidPlacement, Placement};
