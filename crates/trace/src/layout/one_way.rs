//! The stages of a message one way.

use super::tables::{PathKind, StageTable, table};
use crate::actor::{Actor, ActorKind, PathEnd};
use crate::stage::{Stage, StageSet};
use thiserror::Error;

/// How the thread that waits for the message gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOver {
    /// The thread looks at memory on a processor of its own, so a cache line is the way.
    Line,
    /// The thread sleeps or has no processor. The way includes the time until it runs.
    Turn,
}

/// Where a stage belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepPlace {
    /// Work of the end that sends this message.
    Sender(ActorKind),
    /// Work of the end that receives this message.
    Receiver(ActorKind),
    /// The way from the actor of the step before to that of the step behind.
    Hop,
}

impl StepPlace {
    /// The actor of the step, if `sender` is the end that sends; `None` for a hop.
    pub fn actor(self, sender: PathEnd) -> Option<Actor> {
        match self {
            Self::Sender(kind) => Some(Actor::new(sender, kind)),
            Self::Receiver(kind) => Some(Actor::new(sender.peer(), kind)),
            Self::Hop => None,
        }
    }
}

/// A stage at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathStep {
    /// The stage.
    pub stage: Stage,
    /// The actor that runs it, or a hop.
    pub place: StepPlace,
}

/// A layout that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PathError {
    /// The kind of path has no such stage, or an engine can never run it.
    #[error("the engine cannot run {0} on this path")]
    NotMovable(Stage),
    /// The engine would hand over twice: its stages must be the end of sending, and the beginning
    /// of receiving.
    #[error("the stages of the engine do not follow one another at {0}")]
    NotContiguous(Stage),
}

/// The stages of a message from the sender's program to the receiver's, in order.
///
/// # Examples
///
/// ```
/// use toehold_trace::layout::{HandOver, PathKind, StagePath};
/// use toehold_trace::stage::{Stage, StageSet};
///
/// let engine = StageSet::of([Stage::LinkReceive, Stage::RmppReceive, Stage::Match]);
/// let path = StagePath::new(PathKind::Message, engine, HandOver::Line)?;
/// assert!(path.steps().iter().any(|step| step.stage == Stage::HandRest));
/// # Ok::<(), toehold_trace::layout::PathError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagePath {
    kind: PathKind,
    engine: StageSet,
    hand_over: HandOver,
    steps: Vec<PathStep>,
    beside: Vec<PathStep>,
}

impl StagePath {
    /// The layout of a kind of path, whose `engine` stages run in the engine at both ends.
    ///
    /// SPLINTER.md §6 has the sets that are allowed for messages. An engine runs the last stages
    /// of sending, and the first ones of receiving, without a gap. A stage for which nothing on
    /// the path waits lies beside it.
    ///
    /// # Errors
    ///
    /// [`PathError`] names the first stage that breaks one of these rules.
    pub fn new(kind: PathKind, engine: StageSet, hand_over: HandOver) -> Result<Self, PathError> {
        let table = table(kind);
        if let Some(stage) = engine.iter().find(|stage| !table.movable.contains(stage)) {
            return Err(PathError::NotMovable(stage));
        }
        let runs_at = |stage: Stage| {
            if engine.contains(stage) {
                ActorKind::Engine
            } else {
                ActorKind::Program
            }
        };
        let is_beside = |stage: Stage| lies_beside(table, stage, engine, hand_over);
        let (mut steps, mut beside) = (Vec::new(), Vec::new());
        for &stage in table.sender {
            let place = StepPlace::Sender(runs_at(stage));
            let list = if is_beside(stage) { &mut beside } else { &mut steps };
            list.push(PathStep { stage, place });
        }
        for &stage in table.receiver {
            let place = StepPlace::Receiver(runs_at(stage));
            let list = if is_beside(stage) { &mut beside } else { &mut steps };
            list.push(PathStep { stage, place });
        }
        let is_received = |step: &PathStep| matches!(step.place, StepPlace::Receiver(ActorKind::Engine));
        if let Some(step) = beside.iter().find(|step| is_received(step))
            && !steps.iter().any(is_received)
        {
            return Err(PathError::NotContiguous(step.stage));
        }
        Ok(Self {
            kind,
            engine,
            hand_over,
            steps: with_hops(&steps, table.crossing, hand_over)?,
            beside,
        })
    }

    /// The layout with other stages in the engine.
    ///
    /// # Errors
    ///
    /// The errors of [`StagePath::new`].
    pub fn with_engine(&self, engine: StageSet) -> Result<Self, PathError> {
        Self::new(self.kind, engine, self.hand_over)
    }

    /// The protocol that carries the message.
    pub fn kind(&self) -> PathKind {
        self.kind
    }

    /// The stages that the engine runs.
    pub fn engine(&self) -> StageSet {
        self.engine
    }

    /// How the program that waits gets the message.
    pub fn hand_over(&self) -> HandOver {
        self.hand_over
    }

