//! A handle without the mapping of a peer.

use super::*;

/// A peer joins honestly and changes its memory then. A process that attaches later cannot map it.
#[test]
fn peer_with_changed_memory_is_cut_off_and_others_are_mapped() {
    for harm in [Liar::spoil_header, Liar::lengthen] {
        let fabric = Fabric::new();
        let mut node = Node::new(&fabric.settings("node-0", 0), 2);
        let mut liar = Liar::dial(&fabric, "node-0", 9);
        liar.hello();
        let mut peers = [fabric.join("peer-1", 1)];
        drive(&mut peers, |peers| {
            node.housekeeping();
            node.ports[0].connected() == 2 && peers[0].connected() == 1
        });
        harm(&mut liar);
        // The loop of a process that maps what it misses.
        let mut offences = 0;
        while let Some((slot, generation)) = node.ports[1].unmapped() {
            let descriptors = node.descriptors((slot, generation));
            match node.ports[1].map(slot, generation, descriptors) {
                Ok(_) => {}
                Err(error) => {
                    assert!(error.is_offence(), "{error}");
                    offences += 1;
                }
            }
        }
        assert_eq!((offences, node.ports[1].connected()), (1, 1));
        assert!(node.ports[1].has_departed());
        assert_eq!(frames_of(&mut node.ports[1], 8).len(), 0);
        assert!(node.ports[1].prepare_sleep());
        node.ports[1].finish_sleep(0);
        node.housekeeping();
        assert_eq!(node.membership.last_loss(), Some(Loss::Memory(name("liar-9"))));
        assert_eq!(node.membership.statistics().corrupt, 1);
        assert!(!control::is_connected(liar.socket()), "it was hung up on");
        send(&mut peers[0], 0, b"unharmed").unwrap();
        assert_eq!(frames_of(&mut node.ports[1], 8), [b"unharmed"]);
    }
}

/// A process has no memory or no descriptors left for a peer: it goes on with all others, sleeps,
/// and tries again later.
#[test]
fn skipped_peer_does_not_disturb_process() {
    let fabric = Fabric::new();
    let mut node = Node::new(&fabric.settings("node", 0), 2);
    let mut peers = [fabric.join("peer-1", 1), fabric.join("peer-2", 2)];
    drive(&mut peers, |peers| {
        node.housekeeping();
        node.ports[0].connected() == 2 && peers.iter().all(|peer| peer.connected() == 2)
    });
    let skipped @ (slot, generation) = node.ports[1].unmapped().unwrap();
    node.ports[1].skip(slot, generation);
    assert_ne!(node.ports[1].unmapped(), Some(skipped));
    node.map_all();
    assert_eq!(frames_of(&mut node.ports[1], 8).len(), 0);
    assert!(node.ports[1].prepare_sleep());
    node.ports[1].finish_sleep(0);
    for peer in &mut peers {
        send(peer, 0, b"for somebody").unwrap();
    }
    assert_eq!(frames_of(&mut node.ports[1], 8).len(), 1);
    assert!(node.ports[1].retry_skipped() && !node.ports[1].retry_skipped());
    assert_eq!(node.ports[1].unmapped(), Some(skipped));
    node.map_all();
    assert_eq!(frames_of(&mut node.ports[1], 8).len(), 1);
}

#[test]
fn unmapped_peer_is_left_to_other_handles() {
    let fabric = Fabric::new();
    let mut node = Node::new(&fabric.settings("node", 0), 2);
    let mut peers = [fabric.join("peer-1", 1), fabric.join("peer-2", 2)];
    drive(&mut peers, |peers| {
        node.housekeeping();
        node.ports[0].connected() == 2 && peers.iter().all(|peer| peer.connected() == 2)
    });
    for peer in &mut peers {
        send(peer, 0, b"for somebody").unwrap();
    }
    let port = &mut node.ports[1];
    assert_eq!(frames_of(port, 8).len(), 0);
    assert!(!port.prepare_sleep(), "it would not be woken");
    assert_eq!(put(port, 1, b"?"), Err(TransmitError::Full));
    assert_eq!(put(port, 7, b"?"), Err(TransmitError::Unreachable));
    assert!(!port.watch(&mut Watch::new()));
    // What another handle left unfinished stays so, and is not forgotten.
    put(&mut node.ports[0], 1, b"shown at once").unwrap();
    put(&mut node.ports[0], 1, b"shown later").unwrap();
    node.ports[1].flush();
    assert_eq!(take(&mut peers[0]), [b"shown at once"]);
    node.ports[0].flush();
    assert_eq!(take(&mut peers[0]), [b"shown later"]);

    let first @ (slot, generation) = node.ports[1].unmapped().unwrap();
    let again = generation + 1;
    let descriptors = node.descriptors(first);
    assert!(matches!(
        node.ports[1].map(slot, again, descriptors),
        Err(MapError::Gone)
    ));
    let other = if slot == 0 { (1, 1) } else { (0, 1) };
    let descriptors = node.descriptors(other);
    assert!(matches!(
        node.ports[1].map(slot, generation, descriptors),
        Err(MapError::Mismatch)
    ));
    assert_eq!(node.ports[1].unmapped(), Some(first));
    let descriptors = node.descriptors(first);
    node.ports[1].map(slot, generation, descriptors).unwrap();
    assert_eq!(frames_of(&mut node.ports[1], 8).len(), 1);
    node.map_all();
    assert_eq!(frames_of(&mut node.ports[1], 8).len(), 1);
    assert_eq!(frames_of(&mut node.ports[0], 8).len(), 0);
    // A new life in the slot is another peer.
    let (gone, _) = peers.split_first_mut().unwrap();
    let left = gone.name();
    *gone = fabric.join("peer-3", 3);
    let deadline = Instant::now() + PATIENCE;
    while node.ports[0].peers().iter().any(|peer| peer.name == left) || node.ports[0].connected() != 2 {
        assert!(Instant::now() < deadline);
        node.housekeeping();
        peers.iter_mut().for_each(turn);
    }
    assert!(node.ports[0].unmapped().is_none() && node.ports[1].unmapped().is_some());
    assert!(matches!(node.membership.descriptors(slot, 77), Ok(None)));
    node.map_all();
    send(&mut peers[0], 0, b"new").unwrap();
    assert_eq!(frames_of(&mut node.ports[1], 8), [b"new"]);
}
