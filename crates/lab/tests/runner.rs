//! The runner with real processes: candidates that work, fail, crash, hang or are missing. The
//! processes run this program too, so it has a `main` of its own.

use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use toehold_lab::samples::{Outcome, Sample, Store};
use toehold_lab::testbed::{self, Candidate, Context, Testbed, TestbedError};
use toehold_lab::{Cell, Comparison, Launcher, Observer, Plan, Runner, Settings, Workload, host, side};

const SIDE: &str = "lab-side";

/// Real candidates, and fakes.
fn candidates() -> Vec<Candidate> {
    let mut all = testbed::ALL.to_vec();
    all.extend([
        Candidate::of::<Fake<REFUSING>>(),
        Candidate::of::<Fake<CRASHING>>(),
        Candidate::of::<Fake<HANGING>>(),
        Candidate::of::<Fake<MISSING>>(),
    ]);
    all
}

/// Name and body of a test.
type Test = (&'static str, fn() -> Result<(), Failed>);

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(SIDE) {
        return side::main(&candidates());
    }
    let tests: [Test; 11] = [
        ("real_candidates_are_measured", real_candidates_are_measured),
        ("every_placement_is_measured", every_placement_is_measured),
        (
            "workloads_about_nodes_are_measured",
            workloads_about_nodes_are_measured,
        ),
        ("several_clients_are_measured", several_clients_are_measured),
        (
            "resumed_run_measures_only_missing_samples",
            resumed_run_measures_only_missing_samples,
        ),
        (
            "a_refusal_is_recorded_with_its_output_and_the_others_go_on",
            a_refusal_is_recorded,
        ),
        (
            "a_crash_is_recorded_with_its_output_and_the_others_go_on",
            a_crash_is_recorded,
        ),
        ("a_hang_is_ended_with_everything_it_started", a_hang_is_ended),
        ("what_is_not_there_is_said_once", what_is_not_there_is_said_once),
        (
            "an_interrupted_run_keeps_what_it_has",
            an_interrupted_run_keeps_what_it_has,
        ),
        (
            "a_program_that_cannot_be_started_is_recorded",
            a_program_that_cannot_be_started,
        ),
    ];
    let trials = tests.map(|(name, test)| Trial::test(name, test)).into();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

const REFUSING: u8 = 0;
const CRASHING: u8 = 1;
const HANGING: u8 = 2;
const MISSING: u8 = 3;

/// A candidate that fails when its server accepts.
struct Fake<const KIND: u8>;

impl<const KIND: u8> Testbed for Fake<KIND> {
    const NAME: &'static str = ["refusing", "crashing", "hanging", "missing"][KIND as usize];
    const ABOUT: &'static str = "goes wrong";
    type Listener = UnixListener;
    type Connection = UnixStream;

    fn enter(_: &Context) -> Result<Self, TestbedError> {
        match KIND {
            MISSING => Err(TestbedError::Unavailable("install it".into())),
            _ => Ok(Self),
        }
    }

    fn listen(&mut self, _: &Workload) -> io::Result<(UnixListener, String)> {
        let name = format!("toehold-lab-fake-{}", std::process::id());
        Ok((
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?,
            name,
        ))
    }

    fn accept(&mut self, _: &mut UnixListener) -> io::Result<UnixStream> {
        println!("on standard output");
        io::stdout().flush()?;
        eprintln!("on standard error");
        match KIND {
            CRASHING => std::process::exit(3),
            HANGING => {
                let mut sleeper = Command::new("sleep").arg("1000").spawn()?;
                eprintln!("sleeper {}", sleeper.id());
                sleeper.wait()?;
                Err(io::ErrorKind::TimedOut.into())
            }
            _ => Err(io::Error::other("it does not want to")),
        }
    }

    fn connect(&mut self, address: &str, _: &Workload) -> io::Result<UnixStream> {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(address)?)
    }
}

struct Quiet;

impl Observer for Quiet {
    fn begins(&mut self, _: u32, _: u32, _: u32, _: &str, _: &str) {}
    fn ended(&mut self, _: &Sample) {}
}

