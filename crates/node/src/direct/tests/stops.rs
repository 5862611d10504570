//! A program that is stopped at any instruction delays no other one of its node.

use rustix::process::{Pid, Signal, kill_process};
use toehold_shm::direct::{End, WaiterKind, Wish, Woken};

use super::kills::{Program, Random};
use super::*;

/// Stops at instructions that chance picks.
const STOPS: usize = 150;

/// Messages that wake the reader meanwhile.
const MESSAGES: usize = 10;

fn drain(end: &End<'_>, thread: ThreadNumber) -> usize {
    let mut buffer = [0; 4096];
    let mut parts = [std::io::IoSliceMut::new(&mut buffer)];
    end.receive(thread, &mut parts, Take::Remove, u64::MAX)
        .unwrap_or(0)
}

fn signal(program: &Program, signal: Signal) {
    kill_process(Pid::from_child(&program.0), signal).unwrap();
}

fn is_stopped(program: &Program) -> Option<()> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", program.0.id())).unwrap();
    stat.contains(") T ").then_some(())
}

#[test]
fn sender_that_is_stopped_keeps_no_other_one_from_waking_the_reader() {
    const READ: Wish = Wish {
        read: Some(1),
        edge: false,
        room: false,
    };
    let pair = Pair::new();
    let theirs = pair.server();
    let own = thread(theirs);
    let (_, listener) = pair.listen(pair.at(), 8);
    let accept = |seed| {
        let program = Program::start(&pair, "sends", listener, seed);
        let taken = eventually("it does not connect", || theirs.accept(own, listener, WINDOW));
        (program, taken.held())
    };
    let (stopped, (bank, connection)) = accept(1);
    let (_sends, (other_bank, other)) = accept(2);
    let ends = [bank.end(connection).unwrap(), other_bank.end(other).unwrap()];
    let waiters = theirs.waiters();
    let waiter = waiters.claim(theirs.process(), WaiterKind::Instance).unwrap();
    let mut random = Random(77);
    for _ in 0..STOPS {
        let until = Instant::now() + Duration::from_micros(random.below(300) as u64);
        while Instant::now() < until {
            drain(&ends[0], own);
        }
        signal(&stopped, Signal::STOP);
        eventually("it is not stopped", || is_stopped(&stopped));
        let mut messages = 0;
        while messages < MESSAGES {
            let sleep = waiters.begin_sleep(waiter, own, [&bank.signals]);
            let looks = ends.map(|end| end.arm(own, waiter, READ).unwrap());
            if looks.iter().all(|look| look.readable == 0) {
                let until = crate::clock::now().0 + PATIENCE.as_nanos() as u64;
                assert_ne!(
                    sleep.wait(Some(until)),
                    Woken::TimedOut,
                    "no message wakes the reader"
                );
            }
            drop(sleep);
            bank.signals.collect(waiter, |_| {});
            drain(&ends[0], own);
            messages += usize::from(drain(&ends[1], own) > 0);
        }
        signal(&stopped, Signal::CONT);
    }
}
