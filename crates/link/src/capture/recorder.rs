//! Passes blocks to a file without waiting for it, except at the end.
//!
//! A thread of its own writes. Chunks of whole blocks reach it through a bounded
//! channel. If the file is slower than the traffic, chunks are dropped and their
//! frames counted. After a failed write nothing more is written, so that the file
//! ends with at most one damaged block.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};

/// Length in bytes at which a chunk is passed to the writing thread.
const CHUNK_LEN: usize = 64 * 1024;

/// Counters of the captured frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CaptureStatistics {
    /// Frames seen, in both directions.
    pub frames: u64,
    /// Frames missing in the file because it did not keep up or failed.
    pub lost: u64,
    /// Failed writes. After the first one nothing more is written.
    pub write_errors: u64,
}

#[derive(Debug, Default)]
struct Shared {
    /// Frames in chunks that reached the thread but not the file.
    unwritten: AtomicU64,
    write_errors: AtomicU64,
}

#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    frames: u64,
    /// Number of lost frames that the chunk's blocks report.
    reported: u64,
}

#[derive(Debug)]
pub(super) struct Recorder {
    chunk: Chunk,
    frames: u64,
    lost: u64,
    /// Frames lost since the last frame that was not.
    lost_unreported: u64,
    /// The channel to the thread. Dropping it ends the thread.
    filled: Option<SyncSender<Chunk>>,
    emptied: Receiver<Vec<u8>>,
    /// Disconnects when the thread is done.
    done: Receiver<()>,
    shared: Arc<Shared>,
}

impl Recorder {
    /// Starts the writing thread. At most about `buffer_len` bytes wait for it. It
    /// writes `preamble`, the file's header blocks, first, and never drops it for
    /// lack of room.
    pub(super) fn start(
        out: Box<dyn Write + Send>,
        preamble: Vec<u8>,
        buffer_len: usize,
    ) -> io::Result<Recorder> {
        let (filled, to_write) = sync_channel((buffer_len / CHUNK_LEN).max(1));
        let (recycle, emptied) = channel();
        let (running, done) = channel();
        let shared = Arc::new(Shared::default());
        let writer = Writer {
            out,
            to_write,
            recycle,
            shared: shared.clone(),
            running,
        };
        std::thread::Builder::new()
            .name("toehold-capture".into())
            .spawn(move || writer.run(preamble))?;
        Ok(Recorder {
            chunk: Chunk::default(),
            frames: 0,
            lost: 0,
            lost_unreported: 0,
            filled: Some(filled),
            emptied,
            done,
            shared,
        })
    }

    /// Records one frame. `append` adds its block, given the number of frames lost
    /// since the last recorded one.
    pub(super) fn record(&mut self, append: impl FnOnce(&mut Vec<u8>, u64)) {
        self.frames += 1;
        let lost = std::mem::take(&mut self.lost_unreported);
        append(&mut self.chunk.bytes, lost);
        self.chunk.frames += 1;
        self.chunk.reported += lost;
        if self.chunk.bytes.len() >= CHUNK_LEN {
            self.hand_over();
        }
    }

    /// Passes the recorded blocks to the thread.
    pub(super) fn hand_over(&mut self) {
        if self.chunk.frames == 0 {
            return;
        }
        let Some(filled) = &self.filled else { return };
        let empty = Chunk {
            bytes: self.emptied.try_recv().unwrap_or_default(),
            ..Chunk::default()
        };
        let chunk = std::mem::replace(&mut self.chunk, empty);
        if let Err(TrySendError::Full(mut chunk) | TrySendError::Disconnected(mut chunk)) =
            filled.try_send(chunk)
        {
            self.lost += chunk.frames;
            self.lost_unreported += chunk.frames + chunk.reported;
            chunk.bytes.clear();
            self.chunk.bytes = chunk.bytes;
        }
    }

    pub(super) fn statistics(&self) -> CaptureStatistics {
        CaptureStatistics {
            frames: self.frames,
            lost: self.lost + self.shared.unwritten.load(Ordering::Relaxed),
            write_errors: self.shared.write_errors.load(Ordering::Relaxed),
        }
    }

    /// Adds closing blocks and waits until everything is written, or writing has
    /// failed. The file then has all blocks that were taken, however long a busy
    /// machine needs.
    pub(super) fn finish(&mut self, append: impl FnOnce(&mut Vec<u8>, CaptureStatistics)) {
        let statistics = self.statistics();
        append(&mut self.chunk.bytes, statistics);
        let Some(filled) = self.filled.take() else { return };
        // The thread writes all chunks until this end is dropped, and then
        // ends.
        let _ = filled.send(std::mem::take(&mut self.chunk));
        drop(filled);
        let _ = self.done.recv();
    }
}

struct Writer {
    out: Box<dyn Write + Send>,
    to_write: Receiver<Chunk>,
    recycle: Sender<Vec<u8>>,
    shared: Arc<Shared>,
    /// Dropped last, when everything is written.
    running: Sender<()>,
}

impl Writer {
    fn run(mut self, preamble: Vec<u8>) {
        let mut healthy = self.write(&preamble);
        while let Ok(Chunk {
            mut bytes, frames, ..
        }) = self.to_write.recv()
        {
            healthy = healthy && self.write(&bytes);
            if !healthy {
                self.shared.unwritten.fetch_add(frames, Ordering::Relaxed);
            }
            bytes.clear();
            let _ = self.recycle.send(bytes);
        }
        if healthy && self.out.flush().is_err() {
            self.shared.write_errors.fetch_add(1, Ordering::Relaxed);
        }
        drop(self.running);
    }

    fn write(&mut self, bytes: &[u8]) -> bool {
        let written = self.out.write_all(bytes).and_then(|()| self.out.flush());
        if written.is_err() {
            self.shared.write_errors.fetch_add(1, Ordering::Relaxed);
        }
        written.is_ok()
    }
}
