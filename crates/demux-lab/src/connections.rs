//! Connections to look up, and tables of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use toehold_shm::{Carver, Region};
use toehold_stack::demux::{Chosen, Demux, Tuples};
use toehold_stack::{DemuxStrategy, FourTuple};

/// Derives the key of strategies that have one from a seed.
pub fn secret(seed: u64) -> [u8; 16] {
    fastrand::Rng::with_seed(seed).u128(..).to_le_bytes()
}

/// A connection's record. As in a control block, the fields around the tuple lie on
/// other cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Record(FourTuple);

/// Connections by id.
#[derive(Debug)]
pub struct Connections(Vec<Record>);

impl Tuples for Connections {
    #[inline]
    fn tuple(&self, id: u32) -> &FourTuple {
        &self.0[id as usize].0
    }
}

impl Connections {
    /// Creates `count` connections of clients all over the Internet with one
    /// server.
    pub fn new(count: u32) -> Self {
        Self((0..count).map(|id| Record(connection(id))).collect())
    }

    /// Creates connections with these tuples.
    pub fn of(tuples: Vec<FourTuple>) -> Self {
        Self(tuples.into_iter().map(Record).collect())
    }

    /// Returns the tuple of an id.
    #[inline]
    pub fn tuple_of(&self, id: u32) -> &FourTuple {
        self.tuple(id)
    }

    /// Iterates over the tuples in the order of their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &FourTuple> {
        self.0.iter().map(|record| &record.0)
    }

    /// Returns a strategy's table that holds all connections.
    ///
    /// # Panics
    ///
    /// If memory is short, or the table cannot hold its nominal number of
    /// connections.
    pub fn entered(&self, strategy: DemuxStrategy, seed: u64) -> Chosen {
        let mut table = self.room_for_all(strategy, seed);
        for id in 0..self.0.len() as u32 {
            table.insert(id, self).expect("room for all");
        }
        table
    }

    /// Returns an empty table with room for all connections.
    ///
    /// # Panics
    ///
    /// If memory is short.
    pub fn room_for_all(&self, strategy: DemuxStrategy, seed: u64) -> Chosen {
        empty(strategy, self.0.len() as u32, seed)
    }
}

fn empty(strategy: DemuxStrategy, most: u32, seed: u64) -> Chosen {
    let region = Region::private(Chosen::bytes_needed(strategy, most)).expect("memory");
    let mut carver = Carver::new(region).expect("memory");
    Chosen::create(&mut carver, strategy, most, &secret(seed)).expect("room")
}

/// Returns a unique tuple for each number. Three of four are IPv4, and no field
/// is regular.
pub fn connection(number: u32) -> FourTuple {
    // A bijection of 32 bits makes addresses look random and keeps them unique.
    let mixed = (number ^ (number >> 16)).wrapping_mul(0x7feb_352d);
    let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x846c_a68b);
    let mixed = mixed ^ (mixed >> 16);
    let port = 1024 + (mixed % 60_000) as u16;
    let (server, client): (IpAddr, IpAddr) = if number.is_multiple_of(4) {
        let prefix = 0x2001_0db8_u128 << 96;
        (
            Ipv6Addr::from(prefix | 1).into(),
            Ipv6Addr::from(prefix | u128::from(mixed) << 64 | u128::from(number)).into(),
        )
    } else {
        (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::from(mixed).into())
    };
    FourTuple::new((server, 443).into(), (client, port).into())
}
