//! Which stamps are taken of which round trip.
//!
//! Stamps change what they measure. So a round trip has the two stamps of one pair of edges, and
//! blocks of round trips differ in their use. All actors derive both from the round trip's number,
//! so they agree without a word.

mod block_use;
mod pair;
mod rotation;

pub use block_use::BlockUse;
pub use pair::{PairId, PairKind, StampPair};
pub use rotation::{DEFAULT_BLOCK, TracePlan};
