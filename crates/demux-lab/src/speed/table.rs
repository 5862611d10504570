//! What is compared: the strategies, hash maps that one could take instead, and what the
//! machine's memory allows at best.

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

/// Segments that come together.
pub(super) const BURST: usize = 32;

/// A candidate: what is measured, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    /// A strategy, asked for bursts.
    Bursts(DemuxStrategy),
    /// A strategy, asked for one segment after the other.
    Alone(DemuxStrategy),
    /// `std::collections::HashMap`.
    Std,
    /// `hashbrown::HashMap` with foldhash.
    Foldhash,
    /// `hashbrown::HashMap` with ahash.
    Ahash,
    /// `hashbrown::HashMap` with a CRC that begins with a secret.
    Crc,
    /// DPDK's `rte_hash`, asked for bursts. It has no table if DPDK is not installed.
    RteHash,
    /// Reading a line of a connection's own: no table does it with less.
    OneLine,
    /// Reading a line of a table's, which says which line of a connection's own to read.
    TwoLines,
    /// The same, each only when the one before has been read.
    TwoLinesInTurn,
}

impl Candidate {
    /// The flow table as the stack uses it, with which the others are compared.
    pub const OWN: Self = Self::Bursts(DemuxStrategy::FlowTable);

    /// All that are compared among so many connections, where all are installed.
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

    /// What it lacks on this machine.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::RteHash => Rte::load().err().map(ToString::to_string),
            _ => None,
        }
    }

    /// Its name.
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

    /// Whether it is a bound and no table.
    pub fn is_floor(self) -> bool {
        matches!(self, Self::OneLine | Self::TwoLines | Self::TwoLinesInTurn)
    }

    /// Whether it is one of the strategies of lists.
    pub fn is_list(self) -> bool {
        match self {
            Self::Bursts(strategy) | Self::Alone(strategy) => strategy != DemuxStrategy::FlowTable,
            _ => false,
        }
    }

    /// It, with all connections in it.
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

/// A tuple as maps are best served: as few words as tell it from others.
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
            // IPv4's: what differs is in the upper halves.
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

/// A line of memory.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Lines as a table's and as connections' own: one of the first for eight of the second, as
/// the flow table has it.
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

    /// Where a hash would lead: any line.
    #[inline]
    fn line(&self, number: u32) -> &Line {
        let mixed = u64::from(number.wrapping_mul(0x9e37_79b1));
        &self.table[((mixed * self.table.len() as u64) >> 32) as usize]
    }

    /// The connection's own line. What the table's line says is not known before it was read.
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
            // The next number is only known when the last line was read.
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

/// Connections to look up.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) tuples: Vec<FourTuple>,
    /// By number.
    pub(super) numbers: Vec<u32>,
}

/// Looks some up in bursts, and gives back the sum of what was found.
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
    /// Looks some up, and gives back the sum of what was found: with [`NONE`] for what was not.
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

    /// Takes a connection out and enters it again. False if there is nothing to take out.
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