fn plan(candidates: &[&str], workloads: Vec<Workload>, patience_ms: u64) -> Plan {
    let cores = host::usable_cores();
    Plan {
        experiment: "test".into(),
        title: "A test".into(),
        cells: workloads.into_iter().map(Cell::from).collect(),
        candidates: candidates.iter().map(|&name| name.to_owned()).collect(),
        comparisons: vec![Comparison {
            candidate: "unix".into(),
            baseline: "floor".into(),
        }],
        wanted: Vec::new(),
        show: Vec::new(),
        paper: None,
        stop: None,
        rounds: 2,
        deployments: std::collections::BTreeMap::new(),
        seed: 1,
        settings: Settings {
            warm_up_ms: 1,
            span_ms: 3,
            patience_ms,
            cores: [cores[0], *cores.last().unwrap()],
            congestion: "reno".into(),
            trace: None,
            far: None,
        },
    }
}

fn some_workloads() -> Vec<Workload> {
    let size = "64".parse().unwrap();
    vec![Workload::PingPong { size }, Workload::Bulk, Workload::Connect]
}

fn launcher() -> Launcher {
    Launcher {
        program: std::env::current_exe().unwrap(),
        arguments: vec![SIDE.into()],
    }
}

/// Runs a plan and returns the samples, which must be on disk as well.
fn run(plan: &Plan, results: &Path, observer: &mut dyn Observer, stop: &AtomicBool) -> Vec<Sample> {
    let candidates = candidates();
    let runner = Runner {
        launcher: launcher(),
        candidates: &candidates,
        far: None,
        stop,
    };
    let mut store = Store::create(results, &plan.experiment).unwrap();
    let samples = runner.run(plan, &mut store, observer).unwrap();
    let text = std::fs::read_to_string(store.directory().join("samples.jsonl")).unwrap();
    let saved = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect::<Vec<Sample>>();
    assert_eq!(saved, samples);
    samples
}

fn run_quietly(plan: &Plan) -> Vec<Sample> {
    let results = tempfile::tempdir().unwrap();
    run(plan, results.path(), &mut Quiet, &AtomicBool::new(false))
}

fn of<'a>(samples: &'a [Sample], candidate: &'a str) -> impl Iterator<Item = &'a Sample> {
    samples.iter().filter(move |sample| sample.candidate == candidate)
}

/// Checks that all measurements of `unix` were made.
fn assert_unix_went_on(plan: &Plan, samples: &[Sample]) {
    let measured = of(samples, "unix").filter(|sample| matches!(sample.outcome, Outcome::Measured { .. }));
    assert_eq!(measured.count(), plan.cells.len() * plan.rounds as usize);
}

/// With engine processes, which end with the sides that started them.
fn every_placement_is_measured() -> Result<(), Failed> {
    let mut workloads = some_workloads();
    workloads.push(Workload::WakeUp);
    let samples = run_quietly(&plan(
        &["private", "inline", "adaptive", "engine"],
        workloads,
        30_000,
    ));
    assert_eq!(samples.len(), 2 * 4 * 4);
    for sample in &samples {
        // Every stack of these reports its retransmissions.
        let Outcome::Measured { client, server } = &sample.outcome else {
            return Err(format!("{sample:?}").into());
        };
        assert!(
            client.retransmits.is_some() && server.retransmits.is_some(),
            "{sample:?}"
        );
    }
    Ok(())
}

/// Several pairs of processes at once, and changes of placements, among others.
fn workloads_about_nodes_are_measured() -> Result<(), Failed> {
    let size = "64".parse()?;
    let workloads = vec![
        Workload::Acknowledgement { times: 2 },
        Workload::Idle { pairs: 2, span_ms: 5 },
        Workload::Crowd { pairs: 3, size },
        Workload::Availability { size: "64K".parse()? },
        Workload::Switching {
            times: 9,
            still: true,
        },
        Workload::Switching {
            times: 9,
            still: false,
        },
    ];
    let candidates = ["private", "inline", "adaptive", "engine", "kernel-loopback"];
    let mut plan = plan(&candidates, workloads, 30_000);
    plan.rounds = 1;
    let samples = run_quietly(&plan);
    // The last is for the one candidate that changes.
    assert_eq!(samples.len(), 5 * 5 + 1);
    for sample in &samples {
        let Outcome::Measured { client, server } = &sample.outcome else {
            return Err(format!("{sample:?}").into());
        };
        let metrics = sample.cell.metrics(client, server);
        assert!(metrics[0].value.is_finite(), "{sample:?}");
    }
    Ok(())
}

