//! Links that take no frames, for a while, forever, or for one of many peers. No
//! timer is lost or fires without need. An unsent packet is not counted. Other
//! peers are served.

use core::net::SocketAddr;
use core::time::Duration;

use toehold_sim::packet::Packet;
use toehold_stack::{SendFlags, SocketError, SocketOption, State};
use toehold_wire::tcp::{Flags, Seq};

use crate::{Bench, HOUR, OWN, arp_request, peer, peer_mac};

#[test]
fn attempt_with_unsent_syn_times_out() {
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
fn half_open_connection_with_unsent_syn_ack_times_out() {
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
fn syn_delayed_by_full_link_has_first_timeout() {
    let mut bench = Bench::new(false, |_| ());
    bench.wire.full = true;
    bench.connect(2);
    bench.send_out();
    bench.pass(Duration::from_secs(20));
    bench.wire.full = false;
    bench.send_out();
    assert_eq!(bench.wire.sent.len(), 1);
    bench.pass(Duration::from_millis(1100));
    assert_eq!(bench.wire.sent.len(), 2, "the SYN is repeated after a second");
}

#[test]
fn unacknowledged_data_on_full_link_time_out() {
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
fn closed_connection_with_unsent_data_on_full_link_is_freed() {
    let mut bench = Bench::new(false, |_| ());
    let (id, _) = bench.established(2, u16::MAX);
    bench.wire.full = true;
    bench.send(id, 5000);
    bench.stack.close(bench.now, id).expect("the connection is there");
    bench.pass(HOUR);
    assert_eq!(bench.stack.connections(), 0);
    assert_eq!(bench.stack.payload_blocks_used(), 0);
}

#[test]
fn data_delayed_by_full_link_have_first_timeout() {
    let mut bench = Bench::new(false, |config| config.tcp.sack = false);
    let (id, _) = bench.established(2, u16::MAX);
    bench.wire.full = true;
    bench.send(id, 100);
    bench.pass(Duration::from_secs(20));
    bench.wire.full = false;
    bench.send_out();
    assert_eq!(bench.wire.sent.len(), 1);
    bench.pass(Duration::from_millis(300));
    assert_eq!(
        bench.wire.sent.len(),
        2,
        "the data are repeated after one timeout"
    );
}

#[test]
fn unsent_window_probes_are_not_counted() {
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
fn unsent_keepalive_probes_end_no_connection() {
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
fn corked_connection_probes_closed_window_with_backoff() {
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
fn due_timeout_is_not_postponed_by_received_segment() {
    //= RFC 6298 §5.4
    let mut bench = Bench::new(false, |config| config.tcp.sack = false);
    let (id, mut data) = bench.established(2, u16::MAX);
    bench.send(id, 100);
    bench.wire.sent.clear();
    data.payload = vec![1; 10];
    // The driver polls the link more often than the clock.
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
fn connection_to_vanished_neighbour_times_out() {
    //= RFC 1122 §4.2.3.5
    // Both with data in flight, and with data that never find a route.
    for idle in [Duration::ZERO, HOUR] {
        let mut bench = Bench::new(true, |_| ());
        bench.take_in(&arp_request(2));
        let (id, _) = bench.established(2, u16::MAX);
        bench.pass(idle);
        bench.send(id, 100);
        bench.pass(HOUR);
        assert_eq!(bench.stack.take_error(id), Ok(Some(SocketError::TimedOut)));
        bench.stack.close(bench.now, id).expect("the connection is there");
        bench.pass(HOUR);
        assert_eq!(bench.stack.connections(), 0);
        assert_eq!(bench.stack.payload_blocks_used(), 0);
    }
}

#[test]
fn replies_to_peer_with_full_link_do_not_delay_others() {
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
fn connections_to_peer_with_full_link_do_not_delay_others() {
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
