//! Pairs of edges: what two stamps of one round trip measure.

use crate::actor::Actor;
use crate::layout::{EdgeSpan, TripPath};

/// The index of a pair in its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairId(pub(crate) u16);

impl PairId {
    /// The pair's number, from 0.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What the time between a pair's stamps is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PairKind {
    /// A stage on the path, by its index among the round trip's steps.
    Stage(usize),
    /// A stage beside the path, by its index there.
    Beside(usize),
    /// All stages that an actor runs one after another, by the turn's index.
    Turn(usize),
    /// The interval around a group's hops, by the group's index.
    Outer(usize),
    /// An interval between the hops of a group, which is more than one turn.
    Inner(usize),
    /// Two stamps with nothing between them: the cost of fenced stamps.
    Empty(Actor),
}

/// Two edges of one actor, or one edge twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampPair {
    /// What the pair measures.
    pub kind: PairKind,
    /// The actor and the edges.
    pub span: EdgeSpan,
}

impl StampPair {
    fn new(kind: PairKind, span: EdgeSpan) -> Self {
        Self { kind, span }
    }

    /// Returns `true` if the pair's last stamp is taken in the next round trip.
    pub fn wraps(&self) -> bool {
        self.span.wraps()
    }
}

/// All pairs of a round trip.
pub(super) fn pairs_of(trip: &TripPath) -> Vec<StampPair> {
    let mut pairs = Vec::new();
    for (index, step) in trip.steps().iter().enumerate() {
        pairs.extend(step.span.map(|span| StampPair::new(PairKind::Stage(index), span)));
    }
    for (index, step) in trip.beside().iter().enumerate() {
        pairs.extend(
            step.span
                .map(|span| StampPair::new(PairKind::Beside(index), span)),
        );
    }
    for (index, turn) in trip.turns().iter().enumerate() {
        pairs.push(StampPair::new(PairKind::Turn(index), turn.span));
    }
    for (index, group) in trip.hop_groups().iter().enumerate() {
        pairs.push(StampPair::new(PairKind::Outer(index), group.outer));
        for inner in &group.inner {
            if !trip.turns().iter().any(|turn| turn.span == *inner) {
                pairs.push(StampPair::new(PairKind::Inner(index), *inner));
            }
        }
    }
    for actor in trip.actors() {
        if let Some(edge) = trip.first_edge(actor) {
            let span = EdgeSpan {
                actor,
                from: edge,
                to: edge,
            };
            pairs.push(StampPair::new(PairKind::Empty(actor), span));
        }
    }
    pairs
}