/// On nodes, in namespaces, and on one host. Without permission for namespaces, that is reported.
fn several_clients_are_measured() -> Result<(), Failed> {
    let (size, clients) = ("1K".parse()?, 2);
    let workloads = vec![
        Workload::HotSpot { clients, size },
        Workload::FanIn { clients, size },
        Workload::FanOut { clients, size },
        Workload::Incast { clients, size },
        Workload::MultiStream { streams: 2, size },
        Workload::Bidirectional { size },
        Workload::Mixed { size },
        Workload::Churn { size },
        Workload::OpenLoop { rate: 1000, size },
    ];
    let candidates = [
        "private",
        "adaptive",
        "kernel-loopback",
        "kernel-veth",
        "unix",
        "ethom",
        "ethos",
    ];
    let mut plan = plan(&candidates, workloads, 30_000);
    plan.rounds = 1;
    let samples = run_quietly(&plan);
    for sample in &samples {
        let (client, server) = match &sample.outcome {
            Outcome::Measured { client, server } => (client, server),
            Outcome::Unavailable { .. } if sample.candidate != "unix" => continue,
            _ => return Err(format!("{sample:?}").into()),
        };
        assert!(client.machine.is_some() && server.machine.is_none(), "{sample:?}");
        let metrics = sample.cell.metrics(client, server);
        assert!(
            metrics[0].value.is_finite() && metrics[0].value > 0.0,
            "{sample:?}"
        );
    }
    assert_eq!(of(&samples, "unix").count(), plan.cells.len());
    Ok(())
}

/// As after an interruption: existing samples are kept, and not measured again.
fn resumed_run_measures_only_missing_samples() -> Result<(), Failed> {
    let plan = plan(&["unix", "kernel-loopback"], some_workloads(), 30_000);
    let results = tempfile::tempdir()?;
    let all = run(&plan, results.path(), &mut Quiet, &AtomicBool::new(false));
    let earlier = all[..5].to_vec();
    let (candidates, stop) = (candidates(), AtomicBool::new(false));
    let runner = Runner {
        launcher: launcher(),
        candidates: &candidates,
        far: None,
        stop: &stop,
    };
    let mut store = Store::create(results.path(), "again")?;
    let samples = runner.go_on(&plan, earlier.clone(), &mut store, &mut Quiet)?;
    assert_eq!(samples[..5], earlier);
    let key = |sample: &Sample| {
        (
            sample.sequence,
            sample.round,
            sample.name.clone(),
            sample.candidate.clone(),
        )
    };
    assert_eq!(
        samples.iter().map(key).collect::<Vec<_>>(),
        all.iter().map(key).collect::<Vec<_>>(),
        "the order is what it would have been"
    );
    Ok(())
}

fn real_candidates_are_measured() -> Result<(), Failed> {
    let mut workloads = some_workloads();
    workloads.push(Workload::PingPong {
        size: "100000".parse()?,
    });
    workloads.push(Workload::Stream { size: "1".parse()? });
    let samples = run_quietly(&plan(&["kernel-loopback", "unix", "floor"], workloads, 30_000));
    // The floor does not support connections.
    assert_eq!(samples.len(), 2 * (5 + 5 + 4));
    for sample in &samples {
        let Outcome::Measured { client, server } = &sample.outcome else {
            return Err(format!("{sample:?}").into());
        };
        assert!(client.messages > 0 && server.messages > 0, "{sample:?}");
        let metrics = sample.cell.metrics(client, server);
        let finite = |name: &str| {
            metrics
                .iter()
                .any(|metric| metric.name == name && metric.value.is_finite())
        };
        assert!(finite(&sample.name), "{sample:?}");
    }
    Ok(())
}

/// The failures of a candidate, which is given up after two.
fn failures(samples: &[Sample], candidate: &str) -> Vec<(String, String)> {
    let failures = of(samples, candidate).map(|sample| match &sample.outcome {
        Outcome::Failed { reason, output } => (reason.clone(), output.clone()),
        other => panic!("{other:?}"),
    });
    let failures = failures.collect::<Vec<_>>();
    assert_eq!(failures.len(), 2, "{failures:?}");
    failures
}

