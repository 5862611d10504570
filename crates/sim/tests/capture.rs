//! Captures of simulated networks.

use core::time::Duration;
use std::path::{Path, PathBuf};

use toehold_link::impair::Impairments;
use toehold_sim::network::{Network, NodeSettings};

/// A file that vanishes.
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

fn run(seed: u64, local: bool, capture: &Path) {
    let mut network = Network::new(seed);
    for node in 0..2 {
        let transmit = Impairments {
            loss: 0.02,
            delay_ns: 1_000_000,
            ..Impairments::default()
        };
        network.add(&NodeSettings {
            local,
            transmit: if local { Impairments::default() } else { transmit },
            capture: (node == 0).then(|| capture.to_owned()),
            ..NodeSettings::default()
        });
    }
    network.serve(1, 80, seed % 2 == 1, 100_000);
    network.connect(0, 1, 80, seed % 2 == 1, 100_000);
    network.run(Duration::from_secs(24 * 3600));
    network.settle();
}

#[test]
fn the_same_seed_gives_the_same_capture() {
    for local in [false, true] {
        let files = [Temporary::new("a"), Temporary::new("b"), Temporary::new("c")];
        run(4, local, &files[0].0);
        run(4, local, &files[1].0);
        run(5, local, &files[2].0);
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
fn tshark_finds_nothing_wrong_in_a_capture() {
    for (seed, local) in [(4, false), (5, false), (4, true), (5, true)] {
        let file = Temporary::new(&format!("shark-{seed}-{local}"));
        run(seed, local, &file.0);
        let filter = "_ws.malformed || ip.checksum.status == 0 || tcp.checksum.status == 0";
        let output = std::process::Command::new("tshark")
            .args(["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"])
            // The streams are random bytes, not what the port suggests.
            .args(["-d", "tcp.port==80,data", "-o", "tcp.try_heuristic_first:FALSE"])
            .args(["-Y", filter, "-r"])
            .arg(&file.0)
            .output()
            .expect("tshark runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let found = String::from_utf8_lossy(&output.stdout);
        assert!(found.is_empty(), "{found}");
        let output = std::process::Command::new("tshark")
            .arg("-r")
            .arg(&file.0)
            .output()
            .expect("tshark runs");
        assert!(output.stdout.iter().filter(|&&byte| byte == b'\n').count() > 50);
    }
}
