//! Programs are killed at any moment; others go on.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::Duration;

use toehold_node::Placement;
use toehold_socket::{Node, TcpStream};

use crate::processes::{Part, Process};
use crate::programs::{echo, is_gone};
use crate::support::{
    Random, World, assert_empty, eventually, fabric, mends, pattern, resets, serve_echoes, within,
};

/// Programs of the node of which some are killed.
const PROGRAMS: usize = 3;

/// A program that goes on whatever happens to others.
pub(crate) struct Witness {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    /// Echoes that came back.
    echoes: Arc<AtomicU64>,
    /// How often its connection was lost, or its node gone under it.
    losses: Arc<AtomicU64>,
}

impl Witness {
    pub(crate) fn start(path: &Path, node: &str, peer: SocketAddr) -> Witness {
        let stop = Arc::new(AtomicBool::new(false));
        let [echoes, losses] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let (path, node): (PathBuf, _) = (path.to_owned(), node.to_owned());
        let thread = std::thread::spawn({
            let (stop, echoes, losses) = (stop.clone(), echoes.clone(), losses.clone());
            move || {
                while !stop.load(Acquire) {
                    // Refused as long as the node begins anew.
                    let Ok(node) = Node::attach(&fabric(&path), &node) else {
                        continue;
                    };
                    if !witness(&node, peer, &stop, &echoes) {
                        losses.fetch_add(1, Relaxed);
                    }
                }
            }
        });
        Witness {
            thread,
            stop,
            echoes,
            losses,
        }
    }

    /// Waits for some more echoes.
    pub(crate) fn goes_on(&self) {
        let before = self.echoes.load(Relaxed);
        eventually("a program does not go on", || {
            let echoes = self.echoes.load(Relaxed) - before;
            (echoes > 3).then_some(()).ok_or(echoes)
        });
    }

    /// How often it lost its connection.
    pub(crate) fn end(self) -> u64 {
        self.stop.store(true, Release);
        self.thread.join().unwrap();
        self.losses.load(Relaxed)
    }
}

/// Echoes until it is stopped. Returns `false` if the connection was lost.
fn witness(node: &Node, peer: SocketAddr, stop: &AtomicBool, echoes: &AtomicU64) -> bool {
    let data = pattern(5000);
    let one = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(node, peer)?;
        while !stop.load(Acquire) {
            echo(&mut stream, &data)?;
            echoes.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    let result = one();
    if let Err(error) = &result {
        assert!(is_gone(error), "{error}");
    }
    result.is_ok()
}

fn programs_are_killed(kills: usize, seed: u64) {
    println!("seed {seed}");
    let world = World::new(&["server", "other"], Placement::Adaptive);
    let path = world.path();
    let server = world.attach("server");
    let peer = serve_echoes(&server, world.address(0));
    let mut random = Random::new(seed);
    let engine = Process::start(Part {
        role: "engine",
        fabric: path,
        node: "busy",
        peer: None,
        seed: random.next(),
    });
    let start = |role, seed| {
        Process::start(Part {
            role,
            fabric: path,
            node: "busy",
            peer: Some(peer),
            seed,
        })
    };
    let mut programs: Vec<Process> = (0..PROGRAMS).map(|_| start("load", random.next())).collect();
    drop(programs.drain(..));
    assert_empty(path, "busy");
    let (descriptors, memory) = (engine.descriptors(), engine.private_memory());
    let beside = Witness::start(path, "busy", peer);
    let elsewhere = Witness::start(path, "other", peer);
    let mut killed = 0;
    while killed < kills {
        while programs.len() < PROGRAMS {
            // One of eight dies with the lease.
            let role = if random.below(8) == 0 { "holder" } else { "load" };
            programs.push(start(role, random.next()));
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        let at_once = 1 + random.below(PROGRAMS as u64) as usize;
        let victims: Vec<Process> = (0..at_once)
            .map(|_| programs.remove(random.below(programs.len() as u64) as usize))
            .collect();
        victims.iter().for_each(Process::kill);
        killed += victims.len();
        drop(victims);
        if programs.is_empty() {
            beside.goes_on();
        }
        elsewhere.goes_on();
    }
    drop(programs);
    beside.goes_on();
    let (resets, mends) = (resets(path, "busy"), mends(path, "busy"));
    assert_eq!(
        elsewhere.end(),
        0,
        "a program of another node lost its connection"
    );
    let losses = beside.end();
    println!("{killed} killed, {mends} of them in the stack; another program lost {losses} connections");
    assert_eq!(resets, 0, "a life was lost");
    assert!(losses <= mends, "{losses} > {mends}");
    assert_empty(path, "busy");
    eventually("the engine keeps descriptors", || {
        let now = engine.descriptors();
        (now <= descriptors).then_some(()).ok_or((now, descriptors))
    });
    let now = engine.private_memory();
    assert!(
        now < memory + 4096,
        "the engine has {now} KiB, and had {memory} KiB"
    );
}

#[test]
fn programs_are_killed_at_any_moment() {
    within(300, || programs_are_killed(60, 1));
}

#[test]
#[ignore = "slow: a thousand processes are started and killed"]
fn a_thousand_programs_are_killed_at_any_moment() {
    within(3600, || programs_are_killed(1000, 2));
}
