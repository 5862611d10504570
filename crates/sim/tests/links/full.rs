//! Links that take nothing, for a while or for ever, or nothing for one of many
//! peers: no timer is lost, none fires for nothing, what was not sent is not
//! counted, and whoever can be served is.

use core::net::SocketAddr;
use core::time::Duration;

use toehold_sim::packet::Packet;
use toehold_stack::{SendFlags, SocketError, SocketOption, State};
use toehold_wire::tcp::{Flags, Seq};

use crate::{Bench, HOUR, OWN, arp_request, peer, peer_mac};

#[test]
fn an_attempt_whose_syn_the_link_never_takes_ends() {
    let mut bench = Bench::new(false, |_| ());
    bench.wire.full = true;
    let id = bench.connect(2);
    bench.send_out();
    bench.pass(HOUR);
    assert_eq!(bench.stack.state(id), Ok(State::Closed));
    assert_eq!(bench.stack.take_error(id), Ok(Some(SocketError::TimedOut)));
    assert_eq!(bench.stack.counters().tcp_timeouts, 0, "no SYN was sent");
}

#[test]
fn a_half_open_connection_whose_answer_the_link_never_takes_ends() {
    let mut bench = Bench::new(false, |_| ());
    bench.wire.full = true;
    let syn = Packet::new(peer(2), SocketAddr::from((OWN, 80)), Flags::SYN, Seq(1), Seq(0));
    bench.packet(2, &syn);
    bench.send_out();
    assert_eq!(bench.stack.connections(), 1);
    bench.pass(HOUR);
    assert_eq!(bench.stack.connections(), 0);
}

#[test]
fn a_first_syn_that_waited_for_the_link_has_the_first_timeout() {
    let mut bench = Bench::new(false, |_| ());
    bench.wire.full = true;
    bench.connect(2);
    bench.send_out();
    bench.pass(Duration::from_secs(20));
    bench.wire.full = false;
    bench.send_out();
    assert_eq!(bench.wire.sent.len(), 1);
    bench.pass(Duration::from_millis(1100));
    assert_eq!(bench.wire.sent.len(), 2, "it is repeated after a second");
}

#[test]
fn unacknowledged_data_on_a_link_that_stays_full_end_in_a_timeout() {
    let mut bench = Bench::new(false, |_| ());
    let (id, _) = bench.established(2, u16::MAX);
    bench.send(id, 5000);
    bench.wire.sent.clear();
    bench.wire.full = true;
    bench.pass(HOUR);
    assert_eq!(bench.stack.take_error(id), Ok(Some(SocketError::TimedOut)));
    let counters = bench.stack.counters();
    assert_eq!(counters.tcp_retransmits + counters.tcp_tail_loss_probes, 0);
}

#[test]
fn a_connection_let_go_with_unsent_data_is_given_up_on_a_link_that_stays_full() {
    let mut bench = Bench::new(false, |_| ());
    let (id, _) = bench.established(2, u16::MAX);
    bench.wire.full = true;
    bench.send(id, 5000);
    bench.stack.close(bench.now, id).expect("it is there");
    bench.pass(HOUR);
    assert_eq!(bench.stack.connections(), 0);
    assert_eq!(bench.stack.payload_blocks_used(), 0);
}

#[test]
fn data_that_waited_for_the_link_have_the_first_timeout() {
    let mut bench = Bench::new(false, |config| config.tcp.sack = false);
    let (id, _) = bench.established(2, u16::MAX);
    bench.wire.full = true;
    bench.send(id, 100);
    bench.pass(Duration::from_secs(20));
    bench.wire.full = false;
    bench.send_out();
    assert_eq!(bench.wire.sent.len(), 1);
    bench.pass(Duration::from_millis(300));
    assert_eq!(bench.wire.sent.len(), 2, "it is repeated after one timeout");
}

#[test]
fn window_probes_the_link_did_not_take_are_not_counted() {
    let mut bench = Bench::new(false, |_| ());
    let (id, _) = bench.established(2, 0);
    bench.wire.full = true;
    bench.send(id, 100);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.stack.counters().tcp_window_probes, 0);
    bench.wire.full = false;
    bench.send_out();
    assert_eq!(bench.wire.sent.len(), 1);
    assert_eq!(bench.stack.counters().tcp_window_probes, 1);
}

