//! Engines are killed: their programs learn of it in every kind of call, others go on.

use std::time::{Duration, Instant};

use toehold_node::Placement;
use toehold_socket::TcpStream;

use crate::processes::{Part, Process};
use crate::programs::{echo, is_gone};
use crate::support::{Random, World, attach, pattern, serve_echoes, start_engine, status, within};

/// Names of the callers' threads, see [`crate::programs`].
const CALLERS: [&str; 7] = ["accept", "read", "read", "write", "look", "poll", "ask"];

fn engine_is_killed(rounds: u64, seed: u64) {
    println!("seed {seed}");
    let world = World::new(&["server", "other"], Placement::Adaptive);
    let path = world.path();
    let (server, other) = (world.attach("server"), world.attach("other"));
    let peer = serve_echoes(&server, world.address(0));
    let mut beside = TcpStream::connect(&other, peer).unwrap();
    let mut random = Random::new(seed);
    for round in 0..rounds {
        let part = |role, seed| Part {
            role,
            fabric: path,
            node: "short",
            peer: Some(peer),
            seed,
        };
        let engine = Process::start(part("engine", random.next()));
        let programs = [(); 2].map(|()| Process::start(part("callers", random.next())));
        let holder = (round % 2 == 0).then(|| Process::start(part("holder", 0)));
        std::thread::sleep(Duration::from_micros(random.below(300_000)));
        engine.kill();
        drop(engine);
        let killed = Instant::now();
        drop(holder);
        for program in &programs {
            let mut missing = CALLERS.to_vec();
            while !missing.is_empty() {
                let line = program.line();
                if let Some(at) = missing
                    .iter()
                    .position(|name| line.ends_with(&format!("{name} failed")))
                {
                    println!("{} after {:?}", missing.swap_remove(at), killed.elapsed());
                }
            }
        }
        programs
            .into_iter()
            .for_each(|program| assert!(program.succeeds()));
        // Others are none the worse for it, and another engine can have the name.
        echo(&mut beside, &pattern(5000)).unwrap();
    }
    let again = start_engine(path, "short", Placement::Adaptive);
    let node = attach(path, "short");
    echo(&mut TcpStream::connect(&node, peer).unwrap(), &pattern(5000)).unwrap();
    assert_eq!(status(path, "short").processes.len(), 1);
    drop((node, again));
}

#[test]
fn programs_of_a_killed_engine_learn_of_it_in_every_call() {
    within(120, || engine_is_killed(4, 3));
}

#[test]
fn who_waits_for_the_lease_of_a_killed_engine_learns_of_it() {
    within(60, || {
        let world = World::new(&["server"], Placement::Adaptive);
        let part = |role| Part {
            role,
            fabric: world.path(),
            node: "short",
            peer: None,
            seed: 0,
        };
        let engine = Process::start(part("engine"));
        let holder = Process::start(part("holder"));
        holder.says("has the lease");
        let node = attach(world.path(), "short");
        let waiting = std::thread::spawn(move || node.stack_info().unwrap_err());
        engine.kill();
        drop(engine);
        let error = waiting.join().unwrap();
        assert!(is_gone(&error), "{error}");
        drop(holder);
    });
}
