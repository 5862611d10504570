//! Streams over a TAP device that loses, repeats, delays and reorders frames,
//! by a seed.

use toehold_link::impair::{ImpairSettings, Impairments};
use toehold_link::tap::{Offloads, TapSettings};
use toehold_stack::{CongestionAlgorithm, TcpConfig};

use super::converse;
use super::harness::Cable;

const MS: u64 = 1_000_000;

/// Runs streams over a cable with equal faults in both directions. Every frame is
/// one segment: the loss of a super-frame would be the loss of many.
fn converse_impaired(path: Impairments, seed: u64, bytes: u64) {
    let device = TapSettings {
        offloads: Offloads::NONE,
        ..TapSettings::new("toe0", Cable::ADDRESS)
    };
    let faults = ImpairSettings {
        seed,
        transmit: path,
        receive: path,
        ..ImpairSettings::default()
    };
    for congestion in [CongestionAlgorithm::Cubic, CongestionAlgorithm::Reno] {
        let tcp = TcpConfig {
            congestion,
            ..TcpConfig::default()
        };
        let machine = converse(Cable::impaired(&device, faults, tcp), bytes);
        let happened = machine.faults();
        println!("{path:?}: {happened:?}");
        for (wanted, count) in [
            (path.loss, happened.map(|fault| fault.lost)),
            (path.duplicate, happened.map(|fault| fault.duplicated)),
            (path.reorder, happened.map(|fault| fault.reordered)),
        ] {
            // Without faults the test would show nothing.
            assert_eq!(
                wanted > 0.0,
                count.iter().sum::<u64>() > 0,
                "{path:?} {happened:?}"
            );
        }
        assert_eq!(machine.stack.counters().drop_checksum, 0);
    }
}

#[test]
#[ignore = "needs namespaces, tun"]
fn streams_with_loss_are_intact() {
    for (seed, loss, bytes) in [(1, 0.001, 8 << 20), (2, 0.01, 4 << 20), (3, 0.1, 256 << 10)] {
        let path = Impairments {
            loss,
            ..Impairments::default()
        };
        converse_impaired(path, seed, bytes);
    }
}

#[test]
#[ignore = "needs namespaces, tun"]
fn streams_with_duplication_are_intact() {
    for (seed, duplicate) in [(4, 0.01), (5, 0.5)] {
        let path = Impairments {
            duplicate,
            ..Impairments::default()
        };
        converse_impaired(path, seed, 4 << 20);
    }
}

#[test]
#[ignore = "needs namespaces, tun"]
fn streams_with_reordering_are_intact() {
    for (seed, reorder, reorder_delay_ns) in [(6, 0.01, MS), (7, 0.3, MS / 5), (8, 0.1, 5 * MS)] {
        let path = Impairments {
            reorder,
            reorder_delay_ns,
            delay_ns: MS,
            ..Impairments::default()
        };
        converse_impaired(path, seed, 2 << 20);
    }
}

#[test]
#[ignore = "needs namespaces, tun"]
fn streams_with_delay_are_intact() {
    for (seed, delay_ms, bytes) in [(9, 1, 8 << 20), (10, 20, 4 << 20), (11, 200, 1 << 20)] {
        let path = Impairments {
            delay_ns: delay_ms * MS,
            jitter_ns: delay_ms * MS / 10,
            ..Impairments::default()
        };
        converse_impaired(path, seed, bytes);
    }
}

/// Combines all faults.
#[test]
#[ignore = "needs namespaces, tun"]
fn streams_over_bad_path_are_intact() {
    for seed in 12..16 {
        let path = Impairments {
            loss: 0.03,
            duplicate: 0.02,
            reorder: 0.05,
            reorder_delay_ns: 3 * MS,
            delay_ns: 10 * MS,
            jitter_ns: 2 * MS,
            rate_bps: 200_000_000,
            ..Impairments::default()
        };
        converse_impaired(path, seed, 256 << 10);
    }
}
