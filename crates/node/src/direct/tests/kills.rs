//! Programs that use direct connections and are killed at any instruction: nothing of them is left.

use std::io::{BufRead, BufReader, IoSlice, IoSliceMut};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use toehold_shm::direct::{WaiterKind, WaiterNumber, Wish};

use super::*;
use crate::Holder;
use crate::direct::Bank;

const ROLE: &str = "TOEHOLD_TEST_KILLS_ROLE";
const FABRIC: &str = "TOEHOLD_TEST_KILLS_FABRIC";
const NODE: &str = "TOEHOLD_TEST_KILLS_NODE";
const AT: &str = "TOEHOLD_TEST_KILLS_AT";
const LISTENER: &str = "TOEHOLD_TEST_KILLS_LISTENER";
const SEED: &str = "TOEHOLD_TEST_KILLS_SEED";

/// Connections that one thread of a program has at most.
const MOST: usize = 12;

/// Waiters of each program: more than fit into the word of an audience.
const WAITERS: usize = 6;

/// Numbers without a meaning (xorshift64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// The state of one thread of a program.
struct Thread<'a> {
    node: &'a AttachedNode,
    direct: &'a Direct,
    thread: ThreadNumber,
    waiters: &'a [WaiterNumber],
    random: Random,
    connections: Vec<(Holder, Arc<Bank>, ConnectionId)>,
}

impl Thread<'_> {
    fn keep(&mut self, opened: Opened) {
        let shards = self.node.shards().unwrap();
        let Ok(holder) = shards.get(0).holder() else {
            let (bank, connection) = opened.held();
            return self.direct.close(self.thread, &bank, connection, true);
        };
        assert!(shards.hold_direct(&holder, opened.end()));
        let (bank, connection) = opened.held();
        self.connections.push((holder, bank, connection));
    }

    fn connect(&mut self, to: SocketAddr) {
        let to = match self.random.below(4) {
            0 => SocketAddr::new([127, 0, 0, 1].into(), to.port()),
            _ => to,
        };
        if let Ok(opened) = self.direct.connect(self.thread, to, None, WINDOW) {
            self.keep(opened);
        }
    }

    fn accept(&mut self, listener: ListenerId) {
        if let Some(opened) = self.direct.accept(self.thread, listener, WINDOW) {
            self.keep(opened);
        }
    }

    /// Does something with one of the connections.
    fn act(&mut self) {
        if self.connections.is_empty() {
            return;
        }
        let which = self.random.below(self.connections.len());
        let (_, bank, connection) = &self.connections[which];
        let Ok(end) = bank.end(*connection) else { return };
        let mut bytes = [7; 40_000];
        let len = 1 + self.random.below(bytes.len());
        match self.random.below(8) {
            0 | 1 => {
                let _ = end.send(self.thread, &[IoSlice::new(&bytes[..len])]);
            }
            2 | 3 => {
                let mut parts = [IoSliceMut::new(&mut bytes[..len])];
                let _ = end.receive(self.thread, &mut parts, Take::Remove, u64::MAX);
            }
            4 | 5 => {
                let waiter = self.waiters[self.random.below(WAITERS)];
                let wish = Wish {
                    read: Some(1),
                    edge: false,
                    room: true,
                };
                let _ = end.arm(self.thread, waiter, wish);
            }
            _ => self.close(which),
        }
    }

    fn close(&mut self, which: usize) {
        let (holder, bank, connection) = self.connections.swap_remove(which);
        let abort = self.random.below(2) == 0;
        match self.random.below(3) {
            // The engine closes it.
            0 => drop(holder),
            _ => {
                self.direct.close(self.thread, &bank, connection, abort);
                self.node.shards().unwrap().release_direct(&holder);
            }
        }
    }

    fn run(&mut self, role: &str, to: SocketAddr, listener: ListenerId) -> ! {
        loop {
            if self.connections.len() < MOST {
                match role {
                    "connects" => self.connect(to),
                    _ => self.accept(listener),
                }
            }
            if role == "both" {
                self.connect(to);
            }
            (0..3).for_each(|_| self.act());
            if self.connections.len() >= MOST {
                self.close(0);
            }
        }
    }
}

/// The program's part; passes at once when run as a test.
#[test]
fn program() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let variable = |name| std::env::var(name).unwrap();
    let node = attach(Path::new(&variable(FABRIC)), &variable(NODE));
    let direct = node.shards().unwrap().direct().unwrap();
    let (number, generation) = variable(LISTENER)
        .split_once(' ')
        .map(|(number, generation)| (number.parse().unwrap(), generation.parse().unwrap()))
        .unwrap();
    let listener = ListenerId { number, generation };
    let to: SocketAddr = variable(AT).parse().unwrap();
    let seed: u64 = variable(SEED).parse().unwrap();
    let claim = |_| direct.waiters().claim(direct.process(), WaiterKind::Instance);
    let waiters: Vec<_> = (0..WAITERS).filter_map(claim).collect();
    println!("ready");
    if role == "sends" {
        return send_for_ever(&node, direct, to);
    }
    std::thread::scope(|scope| {
        for at in 1..=2 {
            let (node, role, waiters) = (&node, &role, &waiters);
            scope.spawn(move || {
                let mut thread = Thread {
                    node,
                    direct,
                    thread: thread(direct),
                    waiters,
                    random: Random(seed.wrapping_mul(2 * at + 1) | 1),
                    connections: Vec::new(),
                };
                thread.run(role, to, listener)
            });
        }
    });
}

