//! Peers that have direct connections, and peers that have none.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use toehold_shm::direct::{Directory, Side, WaiterNumber};

use super::*;
use crate::mq::{BankMemory, DirectChange, MAX_BANKS};

/// A node with direct connections.
pub(super) fn join(fabric: &Fabric, name: &str, number: u8) -> Mesh {
    let settings = MeshSettings {
        direct: Some(Directory::create("test-directory", 1).unwrap()),
        ..fabric.settings(name, number)
    };
    Mesh::join(&settings).unwrap()
}

/// The changes that a node has been told.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) met: Vec<(u16, u16, NodeName)>,
    pub(super) banks: Vec<(Side, u8, Box<BankMemory>)>,
    pub(super) declined: u32,
    pub(super) parted: u32,
}

impl Heard {
    pub(super) fn hear(&mut self, node: &mut Mesh) {
        while let Some(change) = node.membership.next_direct_change() {
            match change {
                DirectChange::Met {
                    slot,
                    generation,
                    peer,
                    ..
                } => self.met.push((slot, generation, peer.name)),
                DirectChange::Bank {
                    side, number, memory, ..
                } => self.banks.push((side, number, memory)),
                DirectChange::Declined { .. } => self.declined += 1,
                DirectChange::Parted { .. } => self.parted += 1,
            }
        }
    }

    fn count(&self, wanted: Side) -> usize {
        self.banks.iter().filter(|(side, ..)| *side == wanted).count()
    }
}

pub(super) fn hear_all(nodes: &mut [Mesh], heard: &mut [Heard]) {
    nodes
        .iter_mut()
        .zip(heard)
        .for_each(|(node, heard)| heard.hear(node));
}

/// A ring of one side is heard by the other one, on the bell of that waiter alone.
fn assert_rings(from: &BankMemory, to: &BankMemory) {
    let number = |number| WaiterNumber::new(number).unwrap();
    let (ours, theirs) = (from.bells.as_ref().unwrap(), to.bells.as_ref().unwrap());
    ours.peer.ring(number(5));
    let is_rung = |waiter| {
        let mut polled = [PollFd::from_borrowed_fd(
            theirs.own.bell_of(waiter),
            PollFlags::IN,
        )];
        poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
    };
    assert!(is_rung(number(5)) && !is_rung(number(6)));
}

#[test]
fn peers_with_direct_connections_have_a_bank_each_way() {
    let fabric = Fabric::new();
    let mut nodes = [join(&fabric, "node-0", 0), join(&fabric, "node-1", 1)];
    let mut heard = [Heard::default(), Heard::default()];
    drive(&mut nodes, |nodes| {
        hear_all(nodes, &mut heard);
        heard.iter().all(|heard| heard.banks.len() == 2)
    });
    for (own, other) in [(0, 1), (1, 0)] {
        assert_eq!(heard[own].met[0].2, name(&format!("node-{other}")));
        let inode = |file: BorrowedFd<'_>| rustix::fs::fstat(file).unwrap().st_ino;
        for (side, number, memory) in &heard[own].banks {
            assert_eq!(*number, 0);
            let theirs = heard[other].banks.iter().find(|(there, ..)| there != side);
            let (.., theirs) = theirs.unwrap();
            assert_eq!(inode(memory.own_half.fd()), inode(theirs.peer_half.fd()));
            assert_eq!(inode(memory.own_signals.fd()), inode(theirs.peer_signals.fd()));
            // The half of the other one can only be read.
            let refused = rustix::io::pwrite(memory.peer_half.fd(), b"x", 0);
            assert_eq!(refused, Err(rustix::io::Errno::BADF));
            assert_rings(memory, theirs);
        }
    }
    assert!(nodes.iter().all(|node| node.statistics().direct_refused == 0));
}

#[test]
fn peer_without_direct_connections_exchanges_frames_only() {
    let fabric = Fabric::new();
    let mut nodes = [join(&fabric, "node-0", 0), fabric.join("node-1", 1)];
    drive(&mut nodes, |nodes| nodes.iter().all(|node| node.connected() == 1));
    for _ in 0..10 {
        nodes.iter_mut().for_each(turn);
    }
    send(&mut nodes[0], 1, b"frame").unwrap();
    assert_eq!(take(&mut nodes[1]), [b"frame"]);
    let mut heard = [Heard::default(), Heard::default()];
    hear_all(&mut nodes, &mut heard);
    assert!(heard.iter().all(|heard| heard.met.is_empty()));
    assert!(nodes.iter().all(|node| node.statistics().direct_refused == 0));
}

#[test]
fn node_opens_banks_up_to_the_limit() {
    let fabric = Fabric::new();
    let mut nodes = [join(&fabric, "node-0", 0), join(&fabric, "node-1", 1)];
    let mut heard = [Heard::default(), Heard::default()];
    let most = usize::from(MAX_BANKS);
    drive(&mut nodes, |nodes| {
        hear_all(nodes, &mut heard);
        if let Some(&(slot, generation, _)) = heard[0].met.first() {
            nodes[0].membership.open_bank(slot, generation);
        }
        heard[0].count(Side::Opening) == most && heard[1].count(Side::Accepting) == most
    });
    let numbers: Vec<u8> = heard[0]
        .banks
        .iter()
        .filter(|(side, ..)| *side == Side::Opening)
        .map(|(_, number, _)| *number)
        .collect();
    assert_eq!(numbers, (0..MAX_BANKS).collect::<Vec<_>>());
    let (slot, generation, _) = heard[0].met[0];
    assert!(!nodes[0].membership.open_bank(slot, generation));
    assert!(!nodes[0].membership.open_bank(slot, generation + 1));
    assert_eq!(heard[1].count(Side::Opening), 1);
}

#[test]
fn ended_peer_has_parted() {
    let fabric = Fabric::new();
    let mut nodes = vec![join(&fabric, "node-0", 0), join(&fabric, "node-1", 1)];
    let mut heard = [Heard::default(), Heard::default()];
    drive(&mut nodes, |nodes| {
        hear_all(nodes, &mut heard);
        heard.iter().all(|heard| heard.banks.len() == 2)
    });
    drop(nodes.pop());
    drive(&mut nodes, |nodes| {
        heard[0].hear(&mut nodes[0]);
        heard[0].parted == 1
    });
    // Another life of it is met anew.
    nodes.push(join(&fabric, "node-1", 1));
    drive(&mut nodes, |nodes| {
        heard[0].hear(&mut nodes[0]);
        heard[0].met.len() == 2 && heard[0].banks.len() == 4
    });
}
