//! §4: thousands of connections that are set up at nearly the same time, with a few
//! short messages each. The cost of their packets comes from the paper and from the
//! strategies' code.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use toehold_stack::demux::{Chosen, Demux};
use toehold_stack::{DemuxCounters, DemuxStrategy, FourTuple};

use crate::Connections;

/// Messages of the client on each connection.
pub const MESSAGES: u32 = 5;

/// Packets of a connection: three to set it up, each message and its acknowledgement.
pub const PACKETS: u32 = 13;

/// The server's address.
pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);

/// Most connections: each has its own port of the client.
pub const MOST: u32 = 50_000;

/// Returns the client's end of a connection. `number` is below [`MOST`].
pub fn client(number: u32) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), 10_000 + number as u16)
}

/// Numbers of examined PCBs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Examined {
    /// PCBs examined for packets.
    pub packets: u64,
    /// PCBs examined while the client checks that a port is free.
    pub ports: u64,
}

/// Returns the paper's lower bound for packets: half of a list or chain for
/// each.
pub fn printed(strategy: DemuxStrategy, connections: u32) -> Option<f64> {
    let chains = match strategy {
        DemuxStrategy::Bsd => 1,
        DemuxStrategy::Sequent { chains } => chains,
        _ => return None,
    };
    let connections = f64::from(connections);
    Some(f64::from(PACKETS) * connections * connections / f64::from(chains) / 2.0)
}

/// Counts the PCBs that a strategy examines. The keys of hashes come from the
/// seed.
///
/// # Panics
///
/// If a strategy does not find an entered connection, which is a bug of the
/// strategy.
pub fn simulate(strategy: DemuxStrategy, connections: u32, seed: u64) -> Examined {
    let numbers = || 0..connections;
    let tuples = |tuple: fn(u32) -> FourTuple| Connections::of(numbers().map(tuple).collect());
    let mut at_client = End::new(
        strategy,
        tuples(|number| FourTuple::new(client(number), SERVER)),
        seed,
    );
    let mut at_server = End::new(
        strategy,
        tuples(|number| FourTuple::new(SERVER, client(number))),
        !seed,
    );
    numbers().for_each(|number| at_client.enter(number));
    let ports = at_client.counters.demux_examined;
    // A SYN begins a connection and is answered. The client acknowledges the
    // answer.
    numbers().for_each(|number| at_server.enter(number));
    numbers().for_each(|number| at_client.find(number));
    numbers().for_each(|number| at_server.find(number));
    for _ in 0..MESSAGES {
        numbers().for_each(|number| at_server.find(number));
        numbers().for_each(|number| at_client.find(number));
    }
    Examined {
        packets: at_client.counters.demux_examined + at_server.counters.demux_examined - ports,
        ports,
    }
}

/// One end of the connections.
struct End {
    table: Chosen,
    connections: Connections,
    counters: DemuxCounters,
}

impl End {
    fn new(strategy: DemuxStrategy, connections: Connections, seed: u64) -> Self {
        Self {
            table: connections.room_for_all(strategy, seed),
            connections,
            counters: DemuxCounters::default(),
        }
    }

    fn look_up(&mut self, number: u32) -> Option<u32> {
        let tuple = *self.connections.tuple_of(number);
        self.table.lookup(&tuple, &self.connections, &mut self.counters)
    }

    fn find(&mut self, number: u32) {
        assert_eq!(self.look_up(number), Some(number));
    }

    /// Looks up a connection that is not there, and enters it.
    fn enter(&mut self, number: u32) {
        assert_eq!(self.look_up(number), None);
        self.table
            .insert(number, &self.connections)
            .expect("room for all");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_cost_is_half_a_list_per_packet() {
        let printed = |strategy: &str, connections| printed(strategy.parse().unwrap(), connections);
        assert_eq!(printed("bsd", 3600), Some(84_240_000.0));
        let of_chains = printed("sequent:19", 5040).unwrap();
        assert!((of_chains / 8.69e6 - 1.0).abs() < 1e-3, "{of_chains}");
        assert_eq!(printed("flow-table", 5040), None);
    }

    #[test]
    fn simulated_cost_is_half_a_list_per_packet() {
        for strategy in ["bsd", "sequent:19"] {
            let strategy = strategy.parse().unwrap();
            let packets = simulate(strategy, 2000, 3).packets as f64;
            let ratio = packets / printed(strategy, 2000).unwrap();
            assert!((0.97..1.06).contains(&ratio), "{strategy}: {ratio}");
        }
        let of_table = simulate(DemuxStrategy::FlowTable, 2000, 3).packets;
        // A SYN's look-up finds no connection.
        assert!(of_table < u64::from(2 * PACKETS * 2000), "{of_table}");
    }
}
