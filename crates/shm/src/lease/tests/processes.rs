//! Real processes, of which some are killed.

use core::convert::Infallible;
use core::sync::atomic::Ordering::Relaxed;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use crate::{Access, Carver, Lease, LeaseGuard, Leased, OutOfMemory, Region, Revoked, Table, Words};

const ROLE: &str = "TOEHOLD_TEST_LEASE_ROLE";
const PROCESS: &str = "TOEHOLD_TEST_LEASE_PROCESS";

/// How often a process had the lease, for each process.
const COUNTS: usize = 6;

struct Node {
    counts: Words,
    /// Changed with the lease only; the two are the same at all times but while a
    /// process changes them.
    leased: Leased<Table<u64>>,
}

impl Node {
    fn len() -> usize {
        Lease::BYTES_NEEDED + Words::bytes_needed(COUNTS) + Table::<u64>::bytes_needed(2)
    }

    fn carve(mut carver: Carver, process: u16) -> Result<Node, OutOfMemory> {
        let lease = carver.lease()?.with_holder(process);
        Ok(Node {
            counts: carver.words(COUNTS)?,
            leased: Leased::new(lease, carver.table(2)?),
        })
    }

    fn lease(&self) -> &Lease {
        self.leased.lease()
    }

    /// Has the lease again and again, in all the ways there are, until it is closed.
    fn work(&self) -> Result<Infallible, Revoked> {
        let count = self.counts.word(usize::from(self.lease().me()));
        let change = |table: &mut Table<u64>| {
            table[0] += 1;
            table[1] += 1;
            count.fetch_add(1, Relaxed);
        };
        loop {
            let mut guard = self.leased.lock()?;
            for _ in 0..3 {
                change(&mut guard);
                LeaseGuard::give_way(&mut guard)?;
                assert_eq!(guard[0], guard[1], "two processes had the lease at once");
            }
            LeaseGuard::unlocked(&mut guard, std::thread::yield_now)?;
            change(&mut guard);
        }
    }
}

/// Not a test of its own: the other processes of the tests below.
#[test]
fn another_process_of_the_node() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let process = std::env::var(PROCESS).unwrap().parse().unwrap();
    let fd = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let region = Region::open(fd, Access::ReadWrite).unwrap();
    // SAFETY: the table is only used with the lease.
    let carver = unsafe { Carver::attach(region) };
    let node = Node::carve(carver, process).unwrap();
    match role.as_str() {
        "hold" => {
            let _guard = node.leased.lock().unwrap();
            loop {
                std::thread::park();
            }
        }
        "work" => {
            let Err(Revoked) = node.work();
        }
        role => panic!("{role} is no role"),
    }
}

struct Process(Child);

impl Process {
    fn start(fd: OwnedFd, process: u16, role: &str) -> Process {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "lease::tests::processes::another_process_of_the_node",
                "--nocapture",
            ])
            .env(ROLE, role)
            .env(PROCESS, process.to_string())
            .stdin(fd)
            .stdout(Stdio::null())
            .spawn();
        Process(child.unwrap())
    }

    fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The engine's handles, and the descriptor for others.
fn node() -> (Node, OwnedFd) {
    let region = Region::create("toehold-test", Node::len()).unwrap();
    let fd = region.fd().unwrap().try_clone_to_owned().unwrap();
    (
        Node::carve(Carver::new(region).unwrap(), Lease::ENGINE).unwrap(),
        fd,
    )
}

#[test]
fn the_engine_gets_the_lease_of_a_process_that_was_killed() {
    let (engine, fd) = node();
    let mut holder = Process::start(fd.try_clone().unwrap(), 2, "hold");
    while engine.lease().holder() != Some(2) {
        std::thread::yield_now();
    }
    let _worker = Process::start(fd, 3, "work");
    while !engine.lease().is_wanted() {
        std::thread::yield_now();
    }
    assert!(engine.leased.try_lock().is_none());
    holder.kill();
    assert_eq!(engine.lease().holder(), Some(2), "nobody takes it by himself");
    let guard = engine.leased.seize(2).unwrap();
    assert_eq!(engine.lease().epoch(), 1);
    assert_eq!(engine.counts.word(3).load(Relaxed), 0);
    drop(guard);
    while engine.counts.word(3).load(Relaxed) == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn others_go_on_wherever_a_process_is_killed() {
    let (engine, fd) = node();
    let start = |process| Process::start(fd.try_clone().unwrap(), process, "work");
    let mut workers: Vec<_> = (2..5).map(start).collect();
    let counts = || (2..5).map(|process| engine.counts.word(process).load(Relaxed));
    for round in 0..60 {
        let before: Vec<_> = counts().collect();
        while counts().zip(&before).any(|(now, &before)| now == before) {
            assert!(workers.iter_mut().all(Process::runs));
            std::thread::yield_now();
        }
        let victim = round % 3;
        workers[victim].kill();
        if let Some(mut guard) = engine.leased.seize(victim as u16 + 2) {
            // What it was doing is repaired.
            guard[1] = guard[0];
        }
        drop(engine.leased.lock().unwrap());
        workers[victim] = start(victim as u16 + 2);
    }
    engine.lease().close();
    for worker in &mut workers {
        assert!(worker.0.wait().unwrap().success());
    }
}
