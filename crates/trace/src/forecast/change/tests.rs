use super::*;
use crate::layout::{HandOver, PathKind};
use Stage::*;

const RECEIVING: [Stage; 5] = [LinkReceive, RmppReceive, Match, Place, Event];

fn path(engine: impl IntoIterator<Item = Stage>, hand_over: HandOver) -> StagePath {
    StagePath::new(PathKind::Message, StageSet::of(engine), hand_over).unwrap()
}

/// The parts of the paper's 86 µs (SPLINTER.md §7), in nanoseconds.
fn papers_times() -> StageTimes {
    StageTimes::of([
        (MpiSend, 12_000.0),
        (CallSend, 2_000.0),
        (RmppSend, 20_500.0),
        (HandWork, 1_500.0),
        (Fetch, 7_000.0),
        (LinkSend, 2_000.0),
        (Wire, 2_000.0),
        (LinkReceive, 2_000.0),
        (RmppReceive, 9_000.0),
        (Match, 9_000.0),
        (Place, 4_000.0),
        (Event, 4_000.0),
        (Turn, 9_000.0),
        (MpiReceive, 2_000.0),
    ])
}

#[test]
fn forecast_of_the_paper_is_49_and_a_half_microseconds() {
    let path = path(
        [RmppSend, Fetch, LinkSend].into_iter().chain(RECEIVING),
        HandOver::Turn,
    );
    let cheaper = |stage, saves: f64| PathChange::Replace {
        stage,
        ns: papers_times().get(stage) - saves,
    };
    let changes = [
        cheaper(RmppSend, 15_500.0),
        PathChange::Remove(Fetch),
        PathChange::Remove(Turn),
        cheaper(RmppReceive, 5_000.0),
    ];
    let found = forecast(&path, &papers_times(), &changes).unwrap();
    assert_eq!((found.before_ns, found.after_ns), (86_000.0, 49_500.0));
    let saves: Vec<f64> = found.steps.iter().map(|step| step.saves_ns).collect();
    assert_eq!(saves, [15_500.0, 7_000.0, 9_000.0, 5_000.0]);
    assert!((found.error(50_000.0) + 0.01).abs() < 1e-9);
}

#[test]
fn move_to_the_engine_costs_the_hop_and_saves_what_lies_beside() {
    let inline = path([], HandOver::Line);
    let mut times = StageTimes::of([(Match, 100.0), (Ack, 70.0), (Wire, 60.0)]);
    times.set(HandRest, 60.0);
    let stages = StageSet::of(RECEIVING).with(Ack);
    let moved = PathChange::Move {
        stages,
        to: ActorKind::Engine,
        ratio: 0.5,
    };
    let found = forecast(&inline, &times, &[moved]).unwrap();
    assert_eq!(found.before_ns, 230.0);
    assert_eq!(found.after_ns, 50.0 + 60.0 + 60.0);
    assert_eq!(found.steps[0].saves_ns, 60.0);
    assert_eq!(found.path.beside()[0].stage, Ack);
}

#[test]
fn move_to_the_program_removes_the_hop() {
    let engine = path(RECEIVING, HandOver::Line);
    let times = StageTimes::of([(Match, 100.0), (HandRest, 60.0), (Wire, 60.0)]);
    let moved = PathChange::Move {
        stages: StageSet::of(RECEIVING),
        to: ActorKind::Program,
        ratio: 1.2,
    };
    let found = forecast(&engine, &times, &[moved]).unwrap();
    assert_eq!((found.before_ns, found.after_ns), (220.0, 180.0));
}

#[test]
fn move_of_a_stage_that_is_already_there_changes_nothing() {
    let engine = path(RECEIVING, HandOver::Line);
    let times = StageTimes::of([(Match, 100.0), (HandRest, 60.0)]);
    let moved = PathChange::Move {
        stages: StageSet::of([Match]),
        to: ActorKind::Engine,
        ratio: 3.0,
    };
    assert_eq!(
        forecast(&engine, &times, &[moved]).unwrap().steps[0].saves_ns,
        0.0
    );
}

#[test]
fn change_that_cannot_be_is_refused() {
    let inline = path([], HandOver::Line);
    let times = StageTimes::of([(Match, 100.0)]);
    let refused = |change| forecast(&inline, &times, &[change]).unwrap_err();
    let moved = |stage, ratio| PathChange::Move {
        stages: StageSet::of([stage]),
        to: ActorKind::Engine,
        ratio,
    };
    assert_eq!(
        refused(PathChange::Remove(Turn)),
        ForecastError::NoSuchStage(Turn)
    );
    assert_eq!(refused(moved(LinkReceive, -1.0)), ForecastError::NotATime(-1.0));
    assert_eq!(
        refused(moved(LinkReceive, 1.0)),
        ForecastError::UnknownHop(HandRest)
    );
    let not_contiguous = PathError::NotContiguous(Match);
    assert_eq!(refused(moved(Match, 1.0)), ForecastError::Layout(not_contiguous));
    let nan = PathChange::Replace {
        stage: Match,
        ns: f64::NAN,
    };
    assert!(matches!(refused(nan), ForecastError::NotATime(_)));
}
