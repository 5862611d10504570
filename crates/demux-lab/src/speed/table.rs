//! The candidates: the strategies, general hash maps, and lower bounds of the
//! machine's memory.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::hint::black_box;
use std::ops::Range;

use toehold_rte_hash::Rte;
use toehold_shm::{NONE, prefetch};
use toehold_stack::demux::{Chosen, Demux, Unobserved};
use toehold_stack::{DemuxStrategy, FourTuple};

use super::bulk;
use super::crc::Crc;
use crate::Connections;

/// Number of segments in a burst.
pub(super) const BURST: usize = 32;

/// A candidate and its way of looking up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    /// A strategy that looks up bursts.
    Bursts(DemuxStrategy),
    /// A strategy that looks up one segment at a time.
    Alone(DemuxStrategy),
    /// `std::collections::HashMap`.
    Std,
    /// `hashbrown::HashMap` with foldhash.
    Foldhash,
    /// `hashbrown::HashMap` with ahash.
    Ahash,
    /// `hashbrown::HashMap` with a CRC that starts with a secret.
    Crc,
    /// DPDK's `rte_hash`, which looks up bursts. Absent if DPDK is not
    /// installed.
    RteHash,
    /// Reads one line per connection, the least that any table reads.
    OneLine,
    /// Reads a line of a table, which tells the connection's line to read.
    TwoLines,
    /// Reads two lines as [`Self::TwoLines`] does, each after the previous one
    /// has arrived.
    TwoLinesInTurn,
}

impl Candidate {
    /// The flow table as the stack uses it: the reference for all others.
    pub const OWN: Self = Self::Bursts(DemuxStrategy::FlowTable);

    /// Returns all installed candidates for `connections` connections.
    pub fn all(connections: u32) -> Vec<Self> {
        let chains = (connections / 4).max(1);
        let mut all = vec![
            Self::Bursts(DemuxStrategy::FlowTable),
            Self::Alone(DemuxStrategy::FlowTable),
            Self::Bursts(DemuxStrategy::Bsd),
            Self::Bursts(DemuxStrategy::MoveToFront),
            Self::Bursts(DemuxStrategy::Sequent { chains: 19 }),
            Self::Bursts(DemuxStrategy::HashedMoveToFront { chains: 19 }),
            Self::Bursts(DemuxStrategy::Sequent { chains }),
            Self::Bursts(DemuxStrategy::HashedMoveToFront { chains }),
            Self::Std,
            Self::Foldhash,
            Self::Ahash,
            Self::RteHash,
            Self::OneLine,
            Self::TwoLines,
            Self::TwoLinesInTurn,
        ];
        all.retain(|candidate| candidate.missing().is_none());
        all
    }

    /// Returns the missing component of this machine, if any.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::RteHash => Rte::load().err().map(ToString::to_string),
            _ => None,
        }
    }

    /// Returns the candidate's name.
    pub fn name(self) -> String {
        match self {
            Self::Bursts(strategy) => strategy.to_string(),
            Self::Alone(strategy) => format!("{strategy}, one by one"),
            Self::Std => "std HashMap".to_owned(),
            Self::Foldhash => "hashbrown, foldhash".to_owned(),
            Self::Ahash => "hashbrown, ahash".to_owned(),
            Self::Crc => "hashbrown, CRC-32C".to_owned(),
            Self::RteHash => "DPDK rte_hash".to_owned(),
            Self::OneLine => "floor: one line".to_owned(),
            Self::TwoLines => "floor: two lines".to_owned(),
            Self::TwoLinesInTurn => "two lines, in turn".to_owned(),
        }
    }

    /// Returns whether the candidate is a lower bound and no table.
    pub fn is_floor(self) -> bool {
        matches!(self, Self::OneLine | Self::TwoLines | Self::TwoLinesInTurn)
    }

    /// Returns whether the candidate is a list strategy.
    pub fn is_list(self) -> bool {
        match self {
            Self::Bursts(strategy) | Self::Alone(strategy) => strategy != DemuxStrategy::FlowTable,
            _ => false,
        }
    }

    /// Returns the candidate with all connections entered.
    pub(super) fn filled(self, connections: &Connections, seed: u64) -> Table {
        match self {
            Self::Bursts(strategy) => Table::Bursts(connections.entered(strategy, seed)),
            Self::Alone(strategy) => Table::Alone(connections.entered(strategy, seed)),
            Self::Std => Table::Std(filled(HashMap::default(), connections, HashMap::insert)),
            Self::Foldhash => Table::Foldhash(filled(
                hashbrown::HashMap::default(),
                connections,
                hashbrown::HashMap::insert,
            )),
            Self::Ahash => Table::Ahash(filled(
                hashbrown::HashMap::with_hasher(ahash::RandomState::with_seeds(seed, 1, 2, 3)),
                connections,
                hashbrown::HashMap::insert,
            )),
            Self::Crc => Table::Crc(filled(
                hashbrown::HashMap::with_hasher(Crc::new(seed as u32)),
                connections,
                hashbrown::HashMap::insert,
            )),
            Self::RteHash => Table::RteHash(bulk::filled(connections)),
            Self::OneLine => Table::OneLine(Lines::of(connections)),
            Self::TwoLines => Table::TwoLines(Lines::of(connections)),
            Self::TwoLinesInTurn => Table::TwoLinesInTurn(Lines::of(connections)),
        }
    }
}

