//! Measuring programs: the tests check their counts, not their rates.

use rustix::process::Signal;
use serde_json::Value;

use crate::alike;

#[test]
#[ignore = "needs iperf3"]
fn iperf3_counts_equal_bytes_at_both_ends() {
    alike(12, |place| {
        let port = place.port.to_string();
        let modes = [&[][..], &["--parallel", "4"], &["--reverse"], &["--bidir"]];
        modes.map(|mode| {
            // A server closes its port after a client, and resets clients that connect meanwhile.
            let server = place.serve(&["iperf3", "--server", "--one-off", "--port", &port]);
            let fixed = ["iperf3", "--client", place.address(), "--port", &port, "--json"];
            // Of a known number of bytes, all arrive.
            let result = place.gets(&[&fixed[..], &["--bytes", "50M"], mode].concat());
            let result: Value = serde_json::from_slice(&result).unwrap();
            let end = &result["end"];
            let bytes = |sum: &str| end[sum]["bytes"].as_u64().unwrap_or(0);
            // Of two directions, one may end before the other begins.
            let [sent, received] = ["sum_sent", "sum_received"].map(bytes);
            let [back, back_received] = ["sum_sent_bidir_reverse", "sum_received_bidir_reverse"].map(bytes);
            assert!(received + back_received > 0, "{mode:?}: {end}");
            assert!(received <= sent && back_received <= back, "{mode:?}: {end}");
            server.wait()
        })
    });
}

#[test]
#[ignore = "needs NPtcp"]
fn netpipe_measures_all_sizes() {
    alike(1, |place| {
        let port = place.port.to_string();
        let size = ["-u", "65536", "-p", "0", "-n", "50", "-P", &port];
        let server = place.serve(&[&["NPtcp"], &size[..]].concat());
        let words = ["NPtcp", "-h", place.address(), "-I", "-o", "sizes"];
        let output = place.ask(&[&words, &size[..]].concat());
        let sizes = std::fs::read_to_string(place.path("sizes")).unwrap();
        let sizes = sizes
            .lines()
            .map(|line| line.split_whitespace().next().unwrap().to_owned());
        (output.status.code(), sizes.collect::<Vec<_>>(), server.wait())
    });
}

#[test]
#[ignore = "needs sockperf"]
fn sockperf_receives_all_replies() {
    alike(2, |place| {
        let port = place.port.to_string();
        let server = place.serve(&["sockperf", "server", "--tcp", "-i", "0.0.0.0", "-p", &port]);
        let fixed = [
            "sockperf",
            "ping-pong",
            "--tcp",
            "-i",
            place.address(),
            "-p",
            &port,
        ];
        for size in ["64", "4096"] {
            let said = place.says(&[&fixed[..], &["-t", "1", "-m", size, "--data-integrity"]].concat());
            assert!(said.contains("Summary: Latency is"), "{said}");
            assert!(
                said.contains("dropped messages = 0; # duplicated messages = 0"),
                "{said}"
            );
        }
        server.end(Signal::TERM)
    });
}
