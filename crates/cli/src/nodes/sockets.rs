//! `toehold sockets`: a node's sockets, as `ss -tin` lists them.

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use toehold_node::control::{SocketStatus, TcpStatus, TimerStatus};

use super::{Within, print_json};

/// Lists a node's sockets
///
/// In the manner of `ss -tiano`, but cwnd and ssthresh are in bytes. Recv-Q of a
/// listener is the connections that wait to be accepted, Send-Q its backlog.
///
/// Every timer that runs is shown with the time it has left and how often it has run
/// out in a row: as `ss -o` does, `on` (a retransmission timeout, a tail loss probe or
/// the wait for reordered segments), `persist`, `keepalive` and `timewait`; beyond that
/// `cork`, `ack` (delayed), `finwait2` and `user` (TCP_USER_TIMEOUT).
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
        write!(std::io::stdout(), "{}", text(&sockets))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(sockets: &[SocketStatus]) -> String {
    let mut text = format!(
        "{:<10} {:>6} {:>6} {:>24} {:>24} {}\n",
        "State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port", "Process"
    );
    let sharded = sockets.iter().any(|socket| socket.shard != 0);
    for socket in sockets {
        let remote = socket
            .remote
            .map_or_else(|| "*:*".to_owned(), |remote| remote.to_string());
        let process = socket.pid.map_or_else(String::new, |pid| format!("pid={pid}"));
        let mut line = format!(
            "{:<10} {:>6} {:>6} {:>24} {remote:>24} {process}",
            socket.state.name(),
            socket.receive_queue,
            socket.send_queue,
            socket.local.to_string(),
        );
        line.truncate(line.trim_end().len());
        if sharded {
            let _ = write!(line, " shard:{}", socket.shard);
        }
        for timer in &socket.timers {
            let _ = write!(line, " {}", running(timer));
        }
        let _ = writeln!(text, "{line}");
        if let Some(tcp) = &socket.tcp {
            let _ = writeln!(text, "\t {}", details(tcp));
        }
    }
    text
}

/// The second line of a connection.
fn details(tcp: &TcpStatus) -> String {
    let mut words = tcp.options.clone();
    words.push(format!("rto:{}", milliseconds(tcp.rto)));
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
    words.join(" ")
}

/// A timer, by the names of `ss -o` where that has one.
fn running(timer: &TimerStatus) -> String {
    let kind = match timer.kind.as_str() {
        "retransmission" | "tail-probe" | "reordering" => "on",
        "time-wait" => "timewait",
        "fin-wait-2" => "finwait2",
        "delayed-ack" => "ack",
        "user-timeout" => "user",
        other => other,
    };
    format!("timer:({kind},{},{})", time_left(timer.expires_in), timer.retries)
}

/// As `ss` writes spans, which are the shorter the finer.
fn time_left(span: Duration) -> String {
    let (minutes, seconds) = (span.as_secs() / 60, span.as_secs() % 60);
    match (minutes, seconds) {
        (10.., _) | (1.., 0) => format!("{minutes}min"),
        (1.., _) => format!("{minutes}min{seconds}sec"),
        (0, 10..) => format!("{seconds}sec"),
        (0, 1..) => format!("{:.3}sec", span.as_secs_f64()),
        (0, 0) => format!("{}ms", milliseconds(span)),
    }
}

/// To the microsecond, without zeros at the end.
fn milliseconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use toehold_node::control::{SocketState, TimerStatus};

    fn timer(kind: &str, expires_in: Duration, retries: u8) -> TimerStatus {
        TimerStatus {
            kind: kind.into(),
            expires_in,
            retries,
        }
    }

    #[test]
    fn timers_are_named_and_timed_as_by_ss() {
        let of = |kind, millis| running(&timer(kind, Duration::from_millis(millis), 2));
        assert_eq!(of("tail-probe", 200), "timer:(on,200ms,2)");
        assert_eq!(of("reordering", 0), "timer:(on,0ms,2)");
        assert_eq!(of("persist", 1_204), "timer:(persist,1.204sec,2)");
        assert_eq!(of("time-wait", 59_900), "timer:(timewait,59sec,2)");
        assert_eq!(of("keepalive", 90_000), "timer:(keepalive,1min30sec,2)");
        assert_eq!(of("user-timeout", 120_000), "timer:(user,2min,2)");
    }

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
        assert_eq!(text(&[listener, connection]), expected);
    }
}
