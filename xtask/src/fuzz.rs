//! `cargo xtask fuzz`: fuzzes everything that parses.
//!
//! The targets in fuzz/ run under libFuzzer with coverage and address checks. Both
//! come with the stable compiler but need unstable flags, which `RUSTC_BOOTSTRAP`
//! permits. No nightly compiler is needed.

use crate::fuzz_record;
use crate::requirements::{self, FOR_FUZZING};
use crate::shell::{cargo, command, output, root, run as run_shown, target};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Targets to run; all of them if none is named.
    targets: Vec<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only run the inputs kept in fuzz/corpus, and fail if one of them fails.
    #[arg(long)]
    replay: bool,
    /// Afterwards store found inputs in fuzz/corpus, as few as cover the same code.
    #[arg(long)]
    keep: bool,
    /// Write the results to docs/fuzzing.md, if no target failed.
    #[arg(long, conflicts_with = "replay")]
    record: bool,
}

impl Arguments {
    /// The arguments of a check.
    pub(crate) fn replaying() -> Self {
        Self {
            targets: Vec::new(),
            seconds: 0,
            replay: true,
            keep: false,
            record: false,
        }
    }
}

/// Time after which an input counts as an endless loop.
const SLOWEST_INPUT_SECONDS: u32 = 10;

/// Runs the fuzz targets one after the other and prints their results.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let missing = requirements::provide(FOR_FUZZING);
    ensure!(
        missing.is_empty(),
        "libFuzzer cannot be built without a C++ compiler"
    );
    let targets = chosen(arguments)?;
    build()?;
    let mut failed = Vec::new();
    let mut passed = Vec::new();
    for name in &targets {
        let outcome = Target::new(name).and_then(|target| target.run(arguments));
        match outcome {
            Ok(outcome) => {
                println!("fuzz {name}: ok, {outcome}");
                passed.push((name.as_str(), outcome));
            }
            Err(error) => {
                println!("fuzz {name}: FAILED, {error:#}");
                failed.push(name.as_str());
            }
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    if arguments.record {
        fuzz_record::write(&passed)?;
    }
    Ok(())
}

fn directory() -> PathBuf {
    root().join("fuzz")
}

/// Returns the names of the targets to run, checked against the sources.
fn chosen(arguments: &Arguments) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory().join("fuzz_targets"))? {
        let path = entry?.path();
        if let (Some(stem), Some("rs")) = (path.file_stem(), path.extension().and_then(|e| e.to_str())) {
            all.push(stem.to_string_lossy().into_owned());
        }
    }
    all.sort();
    for name in &arguments.targets {
        ensure!(
            all.contains(name),
            "there is no fuzz target `{name}`; there are: {}",
            all.join(", ")
        );
    }
    Ok(if arguments.targets.is_empty() {
        all
    } else {
        arguments.targets.clone()
    })
}

