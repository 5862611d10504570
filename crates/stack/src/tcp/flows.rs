//! Flows: connections and TIME-WAIT records, which the demultiplexer finds alike.

use super::Tcp;
use super::time_wait::{Flow, Flows, TimeWait};
use crate::demux::Full;
use crate::time::Instant;
use crate::tuple::FourTuple;

/// Most records that one call of [`Tcp::expire_time_waits`] removes.
pub(super) const EXPIRED_A_CALL: u32 = 256;

impl Tcp {
    /// The connection or record of a tuple.
    #[inline]
    pub(super) fn find_flow(&mut self, tuple: &FourTuple) -> Option<Flow> {
        let Self {
            demux,
            pcbs,
            time_waits,
            ..
        } = self;
        let found = demux.lookup(tuple, &Flows { pcbs, time_waits });
        found.map(|id| Flow::new(id, pcbs))
    }

    /// Enters an id into the demultiplexer.
    pub(super) fn enter_flow(&mut self, id: u32) -> Result<(), Full> {
        let Self {
            demux,
            pcbs,
            time_waits,
            ..
        } = self;
        demux.insert(id, &Flows { pcbs, time_waits })
    }

    /// Removes an id from the demultiplexer.
    pub(super) fn leave_flow(&mut self, id: u32) {
        let Self {
            demux,
            pcbs,
            time_waits,
            ..
        } = self;
        demux.remove(id, &Flows { pcbs, time_waits });
    }

    /// Inserts a record in place of any other of its tuple. Returns `true` if there was no room.
    /// Then the oldest record is lost, or, with a capacity of 0, this one.
    pub(super) fn keep_time_wait(&mut self, record: TimeWait) -> bool {
        if let Some(Flow::TimeWait(number)) = self.find_flow(&record.tuple) {
            self.end_time_wait(number);
        }
        let is_full = self.time_waits.is_full();
        if is_full && let Some(oldest) = self.time_waits.oldest() {
            self.end_time_wait(oldest);
        }
        let Some(number) = self.time_waits.insert(record) else {
            return true;
        };
        if self.enter_flow(self.pcbs.capacity() + number).is_err() {
            self.time_waits.remove(number);
            return true;
        }
        is_full
    }

    /// Removes a record.
    pub(super) fn end_time_wait(&mut self, number: u32) {
        self.leave_flow(self.pcbs.capacity() + number);
        self.time_waits.remove(number);
    }

    /// Removes expired records: at most [`EXPIRED_A_CALL`].
    pub(super) fn expire_time_waits(&mut self, now: Instant) {
        for _ in 0..EXPIRED_A_CALL {
            match self.time_waits.oldest() {
                Some(oldest) if self.time_waits.get(oldest).deadline <= now => self.end_time_wait(oldest),
                _ => return,
            }
        }
    }
}
