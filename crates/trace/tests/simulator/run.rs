//! The simulated round trips.

use super::{Planted, SimulatedClock, World, stamp_costs};
use std::sync::atomic::AtomicU64;
use toehold_trace::account::BlockStamps;
use toehold_trace::actor::Actor;
use toehold_trace::layout::TripStep;
use toehold_trace::plan::{BlockUse, PairKind};
use toehold_trace::stamp::{EdgeStamper, StampReader, StampWriter, words_for};

const STALL_NS: f64 = 60_000.0;

/// An actor while it runs.
struct Running<'a> {
    stamper: EdgeStamper<'a>,
    reader: StampReader<'a>,
    clock: SimulatedClock,
    /// When its work beside the path is done.
    free_at: f64,
    /// Whether it has begun this round trip.
    has_begun: bool,
}

/// What the simulation does next.
struct Machine<'a> {
    world: &'a World,
    random: fastrand::Rng,
    actors: Vec<Running<'a>>,
    /// The time of the message, in nanoseconds.
    now: f64,
    message: u32,
}

/// The blocks of a world, as its actors record them.
pub(crate) fn simulate(world: &World) -> Vec<BlockStamps> {
    let entries = world.plan.block_len() as usize + 1;
    let storage: Vec<Vec<AtomicU64>> = Actor::ALL
        .iter()
        .map(|_| (0..words_for(entries)).map(|_| AtomicU64::new(0)).collect())
        .collect();
    let actors = Actor::ALL.iter().zip(&storage).map(|(actor, words)| Running {
        stamper: EdgeStamper::new(&world.plan, *actor, StampWriter::new(words).unwrap()),
        reader: StampReader::new(words).unwrap(),
        clock: SimulatedClock {
            secret: world.clocks[actor.index()],
            now: 0.0,
            costs: stamp_costs(*actor),
        },
        free_at: 0.0,
        has_begun: false,
    });
    let mut machine = Machine {
        world,
        random: fastrand::Rng::with_seed(world.seed),
        actors: actors.collect(),
        now: 1e6,
        message: 0,
    };
    let blocks = world.rounds * world.plan.blocks_of_round();
    let mut blocks: Vec<BlockStamps> = (0..blocks).map(|block| machine.block(block)).collect();
    // A pair that ends in the next block is recorded there. It belongs to the block of its number.
    for at in 0..blocks.len().saturating_sub(1) {
        let late = blocks[at + 1].stamps.clone();
        let is_late = |message: u32| message / world.plan.block_len() == at as u32;
        blocks[at]
            .stamps
            .extend(late.iter().filter(|stamp| is_late(stamp.message)));
        blocks[at + 1].stamps.retain(|stamp| !is_late(stamp.message));
    }
    blocks
}

