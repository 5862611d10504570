//! Datagrams that no link would send.

use std::net::UdpSocket;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use zerocopy::IntoBytes;

use super::fake_peer::FakePeer;
use super::*;
use crate::test_frames::frame_to;
use crate::udp::header::{Envelope, Fragment, Hello, Kind, Record};
use crate::{Checksum, NeighborChange};

#[test]
fn datagrams_of_strangers_are_counted() {
    let mut links = fabric(1, |_| {});
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger
        .send_to(b"anything", links[0].local_address().unwrap())
        .unwrap();
    until(&mut links, 0, |links, _| links[0].statistics().strangers == 1);
}

#[test]
fn every_refusal_has_its_counter() {
    let mut peer = FakePeer::new(Some([3; 32]));
    peer.connect(1000);
    let good = peer.envelope;
    let body = peer.frames(&[frame_to(address(1), address(2), b"good")]);
    let datagram = peer.datagram(&good, &body);
    let mut changed = datagram.clone();
    changed[2] = 9;
    peer.send_until(&changed, |counted| counted.other_version == 1);
    peer.send_until(&datagram[..10], |counted| counted.malformed == 1);
    let mut changed = datagram.clone();
    *changed.last_mut().unwrap() ^= 1;
    peer.send_until(&changed, |counted| counted.not_authentic == 1);
    peer.send_until(
        &peer.datagram(&Envelope { fabric: 5, ..good }, &body),
        |counted| counted.other_fabric == 1,
    );
    peer.send_until(&peer.datagram(&Envelope { token: 5, ..good }, &body), |counted| {
        counted.unknown_token == 1
    });
    let naked = FakePeer::new(None).datagram(
        &Envelope {
            sealed: false,
            ..good
        },
        &body,
    );
    peer.send_until(&naked, |counted| counted.not_authentic == 2);
    let good = Envelope { sequence: 50, ..good };
    peer.send_until(&peer.datagram(&good, b"no record"), |counted| {
        counted.malformed == 2
    });
    let short = peer.frames(&[vec![0; 13]]);
    let good = Envelope { sequence: 51, ..good };
    peer.send_until(&peer.datagram(&good, &short), |counted| counted.bad_length == 1);
    let long = peer.frames(&[vec![0; 1523]]);
    let good = Envelope { sequence: 52, ..good };
    peer.send_until(&peer.datagram(&good, &long), |counted| counted.bad_length == 2);
    assert_eq!(
        changes(&mut peer.link[0]),
        [NeighborChange::Joined(address(2))],
        "the association is undisturbed"
    );
}

#[test]
fn repeated_datagram_is_dropped() {
    for key in [None, Some([3; 32])] {
        let mut peer = FakePeer::new(key);
        peer.connect(1000);
        let frame = frame_to(address(1), address(2), b"once");
        let datagram = peer.datagram(&peer.envelope, &peer.frames(std::slice::from_ref(&frame)));
        peer.send(&datagram);
        let arrived = peer.send_until(&datagram, |counted| counted.replayed == 1);
        assert_eq!(arrived, [frame]);
    }
}

/// An attacker replays a node's former life, with its hello.
#[test]
fn replayed_old_life_changes_nothing() {
    let mut peer = FakePeer::new(Some([3; 32]));
    peer.connect(1000);
    let frame = frame_to(address(1), address(2), b"old");
    let old = peer.datagram(
        &Envelope {
            sequence: 9,
            ..peer.envelope
        },
        &peer.frames(&[frame]),
    );
    peer.connect(2000);
    changes(&mut peer.link[0]);
    assert_eq!(
        peer.send_until(&old, |counted| counted.unknown_token == 1),
        [] as [Vec<u8>; 0]
    );
    let frame = frame_to(address(1), address(2), b"new");
    peer.send(&peer.datagram(&peer.envelope, &peer.frames(std::slice::from_ref(&frame))));
    let arrived = until(&mut peer.link, 0, |_, arrived| !arrived[0].is_empty());
    assert_eq!(arrived[0][0].0, frame);
    assert_eq!(changes(&mut peer.link[0]), []);
}

