//! What an emulated disk counted, for people.

use std::io::Write;

use anyhow::Result;
use toehold_disk::DiskState;

use crate::nodes::table;

/// Shows what the disk counted.
pub(super) fn show(state: &DiskState) -> Result<()> {
    let counters = state.counters;
    let each = |sum: u64| sum as f64 / 1e3 / counters.requests.max(1) as f64;
    let span = state.span_ns.max(1) as f64 * f64::from(state.kind.heads());
    let share = |part: f64| format!("{:.1} %", 100.0 * part);
    let rows = [
        ("requests", counters.requests.to_string()),
        (
            "sequential",
            share(counters.sequential as f64 / counters.requests.max(1) as f64),
        ),
        ("read", crate::nodes::bytes(counters.read_bytes)),
        ("written", crate::nodes::bytes(counters.written_bytes)),
        ("heads busy", share(counters.busy_ns as f64 / span)),
        ("mean wait", format!("{:.0} µs", each(counters.waited_ns))),
        ("mean service", format!("{:.0} µs", each(counters.served_ns))),
        (
            "lateness / service",
            state.late_share.map_or("-".to_owned(), share),
        ),
    ];
    let mut table = table::new(&["disk", ""], 1);
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    writeln!(std::io::stdout(), "\n{table}")?;
    Ok(())
}