/// A tuple as hash maps work best with: the fewest words that distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key(pub(super) FourTuple);

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let FourTuple {
            local,
            remote,
            local_port,
            remote_port,
        } = &self.0;
        let ports = u32::from(*local_port) << 16 | u32::from(*remote_port);
        let [local, remote] = [local.0, remote.0].map(u128::from_le_bytes);
        if local as u64 == 0 && remote as u64 == 0 {
            // In IPv4 addresses the upper halves differ.
            state.write_u64((local >> 64) as u64 & !0xffff_ffff | (remote >> 96) as u64);
        } else {
            state.write_u128(local);
            state.write_u128(remote);
        }
        state.write_u32(ports);
    }
}

fn filled<M>(mut map: M, connections: &Connections, insert: impl Fn(&mut M, Key, u32) -> Option<u32>) -> M {
    for (tuple, id) in connections.iter().zip(0..) {
        insert(&mut map, Key(*tuple), id);
    }
    map
}

/// A cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Lines of a table and of connections, one of the former for eight of the latter,
/// as in the flow table.
#[derive(Debug)]
pub(super) struct Lines {
    table: Vec<Line>,
    records: Vec<Line>,
}

impl Lines {
    fn of(connections: &Connections) -> Self {
        let count = connections.iter().len();
        Self {
            table: vec![Line([1; 8]); count.div_ceil(8)],
            records: vec![Line([1; 8]); count],
        }
    }

    /// Returns a random line, as a hash would select.
    #[inline]
    fn line(&self, number: u32) -> &Line {
        let mixed = u64::from(number.wrapping_mul(0x9e37_79b1));
        &self.table[((mixed * self.table.len() as u64) >> 32) as usize]
    }

    /// Returns the connection's own line. Its address depends on the content of
    /// the table's line.
    #[inline]
    fn record(&self, number: u32, said: u64) -> &Line {
        &self.records[(u64::from(number) + said - 1) as usize % self.records.len()]
    }

    fn one(&self, numbers: &[u32]) -> u64 {
        let mut sum = 0;
        for burst in numbers.chunks(BURST) {
            for &number in burst {
                prefetch(self.record(number, 1));
            }
            for &number in burst {
                sum += self.record(number, 1).0[0];
            }
        }
        sum
    }

    fn two(&self, numbers: &[u32]) -> u64 {
        let mut sum = 0;
        for burst in numbers.chunks(BURST) {
            for &number in burst {
                prefetch(self.line(number));
            }
            for &number in burst {
                prefetch(self.record(number, self.line(number).0[0]));
            }
            for &number in burst {
                sum += self.record(number, self.line(number).0[0]).0[0];
            }
        }
        sum
    }

    fn two_in_turn(&self, numbers: &[u32]) -> u64 {
        let mut last = 1;
        for &number in numbers {
            // The next number depends on the last line read.
            let number = number + (last - 1) as u32;
            last = self.record(number, self.line(number).0[0]).0[0];
        }
        last
    }
}

