//! The fabric gave members addresses: frames that claim another member's are not taken.

use std::net::{IpAddr, Ipv4Addr};

use super::hostile::Liar;
use super::*;
use crate::NeighborChange;
use crate::mq::{Bound, Conflict, Registry};

fn address(number: u8) -> Ipv4Addr {
    [10, 77, 0, number].into()
}

fn bound(number: u8) -> Bound {
    Bound::new(Some(address(number)), None)
}

/// Nodes of `count`, of which each knows the addresses of those: node `n` has `address(n)`. Others have
/// the addresses that `also` says.
fn nodes(fabric: &Fabric, count: u8, also: &'static [(&str, u8)]) -> Vec<Mesh> {
    let registry = Registry::new(move |name, mac, _| {
        let given = also.iter().find(|(known, _)| *known == name.as_str());
        match given {
            Some((_, number)) => bound(*number),
            None if name.as_str().starts_with("node") => bound(mac[5]),
            None => Bound::default(),
        }
    });
    let join = |number: u8| {
        let settings = MeshSettings {
            bound: bound(number),
            registry: Some(registry.clone()),
            ..fabric.settings(&format!("node-{number}"), number)
        };
        Mesh::join(&settings).unwrap()
    };
    let mut nodes: Vec<Mesh> = (0..count).map(join).collect();
    let peers = usize::from(count) - 1;
    drive(&mut nodes, |nodes| {
        nodes.iter().all(|node| node.connected() == peers)
    });
    nodes
}

/// An ARP answer: the address is at the hardware address `claimed`.
fn arp(source: u8, claimed: u8, ip: Ipv4Addr) -> Vec<u8> {
    let mut frame = [mac(0), mac(source)].concat();
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    frame.extend(mac(claimed));
    frame.extend(ip.octets());
    frame.extend(mac(0));
    frame.extend(address(0).octets());
    frame
}

fn ipv4(source: u8, ip: Ipv4Addr) -> Vec<u8> {
    let mut frame = [mac(0), mac(source)].concat();
    frame.extend([8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0]);
    frame.extend(ip.octets());
    frame.extend(address(0).octets());
    frame
}

fn changes(node: &mut Mesh) -> Vec<NeighborChange> {
    std::iter::from_fn(|| node.next_change()).collect()
}

#[test]
fn thief_of_an_address_is_refused_counted_and_named() {
    let fabric = Fabric::new();
    let mut nodes = nodes(&fabric, 2, &[]);
    assert_eq!(nodes[0].conflict(), None);
    let mut liar = Liar::befriend(&fabric, &mut nodes, 9);
    let lies = [
        arp(9, 9, address(1)),
        ipv4(9, address(1)),
        arp(9, 9, address(0)),
        arp(9, 1, address(1)),
    ];
    for lie in &lies {
        liar.frame(lie);
    }
    let honest = [arp(9, 9, address(7)), ipv4(9, address(7))];
    for frame in &honest {
        liar.frame(frame);
    }
    assert_eq!(take(&mut nodes[0]).len(), honest.len());
    assert_eq!(nodes[0].port_statistics().claims_refused, lies.len() as u64);
    let conflict = Conflict {
        name: name("liar-9"),
        address: IpAddr::from(address(1)),
        owner: (mac(1), Some(name("node-1"))),
        count: lies.len() as u64,
    };
    assert_eq!(nodes[0].conflict(), Some(conflict));
    // It is known after the thief has gone.
    drop(liar);
    drive(&mut nodes, |nodes| nodes[0].connected() == 1);
    assert_eq!(nodes[0].conflict(), Some(conflict));
}

/// Both the handshake and a frame name a hardware address.
#[test]
fn hardware_address_of_another_member_is_refused() {
    let fabric = Fabric::new();
    let mut nodes = nodes(&fabric, 2, &[]);
    let mut liar = Liar::befriend(&fabric, &mut nodes, 9);
    liar.frame(&frame_to(mac(0), mac(1), b"from node-1"));
    liar.frame(&frame_to(mac(0), mac(9), b"from itself"));
    assert_eq!(take(&mut nodes[0]), [b"from itself"]);
    assert_eq!(nodes[0].port_statistics().claims_refused, 0);
}

/// A record says that a member has what another one has, which was there before.
#[test]
fn address_stays_with_its_first_member() {
    let fabric = Fabric::new();
    let mut nodes = nodes(&fabric, 2, &[("liar-9", 1)]);
    let mut liar = Liar::befriend(&fabric, &mut nodes, 9);
    assert_eq!(
        nodes[0].conflict().map(|conflict| conflict.name),
        Some(name("liar-9"))
    );
    liar.frame(&ipv4(9, address(1)));
    assert_eq!(take(&mut nodes[0]), [] as [Vec<u8>; 0]);
    assert_eq!(nodes[0].port_statistics().claims_refused, 2);
    send(&mut nodes[1], 0, b"still there").unwrap();
    assert_eq!(take(&mut nodes[0]), [b"still there"]);
}

#[test]
fn driver_hears_of_bound_and_unbound_addresses() {
    let fabric = Fabric::new();
    let mut nodes = nodes(&fabric, 2, &[]);
    let (mac, address) = (mac(1), IpAddr::from(address(1)));
    let joined = [
        NeighborChange::Joined(mac),
        NeighborChange::Bound { mac, address },
    ];
    assert_eq!(changes(&mut nodes[0]), joined);
    // The process that goes on after a killed driver hears it once more.
    nodes[0].port.mend();
    assert_eq!(changes(&mut nodes[0]), joined);
    nodes.truncate(1);
    drive(&mut nodes, |nodes| nodes[0].connected() == 0);
    let left = [
        NeighborChange::Left(mac),
        NeighborChange::Unbound { mac, address },
    ];
    assert_eq!(changes(&mut nodes[0]), left);
    // An address that no member has any more can be another member's.
    let mut liar = Liar::befriend(&fabric, &mut nodes, 9);
    liar.frame(&ipv4(9, [10, 77, 0, 1].into()));
    assert_eq!(take(&mut nodes[0]).len(), 1);
}

/// A member without addresses of its own may have spoken from an address that another one is given
/// then.
#[test]
fn address_used_before_its_owner_joined_is_refused_afterwards() {
    let fabric = Fabric::new();
    let mut nodes = nodes(&fabric, 1, &[("liar-5", 5)]);
    let mut liar = Liar::befriend(&fabric, &mut nodes, 9);
    let frame = ipv4(9, address(5));
    for _ in 0..2 {
        liar.frame(&frame);
        assert_eq!(take(&mut nodes[0]).len(), 1);
    }
    let mut owner = Liar::befriend(&fabric, &mut nodes, 5);
    liar.frame(&frame);
    assert_eq!(take(&mut nodes[0]).len(), 0);
    owner.frame(&ipv4(5, address(5)));
    assert_eq!(take(&mut nodes[0]).len(), 1);
}
