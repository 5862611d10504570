//! The end of a peer or a node, seen by several handles.

use super::*;

#[test]
fn offender_found_by_any_handle_is_cut_off_by_membership() {
    let fabric = Fabric::new();
    let mut node = Node::new(&fabric.settings("node-0", 0), 2);
    let mut honest = fabric.join("honest", 1);
    node.meet(&mut honest);
    let mut liar = Liar::dial(&fabric, "node-0", 9);
    liar.hello();
    while node.ports[0].connected() < 2 {
        node.housekeeping();
    }
    node.map_all();
    liar.record(1, b"nonsense");
    assert_eq!(frames_of(&mut node.ports[1], 8).len(), 0);
    // No frames any more, and the connection stays until the membership is told.
    assert!(
        node.ports
            .iter()
            .all(|port| port.connected() == 1 && port.has_departed())
    );
    assert_eq!(put(&mut node.ports[0], 9, b"?"), Err(TransmitError::Unreachable));
    assert_eq!(node.membership.connected(), 2);
    let departed = node.ports[0].departed().unwrap();
    assert!(matches!(departed.offence, Some(Loss::Record(..))));
    assert!(node.ports[1].departed().is_none(), "told once");
    node.membership.let_go(departed);
    assert_eq!(
        (node.membership.connected(), node.membership.statistics().corrupt),
        (1, 1)
    );
    assert!(!crate::mq::control::is_connected(liar.socket()));
    // Told again, it changes nothing: the slot has no peer any more.
    node.membership.let_go(departed);
    assert_eq!(node.membership.statistics().corrupt, 1);
    send(&mut honest, 0, b"unharmed").unwrap();
    assert_eq!(frames_of(&mut node.ports[0], 8), [b"unharmed"]);
}

/// Programs outlive the process that connected their node, for a moment: the node is
/// gone for its peers at once, whatever the programs still write.
#[test]
fn node_ends_with_its_membership() {
    let fabric = Fabric::new();
    let mut node = Node::new(&fabric.settings("node", 0), 2);
    let mut peer = [fabric.join("peer", 1)];
    node.meet(&mut peer[0]);
    node.membership.leave();
    let mut taken = 0;
    drive(&mut peer, |peer| {
        let _ = put(&mut node.ports[1], 1, b"still here");
        node.ports[1].flush();
        taken += take(&mut peer[0]).len();
        peer[0].statistics().lost == 1
    });
    // It was not believed for longer than its ring lasts, either.
    assert!(taken <= 1 + (1 << 20) / 64, "{taken} frames");
    assert_eq!(send(&mut peer[0], 0, b"?"), Err(TransmitError::Unreachable));
    let _ = frames_of(&mut node.ports[0], 8);
}

/// Frames of a node that left are not waited for longer than the ring lasts, even if no process
/// takes them.
#[test]
fn frames_written_after_hang_up_are_bounded() {
    let fabric = Fabric::new();
    let mut node = Node::new(&fabric.settings("node", 0), 1);
    let mut liar = Liar::dial(&fabric, "node", 9);
    liar.hello();
    while node.ports[0].connected() == 0 {
        node.housekeeping();
    }
    let frame = [vec![0; 8], vec![0; 1000]].concat();
    liar.record(1, &frame);
    liar.record(1, &frame);
    liar.hang_up();
    node.housekeeping();
    assert_eq!((node.ports[0].connected(), node.membership.connected()), (0, 0));
    let mut frames = 0;
    while !node.ports[0].has_departed() {
        frames += node.ports[0].receive(0, 1, &mut |_| {});
        // There is always another one.
        liar.record(1, &frame);
        assert!(frames < 1000, "for ever");
    }
    assert_eq!(frames, 64, "as many as its ring holds");
    node.housekeeping();
    assert_eq!(node.membership.statistics().lost, 1);
}
