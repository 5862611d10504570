//! The state of a flow: what RMPP keeps for each pair of lives.
//!
//! Each file has one concern and knows of no other. `flow.rs` holds them together.

pub(crate) mod acknowledge;
pub(crate) mod credit;
pub(crate) mod early;
pub(crate) mod flow;
pub(crate) mod round_trip;
pub(crate) mod sent;
pub(crate) mod tombstones;
pub(crate) mod window;
