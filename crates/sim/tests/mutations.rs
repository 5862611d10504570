//! Segments with arbitrary content are counted and never cause a panic. Other
//! connections continue.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

use proptest::prelude::*;
use toehold_link::Capabilities;
use toehold_sim::host::{BEGINNING, Host};
use toehold_sim::packet::Packet;
use toehold_sim::stream::Stream;
use toehold_stack::{Config, ConnectionId, ListenerId, ReceiveFlags, SendFlags, State};
use toehold_wire::tcp::{Flags, Options, SackBlocks, Seq, Timestamps};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 2000);

fn config(features: u8) -> Config {
    let mut config = Config {
        ipv4: Some((SERVER, 8)),
        ethernet: false,
        link: Capabilities {
            mtu: 1500,
            super_frame: if features & 1 == 0 { 1500 } else { 65_535 },
            checksum_offload: false,
            local: features & 2 != 0,
            any_thread: true,
        },
        connections: 16,
        listeners: 4,
        time_wait_records: 4,
        payload_blocks: 64,
        payload_block_len: 4096,
        ..Config::default()
    };
    config.tcp.sack = features & 4 != 0;
    config.tcp.timestamps = features & 8 != 0;
    config.tcp.window_scaling = features & 16 != 0;
    config.tcp.ecn = features & 32 != 0;
    config.tcp.receive_buffer = 16 << 10;
    config
}

/// One event: a packet of a hostile peer, or a call of the program.
#[derive(Debug, Clone)]
enum Event {
    /// A segment with numbers relative to the right ones.
    Segment {
        flags: u16,
        seq: i32,
        ack: i32,
        window: u16,
        urgent: u16,
        len: usize,
        ce: bool,
        options: Extras,
    },
    /// Arbitrary bytes written over a valid segment.
    Flip {
        at: usize,
        bit: u8,
    },
    Send(usize),
    Receive(usize),
    Wait(u64),
    Close,
    Abort,
    Shutdown,
}

#[derive(Debug, Clone)]
struct Extras {
    sack: Vec<(i32, i32)>,
    timestamps: Option<(i32, u32)>,
    raw: Option<Vec<u8>>,
}

/// Generates numbers near zero, near the edges of windows, and anywhere.
fn offset() -> impl Strategy<Value = i32> {
    prop_oneof![
        4 => -3..3i32,
        2 => -3000..3000i32,
        1 => prop::sample::select(vec![65_535, 65_536, 16_384, 16_385, i32::MAX, i32::MIN, -65_536]),
        1 => any::<i32>(),
    ]
}

fn extras() -> impl Strategy<Value = Extras> {
    (
        prop::collection::vec((offset(), offset()), 0..4),
        prop::option::of((-5..5i32, any::<u32>())),
        prop_oneof![9 => Just(None), 1 => prop::collection::vec(any::<u8>(), 0..41).prop_map(Some)],
    )
        .prop_map(|(sack, timestamps, raw)| Extras {
            sack,
            timestamps,
            raw,
        })
}

fn segment() -> impl Strategy<Value = Event> {
    let flags = prop_oneof![
        6 => Just(Flags::ACK.0),
        2 => Just(Flags::ACK.0 | Flags::PSH.0),
        1 => Just(Flags::ACK.0 | Flags::FIN.0),
        1 => Just(Flags::ACK.0 | Flags::URG.0),
        1 => any::<u16>(),
    ];
    let len = prop_oneof![Just(0), 0..3000usize, Just(1460)];
    let window = prop_oneof![Just(0), Just(1), any::<u16>()];
    (
        flags,
        offset(),
        offset(),
        window,
        any::<u16>(),
        len,
        any::<bool>(),
        extras(),
    )
        .prop_map(
            |(flags, seq, ack, window, urgent, len, ce, options)| Event::Segment {
                flags,
                seq,
                ack,
                window,
                urgent,
                len,
                ce,
                options,
            },
        )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => segment(),
        1 => (0..80usize, 0..8u8).prop_map(|(at, bit)| Event::Flip { at, bit }),
        4 => (0..20_000usize).prop_map(Event::Send),
        4 => (0..20_000usize).prop_map(Event::Receive),
        3 => prop_oneof![0..1_000u64, 0..2_000_000u64, 0..400_000_000u64].prop_map(Event::Wait),
        1 => Just(Event::Close),
        1 => Just(Event::Abort),
        1 => Just(Event::Shutdown),
    ]
}

/// A host with one connection, and the hostile peer's knowledge of it.
struct Victim {
    host: Host,
    listener: ListenerId,
    connection: ConnectionId,
    /// The peer's next sequence number and next acknowledgement number.
    seq: Seq,
    ack: Seq,
    timestamps: Option<Timestamps>,
    last: Vec<u8>,
}

