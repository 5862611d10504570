//! What the soak measures: processes by `/proc`, the runtime directory, and the probe's times.

use super::place::{NODES, Place};
use super::programs::Programs;
use rustix::process::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The unit of a quantity, with the growth that is never a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Bytes that a process has for itself.
    Memory,
    /// Bytes of the memory files that an engine holds: its node's, and its peers'.
    Shared,
    /// Open file descriptors of a process.
    Descriptors,
    /// Threads of a process.
    Threads,
    /// Files and sockets in the runtime directory.
    Files,
    /// Median of the probe's times in nanoseconds.
    Median,
    /// 99th percentile of the probe's times in nanoseconds.
    Tail,
}

impl Kind {
    /// The quantity's name in the table and in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Memory => "memory_bytes",
            Kind::Shared => "shared_memory_bytes",
            Kind::Descriptors => "descriptors",
            Kind::Threads => "threads",
            Kind::Files => "runtime_files",
            Kind::Median => "p50_ns",
            Kind::Tail => "p99_ns",
        }
    }

    /// Growth that is no fault: an allocator's step, what is open for a moment, a timer's tick.
    pub(super) fn slack(self) -> f64 {
        match self {
            Kind::Memory => 1_048_576.0,
            Kind::Shared => 4_194_304.0,
            Kind::Descriptors | Kind::Files => 3.0,
            Kind::Threads => 2.0,
            Kind::Median => 20_000.0,
            Kind::Tail => 200_000.0,
        }
    }
}

/// Values of each subject and quantity, with the second in which each was taken.
#[derive(Default)]
pub(super) struct Samples(pub(super) BTreeMap<(String, Kind), Vec<(f64, f64)>>);

impl Samples {
    /// Looks at everything once.
    pub(super) fn take(&mut self, second: f64, place: &Place, programs: &Programs) {
        for (node, _) in NODES {
            if let Some(engine) = place.engine(node) {
                let name = format!("engine of {node}");
                self.take_process(second, &name, engine);
                if let Some(bytes) = memory_files(engine) {
                    self.add(second, &name, Kind::Shared, bytes as f64);
                }
            }
        }
        for (name, process) in programs.steady() {
            self.take_process(second, &name, process);
        }
        self.add(
            second,
            "runtime directory",
            Kind::Files,
            place.files().len() as f64,
        );
    }

    fn take_process(&mut self, second: f64, name: &str, process: Pid) {
        let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
        let status = status.unwrap_or_default();
        let number = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        };
        // Neither line is there of a process that has just ended.
        if let (Some(memory), Some(threads)) = (number("RssAnon:"), number("Threads:")) {
            self.add(second, name, Kind::Memory, memory * 1024.0);
            self.add(second, name, Kind::Threads, threads);
        }
        if let Some(descriptors) = descriptors(process) {
            self.add(second, name, Kind::Descriptors, descriptors as f64);
        }
    }

    /// Adds the percentiles of the probe's times in windows of so many seconds.
    pub(super) fn take_probe(&mut self, times: &Path, window_s: f64) {
        let bytes = fs::read(times).unwrap_or_default();
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let mut windows: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for pair in bytes.chunks_exact(16) {
            let at_s = number(&pair[..8]) as f64 / 1e9;
            windows
                .entry((at_s / window_s) as u64)
                .or_default()
                .push(number(&pair[8..]));
        }
        for (window, mut times) in windows {
            times.sort_unstable();
            let at_s = window as f64 * window_s;
            for (kind, hundredths) in [(Kind::Median, 50), (Kind::Tail, 99)] {
                let rank = (times.len() * hundredths).div_ceil(100).max(1) - 1;
                self.add(at_s, "probe", kind, times[rank] as f64);
            }
        }
    }

    fn add(&mut self, second: f64, name: &str, kind: Kind, value: f64) {
        let values = self.0.entry((name.to_owned(), kind)).or_default();
        values.push((second, value));
    }
}

/// The number of a process's descriptors.
pub(super) fn descriptors(process: Pid) -> Option<usize> {
    let directory = format!("/proc/{}/fd", process.as_raw_nonzero());
    Some(fs::read_dir(directory).ok()?.count())
}

/// The bytes that a process's memory files take up, each file counted once.
fn memory_files(process: Pid) -> Option<u64> {
    let mut seen = BTreeSet::new();
    let mut bytes = 0;
    for entry in fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).ok()? {
        let path = entry.ok()?.path();
        let is_memory =
            fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:toehold-"));
        // A descriptor can be closed between the two looks.
        let Ok(file) = fs::metadata(&path) else { continue };
        if is_memory && seen.insert((file.dev(), file.ino())) {
            bytes += file.blocks() * 512;
        }
    }
    Some(bytes)
}
