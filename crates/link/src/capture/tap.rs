//! Records a link that several processes drive.
//!
//! The driving process puts frames on a [`Tape`] in shared memory. One thread of
//! one process plays it into a file. Without a recording, a driver loads one word a
//! frame. With one, it copies the frame. It never waits for the file.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use toehold_shm::{Carver, Gather, Label, OutOfMemory, Tape, TapeReader, TapeStatus, Words};

use super::file::{CaptureFile, Frame};
use crate::{Checksum, Offload, Received, Transmit};

/// Bytes of frames that can wait for the writing thread: some 60 of the largest, or
/// 10 000 of the smallest. Before a recording the pages are untouched, and cost
/// nothing.
const CAPACITY: usize = 4 << 20;

/// Longest wait for another thread that records. To append a frame takes microseconds.
const PATIENCE: Duration = Duration::from_millis(1);

const INBOUND: u32 = 1;
const PARTIAL: u32 = 2;
/// Lowest bit of the segment size.
const SEGMENT_SIZE: u32 = 16;

/// The recording end of a tape. It belongs to the driving process.
#[derive(Debug)]
pub struct Tap {
    tape: Tape,
}

impl Tap {
    /// Number of bytes that [`Tap::create`] takes from a region.
    pub fn bytes_needed() -> usize {
        Tape::bytes_needed(CAPACITY)
    }

    /// Carves a tap, or finds one that another process has carved.
    ///
    /// # Errors
    ///
    /// If the region is too small.
    pub fn create(carver: &mut Carver) -> Result<Tap, OutOfMemory> {
        Ok(Tap {
            tape: carver.tape(CAPACITY)?,
        })
    }

    /// Returns whether frames are recorded at present.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.tape.is_played()
    }

    /// Records a received frame.
    #[cold]
    pub fn record_received(&mut self, now_ns: u64, frame: &Received<'_>) {
        self.record(now_ns, INBOUND, frame.private, &frame.rest, frame.offload);
    }

    /// Records a sent frame.
    #[cold]
    pub fn record_sent(&mut self, now_ns: u64, frame: &Transmit<'_>) {
        self.record(now_ns, 0, frame.headers, frame.payload, frame.offload);
    }

    fn record(&mut self, now_ns: u64, direction: u32, beginning: &[u8], rest: &Gather<'_>, offload: Offload) {
        let partial = match offload.checksum {
            Checksum::Partial => PARTIAL,
            Checksum::Complete | Checksum::Verified => 0,
        };
        let kind = direction | partial | u32::from(offload.segment_size) << SEGMENT_SIZE;
        self.tape.append(now_ns, kind, beginning, rest);
    }

    /// Returns the playing end, for one thread at a time.
    pub fn player(&self) -> Player {
        Player {
            reader: self.tape.reader(),
            last_ns: 0,
        }
    }
}

/// A tap for threads of several processes that record one after the other, each for a moment.
#[derive(Debug)]
pub struct SharedTap {
    /// For the threads of this process.
    tape: Mutex<Tape>,
    status: TapeStatus,
    /// Number of the thread of all processes that records; 0 for none.
    holder: Words,
}

impl SharedTap {
    /// Number of bytes that [`SharedTap::create`] takes from a region.
    pub fn bytes_needed() -> usize {
        Tap::bytes_needed() + Words::bytes_needed(1)
    }

    /// Carves a tap, or finds one that another process has carved.
    ///
    /// # Errors
    ///
    /// If the region is too small.
    pub fn create(carver: &mut Carver) -> Result<SharedTap, OutOfMemory> {
        let tape = carver.tape(CAPACITY)?;
        Ok(SharedTap {
            status: tape.status(),
            tape: Mutex::new(tape),
            holder: carver.words(1)?,
        })
    }

    /// Returns whether frames are recorded at present.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.status.is_played()
    }

    /// Records a finished frame for a thread with a number of its own, which is not 0. It is lost, and counted
    /// as such, if another thread records for longer than a millisecond: that may be stopped.
    #[cold]
    pub fn record(&self, thread: u32, now_ns: u64, is_sent: bool, (headers, payload): (&[u8], &[u8])) {
        let holder = self.holder.word(0);
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Ok(mut tape) = self.tape.try_lock()
                && holder.compare_exchange(0, thread, Acquire, Relaxed).is_ok()
            {
                let direction = if is_sent { 0 } else { INBOUND };
                let payload = Gather::from_slice(payload);
                tape.append(now_ns, direction, headers, &payload);
                holder.store(0, Release);
                return;
            }
            std::thread::yield_now();
        }
        self.status.lose();
    }

    /// Leaves the tap as a thread does that stops while it records.
    #[cfg(test)]
    pub(super) fn stop_within(&self, thread: u32) {
        self.holder.word(0).store(thread, Release);
    }

    /// A thread has died that may have been recording. Its number has to be used by no other yet.
    pub fn forget(&self, thread: u32) {
        let _ = self.holder.word(0).compare_exchange(thread, 0, AcqRel, Relaxed);
    }

    /// Returns the playing end, for one thread at a time.
    pub fn player(&self) -> Player {
        Player {
            reader: self.tape.lock().unwrap_or_else(PoisonError::into_inner).reader(),
            last_ns: 0,
        }
    }
}

/// Plays a [`Tap`]'s recording. Only one clone may be used at a time.
#[derive(Debug, Clone)]
pub struct Player {
    reader: TapeReader,
    last_ns: u64,
}

impl Player {
    /// Starts recording, with up to `snap_len` bytes of each frame.
    pub fn start(&mut self, snap_len: u32) {
        self.reader.start(snap_len);
    }

    /// Stops recording. Recorded frames can still be played.
    pub fn stop(&mut self) {
        self.reader.stop();
    }

    /// Writes frames into the file until none is left, or as many bytes as the tape
    /// holds were written. `epoch_ns` is the driver's time zero in nanoseconds
    /// since 1970.
    pub fn play(&mut self, file: &mut CaptureFile, epoch_ns: u64) {
        let mut played = 0;
        let mut bytes = Vec::new();
        while played < CAPACITY {
            bytes.clear();
            let Some((label, lost)) = self.reader.read(&mut bytes) else {
                break;
            };
            played += bytes.len();
            file.lose(lost);
            // Stamps come from clocks of several processors; in a file time
            // never goes back.
            self.last_ns = self.last_ns.max(label.timestamp_ns);
            file.record(epoch_ns.saturating_add(self.last_ns), frame(&label), &mut bytes);
        }
        file.flush();
    }

    /// Counts the frames lost after the last recorded one. Call at the end, when no
    /// frame is left.
    pub fn settle(&mut self, file: &mut CaptureFile) {
        file.lose(self.reader.lost());
    }
}

fn frame(label: &Label) -> Frame {
    Frame {
        inbound: label.kind & INBOUND != 0,
        original_len: label.original_len as usize,
        offload: Offload {
            checksum: if label.kind & PARTIAL != 0 {
                Checksum::Partial
            } else {
                Checksum::Complete
            },
            segment_size: (label.kind >> SEGMENT_SIZE) as u16,
        },
    }
}
