//! What entering a connection takes while a table grows from nothing.

use std::collections::HashMap;
use std::time::Instant;

use serde::Serialize;
use toehold_shm::{Carver, Region};
use toehold_stack::DemuxStrategy;
use toehold_stack::demux::{Chosen, Demux};

use super::table::Key;
use crate::{Connections, secret};

/// What one candidate took to enter a connection, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Growth {
    /// Its name.
    pub candidate: String,
    /// Connections entered.
    pub connections: u32,
    /// Half of them took at most this.
    pub median_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
    /// All of them.
    pub max_ns: u64,
}

/// Enters so many connections into the flow table and into maps, one by one and timed.
///
/// # Panics
///
/// If there is not that much memory.
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
