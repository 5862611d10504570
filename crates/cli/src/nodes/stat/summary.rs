//! The lines of `toehold stat` above its counters.

use std::fmt::Write as _;

use toehold_node::control::NodeStatus;
use toehold_node::fabric::Role;

use super::change::NodeChange;
use crate::nodes::{bytes, short, unaccelerated, uplink_status};

/// Formats the state of a node, in a few lines.
pub(super) fn text(change: &NodeChange) -> String {
    let NodeStatus {
        node,
        cpu_time,
        uptime,
        processes,
        stack,
        ..
    } = &change.status;
    let cpu = change
        .cpu
        .map_or_else(String::new, |cpu| format!(", {:.1} % of a core now", cpu * 100.0));
    if node.role != Role::Node {
        return uplink_status::summary(&change.status, &cpu);
    }
    let mut text = format!(
        "{}: {}, {}, {}, MTU {}\n",
        node.name, node.ipv4, node.ipv6, node.mac, node.mtu
    );
    let _ = writeln!(
        text,
        "engine process {}, up {}, used {:.2} s of processor time{cpu}; placement {}{}",
        node.pid,
        short(*uptime),
        cpu_time.as_secs_f64(),
        stack.placement,
        match stack.shards {
            0 | 1 => String::new(),
            shards => format!(", {shards} shards"),
        }
    );
    let _ = writeln!(
        text,
        "{} of {} connections{}, {} listeners, {} of {} payload memory, {} peers{}{}",
        stack.connections,
        stack.connections_bound,
        match stack.relays {
            0 => String::new(),
            relays => format!(", {relays} of them carried for programs that cannot use the node"),
        },
        stack.listeners,
        bytes(stack.payload_used),
        bytes(stack.payload_bound),
        stack.peers,
        match stack.peer_memory {
            0 => String::new(),
            memory => format!(" with {} of rings", bytes(memory)),
        },
        if stack.capturing { ", capturing" } else { "" }
    );
    if let Some(kernel) = &stack.kernel {
        let _ = writeln!(text, "beside the kernel, over {kernel}");
    }
    for warning in uplink_status::warnings(&change.status) {
        let _ = writeln!(text, "{warning}");
    }
    for remark in unaccelerated::remarks(&change.status) {
        let _ = writeln!(text, "{remark}");
    }
    for process in processes {
        let _ = writeln!(
            text,
            "process {}: pid {} {}",
            process.process, process.pid, process.command
        );
    }
    text
}
