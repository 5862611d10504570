//! Programs that hold a node and do not use it: from the node's reports and from `/proc`.

use toehold_node::control::NodeStatus;
use toehold_node::why::{self, Unaccelerated};

/// Programs that are listed; the others are counted.
const MAX_LISTED: usize = 16;

/// Adds programs that hold the node without the library and were not reported. They were started by
/// a program without the library.
pub(super) fn with_those_seen(mut status: NodeStatus) -> NodeStatus {
    for report in why::inspect(&status.keepers) {
        let is_known = |known: &Unaccelerated| known.pid == report.pid || known.command == report.command;
        if !status.unaccelerated.iter().any(is_known) {
            status.unaccelerated.push(Unaccelerated {
                command: report.command,
                reason: report.reason,
                pid: report.pid,
                times: 1,
                since: 0,
            });
        }
    }
    status
}

/// A sentence for each program.
pub(super) fn remarks(status: &NodeStatus) -> Vec<String> {
    let all = &status.unaccelerated;
    let mut remarks: Vec<String> = all.iter().take(MAX_LISTED).map(remark).collect();
    let rest = (all.len().saturating_sub(MAX_LISTED) as u64).saturating_add(status.unaccelerated_beyond);
    if rest > 0 {
        remarks.push(format!("{rest} more are not on it, see --json"));
    }
    remarks
}

fn remark(program: &Unaccelerated) -> String {
    let Unaccelerated {
        command,
        reason,
        pid,
        times,
        ..
    } = program;
    let times = match times {
        1 => String::new(),
        times => format!(", {times} times"),
    };
    format!(
        "{command}[{pid}] is not on it: it {reason} ({}{times})",
        reason.word()
    )
}
