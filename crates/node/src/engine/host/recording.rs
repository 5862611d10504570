//! A capture: a thread that writes the frames that the node's processes record.

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use toehold_link::capture::{CaptureFile, Player};

use crate::clock;
use crate::config::NodeConfig;
use crate::control::{CaptureRequest, CaptureSummary};

/// How often the thread looks for frames. No driver wakes it, so that recording costs a driver no
/// system call. In that time the capture ring takes 4 GB/s.
const PERIOD: Duration = Duration::from_millis(1);

/// How long the node's end waits for a file that takes nothing: it may be a pipe that no process
/// reads.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of each frame that can be kept.
const SNAP_LENS: std::ops::RangeInclusive<u32> = 64..=262_144;

pub(super) struct Recording {
    snap_len: u32,
    /// The channel by which the thread gets other memory to go on with. The channel's end is the
    /// recording's.
    changes: Option<Sender<Vec<Player>>>,
    /// Hangs up when the file is complete.
    done: Receiver<()>,
    summary: Arc<Mutex<CaptureSummary>>,
    /// Bytes that the file has taken.
    taken: Arc<AtomicU64>,
}

impl Recording {
    /// Records from now on.
    pub(super) fn start(
        mut players: Vec<Player>,
        file: File,
        request: CaptureRequest,
        config: &NodeConfig,
    ) -> io::Result<Recording> {
        let snap_len = request.snap_len.clamp(*SNAP_LENS.start(), *SNAP_LENS.end());
        let taken = Arc::new(AtomicU64::new(0));
        let file = Box::new(Counted(file, Arc::clone(&taken)));
        let file = CaptureFile::new(file, snap_len, &config.name, config.hardware_address());
        let (changes, to_come) = channel();
        let (running, done) = channel();
        let summary = Arc::new(Mutex::new(CaptureSummary::default()));
        players.iter_mut().for_each(|player| player.start(snap_len));
        let mut writer = Writer {
            players,
            file,
            epoch_ns: epoch_ns(),
            summary: Arc::clone(&summary),
        };
        let mut unused = writer.players.clone();
        let thread = std::thread::Builder::new().name("toehold-capture".into());
        let spawned = thread.spawn(move || {
            writer.run(&to_come);
            writer.end();
            drop(running);
        });
        if let Err(error) = spawned {
            unused.iter_mut().for_each(Player::stop);
            return Err(error);
        }
        Ok(Recording {
            snap_len,
            changes: Some(changes),
            done,
            summary,
            taken,
        })
    }

    /// Records the frames of these players from now on, in place of the former ones.
    pub(super) fn go_on_with(&self, mut players: Vec<Player>) {
        let Some(changes) = &self.changes else { return };
        players.iter_mut().for_each(|player| player.start(self.snap_len));
        // A thread that is no more has no need to know.
        let _ = changes.send(players);
    }

    /// Ends the recording. The summary says whether the file has been completed, within
    /// that time.
    pub(super) fn end(&mut self, within: Duration) -> CaptureSummary {
        self.changes = None;
        let complete = self.done.recv_timeout(within) == Err(RecvTimeoutError::Disconnected);
        CaptureSummary {
            complete,
            ..*lock(&self.summary)
        }
    }

    /// Waits until the file is complete, or does not take anything any more.
    pub(super) fn complete(mut self) {
        loop {
            let taken = self.taken.load(Relaxed);
            if self.end(PATIENCE).complete || self.taken.load(Relaxed) == taken {
                return;
            }
        }
    }
}

/// A file, and how much it has taken.
struct Counted(File, Arc<AtomicU64>);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.0.write(bytes)?;
        self.1.fetch_add(taken as u64, Relaxed);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The state of the thread. It waits for the file, and no other thread waits for it.
struct Writer {
    /// The player of each shard. Within a look, the frames of one come after those of the other.
    players: Vec<Player>,
    file: CaptureFile,
    /// The clock's time 0, since 1970.
    epoch_ns: u64,
    summary: Arc<Mutex<CaptureSummary>>,
}

