//! The list in the form of `ss -tiano`, fitted to a terminal.

use std::fmt::Write as _;

use toehold_node::control::SocketStatus;

use super::words::{details, running};

const LOCAL: &str = "Local Address:Port";
const REMOTE: &str = "Peer Address:Port";

/// Beginning of a line that continues the socket above.
const INDENT: &str = "   ";

/// Formats the list for a terminal of `columns`; without one, each socket is a line, and so are the
/// details of its connection.
///
/// On a narrow terminal, process, shard and timers go to lines below the socket's.
pub(super) fn text(sockets: &[SocketStatus], columns: Option<usize>) -> String {
    let remote = |socket: &SocketStatus| {
        let remote = socket.remote.map(|remote| remote.to_string());
        remote.unwrap_or_else(|| "*:*".to_owned())
    };
    let locals = sockets.iter().map(|socket| socket.local.to_string().len());
    let remotes = sockets.iter().map(|socket| remote(socket).len());
    let narrow = columns.is_some();
    let least = if narrow { LOCAL.len() } else { 24 };
    let width = locals.chain(remotes).max().unwrap_or(0).max(least);
    let mut text = format!(
        "{:<10} {:>6} {:>6} {LOCAL:>width$} {REMOTE:>width$} Process\n",
        "State", "Recv-Q", "Send-Q"
    );
    let is_sharded = sockets.iter().any(|socket| socket.shard != 0);
    for socket in sockets {
        let line = format!(
            "{:<10} {:>6} {:>6} {:>width$} {:>width$}",
            socket.state.name(),
            socket.receive_queue,
            socket.send_queue,
            socket.local.to_string(),
            remote(socket),
        );
        let mut words: Vec<String> = socket.pid.map(|pid| format!("pid={pid}")).into_iter().collect();
        if is_sharded {
            words.push(format!("shard:{}", socket.shard));
        }
        words.extend(socket.timers.iter().map(running));
        let mut facts = socket.tcp.as_ref().map_or_else(Vec::new, details);
        if let Some(direct) = &socket.direct {
            facts.push("direct".to_owned());
            facts.push(format!("bytes_sent:{}", direct.bytes_sent));
            facts.push(format!("bytes_received:{}", direct.bytes_received));
        }
        match columns {
            Some(columns) => {
                let mut current = line;
                let words = words.into_iter().chain(facts);
                for word in words {
                    if current.len() + 1 + word.len() > columns {
                        let _ = writeln!(text, "{current}");
                        current = INDENT.to_owned();
                    }
                    let _ = write!(current, " {word}");
                }
                let _ = writeln!(text, "{current}");
            }
            None => {
                let words = words.iter().fold(line, |line, word| line + " " + word);
                let _ = writeln!(text, "{words}");
                if !facts.is_empty() {
                    let _ = writeln!(text, "\t {}", facts.join(" "));
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use toehold_node::control::{SocketState, TcpStatus};

    use super::*;
    use crate::nodes::sockets::words::tests::timer;

    #[test]
    fn listener_and_connection_fit_their_terminal() {
        let listener = SocketStatus::listener("10.77.0.1:80".parse().unwrap(), 3, 128);
        let connection = SocketStatus {
            state: SocketState::Estab,
            receive_queue: 5,
            send_queue: 1448,
            remote: Some("[fd77::2]:40000".parse().unwrap()),
            local: "[fd77::1]:80".parse().unwrap(),
            pid: Some(42),
            timers: vec![
                timer("retransmission", Duration::from_micros(8_500), 1),
                timer("keepalive", Duration::from_secs(7199), 0),
            ],
            tcp: Some(TcpStatus {
                rtt: Duration::from_nanos(34_400),
                rtt_variation: Duration::from_micros(12),
                min_rtt: Duration::from_micros(30),
                rto: Duration::from_millis(10),
                mss: 1448,
                cwnd: 14_480,
                ssthresh: u32::MAX,
                send_window: 65_535,
                unacked: 1448,
                unsent: 0,
                retransmits: 0,
                bytes_acked: 9,
                bytes_received: 0,
                options: vec!["ts".into(), "sack".into()],
            }),
            ..listener.clone()
        };
        let expected = "\
State      Recv-Q Send-Q       Local Address:Port        Peer Address:Port Process
LISTEN          3    128             10.77.0.1:80                      *:*
ESTAB           5   1448             [fd77::1]:80          [fd77::2]:40000 pid=42 timer:(on,8.5ms,1) timer:(keepalive,119min,0)
\t ts sack rto:10 rtt:0.034/0.012 mss:1448 cwnd:14480 bytes_acked:9 unacked:1448 snd_wnd:65535 minrtt:0.03
";
        assert_eq!(text(&[listener.clone(), connection.clone()], None), expected);
        let narrow = text(&[listener, connection], Some(80));
        assert!(narrow.lines().all(|line| line.len() <= 80), "{narrow}");
        for word in ["[fd77::2]:40000", "timer:(keepalive,119min,0)", "minrtt:0.03"] {
            assert!(narrow.contains(word), "{word} is cut: {narrow}");
        }
    }
}
