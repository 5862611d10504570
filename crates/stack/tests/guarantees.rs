//! The payload memory that each connection may hold, whatever others hold.

use core::net::SocketAddr;

use toehold_shm::{Carver, Region};
use toehold_stack::{
    Config, ConnectionId, Instant, ListenerId, ReceiveFlags, SendFlags, SocketError, SocketOption, Stack,
};

#[allow(dead_code, reason = "other tests use the rest of it")]
mod support;
use support::{HOSTS, LINK, Wire};

const SERVER: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(HOSTS[0]), 80);

const BLOCK: usize = 16 << 10;
/// Blocks of the server.
const BLOCKS: u32 = 512;
/// Bytes that a connection may hold in each direction, whatever others hold.
const GUARANTEED: usize = 16 << 10;

/// Bytes that a client has promised to take and does not read.
const WINDOW: u32 = 32 << 10;

/// A server and a client that has more memory.
struct Pair {
    server: Stack,
    client: Stack,
    listener: ListenerId,
    now: Instant,
}

impl Pair {
    fn new() -> Pair {
        let stack = |host: usize, payload_blocks| {
            let config = Config {
                mac: [2, 0, 0, 0, 0, host as u8],
                ipv4: Some((HOSTS[host], 8)),
                link: LINK,
                connections: 2048,
                listeners: 4,
                seed: host as u64,
                payload_blocks,
                payload_block_len: BLOCK as u32,
                ..Config::default()
            };
            let region = Region::private(Stack::region_len(&config)).unwrap();
            Stack::create(&mut Carver::new(region).unwrap(), &config).unwrap()
        };
        let (mut server, client) = (stack(0, BLOCKS), stack(1, 1 << 14));
        let now = Instant(1_000_000_000);
        let settings = server.default_settings();
        let listener = server.listen(now, SERVER, 1000, &settings).unwrap();
        Pair {
            server,
            client,
            listener,
            now,
        }
    }

    /// Carries frames until there are none.
    fn exchange(&mut self) {
        loop {
            let (mut there, mut back) = (Wire::default(), Wire::default());
            self.client.poll_transmit(self.now, &mut there);
            self.server.poll_transmit(self.now, &mut back);
            if there.0.is_empty() && back.0.is_empty() {
                break;
            }
            there.deliver(&mut self.server, self.now);
            back.deliver(&mut self.client, self.now);
            while self.server.next_event().is_some() || self.client.next_event().is_some() {}
            self.now = Instant(self.now.0 + 10_000);
        }
    }

    /// A connection: the server's end and the client's.
    fn connect(&mut self) -> [ConnectionId; 2] {
        let mut settings = self.client.default_settings();
        settings.apply(SocketOption::ReceiveBuffer(WINDOW)).unwrap();
        let client = self.client.connect(self.now, None, SERVER, &settings).unwrap();
        self.exchange();
        [self.server.accept(self.listener).unwrap(), client]
    }

    fn connect_all(&mut self, count: usize) -> Vec<[ConnectionId; 2]> {
        (0..count).map(|_| self.connect()).collect()
    }

    /// Lets the server write until it may not.
    fn fill_from_server(&mut self, server: ConnectionId) -> usize {
        let mut queued = 0;
        while let Ok(len) = self.server.send(server, &[7; BLOCK], SendFlags::default()) {
            queued += len;
            self.exchange();
        }
        queued
    }

    /// Lets the client write until it may not.
    fn fill_from_client(&mut self, client: ConnectionId) {
        while self
            .client
            .send(client, &[7; BLOCK], SendFlags::default())
            .is_ok()
        {
            self.exchange();
        }
    }
}

#[test]
fn late_writer_beside_unread_writers_has_its_guarantee() {
    let mut pair = Pair::new();
    for [server, _] in pair.connect_all(100) {
        pair.fill_from_server(server);
    }
    for [server, client] in pair.connect_all(50) {
        let sent = pair.server.send(server, &[7; GUARANTEED], SendFlags::default());
        assert_eq!(sent, Ok(GUARANTEED));
        // Reading makes room for more, again and again.
        let mut read = 0;
        for _ in 0..8 {
            pair.exchange();
            read += pair
                .client
                .receive(client, &mut [0; GUARANTEED], ReceiveFlags::default())
                .unwrap();
            pair.exchange();
            let more = pair.server.send(server, &[7; GUARANTEED], SendFlags::default());
            assert!(more.is_ok(), "{more:?} after {read} bytes");
        }
        assert!(read >= 8 * GUARANTEED);
    }
}