#[test]
fn keepalive_probes_the_link_did_not_take_end_no_connection() {
    let mut bench = Bench::new(false, |_| ());
    let (id, mut ack) = bench.established(2, u16::MAX);
    for option in [
        SocketOption::KeepaliveIdle(Duration::from_secs(10)),
        SocketOption::KeepaliveInterval(Duration::from_secs(1)),
        SocketOption::KeepaliveProbes(2),
        SocketOption::Keepalive(true),
    ] {
        bench.stack.set_option(bench.now, id, option).expect("in range");
    }
    bench.wire.full = true;
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.stack.state(id), Ok(State::Established));
    assert_eq!(bench.stack.counters().tcp_keepalive_probes, 0);
    bench.wire.full = false;
    bench.send_out();
    assert_eq!(bench.stack.counters().tcp_keepalive_probes, 1);
    ack.header.ack = bench.wire.sent[0].header.seq + 1;
    bench.packet(2, &ack);
    bench.pass(Duration::from_millis(10_500));
    assert_eq!(bench.stack.counters().tcp_keepalive_probes, 2);
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.stack.take_error(id), Ok(Some(SocketError::TimedOut)));
}

#[test]
fn a_corked_connection_probes_a_closed_window_ever_more_rarely() {
    //= RFC 9293 §3.8.6.1
    let mut bench = Bench::new(false, |_| ());
    let (id, mut ack) = bench.established(2, u16::MAX);
    bench
        .stack
        .set_option(bench.now, id, SocketOption::Cork(true))
        .expect("in range");
    bench.send(id, 100);
    ack.header.window = 0;
    bench.packet(2, &ack);
    bench.pass(Duration::from_secs(100));
    let probes = bench.wire.sent.len();
    assert!((5..=10).contains(&probes), "{probes} probes in 100 seconds");
}

#[test]
fn a_timeout_that_is_due_is_not_put_off_by_what_arrives_before_it_is_seen_to() {
    //= RFC 6298 §5.4
    let mut bench = Bench::new(false, |config| config.tcp.sack = false);
    let (id, mut data) = bench.established(2, u16::MAX);
    bench.send(id, 100);
    bench.wire.sent.clear();
    data.payload = vec![1; 10];
    // The driver looks at the link more often than at the clock.
    for _ in 0..100 {
        bench.now = bench.now + Duration::from_millis(10);
        bench.packet(2, &data);
        data.header.seq += 10;
        bench.send_out();
        if bench.stack.poll_timeout().is_some_and(|due| due <= bench.now) {
            bench.stack.handle_timeout(bench.now);
            bench.send_out();
        }
    }
    assert!(bench.stack.counters().tcp_timeouts >= 2);
    assert!(
        bench
            .wire
            .sent
            .iter()
            .filter(|packet| !packet.payload.is_empty())
            .count()
            >= 2
    );
}

#[test]
fn a_connection_whose_neighbour_vanished_times_out() {
    //= RFC 1122 §4.2.3.5
    // With data in flight by then, and with data that find no way from the beginning.
    for idle in [Duration::ZERO, HOUR] {
        let mut bench = Bench::new(true, |_| ());
        bench.take_in(&arp_request(2));
        let (id, _) = bench.established(2, u16::MAX);
        bench.pass(idle);
        bench.send(id, 100);
        bench.pass(HOUR);
        assert_eq!(bench.stack.take_error(id), Ok(Some(SocketError::TimedOut)));
        bench.stack.close(bench.now, id).expect("it is there");
        bench.pass(HOUR);
        assert_eq!(bench.stack.connections(), 0);
        assert_eq!(bench.stack.payload_blocks_used(), 0);
    }
}

#[test]
fn replies_to_a_peer_that_reads_nothing_do_not_hold_up_others() {
    let mut bench = Bench::new(true, |_| ());
    bench.take_in(&arp_request(2));
    bench.take_in(&arp_request(3));
    bench.send_out();
    bench.wire.full_for = Some(peer_mac(2));
    let stray = |number: u8| {
        let closed = SocketAddr::from((OWN, 81));
        Packet::new(peer(number), closed, Flags::SYN, Seq(1), Seq(0))
    };
    for _ in 0..1000 {
        bench.packet(2, &stray(2));
    }
    bench.packet(3, &stray(3));
    for _ in 0..20 {
        bench.send_out();
    }
    let to_others = bench
        .wire
        .sent
        .iter()
        .filter(|packet| packet.destination == peer(3).ip());
    assert_eq!(to_others.count(), 1);
}

#[test]
fn connections_to_a_peer_that_reads_nothing_do_not_hold_up_others() {
    let mut bench = Bench::new(true, |_| ());
    bench.take_in(&arp_request(2));
    bench.take_in(&arp_request(3));
    let stuck: Vec<_> = (0..10).map(|_| bench.established(2, u16::MAX).0).collect();
    let (id, _) = bench.established(3, u16::MAX);
    bench.wire.full_for = Some(peer_mac(2));
    for stuck in stuck {
        assert_eq!(bench.stack.send(stuck, &[7; 100], SendFlags::default()), Ok(100));
    }
    assert_eq!(bench.stack.send(id, &[7; 100], SendFlags::default()), Ok(100));
    bench.send_out();
    assert_eq!(bench.wire.sent.len(), 1);
    assert_eq!(bench.wire.sent[0].destination, peer(3).ip());
}
