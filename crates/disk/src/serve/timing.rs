//! The law, the counters and the clock of a disk that is served.

use std::time::Instant;

use super::ServedDisk;
use crate::array::{DiskArray, DiskSpan};
use crate::attach::LoopDevice;
use crate::control::{DiskChange, DiskChangeError, DiskState};
use crate::counters::{BlockLayer, DiskCounters};
use crate::head::Transfer;

/// When each request is due. Times are nanoseconds since the begin.
#[derive(Debug)]
pub(super) struct Timing {
    disk: ServedDisk,
    array: DiskArray,
    started: Instant,
    is_on: bool,
    counters: DiskCounters,
    /// Where the counters began.
    counted_from_ns: u64,
    busy_before_ns: u64,
    block_before: BlockLayer,
    device: Option<LoopDevice>,
    refused: Option<String>,
}

impl Timing {
    pub(super) fn new(disk: ServedDisk) -> Self {
        Self {
            disk,
            array: DiskArray::new(&disk.kind, disk.scale, disk.bytes, disk.seed),
            started: Instant::now(),
            is_on: true,
            counters: DiskCounters::default(),
            counted_from_ns: 0,
            busy_before_ns: 0,
            block_before: BlockLayer::default(),
            device: None,
            refused: None,
        }
    }

    /// The begin of the disk's clock.
    pub(super) fn started(&self) -> Instant {
        self.started
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Serves a request that comes now. Returns when it is due, or `None` if it is due at once
    /// because the clock is off.
    pub(super) fn serve(&mut self, span: DiskSpan, transfer: Transfer) -> Option<u64> {
        if !self.is_on {
            return None;
        }
        let now = self.now_ns();
        let times = self.array.serve(now, span, transfer);
        self.counters.count(now, times, span.bytes, transfer);
        Some(times.done_ns)
    }

    /// Returns when all requests so far are done, or `None` if they are.
    pub(super) fn flush(&mut self) -> Option<u64> {
        self.counters.flushes += u64::from(self.is_on);
        let done = self.array.free_ns();
        (self.is_on && done > self.now_ns()).then_some(done)
    }

    pub(super) fn replied(&mut self, late_ns: i64) {
        self.counters.replied(late_ns);
    }

    pub(super) fn set_device(&mut self, device: LoopDevice) {
        self.block_before = device.block_layer().unwrap_or_default();
        self.device = Some(device);
    }

    pub(super) fn set_refused(&mut self, why: Option<String>) {
        self.refused = why;
    }

    pub(super) fn change(&mut self, change: &DiskChange) -> Result<(), DiskChangeError> {
        if let Some(kind) = change.new_kind()? {
            self.disk.kind = kind;
            self.array.set_kind(&kind, self.disk.scale, self.disk.bytes);
        }
        self.is_on = change.clock.unwrap_or(self.is_on);
        if change.reset {
            self.counters = DiskCounters::default();
            self.counted_from_ns = self.now_ns();
            self.busy_before_ns = self.array.busy_ns();
            self.block_before = self.block_layer().unwrap_or_default();
        }
        Ok(())
    }

    fn block_layer(&self) -> Option<BlockLayer> {
        self.device.as_ref().and_then(LoopDevice::block_layer)
    }

    /// The state, but for what the image and the threads know.
    pub(super) fn state(&self) -> DiskState {
        let counters = DiskCounters {
            busy_ns: self.array.busy_ns() - self.busy_before_ns,
            ..self.counters
        };
        let block = self.block_layer().map(|block| block.since(self.block_before));
        DiskState {
            schema: DiskState::SCHEMA,
            kind: self.disk.kind,
            scale: self.disk.scale,
            bytes: self.disk.bytes,
            kept_bytes: 0,
            clock: self.is_on,
            realtime: false,
            device: self.device.as_ref().map(|device| device.path().to_owned()),
            span_ns: self.now_ns() - self.counted_from_ns,
            counters,
            block,
            late_share: block.and_then(|block| block.late_share(&counters)),
            refused: self.refused.clone(),
        }
    }
}
