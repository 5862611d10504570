//! Members that lead to others: which frames they get, and for which addresses they may speak.

use super::hostile::Liar;
use super::shards::{KEY, frames, octets, segment, transmit};
use super::*;
use crate::steering::{Flow, Steering};

/// The number of the host beyond a gateway.
const BEYOND: u8 = 77;

impl Fabric {
    fn gateway(&self, name: &str, number: u8) -> Mesh {
        self.leading(Gateway::Uplink, name, number)
    }

    fn leading(&self, gateway: Gateway, name: &str, number: u8) -> Mesh {
        let settings = MeshSettings {
            gateway,
            ..self.settings(name, number)
        };
        Mesh::join(&settings).unwrap()
    }

    /// Nodes 0 and 1, and gateways behind them.
    fn with_gateways(&self, count: u8) -> Vec<Mesh> {
        let mut nodes = vec![self.join("node-0", 0), self.join("node-1", 1)];
        nodes.extend((2..2 + count).map(|number| self.gateway(&format!("gateway-{number}"), number)));
        let peers = nodes.len() - 1;
        drive(&mut nodes, |nodes| {
            nodes.iter().all(|node| node.connected() == peers)
        });
        nodes
    }
}

/// Sends a frame with another source address.
fn send_as(node: &mut Mesh, from: [u8; 6], to: [u8; 6], payload: &[u8]) -> Result<(), TransmitError> {
    let frame = frame_to(to, from, payload);
    let sent = crate::test_frames::send(node, &frame, PARTIAL);
    node.flush();
    sent
}

/// Takes the frames of each node, and returns how many each got.
fn taken(nodes: &mut [Mesh]) -> Vec<usize> {
    nodes.iter_mut().map(|node| take(node).len()).collect()
}

#[test]
fn frames_for_no_member_go_to_the_gateway_alone() {
    let fabric = Fabric::new();
    let mut nodes = fabric.with_gateways(1);
    send(&mut nodes[0], BEYOND, b"abroad").unwrap();
    assert_eq!(taken(&mut nodes), [0, 0, 1]);
    send(&mut nodes[0], 1, b"at home").unwrap();
    assert_eq!(taken(&mut nodes), [0, 1, 0]);
    let source = nodes[0].address();
    send_as(&mut nodes[0], source, [0xff; 6], b"everybody").unwrap();
    assert_eq!(taken(&mut nodes), [0, 1, 1]);
    assert_eq!(nodes[0].port_statistics().sent_beyond, 1);
}

#[test]
fn unknown_address_without_gateway_is_unreachable() {
    let fabric = Fabric::new();
    let mut nodes = fabric.with_gateways(1);
    drop(nodes.pop());
    drive(&mut nodes, |nodes| nodes.iter().all(|node| node.connected() == 1));
    assert_eq!(
        send(&mut nodes[0], BEYOND, b"abroad"),
        Err(TransmitError::Unreachable)
    );
    nodes.push(fabric.gateway("gateway-2", 2));
    drive(&mut nodes, |nodes| nodes.iter().all(|node| node.connected() == 2));
    send(&mut nodes[0], BEYOND, b"abroad").unwrap();
    assert_eq!(taken(&mut nodes), [0, 0, 1]);
}

#[test]
fn gateway_speaks_for_hosts_beyond_it_and_for_no_member() {
    let fabric = Fabric::new();
    let mut nodes = fabric.with_gateways(1);
    for to in [mac(0), [0xff; 6]] {
        send_as(&mut nodes[2], mac(BEYOND), to, b"from abroad").unwrap();
    }
    assert_eq!(taken(&mut nodes), [2, 1, 0]);
    for from in [mac(1), [0xff; 6], [3, 0, 0, 0, 0, 9]] {
        send_as(&mut nodes[2], from, mac(0), b"forged").unwrap();
    }
    assert_eq!(taken(&mut nodes), [0, 0, 0]);
    assert_eq!(nodes[2].port_statistics().forged, 3);
    send_as(&mut nodes[2], mac(2), mac(0), b"its own").unwrap();
    assert_eq!(taken(&mut nodes), [1, 0, 0]);
}