/// A candidate with its connections.
#[derive(Debug)]
pub(super) enum Table {
    Bursts(Chosen),
    Alone(Chosen),
    Std(HashMap<Key, u32>),
    Foldhash(hashbrown::HashMap<Key, u32>),
    Ahash(hashbrown::HashMap<Key, u32, ahash::RandomState>),
    Crc(hashbrown::HashMap<Key, u32, Crc>),
    RteHash(bulk::RteHash),
    OneLine(Lines),
    TwoLines(Lines),
    TwoLinesInTurn(Lines),
}

/// A sequence of look-ups.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) tuples: Vec<FourTuple>,
    /// Ids of the connections.
    pub(super) numbers: Vec<u32>,
}

/// Looks up a range in bursts. Returns the sum of the found ids.
pub(super) fn in_bursts(table: &mut Chosen, tuples: &[FourTuple], connections: &Connections) -> u64 {
    let mut ids = [0; BURST];
    let mut sum = 0;
    for burst in tuples.chunks(BURST) {
        let ids = &mut ids[..burst.len()];
        table.lookup_burst(burst, ids, connections, &mut Unobserved);
        sum += ids.iter().map(|&id| u64::from(id)).sum::<u64>();
    }
    sum
}

impl Table {
    /// Looks up a range. Returns the sum of the found ids, with [`NONE`] for
    /// missing ones.
    pub(super) fn look_up(&mut self, wanted: &Wanted, which: Range<usize>, connections: &Connections) -> u64 {
        let (tuples, numbers) = (&wanted.tuples[which.clone()], &wanted.numbers[which]);
        match self {
            Self::Bursts(table) => in_bursts(table, tuples, connections),
            Self::Alone(table) => {
                let mut find = |tuple| table.lookup(tuple, connections, &mut Unobserved);
                tuples.iter().map(|tuple| found(find(tuple))).sum()
            }
            Self::Std(map) => sum_in(tuples, |key| map.get(key).copied()),
            Self::Foldhash(map) => sum_in(tuples, |key| map.get(key).copied()),
            Self::Ahash(map) => sum_in(tuples, |key| map.get(key).copied()),
            Self::Crc(map) => sum_in(tuples, |key| map.get(key).copied()),
            Self::RteHash(table) => bulk::sum_in(table, tuples),
            Self::OneLine(lines) => lines.one(numbers),
            Self::TwoLines(lines) => lines.two(numbers),
            Self::TwoLinesInTurn(lines) => lines.two_in_turn(numbers),
        }
    }

    /// Removes a connection and enters it again. Returns `false` for a
    /// candidate without a table.
    pub(super) fn exchange(&mut self, id: u32, connections: &Connections) -> bool {
        let tuple = *connections.tuple_of(id);
        match self {
            Self::Bursts(table) | Self::Alone(table) => {
                table.remove(id, connections) && table.insert(id, connections).is_ok()
            }
            Self::Std(map) => map.remove(&Key(tuple)).is_some() && map.insert(Key(tuple), id).is_none(),
            Self::Foldhash(map) => exchange(map, tuple, id),
            Self::Ahash(map) => exchange(map, tuple, id),
            Self::Crc(map) => exchange(map, tuple, id),
            Self::RteHash(table) => table.remove(&tuple) && table.insert(&tuple, id).is_ok(),
            Self::OneLine(_) | Self::TwoLines(_) | Self::TwoLinesInTurn(_) => false,
        }
    }
}

fn exchange<S: BuildHasher>(map: &mut hashbrown::HashMap<Key, u32, S>, tuple: FourTuple, id: u32) -> bool {
    map.remove(&Key(tuple)).is_some() && map.insert(Key(tuple), id).is_none()
}

fn found(id: Option<u32>) -> u64 {
    id.unwrap_or(NONE).into()
}

#[inline(always)]
fn sum_in(tuples: &[FourTuple], get: impl Fn(&Key) -> Option<u32>) -> u64 {
    let sum = tuples.iter().map(|tuple| found(get(&Key(*tuple)))).sum();
    black_box(sum)
}
