//! One port, several handles: what each process of a node has.

mod departures;
mod mappings;
mod scribbles;

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use toehold_shm::{Access, Arenas, Cells};

use super::hostile::Liar;
use super::*;
use crate::mq::control;
use crate::mq::{
    Bell, Change, Loss, MapError, Membership, PeerDescriptors, PeerState, Port, PortConfig, PortError,
};
use crate::{Fence, NeighborChange, Watch};

/// A node whose port has several handles, each with mappings of its own.
pub(super) struct Node {
    pub(super) membership: Membership,
    pub(super) ports: Vec<Port>,
    /// The node's region.
    pub(super) memory: OwnedFd,
}

/// A handle to the port in a node's region.
pub(super) fn attach(memory: OwnedFd, config: &PortConfig, bell: Bell) -> Result<Port, PortError> {
    let region = Region::open(memory, Access::ReadWrite).unwrap();
    // SAFETY: no test uses another handle to `region` while one is in use.
    let mut carver = unsafe { Carver::attach(region) };
    Port::create(&mut carver, config, bell, None)
}

impl Node {
    pub(super) fn new(settings: &MeshSettings, handles: usize) -> Node {
        let membership = Membership::join(settings).unwrap();
        let config = settings.port_config();
        let region = Region::create("test-node", Port::bytes_needed(settings.max_peers)).unwrap();
        let memory = region.fd().unwrap().try_clone_to_owned().unwrap();
        let mut carver = Carver::new(region).unwrap();
        let bell = || membership.bell().unwrap();
        let payload: Option<Arenas> = settings.payload.clone();
        let mut ports = vec![Port::create(&mut carver, &config, bell(), payload.clone()).unwrap()];
        for _ in 1..handles {
            let mut port = attach(memory.try_clone().unwrap(), &config, bell()).unwrap();
            payload
                .clone()
                .into_iter()
                .for_each(|area| port.attach_payload(area));
            ports.push(port);
        }
        Node {
            membership,
            ports,
            memory,
        }
    }

    /// What the process that connects the node does, with its own handle.
    pub(super) fn housekeeping(&mut self) {
        self.membership.housekeeping();
        loop {
            if let Some(change) = self.membership.next_change() {
                self.ports[0].apply(change).unwrap();
            } else if let Some(departed) = self.ports[0].departed() {
                self.membership.let_go(departed);
            } else {
                return;
            }
        }
    }

    /// What another process asks it for.
    fn descriptors(&self, (slot, generation): (u16, u16)) -> PeerDescriptors {
        let descriptors = self.membership.descriptors(slot, generation).unwrap().unwrap();
        PeerDescriptors::from_list(descriptors.into_list()).unwrap()
    }

    fn map_all(&mut self) {
        for handle in 0..self.ports.len() {
            while let Some((slot, generation)) = self.ports[handle].unmapped() {
                let descriptors = self.descriptors((slot, generation));
                self.ports[handle].map(slot, generation, descriptors).unwrap();
            }
        }
    }

    /// Gives both nodes turns until they are connected.
    pub(super) fn meet(&mut self, peer: &mut Mesh) {
        let deadline = Instant::now() + PATIENCE;
        while self.ports[0].connected() == 0 || peer.connected() == 0 {
            assert!(Instant::now() < deadline, "did not meet");
            self.housekeeping();
            turn(peer);
        }
        self.map_all();
    }
}

pub(super) fn frames_of(port: &mut Port, budget: usize) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    port.receive(0, budget, &mut |frame| payloads.push(whole(frame)[14..].to_vec()));
    payloads
}

pub(super) fn put(port: &mut Port, to: u8, payload: &[u8]) -> Result<(), TransmitError> {
    let frame = frame_to(mac(to), port.address(), payload);
    crate::test_frames::send(port, &frame, PARTIAL)
}

pub(super) fn is_rung(port: &Port) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let descriptor = port.descriptor().unwrap();
    poll(
        &mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)],
        Some(&now),
    ) == Ok(1)
}

fn statistics(port: &Port) -> crate::mq::PeerStatistics {
    let PeerState::Connected { statistics, .. } = port.peers()[0].state else {
        panic!("not connected")
    };
    statistics
}

