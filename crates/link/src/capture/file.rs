//! A pcapng file that the calling thread writes.

use std::io::Write;

use super::CaptureStatistics;
use super::pcapng::{self, Flags, LinkType, Packet};
use crate::Offload;
use crate::checksum::complete_beginning;

/// Bytes of blocks that are written together.
const CHUNK_LEN: usize = 64 * 1024;

/// A pcapng file of one Ethernet link's frames. The writing thread waits for the
/// file, so no other thread may wait for it.
pub struct CaptureFile {
    out: Box<dyn Write + Send>,
    /// Whole blocks that are not written yet.
    blocks: Vec<u8>,
    /// Number of frames in `blocks`.
    pending: u64,
    /// Frames lost since the last frame in the file.
    lost: u64,
    snap_len: usize,
    statistics: CaptureStatistics,
}

/// Facts about a frame besides its bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) inbound: bool,
    pub(super) original_len: usize,
    pub(super) offload: Offload,
}

impl CaptureFile {
    /// Prepares a file. Writes nothing yet.
    pub fn new(out: Box<dyn Write + Send>, snap_len: u32, interface: &str, mac: [u8; 6]) -> CaptureFile {
        let mut blocks = Vec::new();
        pcapng::preamble(&mut blocks, LinkType::Ethernet, snap_len, interface, mac);
        CaptureFile {
            out,
            blocks,
            pending: 0,
            lost: 0,
            snap_len: snap_len as usize,
            statistics: CaptureStatistics::default(),
        }
    }

    /// Adds a frame with at least its first `snap_len` bytes. Fills in the fields
    /// that the sender left to the link.
    pub(super) fn record(&mut self, timestamp_ns: u64, frame: Frame, bytes: &mut [u8]) {
        let Frame {
            inbound,
            original_len,
            mut offload,
        } = frame;
        let original_len = original_len.max(bytes.len());
        complete_beginning(bytes, true, original_len, &mut offload);
        self.statistics.frames += 1;
        self.pending += 1;
        let packet = Packet {
            timestamp_ns,
            data: &bytes[..bytes.len().min(self.snap_len)],
            original_len,
            flags: Flags::new(inbound, LinkType::Ethernet, bytes),
            lost: std::mem::take(&mut self.lost),
        };
        pcapng::enhanced_packet(&mut self.blocks, &packet);
        if self.blocks.len() >= CHUNK_LEN {
            self.flush();
        }
    }

    /// Notes frames that were lost before they could be recorded.
    pub(super) fn lose(&mut self, frames: u64) {
        self.statistics.frames += frames;
        self.statistics.lost += frames;
        self.lost += frames;
    }

    /// Writes all recorded frames.
    pub fn flush(&mut self) {
        if self.blocks.is_empty() {
            return;
        }
        // After a failed write the file may end in the middle of a block. Later
        // blocks could not be read.
        if self.statistics.write_errors == 0 {
            let written = self.out.write_all(&self.blocks).and_then(|()| self.out.flush());
            self.statistics.write_errors = u64::from(written.is_err());
        }
        if self.statistics.write_errors > 0 {
            self.statistics.lost += self.pending;
        }
        self.blocks.clear();
        self.pending = 0;
    }

    /// Returns the counters of the frames so far.
    pub fn statistics(&self) -> CaptureStatistics {
        self.statistics
    }

    /// Ends the file with its statistics.
    pub fn end(&mut self, timestamp_ns: u64) {
        self.flush();
        let CaptureStatistics { frames, lost, .. } = self.statistics;
        pcapng::interface_statistics(&mut self.blocks, timestamp_ns, frames, lost);
        self.flush();
    }
}

impl std::fmt::Debug for CaptureFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaptureFile")
            .field("statistics", &self.statistics)
            .finish_non_exhaustive()
    }
}
