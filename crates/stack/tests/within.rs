//! Connections between two ends of one stack, and of one end with itself.

use core::net::SocketAddr;
use core::time::Duration;

use toehold_shm::{Carver, Region};
use toehold_stack::{
    Config, ConnectionId, Instant, ListenerId, ReceiveFlags, SendFlags, Shutdown, SocketError, SocketOption,
    Stack,
};

#[allow(dead_code, reason = "other tests use the rest of it")]
mod support;
use support::{HOSTS, LINK, Random, Wire};

const SERVER: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(HOSTS[0]), 80);

struct Host {
    stack: Stack,
    now: Instant,
    listener: ListenerId,
}

impl Host {
    fn new(payload_blocks: u32) -> Host {
        let config = Config {
            ipv4: Some((HOSTS[0], 8)),
            link: LINK,
            connections: 2048,
            listeners: 4,
            payload_blocks,
            payload_block_len: 4096,
            ..Config::default()
        };
        let region = Region::create("within", Stack::region_len(&config)).unwrap();
        let mut stack = Stack::create(&mut Carver::new(region).unwrap(), &config).unwrap();
        let now = Instant(1_000_000_000);
        let settings = stack.default_settings();
        let listener = stack.listen(now, SERVER, 1000, &settings).unwrap();
        Host { stack, now, listener }
    }

    /// One transmission round, in which no frame may reach a link.
    fn round(&mut self) {
        let mut wire = Wire::default();
        self.stack.poll_transmit(self.now, &mut wire);
        assert!(wire.0.is_empty());
        while self.stack.next_event().is_some() {}
    }

    /// Runs a round after a pause.
    fn later(&mut self, pause: Duration) {
        self.now = self.now + pause;
        if self.stack.poll_timeout().is_some_and(|at| at <= self.now) {
            self.stack.handle_timeout(self.now);
        }
        self.round();
    }

    fn connect(&mut self) -> [ConnectionId; 2] {
        let settings = self.stack.default_settings();
        let client = self.stack.connect(self.now, None, SERVER, &settings).unwrap();
        self.round();
        [client, self.stack.accept(self.listener).unwrap()]
    }

    fn all_is_given_back(mut self, connections: &[ConnectionId]) {
        for &connection in connections {
            self.stack.close(self.now, connection).unwrap();
        }
        for _ in 0..500 {
            self.later(Duration::from_millis(500));
        }
        assert_eq!(
            (self.stack.connections(), self.stack.payload_blocks_used()),
            (0, 0)
        );
    }
}

fn byte(stream: usize, at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 9) as u8 ^ (stream * 91) as u8
}

/// A stream from one end to another.
struct Stream {
    number: usize,
    from: ConnectionId,
    to: ConnectionId,
    len: usize,
    written: usize,
    read: usize,
    is_over: bool,
}

impl Stream {
    fn write(&mut self, host: &mut Host, random: &mut Random) {
        let len = (1 + random.below(30_000) as usize).min(self.len - self.written);
        let bytes: Vec<u8> = (self.written..self.written + len)
            .map(|at| byte(self.number, at))
            .collect();
        match host.stack.send(self.from, &bytes, SendFlags::default()) {
            Ok(taken) => self.written += taken,
            Err(SocketError::WouldBlock | SocketError::InProgress) => return,
            Err(error) => panic!("{error}"),
        }
        if self.written == self.len {
            host.stack.shutdown(host.now, self.from, Shutdown::Write).unwrap();
        }
    }