#[test]
fn frames_from_beyond_one_gateway_do_not_reach_another() {
    let fabric = Fabric::new();
    let mut nodes = fabric.with_gateways(2);
    send(&mut nodes[0], BEYOND, b"abroad").unwrap();
    assert_eq!(taken(&mut nodes), [0, 0, 1, 1], "nobody knows behind which");
    send_as(&mut nodes[2], mac(BEYOND), [0xff; 6], b"everybody").unwrap();
    assert_eq!(taken(&mut nodes), [1, 1, 0, 0]);
    for nobody in [mac(3), mac(BEYOND + 1)] {
        let sent = send_as(&mut nodes[2], mac(BEYOND), nobody, b"through");
        assert_eq!(sent, Err(TransmitError::Unreachable));
    }
    send_as(&mut nodes[2], mac(2), mac(3), b"its own").unwrap();
    assert_eq!(taken(&mut nodes), [0, 0, 0, 1]);
}

/// Nodes 0 and 1, an uplink, and two ports of bridges.
#[test]
fn frames_cross_between_ports_of_bridges() {
    let fabric = Fabric::new();
    let mut nodes = fabric.with_gateways(1);
    for number in [3, 4] {
        nodes.push(fabric.leading(Gateway::BridgePort, &format!("port-{number}"), number));
    }
    drive(&mut nodes, |nodes| nodes.iter().all(|node| node.connected() == 4));
    let group = [0x01, 0x80, 0xc2, 0, 0, 0];
    for (to, expected) in [
        (group, [1, 1, 0, 0, 1]),
        (mac(BEYOND + 1), [0, 0, 0, 0, 1]),
        (mac(4), [0, 0, 0, 0, 1]),
        (mac(1), [0, 1, 0, 0, 0]),
    ] {
        send_as(&mut nodes[3], mac(BEYOND), to, b"from behind a bridge").unwrap();
        assert_eq!(taken(&mut nodes), expected, "{to:?}");
    }
    let of_uplink = send_as(&mut nodes[3], mac(BEYOND), mac(2), b"through");
    assert_eq!(of_uplink, Err(TransmitError::Unreachable));
    assert_eq!(nodes[3].port_statistics().unreachable, 1);
    send_as(
        &mut nodes[2],
        mac(BEYOND + 2),
        [0xff; 6],
        b"from beyond the uplink",
    )
    .unwrap();
    assert_eq!(taken(&mut nodes), [1, 1, 0, 0, 0]);
    send(&mut nodes[0], BEYOND, b"abroad").unwrap();
    assert_eq!(taken(&mut nodes), [0, 0, 1, 1, 1], "nobody knows behind which");
}

/// Payload that frames refer to is not lent to gateways on behalf of others: no gateway could say
/// when it is free again.
#[test]
fn gateways_get_copies_of_payload() {
    let fabric = Fabric::new();
    let mut payload = shared_payload(4);
    let settings = MeshSettings {
        payload: Some(payload.arenas().clone()),
        ..fabric.settings("node-0", 0)
    };
    let mut nodes = vec![Mesh::join(&settings).unwrap(), fabric.gateway("gateway-2", 2)];
    drive(&mut nodes, |nodes| nodes.iter().all(|node| node.connected() == 1));
    let block = block_for(&mut payload, &nodes[0].port);
    payload.bytes_mut(block)[..1400].fill(7);
    for to in [mac(BEYOND), mac(2)] {
        let headers = frame_to(to, mac(0), &[]);
        let gather = Gather::from_slice(&payload.bytes(block)[..1400]);
        let frame = Transmit {
            headers: &headers,
            payload: &gather,
            offload: PARTIAL,
        };
        nodes[0].transmit(&frame).unwrap();
    }
    nodes[0].flush();
    assert_eq!(take(&mut nodes[1]), [vec![7; 1400], vec![7; 1400]]);
    let peers = nodes[0].peers();
    let super::super::PeerState::Connected { statistics, .. } = peers[0].state else {
        panic!("{peers:?}");
    };
    assert_eq!(
        (statistics.frames_sent, statistics.frames_sent_by_reference),
        (2, 1)
    );
    assert_eq!(nodes[0].fence(mac(BEYOND), &flow()), crate::Fence::default());
}

