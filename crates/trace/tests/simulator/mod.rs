//! A simulated ping-pong between four actors, each with a clock of its own.
//!
//! Time is exact and hidden. Actors see it through clocks with secret offsets and drifts, and stamps
//! take time. Seeds determine everything.
#![allow(dead_code, reason = "each test binary uses a part")]

mod clock;
mod run;

pub(crate) use clock::{SecretClock, SimulatedClock};
pub(crate) use run::simulate;

use toehold_trace::account::TimeAccount;
use toehold_trace::actor::Actor;
use toehold_trace::layout::{HandOver, PathKind, StagePath, TripPath};
use toehold_trace::plan::TracePlan;
use toehold_trace::stage::{Stage, StageSet};

/// Ticks of the reference clock for a nanosecond.
pub(crate) const REFERENCE_TICKS: f64 = 2.6;

/// A delay that a test plants.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Planted {
    /// In a step on the path, by its index in the round trip. A hop's reader looks later.
    Step(usize, f64),
    /// In a stage beside the path, by its index there.
    Beside(usize, f64),
}

/// What is wrong with the machine of a world.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fault {
    /// Each traced round trip takes so many nanoseconds more, in its first hop.
    pub(crate) traced_slower_ns: f64,
    /// Stamps of counted blocks take so many nanoseconds more than those of cost blocks.
    pub(crate) counted_stamps_ns: f64,
    /// One traced round trip in so many stalls for 60 µs; 0 for none.
    pub(crate) traced_stalls: u32,
}

/// A simulated machine with two programs.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) plan: TracePlan,
    pub(crate) rounds: u32,
    pub(crate) seed: u64,
    pub(crate) clocks: [SecretClock; 4],
    /// Nanoseconds by which a step varies on average.
    pub(crate) jitter: f64,
    /// One round trip in so many stalls for 60 µs; 0 for none.
    pub(crate) stalls: u32,
    pub(crate) planted: Vec<Planted>,
    /// The part of each stage's work that runs during the next stage, unless fenced.
    pub(crate) overlap: f64,
    pub(crate) fault: Fault,
}

impl World {
    /// A world whose clocks are equal and right.
    pub(crate) fn new(kind: PathKind, engine: &[Stage], hand_over: HandOver) -> Self {
        let engine = StageSet::of(engine.iter().copied());
        let path = StagePath::new(kind, engine, hand_over).unwrap();
        Self {
            plan: TracePlan::new(TripPath::new(&path), 512, false, 11),
            rounds: 5,
            seed: 1,
            clocks: [SecretClock::default(); 4],
            jitter: 10.0,
            stalls: 0,
            planted: Vec::new(),
            overlap: 0.0,
            fault: Fault::default(),
        }
    }

    pub(crate) fn trip(&self) -> &TripPath {
        self.plan.trip()
    }

    pub(crate) fn with_fences(mut self) -> Self {
        self.plan = TracePlan::new(self.trip().clone(), self.plan.block_len(), true, 11);
        self
    }

    pub(crate) fn planting(&self, planted: &[Planted]) -> Self {
        let mut world = self.clone();
        world.planted = planted.to_vec();
        world
    }

    pub(crate) fn seeded(&self, seed: u64) -> Self {
        let mut world = self.clone();
        world.seed = seed;
        world
    }

    /// The time of a stage alone, in nanoseconds.
    pub(crate) fn base_ns(stage: Stage) -> f64 {
        match stage {
            Stage::MpiSend | Stage::MpiReceive | Stage::Program => 350.0,
            Stage::Turn => 900.0,
            hop if hop.is_hop() => 60.0 + 10.0 * hop.index() as f64,
            stage => 20.0 + 7.0 * (stage.index() % 9) as f64,
        }
    }

    /// The account of this world.
    pub(crate) fn account(&self) -> TimeAccount {
        TimeAccount::of(&self.plan, &simulate(self), 1.0 / REFERENCE_TICKS).unwrap()
    }
}

/// All layouts that tests go through, with their names.
pub(crate) fn worlds() -> Vec<(&'static str, World)> {
    use Stage::*;
    let sending = [RmppSend, Fetch, LinkSend];
    let receiving = [LinkReceive, RmppReceive, Match, Place, Event, Ack];
    let both = [&sending[..], &receiving[..]].concat();
    let world = |kind, engine: &[Stage], hand_over| World::new(kind, engine, hand_over);
    vec![
        ("message inline", world(PathKind::Message, &[], HandOver::Line)),
        (
            "message at engines",
            world(PathKind::Message, &both, HandOver::Line),
        ),
        (
            "message received at engines",
            world(PathKind::Message, &receiving, HandOver::Turn),
        ),
        ("tcp inline", world(PathKind::Tcp, &[], HandOver::Line)),
        (
            "tcp at engines",
            world(
                PathKind::Tcp,
                &[TcpSend, LinkSend, LinkReceive, TcpReceive, Ack],
                HandOver::Turn,
            ),
        ),
        ("direct", world(PathKind::Direct, &[], HandOver::Line)),
        (
            "direct to a sleeper",
            world(PathKind::Direct, &[], HandOver::Turn),
        ),
    ]
}

/// The means of an account, in the order: stages, beside, groups of hops.
pub(crate) fn figures(account: &TimeAccount) -> Vec<f64> {
    let stages = account
        .steps
        .iter()
        .chain(&account.beside)
        .map(|step| step.mean_ns);
    stages
        .chain(account.hops.iter().map(|hops| hops.sum_ns))
        .collect()
}

/// The place of a planted delay's own figure among [`figures`].
pub(crate) fn place_of(world: &World, planted: Planted) -> usize {
    let steps = world.trip().steps();
    let works = steps.iter().filter(|step| step.actor.is_some()).count();
    match planted {
        Planted::Beside(index, _) => works + index,
        Planted::Step(index, _) if steps[index].actor.is_some() => {
            steps[..index].iter().filter(|step| step.actor.is_some()).count()
        }
        Planted::Step(index, _) => {
            let groups = world.trip().hop_groups();
            let group = groups
                .iter()
                .position(|group| group.hops.contains(&index))
                .unwrap();
            works + world.trip().beside().len() + group
        }
    }
}

/// What a stamp costs an actor, before and after its reading, in nanoseconds.
pub(crate) fn stamp_costs(actor: Actor) -> (f64, f64) {
    let index = actor.index() as f64;
    (4.0 + index, 8.0 + 2.0 * index)
}
