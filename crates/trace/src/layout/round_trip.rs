//! The stages of a round trip: a message from A to B, and one back.

use super::edges::{EdgeId, EdgeSpan};
use super::hop_group::HopGroup;
use super::one_way::StagePath;
use crate::actor::{Actor, PathEnd};
use crate::stage::Stage;

/// A stage of a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TripStep {
    /// The stage.
    pub stage: Stage,
    /// The end whose message the step belongs to.
    pub sender: PathEnd,
    /// The actor that runs it; `None` for a hop.
    pub actor: Option<Actor>,
    /// The interval of the stage; `None` for a hop.
    pub span: Option<EdgeSpan>,
}

/// Stages that one actor runs without a hop between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActorTurn {
    /// The first step's index, and the index behind the last step.
    pub(crate) steps: (usize, usize),
    /// The interval of all its stages.
    pub(crate) span: EdgeSpan,
}

/// The stages of a round trip, in order, from the moment at which end A's program sees an answer.
///
/// A round trip begins with end A's program receiving, and sending the next message. It ends when
/// the answer to that message has come. Each actor numbers round trips from its own first edge.
///
/// # Edges
///
/// Each stage begins at an edge of its own, and each actor's run of stages ends at one more. The
/// stamp at a last edge is taken *before* the store that hands the message over. The stamp at a
/// first edge is taken after the load that saw the message. So a stamp's cost never runs in
/// parallel with what it measures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TripPath {
    path: StagePath,
    steps: Vec<TripStep>,
    beside: Vec<TripStep>,
    turns: Vec<ActorTurn>,
    groups: Vec<HopGroup>,
    edges: Vec<Actor>,
}

impl TripPath {
    /// The round trip over a path and the equal path back.
    pub fn new(path: &StagePath) -> Self {
        let mut trip = Self {
            path: path.clone(),
            steps: steps_in_order(path),
            beside: Vec::new(),
            turns: Vec::new(),
            groups: Vec::new(),
            edges: Vec::new(),
        };
        trip.number_edges();
        trip.number_edges_beside();
        trip.groups = trip.groups_of_hops();
        trip
    }

    /// The path of each of the two messages.
    pub fn path(&self) -> &StagePath {
        &self.path
    }

    /// The steps on the path, in order.
    pub fn steps(&self) -> &[TripStep] {
        &self.steps
    }

    /// The stages beside the path, of both messages.
    pub fn beside(&self) -> &[TripStep] {
        &self.beside
    }

    /// The hops by what can be deduced of them.
    ///
    /// The way back may meet the actors of the way out. Then each pair of neighbours has a group
    /// with a hop out and a hop back. Otherwise all hops are one group.
    pub fn hop_groups(&self) -> &[HopGroup] {
        &self.groups
    }

    /// The actor of each edge, by the edge's index.
    pub fn edges(&self) -> &[Actor] {
        &self.edges
    }

    /// The edge at which an actor begins a round trip; `None` if it has no stage on the path.
    pub fn first_edge(&self, actor: Actor) -> Option<EdgeId> {
        let first = self.turns.iter().find(|turn| turn.span.actor == actor);
        first.map(|turn| turn.span.from)
    }

    /// The actors on the path, in the order of a round trip.
    pub fn actors(&self) -> impl Iterator<Item = Actor> {
        Actor::ALL
            .into_iter()
            .filter(|actor| self.first_edge(*actor).is_some())
    }

    pub(crate) fn turns(&self) -> &[ActorTurn] {
        &self.turns
    }

    fn add_edge(&mut self, actor: Actor) -> EdgeId {
        self.edges.push(actor);
        EdgeId((self.edges.len() - 1) as u8)
    }

    fn number_edges(&mut self) {
        let mut at = 0;
        while at < self.steps.len() {
            let Some(actor) = self.steps[at].actor else {
                at += 1;
                continue;
            };
            let first = at;
            let mut from = self.add_edge(actor);
            let turn_begins = from;
            while at < self.steps.len() && self.steps[at].actor == Some(actor) {
                let to = self.add_edge(actor);
                self.steps[at].span = Some(EdgeSpan { actor, from, to });
                from = to;
                at += 1;
            }
            let span = EdgeSpan {
                actor,
                from: turn_begins,
                to: from,
            };
            self.turns.push(ActorTurn {
                steps: (first, at),
                span,
            });
        }
    }

    fn number_edges_beside(&mut self) {
        for sender in [PathEnd::A, PathEnd::B] {
            for step in self.path.clone().beside() {
                let Some(actor) = step.place.actor(sender) else {
                    continue;
                };
                let (from, to) = (self.add_edge(actor), self.add_edge(actor));
                self.beside.push(TripStep {
                    stage: step.stage,
                    sender,
                    actor: Some(actor),
                    span: Some(EdgeSpan { actor, from, to }),
                });
            }
        }
    }

    fn groups_of_hops(&self) -> Vec<HopGroup> {
        let count = self.turns.len();
        let actor = |turn: usize| self.turns[turn].span.actor;
        let retraces = (1..count).all(|turn| actor(turn) == actor(count - turn));
        if retraces {
            (0..count / 2).map(|near| self.crossing(near)).collect()
        } else {
            vec![self.all_hops_together()]
        }
    }

