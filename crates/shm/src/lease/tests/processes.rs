//! Tests with real processes, some of which are killed.

use core::convert::Infallible;
use core::sync::atomic::Ordering::Relaxed;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use crate::{Access, Carver, Lease, LeaseGuard, Leased, OutOfMemory, Region, Revoked, Table, Words};

const ROLE: &str = "TOEHOLD_TEST_LEASE_ROLE";
const PROCESS: &str = "TOEHOLD_TEST_LEASE_PROCESS";

/// How often each process has had the lease.
const COUNTS: usize = 6;

struct Node {
    counts: Words,
    /// Only the holder of the lease changes these. The two are equal, except while a process
    /// changes them.
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

    /// Holds the lease nearly all the time, until it is closed.
    fn keep_busy(&self) -> Result<Infallible, Revoked> {
        let count = self.counts.word(usize::from(self.lease().me()));
        loop {
            let mut guard = self.leased.lock()?;
            for _ in 0..1000 {
                guard[0] += 1;
                std::hint::spin_loop();
                guard[1] += 1;
            }
            count.fetch_add(1, Relaxed);
        }
    }

    /// Takes the lease again and again, in all possible ways, until it is closed.
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

/// Not a test of its own: it runs the other processes of the tests below.
#[test]
fn child_process_of_tests() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let process = std::env::var(PROCESS).unwrap().parse().unwrap();
    let fd = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let region = Region::open(fd, Access::ReadWrite).unwrap();
    // SAFETY: the table is used only with the lease, which all processes of this test share.
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
        "busy" => {
            let Err(Revoked) = node.keep_busy();
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
                "lease::tests::processes::child_process_of_tests",
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

/// The engine's handles, and the descriptor for the other processes.
fn node() -> (Node, OwnedFd) {
    let region = Region::create("toehold-test", Node::len()).unwrap();
    let fd = region.fd().unwrap().try_clone_to_owned().unwrap();
    (
        Node::carve(Carver::new(region).unwrap(), Lease::ENGINE).unwrap(),
        fd,
    )
}

#[test]
fn engine_gets_lease_of_killed_process() {
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
fn others_continue_wherever_a_process_is_killed() {
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
            // This repairs the change that was under way.
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

/// The state of a process, as `proc(5)` reports it.
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.chars().next().unwrap()
}

fn signal(process: &Process, signal: i32) {
    // SAFETY: the arguments are plain numbers, and the child has not been waited for, so its number
    // is still its own.
    assert_eq!(unsafe { libc::kill(process.0.id() as i32, signal) }, 0);
}

/// Whether the parent would notice that its child was continued.
fn was_continued(process: &Process) -> bool {
    let mut status = 0;
    let options = libc::WCONTINUED | libc::WNOHANG;
    // SAFETY: the kernel writes the status to a local variable of its type; the child has not
    // ended.
    unsafe { libc::waitpid(process.0.id() as i32, &raw mut status, options) > 0 }
}

/// Stops a process, and waits until all of its threads have stopped.
fn stop(process: &Process) {
    signal(process, libc::SIGSTOP);
    while state(process.0.id()) != 'T' {
        std::thread::yield_now();
    }
}

#[test]
fn stopped_holder_releases_lease_and_stays_stopped() {
    let (engine, fd) = node();
    let worker = Process::start(fd, 2, "busy");
    let count = engine.counts.word(2);
    let mut releases = 0;
    for round in 0..100_u32 {
        let before = count.load(Relaxed);
        while count.load(Relaxed) < before + round % 7 {
            std::hint::spin_loop();
        }
        stop(&worker);
        if engine.lease().holder() == Some(2) {
            engine.lease().release_stopped(2, worker.0.id()).unwrap();
            releases += 1;
        }
        assert_ne!(engine.lease().holder(), Some(2), "round {round}");
        let counted = count.load(Relaxed);
        let guard = engine
            .leased
            .try_lock()
            .unwrap_or_else(|| engine.leased.lock().unwrap());
        assert_eq!(guard[0], guard[1], "round {round}");
        // The kernel stops its threads again before they return to the program.
        while state(worker.0.id()) != 'T' {
            std::thread::yield_now();
        }
        assert!(!was_continued(&worker), "round {round}");
        drop(guard);
        assert_eq!(count.load(Relaxed), counted, "round {round}: it ran on");
        assert!(!engine.lease().stops());
        signal(&worker, libc::SIGCONT);
        while count.load(Relaxed) == counted {
            std::thread::yield_now();
        }
        assert!(was_continued(&worker));
    }
    assert!(releases > 0, "it never held the lease when it was stopped");
}

#[test]
fn sigcont_during_release_is_not_lost() {
    let (engine, fd) = node();
    let worker = Process::start(fd, 2, "busy");
    let count = engine.counts.word(2);
    for round in 0..200_u64 {
        let before = count.load(Relaxed);
        while count.load(Relaxed) == before {
            std::hint::spin_loop();
        }
        stop(&worker);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..round * 40 {
                    std::hint::spin_loop();
                }
                signal(&worker, libc::SIGCONT);
            });
            if engine.lease().holder() == Some(2) {
                // It may have released the lease by itself meanwhile.
                let _ = engine.lease().release_stopped(2, worker.0.id());
            }
        });
        let counted = count.load(Relaxed);
        while count.load(Relaxed) == counted {
            std::thread::yield_now();
        }
    }
}

#[test]
fn stopped_holder_that_is_killed_during_release_is_seized() {
    let (engine, fd) = node();
    let mut holder = Process::start(fd, 2, "hold");
    while engine.lease().holder() != Some(2) {
        std::thread::yield_now();
    }
    stop(&holder);
    // It never releases the lease, so the engine stops waiting.
    let released = engine.lease().release_stopped(2, holder.0.id());
    assert_eq!(released, Err(rustix::io::Errno::TIMEDOUT));
    assert_eq!(engine.lease().holder(), Some(2));
    while state(holder.0.id()) != 'T' {
        std::thread::yield_now();
    }
    holder.kill();
    drop(engine.leased.seize(2).unwrap());
    assert!(!engine.lease().stops());
}

#[test]
fn thread_that_waits_in_vain_pleads() {
    let (engine, fd) = node();
    let _holder = Process::start(fd.try_clone().unwrap(), 2, "hold");
    while engine.lease().holder() != Some(2) {
        std::thread::yield_now();
    }
    let seen = engine.lease().pleas();
    let _worker = Process::start(fd, 3, "work");
    while engine.lease().pleas() == seen {
        engine.lease().await_plea(seen);
    }
    assert!(engine.lease().is_wanted());
}

#[test]
fn untraceable_stopped_holder_releases_lease_and_stops() {
    let (engine, fd) = node();
    let worker = Process::start(fd, 2, "busy");
    let count = engine.counts.word(2);
    let mut releases = 0;
    while releases < 20 {
        let before = count.load(Relaxed);
        while count.load(Relaxed) == before {
            std::hint::spin_loop();
        }
        stop(&worker);
        if engine.lease().holder() == Some(2) {
            engine
                .lease()
                .release_stopped_by_signals(2, worker.0.id())
                .unwrap();
            while state(worker.0.id()) != 'T' {
                std::thread::yield_now();
            }
            let guard = engine.leased.try_lock().unwrap();
            assert_eq!(guard[0], guard[1]);
            releases += 1;
        }
        signal(&worker, libc::SIGCONT);
    }
}
