//! Running the blocks of a kernel's layout.

use super::blocks::KernelBlockUse;
use super::event::KernelEvent;
use super::matching::{KernelMatcher, KernelMessage, KernelMismatches};
use super::tracefs::{TraceInstance, Tracefs, TracefsError};
use crate::account::median;
use crate::clock_source::ClockSource;
use serde::{Deserialize, Serialize};
use std::io;

/// Most round trips of a block, so that the buffers hold all events of one.
pub const MOST_TRIPS: u32 = 2000;

/// A ping-pong over one TCP connection that is measured.
pub trait KernelPingPong {
    /// The threads that send and receive, by their number. The first one begins each round trip.
    fn threads(&self) -> [u32; 2];

    /// Bytes of each message.
    fn message_bytes(&self) -> u32;

    /// Makes round trips. Each time is that from the beginning of a round trip's send to the next
    /// one's, in nanoseconds, so `count + 1` sends give `count` times.
    ///
    /// # Errors
    ///
    /// The error of the connection.
    fn round_trips(&mut self, count: u32) -> io::Result<Vec<u64>>;
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelPlan {
    /// Rounds of eight blocks.
    pub rounds: u32,
    /// Round trips of a block, at most [`MOST_TRIPS`].
    pub trips: u32,
}

/// What was measured in one block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelBlock {
    /// The block's number.
    pub block: u32,
    /// What the block is for.
    pub block_use: KernelBlockUse,
    /// Each round trip by the clock of the program that began it, in nanoseconds.
    pub round_trips_ns: Vec<u64>,
    /// The messages that were matched.
    pub messages: Vec<KernelMessage>,
    /// The messages that were not.
    pub mismatches: KernelMismatches,
    /// Events that the kernel dropped.
    pub lost_events: u64,
    /// Lines of the trace that are no events.
    pub malformed_lines: u64,
}

impl KernelBlock {
    /// A block of which only the round trips are known.
    pub(super) fn new(block: u32, round_trips_ns: Vec<u64>) -> Self {
        Self {
            block,
            block_use: KernelBlockUse::of(block),
            round_trips_ns,
            messages: Vec::new(),
            mismatches: KernelMismatches::default(),
            lost_events: 0,
            malformed_lines: 0,
        }
    }

    /// Matches the events of the block.
    pub(super) fn add_events(&mut self, events: &[KernelEvent], threads: [u32; 2], bytes: u32) {
        let mut matcher = KernelMatcher::new(threads, bytes);
        events.iter().for_each(|event| matcher.add(event));
        (self.messages, self.mismatches) = matcher.finished();
    }
}

/// Blocks, and the rate of the trace's clock while they ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelBlocks {
    /// The blocks in their order.
    pub blocks: Vec<KernelBlock>,
    /// Nanoseconds of a tick of the trace's clock.
    pub ns_per_tick: f64,
}

impl KernelBlocks {
    /// The blocks of several measurements as the rounds of one, in their order. The rate is the
    /// median of theirs, and 0 without any.
    pub fn joined(measurements: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Vec::new();
        let mut rates = Vec::new();
        for measured in measurements {
            rates.push(measured.ns_per_tick);
            // Each measurement begins a round, even if the one before it was not whole.
            let first = (all.len() as u32).next_multiple_of(KernelBlockUse::BLOCKS_OF_ROUND);
            let own = measured.blocks.into_iter().zip(first..);
            all.extend(own.map(|(block, number)| KernelBlock {
                block: number,
                ..block
            }));
        }
        Self {
            ns_per_tick: median(rates.into_iter()),
            blocks: all,
        }
    }
}

/// Measures a ping-pong in blocks, without tracepoints, with them, and with each recorded twice.
///
/// It makes two instances of the trace's buffers, which are gone when it returns.
///
/// # Errors
///
/// [`TracefsError`] if the kernel refuses a setting, or the ping-pong breaks.
pub fn measure_kernel(
    tracefs: &Tracefs,
    clock: ClockSource,
    plan: KernelPlan,
    work: &mut impl KernelPingPong,
) -> Result<KernelBlocks, TracefsError> {
    let (threads, bytes) = (work.threads(), work.message_bytes());
    let mut instances = [
        TraceInstance::new(tracefs, clock)?,
        TraceInstance::new(tracefs, clock)?,
    ];
    for instance in &instances {
        instance.set_filters(threads)?;
    }
    let began = instances[0].clock_reading()?;
    let mut blocks = Vec::new();
    for block in 0..plan.rounds.saturating_mul(KernelBlockUse::BLOCKS_OF_ROUND) {
        let recordings = KernelBlockUse::of(block).recordings();
        for (number, instance) in instances.iter_mut().enumerate() {
            instance.enable(number < recordings)?;
            instance.clear()?;
            instance.set_on(number < recordings)?;
        }
        let trips = work.round_trips(plan.trips.min(MOST_TRIPS));
        for instance in &instances {
            instance.set_on(false)?;
        }
        let mut found = KernelBlock::new(block, trips.map_err(TracefsError::Workload)?);
        if recordings > 0 {
            let text = instances[0].read()?;
            found.lost_events = text.lost_events;
            found.malformed_lines = text.malformed_lines;
            found.add_events(&text.events, threads, bytes);
        }
        for instance in &instances[..recordings] {
            found.lost_events += instance.lost_events()?;
        }
        blocks.push(found);
    }
    let ns_per_tick = began.ns_per_tick_until(&instances[0].clock_reading()?);
    Ok(KernelBlocks { blocks, ns_per_tick })
}
