//! The hops whose sum can be deduced from intervals on single clocks.

use super::edges::EdgeSpan;

/// Hops of a round trip whose sum is one interval minus others.
///
/// On one clock `t1` and `t4` are the edges around everything that happens at the other actors, and
/// `t2` and `t3` are theirs. Then the hops took `(t4 − t1) − (t3 − t2)` together (SPLINTER.md §7).
/// No interval of unrelated clocks tells one of the hops from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopGroup {
    /// The hops, as indices of the round trip's steps.
    pub hops: Vec<usize>,
    /// The interval around all hops.
    pub outer: EdgeSpan,
    /// The intervals between the hops.
    pub inner: Vec<EdgeSpan>,
}
