//! An instance of the trace's buffers.

use super::guard::InstanceGuard;
use super::{Tracefs, TracefsError};
use crate::clock_source::ClockSource;
use crate::kernel::blocks::TRACEPOINTS;
use crate::kernel::event::{KernelEvent, TraceLine, parse_line, parse_ticks};
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// What the names of our instances begin with.
const PREFIX: &str = "toehold-";

/// Kilobytes of the buffer of each processor. It holds the events of a block with room to spare.
const BUFFER_KB: u32 = 8192;

/// The most text that is read of a processor, in bytes. The rest counts as one lost event.
const MOST_TEXT: u64 = 64 << 20;

/// How long the folder's lock is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most leftovers that are removed at once.
const MOST_LEFTOVERS: usize = 64;

/// How the text must look, and that full buffers drop new events instead of old ones. Names of
/// threads are not recorded, for that would cost at each turn of a thread.
const OPTIONS: [&str; 10] = [
    "nooverwrite",
    "context-info",
    "irq-info",
    "norecord-tgid",
    "norecord-cmd",
    "nolatency-format",
    "noraw",
    "nohex",
    "nobin",
    "noverbose",
];

/// Instances of this process so far.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The trace's clock and `CLOCK_MONOTONIC_RAW` at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    ticks: u64,
    raw_ns: u64,
}

impl ClockReading {
    /// Nanoseconds of a tick between two readings; not a number if no tick passed.
    pub fn ns_per_tick_until(&self, later: &Self) -> f64 {
        let ns = later.raw_ns.saturating_sub(self.raw_ns) as f64;
        match later.ticks.saturating_sub(self.ticks) {
            0 => f64::NAN,
            ticks => ns / ticks as f64,
        }
    }
}

/// The events of all processors' buffers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceText {
    /// Events in the order of their ticks.
    pub events: Vec<KernelEvent>,
    /// Events that the text says are lost.
    pub lost_events: u64,
    /// Lines that are no events.
    pub malformed_lines: u64,
}

/// Buffers and settings of the trace that no other user of it shares.
#[derive(Debug)]
pub struct TraceInstance {
    path: PathBuf,
    /// Held open, so that the kernel refuses to remove a living owner's instance.
    hold: Option<File>,
    cpus: Vec<PathBuf>,
    is_enabled: bool,
    /// Told after the instance is gone, and before the mount is.
    _guard: InstanceGuard,
    _tracefs: Tracefs,
}

impl TraceInstance {
    /// A new instance that records nothing yet. Instances that dead owners left behind are removed.
    ///
    /// # Errors
    ///
    /// [`TracefsError`] names what the kernel lacks or refuses.
    pub fn new(tracefs: &Tracefs, clock: ClockSource) -> Result<Self, TracefsError> {
        let instances = tracefs.instances();
        remove_leftovers(&instances);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let guard = InstanceGuard::start(&instances, &name).map_err(TracefsError::Guard)?;
        let path = instances.join(name);
        let hold = create_held(&instances, &path)?;
        let mut found = Self {
            path,
            hold: Some(hold),
            cpus: Vec::new(),
            is_enabled: false,
            _guard: guard,
            _tracefs: tracefs.clone(),
        };
        found.set_on(false)?;
        found.write("buffer_size_kb", &BUFFER_KB.to_string())?;
        for option in OPTIONS {
            // An older kernel may lack an option, and then has nothing to turn off.
            let _ = found.write("trace_options", option);
        }
        let clock = clock.tracefs_name();
        found.write("trace_clock", clock).map_err(|error| match error {
            TracefsError::Io(_, error) if error.kind() == io::ErrorKind::InvalidInput => {
                TracefsError::NoClock(clock)
            }
            error => error,
        })?;
        found.cpus = processors(&found.path.join("per_cpu"))?;
        Ok(found)
    }

