//! A client's and a server's stack in one thread. Their counters show the cost of finding
//! connections in the engine itself: the demux paper's connection set-up (§4).

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use toehold_demux_lab::set_up::{Examined, MESSAGES, PACKETS, SERVER, client};
use toehold_demux_lab::{DemuxStrategy, secret};
use toehold_link::Capabilities;
use toehold_sim::host::{BEGINNING, Host, Sent};
use toehold_stack::{Config, ConnectionId, ListenerId, ReceiveFlags, SendFlags};

/// The message on each connection.
const MESSAGE: [u8; 100] = [7; 100];

/// Longer than any delay of an acknowledgement.
const WAIT: Duration = Duration::from_millis(100);

/// The cost of setting up connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct SetUp {
    /// PCBs that both stacks have examined.
    pub(super) examined: Examined,
    /// From the first SYN to the last SYN-ACK.
    pub(super) took: Duration,
}

/// Opens a number of connections at once and sends five messages on each. The keys come from the
/// seed.
pub(super) fn set_up(strategy: DemuxStrategy, connections: u32, seed: u64) -> io::Result<SetUp> {
    let mut ends = Ends::new(strategy, connections, seed)?;
    let listener = ends.listen(connections)?;
    let began = Instant::now();
    let opened = ends.connect(connections)?;
    let ports = examined(&ends.client);
    ends.client.settle().map_err(broken)?;
    ends.reach_server()?;
    ends.reach_client()?;
    let took = began.elapsed();
    ends.reach_server()?;
    let accepted = ends.accept(listener, connections)?;
    for _ in 0..MESSAGES {
        for &id in &opened {
            send(&mut ends.client, id)?;
        }
        ends.client.settle().map_err(broken)?;
        ends.reach_server()?;
        for &id in &accepted {
            receive(&mut ends.server, id)?;
        }
        ends.wait()?;
    }
    if ends.packets != PACKETS * connections {
        let packets = ends.packets;
        return Err(broken(format!("{packets} packets for {connections} connections")));
    }
    Ok(SetUp {
        examined: Examined {
            packets: examined(&ends.client) + examined(&ends.server) - ports,
            ports,
        },
        took,
    })
}

/// The hosts at both ends of the connections.
struct Ends {
    client: Host,
    server: Host,
    packets: u32,
}

impl Ends {
    fn new(strategy: DemuxStrategy, connections: u32, seed: u64) -> io::Result<Self> {
        let host = |address: SocketAddr, seed| {
            let SocketAddr::V4(address) = address else {
                unreachable!("the paper's hosts have IPv4 addresses")
            };
            host(*address.ip(), strategy, connections, seed)
        };
        Ok(Self {
            client: host(client(0), seed)?,
            server: host(SERVER, !seed)?,
            packets: 0,
        })
    }

    fn listen(&mut self, backlog: u32) -> io::Result<ListenerId> {
        let (now, stack) = (self.server.now(), &mut self.server.stack);
        let settings = stack.default_settings();
        stack.listen(now, SERVER, backlog, &settings).map_err(broken)
    }

    fn connect(&mut self, connections: u32) -> io::Result<Vec<ConnectionId>> {
        let (now, stack) = (self.client.now(), &mut self.client.stack);
        let settings = stack.default_settings();
        let mut connect = |number| stack.connect(now, Some(client(number)), SERVER, &settings);
        (0..connections)
            .map(|number| connect(number).map_err(broken))
            .collect()
    }

    fn accept(&mut self, listener: ListenerId, connections: u32) -> io::Result<Vec<ConnectionId>> {
        let stack = &mut self.server.stack;
        (0..connections)
            .map(|_| stack.accept(listener).map_err(broken))
            .collect()
    }

    fn cross(packets: &mut u32, sent: &mut VecDeque<Sent>, to: &mut Host) -> io::Result<()> {
        for Sent { packet, .. } in sent.drain(..) {
            *packets += 1;
            to.inject(&packet).map_err(broken)?;
        }
        Ok(())
    }

    fn reach_server(&mut self) -> io::Result<()> {
        Self::cross(&mut self.packets, &mut self.client.sent, &mut self.server)
    }

    fn reach_client(&mut self) -> io::Result<()> {
        Self::cross(&mut self.packets, &mut self.server.sent, &mut self.client)
    }

    /// Runs until the server has sent its delayed acknowledgements.
    fn wait(&mut self) -> io::Result<()> {
        let later = self.server.now() + WAIT;
        self.server.advance(later).map_err(broken)?;
        self.reach_client()?;
        self.client.advance(later).map_err(broken)
    }
}

