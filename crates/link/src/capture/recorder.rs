//! Gets blocks into a file without waiting for it, but at the end.
//!
//! A thread of its own writes; chunks of whole blocks reach it through a
//! bounded channel. If the file is slower than the traffic, chunks are dropped
//! and their frames counted; after a failed write nothing more is written, so
//! that the file ends with at most one damaged block.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};

/// A chunk is handed to the writing thread when it has grown to this many bytes.
const CHUNK_LEN: usize = 64 * 1024;

/// What became of the captured frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CaptureStatistics {
    /// Frames seen, in both directions.
    pub frames: u64,
    /// Frames that are missing in the file because it did not keep up or failed.
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
    /// Lost frames that blocks of this chunk tell of.
    reported: u64,
}

#[derive(Debug)]
pub(super) struct Recorder {
    chunk: Chunk,
    frames: u64,
    lost: u64,
    /// Lost since the last frame that got through.
    lost_unreported: u64,
    /// Present until dropped: closing it ends the thread.
    filled: Option<SyncSender<Chunk>>,
    emptied: Receiver<Vec<u8>>,
    /// Disconnects when the thread is done.
    done: Receiver<()>,
    shared: Arc<Shared>,
}

impl Recorder {
    /// Starts the writing thread. At most about `buffer_len` bytes wait for it.
    /// `preamble` (the file's header blocks) is written first, and never lost to lack of room.
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

    /// Records one frame: `append` adds its block, given how many frames were
    /// lost since the last one that was not.
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

    /// Lets the thread write what was recorded so far.
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

    /// Adds closing blocks and waits until everything is written, or writing has failed: a
    /// file holds all that was taken for it, however long that takes on a busy machine.
    pub(super) fn finish(&mut self, append: impl FnOnce(&mut Vec<u8>, CaptureStatistics)) {
        let statistics = self.statistics();
        append(&mut self.chunk.bytes, statistics);
        let Some(filled) = self.filled.take() else { return };
        // The thread takes what there is until this end is gone, and hangs up then.
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
