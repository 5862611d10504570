//! Counters of the program's use of its node, for the launcher's report.

use std::path::Path;
use std::sync::OnceLock;

pub(crate) use toehold_node::usage::Counter;
use toehold_node::usage::Usage;

static USAGE: OnceLock<Usage> = OnceLock::new();

/// Finds the counters, if there are any.
pub(crate) fn find() {
    let path = std::env::var_os(toehold_node::run::STATS);
    if let Some(Ok(usage)) = path.map(|path| Usage::open(Path::new(&path))) {
        let _ = USAGE.set(usage);
    }
}

/// Adds to a counter.
#[inline]
pub(crate) fn count(counter: Counter, number: u64) {
    if let Some(usage) = USAGE.get() {
        usage.add(counter, number);
    }
}
