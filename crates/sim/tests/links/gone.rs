//! Peers that disappear, and the end of their connections.

use core::time::Duration;

use toehold_stack::{ReceiveFlags, SocketError, SocketOption, State};
use toehold_wire::tcp::{Flags, Seq};

use crate::{Bench, HOUR, arp_request, peer_mac};

/// Creates a bench that knows the hardware addresses of peers 2 and 3.
fn bench() -> Bench {
    let mut bench = Bench::new(true, |_| ());
    bench.take_in(&arp_request(2));
    bench.take_in(&arp_request(3));
    bench.send_out();
    bench
}

#[test]
fn vanished_neighbour_ends_its_connections_only() {
    let mut bench = bench();
    let (other, _) = bench.established(3, u16::MAX);
    let (reset, _) = bench.established(2, u16::MAX);
    let (ended, mut fin) = bench.established(2, u16::MAX);
    fin.header.flags = Flags::FIN | Flags::ACK;
    bench.packet(2, &fin);
    bench.send(reset, 5000);
    let attempt = bench.connect(2);
    bench.send_out();

    bench.stack.neighbor_gone(peer_mac(2).0);
    bench.send_out();
    assert_eq!(bench.stack.state(other), Ok(State::Established));
    assert_eq!(
        bench.stack.take_error(attempt),
        Ok(Some(SocketError::HostUnreachable))
    );
    assert_eq!(
        bench.stack.take_error(reset),
        Ok(Some(SocketError::ConnectionReset))
    );
    let end = bench.stack.receive(ended, &mut [0; 10], ReceiveFlags::default());
    assert_eq!(end, Ok(0), "the stream was sent whole");
    for id in [reset, ended, attempt] {
        bench.stack.close(bench.now, id).expect("the connection is there");
    }
    bench.send_out();
    assert_eq!(bench.stack.connections(), 1);
    assert_eq!(bench.stack.payload_blocks_used(), 0);
}

#[test]
fn simultaneous_open_with_vanished_neighbour_fails() {
    let mut bench = bench();
    let id = bench.connect(2);
    bench.send_out();
    let syn = bench.wire.sent.pop().expect("a SYN");
    let mut answer = syn.clone();
    (answer.source, answer.destination) = (syn.destination, syn.source);
    (answer.header.src_port, answer.header.dst_port) = (syn.header.dst_port, syn.header.src_port);
    answer.header.seq = Seq(100);
    bench.packet(2, &answer);
    bench.send_out();
    assert_eq!(bench.stack.state(id), Ok(State::SynReceived));
    bench.stack.neighbor_gone(peer_mac(2).0);
    assert_eq!(bench.stack.take_error(id), Ok(Some(SocketError::HostUnreachable)));
}

#[test]
fn undelivered_connections_are_reset_when_node_ends() {
    let mut bench = bench();
    let (acknowledged, mut ack) = bench.established(2, u16::MAX);
    let (owing, _) = bench.established(2, u16::MAX);
    let (_held, _) = bench.established(3, u16::MAX);
    bench.send(owing, 5000);
    for id in [acknowledged, owing] {
        bench.stack.close(bench.now, id).expect("the connection is there");
    }
    bench.send_out();
    assert_eq!(bench.stack.undelivered(), 2);
    ack.header.ack += 1;
    bench.packet(2, &ack);
    assert_eq!(
        bench.stack.undelivered(),
        1,
        "a FIN that was acknowledged is delivered"
    );
    bench.wire.sent.clear();
    bench.stack.abort_undelivered();
    bench.send_out();
    assert_eq!(bench.stack.undelivered(), 0);
    assert_eq!(bench.wire.sent.len(), 1);
    assert!(bench.wire.sent[0].header.flags.contains(Flags::RST));
    assert_eq!(bench.stack.payload_blocks_used(), 0);
}

#[test]
fn connection_timed_out_during_address_resolution_is_freed() {
    let mut bench = Bench::new(true, |config| config.tcp.rto_max = Duration::from_secs(1));
    bench.take_in(&arp_request(2));
    let (id, _) = bench.established(2, u16::MAX);
    // After eight seconds the neighbour counts as unreachable. New requests
    // take three more.
    let option = SocketOption::UserTimeout(Duration::from_secs(10));
    bench.stack.set_option(bench.now, id, option).expect("in range");
    bench.send(id, 100);
    bench.stack.close(bench.now, id).expect("it is there");
    bench.pass(HOUR);
    assert_eq!(bench.stack.connections(), 0);
    assert_eq!(bench.stack.payload_blocks_used(), 0);
}