/// An answer would make the other node give up a valid association.
#[test]
fn unsolicited_answer_is_not_answered() {
    let mut peer = FakePeer::new(None);
    peer.connect(1000);
    let hello = Hello::new(2000, address(2), true);
    let envelope = Envelope {
        kind: Kind::Hello,
        token: 5,
        ..peer.envelope
    };
    let stray = peer.datagram(&envelope, hello.as_bytes());
    peer.send_until(&stray, |counted| counted.unknown_token == 1);
    peer.socket.set_nonblocking(true).unwrap();
    let mut datagram = [0; 2000];
    while let Ok(len) = peer.socket.recv(&mut datagram) {
        let (envelope, _) = Envelope::parse(&datagram[..len]).unwrap();
        assert_ne!(envelope.token, 2000, "the hello was answered");
    }
    let joined = NeighborChange::Joined(address(2));
    assert_eq!(changes(&mut peer.link[0]), [joined]);
}

/// An attacker replays a first hello of the peer's current life. Each answer would
/// reach the peer with its current token, and make it begin anew.
#[test]
fn repeated_hello_of_current_life_is_not_answered() {
    let mut peer = FakePeer::new(Some([3; 32]));
    peer.connect(1000);
    let hello = Hello::new(1000, address(2), true);
    let first = Envelope {
        kind: Kind::Hello,
        token: 0,
        sequence: 0,
        ..peer.envelope
    };
    let recorded = peer.datagram(&first, hello.as_bytes());
    for times in 1..=3 {
        peer.send_until(&recorded, |counted| counted.replayed == times);
    }
    peer.socket.set_nonblocking(true).unwrap();
    let mut datagram = [0; 2000];
    while let Ok(len) = peer.socket.recv(&mut datagram) {
        let (envelope, _) = Envelope::parse(&datagram[..len]).unwrap();
        assert_ne!(envelope.token, 1000, "the hello was answered");
    }
    let joined = NeighborChange::Joined(address(2));
    assert_eq!(changes(&mut peer.link[0]), [joined]);
}

/// An answer to a recorded hello of this node hands over another token. It is
/// authentic, but this node has not asked for it.
#[test]
fn hello_with_other_token_within_association_changes_nothing() {
    for key in [None, Some([3; 32])] {
        let mut peer = FakePeer::new(key);
        peer.connect(1000);
        for (times, token) in [(1, 2000), (2, 3000)] {
            let hello = Hello::new(token, address(2), true);
            let envelope = Envelope {
                kind: Kind::Hello,
                sequence: token,
                ..peer.envelope
            };
            let answer = peer.datagram(&envelope, hello.as_bytes());
            peer.send_until(&answer, |counted| counted.unproven_hellos == times);
        }
        let statistics = peer.link[0].peers().next().unwrap().statistics;
        assert_eq!(statistics.introductions, 1);
        let joined = NeighborChange::Joined(address(2));
        assert_eq!(changes(&mut peer.link[0]), [joined]);
        // Another life that proves itself is accepted.
        peer.connect(4000);
    }
}

/// All datagrams of a peer are replayed in any order. Only counters change.
#[test]
fn replay_of_every_class_changes_only_counters() {
    let mut peer = FakePeer::new(Some([3; 32]));
    peer.connect(1000);
    let mut recorded = Vec::new();
    let record = |peer: &FakePeer, token: u64, kind: Kind, sequence: u64| {
        let body = match kind {
            Kind::Hello => Hello::new(1000, address(2), true).as_bytes().to_vec(),
            Kind::Frames => peer.frames(&[frame_to(address(1), address(2), b"once")]),
        };
        let envelope = Envelope {
            kind,
            token,
            sequence,
            ..peer.envelope
        };
        peer.datagram(&envelope, &body)
    };
    let current = peer.envelope.token;
    recorded.push(record(&peer, 0, Kind::Hello, 0));
    for (sequence, kind) in [(10, Kind::Hello), (11, Kind::Frames), (12, Kind::Hello)] {
        let datagram = record(&peer, current, kind, sequence);
        let before = peer.link[0].peers().next().unwrap().statistics.datagrams_received;
        peer.send(&datagram);
        until(&mut peer.link, 0, |links, _| {
            links[0].peers().next().unwrap().statistics.datagrams_received > before
        });
        recorded.push(datagram);
    }
    changes(&mut peer.link[0]);
    let before = peer.link[0].peers().next().unwrap();
    for times in 1..=3 {
        for (number, datagram) in (1..).zip(&recorded) {
            let replayed = (times - 1) * recorded.len() as u64 + number;
            let arrived = peer.send_until(datagram, |counted| counted.replayed == replayed);
            assert_eq!(arrived, [] as [Vec<u8>; 0]);
        }
    }
    let after = peer.link[0].peers().next().unwrap();
    let counted = |info: &crate::udp::UdpPeerInfo| {
        (
            info.state,
            info.statistics.introductions,
            info.statistics.frames_received,
        )
    };
    assert_eq!(counted(&after), counted(&before));
    assert_eq!(changes(&mut peer.link[0]), []);
}