fn host() -> Result<String> {
    let version = output(&mut command("rustc", ["-vV"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not name its host")?.to_owned())
}

fn built() -> PathBuf {
    target().join("fuzz")
}

fn build() -> Result<()> {
    let coverage = [
        "level=4",              // edges, with indirect calls
        "inline-8bit-counters", // number of times that each edge was taken
        "pc-table",             // positions of the edges
        "trace-compares",       // operands of comparisons guide mutation
    ];
    let mut flags = String::from("--cfg fuzzing -Cpasses=sancov-module -Zsanitizer=address");
    for option in coverage {
        flags += &format!(" -Cllvm-args=-sanitizer-coverage-{option}");
    }
    // Arithmetic errors must show, and one unit per crate keeps edges apart.
    flags += " -Cdebug-assertions=on -Coverflow-checks=on -Ccodegen-units=1";
    let mut build = cargo([
        "build",
        "--release",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target",
    ]);
    build.arg(host()?).env("CARGO_TARGET_DIR", built());
    run_shown(build.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags))
}

/// One target with its directories.
struct Target {
    name: String,
    program: PathBuf,
    /// Inputs that belong to the repository.
    kept: PathBuf,
    /// Inputs found on this machine.
    found: PathBuf,
    log: PathBuf,
}

impl Target {
    fn new(name: &str) -> Result<Self> {
        let program = built().join(host()?).join("release").join(name);
        let target = Self {
            name: name.to_owned(),
            program,
            kept: directory().join("corpus").join(name),
            found: built().join("found").join(name),
            log: built().join("logs").join(format!("{name}.log")),
        };
        std::fs::create_dir_all(&target.kept)?;
        std::fs::create_dir_all(&target.found)?;
        std::fs::create_dir_all(built().join("logs"))?;
        Ok(target)
    }

    /// Runs the target and returns its outcome.
    fn run(&self, arguments: &Arguments) -> Result<Outcome> {
        let begun = Instant::now();
        let log = if arguments.replay {
            self.fuzzer(&["-runs=0".into(), self.kept.clone().into()])?
        } else {
            let time = format!("-max_total_time={}", arguments.seconds);
            self.fuzzer(&[time.into(), self.found.clone().into(), self.kept.clone().into()])?
        };
        let seconds = begun.elapsed().as_secs();
        if arguments.keep {
            self.keep()?;
        }
        let inputs = std::fs::read_dir(&self.kept)?.count();
        Ok(Outcome::new(&log, seconds, inputs))
    }

    /// Replaces the kept inputs by a small set with the same coverage. Inputs with
    /// a name instead of a hash stay.
    fn keep(&self) -> Result<()> {
        let merged = built().join("merged").join(&self.name);
        let _ = std::fs::remove_dir_all(&merged);
        std::fs::create_dir_all(&merged)?;
        let places = [&merged, &self.kept, &self.found].map(|place| place.clone().into());
        // Counts of an edge guide the search only, not the choice of kept inputs.
        let merge = ["-set_cover_merge=1".into(), "-use_counters=0".into()];
        self.fuzzer(&[&merge, places.as_slice()].concat())?;
        let mut named = Vec::new();
        for entry in std::fs::read_dir(&self.kept)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                std::fs::remove_file(path)?;
            } else {
                named.push(std::fs::read(path)?);
            }
        }
        for entry in std::fs::read_dir(&merged)? {
            let entry = entry?;
            if !named.contains(&std::fs::read(entry.path())?) {
                std::fs::copy(entry.path(), self.kept.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    /// Runs the program and returns its log.
    fn fuzzer(&self, arguments: &[OsString]) -> Result<String> {
        let artifacts = built().join("artifacts").join(&self.name);
        std::fs::create_dir_all(&artifacts)?;
        let log = std::fs::File::create(&self.log)?;
        let mut fuzzer = command(
            &self.program,
            [
                format!("-artifact_prefix={}/", artifacts.display()),
                format!("-timeout={SLOWEST_INPUT_SECONDS}"),
                "-print_final_stats=1".to_owned(),
            ],
        );
        fuzzer.args(arguments).stdout(Stdio::null()).stderr(log);
        let status = fuzzer
            .status()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        if !status.success() {
            let cause: Vec<_> = log.lines().filter(|line| is_cause(line)).take(4).collect();
            bail!("{}\n  log: {}", cause.join("\n  "), self.log.display());
        }
        Ok(log)
    }
}

fn is_cause(line: &str) -> bool {
    ["panicked at", "ERROR:", "SUMMARY:", "Test unit written"]
        .iter()
        .any(|mark| line.contains(mark))
}

/// The outcome of a target without a failure.
pub(crate) struct Outcome {
    /// Number of inputs tried.
    pub(crate) runs: u64,
    pub(crate) seconds: u64,
    /// Number of control-flow edges taken.
    pub(crate) edges: u64,
    /// Number of inputs in fuzz/corpus.
    pub(crate) inputs: usize,
}

impl Outcome {
    /// Parses a libFuzzer log.
    fn new(log: &str, seconds: u64, inputs: usize) -> Self {
        let runs = log.lines().find_map(|line| {
            let (_, count) = line.split_once("stat::number_of_executed_units:")?;
            count.trim().parse().ok()
        });
        let edges = log.lines().rev().find_map(|line| {
            let (_, rest) = line.split_once(" cov: ")?;
            rest.split_whitespace().next()?.parse().ok()
        });
        Self {
            runs: runs.unwrap_or(0),
            seconds,
            edges: edges.unwrap_or(0),
            inputs,
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            runs,
            seconds,
            edges,
            inputs,
        } = self;
        write!(
            f,
            "{runs} runs in {seconds} s, {edges} edges, {inputs} inputs kept"
        )
    }
}
