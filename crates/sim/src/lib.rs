//! A deterministic network of stacks under virtual time, for tests.
//!
//! - [`script`]: packet scripts, for exact exchanges with one stack;
//! - [`network`]: many stacks on a switch with faults, and programs that check
//!   their streams;
//! - [`seed`]: the seeds of a test, and how to repeat a failed one;
//! - [`host`] and [`packet`]: one stack, and segments built by tests.
#![forbid(unsafe_code)]

pub mod endpoint;
pub mod host;
pub mod network;
pub mod packet;
pub mod script;
pub mod seed;
pub mod stream;