    fn read(&mut self, host: &mut Host, random: &mut Random) {
        let mut buffer = vec![0; 1 + random.below(40_000) as usize];
        match host.stack.receive(self.to, &mut buffer, ReceiveFlags::default()) {
            Ok(0) => self.is_over = true,
            Ok(len) => {
                let expected = (self.read..self.read + len).map(|at| byte(self.number, at));
                assert!(
                    expected.eq(buffer[..len].iter().copied()),
                    "stream {} after {} bytes",
                    self.number,
                    self.read
                );
                self.read += len;
            }
            Err(SocketError::WouldBlock | SocketError::InProgress) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn carry(host: &mut Host, streams: &mut [Stream], random: &mut Random) {
    for _ in 0..200_000 {
        let stream = &mut streams[random.below(streams.len() as u64) as usize];
        match random.below(4) {
            0 if stream.written < stream.len => stream.write(host, random),
            1 if !stream.is_over => stream.read(host, random),
            2 => host.round(),
            _ => host.later(Duration::from_micros(random.below(100_000))),
        }
        if streams.iter().all(|stream| stream.is_over) {
            break;
        }
    }
    for stream in streams {
        assert_eq!((stream.read, stream.is_over), (stream.len, true));
    }
}

/// With memory for all, and with so little that segments find none and are retransmitted.
#[test]
fn streams_within_stack_arrive_complete() {
    for (seed, blocks) in [(1, 4096), (2, 4096), (3, 24), (4, 24), (5, 12)] {
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut host = Host::new(blocks);
        let (mut ends, mut streams) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let [client, server] = host.connect();
            ends.extend([client, server]);
            for (from, to) in [(client, server), (server, client)] {
                streams.push(Stream {
                    number: streams.len(),
                    from,
                    to,
                    len: random.below(400_000) as usize,
                    written: 0,
                    read: 0,
                    is_over: false,
                });
            }
        }
        for stream in streams.iter().filter(|stream| stream.len == 0) {
            host.stack
                .shutdown(host.now, stream.from, Shutdown::Write)
                .unwrap();
        }
        carry(&mut host, &mut streams, &mut random);
        host.all_is_given_back(&ends);
    }
}

//= RFC 9293 §3.5 (simultaneous initiation, of both ends by one)
#[test]
fn connection_with_itself_reads_what_it_writes() {
    for seed in 1..4 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let mut host = Host::new(1024);
        let settings = host.stack.default_settings();
        let at = SocketAddr::new(HOSTS[0].into(), 5000);
        let own = host.stack.connect(host.now, Some(at), at, &settings).unwrap();
        host.round();
        let mut stream = [Stream {
            number: 0,
            from: own,
            to: own,
            len: 500_000,
            written: 0,
            read: 0,
            is_over: false,
        }];
        carry(&mut host, &mut stream, &mut random);
        host.all_is_given_back(&[own]);
    }
}

/// The data lie in the connection's own queue, which is freed when it is closed.
#[test]
fn data_sent_before_reset_arrive_first() {
    /// More than one round handles.
    const MANY: usize = 700;
    let mut host = Host::new(4096);
    let pairs: Vec<_> = (0..MANY).map(|_| host.connect()).collect();
    let linger = SocketOption::Linger(Some(Duration::ZERO));
    for (number, [client, _]) in pairs.iter().enumerate() {
        let sent = host
            .stack
            .send(*client, &[number as u8; 1000], SendFlags::default());
        assert_eq!(sent, Ok(1000));
        host.stack.set_option(host.now, *client, linger).unwrap();
    }
    host.round();
    for [client, _] in &pairs {
        host.stack.close(host.now, *client).unwrap();
    }
    for _ in 0..20 {
        host.round();
    }
    for (number, [_, server]) in pairs.iter().enumerate() {
        let mut buffer = [0; 2000];
        let mut receive = || {
            host.stack
                .receive(*server, &mut buffer, ReceiveFlags::default())
                .map(|len| buffer[..len].to_vec())
        };
        assert_eq!(receive(), Ok(vec![number as u8; 1000]), "connection {number}");
        assert_eq!(
            receive(),
            Err(SocketError::ConnectionReset),
            "connection {number}"
        );
    }
    let servers: Vec<_> = pairs.iter().map(|[_, server]| *server).collect();
    host.all_is_given_back(&servers);
}

#[test]
fn record_without_room_is_not_queued_in_part() {
    let mut host = Host::new(256);
    let [client, server] = host.connect();
    host.stack
        .set_option(host.now, client, SocketOption::SendBuffer(60_000))
        .unwrap();
    let room = host.stack.settings(client).unwrap().send_buffer() as usize;
    let mut send = |len| host.stack.send(client, &vec![7; len], SendFlags::default());
    // No segment is sent meanwhile.
    assert_eq!(send(room - 100), Ok(room - 100));
    assert_eq!(send(101), Err(SocketError::WouldBlock));
    assert_eq!(send(4096), Err(SocketError::WouldBlock));
    assert_eq!(send(60), Ok(60));
    assert_eq!(send(4097), Ok(40), "more than a record");
    assert_eq!(send(1), Err(SocketError::WouldBlock));
    assert!(!host.stack.readiness(client).writable);
    let mut bytes = vec![0; room];
    while host
        .stack
        .receive(server, &mut bytes, ReceiveFlags::default())
        .is_ok()
        || !host.stack.readiness(client).writable
    {
        host.later(Duration::from_millis(100));
    }
    assert_eq!(
        host.stack.send(client, &[7; 4096], SendFlags::default()),
        Ok(4096),
        "what is writable has room for a record"
    );
}

#[test]
fn port_of_connection_is_taken_unless_both_share_it() {
    let mut host = Host::new(256);
    let [client, server] = host.connect();
    let port = host.stack.local_addr(client).unwrap().port();
    let ipv4 = |text: &str, port| SocketAddr::new(text.parse().unwrap(), port);
    for at in [HOSTS[0].to_string().as_str(), "0.0.0.0"] {
        for reuses in [false, true] {
            assert!(host.stack.is_port_taken(ipv4(at, port), reuses), "{at}");
            assert!(host.stack.is_port_taken(ipv4(at, SERVER.port()), reuses), "{at}");
        }
        assert!(!host.stack.is_port_taken(ipv4(at, port ^ 1), false));
    }
    assert!(!host.stack.is_port_taken(ipv4("127.0.0.2", port), false));
    assert!(!host.stack.is_port_taken(ipv4("::", port), false));
    for connection in [client, server] {
        host.stack
            .set_option(host.now, connection, SocketOption::ReuseAddress(true))
            .unwrap();
    }
    assert!(!host.stack.is_port_taken(ipv4("0.0.0.0", port), true));
    assert!(host.stack.is_port_taken(ipv4("0.0.0.0", port), false));
    host.stack.close(host.now, client).unwrap();
    host.round();
    host.stack.close(host.now, server).unwrap();
    host.round();
    assert!(
        host.stack.is_port_taken(ipv4("0.0.0.0", port), false),
        "TIME-WAIT"
    );
    assert!(
        !host.stack.is_port_taken(ipv4("0.0.0.0", port), true),
        "TIME-WAIT"
    );
    for _ in 0..500 {
        host.later(Duration::from_millis(500));
    }
    assert!(!host.stack.is_port_taken(ipv4("0.0.0.0", port), false));
}
