//! `toehold bench demux`: the cost of finding a connection, by strategy.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;
use toehold_demux_lab::model::FIGURE_9_USERS;
use toehold_demux_lab::paper::{self, Effort, Entered, Number, Point};
use toehold_demux_lab::speed::{self, Attacked, Candidate, Growth, Plan, Threads, Times};
use toehold_lab::host::{Build, Host};
use toehold_lab::samples::Store;
use toehold_lab::say;
use toehold_lab::statistics::Estimate;

use super::Output;
use crate::json;
use crate::nodes::table;

/// Schema of the report.
const SCHEMA: &str = "toehold/bench-demux/1";

/// Schema of the report of `--attacks`.
const ATTACKS_SCHEMA: &str = "toehold/bench-demux-attacks/1";

/// Measure the cost of finding a connection: the strategies of McKenney and Dove's paper, and ours
///
/// The first part reproduces the paper's numbers and figures, beside the equations and a simulation
/// that runs the strategies' code. It counts protocol control blocks examined, which depend on no
/// machine. The second part measures nanoseconds per look-up on this machine. Every round measures
/// all strategies, hash maps, and DPDK's rte_hash if it is installed (Debian's package
/// librte-hash23). A floor reads as many cache lines as any look-up must.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold bench demux --quick
  toehold bench demux --attacks --rounds 5
  toehold bench demux --quick --json | jq '.ratios[\"tpca_65536/flow-table/bsd\"]'
  toehold bench demux --connections 1024,1048576 --traffic tpca,misses --json")]
pub(super) struct Arguments {
    /// Half a minute: fewer connections, traffic, rounds
    #[arg(long)]
    quick: bool,

    /// Connections [default: 1024,65536,1048576,10000000; quick: 1024,65536,1048576]
    #[arg(long, value_delimiter = ',', value_name = "N,…", value_parser = clap::value_parser!(u32).range(2..=1 << 24))]
    connections: Vec<u32>,

    /// Traffic to look up [default: all; quick: tpca,misses]
    #[arg(long, value_delimiter = ',', value_name = "TRAFFIC,…")]
    traffic: Vec<Traffic>,

    /// Rounds [default: 9; quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Measure the effect of attackers that choose connections or segments instead, with this many
    /// connections
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1048576",
        value_parser = clap::value_parser!(u32).range(64..=1 << 22))]
    attacks: Option<u32>,

    /// Seed of users, connections, hashes and the order of candidates
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    #[command(flatten)]
    output: Output,
}

/// Kinds of traffic, by the names on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Traffic {
    /// Users of TPC/A with a response time of 0.2 s
    Tpca,
    /// Trains of 16 segments
    Trains,
    /// Few connections have most segments
    Zipf,
    /// Look-ups of unknown connections
    Misses,
    /// A connection comes and goes for eight look-ups
    Churn,
}