/// Sends one message after the other, with pauses in which the reader falls asleep.
fn send_for_ever(node: &AttachedNode, direct: &Direct, to: SocketAddr) {
    let own = thread(direct);
    let opened = direct.connect(own, to, None, WINDOW).unwrap();
    let shards = node.shards().unwrap();
    let holder = shards.get(0).holder().unwrap();
    assert!(shards.hold_direct(&holder, opened.end()));
    let (bank, connection) = opened.held();
    let end = bank.end(connection).unwrap();
    loop {
        // If there is no room, the reader asks for no event for now.
        let _ = end.send(own, &[IoSlice::new(&[1; 64])]);
        std::thread::sleep(Duration::from_micros(20));
    }
}

/// A program that is killed at the latest when it is dropped.
pub(super) struct Program(pub(super) Child);

impl Program {
    /// Starts it, and waits until it is ready.
    pub(super) fn start(pair: &Pair, role: &str, listener: ListenerId, seed: u64) -> Program {
        let node = match role {
            "connects" | "sends" => "client",
            _ => "server",
        };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "direct::tests::kills::program", "--nocapture"])
            .env(ROLE, role)
            .env(FABRIC, pair._directory.path())
            .env(NODE, node)
            .env(AT, pair.at().to_string())
            .env(LISTENER, format!("{} {}", listener.number, listener.generation))
            .env(SEED, seed.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.is_ok_and(|line| line.ends_with("ready"))));
        Program(child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The leftovers of programs in a node that has no program any more.
fn left(path: &Path, name: &str, direct: &Direct, banks: &[Arc<Bank>]) -> Vec<String> {
    let mut left = Vec::new();
    let mut note = |what: &str, count: usize| {
        if count > 0 {
            left.push(format!("{name}: {count} {what}"));
        }
    };
    for bank in banks {
        let what = |what: &str| format!("{what} of bank {}", bank.slot());
        note(&what("numbers"), bank.ends.in_use());
        note(&what("ends"), bank.ends.connections().count());
    }
    note("ports", direct.ports.taken());
    note("bytes of rings", direct.journal().charged_bytes() as usize);
    note("bitmaps", direct.journal().bitmaps_in_use());
    let all = (0..toehold_shm::direct::WAITERS as u16).filter_map(WaiterNumber::new);
    let waiters = all.filter(|&waiter| direct.waiters().process(waiter).is_some());
    note("waiters", waiters.count());
    let listed = Connection::open(&fabric(path), name).unwrap().sockets().unwrap();
    note(
        "holders",
        listed.iter().filter(|socket| socket.direct.is_some()).count(),
    );
    left
}

fn all_banks(direct: &Direct) -> Vec<Arc<Bank>> {
    let mut banks = direct.accepting().to_vec();
    banks.extend(direct.towards([127, 0, 0, 1].into()));
    banks
}

/// Kills programs of all roles so often, and returns what is left.
fn kill_at_random(kills: u64, first_seed: u64) {
    let pair = Pair::new();
    let any: SocketAddr = SocketAddr::new([0, 0, 0, 0].into(), PORT);
    let (event, listener) = pair.listen(any, 64);
    let roles = ["connects", "accepts", "both", "connects"];
    let mut random = Random(first_seed | 1);
    let start = |at: usize, seed| Program::start(&pair, roles[at], listener, seed);
    let mut programs: Vec<Program> = (0..roles.len()).map(|at| start(at, at as u64 + 1)).collect();
    for kill in 0..kills {
        let at = random.below(roles.len());
        // At another instruction each time, wherever that is.
        let until = Instant::now() + Duration::from_micros(random.below(3000) as u64);
        while Instant::now() < until {
            std::thread::yield_now();
        }
        drop(std::mem::replace(
            &mut programs[at],
            start(at, first_seed ^ (kill + 5)),
        ));
    }
    drop(programs);
    pair.close_listener(event);
    let path = pair._directory.path();
    let (ours, theirs) = (pair.client(), pair.server());
    let mut banks = [all_banks(ours), all_banks(theirs)];
    banks[0].extend(ours.towards(pair.at().ip()));
    let deadline = Instant::now() + PATIENCE / 2;
    loop {
        let mut found = left(path, "client", ours, &banks[0]);
        found.extend(left(path, "server", theirs, &banks[1]));
        if found.is_empty() {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "after {kills} kills there are {found:#?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn programs_killed_at_random_leave_no_number_no_port_and_no_memory() {
    let kills = std::env::var("TOEHOLD_TEST_KILLS");
    let kills = kills.map_or(60, |kills| kills.parse().unwrap());
    kill_at_random(kills, 0x5eed);
}
