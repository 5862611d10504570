//! A neighbour whose queue is full does not delay the others.

use super::*;

const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);

fn echo_request(from: Ipv4Addr, mac: [u8; 6]) -> Vec<u8> {
    let message = icmp_v4(&icmpv4::Message::EchoRequest {
        id: 1,
        seq: 2,
        data: b"hello",
    });
    let packet = packet_v4(from, OWN, protocol::ICMPV4, &message);
    ethernet_frame(OWN_MAC, mac, EtherType::IPV4, &packet)
}

/// A bench that knows both neighbours, and whose link has no room for the first.
fn bench() -> Bench {
    let mut bench = Bench::usual();
    for (address, mac) in [(PEER, PEER_MAC), (OTHER, OTHER_MAC)] {
        bench.receive(&arp_frame(arp::Operation::Request, mac, address, [0; 6], OWN));
    }
    assert_eq!(bench.sent().len(), 2);
    bench.wire.full_for = Some(PEER_MAC);
    bench
}

#[test]
fn refused_answers_do_not_delay_others() {
    let mut bench = bench();
    for _ in 0..3 {
        bench.receive(&echo_request(PEER, PEER_MAC));
    }
    bench.receive(&echo_request(OTHER, OTHER_MAC));
    let sent = bench.sent();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].starts_with(&OTHER_MAC));
    // Refused frames leave when there is room.
    bench.wire.full_for = None;
    assert_eq!(bench.sent().len(), 3);
}

#[test]
fn refused_answers_do_not_take_all_buffers() {
    let mut bench = bench();
    for _ in 0..200 {
        bench.receive(&echo_request(PEER, PEER_MAC));
        bench.receive(&arp_frame(arp::Operation::Request, PEER_MAC, PEER, [0; 6], OWN));
        assert_eq!(bench.sent().len(), 0);
    }
    assert!(bench.counted("drop_queue_full") >= 200);
    bench.receive(&echo_request(OTHER, OTHER_MAC));
    bench.receive(&arp_frame(arp::Operation::Request, OTHER_MAC, OTHER, [0; 6], OWN));
    assert_eq!(bench.sent().len(), 2);
}

#[test]
fn refused_probe_does_not_delay_other_requests() {
    //= RFC 4861 §7.3.3
    let mut bench = bench();
    bench.ready(PEER);
    bench.pass(Duration::from_secs(5));
    // The probe is due now.
    assert!(matches!(
        bench.path(Ipv4Addr::new(10, 0, 0, 9)),
        PathState::Pending { .. }
    ));
    assert_eq!(bench.sent().len(), 1);
}
