//! Writes a link's frames into a pcapng file, which Wireshark and tshark read.
//!
//! A [`Capture`] decorates a link of one process. A [`Tap`] records a link that
//! several processes drive. Both copy every frame and fill in, in the copy, the
//! lengths and checksums that the sender left to the link. Neither holds the
//! traffic up (`recorder.rs`). Frames that a file does not take in time are
//! counted. All others are in the file at the end.

mod file;
mod pcapng;
mod recorder;
mod tap;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use toehold_shm::{ArenaId, Gather};

pub use self::file::CaptureFile;
pub use self::pcapng::LinkType;
use self::pcapng::{Flags, Packet};
pub use self::recorder::CaptureStatistics;
use self::recorder::Recorder;
pub use self::tap::{Player, SharedTap, Tap};
use crate::checksum::complete;
use crate::steering::Flow;
use crate::{
    Capabilities, Fence, Link, NeighborChange, Offload, Received, Transmit, TransmitError, Transmitter, Watch,
};

/// Longest delay in nanoseconds until recorded frames reach the file.
const HAND_OVER_NS: u64 = 50_000_000;

/// The clock that stamps frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CaptureClock {
    /// Wall-clock time, read for each frame, advancing monotonically.
    #[default]
    Wall,
    /// The driver's `now_ns` at the last [`Link::receive`]. Under virtual time,
    /// equal runs give equal files.
    Driver,
}

/// Settings of a capture.
#[derive(Debug, Clone)]
pub struct CaptureSettings {
    /// The first header of the link's frames.
    pub link_type: LinkType,
    /// Number of bytes kept of each frame.
    pub snap_len: u32,
    /// Name of the interface in the file.
    pub interface: String,
    /// Most bytes that wait to be written. Beyond, frames are lost to the
    /// capture.
    pub buffer_len: usize,
    /// Source of the time stamps.
    pub clock: CaptureClock,
}

impl Default for CaptureSettings {
    fn default() -> Self {
        CaptureSettings {
            link_type: LinkType::Ethernet,
            snap_len: 262_144,
            interface: "toe0".into(),
            buffer_len: 8 << 20,
            clock: CaptureClock::Wall,
        }
    }
}

/// A link with a recording of its traffic.
///
/// Refused frames are not recorded. Dropping the capture completes the file and
/// waits for that, even for a pipe without a reader.
#[derive(Debug)]
pub struct Capture<L: Link> {
    link: L,
    tape: Tape,
}

/// All fields but the link, which borrows them while it runs its handler.
#[derive(Debug)]
struct Tape {
    recorder: Recorder,
    link_type: LinkType,
    snap_len: usize,
    clock: CaptureClock,
    /// An instant, and its time in nanoseconds since 1970.
    origin: (Instant, u64),
    now_ns: u64,
    handed_over_ns: u64,
    scratch: Vec<u8>,
}

impl<L: Link> Capture<L> {
    /// Records into a new file, which replaces an existing one.
    ///
    /// # Errors
    ///
    /// If the file cannot be created.
    pub fn create(link: L, path: &Path, settings: &CaptureSettings) -> io::Result<Capture<L>> {
        let file = File::create(path)?;
        Capture::to_writer(link, Box::new(file), settings)
    }

    /// Records into `out`, for example a pipe to a running analyser.
    ///
    /// # Errors
    ///
    /// If the writing thread cannot be started.
    pub fn to_writer(
        link: L,
        out: Box<dyn Write + Send>,
        settings: &CaptureSettings,
    ) -> io::Result<Capture<L>> {
        let mut preamble = Vec::new();
        pcapng::preamble(
            &mut preamble,
            settings.link_type,
            settings.snap_len,
            &settings.interface,
            link.address(),
        );
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let tape = Tape {
            recorder: Recorder::start(out, preamble, settings.buffer_len)?,
            link_type: settings.link_type,
            snap_len: settings.snap_len as usize,
            clock: settings.clock,
            origin: (Instant::now(), since_1970.as_nanos() as u64),
            now_ns: 0,
            handed_over_ns: 0,
            scratch: Vec::new(),
        };
        Ok(Capture { link, tape })
    }