#[test]
fn node_ignores_its_own_datagrams() {
    let mut peer = FakePeer::new(Some([3; 32]));
    let mut datagram = [0; 2000];
    until(&mut peer.link, 0, |_, _| true);
    let len = peer.socket.recv(&mut datagram).unwrap();
    peer.send_until(&datagram[..len], |counted| counted.reflected == 1);
}

/// A node behind another one cannot take over a node's address.
#[test]
fn address_of_node_is_not_learnt_elsewhere() {
    let mut peer = FakePeer::new(None);
    peer.connect(1000);
    let mut other = lone(3, |_| {});
    other.add_peer(peer.link[0].local_address().unwrap()).unwrap();
    let socket = other.local_address().unwrap();
    peer.link[0].add_peer(socket).unwrap();
    peer.link.push(other);
    until(&mut peer.link, 0, |links, _| links.iter().all(all_connected));
    let claim = frame_to(address(1), address(3), b"I am node 3");
    peer.send(&peer.datagram(&peer.envelope, &peer.frames(&[claim])));
    until(&mut peer.link, 0, |_, arrived| !arrived[0].is_empty());
    let frame = frame_to(address(3), address(1), b"to node 3");
    crate::test_frames::send(&mut peer.link[0], &frame, Offload::default()).unwrap();
    let arrived = until(&mut peer.link, 0, |_, arrived| !arrived[1].is_empty());
    assert_eq!(arrived[1][0].0, frame);
}

/// Every datagram of a peer is taken or counted, and does no harm.
#[test]
fn arbitrary_datagrams_of_peer_do_no_harm() {
    let peer = std::cell::RefCell::new(FakePeer::new(None));
    peer.borrow_mut().connect(1000);
    let records = proptest::collection::vec(
        (
            any::<bool>(),
            0u32..3,
            any::<u16>(),
            any::<u16>(),
            0usize..200,
            any::<u8>(),
        ),
        0..6,
    );
    let noise = proptest::collection::vec((0usize..300, any::<u8>()), 0..4);
    let strategy = (records, noise, 0usize..2000, any::<bool>());
    let mut sequence = 1;
    let sequence = std::cell::RefCell::new(&mut sequence);
    TestRunner::new(Config::with_cases(3000))
        .run(&strategy, |(records, noise, cut, hello)| {
            let mut peer = peer.borrow_mut();
            let mut body = Vec::new();
            for (whole, id, offset, total, len, byte) in records {
                let fragment = Fragment {
                    id: id.into(),
                    offset: offset.into(),
                    total: total.into(),
                };
                let fragment = (!whole).then_some(fragment);
                Record {
                    fragment,
                    checksum: Checksum::Partial,
                    len,
                }
                .emit(&mut body);
                body.resize(body.len() + len, byte);
            }
            **sequence.borrow_mut() += 1;
            let kind = if hello { Kind::Hello } else { Kind::Frames };
            let envelope = Envelope {
                sequence: **sequence.borrow(),
                kind,
                ..peer.envelope
            };
            let mut datagram = peer.datagram(&envelope, &body);
            for (at, byte) in noise {
                if let Some(place) = datagram.get_mut(at) {
                    *place = byte;
                }
            }
            datagram.truncate(cut);
            peer.send(&datagram);
            until(&mut peer.link, 0, |_, _| true);
            Ok(())
        })
        .unwrap();
    // After any datagrams the peer can begin anew.
    peer.borrow_mut().connect(3000);
}
