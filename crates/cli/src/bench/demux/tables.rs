//! The tables of `toehold bench demux`.

use std::io::Write;

use toehold_demux_lab::speed::{self, Attacked, Threads};

use super::report::DemuxReport;
use crate::nodes::table;

/// Prints everything but attacks.
pub(super) fn show(report: &DemuxReport) -> std::io::Result<()> {
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

/// Prints the effects of attacks.
pub(super) fn show_attacks(found: &[Attacked]) -> std::io::Result<()> {
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
