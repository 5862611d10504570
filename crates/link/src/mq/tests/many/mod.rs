//! As many peers as there can be, most of them silent.

mod model;

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use toehold_shm::Gather;

use super::{Fabric, PARTIAL, PATIENCE, elsewhere, frame_to, next_ms, take, turn, whole};
use crate::mq::activity::{FEW, LOOKS};
use crate::mq::{Mesh, MeshSettings, PeerState};
use crate::{Link, NeighborChange, Received, Transmit, TransmitError, Transmitter};

const NODES: usize = 512;

const BROADCAST: [u8; 6] = [0xff; 6];

fn mac(number: usize) -> [u8; 6] {
    let [high, low] = (number as u16).to_be_bytes();
    [2, 0, 0, 0, high, low]
}

/// Node 0, and others that are each connected with that one alone. One process cannot have the
/// resources of a mesh of all with all.
struct Star {
    fabric: Fabric,
    hub: Mesh,
    others: Vec<Option<Mesh>>,
}

impl Star {
    /// Room for `room` nodes, of which none but the first is there.
    fn new(room: usize) -> Star {
        let fabric = Fabric::new();
        let settings = MeshSettings {
            max_peers: room - 1,
            ..MeshSettings::new(fabric.path(), "hub".parse().unwrap(), mac(0))
        };
        let hub = Mesh::join(&settings).unwrap();
        let others = std::iter::repeat_with(|| None).take(room).collect();
        Star { fabric, hub, others }
    }

    fn join(&mut self, number: usize) {
        let settings = MeshSettings {
            max_peers: 1,
            ring_capacity: MeshSettings::MIN_RING_CAPACITY,
            ..MeshSettings::new(
                self.fabric.path(),
                format!("n{number}").parse().unwrap(),
                mac(number),
            )
        };
        let mut node = Mesh::join(&settings).unwrap();
        let (before, deadline) = (self.hub.connected(), Instant::now() + PATIENCE);
        while node.connected() == 0 || self.hub.connected() == before {
            assert!(Instant::now() < deadline, "{:?}", node.peers());
            node.settle(Duration::ZERO);
            turn(&mut self.hub);
        }
        self.others[number] = Some(node);
    }

    fn other(&mut self, number: usize) -> &mut Mesh {
        self.others[number].as_mut().unwrap()
    }

    fn is_there(&self, number: usize) -> bool {
        self.others[number].is_some()
    }

    /// The numbers of those that are there.
    fn numbers(&self) -> Vec<usize> {
        let numbers = 1..self.others.len();
        numbers.filter(|number| self.is_there(*number)).collect()
    }
}

fn send(node: &mut Mesh, to: [u8; 6], payload: &[u8]) -> Result<(), TransmitError> {
    let frame = frame_to(to, node.address(), payload);
    let sent = node.transmit(&Transmit {
        headers: &frame,
        payload: &Gather::EMPTY,
        offload: PARTIAL,
    });
    node.flush();
    sent
}

/// Whether it was rung.
fn is_readable(node: &Mesh) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let descriptor = node.port.descriptor().unwrap();
    poll(
        &mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)],
        Some(&now),
    ) == Ok(1)
}

/// As many descriptors as the system allows.
fn raise_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    assert!(maximum.is_none_or(|maximum| maximum >= 16_384), "{maximum:?}");
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )
    .unwrap();
}

/// Rounds that find nothing, until no peer counts as lively.
fn grow_silent(hub: &mut Mesh) {
    for _ in 0..1024 + NODES / LOOKS {
        assert_eq!(hub.port.receive(0, 64, &mut |_| {}), 0);
    }
    assert!(hub.port.state.head().activity.lively().is_empty());
}

#[test]
fn fabric_has_512_nodes() {
    if elsewhere("mq::tests::many::fabric_has_512_nodes") {
        return;
    }
    raise_descriptor_limit();
    let mut star = Star::new(NODES);
    let mut one = None;
    for nodes in [16, 64, NODES] {
        for number in star.numbers().len() + 1..nodes {
            star.join(number);
            send(&mut star.hub, mac(number), b"met").unwrap();
            send(star.other(number), mac(0), b"met").unwrap();
            assert_eq!(take(star.other(number)), [b"met"]);
        }
        assert_eq!(
            take(&mut star.hub).len() + 1,
            nodes - one.map_or(0, |(nodes, _)| nodes - 1)
        );
        // What the rings take goes by the peers that are met.
        let memory = star.hub.membership.memory();
        let (_, each) = *one.get_or_insert((nodes, memory / (nodes as u64 - 1)));
        one = Some((nodes, each));
        assert_eq!(memory, each * (nodes as u64 - 1));
        println!("{nodes} nodes: rings of {memory} bytes");
    }
    broadcasts_reach_all(&mut star);
    a_node_comes_back(&mut star, 300);
    // No peer has frames, and no peer wakes another one.
    grow_silent(&mut star.hub);
    assert!(star.hub.prepare_sleep() && !is_readable(&star.hub));
    let late = star.numbers().len();
    send(star.other(late), mac(0), b"late").unwrap();
    assert!(is_readable(&star.hub));
    star.hub.finish_sleep(next_ms());
    assert_eq!(
        star.hub.port.state.head().activity.resting().iter().count(),
        NODES - 2
    );
    assert_eq!(take(&mut star.hub), [b"late"]);
}