impl Machine<'_> {
    fn block(&mut self, block: u32) -> BlockStamps {
        let mut found = BlockStamps {
            block,
            ..BlockStamps::default()
        };
        let reference = self.world.clocks[Actor::REFERENCE.index()];
        for number in 0..self.world.plan.block_len() {
            self.message = block * self.world.plan.block_len() + number;
            found.round_starts.push(reference.at(self.now));
            self.round_trip();
        }
        found.round_starts.push(reference.at(self.now));
        for actor in &mut self.actors {
            actor.reader.take_into(&mut found.stamps);
            assert_eq!(actor.stamper.dropped(), 0);
        }
        found
    }

    fn round_trip(&mut self) {
        self.adjust_to_use();
        let steps = self.world.trip().steps();
        for actor in &mut self.actors {
            actor.has_begun = false;
        }
        let stalled = self.stalled_step(steps.len());
        for (index, step) in steps.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|before| steps[before].actor);
            if let (Some(actor), Some(span)) = (step.actor, step.span)
                && before != step.actor
            {
                self.now = self.now.max(self.actors[actor.index()].free_at);
                self.begin_turn(actor, |running, clock| running.pass(span.from, clock));
            }
            self.now += self.time_of(index, step) + if stalled == Some(index) { STALL_NS } else { 0.0 };
            if let (Some(actor), Some(span)) = (step.actor, step.span) {
                self.stamped(actor, |stamper, clock| stamper.pass(span.to, clock));
                if steps.get(index + 1).is_none_or(|next| next.actor != step.actor) {
                    self.beside(actor, step);
                }
            }
        }
    }

    /// The costs of stamps in this block.
    fn adjust_to_use(&mut self) {
        let block = self.message / self.world.plan.block_len();
        let is_counted = self.world.plan.use_of(block) == BlockUse::Counted;
        for (actor, running) in Actor::ALL.iter().zip(&mut self.actors) {
            let (before, after) = stamp_costs(*actor);
            let more = if is_counted {
                self.world.fault.counted_stamps_ns
            } else {
                0.0
            };
            running.clock.costs = (before, after + more);
        }
    }

    fn is_traced(&self) -> bool {
        let block = self.message / self.world.plan.block_len();
        self.world.plan.use_of(block) != BlockUse::Untraced
    }

    fn stalled_step(&mut self, steps: usize) -> Option<usize> {
        let traced = if self.is_traced() {
            self.world.fault.traced_stalls
        } else {
            0
        };
        let mut one_in = |count: u32| count > 0 && self.random.u32(..count) == 0;
        let stalls = one_in(self.world.stalls) | one_in(traced);
        stalls.then(|| self.random.usize(..steps))
    }

    fn begin_turn(&mut self, actor: Actor, pass: impl FnOnce(&mut EdgeStamper<'_>, &mut SimulatedClock)) {
        let message = self.message;
        let has_begun = std::mem::replace(&mut self.actors[actor.index()].has_begun, true);
        if has_begun {
            self.stamped(actor, pass);
        } else {
            self.stamped(actor, |stamper, clock| stamper.next_message(message, clock));
        }
    }

    fn stamped(&mut self, actor: Actor, take: impl FnOnce(&mut EdgeStamper<'_>, &mut SimulatedClock)) {
        let running = &mut self.actors[actor.index()];
        running.clock.now = self.now;
        take(&mut running.stamper, &mut running.clock);
        self.now = running.clock.now;
    }

    /// Does what an actor has to do beside the path after its part of a message.
    fn beside(&mut self, actor: Actor, last: &TripStep) {
        let path_time = self.now;
        for (index, step) in self.world.trip().beside().iter().enumerate() {
            let (Some(span), true) = (step.span, step.actor == Some(actor) && step.sender == last.sender)
            else {
                continue;
            };
            self.stamped(actor, |stamper, clock| stamper.pass(span.from, clock));
            self.now += World::base_ns(step.stage) + self.jitter();
            for planted in &self.world.planted {
                if let Planted::Beside(at, ns) = planted
                    && *at == index
                {
                    self.now += ns;
                }
            }
            self.stamped(actor, |stamper, clock| stamper.pass(span.to, clock));
        }
        self.actors[actor.index()].free_at = self.now;
        self.now = path_time;
    }

    fn time_of(&mut self, index: usize, step: &TripStep) -> f64 {
        let mut ns = World::base_ns(step.stage) + self.jitter();
        for planted in &self.world.planted {
            if let Planted::Step(at, delay) = planted
                && *at == index
            {
                ns += delay;
            }
        }
        let first_hop = self
            .world
            .trip()
            .steps()
            .iter()
            .position(|step| step.actor.is_none());
        if first_hop == Some(index) && self.is_traced() {
            ns += self.world.fault.traced_slower_ns;
        }
        if step.actor.is_some() && !self.is_fenced_stage(index) {
            ns -= self.world.overlap;
        }
        ns
    }

    fn is_fenced_stage(&self, index: usize) -> bool {
        let plan = &self.world.plan;
        let pair = plan.choice(self.message).and_then(|pair| plan.pair(pair));
        plan.is_fenced(self.message) && pair.is_some_and(|pair| pair.kind == PairKind::Stage(index))
    }

    /// A time that is mostly short and sometimes long.
    fn jitter(&mut self) -> f64 {
        -self.world.jitter * (1.0 - self.random.f64()).ln()
    }
}
