//! Tagged messages over RMPP, as a passive state machine.
//!
//! | part | what it owns |
//! | --- | --- |
//! | [`matching`] | posted receives, unexpected messages, and the strategies that search them |
//! | `rmpp` | the state of a flow: numbers, acknowledgement, grants, repetition |
//! | [`endpoint`] | the tables of an endpoint, and what ties both parts together |
//!
//! The crate has no clock, no thread, no global and no I/O. Packets, time and the program's
//! memory come from the caller. A packet of any content causes at most a counted drop, an
//! answer, or the end of its own flow.
#![forbid(unsafe_code)]

mod counters;
pub mod endpoint;
mod entries;
mod links;
pub mod matching;
mod moment;
mod names;
mod payload;
mod rmpp;

pub use counters::MessageCounters;
pub use entries::EntryId;
pub use moment::Moment;
pub use names::{FlowId, FlowKind, ReceiveId, ReceiveKind, SendId, SendKind};
pub use rmpp::flow::FlowPath;
