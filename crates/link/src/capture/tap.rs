//! Recording what crosses a link that several processes drive.
//!
//! Whoever drives puts frames on a [`Tape`] in the memory that they share; one
//! thread of one of them plays it into a file. A driver pays one look at a word
//! while nothing is recorded, and a copy of the frame while something is; it never
//! waits for the file.

use toehold_shm::{Carver, Gather, Label, OutOfMemory, Tape, TapeReader};

use super::file::{CaptureFile, Frame};
use crate::{Checksum, Offload, Received, Transmit};

/// Bytes of frames that can wait for the thread that writes them: some 60 of the
/// largest, or 10 000 of the smallest. Until something is recorded they are pages
/// that nobody has touched, which cost nothing.
const CAPACITY: usize = 4 << 20;

const INBOUND: u32 = 1;
const PARTIAL: u32 = 2;
/// From there on, the segments' size.
const SEGMENT_SIZE: u32 = 16;

/// The end at which frames are recorded. It belongs to whoever drives.
#[derive(Debug)]
pub struct Tap {
    tape: Tape,
}

impl Tap {
    /// Bytes that [`Tap::create`] takes from a region.
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

    /// Whether frames are recorded at present.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.tape.is_played()
    }

    /// Records a frame that arrived.
    #[cold]
    pub fn record_received(&mut self, now_ns: u64, frame: &Received<'_>) {
        self.record(now_ns, INBOUND, frame.private, &frame.rest, frame.offload);
    }

    /// Records a frame that was sent.
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

    /// The end from which frames are written, for one thread at a time.
    pub fn player(&self) -> Player {
        Player {
            reader: self.tape.reader(),
            last_ns: 0,
        }
    }
}

/// Plays what a [`Tap`] records. Of its clones one is used at a time.
#[derive(Debug, Clone)]
pub struct Player {
    reader: TapeReader,
    last_ns: u64,
}

impl Player {
    /// From now on frames are recorded, up to `snap_len` bytes of each.
    pub fn start(&mut self, snap_len: u32) {
        self.reader.start(snap_len);
    }

    /// No more frames are recorded. Those that were can still be played.
    pub fn stop(&mut self) {
        self.reader.stop();
    }

    /// Puts frames into the file until none is left, or as many bytes as the tape
    /// holds have been. `epoch_ns`: the driver's time 0, in nanoseconds since 1970.
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
            // Times of several processors; a file's go forward.
            self.last_ns = self.last_ns.max(label.timestamp_ns);
            file.record(epoch_ns.saturating_add(self.last_ns), frame(&label), &mut bytes);
        }
        file.flush();
    }

    /// Counts the frames that were lost after the last one that was recorded. For the
    /// end, when nothing is left to be played.
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