#[test]
fn late_reader_beside_idle_readers_has_its_guarantee() {
    let mut pair = Pair::new();
    for [_, client] in pair.connect_all(100) {
        pair.fill_from_client(client);
    }
    for [server, client] in pair.connect_all(50) {
        let sent = pair.client.send(client, &[7; GUARANTEED], SendFlags::default());
        assert_eq!(sent, Ok(GUARANTEED));
        pair.exchange();
        let mut bytes = [0; 2 * GUARANTEED];
        let read = pair.server.receive(server, &mut bytes, ReceiveFlags::default());
        assert_eq!(read, Ok(GUARANTEED));
        // The server does not read again, so that the connection holds its most.
        pair.fill_from_client(client);
    }
}

#[test]
fn single_writer_beside_idle_connections_exceeds_its_guarantee() {
    let mut pair = Pair::new();
    let mut connections = pair.connect_all(BLOCKS as usize / 2);
    let [server, _] = connections.pop().unwrap();
    assert!(pair.fill_from_server(server) > 2 * GUARANTEED);
}

#[test]
fn share_of_more_connections_than_fit_is_equal() {
    let mut pair = Pair::new();
    // Each may hold a block until only the blocks for received data are free.
    let connections = pair.connect_all(BLOCKS as usize);
    let mut writers = 0;
    for (number, [server, _]) in connections.into_iter().enumerate() {
        let queued = pair.fill_from_server(server).saturating_sub(WINDOW as usize);
        writers += usize::from(queued > 0);
        assert!(
            number < 32 || queued <= BLOCK,
            "writer {number} holds {queued} bytes"
        );
    }
    assert!(writers >= BLOCKS as usize * 3 / 4, "{writers} may write");
}

/// One byte far ahead of a gap holds all of the memory before it.
#[test]
fn memory_ahead_of_gaps_is_freed_when_scarce() {
    let mut pair = Pair::new();
    let connections = pair.connect_all(40);
    for &[server, client] in &connections {
        // Grows the window beyond that of a SYN.
        pair.client.send(client, &[7; 100], SendFlags::default()).unwrap();
        pair.exchange();
        let read = pair
            .server
            .receive(server, &mut [0; 100], ReceiveFlags::default());
        assert_eq!(read, Ok(100));
        pair.client.send(client, &[7; 100], SendFlags::default()).unwrap();
        let mut wire = Wire::default();
        pair.client.poll_transmit(pair.now, &mut wire);
        for (bytes, _) in &mut wire.0 {
            // The sequence number behind the headers of Ethernet and IPv4.
            let field: &mut [u8; 4] = (&mut bytes[38..42]).try_into().unwrap();
            *field = u32::from_be_bytes(*field).wrapping_add(60_000).to_be_bytes();
        }
        wire.deliver(&mut pair.server, pair.now);
    }
    assert_eq!(pair.server.counters().tcp_out_of_order, 40);
    let held = pair.server.payload_blocks_used();
    assert!(held >= 120, "{held} blocks are held");
    let writers = pair.connect_all(60);
    for &[server, _] in &writers {
        while let Ok(1..) = pair.server.send(server, &[7; BLOCK], SendFlags::default()) {
            pair.server.poll_transmit(pair.now, &mut Wire::default());
        }
    }
    for [server, _] in writers {
        pair.server.abort(server).unwrap();
    }
    pair.exchange();
    let held = pair.server.payload_blocks_used();
    assert!(held <= 40, "{held} blocks are held");
    for [server, _] in connections {
        let read = pair
            .server
            .receive(server, &mut [0; 100], ReceiveFlags::default());
        assert_eq!(read, Err(SocketError::WouldBlock));
    }
}
