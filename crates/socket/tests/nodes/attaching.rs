//! Attaching and detaching again and again, and what is left at the end.

use toehold_node::Placement;

use crate::processes::{Part, Process};
use crate::programs::echo_once;
use crate::support::{World, assert_empty, attach, eventually, serve_echoes, status, within};

#[test]
fn a_thousand_attachments_leave_nothing_in_the_engine() {
    within(300, || {
        let world = World::new(&["server"], Placement::Adaptive);
        let path = world.path();
        let peer = serve_echoes(&world.attach("server"), world.address(0));
        let engine = Process::start(Part {
            role: "engine",
            fabric: path,
            node: "busy",
            peer: None,
            seed: 0,
        });
        let round = |rounds: u32| {
            for round in 0..rounds {
                let node = attach(path, "busy");
                if round % 10 == 0 {
                    echo_once(&node, peer);
                }
            }
            assert_empty(path, "busy");
            eventually("processes are left", || {
                let left = status(path, "busy").processes.len();
                (left == 0).then_some(()).ok_or(left)
            });
        };
        round(20);
        let (descriptors, memory) = (engine.descriptors(), engine.private_memory());
        round(1000);
        eventually("the engine keeps descriptors", || {
            let now = engine.descriptors();
            (now <= descriptors).then_some(()).ok_or((now, descriptors))
        });
        let now = engine.private_memory();
        println!("{memory} KiB before, {now} KiB after");
        assert!(
            now < memory + 512,
            "the engine has {now} KiB, and had {memory} KiB"
        );
        // The lowest number, as at first, once it is free.
        eventually("numbers are not given back", || {
            let _node = attach(path, "busy");
            let number = status(path, "busy").processes[0].process;
            (number == 2).then_some(()).ok_or(number)
        });
    });
}

#[test]
fn nothing_is_left_of_nodes_that_end() {
    within(120, || {
        let directory = tempfile::tempdir().unwrap();
        let process = Process::start(Part {
            role: "tidy",
            fabric: directory.path(),
            node: "none",
            peer: None,
            seed: 0,
        });
        assert!(process.succeeds());
    });
}