impl From<Traffic> for speed::Traffic {
    fn from(traffic: Traffic) -> Self {
        match traffic {
            Traffic::Tpca => Self::Tpca,
            Traffic::Trains => Self::Trains,
            Traffic::Zipf => Self::Zipf,
            Traffic::Misses => Self::Misses,
            Traffic::Churn => Self::Churn,
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    build: Build,
    host: Host,
    seed: u64,
    rounds: u32,
    section_3: Vec<Number>,
    figure_4: Vec<Entered>,
    figure_9: Vec<Point>,
    times: Vec<Times>,
    /// Results with one thread and with two threads at once.
    threads: Vec<Threads>,
    growth: Vec<Growth>,
    /// Time a look-up of the flow table as a multiple of each other candidate's, by
    /// `TRAFFIC_CONNECTIONS/flow-table/CANDIDATE`: the median of the rounds' ratios.
    ratios: BTreeMap<String, Estimate>,
    /// Candidates that are missing on this machine, with the reason.
    missing: BTreeMap<String, String>,
}

/// A round, as saved.
#[derive(Debug, Serialize)]
struct Round<'a> {
    connections: u32,
    traffic: speed::Traffic,
    candidate: &'a str,
    threads: usize,
    ns: f64,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let output = &arguments.output;
    output.check()?;
    // An interrupt ends the run at once: there is no partial state.
    let Some(_lock) = super::lock(&AtomicBool::new(false))? else {
        return Ok(ExitCode::FAILURE);
    };
    let mut store = Store::create(&output.results()?, "demux")?;
    let plan = plan(arguments);
    if let Some(live) = arguments.attacks {
        let found = speed::attacks(live, plan.rounds, plan.seed, say);
        store.write("report.json", &json::Document::new(ATTACKS_SCHEMA, &found))?;
        output.deliver_one(ATTACKS_SCHEMA, &found)?;
        if !output.is_json_only() {
            show_attacks(&found)?;
        }
    } else {
        let report = measure(arguments, &plan);
        for round in rounds(&report) {
            store.append(&round)?;
        }
        store.write("report.json", &json::Document::new(SCHEMA, &report))?;
        output.deliver_one(SCHEMA, &report)?;
        if !output.is_json_only() {
            show(&report)?;
        }
    }
    say(&format!("what was measured: {}", store.directory().display()));
    Ok(ExitCode::SUCCESS)
}

fn measure(arguments: &Arguments, plan: &Plan) -> Report {
    let effort = Effort {
        lookups: if arguments.quick { 20_000 } else { 200_000 },
        seed: plan.seed,
    };
    let users = if arguments.quick {
        &FIGURE_9_USERS[..3]
    } else {
        &FIGURE_9_USERS[..]
    };
    let (build, host) = (Build::this(), Host::read());
    say("simulating the paper's users");
    let (section_3, figure_4) = (paper::section_3(effort), paper::figure_4(effort));
    let figure_9 = paper::figure_9(users, effort);
    let times = speed::measure(plan, say);
    let threads = speed::threads(plan, say);
    say("entering connections one by one");
    let most = plan.connections.iter().copied().max().unwrap_or(2);
    let ratios = ratios(&times);
    Report {
        build,
        host,
        seed: plan.seed,
        rounds: plan.rounds,
        section_3,
        figure_4,
        figure_9,
        times,
        threads,
        growth: speed::growth(most, plan.seed),
        ratios,
        missing: missing(),
    }
}

/// The ratios of the flow table to each other candidate, round by round.
fn ratios(times: &[Times]) -> BTreeMap<String, Estimate> {
    let own = Candidate::OWN.name();
    let mut ratios = BTreeMap::new();
    for ours in times.iter().filter(|times| times.candidate == own) {
        let beside = |other: &&Times| {
            (other.connections, other.traffic) == (ours.connections, ours.traffic) && other.candidate != own
        };
        for other in times.iter().filter(beside) {
            let rounds = ours.rounds_ns.iter().zip(&other.rounds_ns);
            if let Some(ratio) = Estimate::of(rounds.map(|(ours, other)| ours / other)) {
                let (traffic, candidate) = (ours.traffic.name(), &other.candidate);
                ratios.insert(format!("{traffic}_{}/{own}/{candidate}", ours.connections), ratio);
            }
        }
    }
    ratios
}

/// All timed rounds, one by one.
fn rounds(report: &Report) -> impl Iterator<Item = Round<'_>> {
    let alone = report.times.iter().flat_map(|times| {
        times.rounds_ns.iter().map(|&ns| Round {
            connections: times.connections,
            traffic: times.traffic,
            candidate: &times.candidate,
            threads: 1,
            ns,
        })
    });
    let of_threads = report.threads.iter().flat_map(|found| {
        let of = |threads, ns: &f64| Round {
            connections: found.connections,
            traffic: speed::Traffic::Tpca,
            candidate: &found.candidate,
            threads,
            ns: *ns,
        };
        let alone = found.alone_ns.iter().map(move |ns| of(1, ns));
        alone.chain(found.both_ns.iter().map(move |ns| of(2, ns)))
    });
    alone.chain(of_threads)
}

fn plan(arguments: &Arguments) -> Plan {
    let (connections, traffic, rounds): (&[u32], &[Traffic], u32) = match arguments.quick {
        true => (&[1 << 10, 1 << 16, 1 << 20], &[Traffic::Tpca, Traffic::Misses], 3),
        false => (
            &[1 << 10, 1 << 16, 1 << 20, 10_000_000],
            Traffic::value_variants(),
            9,
        ),
    };
    fn or<T: Copy>(given: &[T], usual: &[T]) -> Vec<T> {
        if given.is_empty() {
            usual.to_vec()
        } else {
            given.to_vec()
        }
    }
    let traffic = or(&arguments.traffic, traffic);
    Plan {
        connections: or(&arguments.connections, connections),
        traffic: traffic.into_iter().map(Into::into).collect(),
        lists: true,
        rounds: arguments.rounds.unwrap_or(rounds),
        seed: arguments.seed,
    }
}

fn missing() -> BTreeMap<String, String> {
    let candidate = Candidate::RteHash;
    let why = candidate.missing();
    why.into_iter().map(|why| (candidate.name(), why)).collect()
}

