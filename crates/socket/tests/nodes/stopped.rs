//! Processes are stopped for a while, and go on as if nothing had been.

use std::io::Write;
use std::time::Duration;

use rustix::process::Signal;
use toehold_node::Placement;
use toehold_socket::TcpListener;

use crate::killed::Witness;
use crate::processes::{Part, Process};
use crate::programs::GO;
use crate::support::{
    Random, World, assert_empty, attach, eventually, mends, resets, serve_echoes, start_engine, status,
    within,
};

/// Stops the programs of a kind, for a random time, in so many rounds.
fn is_stopped(who: &str, rounds: u64, longest_ms: u64, seed: u64) {
    println!("seed {seed}");
    let world = World::new(&["server", "other"], Placement::Adaptive);
    let path = world.path();
    let peer = serve_echoes(&world.attach("server"), world.address(0));
    let elsewhere = Witness::start(path, "other", peer);
    let mut random = Random::new(seed);
    let mut start = |role| {
        Process::start(Part {
            role,
            fabric: path,
            node: "busy",
            peer: Some(peer),
            seed: random.next(),
        })
    };
    let engine = start("engine");
    let programs = [start("steady"), start("steady")];
    let mut random = Random::new(!seed);
    for _ in 0..rounds {
        let victim = if who == "engine" { &engine } else { &programs[0] };
        std::thread::sleep(Duration::from_micros(random.below(50_000)));
        victim.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(random.below(longest_ms)));
        elsewhere.goes_on();
        victim.signal(Signal::CONT);
        for program in &programs {
            program.hush();
            program.says("goes on");
        }
    }
    assert_eq!(
        elsewhere.end(),
        0,
        "a program of another node lost its connection"
    );
}

#[test]
fn a_stopped_program_loses_nothing() {
    within(120, || is_stopped("program", 10, 500, 4));
}

#[test]
fn a_stopped_engine_costs_nobody_anything() {
    within(120, || is_stopped("engine", 10, 500, 5));
}

#[test]
#[ignore = "slow: processes are stopped for seconds"]
fn processes_are_stopped_for_seconds() {
    within(1200, || {
        is_stopped("program", 30, 6000, 6);
        is_stopped("engine", 30, 6000, 7);
    });
}

/// A program asks its engine for a peer that it has not mapped yet, and hears nothing for
/// longer than it waits for an answer.
#[test]
#[ignore = "slow: an engine is stopped for longer than programs wait for its answers"]
fn an_engine_that_was_asked_while_it_was_stopped_goes_on_serving() {
    within(240, || {
        let world = World::new(&["server"], Placement::Adaptive);
        let path = world.path();
        let peer = serve_echoes(&world.attach("server"), world.address(0));
        let start = |role| {
            Process::start(Part {
                role,
                fabric: path,
                node: "busy",
                peer: Some(peer),
                seed: 1,
            })
        };
        let engine = start("engine");
        let program = start("told");
        let late = start_engine(path, "late", Placement::Adaptive);
        let address = serve_echoes(&attach(path, "late"), late.record().ipv4.addr());
        eventually("the nodes do not meet", || {
            let peers = status(path, "busy").stack.peers;
            (peers == 2).then_some(()).ok_or(peers)
        });
        engine.signal(Signal::STOP);
        std::fs::write(path.join(".new"), address.to_string()).unwrap();
        std::fs::rename(path.join(".new"), path.join(GO)).unwrap();
        // A question is waited for for ten seconds.
        std::thread::sleep(Duration::from_secs(12));
        engine.signal(Signal::CONT);
        program.says("done");
    });
}

/// The thread that began to wait last sleeps at the link, on behalf of all others.
#[test]
fn a_program_that_is_stopped_in_a_call_does_not_stop_others() {
    within(120, || {
        let world = World::new(&["server", "busy"], Placement::Adaptive);
        let server = world.attach("server");
        let listener = TcpListener::bind(&server, (world.address(0), 0)).unwrap();
        let start = || {
            let process = Process::start(Part {
                role: "reader",
                fabric: world.path(),
                node: "busy",
                peer: Some(listener.local_addr().unwrap()),
                seed: 0,
            });
            process.rests();
            (process, listener.accept().unwrap().0)
        };
        let (told, mut stream) = start();
        let mut others = Vec::new();
        for _ in 0..5 {
            let (stopped, other_stream) = start();
            stopped.signal(Signal::STOP);
            stream.write_all(b"x").unwrap();
            told.says("was told");
            stopped.signal(Signal::CONT);
            stopped.rests();
            told.rests();
            // Were it killed now, it could have the lease.
            others.push((stopped, other_stream));
        }
    });
}

/// A stopped program has the lease, others die, and then it is killed.
#[test]
fn who_dies_while_a_stopped_program_has_the_lease_is_buried_after_it() {
    within(120, || {
        let world = World::new(&["server", "busy"], Placement::Adaptive);
        let path = world.path();
        let peer = serve_echoes(&world.attach("server"), world.address(0));
        let start = |role, seed| {
            Process::start(Part {
                role,
                fabric: path,
                node: "busy",
                peer: Some(peer),
                seed,
            })
        };
        let load = [start("load", 1), start("load", 2)];
        let holder = start("holder", 3);
        holder.says("has the lease");
        holder.signal(Signal::STOP);
        let mut load = load.into_iter();
        drop(load.next());
        // The engine answers although no thread can have the lease.
        assert!(status(path, "busy").processes.len() <= 3);
        drop(load.next());
        drop(holder);
        let after = Witness::start(path, "busy", peer);
        after.goes_on();
        after.end();
        assert_eq!((resets(path, "busy"), mends(path, "busy")), (0, 1));
        assert_empty(path, "busy");
    });
}