#[test]
fn any_handle_continues_for_another() {
    let fabric = Fabric::new();
    let mut node = Node::new(&fabric.settings("node", 0), 3);
    let mut peer = fabric.join("peer", 1);
    node.meet(&mut peer);
    assert!(
        node.ports
            .iter()
            .all(|port| port.connected() == 1 && port.unmapped().is_none())
    );
    // The first process that asks hears of it, and no other.
    assert_eq!(node.ports[2].next_change(), Some(NeighborChange::Joined(mac(1))));
    assert_eq!(node.ports[0].next_change(), None);

    let (mut sent, mut echoed) = (0_u32, 0_u32);
    for round in 0..3000_usize {
        for _ in 0..round % 4 {
            send(&mut peer, 0, &sent.to_be_bytes().repeat(1 + sent as usize % 90)).unwrap();
            sent += 1;
        }
        // Taken by one handle, answered by another, shown to the peer by a third, or not yet.
        for payload in frames_of(&mut node.ports[round % 3], 1 + round % 2) {
            put(&mut node.ports[(round + 1) % 3], 1, &payload).unwrap();
        }
        if round % 5 != 0 {
            node.ports[(round + 2) % 3].flush();
        }
        for payload in take(&mut peer) {
            assert_eq!(payload, echoed.to_be_bytes().repeat(1 + echoed as usize % 90));
            echoed += 1;
        }
    }
    for payload in frames_of(&mut node.ports[1], usize::MAX) {
        put(&mut node.ports[0], 1, &payload).unwrap();
    }
    node.ports[2].flush();
    echoed += take(&mut peer).len() as u32;
    assert_eq!(echoed, sent);
    let counted = statistics(&node.ports[0]);
    assert_eq!(
        (counted.frames_sent, counted.frames_received),
        (u64::from(sent), u64::from(sent))
    );
}

#[test]
fn sleep_announced_by_one_handle_is_ended_by_another() {
    let fabric = Fabric::new();
    let mut node = Node::new(&fabric.settings("node", 0), 2);
    let mut peer = fabric.join("peer", 1);
    node.meet(&mut peer);
    for round in 0..100 {
        let (one, other) = (round % 2, (round + 1) % 2);
        while !node.ports[one].prepare_sleep() {}
        assert!(!is_rung(&node.ports[one]));
        send(&mut peer, 0, b"wake up").unwrap();
        // Every sleeper on the bell hears it.
        assert!(is_rung(&node.ports[0]) && is_rung(&node.ports[1]));
        node.ports[other].finish_sleep(0);
        assert!(!is_rung(&node.ports[one]));
        send(&mut peer, 0, b"awake").unwrap();
        assert!(!is_rung(&node.ports[one]), "nobody sleeps");
        assert_eq!(frames_of(&mut node.ports[one], 8), [&b"wake up"[..], b"awake"]);
    }
    // The process that sleeps announces that it waits for room, too.
    while put(&mut node.ports[0], 1, &[7; 1400]).is_ok() {}
    node.ports[0].flush();
    while !node.ports[1].prepare_sleep() {}
    assert!(!take(&mut peer).is_empty());
    assert!(is_rung(&node.ports[0]), "there is room");
    node.ports[0].finish_sleep(0);
    assert_eq!(put(&mut node.ports[0], 1, b"room"), Ok(()));
}

#[test]
fn payload_sent_by_one_handle_is_fenced_for_all() {
    let fabric = Fabric::new();
    let mut payload = shared_payload(4);
    let settings = MeshSettings {
        payload: Some(payload.arenas().clone()),
        ..fabric.settings("node", 0)
    };
    let mut node = Node::new(&settings, 2);
    let mut peer = fabric.join("peer", 1);
    node.meet(&mut peer);
    let block = block_for(&mut payload, &node.ports[0]);
    let headers = frame_to(mac(1), mac(0), &[0xab; 52]);
    let frame = Transmit {
        headers: &headers,
        payload: &Gather::from_slice(payload.bytes(block)),
        offload: Offload {
            checksum: Checksum::Partial,
            segment_size: 1448,
        },
    };
    node.ports[0].transmit(&frame).unwrap();
    let fence = node.ports[1].fence(mac(1), &flow());
    assert_ne!(fence, Fence::default());
    node.ports[1].flush();
    assert_eq!(statistics(&node.ports[1]).frames_sent_by_reference, 1);
    assert!(node.ports.iter().all(|port| !port.passed(fence)));
    // One that has no mapping cannot tell, and does not guess.
    let stranger = attach(
        node.memory.try_clone().unwrap(),
        &settings.port_config(),
        node.membership.bell().unwrap(),
    )
    .unwrap();
    assert_eq!(take(&mut peer).len(), 1);
    assert!(node.ports.iter().all(|port| port.passed(fence)));
    assert!(!stranger.passed(fence));
    drop(peer);
    while node.ports[0].connected() != 0 {
        node.housekeeping();
    }
    assert!(stranger.passed(fence));
}