    /// The name of the instance's folder.
    pub fn name(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str());
        name.unwrap_or_default()
    }

    /// Lets only the events of two threads into the buffers.
    ///
    /// # Errors
    ///
    /// [`TracefsError::NoTracepoint`] if the kernel lacks one that the layout needs.
    pub fn set_filters(&self, threads: [u32; 2]) -> Result<(), TracefsError> {
        for tracepoint in TRACEPOINTS {
            let folder = tracepoint.folder;
            if !self.path.join("events").join(folder).is_dir() {
                return Err(TracefsError::NoTracepoint(folder));
            }
            self.write(&format!("events/{folder}/filter"), &tracepoint.filter(threads))?;
        }
        Ok(())
    }

    /// Turns all tracepoints of the layout on or off.
    ///
    /// # Errors
    ///
    /// The error of the tracepoint's file.
    pub fn enable(&mut self, is_on: bool) -> Result<(), TracefsError> {
        if is_on != self.is_enabled {
            let value = if is_on { "1" } else { "0" };
            for tracepoint in TRACEPOINTS {
                self.write(&format!("events/{}/enable", tracepoint.folder), value)?;
            }
        }
        self.is_enabled = is_on;
        Ok(())
    }

    /// Starts or stops recording.
    ///
    /// # Errors
    ///
    /// The error of `tracing_on`.
    pub fn set_on(&self, is_on: bool) -> Result<(), TracefsError> {
        self.write("tracing_on", if is_on { "1" } else { "0" })
    }

    /// Empties the buffers, and sets their counts to 0.
    ///
    /// # Errors
    ///
    /// The error of `trace`.
    pub fn clear(&self) -> Result<(), TracefsError> {
        let opened = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.path.join("trace"));
        opened
            .map(drop)
            .map_err(|error| TracefsError::of("empty trace", error))
    }

    /// Reads the events of all buffers, which stay there. Recording must be stopped.
    ///
    /// # Errors
    ///
    /// The error of a processor's `trace`.
    pub fn read(&self) -> Result<TraceText, TracefsError> {
        let mut found = TraceText::default();
        for cpu in &self.cpus {
            let failed = |error| TracefsError::of("read trace", error);
            let file = File::open(cpu.join("trace")).map_err(failed)?;
            let mut text = Vec::new();
            file.take(MOST_TEXT).read_to_end(&mut text).map_err(failed)?;
            found.lost_events += u64::from(text.len() as u64 == MOST_TEXT);
            found.add(&text);
        }
        // The sort keeps the order of equal ticks.
        found.events.sort_by_key(|event| event.ticks);
        Ok(found)
    }

    /// Events that the kernel dropped or overwrote since [`TraceInstance::clear`].
    ///
    /// # Errors
    ///
    /// The error of a processor's `stats`.
    pub fn lost_events(&self) -> Result<u64, TracefsError> {
        let mut lost = 0;
        for cpu in &self.cpus {
            let text = self.stats(cpu)?;
            for key in ["overrun", "commit overrun", "dropped events"] {
                let number = stat(&text, key).and_then(|number| number.parse().ok());
                lost += number.unwrap_or(0_u64);
            }
        }
        Ok(lost)
    }

    /// The trace's clock and `CLOCK_MONOTONIC_RAW`, by the closest of some readings.
    ///
    /// # Errors
    ///
    /// The error of a processor's `stats`.
    pub fn clock_reading(&self) -> Result<ClockReading, TracefsError> {
        let cpu = self.cpus.first().ok_or_else(no_processor)?;
        let mut best: Option<(u64, ClockReading)> = None;
        for _ in 0..20 {
            let before = raw_ns();
            let text = self.stats(cpu)?;
            let apart = raw_ns() - before;
            let ticks = stat(&text, "now ts").and_then(parse_ticks);
            let ticks = ticks.ok_or_else(no_processor)?;
            let reading = ClockReading {
                ticks,
                raw_ns: before + apart / 2,
            };
            if best.is_none_or(|(closest, _)| apart < closest) {
                best = Some((apart, reading));
            }
        }
        best.map(|(_, reading)| reading).ok_or_else(no_processor)
    }

    fn stats(&self, cpu: &Path) -> Result<String, TracefsError> {
        fs::read_to_string(cpu.join("stats")).map_err(|error| TracefsError::of("read stats", error))
    }

    fn write(&self, file: &str, text: &str) -> Result<(), TracefsError> {
        let opened = OpenOptions::new().write(true).open(self.path.join(file));
        let written = opened.and_then(|mut opened| opened.write_all(text.as_bytes()));
        written.map_err(|error| TracefsError::of(format!("write {text:?} to {file}"), error))
    }
}

