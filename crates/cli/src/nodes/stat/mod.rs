//! `toehold stat`: shows a node's status and counters.

mod change;
mod prometheus;
mod summary;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use toehold_node::control::Connection;

use super::{Within, positive_span, table, unaccelerated};
use crate::json;
use change::{Figure, NodeChange, NodeSample};

/// Show a node's status and counters
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold stat web
  toehold stat web --interval 1s
  toehold stat web --all --json | jq '.counters[] | select(.name == \"tcp_retransmits\")'
  toehold stat web --prometheus > /var/lib/node_exporter/toehold-web.prom")]
pub(crate) struct Arguments {
    /// Name of the node
    node: String,

    #[command(flatten)]
    within: Within,

    /// Sample twice, this far apart, and show rates as well
    #[arg(long, value_name = "SPAN", value_parser = positive_span)]
    interval: Option<Duration>,

    /// Show counters that are zero as well
    #[arg(long)]
    all: bool,

    /// Print JSON with all counters
    #[arg(long)]
    json: bool,

    /// Print Prometheus's text format with all counters
    #[arg(long, conflicts_with_all = ["json", "interval"])]
    prometheus: bool,

    #[command(flatten)]
    wide: table::Wide,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut node = arguments.within.connect(&arguments.node)?;
    let mut sample = look(&mut node)?;
    let mut before = None;
    if let Some(interval) = arguments.interval {
        node.wait_for_end(interval)?;
        before = Some(std::mem::replace(&mut sample, look(&mut node)?));
    }
    if arguments.prometheus {
        let text = prometheus::text(sample, &arguments.within.fabric)?;
        write!(std::io::stdout(), "{text}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let change = NodeChange::between(before.as_ref(), sample);
    if arguments.json {
        json::print("toehold/stat/1", &change)?;
    } else {
        show(&change, arguments)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn look(node: &mut Connection) -> Result<NodeSample> {
    Ok(NodeSample {
        status: unaccelerated::with_those_seen(node.status()?),
        counters: node.counters()?,
    })
}

fn show(change: &NodeChange, arguments: &Arguments) -> std::io::Result<()> {
    write!(std::io::stdout(), "{}", summary::text(change))?;
    let shown = |figure: &&Figure| arguments.all || figure.counter.value > 0;
    let figures = change.sums();
    let figures: Vec<_> = figures.iter().filter(shown).collect();
    if figures.is_empty() {
        return Ok(());
    }
    let mut table = table::new(&["counter", "what", "value", "per second"], 2)
        .optional(&["what"])
        .wide(arguments.wide);
    for figure in figures {
        let rate = figure
            .per_second
            .map_or_else(String::new, |rate| format!("{rate:.1}"));
        let counter = &figure.counter;
        table.add_row([
            counter.name.as_str(),
            &counter.doc,
            &counter.value.to_string(),
            &rate,
        ]);
    }
    writeln!(std::io::stdout(), "{table}")?;
    Ok(())
}
