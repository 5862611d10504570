//! Progress of a run, on standard error: a bar on a terminal, a line a round elsewhere.

use std::collections::HashSet;
use std::io::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::runner::Observer;
use crate::samples::{Outcome, Sample};

/// Prints a line for a person on standard error. A failure is ignored: the run continues after its
/// terminal was closed.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Shows an [`Observer`]'s events to a person.
#[derive(Debug)]
pub struct Progress {
    rounds: u32,
    bar: Option<ProgressBar>,
    began: Instant,
    /// Number of rounds announced so far.
    announced: u32,
    /// Sequence number of the first measurement: not 0 in a resumed run.
    first: Option<u32>,
    /// Candidates left out, with the reason, each reported once.
    left_out: HashSet<String>,
}

impl Progress {
    /// The progress of a run of `rounds` rounds.
    pub fn new(rounds: u32) -> Self {
        let bar = console::user_attended_stderr().then(|| {
            let style = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}  {eta} left");
            // Drawn only when a measurement begins and ends: a thread that redraws it would disturb
            // the measurement.
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self {
            rounds,
            bar,
            began: Instant::now(),
            announced: 0,
            first: None,
            left_out: HashSet::new(),
        }
    }

    /// Prints a message for a person.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(text)),
            None => say(text),
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Prints a line a round, with the remaining time from the second on.
    fn announce(&mut self, sequence: u32, total: u32, round: u32) {
        self.announced = round + 1;
        let elapsed = self.began.elapsed();
        let done = sequence - self.first.unwrap_or(sequence);
        let left = (done > 0).then(|| elapsed.mul_f64(f64::from(total - sequence) / f64::from(done)));
        let left = left.map(|left| Duration::from_secs(left.as_secs() + 1));
        let left = left.map_or(String::new(), |left| {
            format!(", about {} left", humantime::format_duration(left))
        });
        say(&format!(
            "round {} of {}{left}",
            round + 1,
            self.rounds.max(round + 1)
        ));
    }
}

impl Observer for Progress {
    fn begins(&mut self, sequence: u32, total: u32, round: u32, workload: &str, candidate: &str) {
        let is_first = self.first.is_none();
        self.first.get_or_insert(sequence);
        match &self.bar {
            Some(bar) => {
                bar.set_length(u64::from(total));
                bar.set_position(u64::from(sequence));
                if is_first {
                    bar.reset_eta();
                }
                bar.set_message(format!(
                    "round {}/{}: {candidate}, {workload}",
                    round + 1,
                    self.rounds.max(round + 1)
                ));
            }
            None if self.announced <= round => self.announce(sequence, total, round),
            None => {}
        }
    }

    fn ended(&mut self, sample: &Sample) {
        let Sample { candidate, name, .. } = sample;
        match &sample.outcome {
            Outcome::Measured { .. } => {}
            Outcome::Failed { reason, .. } => self.say(&format!("{candidate} failed at {name}: {reason}")),
            Outcome::Unavailable { reason } => {
                let text = format!("{candidate} is left out: {reason}");
                if self.left_out.insert(text.clone()) {
                    self.say(&text);
                }
            }
        }
    }
}
