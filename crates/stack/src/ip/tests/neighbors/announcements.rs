//! The announcement of the own addresses.

use super::*;

#[test]
fn announcement_goes_to_all_neighbors() {
    //= RFC 5227 §2.3
    //= RFC 4861 §7.2.6
    let mut bench = Bench::usual();
    bench.ip.announce();
    let sent = bench.sent();
    let arp = parse_arp(&sent[0]).unwrap();
    assert_eq!(
        (arp.sender_ip, arp.target_ip, sent[0][..6].to_vec()),
        (OWN, OWN, vec![0xff; 6])
    );
    for (frame, address) in sent[1..3]
        .iter()
        .zip([OWN6, crate::ip::addresses::link_local(OWN_MAC)])
    {
        let (src, _, message) = parse_discovery(frame).unwrap();
        assert_eq!(src, address);
        assert!(matches!(
            message,
            ndisc::Message::NeighborAdvertisement { solicited: false, .. }
        ));
    }
    // The last frame reports the groups of this stack.
    assert_eq!((sent.len(), bench.sent().len()), (4, 0));
}

#[test]
fn newcomer_receives_announcement_of_its_own() {
    //= RFC 5227 §2.3
    //= RFC 4861 §7.2.6
    let mut bench = Bench::usual();
    bench.ip.announce();
    let to_all: Vec<_> = bench.sent()[..3]
        .iter()
        .map(|frame| frame[6..].to_vec())
        .collect();
    let newcomer = |number: u8| [2, 0, 0, 0, 9, number];
    for number in [1, 2, 1] {
        bench.ip.announce_to(newcomer(number));
    }
    let sent = bench.sent();
    let macs: Vec<_> = sent.iter().map(|frame| frame[..6].to_vec()).collect();
    assert_eq!(macs, [1, 1, 1, 2, 2, 2].map(newcomer));
    for one in sent.chunks(3) {
        let said: Vec<_> = one.iter().map(|frame| frame[6..].to_vec()).collect();
        assert_eq!(said, to_all);
    }
    // Many newcomers at once get one announcement to all.
    (0..=64).for_each(|number| bench.ip.announce_to(newcomer(number)));
    assert_eq!((bench.sent().len(), bench.sent().len()), (4, 0));
}