    /// The hops between a turn and the next one, and between their actors on the way back.
    fn crossing(&self, near: usize) -> HopGroup {
        let far = near + 1;
        let (back_far, back_near) = (self.turns.len() - far, self.turns.len() - near);
        let hops = self.hops_before(far).chain(self.hops_before(back_near)).collect();
        let at_near = |turn: usize| self.turns[turn % self.turns.len()].span;
        // Short intervals have little jitter: the first program's own turn is the inner one.
        let (outer, inner) = if near == 0 && self.turns.len() > 2 {
            (gap(at_near(back_far), at_near(far)), at_near(near))
        } else {
            (
                gap(at_near(near), at_near(back_near)),
                around(at_near(far), at_near(back_far)),
            )
        };
        HopGroup {
            hops,
            outer,
            inner: vec![inner],
        }
    }

    fn all_hops_together(&self) -> HopGroup {
        let first = self.turns[0].span;
        HopGroup {
            hops: (1..=self.turns.len())
                .flat_map(|turn| self.hops_before(turn))
                .collect(),
            outer: gap(first, first),
            inner: self.turns[1..].iter().map(|turn| turn.span).collect(),
        }
    }

    /// The steps between a turn and the one before. The turn behind the last is the next trip's.
    fn hops_before(&self, turn: usize) -> std::ops::Range<usize> {
        let to = match self.turns.get(turn) {
            Some(turn) => turn.steps.0,
            None => self.steps.len(),
        };
        self.turns[turn - 1].steps.1..to
    }
}

/// The time from the end of one interval to the beginning of another.
fn gap(before: EdgeSpan, behind: EdgeSpan) -> EdgeSpan {
    EdgeSpan {
        actor: before.actor,
        from: before.to,
        to: behind.from,
    }
}

/// The time from the beginning of one interval to the end of another.
fn around(first: EdgeSpan, last: EdgeSpan) -> EdgeSpan {
    EdgeSpan {
        actor: first.actor,
        from: first.from,
        to: last.to,
    }
}

/// The steps of both messages, from the first one behind the hop to end A's program.
fn steps_in_order(path: &StagePath) -> Vec<TripStep> {
    let of = |sender: PathEnd| {
        path.steps().iter().map(move |step| TripStep {
            stage: step.stage,
            sender,
            actor: step.place.actor(sender),
            span: None,
        })
    };
    let mut back: Vec<TripStep> = of(PathEnd::B).collect();
    let last_hop = back.iter().rposition(|step| step.actor.is_none());
    let received = back.split_off(last_hop.map_or(0, |hop| hop + 1));
    received.into_iter().chain(of(PathEnd::A)).chain(back).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{HandOver, PathKind};
    use crate::stage::StageSet;
    use Stage::*;

    const SENDING: [Stage; 3] = [RmppSend, Fetch, LinkSend];
    const RECEIVING: [Stage; 6] = [LinkReceive, RmppReceive, Match, Place, Event, Ack];

    fn trip(engine: impl IntoIterator<Item = Stage>) -> TripPath {
        let engine = StageSet::of(engine);
        TripPath::new(&StagePath::new(PathKind::Message, engine, HandOver::Line).unwrap())
    }

    fn names(trip: &TripPath, hops: &[usize]) -> Vec<Stage> {
        hops.iter().map(|hop| trip.steps()[*hop].stage).collect()
    }

    #[test]
    fn inline_round_trip_has_one_group_with_both_wires() {
        let trip = trip([]);
        let [group] = trip.hop_groups() else {
            panic!("{} groups", trip.hop_groups().len());
        };
        assert_eq!(names(&trip, &group.hops), [Wire, Wire]);
        assert_eq!(group.outer.actor, Actor::REFERENCE);
        assert!(group.outer.wraps());
        assert_eq!(Some(group.outer.to), trip.first_edge(Actor::REFERENCE));
    }

    #[test]
    fn engines_at_both_sides_give_a_group_for_each_neighbour() {
        let trip = trip(SENDING.into_iter().chain(RECEIVING));
        let groups: Vec<Vec<Stage>> = trip
            .hop_groups()
            .iter()
            .map(|group| names(&trip, &group.hops))
            .collect();
        assert_eq!(groups, [[HandWork, HandRest], [Wire, Wire], [HandRest, HandWork]]);
        assert_eq!(trip.beside().len(), 2);
    }

    #[test]
    fn engine_at_one_side_only_gives_one_group_of_all_hops() {
        let trip = trip(RECEIVING);
        let [group] = trip.hop_groups() else {
            panic!("{} groups", trip.hop_groups().len());
        };
        assert_eq!(names(&trip, &group.hops), [Wire, HandRest, Wire, HandRest]);
        assert_eq!(group.inner.len(), 3);
    }

    #[test]
    fn each_span_is_one_actor_and_wraps_only_to_its_first_edge() {
        for engine in [
            vec![],
            SENDING.to_vec(),
            RECEIVING.to_vec(),
            [&SENDING[..], &RECEIVING].concat(),
        ] {
            let trip = trip(engine);
            let groups = trip.hop_groups().iter();
            let spans = groups.flat_map(|group| group.inner.iter().copied().chain([group.outer]));
            let steps = trip.steps().iter().chain(trip.beside());
            for span in spans.chain(steps.filter_map(|step| step.span)) {
                assert_eq!(trip.edges()[span.from.index()], span.actor);
                assert_eq!(trip.edges()[span.to.index()], span.actor);
                assert!(!span.wraps() || Some(span.to) == trip.first_edge(span.actor));
            }
        }
    }

    #[test]
    fn steps_of_a_round_trip_are_two_paths() {
        let trip = trip(RECEIVING);
        assert_eq!(trip.steps().len(), 2 * trip.path().steps().len());
        assert_eq!(trip.steps()[0].actor, Some(Actor::REFERENCE));
        assert_eq!(trip.steps()[0].stage, CallReceive);
        assert_eq!(trip.steps().last().map(|step| step.stage), Some(HandRest));
    }
}
