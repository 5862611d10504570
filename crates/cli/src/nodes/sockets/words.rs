//! The facts and the timers of a connection, a word each.

use std::time::Duration;

use toehold_node::control::{TcpStatus, TimerStatus};

/// Returns the facts of a connection, a word each.
pub(super) fn details(tcp: &TcpStatus) -> Vec<String> {
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
pub(super) fn running(timer: &TimerStatus) -> String {
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
pub(super) mod tests {
    use super::*;

    /// A timer that runs.
    pub(in super::super) fn timer(kind: &str, expires_in: Duration, retries: u8) -> TimerStatus {
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
}