impl Writer {
    fn run(&mut self, changes: &Receiver<Vec<Player>>) {
        loop {
            self.play();
            match changes.recv_timeout(PERIOD) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.finish(),
                Ok(players) => {
                    self.finish();
                    self.players = players;
                }
            }
        }
    }

    fn play(&mut self) {
        for player in &mut self.players {
            player.play(&mut self.file, self.epoch_ns);
        }
        self.tell();
    }

    /// Finishes the file with the frames that were recorded before now.
    fn finish(&mut self) {
        for player in &mut self.players {
            player.stop();
            player.play(&mut self.file, self.epoch_ns);
            player.settle(&mut self.file);
        }
        self.tell();
    }

    fn end(&mut self) {
        self.file.end(self.epoch_ns + clock::now().0);
        self.tell();
    }

    fn tell(&self) {
        let statistics = self.file.statistics();
        *lock(&self.summary) = CaptureSummary {
            frames: statistics.frames,
            lost: statistics.lost,
            write_errors: statistics.write_errors,
            complete: false,
        };
    }
}

fn lock(summary: &Mutex<CaptureSummary>) -> MutexGuard<'_, CaptureSummary> {
    summary.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When the drivers' clock was at 0. Taken once, so that a file's times go on evenly even if a
/// program sets the time of day.
fn epoch_ns() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since_1970.as_nanos() as u64).saturating_sub(clock::now().0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};
    use std::os::fd::OwnedFd;

    use toehold_link::capture::Tap;
    use toehold_link::{Offload, Transmit};
    use toehold_shm::{Carver, Gather, Region};

    use super::*;

    const REQUEST: CaptureRequest = CaptureRequest { snap_len: 100 };

    fn tap() -> Tap {
        let region = Region::private(Tap::bytes_needed()).unwrap();
        Tap::create(&mut Carver::new(region).unwrap()).unwrap()
    }

    fn send(tap: &mut Tap, byte: u8) {
        assert!(tap.is_open());
        let frame = Transmit {
            headers: &[byte; 60],
            payload: &Gather::EMPTY,
            offload: Offload::default(),
        };
        tap.record_sent(clock::now().0, &frame);
    }

    fn start(tap: &Tap, file: File) -> Recording {
        Recording::start(
            vec![tap.player()],
            file,
            REQUEST,
            &NodeConfig::new("unused", "web"),
        )
        .unwrap()
    }

    fn ended(mut recording: Recording) -> CaptureSummary {
        loop {
            let summary = recording.end(Duration::from_secs(1));
            if summary.complete {
                return summary;
            }
        }
    }

    #[test]
    fn a_recording_goes_on_when_the_node_begins_anew() {
        let mut file = tempfile::tempfile().unwrap();
        let (mut before, mut after) = (tap(), tap());
        let recording = start(&before, file.try_clone().unwrap());
        send(&mut before, 0xa1);
        recording.go_on_with(vec![after.player()]);
        send(&mut after, 0xa2);
        let summary = ended(recording);
        assert_eq!((summary.frames, summary.lost, summary.write_errors), (2, 0, 0));
        assert!(!before.is_open() && !after.is_open());
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let of = |byte: u8| bytes.iter().filter(|&&other| other == byte).count();
        assert!(of(0xa1) >= 60 && of(0xa2) >= 60);
    }

    #[test]
    fn a_file_that_cannot_be_written_costs_its_frames_only() {
        let mut tap = tap();
        let recording = start(&tap, File::options().write(true).open("/dev/full").unwrap());
        send(&mut tap, 1);
        let summary = ended(recording);
        assert_eq!((summary.frames, summary.lost, summary.write_errors), (1, 1, 1));
    }

    /// The node's end waited for two seconds, and then said that it had failed.
    #[test]
    fn a_pipe_that_is_read_late_gets_everything() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut tap = tap();
        let mut recording = start(&tap, OwnedFd::from(writer).into());
        for _ in 0..2000 {
            send(&mut tap, 0xa1);
        }
        let summary = recording.end(Duration::ZERO);
        assert!(!summary.complete);
        assert!(!recording.end(PATIENCE).complete, "a pipe holds less");
        let mut bytes = Vec::new();
        let read = std::thread::spawn(move || reader.read_to_end(&mut bytes).map(|_| bytes));
        let summary = ended(recording);
        assert_eq!((summary.frames, summary.lost, summary.write_errors), (2000, 0, 0));
        let bytes = read.join().unwrap().unwrap();
        assert!(bytes.iter().filter(|&&byte| byte == 0xa1).count() >= 2000 * 60);
    }

    #[test]
    fn a_pipe_that_nobody_reads_does_not_hold_up_the_nodes_end() {
        let (_reader, writer) = io::pipe().unwrap();
        let mut tap = tap();
        let recording = start(&tap, OwnedFd::from(writer).into());
        for _ in 0..2000 {
            send(&mut tap, 1);
        }
        recording.complete();
    }
}