fn broadcasts_reach_all(star: &mut Star) {
    for number in star.numbers() {
        send(star.other(number), BROADCAST, &(number as u16).to_le_bytes()).unwrap();
    }
    let mut heard = [false; NODES];
    let deadline = Instant::now() + PATIENCE;
    while heard[1..].contains(&false) {
        assert!(Instant::now() < deadline);
        let mut handler = |frame: &Received<'_>| {
            let said = whole(frame)[14..16].try_into().unwrap();
            heard[usize::from(u16::from_le_bytes(said))] = true;
        };
        star.hub.receive(0, 64, &mut handler);
    }
    send(&mut star.hub, BROADCAST, b"all").unwrap();
    for number in star.numbers() {
        assert_eq!(take(star.other(number)), [b"all"], "{number}");
    }
}

fn a_node_comes_back(star: &mut Star, number: usize) {
    star.others[number] = None;
    let deadline = Instant::now() + PATIENCE;
    while star.hub.connected() == NODES - 1 {
        assert!(Instant::now() < deadline);
        turn(&mut star.hub);
    }
    assert_eq!(
        send(&mut star.hub, mac(number), b"anybody?"),
        Err(TransmitError::Unreachable)
    );
    star.join(number);
    send(&mut star.hub, mac(number), b"again").unwrap();
    assert_eq!(take(star.other(number)), [b"again"]);
    send(star.other(number), mac(0), b"yes").unwrap();
    let mut heard = Vec::new();
    while heard.is_empty() {
        assert!(Instant::now() < deadline);
        heard = take(&mut star.hub);
    }
    assert_eq!(heard, [b"yes"]);
    let mut changes = std::iter::from_fn(|| star.hub.next_change());
    let last = changes.by_ref().last();
    assert_eq!(last, Some(NeighborChange::Joined(mac(number))));
}

#[test]
fn round_looks_at_active_peers_and_a_few_others() {
    let mut star = Star::new(41);
    (1..=40).for_each(|number| star.join(number));
    assert!(star.hub.connected() > FEW + 2 * LOOKS);
    grow_silent(&mut star.hub);
    // One that is silent has its turn after so many rounds.
    send(star.other(33), mac(0), b"first").unwrap();
    let rounds = (1..).find(|_| star.hub.port.receive(0, 64, &mut |_| {}) == 1);
    assert!(
        rounds.is_some_and(|rounds| rounds <= 40_usize.div_ceil(LOOKS)),
        "{rounds:?}"
    );
    // From then on it is looked at in every round, as is each peer that is sent frames.
    send(&mut star.hub, mac(11), b"question").unwrap();
    for _ in 0..100 {
        for number in [33, 11] {
            assert!(star.hub.port.is_quiet());
            send(star.other(number), mac(0), b"more").unwrap();
            assert!(!star.hub.port.is_quiet());
            assert_eq!(star.hub.port.receive(0, 64, &mut |_| {}), 1);
        }
    }
}

#[test]
fn ringing_peer_is_looked_at_in_the_next_round() {
    let mut star = Star::new(41);
    (1..=40).for_each(|number| star.join(number));
    grow_silent(&mut star.hub);
    for number in [7, 29, 40, 7] {
        assert!(star.hub.prepare_sleep() && !is_readable(&star.hub));
        send(star.other(number), mac(0), b"wake up").unwrap();
        assert!(is_readable(&star.hub));
        star.hub.port.finish_sleep(0);
        assert_eq!(star.hub.port.receive(0, 64, &mut |_| {}), 1, "{number}");
    }
    let rings = |node: &Mesh| match node.peers()[0].state {
        PeerState::Connected { statistics, .. } => statistics.rings,
        _ => panic!("lost"),
    };
    assert_eq!([7, 8].map(|number| rings(star.other(number))), [2, 0]);
}