/// The server's reason, without a possible reason of its client.
fn cause(reason: &str) -> &str {
    reason.split_once("; client: ").map_or(reason, |(cause, _)| cause)
}

fn a_refusal_is_recorded() -> Result<(), Failed> {
    let plan = plan(&["refusing", "unix"], some_workloads(), 30_000);
    let samples = run_quietly(&plan);
    for (reason, output) in failures(&samples, "refusing") {
        assert_eq!(cause(&reason), "server: it does not want to", "{reason}");
        assert_eq!(output, "server:\non standard output\non standard error\n");
    }
    assert_unix_went_on(&plan, &samples);
    Ok(())
}

fn a_crash_is_recorded() -> Result<(), Failed> {
    let plan = plan(&["unix", "crashing"], some_workloads(), 30_000);
    let samples = run_quietly(&plan);
    for (reason, output) in failures(&samples, "crashing") {
        assert_eq!(
            cause(&reason),
            "the server ended by itself: exit status: 3",
            "{reason}"
        );
        assert!(output.contains("on standard error"), "{output}");
    }
    assert_unix_went_on(&plan, &samples);
    Ok(())
}

fn a_hang_is_ended() -> Result<(), Failed> {
    let plan = plan(&["hanging", "unix"], some_workloads(), 500);
    let samples = run_quietly(&plan);
    for (reason, output) in failures(&samples, "hanging") {
        assert_eq!(reason, "no answer in time from the server and client");
        let sleeper = output.lines().find_map(|line| line.strip_prefix("sleeper "));
        let sleeper = sleeper.ok_or_else(|| format!("no sleeper in {output}"))?;
        assert!(is_gone(sleeper), "process {sleeper} is left");
    }
    assert_unix_went_on(&plan, &samples);
    Ok(())
}

/// Whether the process is gone, or killed and waiting for its reaper.
fn is_gone(process: &str) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        match std::fs::read_to_string(format!("/proc/{process}/stat")) {
            Ok(stat) if !stat.contains(") Z ") => std::thread::sleep(Duration::from_millis(10)),
            _ => return true,
        }
    }
    false
}

fn what_is_not_there_is_said_once() -> Result<(), Failed> {
    let plan = plan(&["missing", "unix"], some_workloads(), 30_000);
    let samples = run_quietly(&plan);
    let missing = of(&samples, "missing")
        .map(|sample| &sample.outcome)
        .collect::<Vec<_>>();
    assert_eq!(
        missing,
        [&Outcome::Unavailable {
            reason: "install it".into()
        }]
    );
    assert_unix_went_on(&plan, &samples);
    Ok(())
}

/// Stops the run in its third measurement.
struct StopAtThird<'a>(&'a AtomicBool);

impl Observer for StopAtThird<'_> {
    fn begins(&mut self, sequence: u32, _: u32, _: u32, _: &str, _: &str) {
        if sequence == 2 {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn ended(&mut self, _: &Sample) {}
}

fn an_interrupted_run_keeps_what_it_has() -> Result<(), Failed> {
    let stop = AtomicBool::new(false);
    let results = tempfile::tempdir()?;
    let mut plan = plan(&["unix"], some_workloads(), 30_000);
    plan.rounds = 1;
    plan.cells = (1..=4)
        .map(|n| Workload::Stream {
            size: n.to_string().parse().unwrap(),
        })
        .map(Cell::from)
        .collect();
    let samples = run(&plan, results.path(), &mut StopAtThird(&stop), &stop);
    assert_eq!(samples.len(), 2);
    Ok(())
}

fn a_program_that_cannot_be_started() -> Result<(), Failed> {
    let plan = plan(&["unix"], some_workloads(), 30_000);
    let (results, stop, candidates) = (tempfile::tempdir()?, AtomicBool::new(false), candidates());
    let launcher = Launcher {
        program: "/nowhere/toehold".into(),
        arguments: Vec::new(),
    };
    let runner = Runner {
        launcher,
        candidates: &candidates,
        far: None,
        stop: &stop,
    };
    let mut store = Store::create(results.path(), "test")?;
    for (reason, _) in failures(&runner.run(&plan, &mut store, &mut Quiet)?, "unix") {
        assert!(reason.contains("cannot start /nowhere/toehold"), "{reason}");
    }
    Ok(())
}