fn host(address: Ipv4Addr, strategy: DemuxStrategy, connections: u32, seed: u64) -> io::Result<Host> {
    let mut config = Config {
        ipv4: Some((address, 8)),
        ethernet: false,
        link: Capabilities {
            mtu: 1500,
            super_frame: 1500,
            checksum_offload: false,
            local: false,
            any_thread: true,
        },
        demux: strategy,
        demux_counters: true,
        connections,
        payload_blocks: 2 * connections,
        payload_block_len: 2048,
        secret: secret(seed),
        seed,
        ..Config::default()
    };
    // So small that no window depends on other connections: peers then receive no further window
    // updates.
    config.tcp.receive_buffer = 1 << 16;
    Host::new(&config, BEGINNING).map_err(broken)
}

fn examined(host: &Host) -> u64 {
    host.stack
        .demux_counters()
        .map_or(0, |counters| counters.demux_examined)
}

fn send(host: &mut Host, id: ConnectionId) -> io::Result<()> {
    match host.stack.send(id, &MESSAGE, SendFlags::default()) {
        Ok(sent) if sent == MESSAGE.len() => Ok(()),
        other => Err(broken(format!("a message was not taken: {other:?}"))),
    }
}

fn receive(host: &mut Host, id: ConnectionId) -> io::Result<()> {
    let mut message = [0; MESSAGE.len()];
    let received = host.stack.receive(id, &mut message, ReceiveFlags::default());
    match received {
        Ok(received) if received == MESSAGE.len() && message == MESSAGE => Ok(()),
        other => Err(broken(format!("a message did not come: {other:?}"))),
    }
}

fn broken(what: impl Display) -> io::Error {
    io::Error::other(format!("the stacks misbehave: {what}"))
}

#[cfg(test)]
mod tests {
    use toehold_demux_lab::model::Users;
    use toehold_demux_lab::tpca::{Arrivals, Segment};
    use toehold_demux_lab::{set_up, simulate};

    use super::*;

    #[test]
    fn cost_of_set_up_matches_simulation() {
        for strategy in ["bsd", "move-to-front", "sequent:19", "flow-table"] {
            let strategy: DemuxStrategy = strategy.parse().unwrap();
            let engine = super::set_up(strategy, 700, 3).unwrap().examined;
            let simulated = set_up::simulate(strategy, 700, 4);
            let ratio = engine.packets as f64 / simulated.packets as f64;
            assert!(
                (0.98..1.02).contains(&ratio),
                "{strategy}: {engine:?}, {simulated:?}"
            );
        }
    }

    /// Delivers TPC/A's segments to a server's stack in the order of the users: an entry, and the
    /// acknowledgement of the result.
    fn tpca(strategy: DemuxStrategy, of: &Users, segments: usize, seed: u64) -> f64 {
        let users = of.users as u32;
        let mut ends = Ends::new(strategy, users, seed).unwrap();
        let listener = ends.listen(users).unwrap();
        let opened = ends.connect(users).unwrap();
        ends.client.settle().unwrap();
        ends.reach_server().unwrap();
        ends.reach_client().unwrap();
        ends.reach_server().unwrap();
        let accepted = ends.accept(listener, users).unwrap();
        let settling = 10 * users as usize;
        let mut before = 0;
        let mut counted = ends.server.stack.demux_counters().unwrap().demux_lookups;
        for (at, (user, segment)) in Arrivals::new(of, seed).take(settling + segments).enumerate() {
            if at == settling {
                before = examined(&ends.server);
                counted = ends.server.stack.demux_counters().unwrap().demux_lookups;
            }
            let user = user as usize;
            match segment {
                Segment::Entry => {
                    send(&mut ends.client, opened[user]).unwrap();
                    ends.client.settle().unwrap();
                    ends.reach_server().unwrap();
                    receive(&mut ends.server, accepted[user]).unwrap();
                    ends.wait().unwrap();
                }
                Segment::Acknowledgement => {
                    send(&mut ends.server, accepted[user]).unwrap();
                    ends.server.settle().unwrap();
                    ends.reach_client().unwrap();
                    receive(&mut ends.client, opened[user]).unwrap();
                    ends.wait().unwrap();
                    ends.reach_server().unwrap();
                }
            }
        }
        let looked_up = ends.server.stack.demux_counters().unwrap().demux_lookups - counted;
        assert_eq!(looked_up, segments as u64, "one for each segment");
        (examined(&ends.server) - before) as f64 / looked_up as f64
    }

    #[test]
    fn stack_under_tpca_examines_as_many_pcbs_as_simulation() {
        let of = Users::thinking_ten_seconds(1000.0, 0.5);
        for strategy in [
            "bsd",
            "move-to-front",
            "sequent:19",
            "hashed-move-to-front:19",
            "flow-table",
        ] {
            let strategy: DemuxStrategy = strategy.parse().unwrap();
            let engine = tpca(strategy, &of, 20_000, 5);
            let simulated = simulate(strategy, &of, 20_000, 5).together.examined;
            assert!(
                (engine / simulated - 1.0).abs() < 0.02,
                "{strategy}: {engine}, {simulated} simulated"
            );
        }
    }
}