    /// Returns the counters of the frames so far.
    pub fn statistics(&self) -> CaptureStatistics {
        self.tape.recorder.statistics()
    }

    /// The recorded link.
    pub fn inner(&self) -> &L {
        &self.link
    }

    /// The recorded link, for changes.
    pub fn inner_mut(&mut self) -> &mut L {
        &mut self.link
    }
}

impl Tape {
    fn timestamp_ns(&self) -> u64 {
        match self.clock {
            CaptureClock::Driver => self.now_ns,
            CaptureClock::Wall => self
                .origin
                .1
                .saturating_add(self.origin.0.elapsed().as_nanos() as u64),
        }
    }

    fn record(&mut self, inbound: bool, beginning: &[u8], rest: &Gather<'_>, mut offload: Offload) {
        let timestamp_ns = self.timestamp_ns();
        self.scratch.clear();
        self.scratch.extend_from_slice(beginning);
        self.scratch.resize(beginning.len() + rest.len(), 0);
        rest.copy_to(0, &mut self.scratch[beginning.len()..]);
        complete(
            &mut self.scratch,
            self.link_type == LinkType::Ethernet,
            &mut offload,
        );

        let Tape {
            recorder,
            scratch,
            link_type,
            snap_len,
            ..
        } = self;
        recorder.record(|out, lost| {
            pcapng::enhanced_packet(
                out,
                &Packet {
                    timestamp_ns,
                    data: &scratch[..scratch.len().min(*snap_len)],
                    original_len: scratch.len(),
                    flags: Flags::new(inbound, *link_type, scratch),
                    lost,
                },
            );
        });
    }
}

impl<L: Link> Drop for Capture<L> {
    fn drop(&mut self) {
        let timestamp_ns = self.tape.timestamp_ns();
        self.tape.recorder.finish(|out, statistics| {
            pcapng::interface_statistics(out, timestamp_ns, statistics.frames, statistics.lost);
        });
    }
}

impl<L: Link> Transmitter for Capture<L> {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        self.link.transmit(frame)?;
        self.tape
            .record(false, frame.headers, frame.payload, frame.offload);
        Ok(())
    }

    fn fence(&self, destination: [u8; 6], flow: &Flow) -> Fence {
        self.link.fence(destination, flow)
    }

    fn passed(&self, fence: Fence) -> bool {
        self.link.passed(fence)
    }

    fn payload_arena(&self) -> ArenaId {
        self.link.payload_arena()
    }
}

impl<L: Link> Link for Capture<L> {
    fn capabilities(&self) -> Capabilities {
        self.link.capabilities()
    }

    fn address(&self) -> [u8; 6] {
        self.link.address()
    }

    fn receive(&mut self, now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        let Capture { link, tape } = self;
        tape.now_ns = now_ns;
        let count = link.receive(now_ns, budget, &mut |frame| {
            tape.record(true, frame.private, &frame.rest, frame.offload);
            handler(frame);
        });
        if now_ns.wrapping_sub(tape.handed_over_ns) >= HAND_OVER_NS {
            tape.handed_over_ns = now_ns;
            tape.recorder.hand_over();
        }
        count
    }

    fn flush(&mut self) {
        self.link.flush();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn longest_sleep(&self) -> Option<Duration> {
        self.link.longest_sleep()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.tape.recorder.hand_over();
        self.link.prepare_sleep()
    }

    fn finish_sleep(&mut self, now_ns: u64) {
        self.link.finish_sleep(now_ns);
    }

    fn next_change(&mut self) -> Option<NeighborChange> {
        self.link.next_change()
    }

    fn watch(&self, watch: &mut Watch) -> bool {
        self.link.watch(watch)
    }
}
