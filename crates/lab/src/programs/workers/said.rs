//! Parsers for the output of the services' clients.

use crate::samples::Side;

/// Converts a client's output to its counts.
pub(super) type Reader = fn(&str) -> Option<Side>;

/// The counts of this crate's clients.
pub(super) fn own(output: &str) -> Option<Side> {
    serde_json::from_str(output.trim()).ok()
}

/// pgbench's transactions a second.
pub(super) fn pgbench(output: &str) -> Option<Side> {
    let line = output.lines().find_map(|line| line.strip_prefix("tps = "))?;
    rate(line.split_whitespace().next()?)
}

/// sysbench's transactions a second.
pub(super) fn sysbench(output: &str) -> Option<Side> {
    let line = output.lines().map(str::trim);
    let mut lines = line.filter_map(|line| line.strip_prefix("transactions:"));
    let (_, rest) = lines.next()?.split_once('(')?;
    rate(rest.strip_suffix("per sec.)")?)
}

/// A thousand seconds of a rate; no other count is known.
fn rate(text: &str) -> Option<Side> {
    /// Enough seconds that even slow rates are exact to three digits.
    const SECONDS: u64 = 1000;
    let rate: f64 = text.trim().parse().ok()?;
    let messages = (rate * SECONDS as f64).round();
    (1.0..1e18).contains(&messages).then(|| Side {
        messages: messages as u64,
        span_ns: SECONDS * 1_000_000_000,
        ..Side::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate_of(side: Option<Side>) -> Option<f64> {
        side.map(|side| side.messages as f64 / (side.span_ns as f64 / 1e9))
    }

    #[test]
    fn pgbench_rate_is_read_with_and_without_reconnections() {
        let kept = "number of failed transactions: 0 (0.000%)\nlatency average = 0.104 ms\n\
            tps = 9615.384615 (without initial connection time)\n";
        assert_eq!(rate_of(pgbench(kept)), Some(9615.385));
        let connected = "average connection time = 1.2 ms\ntps = 512.5 (including reconnection times)\n";
        assert_eq!(rate_of(pgbench(connected)), Some(512.5));
        assert_eq!(pgbench("tps = 0 ("), None);
        assert_eq!(pgbench("pgbench: error: connection failed"), None);
    }

    #[test]
    fn sysbench_rate_is_read() {
        let output = "SQL statistics:\n    transactions:                        25683  (25664.60 per sec.)\n\
            \x20   queries:                             25683  (25664.60 per sec.)\n";
        assert_eq!(rate_of(sysbench(output)), Some(25664.6));
        assert_eq!(sysbench("FATAL: unable to connect"), None);
    }

    #[test]
    fn own_counts_are_read() {
        let side = Side {
            messages: 3,
            ..Side::default()
        };
        let text = serde_json::to_string(&side).unwrap();
        assert_eq!(own(&format!("{text}\n")), Some(side));
        assert_eq!(own("no"), None);
    }
}
