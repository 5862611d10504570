//! Carries plans out, from the lock to the report, for every command that measures.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use toehold_lab::far::Far;
use toehold_lab::host::MachineUse;
use toehold_lab::report::{self, Header, Look, Report};
use toehold_lab::samples::{Store, Unfinished, check_whole, write_json};
use toehold_lab::{Lock, Plan, Progress, Runner, say, testbed};

use crate::{interrupt, json, side};

/// The destination of results, for every experiment.
#[derive(Debug, clap::Args)]
pub(crate) struct Output {
    /// Directory of results; each run makes its own directory in it
    /// [default: $XDG_STATE_HOME/toehold/results, or ~/.local/state/toehold/results]
    #[arg(long, value_name = "DIR", env = "TOEHOLD_RESULTS")]
    out: Option<PathBuf>,

    /// Print the report as JSON instead of tables, or write it to FILE as well
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    json: Option<Option<PathBuf>>,
}

/// Schema of one report.
const REPORT: &str = "toehold/report/1";

/// A document with several reports.
#[derive(Debug, serde::Serialize)]
struct Reports<'a> {
    reports: &'a [Report],
}

impl Output {
    /// Detects, before the measurement, errors that would occur after it.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(path) = self.json.iter().flatten().next() {
            check_whole(path).with_context(|| {
                format!("cannot write {}: choose another FILE for --json", path.display())
            })?;
        }
        Ok(())
    }

    pub(crate) fn results(&self) -> Result<PathBuf> {
        results(self.out.as_deref())
    }

    /// Whether standard output carries JSON only.
    pub(crate) fn is_json_only(&self) -> bool {
        matches!(self.json, Some(None))
    }

    /// Writes the reports to the target of `--json`: one as `toehold/report/1`, several as
    /// `toehold/reports/1`.
    pub(crate) fn deliver(&self, reports: &[Report]) -> Result<()> {
        match reports {
            [report] => self.deliver_one(REPORT, report),
            reports => self.deliver_one("toehold/reports/1", &Reports { reports }),
        }
    }

    /// Writes the result of an experiment to the target of `--json`, with the name of its schema.
    pub(crate) fn deliver_one<T: serde::Serialize>(&self, schema: &'static str, found: &T) -> Result<()> {
        match &self.json {
            None => Ok(()),
            Some(None) => json::print(schema, found),
            Some(Some(path)) => Ok(write_json(path, &json::Document::new(schema, found))?),
        }
    }
}

/// The directory of results: the user's choice, or the default.
pub(crate) fn results(chosen: Option<&Path>) -> Result<PathBuf> {
    if let Some(out) = chosen {
        return std::path::absolute(out).context("cannot tell where the results would go");
    }
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    let state =
        state.ok_or_else(|| anyhow!("neither XDG_STATE_HOME nor HOME is set: say where with --out"))?;
    Ok(state.join("toehold/results"))
}

/// The run to begin or to resume.
#[derive(Debug, Clone)]
pub(crate) enum Begin {
    /// A new run.
    Anew,
    /// The latest interrupted one of the same plan, settings and build; without one, a new one.
    ResumeLatest,
    /// The interrupted one in this directory.
    Resume(PathBuf),
}

/// Waits until no other measurement runs on this machine. Returns no lock if `stop` is set
/// meanwhile.
pub(crate) fn lock(stop: &AtomicBool) -> Result<Option<Lock>> {
    let waiting = || say("another measurement runs on this machine; waiting for its end (Ctrl-C gives up)");
    Lock::acquire(stop, waiting).context("cannot tell whether another measurement runs")
}

/// Carries a plan out, or resumes it. The caller holds the lock.
pub(crate) fn measure(plan: Plan, results: &Path, begin: &Begin, stop: &AtomicBool) -> Result<Report> {
    plan.check(testbed::ALL)?;
    let met = plan.settings.far.as_ref().map(Far::meet);
    let mut header = Header::now(plan);
    header.far = met.as_ref().and_then(|met| met.as_ref().ok()).cloned();
    let unfinished = match begin {
        Begin::Anew => None,
        Begin::ResumeLatest => Unfinished::latest(results, &header),
        Begin::Resume(directory) => Some(Unfinished::open(directory, &header)?),
    };
    let is_resumed = unfinished.is_some();
    let (header, mut store, earlier) = match unfinished {
        Some(run) => {
            let store = run.store()?;
            (run.header, store, run.samples)
        }
        None => {
            let store = Store::begin(results, &header.plan.experiment, &header)?;
            (header, store, Vec::new())
        }
    };
    let mut progress = Progress::new(header.plan.rounds);
    let directory = store.directory().display();
    if is_resumed {
        let taken = earlier.len();
        progress.say(&format!("going on with {directory}, which has {taken} samples"));
    } else {
        progress.say(&format!("seed {}, raw samples in {directory}", header.plan.seed));
    }
    let runner = Runner {
        launcher: side::launcher()?,
        candidates: testbed::ALL,
        far: met.as_ref(),
        stop,
    };
    let before = earlier.iter().map(|sample| sample.took_ns).sum();
    let (began, used) = (Instant::now(), MachineUse::so_far());
    let samples = runner.go_on(&header.plan, earlier, &mut store, &mut progress);
    progress.finish();
    let samples = samples?;
    let report = Report::new(
        header,
        &samples,
        Duration::from_nanos(before) + began.elapsed(),
        !stop.load(Ordering::Relaxed),
        MachineUse::so_far().since(&used),
        store.directory(),
    );
    store.write("report.json", &json::Document::new(REPORT, &report))?;
    say(&format!("raw samples and report: {}", report.results.display()));
    Ok(report)
}

/// Prints a report for a person.
pub(crate) fn show(report: &Report) -> Result<()> {
    let terminal = console::Term::stdout();
    let look = Look {
        width: terminal.size_checked().map(|(_, columns)| columns),
        colours: console::colors_enabled(),
    };
    write!(std::io::stdout().lock(), "{}", report::text(report, look))?;
    Ok(())
}

/// The exit status: success if everything was measured.
pub(crate) fn status(reports: &[Report]) -> ExitCode {
    let is_sound = |report: &Report| {
        report.failures.is_empty() && report.candidates.values().any(|fate| fate.measured > 0)
    };
    if reports.iter().any(|report| !report.complete) {
        ExitCode::from(interrupt::STATUS)
    } else if reports.iter().all(is_sound) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
