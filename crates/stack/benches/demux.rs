//! What a look-up costs, by strategy and number of connections.
//!
//! `cargo bench -p toehold-stack --bench demux`: nanoseconds a look-up of
//! random connections, one by one and in bursts, and of one connection again
//! and again; with PCBs examined and cache lines read. `HashMap` is there for comparison.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use toehold_shm::{Carver, Region};
use toehold_stack::demux::Demultiplexer;
use toehold_stack::{DemuxStrategy, FourTuple};

const LOOKUPS: usize = 1 << 20;
const BURST: usize = 32;

fn mixed(n: u64) -> u64 {
    let x = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn tuple(n: u32) -> FourTuple {
    let remote = ((mixed(n.into()) as u32).to_be_bytes(), (n % 60_000) as u16 + 1024);
    let mut tuple = FourTuple::new("10.0.0.1:80".parse().unwrap(), remote.into());
    tuple.remote.0[12..].copy_from_slice(&n.to_be_bytes());
    tuple
}

/// Nanoseconds for each of `count`: the best of five, since everything else on
/// the machine only ever adds.
fn time(count: usize, mut work: impl FnMut()) -> f64 {
    let once = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64 / count as f64
    };
    (0..5).map(once).fold(f64::MAX, f64::min)
}

fn measure(name: &str, strategy: DemuxStrategy, store: &[FourTuple], wanted: &[FourTuple]) {
    let count = store.len() as u32;
    let fill = |counted| {
        let region = Region::private(Demultiplexer::bytes_needed(strategy, count)).unwrap();
        let mut carver = Carver::new(region).unwrap();
        let mut demux = Demultiplexer::create(&mut carver, strategy, counted, count, &[7; 16]).unwrap();
        for id in 0..count {
            demux.insert(id, store).unwrap();
        }
        demux
    };
    let mut demux = fill(false);
    let one_by_one = time(wanted.len(), || {
        for tuple in wanted {
            black_box(demux.lookup(tuple, store));
        }
    });
    let mut counted = fill(true);
    for tuple in wanted {
        counted.lookup(tuple, store);
    }
    let counters = *counted.counters().expect("counted");
    let each = |number: u64| number as f64 / counters.demux_lookups as f64;
    let (examined, lines) = (each(counters.demux_examined), each(counters.demux_lines));
    let mut ids = [0; BURST];
    let bursts = time(wanted.len(), || {
        for burst in wanted.chunks_exact(BURST) {
            demux.lookup_burst(burst, &mut ids, store);
            black_box(&ids);
        }
    });
    let train = time(LOOKUPS, || {
        for _ in 0..LOOKUPS {
            black_box(demux.lookup(black_box(&wanted[0]), store));
        }
    });
    println!("{count:>9} {name:12} {one_by_one:8.1} {bursts:8.1} {train:8.1} {examined:10.2} {lines:8.2}");
}

fn main() {
    println!(
        "{:>9} {:12} {:>8} {:>8} {:>8} {:>10} {:>8}",
        "entries", "strategy", "ns each", "in burst", "train", "examined", "lines"
    );
    for count in [100, 1 << 10, 1 << 16, 1 << 20] {
        let store: Vec<FourTuple> = (0..count).map(tuple).collect();
        let wanted: Vec<FourTuple> = (0..LOOKUPS as u64)
            .map(|n| store[(mixed(n + 77) % u64::from(count)) as usize])
            .collect();
        measure("flow_table", DemuxStrategy::FlowTable, &store, &wanted);
        if count <= 1 << 10 {
            measure(
                "sequent 19",
                DemuxStrategy::Sequent { chains: 19 },
                &store,
                &wanted,
            );
        }
        measure(
            "sequent n/4",
            DemuxStrategy::Sequent { chains: count / 4 },
            &store,
            &wanted,
        );
        let map: HashMap<FourTuple, u32> = store.iter().copied().zip(0..).collect();
        let std = time(LOOKUPS, || {
            for tuple in &wanted {
                black_box(map.get(tuple));
            }
        });
        println!("{count:>9} {:12} {std:8.1}", "HashMap");
    }
}
