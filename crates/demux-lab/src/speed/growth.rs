//! Times of entering a connection while a table grows from empty.

use std::collections::HashMap;
use std::time::Instant;

use serde::Serialize;
use toehold_shm::{Carver, Region};
use toehold_stack::DemuxStrategy;
use toehold_stack::demux::{Chosen, Demux};

use super::table::Key;
use crate::{Connections, secret};

/// One candidate's times of entering a connection, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Growth {
    /// The candidate's name.
    pub candidate: String,
    /// Number of entered connections.
    pub connections: u32,
    /// The median.
    pub median_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// The maximum.
    pub max_ns: u64,
}

/// Enters connections into the flow table and into maps, one by one, and times
/// each.
///
/// # Panics
///
/// If memory is short.
pub fn growth(count: u32, seed: u64) -> Vec<Growth> {
    let connections = Connections::new(count);
    let strategy = DemuxStrategy::FlowTable;
    let region = Region::private(Chosen::bytes_needed(strategy, count)).expect("memory");
    let mut carver = Carver::new(region).expect("memory");
    let mut table = Chosen::create(&mut carver, strategy, count, &secret(seed)).expect("room");
    let mut map = HashMap::new();
    let mut foldhash = hashbrown::HashMap::new();
    let tuple = |id| Key(*connections.tuple_of(id));
    vec![
        timed("flow-table", count, |id| {
            table.insert(id, &connections).expect("room for all");
        }),
        timed("std HashMap", count, |id| {
            map.insert(tuple(id), id);
        }),
        timed("hashbrown, foldhash", count, |id| {
            foldhash.insert(tuple(id), id);
        }),
    ]
}

fn timed(name: &str, count: u32, mut insert: impl FnMut(u32)) -> Growth {
    let mut spans: Vec<u32> = Vec::with_capacity(count as usize);
    for id in 0..count {
        let start = Instant::now();
        insert(id);
        spans.push(start.elapsed().as_nanos().try_into().unwrap_or(u32::MAX));
    }
    spans.sort_unstable();
    let at = |share: f64| u64::from(spans[((spans.len() - 1) as f64 * share) as usize]);
    Growth {
        candidate: name.to_owned(),
        connections: count,
        median_ns: at(0.5),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        max_ns: at(1.0),
    }
}
