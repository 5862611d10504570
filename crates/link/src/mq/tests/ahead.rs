//! Looking at frames before they are taken.

use super::*;

fn shown(node: &mut Mesh, most: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    node.look_ahead(most, &mut |frame| frames.push(whole(frame)));
    frames
}

fn received(node: &mut Mesh, most: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    node.receive(0, most, &mut |frame| frames.push(whole(frame)));
    frames
}

#[test]
fn frames_shown_ahead_are_received_next() {
    let fabric = Fabric::new();
    let mut nodes = fabric.nodes(3);
    for round in 0..20 {
        let [a, b, c] = &mut nodes[..] else { panic!() };
        for number in 0..10 {
            send(a, 2, &[round, number, 0]).unwrap();
            send(b, 2, &[round, number, 1]).unwrap();
        }
        for most in [0, 1, 3, 7, 13, 32] {
            let ahead = shown(c, most);
            assert_eq!(ahead, shown(c, most), "nothing was taken");
            assert_eq!(ahead, received(c, most));
        }
        assert!(shown(c, 32).is_empty());
    }
    let frames_received = |node: &Mesh| -> u64 {
        let peers = node.peers().into_iter();
        peers
            .map(|peer| match peer.state {
                crate::mq::PeerState::Connected { statistics, .. } => statistics.frames_received,
                _ => 0,
            })
            .sum()
    };
    assert_eq!(frames_received(&nodes[2]), 20 * 20);
}

/// Those that are lively are shown, though not in the order in which they come.
#[test]
fn frames_of_many_peers_are_shown_ahead() {
    let fabric = Fabric::new();
    let mut nodes = fabric.nodes(20);
    let (last, others) = nodes.split_last_mut().unwrap();
    for other in others.iter_mut() {
        send(other, 19, b"first").unwrap();
    }
    while !received(last, 64).is_empty() {}
    for (number, other) in others.iter_mut().enumerate() {
        send(other, 19, &[number as u8]).unwrap();
    }
    let mut ahead = shown(last, 64);
    let mut come = received(last, 64);
    ahead.sort();
    come.sort();
    assert_eq!((ahead.len(), ahead), (19, come));
    assert_eq!(shown(last, 64).len(), 0);
}
