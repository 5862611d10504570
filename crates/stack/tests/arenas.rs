//! Sent payload lies where the link says that the peer may read it.

use core::net::SocketAddr;
use std::sync::Arc;

use toehold_link::{Transmit, TransmitError, Transmitter};
use toehold_shm::{ArenaId, Arenas, Carver, Region};
use toehold_stack::{Config, ConnectionId, Instant, ReceiveFlags, SendFlags, Stack};

#[allow(dead_code, reason = "other tests use the rest of it")]
mod support;
use support::{HOSTS, LINK, Wire};

const SERVER: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(HOSTS[0]), 80);
const NOW: Instant = Instant(1_000_000_000);

/// A link that chooses the place of payload, and counts the bytes in the arena that was opened
/// last.
struct Choosing<'a> {
    wire: Wire,
    arenas: &'a Arenas,
    arena: ArenaId,
    watched: ArenaId,
    within: usize,
    elsewhere: usize,
}

impl Transmitter for Choosing<'_> {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        for (address, len) in frame.payload.parts() {
            match self.arenas.offset_of(self.watched, address, len) {
                Some(_) => self.within += len,
                None => self.elsewhere += len,
            }
        }
        self.wire.transmit(frame)
    }

    fn payload_arena(&self) -> ArenaId {
        self.arena
    }
}

/// A host whose link may read payload in place.
struct Host {
    stack: Stack,
    arenas: Arenas,
    watched: ArenaId,
}

impl Host {
    fn new(number: usize) -> Host {
        let config = Config {
            mac: [2, 0, 0, 0, 0, number as u8],
            ipv4: Some((HOSTS[number], 8)),
            link: LINK,
            connections: 16,
            listeners: 4,
            seed: number as u64,
            payload_blocks: 256,
            payload_block_len: 4096,
            payload_arenas: 3,
            ..Config::default()
        };
        let region = Region::create("arenas", Stack::region_len(&config)).unwrap();
        let stack = Stack::create(&mut Carver::new(region).unwrap(), &config).unwrap();
        let arenas = stack.payload_arenas().clone();
        Host {
            stack,
            arenas,
            watched: ArenaId::PRIVATE,
        }
    }

    fn open(&mut self) -> ArenaId {
        let memory = self.arenas.create_memory("arena").unwrap();
        self.watched = self.arenas.open(Arc::new(memory)).unwrap();
        self.watched
    }

    /// Runs one round. Returns the bytes in the arena, and elsewhere.
    fn round(&mut self, arena: ArenaId, peer: &mut Stack) -> (usize, usize) {
        let mut link = Choosing {
            wire: Wire::default(),
            arenas: &self.arenas,
            arena,
            watched: self.watched,
            within: 0,
            elsewhere: 0,
        };
        self.stack.poll_transmit(NOW, &mut link);
        let Choosing {
            mut wire,
            within,
            elsewhere,
            ..
        } = link;
        wire.deliver(peer, NOW);
        (within, elsewhere)
    }
}

/// Carries frames until there are none. Returns the bytes of the server and of the client in the
/// arena, and elsewhere.
fn exchange(hosts: &mut [Host; 2], arenas: [ArenaId; 2]) -> [(usize, usize); 2] {
    let mut sums = [(0, 0); 2];
    for _ in 0..50 {
        for (from, sum) in sums.iter_mut().enumerate() {
            let [server, client] = hosts;
            let (within, elsewhere) = match from {
                0 => server.round(arenas[0], &mut client.stack),
                _ => client.round(arenas[1], &mut server.stack),
            };
            *sum = (sum.0 + within, sum.1 + elsewhere);
        }
    }
    sums
}

fn connected(hosts: &mut [Host; 2], arenas: [ArenaId; 2]) -> [ConnectionId; 2] {
    let settings = hosts[0].stack.default_settings();
    let listener = hosts[0].stack.listen(NOW, SERVER, 4, &settings).unwrap();
    let client = hosts[1].stack.connect(NOW, None, SERVER, &settings).unwrap();
    exchange(hosts, arenas);
    [hosts[0].stack.accept(listener).unwrap(), client]
}

fn send(host: &mut Host, id: ConnectionId) {
    let sent = host.stack.send(id, &[7; 20_000], SendFlags::default());
    assert_eq!(sent, Ok(20_000));
}

fn read(host: &mut Host, id: ConnectionId) {
    let mut bytes = [0; 20_000];
    let read = host.stack.receive(id, &mut bytes, ReceiveFlags::default());
    assert_eq!(read, Ok(20_000));
    assert_eq!(bytes, [7; 20_000]);
}

#[test]
fn first_bytes_of_both_ends_lie_in_arena_of_peer() {
    let mut hosts = [Host::new(0), Host::new(1)];
    let arenas = [hosts[0].open(), hosts[1].open()];
    let [server, client] = connected(&mut hosts, arenas);
    send(&mut hosts[0], server);
    send(&mut hosts[1], client);
    let sent = exchange(&mut hosts, arenas);
    assert_eq!(sent, [(20_000, 0), (20_000, 0)]);
    read(&mut hosts[0], server);
    read(&mut hosts[1], client);
}

#[test]
fn bytes_after_change_of_peer_lie_in_new_arena() {
    let mut hosts = [Host::new(0), Host::new(1)];
    let arenas = [hosts[0].open(), ArenaId::PRIVATE];
    let [server, client] = connected(&mut hosts, arenas);
    // The peer returns, which the stack learns from the next frame.
    hosts[0].arenas.close(arenas[0]);
    let arenas = [hosts[0].open(), ArenaId::PRIVATE];
    send(&mut hosts[0], server);
    assert_eq!(exchange(&mut hosts, arenas)[0], (0, 20_000));
    read(&mut hosts[1], client);
    send(&mut hosts[0], server);
    assert_eq!(exchange(&mut hosts, arenas)[0], (20_000, 0));
    read(&mut hosts[1], client);
    // Over another link, the peer has no arena any more.
    let arenas = [ArenaId::PRIVATE; 2];
    send(&mut hosts[0], server);
    exchange(&mut hosts, arenas);
    read(&mut hosts[1], client);
    send(&mut hosts[0], server);
    assert_eq!(exchange(&mut hosts, arenas)[0], (0, 20_000));
    read(&mut hosts[1], client);
}
