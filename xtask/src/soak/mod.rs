//! `cargo xtask soak`: nodes under load for as long as wanted, while their programs and engines
//! are killed and stopped.
//!
//! It owns a fabric in a directory of its own, and every process on it. It measures what it never
//! harms: the engines of two nodes, long-lived programs, and a pair that exchanges small
//! messages. The soak fails in three cases. A measured value grew from the first third of the
//! time to the last. A program ended otherwise than it may. Or anything stays behind.

mod place;
mod programs;
mod roles;
mod samples;
mod verdict;

use crate::requirements::is_there;
use crate::shell::{cargo, run as run_shown, target};
use anyhow::{Context, Result, bail};
use place::{NODES, Place, RESTLESS, eventually};
use programs::Programs;
use rustix::process::{Signal, kill_process};
use samples::Samples;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) use roles::{Arguments as ProgramArguments, run as run_program};

/// The mean time between two faults of programs.
const FAULT_PAUSE: Duration = Duration::from_millis(500);

/// The mean time between two faults of engines, in runs that are long enough.
const ENGINE_PAUSE: Duration = Duration::from_secs(15);

/// What a node at rest has none of.
const AT_REST: [&str; 7] = [
    "listeners",
    "payload_used",
    "waiters",
    "interests",
    "polls",
    "possessions",
    "relays",
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How long the load lasts
    #[arg(long, value_name = "N", default_value_t = 30.0)]
    minutes: f64,

    /// What is harmed, and when, follows from this number [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,

    /// Take `toehold` and `libtoehold.so` from a directory instead of building them
    #[arg(long, value_name = "DIRECTORY")]
    programs: Option<PathBuf>,

    /// Build and try the optimised programs, not those that check themselves
    #[arg(long, conflicts_with = "programs")]
    release: bool,

    /// Also write the result to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the soak, prints the table, and fails if anything was wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let place = Place::new(&built(arguments)?)?;
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    let span = Duration::from_secs_f64(arguments.minutes * 60.0);
    let real: Vec<&str> = ["nginx", "redis-server", "wrk"]
        .into_iter()
        .filter(|program| is_there(program))
        .collect();
    eprintln!(
        "seed {seed}; {:.0} s; with {}",
        span.as_secs_f64(),
        real.join(", ")
    );
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [Signal::INT, Signal::TERM] {
        signal_hook::flag::register(signal.as_raw(), Arc::clone(&interrupted))?;
    }

    let mut soak = Soak {
        place,
        random: fastrand::Rng::with_seed(seed),
        samples: Samples::default(),
        failures: Vec::new(),
        engines_killed: 0,
        engines_stopped: 0,
    };
    let done = soak.whole(span, &real, &interrupted)?;
    if interrupted.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    let rows = verdict::rows(&soak.samples, span.as_secs_f64());
    soak.failures.extend(verdict::growth(&rows));
    verdict::print(&rows);
    let document = json!({
        "schema": "toehold/soak/1",
        "seed": seed,
        "span_ns": span.as_nanos() as u64,
        "programs": real,
        "faults": {
            "programs_killed": done.killed,
            "programs_stopped": done.stopped,
            "engines_killed": soak.engines_killed,
            "engines_stopped": soak.engines_stopped,
        },
        "done": done.counts,
        "nodes": done.nodes,
        "rows": verdict::document(&rows),
        "failures": soak.failures,
    });
    println!(
        "\nfaults: {}\nnodes: {}\ndone: {}",
        document["faults"], document["nodes"], document["done"]
    );
    if let Some(path) = &arguments.json {
        std::fs::write(path, format!("{document:#}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if soak.failures.is_empty() {
        return Ok(());
    }
    let (failures, kept) = (soak.failures.join("\n  "), soak.place.keep());
    bail!("seed {seed}:\n  {failures}\nlogs are in {}", kept.display())
}

/// The directory with the programs to be tried.
fn built(arguments: &Arguments) -> Result<PathBuf> {
    if let Some(directory) = &arguments.programs {
        return Ok(directory.clone());
    }
    let mut build = cargo(["build"]);
    if arguments.release {
        build.arg("--release");
    }
    run_shown(&mut build)?;
    Ok(target().join(if arguments.release { "release" } else { "debug" }))
}

/// What was done and counted while the load lasted.
struct Done {
    killed: u32,
    stopped: u32,
    counts: Value,
    nodes: Value,
}

/// The state of a run.
struct Soak {
    place: Place,
    random: fastrand::Rng,
    samples: Samples,
    failures: Vec<String>,
    engines_killed: u32,
    engines_stopped: u32,
}

impl Soak {
    fn whole(&mut self, span: Duration, real: &[&'static str], interrupted: &AtomicBool) -> Result<Done> {
        for (node, _) in NODES {
            self.place.up(node)?;
        }
        let before = self.at_rest()?;
        let mut programs = Programs::start(&self.place, &mut self.random, real)?;
        self.load(span, &mut programs, interrupted)?;
        if let Err(error) = programs.await_progress(&self.place) {
            self.failures.push(format!("{error:#}"));
        }
        let counts = programs
            .counts()
            .into_iter()
            .map(|(name, count)| (name, Value::from(count)));
        let done = Done {
            killed: programs.killed,
            stopped: programs.stopped,
            counts: Value::Object(counts.collect()),
            nodes: self.nodes()?,
        };
        self.failures.append(&mut programs.failures);
        programs.end()?;
        self.samples
            .take_probe(&self.place.path("probe"), (span.as_secs_f64() / 90.0).max(0.5));
        match self.at_rest() {
            Ok(after) => self.compare_at_rest(&before, &after),
            Err(error) => self.failures.push(format!("{error:#}")),
        }
        self.leave()?;
        Ok(done)
    }

    /// Harms programs and engines, and measures, until the time is over.
    fn load(&mut self, span: Duration, programs: &mut Programs, interrupted: &AtomicBool) -> Result<()> {
        let begun = Instant::now();
        let engine_pause = ENGINE_PAUSE.min(span / 8);
        let sample_pause = (span / 180).clamp(Duration::from_millis(200), Duration::from_secs(2));
        let (mut next_fault, mut next_engine, mut next_sample) = (begun, begun + engine_pause, begun);
        let mut next_word = span / 10;
        let mut stopped_engine = None;
        while begun.elapsed() < span && !interrupted.load(Ordering::Relaxed) {
            let now = Instant::now();
            programs.look(&self.place, now)?;
            if now >= next_fault {
                programs.harm(&mut self.random, now)?;
                next_fault = now + self.about(FAULT_PAUSE);
            }
            if let Some((engine, until)) = stopped_engine
                && until <= now
            {
                let _ = kill_process(engine, Signal::CONT);
                stopped_engine = None;
            }
            if now >= next_engine && stopped_engine.is_none() {
                stopped_engine = self.harm_engine(now)?;
                next_engine = now + self.about(engine_pause);
            }
            if now >= next_sample {
                self.samples
                    .take(begun.elapsed().as_secs_f64(), &self.place, programs);
                next_sample = now + sample_pause;
            }
            if begun.elapsed() >= next_word {
                let (killed, stopped) = (programs.killed, programs.stopped);
                eprintln!(
                    "{:6.0} s  {killed} programs killed, {stopped} stopped",
                    begun.elapsed().as_secs_f64()
                );
                next_word += span / 10;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some((engine, _)) = stopped_engine {
            let _ = kill_process(engine, Signal::CONT);
        }
        Ok(())
    }

    /// A time with a mean of `pause`.
    fn about(&mut self, pause: Duration) -> Duration {
        pause.mul_f64(2.0 * self.random.f64())
    }

    /// Kills the engine of a restless node and starts the next one, or stops it for a while.
    fn harm_engine(&mut self, now: Instant) -> Result<Option<(rustix::process::Pid, Instant)>> {
        let node = RESTLESS[self.random.usize(..RESTLESS.len())];
        if self.random.bool() {
            self.engines_killed += 1;
            return self.place.replace_engine(node).map(|()| None);
        }
        self.engines_stopped += 1;
        let engine = self
            .place
            .engine(node)
            .with_context(|| format!("{node} has no engine"))?;
        kill_process(engine, Signal::STOP)?;
        Ok(Some((
            engine,
            now + Duration::from_millis(self.random.u64(1..1000)),
        )))
    }

    /// What the nodes counted of connections and of what became of them.
    fn nodes(&self) -> Result<Value> {
        let mut nodes = serde_json::Map::new();
        for (node, _) in NODES {
            let stat = self.place.stat(node)?;
            let counters = stat["counters"].as_array().into_iter().flatten();
            let wanted = [
                "direct_accepted",
                "direct_opened",
                "tcp_active_opens",
                "tcp_passive_opens",
                "node_mends",
                "node_resets",
            ];
            let mut counted = serde_json::Map::new();
            for counter in counters {
                let name = counter["name"].as_str().unwrap_or_default();
                if wanted.contains(&name) {
                    counted.insert(name.to_owned(), counter["value"].clone());
                }
            }
            nodes.insert(node.to_owned(), Value::Object(counted));
        }
        Ok(Value::Object(nodes))
    }

    /// Waits until no node has anything of programs, and counts its engine's descriptors.
    fn at_rest(&self) -> Result<Vec<usize>> {
        let mut descriptors = Vec::new();
        for (node, _) in NODES {
            let mut held = String::new();
            let rested = eventually("rest", || {
                held = self.held(node).unwrap_or_else(|error| format!("{error:#}"));
                held.is_empty()
            });
            rested.with_context(|| format!("{node} keeps what no program has: {held}"))?;
            let engine = self.place.engine(node).and_then(samples::descriptors);
            descriptors.push(engine.with_context(|| format!("{node} has no engine"))?);
        }
        Ok(descriptors)
    }

    /// What a node has of programs. Connections in TIME-WAIT are the protocol's, not a program's.
    fn held(&self, node: &str) -> Result<String> {
        let stat = self.place.stat(node)?;
        let stack = &stat["status"]["stack"];
        let mut held: Vec<String> = AT_REST
            .iter()
            .filter(|name| stack[**name] != 0)
            .map(|name| format!("{name} {}", stack[*name]))
            .collect();
        if stack["connections"] != 0 {
            held.extend(self.place.open_sockets(node)?);
        }
        Ok(held.join(", "))
    }

    fn compare_at_rest(&mut self, before: &[usize], after: &[usize]) {
        let slack = samples::Kind::Descriptors.slack() as usize;
        for (((node, _), before), after) in NODES.iter().zip(before).zip(after) {
            if *after > before + slack {
                self.failures
                    .push(format!("descriptors of {node} at rest: {before}, then {after}"));
            }
        }
    }

    /// Ends the nodes. Nothing of them may stay.
    fn leave(&mut self) -> Result<()> {
        let engines: Vec<_> = NODES
            .iter()
            .filter_map(|(node, _)| self.place.engine(node))
            .collect();
        self.place.down()?;
        for engine in engines {
            eventually("the end of an engine", || !place::is_alive(engine))?;
        }
        let files = self.place.files();
        if !files.is_empty() {
            self.failures
                .push(format!("left in the runtime directory: {files:?}"));
        }
        Ok(())
    }
}
