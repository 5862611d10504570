//! `toehold sockets`: a node's sockets, as `ss -tin` lists them.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use toehold_node::control::{SocketStatus, TcpStatus};

use super::{Within, print_json};

/// Lists a node's sockets
///
/// In the manner of `ss -tin`, but cwnd and ssthresh are in bytes. Recv-Q of a
/// listener is the connections that wait to be accepted, Send-Q its backlog.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold sockets web
  toehold sockets web --json | jq '.[] | select(.state == \"ESTAB\") | .tcp.rtt'")]
pub(crate) struct Arguments {
    /// Name of the node
    node: String,

    #[command(flatten)]
    within: Within,

    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let sockets = arguments.within.connect(&arguments.node)?.sockets()?;
    if arguments.json {
        print_json(&sockets)?;
    } else {
        print!("{}", text(&sockets));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(sockets: &[SocketStatus]) -> String {
    let mut text = format!(
        "{:<10} {:>6} {:>6} {:>24} {:>24} {}\n",
        "State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port", "Process"
    );
    for socket in sockets {
        let remote = socket
            .remote
            .map_or_else(|| "*:*".to_owned(), |remote| remote.to_string());
        let process = socket.pid.map_or_else(String::new, |pid| format!("pid={pid}"));
        let line = format!(
            "{:<10} {:>6} {:>6} {:>24} {remote:>24} {process}",
            socket.state.name(),
            socket.receive_queue,
            socket.send_queue,
            socket.local.to_string(),
        );
        let _ = writeln!(text, "{}", line.trim_end());
        if let Some(tcp) = &socket.tcp {
            let _ = writeln!(text, "\t {}", details(socket, tcp));
        }
    }
    text
}

/// The second line of a connection.
fn details(socket: &SocketStatus, tcp: &TcpStatus) -> String {
    let mut words = tcp.options.clone();
    if let Some(rto) = tcp.rto {
        words.push(format!("rto:{}", milliseconds(rto)));
    }
    words.push(format!(
        "rtt:{}/{}",
        milliseconds(tcp.rtt),
        milliseconds(tcp.rtt_variation)
    ));
    words.push(format!("mss:{}", tcp.mss));
    words.push(format!("cwnd:{}", tcp.cwnd));
    // Without a loss it is beyond any window.
    if tcp.ssthresh < u32::MAX {
        words.push(format!("ssthresh:{}", tcp.ssthresh));
    }
    for (name, bytes) in [
        ("bytes_acked", tcp.bytes_acked),
        ("bytes_received", tcp.bytes_received),
        ("unacked", tcp.unacked.into()),
        ("notsent", tcp.unsent.into()),
        ("retrans", tcp.retransmits.into()),
    ] {
        if bytes > 0 {
            words.push(format!("{name}:{bytes}"));
        }
    }
    words.push(format!("snd_wnd:{}", tcp.send_window));
    words.push(format!("minrtt:{}", milliseconds(tcp.min_rtt)));
    if let Some(timer) = &socket.timer {
        let due = milliseconds(timer.expires_in);
        words.push(format!("timer:({},{due}ms,{})", timer.kind, timer.retries));
    }
    words.join(" ")
}

/// To the microsecond, without zeros at the end.
fn milliseconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use toehold_node::control::{SocketState, TimerStatus};

    #[test]
    fn a_listener_and_a_connection() {
        let listener = SocketStatus::listener("10.77.0.1:80".parse().unwrap(), 3, 128);
        let connection = SocketStatus {
            state: SocketState::Estab,
            receive_queue: 5,
            send_queue: 1448,
            remote: Some("[fd77::2]:40000".parse().unwrap()),
            local: "[fd77::1]:80".parse().unwrap(),
            pid: Some(42),
            timer: Some(TimerStatus {
                kind: "retransmission".into(),
                expires_in: Duration::from_micros(8_500),
                retries: 1,
            }),
            tcp: Some(TcpStatus {
                rtt: Duration::from_nanos(34_400),
                rtt_variation: Duration::from_micros(12),
                min_rtt: Duration::from_micros(30),
                rto: Some(Duration::from_millis(10)),
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
ESTAB           5   1448             [fd77::1]:80          [fd77::2]:40000 pid=42
\t ts sack rto:10 rtt:0.034/0.012 mss:1448 cwnd:14480 bytes_acked:9 unacked:1448 snd_wnd:65535 minrtt:0.03 timer:(retransmission,8.5ms,1)
";
        assert_eq!(text(&[listener, connection]), expected);
    }
}
