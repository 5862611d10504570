//! `toehold model demux`: the cost of finding a connection by the equations of the paper.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use serde::Serialize;
use toehold_demux_lab::model::{
    FIGURE_4_SPANS, FIGURE_9_USERS, Figure4, Figure9, Model, Users, figure_4, figure_9,
};

use crate::json;
use crate::nodes::table;

/// Compute the cost of finding a connection with the equations of McKenney and Dove's paper
///
/// The workload is TPC/A's: users think, enter a transaction, and wait for its result. All figures
/// are protocol control blocks examined for a segment at the server, unless stated otherwise. Each
/// line compares what the paper prints, what it should print, and the result of a closed loop. In a
/// closed loop, users enter no transaction while they wait.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold model demux --users 2000 --chains 19
  toehold model demux --users 50000 --chains 1000 --response-time 1 --json")]
pub(super) struct Arguments {
    /// Users, each with a connection
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    users: u32,

    /// Hash chains
    #[arg(long, default_value_t = 19, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chains: u32,

    /// Transactions that a user enters in a second of thinking
    #[arg(long, default_value_t = 0.1, value_name = "RATE")]
    rate: f64,

    /// Seconds from a transaction's entry to its result
    #[arg(long, value_delimiter = ',', default_values_t = [0.2, 0.5, 1.0, 2.0], value_name = "SECONDS,…")]
    response_time: Vec<f64>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    models: Vec<Model>,
    figure_4: Vec<Figure4>,
    figure_9: Vec<Figure9>,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let finite = |value: f64, least: f64| value.is_finite() && value >= least;
    if !finite(arguments.rate, f64::MIN_POSITIVE) {
        bail!("the rate cannot be {}; choose more than 0", arguments.rate);
    }
    if let Some(wrong) = arguments.response_time.iter().find(|&&span| !finite(span, 0.0)) {
        bail!("a response time cannot be {wrong}; choose 0 or more seconds");
    }
    let users = f64::from(arguments.users);
    let model = |&response_time: &f64| {
        let users = Users {
            users,
            rate: arguments.rate,
            response_time,
        };
        Model::of(users, arguments.chains)
    };
    let report = Report {
        models: arguments.response_time.iter().map(model).collect(),
        figure_4: figure_4(users, arguments.rate, &FIGURE_4_SPANS),
        figure_9: figure_9(&FIGURE_9_USERS),
    };
    if arguments.json {
        json::print("toehold/model-demux/1", &report)?;
    } else {
        show(&report)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A line of the table: its name, and its value in a model.
type Line = (&'static str, fn(&Model) -> f64);

const LINES: &[Line] = &[
    ("bsd: eq. 1", |m| m.bsd),
    ("  closed loop", |m| m.exact.bsd),
    ("move-to-front, entry: eq. 5, preceding", |m| {
        m.move_to_front_entry
    }),
    ("  acknowledgement: N(2R), preceding", |m| {
        m.move_to_front_acknowledgement
    }),
    ("  both: eq. 6, preceding", |m| m.move_to_front_printed),
    ("  examined, one more", |m| m.move_to_front_corrected),
    ("  closed loop", |m| m.exact.move_to_front),
    ("sequent, uniform: eq. 8", |m| m.sequent_uniform),
    ("  undisturbed, in %: eq. 9", |m| 100.0 * m.undisturbed),
    ("  acknowledgement: eq. 10", |m| m.sequent_acknowledgement_printed),
    ("  with the probe that fails", |m| {
        m.sequent_acknowledgement_corrected
    }),
    ("  both: eq. 11", |m| m.sequent_printed),
    ("  eq. 11 to the letter (2N²/H)", |m| m.sequent_misprinted),
    ("  with the probe that fails", |m| m.sequent_corrected),
    ("  closed loop, even chains", |m| m.exact.sequent_even),
    ("  closed loop, a good hash", |m| m.exact.sequent),
    ("  cache hits, in %, closed loop", |m| {
        100.0 * m.exact.sequent_cache_hits
    }),
    ("hashed-move-to-front, closed loop", |m| {
        m.exact.hashed_move_to_front
    }),
    ("flow-table, closed loop", |m| m.exact.flow_table),
];

fn show(report: &Report) -> std::io::Result<()> {
    let first = &report.models[0];
    writeln!(
        std::io::stdout(),
        "{} users, {} transactions a second each while thinking, {} chains\n",
        first.users.users,
        first.users.rate,
        first.chains
    )?;
    let responses = report
        .models
        .iter()
        .map(|m| format!("R = {} s", m.users.response_time));
    let columns: Vec<String> = std::iter::once("PCBs examined".to_owned())
        .chain(responses)
        .collect();
    let mut lines = table::new(&columns, 1);
    for (name, value) in LINES {
        let values = report.models.iter().map(|model| figure(value(model)));
        lines.add_row(std::iter::once((*name).to_owned()).chain(values));
    }
    writeln!(
        std::io::stdout(),
        "{lines}\n\nFigure 4: users who enter a transaction within a span"
    )?;
    let mut spans = table::new(&["seconds", "users"], 0);
    for point in &report.figure_4 {
        spans.add_row([point.span.to_string(), figure(point.users)]);
    }
    writeln!(
        std::io::stdout(),
        "{spans}\n\nFigure 9: as the paper reckons it, a transaction in ten seconds; chains with R = 0.2 s"
    )?;
    let columns = [
        "users",
        "bsd",
        "mtf R=2",
        "mtf R=1",
        "mtf R=0.5",
        "mtf R=0.2",
        "sequent:19",
        "sequent:100",
    ];
    let mut curves = table::new(&columns, 0);
    for point in &report.figure_9 {
        let values = [point.users, point.bsd]
            .into_iter()
            .chain(point.move_to_front)
            .chain([point.sequent_19, point.sequent_100]);
        curves.add_row(values.map(figure));
    }
    writeln!(std::io::stdout(), "{curves}")?;
    Ok(())
}

/// Five digits, or enough to distinguish a small value from zero.
fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 0.01 => format!("{value:.2e}"),
        small if small < 100.0 => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}
