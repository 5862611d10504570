//! One stack on a link that misbehaves. Tests drive both step by step.

mod full;
mod gone;

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

use toehold_link::{Checksum, Offload, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::{Carver, Gather, Region};
use toehold_sim::packet::Packet;
use toehold_stack::{Config, ConnectionId, Instant, SendFlags, Stack, State};
use toehold_wire::ethernet::{self, EtherType};
use toehold_wire::tcp::{Flags, Seq};
use toehold_wire::{Mac, arp};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OWN_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const HOUR: Duration = Duration::from_secs(3600);

/// A link that takes frames or refuses them.
#[derive(Default)]
struct Wire {
    sent: Vec<Packet>,
    /// Whether the link refuses all frames.
    full: bool,
    /// The peer whose frames the link refuses.
    full_for: Option<Mac>,
    ethernet: bool,
}

impl Transmitter for Wire {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let mut bytes = frame.headers.to_vec();
        let at = bytes.len();
        bytes.resize(frame.len(), 0);
        frame.payload.copy_to(0, &mut bytes[at..]);
        if self.full || (self.ethernet && self.full_for.is_some_and(|mac| bytes.starts_with(&mac.0))) {
            return Err(TransmitError::Full);
        }
        let packet = if self.ethernet {
            &bytes[ethernet::HEADER_LEN..]
        } else {
            &bytes
        };
        // ARP requests are not recorded.
        if let Ok(packet) = Packet::parse(packet, frame.offload.checksum != Checksum::Complete) {
            self.sent.push(packet);
        }
        Ok(())
    }
}

struct Bench {
    stack: Stack,
    wire: Wire,
    now: Instant,
}

fn peer(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, number), 4000))
}

fn peer_mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

impl Bench {
    fn new(ethernet: bool, adjust: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            mac: OWN_MAC.0,
            ipv4: Some((OWN, 24)),
            ethernet,
            connections: 64,
            listeners: 4,
            time_wait_records: 16,
            neighbors: 16,
            payload_blocks: 64,
            payload_block_len: 4096,
            ..Config::default()
        };
        adjust(&mut config);
        let region = Region::private(Stack::region_len(&config)).expect("memory");
        let mut carver = Carver::new(region).expect("fresh");
        let mut stack = Stack::create(&mut carver, &config).expect("room");
        let now = Instant(3_600_000_000_000);
        let settings = stack.default_settings();
        stack
            .listen(now, SocketAddr::from((OWN, 80)), 16, &settings)
            .expect("a free port");
        let wire = Wire {
            ethernet,
            ..Wire::default()
        };
        Self { stack, wire, now }
    }

    fn send_out(&mut self) {
        self.stack.poll_transmit(self.now, &mut self.wire);
        while self.stack.next_event().is_some() {}
    }

    fn take_in(&mut self, bytes: &[u8]) {
        let frame = Received {
            private: bytes,
            rest: Gather::EMPTY,
            offload: Offload::default(),
        };
        self.stack.handle_frame(self.now, &frame);
    }

    /// Builds a peer's packet and passes it to the stack, without sending
    /// answers.
    fn packet(&mut self, number: u8, packet: &Packet) {
        let mut bytes = Vec::new();
        if self.wire.ethernet {
            bytes = frame(number, EtherType::IPV4);
        }
        bytes.extend(packet.bytes());
        self.take_in(&bytes);
    }

    /// Advances the clock by `span` and runs every timer when it is due.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(due) = self.stack.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.stack.handle_timeout(self.now);
            self.send_out();
            let next = self.stack.poll_timeout();
            assert!(
                next.is_none_or(|next| next > self.now),
                "a timer that fired is due again at once"
            );
        }
        self.now = end;
    }

    fn connect(&mut self, number: u8) -> ConnectionId {
        let settings = self.stack.default_settings();
        self.stack
            .connect(self.now, None, peer(number), &settings)
            .expect("room for a connection")
    }

    /// Opens a connection with a peer that offers this window. Returns it with the
    /// peer's next packet, an acknowledgement of all data so far.
    fn established(&mut self, number: u8, window: u16) -> (ConnectionId, Packet) {
        let id = self.connect(number);
        self.send_out();
        let syn = self.wire.sent.pop().expect("a SYN");
        let local = SocketAddr::from((OWN, syn.header.src_port));
        let mut answer = Packet::new(
            peer(number),
            local,
            Flags::SYN | Flags::ACK,
            Seq(100),
            syn.header.seq + 1,
        );
        answer.header.options.mss = Some(1460);
        answer.header.options.sack_permitted = true;
        answer.header.window = window;
        self.now = self.now.plus_nanos(1_000_000);
        self.packet(number, &answer);
        self.send_out();
        self.wire.sent.clear();
        assert_eq!(self.stack.state(id), Ok(State::Established));
        let mut next = Packet::new(peer(number), local, Flags::ACK, Seq(101), syn.header.seq + 1);
        next.header.window = window;
        (id, next)
    }

    fn send(&mut self, id: ConnectionId, len: usize) {
        let sent = self.stack.send(id, &vec![7; len], SendFlags::default());
        assert_eq!(sent, Ok(len));
        self.send_out();
    }
}

/// Returns a frame's Ethernet header.
fn frame(from: u8, ethertype: EtherType) -> Vec<u8> {
    let mut frame = vec![0; ethernet::HEADER_LEN];
    ethernet::Header {
        dst: OWN_MAC,
        src: peer_mac(from),
        vlan: None,
        ethertype,
    }
    .emit(&mut frame);
    frame
}

/// Returns a peer's ARP request for this stack, which tells the peer's own
/// address.
fn arp_request(from: u8) -> Vec<u8> {
    let mut bytes = frame(from, EtherType::ARP);
    let at = bytes.len();
    bytes.resize(at + arp::PACKET_LEN, 0);
    arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: peer_mac(from),
        sender_ip: Ipv4Addr::new(10, 0, 0, from),
        target_mac: Mac([0; 6]),
        target_ip: OWN,
    }
    .emit(&mut bytes[at..]);
    bytes
}
