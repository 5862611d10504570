//! Two real processes of one node that drive its port in turns, of which one is
//! killed.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};

use super::port::{Node, attach, frames_of, put};
use super::*;
use crate::mq::control::{self, Packet};
use crate::mq::{Bell, PeerDescriptors, Port};
use crate::{Link, NeighborChange};

const SOCKET: &str = "TOEHOLD_TEST_PROGRAM_SOCKET";

/// What the node's engine tells a program: that it has the lease, and may map a peer.
const TURN: u8 = b't';
const PEER: u8 = b'p';
/// Has the lease, and will not give it back.
const DIE: u8 = b'd';
/// Has the lease, and uses it until it is killed.
const RUN: u8 = b'r';

/// The engine's end of a program.
pub(super) struct Program {
    child: Child,
    socket: OwnedFd,
}

impl Program {
    pub(super) fn start(fabric: &Fabric, node: &Node) -> Program {
        let path = fabric.path().join("control");
        let _ = std::fs::remove_file(&path);
        let listener = control::listen(&path).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "mq::tests::programs::program", "--nocapture"])
            .env(SOCKET, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let socket = until(|| control::accept(listener.as_fd()).unwrap());
        let [receiver, sender] = node.membership.bell().unwrap().into_descriptors();
        let region = [node.memory.as_fd(), receiver.as_fd(), sender.as_fd()];
        control::send(socket.as_fd(), b"r", &region).unwrap();
        Program { child, socket }
    }

    /// Tells it something, and waits for the answer.
    fn tell(&self, message: &[u8], descriptors: PeerList) -> Vec<u8> {
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        control::send(self.socket.as_fd(), message, &borrowed).unwrap();
        hear(&self.socket).expect("it lives").0
    }

    /// Lends it the lease, and lets it do whatever can be done with it.
    pub(super) fn run(&self, seed: u64) {
        let mut message = vec![RUN];
        message.extend(seed.to_le_bytes());
        assert_eq!(self.tell(&message, Vec::new()), b"running");
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lends it the lease for a round.
    pub(super) fn drive(&self, node: &Node) -> Vec<u8> {
        loop {
            match self.tell(&[TURN], Vec::new())[..] {
                [PEER, slot, low, high] => {
                    let generation = u16::from_le_bytes([low, high]);
                    let descriptors = node.membership.descriptors(slot.into(), generation).unwrap();
                    let list = descriptors.unwrap().into_list();
                    assert_eq!(self.tell(&[PEER, slot, low, high], list), b"mapped");
                }
                ref done => return done.to_vec(),
            }
        }
    }
}

type PeerList = Vec<OwnedFd>;

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(done) = what() {
            return done;
        }
        assert!(Instant::now() < deadline, "did not happen");
        std::thread::yield_now();
    }
}

/// The next message; `None` when the other process is gone.
fn hear(socket: &OwnedFd) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut buffer = [0; 64];
    until(|| match control::receive(socket.as_fd(), &mut buffer) {
        Packet::Nothing => None,
        Packet::Message(len, descriptors) => Some(Some((buffer[..len].to_vec(), descriptors))),
        _ => Some(None),
    })
}

/// Not a test of its own: the program of the test below. It echoes frames in its turns.
#[test]
fn program() {
    let Ok(path) = std::env::var(SOCKET) else {
        return;
    };
    let socket = control::dial(Path::new(&path)).unwrap();
    let (_, descriptors) = hear(&socket).unwrap();
    let [region, receiver, sender] = <[OwnedFd; 3]>::try_from(descriptors).unwrap();
    let settings = MeshSettings::new("unused", name("node"), mac(0));
    let bell = Bell::from_descriptors([receiver, sender]);
    let mut port = attach(region, &settings.port_config(), bell).unwrap();
    while let Some((message, descriptors)) = hear(&socket) {
        match message[..] {
            [TURN] => {
                let answer = match port.unmapped() {
                    Some((slot, generation)) => {
                        let [low, high] = generation.to_le_bytes();
                        vec![PEER, slot as u8, low, high]
                    }
                    None => echo(&mut port),
                };
                control::send(socket.as_fd(), &answer, &[]).unwrap();
            }
            [PEER, slot, low, high] => {
                let descriptors = PeerDescriptors::from_list(descriptors).unwrap();
                port.map(slot.into(), u16::from_le_bytes([low, high]), descriptors)
                    .unwrap();
                control::send(socket.as_fd(), b"mapped", &[]).unwrap();
            }
            [DIE] => {
                // In the middle of a round: records committed, all but the first not shown.
                for content in [0xaa, 0xdd] {
                    let frame = frame_to(mac(1), mac(0), &[content; 1000]);
                    crate::test_frames::send(&mut port, &frame, PARTIAL).unwrap();
                }
                control::send(socket.as_fd(), b"dying", &[]).unwrap();
            }
            [RUN, ..] => {
                control::send(socket.as_fd(), b"running", &[]).unwrap();
                let seed = <[u8; 8]>::try_from(&message[1..]).unwrap();
                super::mend::use_it(&mut port, u64::from_le_bytes(seed), || {
                    matches!(control::receive(socket.as_fd(), &mut [0]), Packet::Nothing)
                });
            }
            _ => panic!("{message:?}"),
        }
    }
}

/// Answers the frames that are there. Then sleeps in the node's name; the next driver takes that
/// back.
fn echo(port: &mut Port) -> Vec<u8> {
    port.finish_sleep(0);
    let frames = frames_of(port, 64);
    for payload in &frames {
        put(port, 1, payload).unwrap();
    }
    port.flush();
    port.prepare_sleep();
    vec![frames.len() as u8]
}

#[test]
fn processes_of_node_take_turns_and_one_death_ends_one_life() {
    let fabric = Fabric::new();
    let mut peer = fabric.join("peer", 1);
    let mut lives = Vec::new();
    for _ in 0..3 {
        let mut node = Node::new(&fabric.settings("node", 0), 1);
        lives.push(node.membership.incarnation());
        let program = Program::start(&fabric, &node);
        node.meet(&mut peer);
        let mut taken = [0; 2];
        for round in 0..400_u32 {
            let payload = round.to_be_bytes().repeat(1 + round as usize % 300);
            send(&mut peer, 0, &payload).unwrap();
            let whose = usize::from(round % 3 == 0);
            taken[whose] += match whose {
                0 => usize::from(echo(&mut node.ports[0])[0]),
                _ => usize::from(program.drive(&node)[0]),
            };
            assert_eq!(take(&mut peer), [payload], "round {round}");
        }
        assert_eq!(taken[0] + taken[1], 400);
        assert!(taken[1] > 100);
        // The program dies with the lease. Its node begins a new life with all new memory.
        assert_eq!(program.tell(&[DIE], Vec::new()), b"dying");
        drop((program, node));
        let seen = take(&mut peer);
        drive(std::slice::from_mut(&mut peer), |peer| peer[0].connected() == 0);
        assert_eq!(seen, [[0xaa; 1000]], "what was not shown is not seen");
        assert!(take(&mut peer).is_empty());
    }
    let joined = NeighborChange::Joined(mac(0));
    let left = NeighborChange::Left(mac(0));
    let changes: Vec<_> = std::iter::from_fn(|| peer.next_change()).collect();
    assert_eq!(changes, [joined, left].repeat(3));
    lives.dedup();
    assert_eq!(lives.len(), 3);
}
