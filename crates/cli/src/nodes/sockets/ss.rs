//! The list in the form of `ss -tanope`.

use std::fmt::Write as _;

use toehold_node::control::SocketStatus;

use super::words::running;

/// Formats the lines of `ss -tanope`. `users` returns the processes of a socket, in the form of
/// `ss`.
pub(super) fn text(sockets: &[SocketStatus], users: impl Fn(&SocketStatus) -> Option<String>) -> String {
    const HEAD: [&str; 6] = [
        "State",
        "Recv-Q",
        "Send-Q",
        "Local Address:Port",
        "Peer Address:Port",
        "Process",
    ];
    // The first shard has all listeners.
    let shown = sockets
        .iter()
        .filter(|socket| socket.remote.is_some() || socket.shard == 0);
    let rows = shown.map(|socket| {
        let any = if socket.local.is_ipv6() {
            "[::]:*"
        } else {
            "0.0.0.0:*"
        };
        let remote = socket
            .remote
            .map_or_else(|| any.to_owned(), |remote| remote.to_string());
        let mut words: Vec<String> = users(socket).into_iter().collect();
        words.extend(socket.timers.first().map(running));
        words.extend(socket.uid.filter(|uid| *uid != 0).map(|uid| format!("uid:{uid}")));
        if socket.inode != 0 {
            words.push(format!("ino:{} sk:{:x}", socket.inode, socket.cookie));
        }
        [
            socket.state.name().to_owned(),
            socket.receive_queue.to_string(),
            socket.send_queue.to_string(),
            socket.local.to_string(),
            remote,
            words.join(" "),
        ]
    });
    let rows: Vec<[String; 6]> = [HEAD.map(str::to_owned)].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for [state, received, sent, local, remote, process] in &rows {
        let line = format!(
            "{state:<0$} {received:<1$} {sent:<2$} {local:>3$} {remote:>4$} {process}",
            widths[0], widths[1], widths[2], widths[3], widths[4]
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// The process of a socket, with its descriptors of the socket, as far as they can be read.
pub(super) fn users_of(socket: &SocketStatus) -> Option<String> {
    let pid = socket.pid?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim_end().replace('"', "\\\"");
    let link = format!("socket:[{}]", socket.inode);
    let numbers = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let has_it = |path: &std::path::Path| {
        std::fs::read_link(path).is_ok_and(|target| target.as_os_str() == link.as_str())
    };
    let held = numbers.filter_map(|entry| {
        let path = entry.ok()?.path();
        has_it(&path).then(|| path.file_name()?.to_str()?.parse().ok())?
    });
    let mut numbers: Vec<u32> = held.collect();
    numbers.sort_unstable();
    let users: Vec<String> = match numbers.is_empty() {
        true => vec![format!("(\"{name}\",pid={pid})")],
        false => numbers
            .iter()
            .map(|number| format!("(\"{name}\",pid={pid},fd={number})"))
            .collect(),
    };
    Some(format!("users:({})", users.join(",")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use toehold_node::control::SocketState;

    use super::*;
    use crate::nodes::sockets::words::tests::timer;

    #[test]
    fn sockets_in_ss_form_have_its_columns() {
        let listener = SocketStatus::listener("10.77.0.1:80".parse().unwrap(), 3, 128);
        let connection = SocketStatus {
            state: SocketState::Estab,
            remote: Some("[fd77::2]:40000".parse().unwrap()),
            local: "[fd77::1]:80".parse().unwrap(),
            pid: Some(42),
            uid: Some(1000),
            inode: 77,
            cookie: 0x2001,
            timers: vec![timer("keepalive", Duration::from_secs(7199), 0)],
            ..listener.clone()
        };
        let in_other_shard = SocketStatus {
            shard: 1,
            ..listener.clone()
        };
        let users = |socket: &SocketStatus| socket.pid.map(|pid| format!("users:((\"web\",pid={pid},fd=7))"));
        let expected = "\
State  Recv-Q Send-Q Local Address:Port Peer Address:Port Process
LISTEN 3      128          10.77.0.1:80         0.0.0.0:*
ESTAB  3      128          [fd77::1]:80   [fd77::2]:40000 users:((\"web\",pid=42,fd=7)) timer:(keepalive,119min,0) uid:1000 ino:77 sk:2001
";
        assert_eq!(text(&[listener, in_other_shard, connection], users), expected);
    }
}