impl Drop for TraceInstance {
    fn drop(&mut self) {
        let _ = self.set_on(false);
        drop(self.hold.take());
        // What fails here, the guard tries again.
        let _ = fs::remove_dir(&self.path);
    }
}

impl TraceText {
    fn add(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n') {
            match parse_line(line) {
                TraceLine::Event(event) => self.events.push(event),
                TraceLine::Other => {}
                TraceLine::Lost(count) => self.lost_events += count.max(1),
                TraceLine::Malformed => self.malformed_lines += 1,
            }
        }
    }
}

/// Makes an instance and opens a file of it, so that no other process removes it as a leftover.
///
/// Processes that remove leftovers have the folder's lock alone, and those that make an instance
/// share it. One that is stopped while it has the lock delays others for [`PATIENCE`] at most.
fn create_held(instances: &Path, path: &Path) -> Result<File, TracefsError> {
    let folder = File::open(instances).map_err(|error| TracefsError::of("open the instances", error))?;
    let until = Instant::now() + PATIENCE;
    while folder.try_lock_shared().is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    fs::create_dir(path).map_err(|error| TracefsError::of("create an instance", error))?;
    let hold = OpenOptions::new().write(true).open(path.join("tracing_on"));
    hold.map_err(|error| TracefsError::of("open tracing_on", error))
}

/// Removes instances that no process holds. The kernel refuses to remove the others. While another
/// process makes an instance, leftovers stay for the next time.
fn remove_leftovers(instances: &Path) {
    let Ok(folder) = File::open(instances) else { return };
    if folder.try_lock().is_err() {
        return;
    }
    let entries = fs::read_dir(instances).into_iter().flatten().flatten();
    let own = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for entry in own.take(MOST_LEFTOVERS) {
        let _ = fs::remove_dir(entry.path());
    }
}

/// The folders of processors, in order.
fn processors(per_cpu: &Path) -> Result<Vec<PathBuf>, TracefsError> {
    let entries = fs::read_dir(per_cpu).map_err(|error| TracefsError::of("read per_cpu", error))?;
    let mut cpus: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    cpus.sort();
    Ok(cpus)
}

fn no_processor() -> TracefsError {
    TracefsError::Io("read stats".into(), io::ErrorKind::InvalidData.into())
}

/// The value of a line `key: value`.
fn stat<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    let mut own = values.filter(|(found, _)| *found == key);
    own.next().map(|(_, value)| value.trim())
}

fn raw_ns() -> u64 {
    let time = clock_gettime(ClockId::MonotonicRaw);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_found_by_their_whole_name() {
        let text = "entries: 7\noverrun: 3\ncommit overrun: 2\nnow ts: 90005323216795\n";
        assert_eq!(stat(text, "overrun"), Some("3"));
        assert_eq!(stat(text, "commit overrun"), Some("2"));
        assert_eq!(stat(text, "ts"), None);
    }

    #[test]
    fn rate_of_a_clock_that_stands_still_is_no_number() {
        let first = ClockReading {
            ticks: 5,
            raw_ns: 100,
        };
        let later = ClockReading {
            ticks: 31,
            raw_ns: 110,
        };
        assert!(first.ns_per_tick_until(&first).is_nan());
        assert!((first.ns_per_tick_until(&later) - 10.0 / 26.0).abs() < 1e-12);
    }

    #[test]
    fn text_with_broken_lines_counts_them_and_keeps_the_events() {
        let mut text = TraceText::default();
        text.add(b"# tracer: nop\nbroken\nCPU:1 [LOST EVENTS]\nCPU:1 [LOST 4 EVENTS]\n\n");
        text.add(b"         python3-41      [001] ..... 9: sys_sendto(fd: 4)");
        assert_eq!(
            (text.events.len(), text.malformed_lines, text.lost_events),
            (1, 1, 5)
        );
    }
}
