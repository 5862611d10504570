//! The IP layer's state outlives its handles: another mapping of the region, at another address,
//! continues where the first one stopped.

use std::net::Ipv4Addr;
use toehold_link::{Offload, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::{Access, Carver, Gather, Region};
use toehold_stack::{Config, Instant, Stack};
use toehold_wire::ethernet::{self, EtherType};
use toehold_wire::{Mac, arp, icmpv4, ipv4, protocol};

const OWN_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const NOW: Instant = Instant(1_000_000_000);

#[derive(Default)]
struct Wire(Vec<Vec<u8>>);

impl Transmitter for Wire {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        self.0.push(frame.headers.to_vec());
        Ok(())
    }
}

fn config() -> Config {
    Config {
        mac: OWN_MAC.0,
        ipv4: Some((OWN, 24)),
        connections: 16,
        listeners: 4,
        time_wait_records: 16,
        neighbors: 16,
        payload_blocks: 16,
        ..Config::default()
    }
}

fn receive(stack: &mut Stack, frame: &[u8]) {
    let frame = Received {
        private: frame,
        rest: Gather::EMPTY,
        offload: Offload::default(),
    };
    stack.handle_frame(NOW, &frame);
}

fn sent(stack: &mut Stack) -> Vec<Vec<u8>> {
    let mut wire = Wire::default();
    stack.poll_transmit(NOW, &mut wire);
    wire.0
}

fn frame(ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ethernet::HEADER_LEN];
    ethernet::Header {
        dst: OWN_MAC,
        src: PEER_MAC,
        vlan: None,
        ethertype,
    }
    .emit(&mut frame);
    frame.extend(payload);
    frame
}

fn echo_request(len: usize, more: bool, offset: u16) -> Vec<u8> {
    let message = icmpv4::Message::EchoRequest {
        id: 1,
        seq: 2,
        data: &[0x5a; 56],
    };
    let mut bytes = [0; 64];
    message.emit(&mut bytes);
    let part = &bytes[usize::from(offset)..usize::from(offset) + len];
    let header = ipv4::Header {
        protocol: protocol::ICMPV4,
        dont_fragment: false,
        more_fragments: more,
        fragment_offset: offset,
        payload_len: len as u16,
        ..ipv4::Header::new(PEER, OWN)
    };
    let mut packet = vec![0; ipv4::HEADER_LEN];
    header.emit(&mut packet);
    packet.extend(part);
    frame(EtherType::IPV4, &packet)
}

fn arp_reply() -> Vec<u8> {
    let packet = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: PEER_MAC,
        sender_ip: PEER,
        target_mac: OWN_MAC,
        target_ip: OWN,
    };
    let mut bytes = [0; arp::PACKET_LEN];
    packet.emit(&mut bytes);
    frame(EtherType::ARP, &bytes)
}

#[test]
fn second_mapping_continues_where_first_stopped() {
    let config = config();
    let region = Region::create("toehold-attach", Stack::region_len(&config)).unwrap();
    let fd = region.fd().unwrap().try_clone_to_owned().unwrap();
    let mut first = Stack::create(&mut Carver::new(region).unwrap(), &config).unwrap();

    // An answer waits for the peer's hardware address; half of a datagram has arrived.
    receive(&mut first, &echo_request(64, false, 0));
    receive(&mut first, &echo_request(32, true, 0));
    assert_eq!(sent(&mut first).len(), 1, "the question for the address");
    let (deadline, received) = (first.poll_timeout(), first.counters().frames_received);

    let region = Region::open(fd, Access::ReadWrite).unwrap();
    // SAFETY: `region` stays mapped for both handles' lives, and `first` is not used while `second`
    // exists.
    let mut carver = unsafe { Carver::attach(region) };
    let mut second = Stack::create(&mut carver, &config).unwrap();
    assert_eq!(
        (second.poll_timeout(), second.counters().frames_received),
        (deadline, received)
    );
    assert!(
        sent(&mut second).is_empty(),
        "nothing was changed, nothing is asked again"
    );
    receive(&mut second, &arp_reply());
    let answers = sent(&mut second);
    assert_eq!((answers.len(), &answers[0][..6]), (1, &PEER_MAC.0[..]));
    receive(&mut second, &echo_request(32, false, 32));
    assert_eq!(sent(&mut second).len(), 1, "the datagram was put together");
    drop(second);

    // And back to the first mapping.
    receive(&mut first, &echo_request(64, false, 0));
    assert_eq!(sent(&mut first).len(), 1, "the address is known here too");
    assert_eq!(first.counters().icmp_echo_replies, 3);
}
