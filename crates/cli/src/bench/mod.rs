//! `toehold bench`: measurements. A file an experiment; this one carries them out.

mod demux;
mod ethernet;
mod impaired;
mod measuring;
mod placement;
mod programs;
mod sockets;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::Subcommand;
use toehold_lab::host::MachineUse;
use toehold_lab::report::{self, Header, Look, Report};
use toehold_lab::samples::Store;
use toehold_lab::{Lock, Plan, Progress, Runner, testbed};

use crate::{interrupt, side};

/// Measures stacks beside one another on this machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  toehold bench sockets --quick")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    Sockets(sockets::Arguments),
    Placement(placement::Arguments),
    Ethernet(ethernet::Arguments),
    Impaired(impaired::Arguments),
    Programs(programs::Arguments),
    Demux(demux::Arguments),
}

/// Where results go: the same for every experiment.
#[derive(Debug, clap::Args)]
struct Output {
    /// Directory of results; each run makes a directory of its own in it
    /// [default: $XDG_STATE_HOME/toehold/results, or ~/.local/state/toehold/results]
    #[arg(long, value_name = "DIR", env = "TOEHOLD_RESULTS")]
    out: Option<PathBuf>,

    /// Print the report as JSON instead of tables, or write it to FILE as well
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    json: Option<Option<PathBuf>>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.experiment {
        Experiment::Sockets(arguments) => sockets::run(arguments),
        Experiment::Placement(arguments) => placement::run(arguments),
        Experiment::Ethernet(arguments) => ethernet::run(arguments),
        Experiment::Impaired(arguments) => impaired::run(arguments),
        Experiment::Programs(arguments) => programs::run(arguments),
        Experiment::Demux(arguments) => demux::run(&arguments),
    }
}

impl Output {
    /// Finds out before anything is measured what would fail after it.
    fn check(&self) -> Result<()> {
        if let Some(path) = self.json.iter().flatten().next() {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let directory = directory.unwrap_or(Path::new("."));
            if !directory.is_dir() || path.is_dir() {
                bail!("cannot write {}: choose another FILE for --json", path.display());
            }
        }
        Ok(())
    }

    fn results(&self) -> Result<PathBuf> {
        if let Some(out) = &self.out {
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
}

/// Runs a plan from the lock to the report. Fails if nothing could be measured.
fn carry_out(plan: Plan, output: &Output) -> Result<ExitCode> {
    plan.check(testbed::ALL)?;
    output.check()?;
    let stop = interrupt::flag()?;
    let Some(_lock) = lock(&stop)? else {
        return Ok(ExitCode::from(interrupt::STATUS));
    };
    let mut store = Store::create(&output.results()?, &plan.experiment)?;
    let header = Header::now(plan);
    store.write("run.json", &header)?;

    let mut progress = Progress::new(header.plan.rounds);
    progress.say(&format!(
        "seed {}, raw samples in {}",
        header.plan.seed,
        store.directory().display()
    ));
    let runner = Runner {
        launcher: side::launcher()?,
        candidates: testbed::ALL,
        stop: &stop,
    };
    let (began, used) = (Instant::now(), MachineUse::so_far());
    let samples = runner.run(&header.plan, &mut store, &mut progress);
    progress.finish();
    let samples = samples?;
    let machine = MachineUse::so_far().since(&used);
    let complete = !stop.load(Ordering::Relaxed);
    let report = Report::new(
        header,
        &samples,
        began.elapsed(),
        complete,
        machine,
        store.directory(),
    );
    store.write("report.json", &report)?;
    deliver(&report, output)
}

fn lock(stop: &AtomicBool) -> Result<Option<Lock>> {
    let waiting =
        || eprintln!("another measurement runs on this machine; waiting for its end (Ctrl-C gives up)");
    Lock::acquire(stop, waiting).context("cannot tell whether another measurement runs")
}

/// Hands the report to whoever asked for it.
fn deliver(report: &Report, output: &Output) -> Result<ExitCode> {
    let mut stdout = std::io::stdout().lock();
    match &output.json {
        Some(None) => {
            serde_json::to_writer_pretty(&mut stdout, report)?;
            writeln!(stdout)?;
        }
        other => {
            if let Some(Some(path)) = other {
                report.save(path)?;
            }
            let terminal = console::Term::stdout();
            let look = Look {
                width: terminal.size_checked().map(|(_, columns)| columns),
                colours: console::colors_enabled(),
            };
            write!(stdout, "{}", report::text(report, look))?;
        }
    }
    eprintln!("raw samples and report: {}", report.results.display());
    let measured = report.candidates.values().any(|fate| fate.measured > 0);
    Ok(match (report.complete, measured && report.failures.is_empty()) {
        (false, _) => ExitCode::from(interrupt::STATUS),
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::FAILURE,
    })
}