fn show(report: &Report) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "§3, 2000 users: protocol control blocks")?;
    let columns = ["", "paper", "its equation", "closed loop", "simulated"];
    let mut numbers = table::new(&columns, 1);
    for number in &report.section_3 {
        let printed = number.paper.map_or("-".to_owned(), |value| value.to_string());
        let found = [number.equation, number.exact, number.simulated].map(two_digits);
        numbers.add_row([number.what.clone(), printed].into_iter().chain(found));
    }
    writeln!(
        std::io::stdout(),
        "{numbers}\n\nFigure 4: users of 2000 who enter a transaction within a span"
    )?;
    let mut entered = table::new(&["seconds", "equation 3", "simulated"], 0);
    for point in &report.figure_4 {
        let found = [point.equation, point.simulated].map(two_digits);
        entered.add_row([point.span.to_string()].into_iter().chain(found));
    }
    writeln!(
        std::io::stdout(),
        "{entered}\n\nFigure 9: protocol control blocks examined"
    )?;
    let columns = ["strategy", "R, s", "users", "paper", "closed loop", "simulated"];
    let mut curves = table::new(&columns, 1);
    for point in &report.figure_9 {
        let paper = point.paper.map_or("-".to_owned(), two_digits);
        let named = [
            point.strategy.clone(),
            point.response_time.to_string(),
            point.users.to_string(),
            paper,
        ];
        let found = [point.exact, point.simulated].map(two_digits);
        curves.add_row(named.into_iter().chain(found));
    }
    writeln!(
        std::io::stdout(),
        "{curves}\n\nNanoseconds a look-up, {} rounds",
        report.rounds
    )?;
    let columns = [
        "connections",
        "traffic",
        "candidate",
        "least",
        "median",
        "look-ups",
    ];
    let mut times = table::new(&columns, 3);
    for row in &report.times {
        times.add_row([
            row.connections.to_string(),
            row.traffic.name().to_owned(),
            row.candidate.clone(),
            format!("{:.1}", row.min_ns),
            format!("{:.1}", row.median_ns),
            row.lookups.to_string(),
        ]);
    }
    writeln!(std::io::stdout(), "{times}")?;
    for (candidate, why) in &report.missing {
        writeln!(std::io::stdout(), "{candidate} is not among them: {why}")?;
    }
    show_threads(&report.threads)?;
    writeln!(
        std::io::stdout(),
        "\nNanoseconds to enter a connection, from none on"
    )?;
    let columns = ["candidate", "connections", "median", "99 %", "99.9 %", "most"];
    let mut growth = table::new(&columns, 1);
    for row in &report.growth {
        let counts = [
            u64::from(row.connections),
            row.median_ns,
            row.p99_ns,
            row.p999_ns,
            row.max_ns,
        ];
        let counts = counts.map(|count| count.to_string());
        growth.add_row([row.candidate.clone()].into_iter().chain(counts));
    }
    writeln!(std::io::stdout(), "{growth}")?;
    Ok(())
}

fn show_threads(found: &[Threads]) -> std::io::Result<()> {
    let columns = [
        "connections",
        "candidate",
        "alone, least",
        "median",
        "both, least",
        "median",
        "times",
    ];
    let mut shown = table::new(&columns, 2);
    for row in found {
        let ends = [&row.alone_ns, &row.both_ns].map(|rounds| speed::least_and_median(rounds));
        let ends = ends.as_flattened().iter().map(|ns| format!("{ns:.1}"));
        let named = [row.connections.to_string(), row.candidate.clone()];
        shown.add_row(named.into_iter().chain(ends).chain([two_digits(row.ratio())]));
    }
    writeln!(
        std::io::stdout(),
        "\nNanoseconds a look-up of a thread alone, and beside another one with a table of its own\n{shown}"
    )
}

fn show_attacks(found: &[Attacked]) -> Result<()> {
    let columns = [
        "attack",
        "candidate",
        "connections",
        "usual, least",
        "median",
        "attacked, least",
        "median",
        "times",
    ];
    let mut shown = table::new(&columns, 2);
    for row in found {
        let named = [
            row.attack.name().to_owned(),
            row.candidate.clone(),
            row.connections.to_string(),
        ];
        let times = row.usual_ns.into_iter().chain(row.attacked_ns);
        let times = times.map(|ns| format!("{ns:.1}"));
        shown.add_row(named.into_iter().chain(times).chain([two_digits(row.ratio())]));
    }
    writeln!(std::io::stdout(), "Nanoseconds a look-up\n{shown}")?;
    Ok(())
}

fn two_digits(value: f64) -> String {
    format!("{value:.2}")
}
