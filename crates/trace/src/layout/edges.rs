//! Edges: the points of an actor's work at which a stamp can be taken.

use crate::actor::Actor;

/// The index of an edge in its round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeId(pub(crate) u8);

impl EdgeId {
    /// The edge's number, from 0.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The time from one edge to another, both of one actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeSpan {
    /// The actor, whose clock measures the time.
    pub actor: Actor,
    /// The first edge.
    pub from: EdgeId,
    /// The last edge.
    pub to: EdgeId,
}

impl EdgeSpan {
    /// Returns `true` if the span ends in the next round trip.
    ///
    /// Edges are numbered in their order of time within a round trip. Such a span always ends at
    /// its actor's first edge.
    pub fn wraps(&self) -> bool {
        self.to < self.from
    }
}
