//! An actor's stamps at the edges of its stages.

use super::ring::{StampRecord, StampWriter};
use crate::actor::Actor;
use crate::layout::EdgeId;
use crate::plan::{PairId, TracePlan};

/// No edge has this number.
const NO_EDGE: u8 = u8::MAX;

/// An actor's clock, read at an edge.
///
/// It counts evenly and never goes back. Its rate and its zero may be unknown.
pub trait StampClock {
    /// Ticks, read without a fence. The processor may read them early.
    fn ticks(&mut self) -> u64;

    /// Ticks, read after all earlier work is done and before later work begins.
    fn fenced_ticks(&mut self) -> u64;
}

/// Takes the stamps of one actor as a plan chooses them.
///
/// Away from the chosen edges, [`EdgeStamper::pass`] is one comparison. A stamper that is off never
/// reads its clock.
#[derive(Debug)]
pub struct EdgeStamper<'a> {
    plan: &'a TracePlan,
    writer: StampWriter<'a>,
    first: u8,
    is_on: bool,
    /// The edge at which the next stamp is due, or `NO_EDGE`.
    due: u8,
    last: u8,
    pair: PairId,
    message: u32,
    is_fenced: bool,
    begun: Option<u64>,
    abandoned: u64,
}

impl<'a> EdgeStamper<'a> {
    /// The stamper of an actor, which takes stamps from its next round trip on.
    ///
    /// An actor without a stage on the path gets a stamper that takes none.
    pub fn new(plan: &'a TracePlan, actor: Actor, writer: StampWriter<'a>) -> Self {
        Self {
            plan,
            writer,
            first: plan.trip().first_edge(actor).map_or(NO_EDGE, |edge| edge.0),
            is_on: true,
            due: NO_EDGE,
            last: NO_EDGE,
            pair: PairId(0),
            message: 0,
            is_fenced: false,
            begun: None,
            abandoned: 0,
        }
    }

    /// Turns stamps on or off, from the next round trip on.
    pub fn set_on(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    /// Begins a round trip, at the actor's first edge.
    ///
    /// It ends a pair of the round trip before if that waits for this edge. Then it chooses the
    /// next pair, and takes its first stamp if the pair begins here.
    pub fn next_message(&mut self, message: u32, clock: &mut impl StampClock) {
        if self.due == self.first {
            self.stamp(clock);
        }
        if self.begun.take().is_some() {
            self.abandoned = self.abandoned.saturating_add(1);
        }
        self.due = NO_EDGE;
        self.message = message;
        if !self.is_on || self.first == NO_EDGE {
            return;
        }
        let Some(id) = self.plan.choice(message) else {
            return;
        };
        let Some(pair) = self.plan.pair(id) else {
            return;
        };
        if self.plan.trip().edges()[usize::from(self.first)] != pair.span.actor {
            return;
        }
        (self.pair, self.due, self.last) = (id, pair.span.from.0, pair.span.to.0);
        self.is_fenced = self.plan.is_fenced(message);
        self.pass(EdgeId(self.first), clock);
    }

    /// Passes an edge, and takes a stamp if one is due there.
    #[inline]
    pub fn pass(&mut self, edge: EdgeId, clock: &mut impl StampClock) {
        if edge.0 == self.due {
            self.stamp(clock);
        }
    }

    /// Pairs that were begun and not ended, since the message took another way.
    pub fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// Pairs that were dropped because the ring was full.
    pub fn dropped(&self) -> u64 {
        self.writer.dropped()
    }

    #[cold]
    fn stamp(&mut self, clock: &mut impl StampClock) {
        if let Some(begin) = self.begun.take() {
            let end = self.read(clock);
            self.record(begin, end);
        } else {
            let begin = self.read(clock);
            if self.last == self.due {
                let end = self.read(clock);
                self.record(begin, end);
            } else {
                self.begun = Some(begin);
                self.due = self.last;
            }
        }
    }

    fn read(&self, clock: &mut impl StampClock) -> u64 {
        if self.is_fenced {
            clock.fenced_ticks()
        } else {
            clock.ticks()
        }
    }

    fn record(&mut self, begin: u64, end: u64) {
        self.due = NO_EDGE;
        self.writer.write(StampRecord {
            message: self.message,
            pair: self.pair,
            begin,
            end,
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
