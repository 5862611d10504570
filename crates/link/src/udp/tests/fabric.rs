//! Nodes that find and lose one another.

use super::*;
use crate::TransmitError;
use crate::test_frames::{PARTIAL, frame_to, send};

#[test]
fn nodes_find_and_lose_one_another() {
    let mut links = fabric(2, |_| {});
    for (link, other) in [(0, 2), (1, 1)] {
        assert_eq!(
            changes(&mut links[link]),
            [NeighborChange::Joined(address(other))]
        );
    }
    links.pop();
    until(&mut links, 4 * SECOND, |_, _| true);
    assert!(all_connected(&links[0]));
    // Datagrams in flight have arrived then.
    until(&mut links, 10 * SECOND, |_, _| true);
    assert_eq!(changes(&mut links[0]), [NeighborChange::Left(address(2))]);
    let peer = links[0].peers().next().unwrap();
    assert!(matches!(peer.state, UdpPeerState::Away { .. }), "{peer:?}");
    let sent = send(
        &mut links[0],
        &frame_to(address(2), address(1), b"hello?"),
        PARTIAL,
    );
    assert_eq!(sent, Err(TransmitError::Unreachable));
}

#[test]
fn idle_link_sends_signs_of_life() {
    let mut links = fabric(3, |_| {});
    for second in 1..30 {
        until(&mut links, second * SECOND, |_, _| true);
        // Datagrams of this second arrive before the next one.
        until(&mut links, second * SECOND, |links, _| {
            links.iter().all(|link| {
                link.peers()
                    .all(|peer| peer.statistics.datagrams_received >= second)
            })
        });
        assert!(links.iter().all(all_connected), "after {second} s");
    }
    assert!(links.iter_mut().all(|link| {
        changes(link)
            .iter()
            .all(|change| matches!(change, NeighborChange::Joined(_)))
    }));
}

#[test]
fn fabric_works_over_both_families() {
    for bind in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
        let bind: SocketAddr = bind.parse().unwrap();
        let mut links: Vec<UdpLink> = (1..=2)
            .map(|number| lone(number, |settings| settings.bind = bind))
            .collect();
        let ports: Vec<u16> = links
            .iter()
            .map(|link| link.local_address().unwrap().port())
            .collect();
        // Over IPv4 if one socket serves both.
        let host = if bind.ip().is_unspecified() {
            "127.0.0.1".parse().unwrap()
        } else {
            bind.ip()
        };
        links[0].add_peer((host, ports[1]).into()).unwrap();
        links[1].add_peer((host, ports[0]).into()).unwrap();
        until(&mut links, 0, |links, _| links.iter().all(all_connected));
    }
}

#[test]
fn restarted_node_is_recognised() {
    let mut links = fabric(2, |_| {});
    let socket = links[1].local_address().unwrap();
    links.pop();
    links.push(lone(2, |settings| settings.bind = socket));
    introduce(&mut links);
    until(&mut links, SECOND, |links, _| links.iter().all(all_connected));
    until(&mut links, SECOND, |links, _| {
        links[0].peers().next().unwrap().statistics.introductions == 2
    });
    let joined = NeighborChange::Joined(address(2));
    assert_eq!(
        changes(&mut links[0]),
        [joined, NeighborChange::Left(address(2)), joined]
    );
    let frame = frame_to(address(1), address(2), b"again");
    send(&mut links[1], &frame, PARTIAL).unwrap();
    let arrived = until(&mut links, SECOND, |_, arrived| !arrived[0].is_empty());
    assert_eq!(arrived[0], [(frame, PARTIAL)]);
}

#[test]
fn nodes_without_key_are_ignored() {
    let keys = [Some([7; 32]), Some([7; 32]), Some([8; 32]), None];
    let mut links: Vec<UdpLink> = (1..)
        .zip(keys)
        .map(|(number, key)| lone(number, |settings| settings.key = key))
        .collect();
    introduce(&mut links);
    until(&mut links, 0, |links, _| {
        links[..2].iter().all(|link| {
            link.peers()
                .any(|peer| matches!(peer.state, UdpPeerState::Connected { .. }))
        }) && links.iter().all(|link| link.statistics().not_authentic >= 2)
    });
    for (index, link) in links.iter_mut().enumerate() {
        let expected = match index {
            0 => vec![NeighborChange::Joined(address(2))],
            1 => vec![NeighborChange::Joined(address(1))],
            _ => vec![],
        };
        assert_eq!(changes(link), expected);
    }
}

#[test]
fn nodes_of_other_fabric_are_ignored() {
    let mut links: Vec<UdpLink> = (1..=2)
        .map(|number| lone(number, |settings| settings.fabric = u32::from(number)))
        .collect();
    introduce(&mut links);
    until(&mut links, 0, |links, _| {
        links.iter().all(|link| link.statistics().other_fabric > 0)
    });
    for (link, fabric) in links.iter_mut().zip([2, 1]) {
        assert!(changes(link).is_empty());
        let state = link.peers().last().unwrap().state;
        assert_eq!(state, UdpPeerState::Elsewhere { fabric });
    }
}

#[test]
fn second_node_with_one_address_is_refused() {
    let mut links = fabric(2, |_| {});
    links.push(lone(2, |_| {}));
    introduce(&mut links);
    until(&mut links, SECOND, |links, _| {
        links[0].statistics().not_learned > 0
    });
    assert_eq!(changes(&mut links[0]), [NeighborChange::Joined(address(2))]);
    let double = links[0].peers().last().unwrap().state;
    let error = Some(rustix::io::Errno::NOTUNIQ);
    assert_eq!(double, UdpPeerState::Away { error });
}

#[test]
fn impossible_settings_return_error() {
    let bind: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let refused = |change: &dyn Fn(&mut UdpSettings)| {
        let mut settings = UdpSettings::new(bind, Vec::new(), address(1));
        change(&mut settings);
        UdpLink::open(&settings).map(drop).unwrap_err()
    };
    assert!(matches!(refused(&|s| s.mtu = 1279), UdpError::BadMtu(1279)));
    assert!(matches!(refused(&|s| s.mtu = 65_001), UdpError::BadMtu(_)));
    assert!(matches!(
        refused(&|s| s.datagram = 507),
        UdpError::BadDatagram(507)
    ));
    assert!(matches!(
        refused(&|s| s.address = [1; 6]),
        UdpError::BadAddress(_)
    ));
    assert!(matches!(
        refused(&|s| s.peers = vec!["10.0.0.1:0".parse().unwrap()]),
        UdpError::BadPeer(_)
    ));
    assert!(matches!(
        refused(&|s| s.peers = vec!["224.0.0.1:5".parse().unwrap()]),
        UdpError::BadPeer(_)
    ));
    assert!(matches!(
        refused(&|s| s.peers = vec!["[::1]:5".parse().unwrap()]),
        UdpError::OtherFamily { .. }
    ));
    assert!(matches!(
        refused(&|s| s.peers = vec![bind; 2000]),
        UdpError::TooManyPeers(2000)
    ));
    assert!(matches!(
        refused(&|s| s.bind = "192.0.2.1:7".parse().unwrap()),
        UdpError::NotLocal(_)
    ));
    let first = lone(1, |_| {});
    let taken = first.local_address().unwrap();
    assert!(matches!(refused(&|s| s.bind = taken), UdpError::InUse(_)));
}
