//! `toehold sockets`: lists a node's sockets in the form of `ss -tin`.

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use toehold_node::control::{SocketStatus, TcpStatus, TimerStatus};

use super::Within;
use super::table::Wide;
use crate::json;

const LOCAL: &str = "Local Address:Port";
const REMOTE: &str = "Peer Address:Port";

/// Beginning of a line that continues the socket above.
const INDENT: &str = "   ";

/// List a node's sockets
///
/// The form is that of `ss -tiano`, but cwnd and ssthresh are in bytes. Recv-Q of a listener is the
/// number of connections in its accept queue, Send-Q its backlog.
///
/// Every running timer is shown with its remaining time and its number of consecutive expiries. The
/// names of `ss -o` are `on` (a retransmission timeout, a tail loss probe or the wait for reordered
/// segments), `persist`, `keepalive` and `timewait`. Further names are `cork`, `ack` (delayed),
/// `finwait2` and `user` (TCP_USER_TIMEOUT).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  toehold sockets web
  toehold sockets web --ss
  toehold sockets web --json | jq '.sockets[] | select(.state == \"ESTAB\") | .tcp.rtt_ns'")]
pub(crate) struct Arguments {
    /// Name of the node
    node: String,

    #[command(flatten)]
    within: Within,

    /// Print the form of `ss -tanope`: columns, processes with their descriptors, users, inodes,
    /// cookies
    #[arg(long, conflicts_with = "json")]
    ss: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    wide: Wide,
}

/// The document that `--json` prints.
#[derive(Debug, Serialize)]
struct Listing<'a> {
    sockets: &'a [SocketStatus],
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let sockets = arguments.within.connect(&arguments.node)?.sockets()?;
    if arguments.json {
        json::print("toehold/sockets/1", &Listing { sockets: &sockets })?;
    } else if arguments.ss {
        write!(std::io::stdout(), "{}", as_ss(&sockets, users_of))?;
    } else {
        write!(std::io::stdout(), "{}", text(&sockets, arguments.wide.columns()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats the list for a terminal of `columns`; without one, each socket is a line, and so are the
/// details of its connection.
///
/// On a narrow terminal, process, shard and timers go to lines below the socket's.
fn text(sockets: &[SocketStatus], columns: Option<usize>) -> String {
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

/// Formats the lines of `ss -tanope`. `users` returns the processes of a socket, in the form of
/// `ss`.
fn as_ss(sockets: &[SocketStatus], users: impl Fn(&SocketStatus) -> Option<String>) -> String {
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
fn users_of(socket: &SocketStatus) -> Option<String> {
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

/// Returns the facts of a connection, a word each.
fn details(tcp: &TcpStatus) -> Vec<String> {
    let mut words = tcp.options.clone();
    words.push(format!("rto:{}", milliseconds(tcp.rto)));
    words.push(format!(
        "rtt:{}/{}",
        milliseconds(tcp.rtt),
        milliseconds(tcp.rtt_variation)
    ));
    words.push(format!("mss:{}", tcp.mss));
    words.push(format!("cwnd:{}", tcp.cwnd));
    // Before a loss it exceeds any window.
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
    words
}

/// Formats a timer, with the name that `ss -o` uses if it has one.
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

/// Formats a duration as `ss` does: the finer, the shorter.
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

/// Milliseconds to the microsecond, without trailing zeros.
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
    fn timers_have_names_and_times_of_ss() {
        let of = |kind, millis| running(&timer(kind, Duration::from_millis(millis), 2));
        assert_eq!(of("tail-probe", 200), "timer:(on,200ms,2)");
        assert_eq!(of("reordering", 0), "timer:(on,0ms,2)");
        assert_eq!(of("persist", 1_204), "timer:(persist,1.204sec,2)");
        assert_eq!(of("time-wait", 59_900), "timer:(timewait,59sec,2)");
        assert_eq!(of("keepalive", 90_000), "timer:(keepalive,1min30sec,2)");
        assert_eq!(of("user-timeout", 120_000), "timer:(user,2min,2)");
    }

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
        assert_eq!(as_ss(&[listener, in_other_shard, connection], users), expected);
    }

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