/// What the frames of a gateway that lies come to, at node 0 of `nodes`: taken, and counted.
fn lies(fabric: &Fabric, nodes: &mut Vec<Mesh>, sources: &[[u8; 6]]) -> (usize, u64) {
    let mut liar = Liar::dial(fabric, "node-0", 9);
    liar.lead();
    let connected = nodes[0].connected();
    liar.hello();
    drive(nodes, |nodes| nodes[0].connected() == connected + 1);
    for &source in sources {
        liar.frame(&frame_to(mac(0), source, b"who am I"));
    }
    let mut taken = 0;
    let forged = |nodes: &[Mesh]| {
        let infos = nodes[0].peers();
        let forged = infos.iter().map(|info| match info.state {
            super::super::PeerState::Connected { statistics, .. } => statistics.forged,
            _ => 0,
        });
        forged.sum::<u64>()
    };
    drive(nodes, |nodes| {
        taken += take(&mut nodes[0]).len();
        taken + forged(nodes) as usize == sources.len()
    });
    assert_eq!(nodes[0].connected(), connected + 1, "it may stay");
    (taken, forged(nodes))
}

#[test]
fn frames_of_gateway_in_name_of_member_are_dropped() {
    let fabric = Fabric::new();
    let mut nodes = fabric.with_gateways(0);
    let sources = [mac(0), mac(1), [0xff; 6], mac(BEYOND), mac(9), mac(1)];
    assert_eq!(lies(&fabric, &mut nodes, &sources), (2, 4));
}

#[test]
fn frames_of_gateway_for_another_gateway_are_dropped() {
    for kind in [Gateway::Uplink, Gateway::BridgePort] {
        let fabric = Fabric::new();
        let mut nodes = vec![fabric.leading(kind, "node-0", 0)];
        assert_eq!(lies(&fabric, &mut nodes, &[mac(BEYOND), mac(9)]), (1, 1));
    }
}

#[test]
fn shard_of_gateway_gets_its_own_segments() {
    let fabric = Fabric::new();
    let steering = |index| Steering {
        index,
        count: 3,
        key: KEY,
    };
    let shard = |index| {
        let settings = MeshSettings {
            gateway: Gateway::Uplink,
            steering: steering(index),
            incarnation: Some(1),
            ..fabric.settings("gateway", 1)
        };
        Mesh::join(&settings).unwrap()
    };
    let mut nodes = vec![fabric.join("node-0", 0)];
    nodes.extend((0..3).map(shard));
    drive(&mut nodes, |nodes| {
        nodes[0].connected() == 3 && nodes[1..].iter().all(|shard| shard.connected() == 1)
    });
    let mut used = [0; 3];
    for port in 1000..1100 {
        let frame = segment(0, BEYOND, port, b"abroad");
        transmit(&mut nodes[0], &frame).unwrap();
        let flow = Flow::between((octets(0), port), (octets(BEYOND), 80));
        let owner = usize::from(steering(0).shard_of(&flow));
        used[owner] += 1;
        for (index, shard) in nodes[1..].iter_mut().enumerate() {
            let expected = if index == owner {
                vec![frame.clone()]
            } else {
                vec![]
            };
            assert_eq!(frames(shard), expected, "port {port}, shard {index}");
        }
        // Whichever of them it comes back through.
        let answer = segment(BEYOND, 0, port, b"from abroad");
        transmit(&mut nodes[1 + owner], &answer).unwrap();
        assert_eq!(frames(&mut nodes[0]), [answer]);
    }
    assert!(used.iter().all(|&used| used > 10), "{used:?}");
    send(&mut nodes[0], BEYOND, b"no segment").unwrap();
    assert_eq!(taken(&mut nodes), [0, 1, 1, 1]);
}