    /// The stages on the path, in order. Their times add up to the time of the message.
    pub fn steps(&self) -> &[PathStep] {
        &self.steps
    }

    /// The stages beside the path. Nothing on the path waits for them, so they are never added.
    pub fn beside(&self) -> &[PathStep] {
        &self.beside
    }
}

fn lies_beside(table: &StageTable, stage: Stage, engine: StageSet, hand_over: HandOver) -> bool {
    let on_engine = table.beside_on_engine.contains(&stage) && engine.contains(stage);
    on_engine || (table.beside_while_looking.contains(&stage) && hand_over == HandOver::Line)
}

/// The work with a hop wherever the actor changes.
fn with_hops(work: &[PathStep], crossing: Stage, hand_over: HandOver) -> Result<Vec<PathStep>, PathError> {
    use ActorKind::{Engine, Program};
    use StepPlace::{Hop, Receiver, Sender};
    let woken = |stage: Stage| match hand_over {
        HandOver::Line => stage,
        HandOver::Turn => Stage::Turn,
    };
    let mut steps: Vec<PathStep> = Vec::with_capacity(work.len() + 3);
    for step in work {
        let hop = match (steps.last().map(|last| last.place), step.place) {
            (Some(Sender(Program)), Sender(Engine)) => Some(Stage::HandWork),
            (Some(Receiver(Engine)), Receiver(Program)) => Some(woken(Stage::HandRest)),
            (Some(Sender(_)), Receiver(Program)) => Some(woken(crossing)),
            (Some(Sender(_)), Receiver(Engine)) => Some(crossing),
            (None, _) => None,
            (Some(before), place) if before == place => None,
            _ => return Err(PathError::NotContiguous(step.stage)),
        };
        steps.extend(hop.map(|stage| PathStep { stage, place: Hop }));
        steps.push(*step);
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stage::*;

    const RECEIVING: [Stage; 5] = [LinkReceive, RmppReceive, Match, Place, Event];

    fn stages(path: &StagePath) -> Vec<Stage> {
        path.steps().iter().map(|step| step.stage).collect()
    }

    fn message(engine: &[Stage]) -> Result<StagePath, PathError> {
        StagePath::new(
            PathKind::Message,
            StageSet::of(engine.iter().copied()),
            HandOver::Line,
        )
    }

    #[test]
    fn inline_message_has_one_hop_and_its_ack_on_the_path() {
        let path = message(&[]).unwrap();
        let hops: Vec<Stage> = stages(&path).into_iter().filter(|stage| stage.is_hop()).collect();
        assert_eq!(hops, [Wire]);
        assert!(stages(&path).contains(&Ack));
        assert_eq!(path.beside(), []);
    }

    #[test]
    fn engine_message_has_three_hops_and_its_ack_beside() {
        let engine = [RmppSend, Fetch, LinkSend, Ack].into_iter().chain(RECEIVING);
        let path = message(&engine.collect::<Vec<_>>()).unwrap();
        let hops: Vec<Stage> = stages(&path).into_iter().filter(|stage| stage.is_hop()).collect();
        assert_eq!(hops, [HandWork, Wire, HandRest]);
        assert_eq!(path.beside().len(), 1);
        assert!(!stages(&path).contains(&Ack));
    }

    #[test]
    fn engine_that_would_hand_over_twice_is_refused() {
        assert_eq!(
            message(&[LinkReceive, Match]),
            Err(PathError::NotContiguous(Match))
        );
        assert_eq!(message(&[RmppSend]), Err(PathError::NotContiguous(Fetch)));
        assert_eq!(message(&[Match]), Err(PathError::NotContiguous(Match)));
        assert_eq!(message(&[Ack]), Err(PathError::NotContiguous(Ack)));
    }

    #[test]
    fn stage_that_no_engine_runs_is_refused() {
        assert_eq!(message(&[MpiSend]), Err(PathError::NotMovable(MpiSend)));
        let direct = StagePath::new(PathKind::Direct, StageSet::of([CopyIn]), HandOver::Line);
        assert_eq!(direct, Err(PathError::NotMovable(CopyIn)));
    }

    #[test]
    fn direct_connection_notifies_on_the_path_only_for_a_sleeper() {
        let path = |hand_over| StagePath::new(PathKind::Direct, StageSet::EMPTY, hand_over).unwrap();
        assert_eq!(path(HandOver::Line).beside()[0].stage, Notify);
        assert!(stages(&path(HandOver::Line)).contains(&Line));
        assert!(stages(&path(HandOver::Turn)).contains(&Notify));
        assert!(stages(&path(HandOver::Turn)).contains(&Turn));
    }

    #[test]
    fn tcp_received_by_the_engine_is_handed_to_the_program() {
        let engine = StageSet::of([LinkReceive, TcpReceive]);
        let path = StagePath::new(PathKind::Tcp, engine, HandOver::Turn).unwrap();
        let hops: Vec<Stage> = stages(&path).into_iter().filter(|stage| stage.is_hop()).collect();
        assert_eq!(hops, [Wire, Turn]);
    }
}
