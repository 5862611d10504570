//! Layouts: the stages of a message one way, and of a round trip, with the actor of each.
//!
//! [`StagePath`] is one way, from the sender's program to the receiver's. [`TripPath`] is a round
//! trip over two such ways. It knows the edges at which stamps are taken, and the groups of hops
//! that can be deduced from them.

mod edges;
mod hop_group;
mod one_way;
mod round_trip;
mod tables;

pub use edges::{EdgeId, EdgeSpan};
pub use hop_group::HopGroup;
pub use one_way::{HandOver, PathError, PathStep, StagePath, StepPlace};
pub use round_trip::{TripPath, TripStep};
pub use tables::PathKind;
