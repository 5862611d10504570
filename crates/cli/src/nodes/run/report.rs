//! A program's use of its node, for people and for other programs.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use toehold_node::usage::{Counter, Usage};

use crate::json::Document;
use crate::nodes::table;

/// Prints the report to standard error, or to a file.
pub(super) fn show(usage: &Usage, node: &str, file: Option<&Path>) -> Result<()> {
    let Some(path) = file else {
        let mut table = table::new(&[&format!("on node {node}"), ""], 1);
        for &counter in Counter::ALL {
            table.add_row([counter.title().to_owned(), usage.get(counter).to_string()]);
        }
        // The terminal of the program may be gone.
        return writeln!(std::io::stderr(), "{table}").context("cannot print what the program used");
    };
    let count = |&counter: &Counter| (counter.name().to_owned(), usage.get(counter).into());
    let counters: Map<String, Value> = Counter::ALL.iter().map(count).collect();
    let report = json!({ "node": node, "counters": counters });
    let text = Document::new("toehold/run/1", &report).text()?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
