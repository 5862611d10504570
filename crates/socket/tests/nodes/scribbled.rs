//! Programs write nonsense all over their node's memory.

use toehold_node::Placement;
use toehold_socket::TcpStream;

use crate::killed::Witness;
use crate::processes::{Part, Process};
use crate::programs::{FULL_WAYS, WAYS, echo, echo_once};
use crate::support::{Random, World, attach, eventually, resets, serve_echoes, status, within};

fn memory_is_scribbled_over(rounds: u64, seed: u64) {
    println!("seed {seed}");
    let world = World::new(&["server", "other"], Placement::Adaptive);
    let path = world.path();
    let peer = serve_echoes(&world.attach("server"), world.address(0));
    let elsewhere = Witness::start(path, "other", peer);
    let mut random = Random::new(seed);
    let start = |role, seed| {
        Process::start(Part {
            role,
            fabric: path,
            node: "busy",
            peer: Some(peer),
            seed,
        })
    };
    let engine = start("engine", random.next());
    for round in 0..rounds {
        let before = resets(path, "busy");
        let load = (round % 4 != 0).then(|| start("load", random.next()));
        // Each way in turn. What comes of a little nonsense cannot be told, but that the
        // engine goes on.
        let way = round % WAYS;
        let scribbler = start("scribbler", random.next() / WAYS * WAYS + way);
        if way >= FULL_WAYS {
            scribbler.says("has begun");
            for _ in 0..20 {
                status(path, "busy");
            }
        }
        scribbler.says("has scribbled");
        eventually("a node goes on in memory full of nonsense", || {
            let resets = resets(path, "busy");
            (resets > before).then_some(()).ok_or(resets)
        });
        elsewhere.goes_on();
        drop((scribbler, load));
        // The program that was killed just now may have been in the middle of the stack.
        eventually("the node's next life", || {
            let node = attach(path, "busy");
            let mut stream = TcpStream::connect(&node, peer)?;
            echo(&mut stream, b"as ever")
        });
    }
    let node = attach(path, "busy");
    echo_once(&node, peer);
    assert_eq!(
        elsewhere.end(),
        0,
        "a program of another node lost its connection"
    );
    drop(engine);
}

#[test]
fn a_node_survives_nonsense_in_its_memory() {
    within(300, || memory_is_scribbled_over(8, 8));
}

#[test]
#[ignore = "slow: a node's memory is ruined two hundred times"]
fn a_node_survives_nonsense_in_its_memory_again_and_again() {
    within(2400, || memory_is_scribbled_over(200, 9));
}
