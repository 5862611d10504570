//! Captures of simulated networks.

use core::time::Duration;
use std::path::{Path, PathBuf};

use toehold_link::impair::Impairments;
use toehold_sim::network::{Network, NodeSettings};

/// A file that is removed on drop.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("toehold-sim-{}-{name}.pcapng", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs streams both ways between two nodes. `path` gives the faults of sent
/// frames; `None` is a link in memory. The first node's frames are captured.
fn run(seed: u64, path: Option<&Impairments>, mtu: u16, capture: &Path) {
    let mut network = Network::new(seed);
    for node in 0..2 {
        network.add(&NodeSettings {
            local: path.is_none(),
            mtu,
            transmit: path.cloned().unwrap_or_default(),
            capture: (node == 0).then(|| capture.to_owned()),
            ..NodeSettings::default()
        });
    }
    network.serve(1, 80, seed % 2 == 1, 100_000);
    network.connect(0, 1, 80, seed % 2 == 1, 100_000);
    network.run(Duration::from_secs(24 * 3600));
    network.settle();
}

fn lossy() -> Impairments {
    Impairments {
        loss: 0.02,
        delay_ns: 1_000_000,
        ..Impairments::default()
    }
}

/// Returns the frames of a capture that a display filter of tshark matches, one
/// a line.
fn frames(capture: &Path, filter: &str) -> Vec<String> {
    let output = std::process::Command::new("tshark")
        .args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"])
        // The streams are random bytes, not the protocol that the port
        // suggests.
        .args(["-d", "tcp.port==80,data", "-o", "tcp.try_heuristic_first:FALSE"])
        .args(["-Y", filter, "-r"])
        .arg(capture)
        .output()
        .expect("tshark runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let found = String::from_utf8_lossy(&output.stdout);
    found.lines().map(str::to_owned).collect()
}

#[test]
fn equal_seeds_give_equal_captures() {
    for local in [false, true] {
        let files = [Temporary::new("a"), Temporary::new("b"), Temporary::new("c")];
        let path = (!local).then(lossy);
        for (seed, file) in [4, 4, 5].into_iter().zip(&files) {
            run(seed, path.as_ref(), 1500, &file.0);
        }
        let [a, b, c] = files
            .each_ref()
            .map(|file| std::fs::read(&file.0).expect("captured"));
        assert_eq!(a[..4], 0x0a0d_0d0au32.to_ne_bytes(), "a section header");
        assert!(a.len() > 10_000, "{}", a.len());
        assert!(a == b, "the same run gives the same bytes");
        assert!(a != c);
    }
}

#[test]
#[ignore = "needs tshark"]
fn tshark_finds_no_error_in_capture() {
    for (seed, path) in [(4, Some(lossy())), (5, Some(lossy())), (4, None), (5, None)] {
        let file = Temporary::new(&format!("shark-{seed}-{}", path.is_none()));
        run(seed, path.as_ref(), 1500, &file.0);
        let wrong = "_ws.malformed || ip.checksum.status == 0 || tcp.checksum.status == 0";
        assert_eq!(frames(&file.0, wrong), [""; 0]);
        assert!(frames(&file.0, "tcp").len() > 50);
    }
}

/// On a path without loss tshark sees no retransmission and no duplicate ACK,
/// whatever the round trip.
#[test]
#[ignore = "needs tshark"]
fn tshark_sees_no_retransmission_on_clean_path() {
    let again = "tcp.analysis.retransmission || tcp.analysis.out_of_order || tcp.analysis.lost_segment \
                 || tcp.analysis.ack_lost_segment || tcp.analysis.duplicate_ack || _ws.malformed";
    for (at, delay_ms) in [0, 1, 20, 100].into_iter().enumerate() {
        for (seed, mtu) in [(6, 1500), (7, 9000)] {
            let clean = Impairments {
                delay_ns: delay_ms * 1_000_000,
                ..Impairments::default()
            };
            let file = Temporary::new(&format!("clean-{at}-{seed}"));
            run(seed, Some(&clean), mtu, &file.0);
            assert_eq!(frames(&file.0, again), [""; 0], "{delay_ms} ms, seed {seed}");
            assert!(frames(&file.0, "tcp.len > 0").len() > 10);
        }
    }
}