impl Victim {
    fn new(features: u8) -> Self {
        let mut host = Host::new(&config(features), BEGINNING).expect("memory");
        let settings = host.stack.default_settings();
        let now = host.now();
        let server = SocketAddr::new(SERVER.into(), 80);
        let listener = host.stack.listen(now, server, 4, &settings).expect("a free port");
        let mut syn = Packet::new(
            CLIENT,
            server,
            Flags::SYN | Flags::ECE | Flags::CWR,
            Seq(u32::MAX - 5000),
            Seq(0),
        );
        syn.header.options = Options {
            mss: Some(1000),
            window_scale: Some(2),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 100, echo: 0 }),
            ..Options::NONE
        };
        host.inject(&syn).expect("well-behaved");
        let answer = host.sent.pop_front().expect("an answer").packet;
        let timestamps = answer.header.options.timestamps.map(|ts| Timestamps {
            value: 100,
            echo: ts.value,
        });
        let (seq, ack) = (syn.header.seq + 1, answer.header.seq + 1);
        let mut done = Packet::new(CLIENT, server, Flags::ACK, seq, ack);
        done.header.options.timestamps = timestamps;
        host.inject(&done).expect("well-behaved");
        let connection = host.stack.accept(listener).expect("established");
        Self {
            host,
            listener,
            connection,
            seq,
            ack,
            timestamps,
            last: done.bytes(),
        }
    }

    fn run(&mut self, event: &Event) {
        let now = self.host.now();
        let stack = &mut self.host.stack;
        match event {
            Event::Segment { .. } => {
                let bytes = self.segment(event).bytes();
                self.host.inject_bytes(&bytes).expect("well-behaved");
                self.last = bytes;
            }
            Event::Flip { at, bit } => {
                let mut bytes = self.last.clone();
                let at = at % bytes.len();
                bytes[at] ^= 1 << bit;
                self.host.inject_bytes(&bytes).expect("well-behaved");
            }
            Event::Send(len) => {
                let mut bytes = vec![0; *len];
                Stream::new(1).fill(0, &mut bytes);
                let _ = stack.send(
                    self.connection,
                    &bytes,
                    SendFlags {
                        urgent: len % 7 == 0,
                        more: len % 5 == 0,
                        end_of_record: len % 3 == 0,
                    },
                );
            }
            Event::Receive(len) => {
                let flags = ReceiveFlags {
                    peek: len % 3 == 0,
                    urgent: len % 11 == 0,
                };
                let _ = stack.receive(self.connection, &mut vec![0; *len], flags);
            }
            Event::Wait(micros) => {
                self.host
                    .advance(now + Duration::from_micros(*micros))
                    .expect("well-behaved");
            }
            Event::Close => drop(stack.close(now, self.connection)),
            Event::Abort => drop(stack.abort(self.connection)),
            Event::Shutdown => drop(stack.shutdown(now, self.connection, toehold_stack::Shutdown::Write)),
        }
        self.host.settle().expect("well-behaved");
        self.learn();
    }

    fn segment(&self, event: &Event) -> Packet {
        let Event::Segment {
            flags,
            seq,
            ack,
            window,
            urgent,
            len,
            ce,
            options,
        } = event
        else {
            unreachable!()
        };
        let (seq, ack) = (self.seq + *seq as u32, self.ack + *ack as u32);
        let server = SocketAddr::new(SERVER.into(), 80);
        let mut packet = Packet::new(CLIENT, server, Flags(*flags), seq, ack);
        packet.ecn = if *ce { 3 } else { 2 };
        packet.header.window = *window;
        packet.header.urgent = *urgent;
        packet.header.options.timestamps = match (self.timestamps, options.timestamps) {
            (Some(ts), Some((ahead, echo))) => Some(Timestamps {
                value: ts.value.wrapping_add(ahead as u32),
                echo: echo.wrapping_add(ts.echo),
            }),
            (timestamps, _) => timestamps,
        };
        let mut sack = SackBlocks::EMPTY;
        for (left, right) in &options.sack {
            sack.push(self.ack + *left as u32, self.ack + *right as u32);
        }
        packet.header.options.sack = sack;
        packet.raw_options.clone_from(&options.raw);
        packet.payload = vec![0x55; *len];
        packet
    }

    /// Updates the peer's knowledge from the stack's answers.
    fn learn(&mut self) {
        for sent in self.host.sent.drain(..) {
            let header = &sent.packet.header;
            if header.flags.contains(Flags::ACK) {
                self.seq = header.ack;
            }
            let end = header.seq + sent.packet.sequence_len();
            if end.gt(self.ack) {
                self.ack = end;
            }
            if let Some(ts) = header.options.timestamps {
                self.timestamps = Some(Timestamps {
                    value: ts.echo,
                    echo: ts.value,
                });
            }
            assert!(sent.packet.payload.len() <= 65_535);
        }
    }

    /// Checks the invariants that hold whatever the peer does.
    fn check(&self) {
        let stack = &self.host.stack;
        assert!(stack.connections() <= 2);
        assert!(stack.payload_blocks_used() <= 64);
        if let Ok(info) = stack.info(self.connection) {
            assert!(
                info.unread <= 16 << 10,
                "more is queued than the buffer holds: {info:?}"
            );
            assert!(info.unacknowledged <= 2 << 20, "{info:?}");
            if info.state != State::Closed {
                assert!(info.congestion_window > 0);
            }
        }
    }

    /// Closes everything and checks that nothing remains.
    fn finish(mut self) {
        let _ = self.host.stack.abort(self.connection);
        self.host
            .stack
            .close_listener(self.listener)
            .expect("the listener is open");
        self.host.settle().expect("well-behaved");
        let later = self.host.now() + Duration::from_secs(3600);
        self.host.advance(later).expect("well-behaved");
        self.host.settle().expect("well-behaved");
        assert_eq!(self.host.stack.connections(), 0);
        assert_eq!(self.host.stack.payload_blocks_used(), 0);
    }
}

/// Returns `PROPTEST_CASES`, or a number of cases that takes a few seconds.
fn cases() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 2_000;
    }
    config.failure_persistence = None;
    config
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn arbitrary_segments_do_no_harm(features: u8, events in prop::collection::vec(event(), 1..60)) {
        let mut victim = Victim::new(features);
        for event in &events {
            victim.run(event);
            victim.check();
        }
        victim.finish();
    }

    #[test]
    fn arbitrary_packets_do_no_harm(packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..50)) {
        let mut victim = Victim::new(0xff);
        for packet in &packets {
            victim.host.inject_bytes(packet).expect("well-behaved");
            victim.learn();
        }
        victim.check();
        victim.finish();
    }
}
