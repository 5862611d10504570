//! One port, several handles: what each process of a node has.

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
    // SAFETY: the tests use one handle at a time.
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
fn any_handle_goes_on_where_another_stopped() {
    let fabric = Fabric::new();
    let mut node = Node::new(&fabric.settings("node", 0), 3);
    let mut peer = fabric.join("peer", 1);
    node.meet(&mut peer);
    assert!(
        node.ports
            .iter()
            .all(|port| port.connected() == 1 && port.unmapped().is_none())
    );
    // Whoever asks first hears of it, and nobody a second time.
    assert_eq!(node.ports[2].next_change(), Some(NeighborChange::Joined(mac(1))));
    assert_eq!(node.ports[0].next_change(), None);

    let (mut sent, mut echoed) = (0_u32, 0_u32);
    for round in 0..3000_usize {
        for _ in 0..round % 4 {
            send(&mut peer, 0, &sent.to_be_bytes().repeat(1 + sent as usize % 90)).unwrap();
            sent += 1;
        }
        // Taken by one, answered by another, shown to the peer by a third, or nobody yet.
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
fn what_one_handle_announces_another_takes_back() {
    let fabric = Fabric::new();
    let mut node = Node::new(&fabric.settings("node", 0), 2);
    let mut peer = fabric.join("peer", 1);
    node.meet(&mut peer);
    for round in 0..100 {
        let (one, other) = (round % 2, (round + 1) % 2);
        while !node.ports[one].prepare_sleep() {}
        assert!(!is_rung(&node.ports[one]));
        send(&mut peer, 0, b"wake up").unwrap();
        // Everybody who sleeps on the bell hears it.
        assert!(is_rung(&node.ports[0]) && is_rung(&node.ports[1]));
        node.ports[other].finish_sleep(0);
        assert!(!is_rung(&node.ports[one]));
        send(&mut peer, 0, b"awake").unwrap();
        assert!(!is_rung(&node.ports[one]), "nobody sleeps");
        assert_eq!(frames_of(&mut node.ports[one], 8), [&b"wake up"[..], b"awake"]);
    }
    // Waiting for room is announced by whoever sleeps, too.
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

/// A peer joins honestly and changes its memory then. A process that attaches later cannot map it.
#[test]
fn peer_that_changes_its_memory_is_cut_off_and_others_are_mapped() {
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
fn peer_that_a_process_skips_keeps_it_from_nothing() {
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
fn a_peer_that_is_not_mapped_is_left_to_others() {
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

#[test]
fn a_change_wakes_whoever_sleeps() {
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
fn a_liar_found_by_any_handle_is_cut_off_by_the_membership() {
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
    // Told again, it is nobody's any more.
    node.membership.let_go(departed);
    assert_eq!(node.membership.statistics().corrupt, 1);
    send(&mut honest, 0, b"unharmed").unwrap();
    assert_eq!(frames_of(&mut node.ports[0], 8), [b"unharmed"]);
}

/// Programs outlive the process that connected their node, for a moment: the node is
/// gone for its peers at once, whatever the programs still write.
#[test]
fn a_node_ends_with_its_membership() {
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

/// Without anybody who takes them, frames of a node that left are not waited for
/// longer than the ring lasts.
#[test]
fn writing_on_after_the_end_ends_too() {
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

#[test]
fn a_watch_sees_frames_without_the_port() {
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
fn ports_of_other_settings_are_told_apart() {
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

/// Whoever maps the region may scribble on it, dying or by mistake. The node is lost
/// then, but nothing panics, goes on for ever, or reaches outside of the rings.
#[test]
fn a_scribbled_state_is_survived() {
    let fabric = Fabric::new();
    let mut random = crate::random::Random::new(7);
    for round in 0..60_u64 {
        let mut node = Node::new(&fabric.settings("node", 0), 2);
        let mut peer = fabric.join("peer", 1);
        node.meet(&mut peer);
        let len = Port::bytes_needed(64);
        let mut scribbler = Cells::open(node.memory.try_clone().unwrap(), 0).unwrap();
        for _ in 0..20 {
            for _ in 0..1 + round % 40 {
                // In the parts that matter, often.
                let place = random.below(if round % 2 == 0 { 1024 } else { len as u64 - 8 });
                let word = match random.below(4) {
                    0 => random.below(256),
                    1 => u64::MAX - random.below(256),
                    2 => random.below(1 << 24) & !63,
                    _ => random.next(),
                };
                scribbler.copy_in(place as usize, &word.to_ne_bytes());
            }
            let _ = send(&mut peer, 0, &[7; 300]);
            take(&mut peer);
            for port in &mut node.ports {
                let _ = frames_of(port, 64);
                let _ = (put(port, 1, &[1; 700]), put(port, 255, b"to all"));
                let _ = crate::test_frames::send(port, &frame_to([0xff; 6], mac(0), &[2; 60]), PARTIAL);
                port.flush();
                let fence = port.fence(mac(1), &flow());
                let _ = (port.passed(fence), port.passed(Fence(random.next())));
                let _ = (port.peers(), port.connected(), port.statistics(), port.unmapped());
                let mut watch = Watch::new();
                let _ = port.watch(&mut watch) && watch.changed();
                if port.prepare_sleep() {
                    port.finish_sleep(0);
                }
                (0..600).for_each(|_| _ = port.next_change());
                let _ = port.departed();
            }
            let slot = random.below(2 * MeshSettings::MAX_PEERS as u64) as u16;
            let _ = node.ports[0].apply(Change::Left {
                slot,
                generation: 1,
                at_once: round % 3 == 0,
            });
        }
    }
}