#[test]
fn membership_change_wakes_sleeping_handle() {
    let fabric = Fabric::new();
    let mut node = Node::new(&fabric.settings("node", 0), 2);
    assert!(node.ports[1].prepare_sleep());
    assert!(!is_rung(&node.ports[1]));
    let mut peer = fabric.join("peer", 1);
    node.meet(&mut peer);
    assert!(is_rung(&node.ports[1]));
    node.ports[1].finish_sleep(0);
    node.ports[1].receive(0, 0, &mut |_| {});
    assert!(node.ports[1].prepare_sleep());
    drop(peer);
    while node.ports[0].connected() != 0 {
        node.housekeeping();
    }
    assert!(is_rung(&node.ports[1]));
    node.ports[1].finish_sleep(0);
    assert_eq!(node.ports[1].next_change(), Some(NeighborChange::Joined(mac(1))));
    assert_eq!(node.ports[1].next_change(), Some(NeighborChange::Left(mac(1))));
}

#[test]
fn watch_sees_frames_without_the_port() {
    let fabric = Fabric::new();
    let mut node = Node::new(&fabric.settings("node", 0), 1);
    let mut peer = fabric.join("peer", 1);
    let mut watch = Watch::new();
    assert!(
        node.ports[0].watch(&mut watch) && !watch.changed(),
        "nobody is there"
    );
    node.meet(&mut peer);
    for round in 0..1000_u32 {
        assert!(node.ports[0].watch(&mut watch));
        assert!(!watch.changed());
        if round % 2 == 0 {
            send(&mut peer, 0, &[7; 900]).unwrap();
        } else {
            // As it is meant: a thread looks, while another process sends.
            std::thread::scope(|scope| {
                let spinner = scope.spawn(|| {
                    while !watch.changed() {
                        std::thread::yield_now();
                    }
                });
                send(&mut peer, 0, &[7; 900]).unwrap();
                spinner.join().unwrap();
            });
        }
        assert!(watch.changed());
        assert_eq!(frames_of(&mut node.ports[0], 8).len(), 1);
    }
    // Room cannot be watched for.
    while put(&mut node.ports[0], 1, &[7; 1400]).is_ok() {}
    assert!(!node.ports[0].watch(&mut watch));
    // The memory it looks at outlives the peer, and the port.
    take(&mut peer);
    put(&mut node.ports[0], 1, b"room").unwrap();
    assert!(node.ports[0].watch(&mut watch));
    drop((node, peer));
    let _ = watch.changed();
}

#[test]
fn port_with_other_settings_returns_mismatch() {
    let fabric = Fabric::new();
    let node = Node::new(&fabric.settings("node", 0), 1);
    let config = fabric.settings("node", 0).port_config();
    let with = |change: fn(&mut PortConfig)| {
        let mut config = config;
        change(&mut config);
        let memory = node.memory.try_clone().unwrap();
        attach(memory, &config, node.membership.bell().unwrap()).map(drop)
    };
    assert_eq!(with(|_| {}), Ok(()));
    assert_eq!(with(|config| config.mac[5] = 7), Err(PortError::Mismatch));
    assert_eq!(with(|config| config.mtu = 9000), Err(PortError::Mismatch));
    assert_eq!(with(|config| config.max_peers = 0), Err(PortError::MaxPeers(0)));
    assert_eq!(
        with(|config| config.max_peers = 513),
        Err(PortError::MaxPeers(513))
    );
    assert!(matches!(
        with(|config| config.max_peers = 128),
        Err(PortError::OutOfMemory(_))
    ));
}
