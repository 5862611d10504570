//! The status of an uplink or a device, in a few lines.

use std::fmt::Write as _;

use toehold_node::control::{NodeStatus, RemoteStatus};
use toehold_node::fabric::Beyond;

use super::{address, short};

/// Formats the status. `cpu`: further text about its processor time.
pub(super) fn summary(status: &NodeStatus, cpu: &str) -> String {
    let NodeStatus {
        node,
        cpu_time,
        uptime,
        stack,
        ..
    } = status;
    let mut text = format!(
        "{}: {}, {}, {}, {}, MTU {}\n",
        node.name,
        node.role,
        address(node.ipv4),
        address(node.ipv6),
        node.mac,
        node.mtu
    );
    let _ = writeln!(
        text,
        "process {}, up {}, used {:.2} s of processor time{cpu}; {} members of the fabric",
        node.pid,
        short(*uptime),
        cpu_time.as_secs_f64(),
        stack.peers
    );
    if let Some(interface) = &stack.interface {
        let _ = writeln!(text, "interface {interface}");
    }
    if let Some(device) = &stack.kernel {
        let _ = writeln!(text, "interface {device}");
    }
    for remote in &stack.remotes {
        text.push_str(&line(remote));
    }
    for beyond in &stack.beyond {
        text.push_str(&members(beyond));
    }
    for warning in warnings(status) {
        let _ = writeln!(text, "{warning}");
    }
    text
}

/// Problems that the user has to solve.
pub(super) fn warnings(status: &NodeStatus) -> impl Iterator<Item = String> {
    let NodeStatus { node, stack, .. } = status;
    let device = stack.kernel.as_ref();
    let advice = device.and_then(|device| device.advice(node.mac));
    let said = stack.standby.iter().chain(&stack.conflicts).cloned();
    advice.into_iter().chain(said)
}

/// The members of another fabric.
fn members(beyond: &Beyond) -> String {
    const SHOWN: usize = 8;
    let Beyond {
        host,
        uplink,
        members,
        ..
    } = beyond;
    let names: Vec<_> = members.iter().map(|member| member.name.to_string()).collect();
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = names[..names.len().min(SHOWN)].join(", ");
    format!("beyond it, by uplink {uplink} of host {host}: {names}{more}\n")
}

fn line(remote: &RemoteStatus) -> String {
    let RemoteStatus {
        address,
        connected,
        error,
        datagram,
        frames_sent,
        frames_received,
        introductions,
    } = remote;
    let frames = format!("{frames_sent} frames sent, {frames_received} received, met {introductions} times");
    match (connected, error) {
        (true, _) => format!("host {address}: reached, datagrams of {datagram} bytes; {frames}\n"),
        (false, Some(error)) => format!("host {address}: cannot be reached ({error}); {frames}\n"),
        (false, None) => format!("host {address}: has not answered; {frames}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_without_answer_is_reported() {
        let mut remote = RemoteStatus {
            address: "192.0.2.1:7005".parse().unwrap(),
            connected: false,
            error: None,
            datagram: 508,
            frames_sent: 0,
            frames_received: 0,
            introductions: 0,
        };
        assert!(line(&remote).contains("has not answered"));
        remote.error = Some("Network is unreachable".to_owned());
        assert!(line(&remote).contains("(Network is unreachable)"));
        remote.connected = true;
        assert!(line(&remote).starts_with("host 192.0.2.1:7005: reached"));
    }
}
