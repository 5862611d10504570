//! Parsers for the output of measuring programs.

/// Parses one figure from a program's output.
pub(super) type Parser = fn(&str) -> Option<f64>;

/// NPtcp's file of results (`-o`): the one-way time of the smallest message, in microseconds.
/// Each line has a size, the throughput in Mb/s, and the time in seconds.
pub(super) fn netpipe(output: &str) -> Option<f64> {
    let line = output.lines().find(|line| !line.trim().is_empty())?;
    let seconds: f64 = line.split_whitespace().nth(2)?.parse().ok()?;
    Some(seconds * 1e6)
}

/// sockperf's percentile 50, in microseconds one way.
pub(super) fn sockperf_p50(output: &str) -> Option<f64> {
    sockperf(output, "percentile 50.000")
}

/// sockperf's percentile 99.9, in microseconds one way.
pub(super) fn sockperf_p999(output: &str) -> Option<f64> {
    sockperf(output, "percentile 99.900")
}

fn sockperf(output: &str, name: &str) -> Option<f64> {
    let line = output.lines().find(|line| line.contains(name))?;
    line.split_once('=')?.1.trim().parse().ok()
}

/// iperf3's JSON: the received rate, in Gb/s.
pub(super) fn iperf3(output: &str) -> Option<f64> {
    let output: serde_json::Value = serde_json::from_str(output).ok()?;
    let rate = output["end"]["sum_received"]["bits_per_second"].as_f64()?;
    Some(rate / 1e9)
}

/// redis-benchmark's table (`--csv`): requests a second of its only test.
pub(super) fn redis(output: &str) -> Option<f64> {
    let line = output.lines().find(|line| line.starts_with("\"GET\""))?;
    line.split(',').nth(1)?.trim_matches('"').parse().ok()
}

/// wrk's closing lines: requests a second, of which none may have failed.
pub(super) fn wrk(output: &str) -> Option<f64> {
    if output.contains("Non-2xx") || output.contains("Socket errors") {
        return None;
    }
    let rate = output
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"))?;
    rate.trim().parse().ok()
}

/// The output of a shell's `time`, in seconds.
pub(super) fn time(output: &str) -> Option<f64> {
    let real = output.lines().find_map(|line| line.strip_prefix("real "))?;
    real.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netpipes_first_size_is_read() {
        let output = "       1 1.329741   0.00000574\n       2 0.987651   0.00001545\n";
        assert_eq!(netpipe(output), Some(5.74));
        assert_eq!(netpipe(""), None);
        assert_eq!(netpipe("1 1.3"), None);
    }

    #[test]
    fn sockperfs_percentiles_are_read() {
        let output = "sockperf: Summary: Latency is 24.916 usec\n\
            sockperf: ---> <MAX> observation = 10100.458\n\
            sockperf: ---> percentile 99.990 = 5572.217\n\
            sockperf: ---> percentile 99.900 = 2091.142\n\
            sockperf: ---> percentile 99.000 =  211.562\n\
            sockperf: ---> percentile 50.000 =   15.828\n";
        assert_eq!(sockperf_p50(output), Some(15.828));
        assert_eq!(sockperf_p999(output), Some(2091.142));
        assert_eq!(sockperf_p50("sockperf: ERROR"), None);
    }

    #[test]
    fn iperf3s_received_rate_is_read() {
        let output = r#"{"start":{},"end":{"sum_sent":{"bits_per_second":2.3e10},
            "sum_received":{"seconds":2.0,"bytes":5680136192,"bits_per_second":22720544768.0}}}"#;
        assert_eq!(iperf3(output), Some(22.720544768));
        assert_eq!(iperf3(r#"{"error":"unable to connect to server"}"#), None);
    }

    #[test]
    fn redis_rate_is_read() {
        let output = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\"\n\
            \"GET\",\"92165.90\",\"0.167\",\"0.048\",\"0.159\"\n";
        assert_eq!(redis(output), Some(92165.9));
        assert_eq!(redis("Could not connect to Redis at 10.77.0.1:6379"), None);
    }

    #[test]
    fn wrks_rate_is_read_unless_requests_failed() {
        let good = "Running 6s test @ http://10.77.0.1:8081/1k\n  1 threads and 8 connections\n  \
            169812 requests in 6.03s, 204.70MB read\nRequests/sec:  28138.83\nTransfer/sec:     33.92MB\n";
        assert_eq!(wrk(good), Some(28138.83));
        let errors = good.replace(
            "Requests/sec",
            "  Socket errors: connect 0, read 24, write 0, timeout 0\nRequests/sec",
        );
        assert_eq!(wrk(&errors), None);
        let refused = good.replace("Requests/sec", "  Non-2xx or 3xx responses: 4\nRequests/sec");
        assert_eq!(wrk(&refused), None);
    }

    #[test]
    fn a_shells_time_is_read() {
        assert_eq!(time("real 0.834\n"), Some(0.834));
        assert_eq!(time("user 0.05\n"), None);
    }
}
