//! A deterministic network of stacks under virtual time, for tests.
//!
//! - [`script`]: packet scripts, for exact exchanges with one stack;
//! - [`network`]: many stacks on a switch, with faults on the way, whose programs
//!   check the streams they get;
//! - [`seed`]: which seeds a test runs with, and how one that fails is repeated;
//! - [`host`] and [`packet`]: one stack, and segments made by hand.
#![forbid(unsafe_code)]

pub mod endpoint;
pub mod host;
pub mod network;
pub mod packet;
pub mod script;
pub mod seed;
pub mod stream;
