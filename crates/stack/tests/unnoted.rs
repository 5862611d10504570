//! A process is killed after a segment has left, before it notes that. Its peer, which may have
//! nothing to send that would reveal it, learns of the kill all the same.

mod support;

use core::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use toehold_link::{Transmit, TransmitError, Transmitter};
use toehold_shm::{Carver, Region};
use toehold_stack::{Config, ConnectionId, Instant, ReceiveFlags, SendFlags, SocketError, Stack, TcpConfig};

use support::{HOSTS, LINK, Random, Wire};

const PORT: u16 = 7;

/// The number of the process that is killed.
const MORTAL: u16 = 2;

/// A link that kills the sender of the first frame with payload.
struct Deadly<'a>(&'a mut Wire);

impl Transmitter for Deadly<'_> {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        self.0.transmit(frame)?;
        if !frame.payload.is_empty() {
            // Not a panic of the stack, so that it prints no message.
            std::panic::resume_unwind(Box::new("killed"));
        }
        Ok(())
    }
}

struct Host {
    stack: Stack,
    wire: Wire,
}

impl Host {
    fn new(host: usize) -> Self {
        let config = Config {
            mac: [2, 0, 0, 0, 0, host as u8],
            ipv4: Some((HOSTS[host], 8)),
            beside_kernel: true,
            link: LINK,
            connections: 8,
            listeners: 2,
            time_wait_records: 4,
            neighbors: 4,
            payload_blocks: 64,
            payload_block_len: 1024,
            seed: 3 + host as u64,
            tcp: TcpConfig::default(),
            ..Config::default()
        };
        let region = Region::create("unnoted", Stack::region_len(&config)).unwrap();
        let mut stack = Stack::create(&mut Carver::new(region).unwrap(), &config).unwrap();
        stack.set_process(MORTAL);
        let wire = Wire::default();
        Self { stack, wire }
    }
}

fn settle(hosts: &mut [Host; 2], now: &mut Instant) {
    for _ in 0..50 {
        for host in hosts.iter_mut() {
            host.stack.handle_timeout(*now);
            host.stack.poll_transmit(*now, &mut host.wire);
        }
        let [a, b] = hosts;
        a.wire.deliver(&mut b.stack, *now);
        b.wire.deliver(&mut a.stack, *now);
        *now = now.plus_nanos(1_000_000);
    }
}

/// A connection of each host with the other.
fn connected(hosts: &mut [Host; 2], now: &mut Instant) -> [ConnectionId; 2] {
    let server = SocketAddr::new(HOSTS[1].into(), PORT);
    let settings = hosts[1].stack.default_settings();
    let listener = hosts[1].stack.listen(*now, server, 4, &settings).unwrap();
    let one = hosts[0].stack.connect(*now, None, server, &settings).unwrap();
    settle(hosts, now);
    let other = hosts[1].stack.accept(listener).unwrap();
    [one, other]
}

/// Kills the first host's process while it sends `len` bytes. Returns the bytes that the peer
/// reads, and the error that follows.
fn read_by_peer_of_one_killed(len: usize, arrives: bool) -> (usize, SocketError) {
    let mut now = Instant(1_000_000);
    let mut hosts = [Host::new(0), Host::new(1)];
    let [one, other] = connected(&mut hosts, &mut now);
    let sent = hosts[0].stack.send(one, &vec![1; len], SendFlags::default());
    assert_eq!(sent, Ok(len));
    let Host { stack, wire } = &mut hosts[0];
    let mut deadly = Deadly(wire);
    let killed = catch_unwind(AssertUnwindSafe(|| stack.poll_transmit(now, &mut deadly)));
    assert!(killed.is_err());
    if !arrives {
        wire.0.clear();
    }
    stack.mend(MORTAL).unwrap();
    settle(&mut hosts, &mut now);
    let mut bytes = vec![0; 1 << 16];
    let mut read = 0;
    loop {
        match hosts[1].stack.receive(other, &mut bytes, ReceiveFlags::default()) {
            Ok(0) => panic!("the stream of one killed has no orderly end"),
            Ok(len) => read += len,
            Err(error) => return (read, error),
        }
    }
}

#[test]
fn peer_of_process_killed_before_note_gets_reset() {
    let mut random = Random(1);
    for _ in 0..32 {
        let len = 1 + random.below(16_000) as usize;
        let read = read_by_peer_of_one_killed(len, false);
        assert_eq!(read, (0, SocketError::ConnectionReset), "{len} bytes, lost");
        let (read, error) = read_by_peer_of_one_killed(len, true);
        assert_eq!(error, SocketError::ConnectionReset, "{len} bytes");
        assert!(read > 0, "{len} bytes");
    }
}
