//! The bounds of the table of neighbours, and of the packets that wait.

use super::*;

#[test]
fn table_keeps_neighbors_in_use_and_in_resolution() {
    let mut bench = Bench::usual();
    let host = |number: u8| Ipv4Addr::new(10, 0, 0, number);
    let mac = |number: u8| [2, 0, 0, 0, 1, number];
    // Four records are reachable.
    for number in 10..14 {
        bench.path(host(number));
        bench.receive(&arp_frame(Reply, mac(number), host(number), OWN_MAC, OWN));
    }
    // A flood of unknown addresses takes only the rest of the table.
    for number in 20..120 {
        bench.receive(&arp_frame(Request, mac(number), host(number), [0; 6], OWN));
        bench.sent();
    }
    assert_eq!(bench.ip.neighbors.len(), 8);
    for number in 10..14 {
        assert_eq!(state_of(&bench, host(number)), Some(Reachability::Reachable));
    }
    // At most half of the records are in resolution at once.
    for number in 120..124 {
        let waiting = neighbor(bench.path(host(number)));
        bench.ip.set_waiting_head(waiting, u32::from(number));
    }
    assert_eq!(bench.path(host(124)), PathState::Unreachable);
    bench.sent();
    assert!(bench.counted("neighbor_evictions") >= 96);
    assert_eq!(bench.counted("neighbor_table_full"), 1);
    for number in 20..120 {
        bench.receive(&arp_frame(Request, mac(number), host(number), [0; 6], OWN));
    }
    bench.pass(Duration::from_secs(3));
    let mut failed = 0;
    while let Some(NeighborEvent::Failed { neighbor }) = bench.ip.next_event() {
        assert_eq!(bench.ip.waiting_head(neighbor), 120 + failed);
        failed += 1;
        // They fail in the order of their requests, and stay until TCP releases them.
        for number in 20..40 {
            bench.receive(&arp_frame(Request, mac(number), host(number), [0; 6], OWN));
        }
        bench.ip.set_waiting_head(neighbor, NONE);
    }
    assert_eq!(failed, 4);
    assert!(matches!(bench.path(host(124)), PathState::Pending { .. }));
}

#[test]
fn packets_wait_for_address_and_oldest_is_dropped() {
    //= RFC 1122 §2.3.2.2
    //= RFC 4861 §7.2.2
    let mut bench = Bench::usual();
    for seq in 0..5 {
        let request = icmp_v4(&icmpv4::Message::EchoRequest {
            id: 1,
            seq,
            data: b"x",
        });
        bench.receive(&frame_v4(PEER, OWN, protocol::ICMPV4, &request));
    }
    assert_eq!(bench.counted("drop_unresolved"), 2);
    assert_eq!(bench.sent().len(), 1);
    bench.receive(&arp_frame(Reply, PEER_MAC, PEER, OWN_MAC, OWN));
    let sequence: Vec<u8> = bench.sent().iter().map(|frame| frame[14 + 20 + 7]).collect();
    assert_eq!(sequence, [2, 3, 4]);
    // Packets that wait in vain are counted, and their buffers become free.
    let free = bench.ip.packets.free_buffers();
    let request = icmp_v4(&icmpv4::Message::EchoRequest {
        id: 1,
        seq: 9,
        data: b"x",
    });
    bench.receive(&frame_v4(
        Ipv4Addr::new(10, 0, 0, 9),
        OWN,
        protocol::ICMPV4,
        &request,
    ));
    bench.pass(Duration::from_secs(3));
    assert_eq!(
        (bench.counted("drop_unresolved"), bench.ip.packets.free_buffers()),
        (3, free)
    );
}
