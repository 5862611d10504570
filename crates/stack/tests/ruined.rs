//! A stack whose memory another process overwrites with random data. It may panic, for example at
//! an index beyond a table's end; its driver then discards the memory. But every call returns.

mod support;

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, Location, PanicHookInfo, catch_unwind};
use std::path::Path;
use std::sync::mpsc;

use toehold_shm::{Carver, Region};
use toehold_stack::{
    Config, Event, Instant, ReceiveFlags, SendFlags, Shutdown, SocketOption, Stack, TcpConfig,
};

use support::{HOSTS, LINK, Random, Wire};

/// Far longer than all calls of one seed take.
const PATIENCE: Duration = Duration::from_secs(60);

const PAGE: u64 = 4096;

struct Node {
    stack: Stack,
    memory: File,
    outgoing: Wire,
}

impl Node {
    fn new(host: usize) -> Node {
        let config = Config {
            mac: [2, 0, 0, 0, 0, host as u8],
            ipv4: Some((HOSTS[host], 8)),
            ipv4_gateway: Some(Ipv4Addr::new(10, 9, 9, 9)),
            link: LINK,
            connections: 32,
            listeners: 4,
            time_wait_records: 16,
            neighbors: 8,
            payload_blocks: 64,
            payload_block_len: 1024,
            tcp: TcpConfig {
                ecn: host == 0,
                time_wait: Duration::from_millis(300),
                ..TcpConfig::default()
            },
            ..Config::default()
        };
        let region = Region::create("ruined", Stack::region_len(&config)).unwrap();
        let memory = region.fd().unwrap().try_clone_to_owned().unwrap().into();
        let stack = Stack::create(&mut Carver::new(region).unwrap(), &config).unwrap();
        Node {
            stack,
            memory,
            outgoing: Wire::default(),
        }
    }

    /// One round of a driver.
    fn round(&mut self, now: Instant, incoming: &mut Wire) {
        let stack = &mut self.stack;
        if stack.poll_timeout().is_some_and(|deadline| deadline <= now) {
            stack.handle_timeout(now);
        }
        incoming.deliver(stack, now);
        stack.poll_transmit(now, &mut self.outgoing);
    }

    /// Makes one call of a program, on any socket.
    fn call(&mut self, now: Instant, random: &mut Random) {
        let stack = &mut self.stack;
        let sockets: Vec<Event> = stack.sockets().collect();
        for socket in sockets {
            match socket {
                Event::Listener(listener) => {
                    let _ = stack.accept(listener);
                    let _ = stack.set_backlog(listener, random.below(9) as u32);
                }
                Event::Connection(connection) => {
                    let mut bytes = [7; 3000];
                    let len = random.below(3000) as usize;
                    let _ = match random.below(16) {
                        0..4 => stack.send(connection, &bytes[..len], SendFlags::default()),
                        4..9 => stack.receive(connection, &mut bytes, ReceiveFlags::default()),
                        9 => stack.close(now, connection).map(|()| 0),
                        10 => stack.abort(connection).map(|()| 0),
                        11 => stack.shutdown(now, connection, Shutdown::Write).map(|()| 0),
                        12 => stack
                            .set_option(now, connection, SocketOption::Keepalive(true))
                            .map(|()| 0),
                        13 => stack.info(connection).map(|info| info.timers.len()),
                        14 => stack.unacknowledged_bytes(connection),
                        _ => stack.readable_bytes(connection),
                    };
                    let _ = stack.readiness(connection);
                }
            }
        }
        let settings = stack.default_settings();
        let host = HOSTS[random.below(2) as usize];
        // Sometimes a host that does not answer.
        let remote = SocketAddr::new(host.into(), 80 + (random.below(5) / 4) as u16);
        let _ = stack.connect(now, None, remote, &settings);
        for _ in 0..64 {
            if stack.next_event().is_none() {
                break;
            }
        }
        let seen = stack.released().count() + stack.time_waits().count();
        assert!(seen <= 48, "no more than there is room for");
    }

    /// Writes random data to a part of the memory.
    fn ruin(&self, random: &mut Random) {
        let len = self.memory.metadata().unwrap().len();
        let word = |random: &mut Random| match random.below(4) {
            0 => 0,
            1 => u64::MAX,
            2 => random.below(64),
            _ => random.next(),
        };
        match random.below(5) {
            // Single bits.
            0 => {
                for _ in 0..=random.below(64) {
                    let at = random.below(len);
                    let mut byte = [0];
                    self.memory.read_exact_at(&mut byte, at).unwrap();
                    byte[0] ^= 1 << random.below(8);
                    self.memory.write_all_at(&byte, at).unwrap();
                }
            }
            // Words here and there, few or many.
            1 => {
                for _ in 0..1 << random.below(12) {
                    let at = random.below(len / 4) * 4;
                    let word = word(random).to_ne_bytes();
                    self.memory.write_all_at(&word[..4], at).unwrap();
                }
            }
            // Two pages change places.
            2 => {
                let [a, b] = [(); 2].map(|()| random.below(len / PAGE) * PAGE);
                let mut pages = [[0; PAGE as usize]; 2];
                self.memory.read_exact_at(&mut pages[0], a).unwrap();
                self.memory.read_exact_at(&mut pages[1], b).unwrap();
                self.memory.write_all_at(&pages[0], b).unwrap();
                self.memory.write_all_at(&pages[1], a).unwrap();
            }
            // A page, or all memory, of one word or of random words.
            part => {
                let one = (random.below(2) == 0).then(|| word(random));
                let (from, end) = if part == 3 {
                    let page = random.below(len / PAGE) * PAGE;
                    (page, page + PAGE)
                } else {
                    (0, len)
                };
                let words = (from..end)
                    .step_by(8)
                    .map(|_| one.unwrap_or_else(|| word(random)));
                let mut bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
                bytes.truncate((end - from) as usize);
                self.memory.write_all_at(&bytes, from).unwrap();
            }
        }
    }
}

/// Runs two stacks, and damages one of them again and again until it panics.
fn ruin(seed: u64) {
    let random = &mut Random(seed);
    let mut now = Instant(1_000_000_000);
    let mut nodes = [Node::new(0), Node::new(1)];
    let [a, b] = &mut nodes;
    for (node, host) in [(&mut *a, HOSTS[0]), (&mut *b, HOSTS[1])] {
        let settings = node.stack.default_settings();
        let local = SocketAddr::new(host.into(), 80);
        node.stack.listen(now, local, 8, &settings).unwrap();
    }
    let before = random.below(60);
    for round in 0..300 {
        if round >= before && round % 20 == before % 20 {
            a.ruin(random);
        }
        a.call(now, random);
        a.round(now, &mut b.outgoing);
        // The peer is intact, and answers whatever it receives.
        b.call(now, random);
        b.round(now, &mut a.outgoing);
        if random.below(10) == 0 {
            a.outgoing.0.clear();
        }
        now = now + Duration::from_micros(100 << random.below(15));
    }
}

/// Whether a panic is an arithmetic error. Arithmetic on untrusted numbers must not panic. Counters
/// at their maximum are an exception.
fn is_miscalculation(panic: &PanicHookInfo<'_>) -> bool {
    let miscalculates = panic
        .payload_as_str()
        .is_some_and(|why| why.starts_with("attempt to"));
    miscalculates
        && panic
            .location()
            .is_some_and(|at| !source(at).contains("counters"))
}

/// The source line of a panic.
fn source(at: &Location<'_>) -> String {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = std::fs::read_to_string(workspace.join(at.file())).unwrap_or_default();
    file.lines()
        .nth(at.line() as usize - 1)
        .unwrap_or_default()
        .to_owned()
}

fn ruin_many(seeds: core::ops::Range<u64>) {
    let (progress, seen) = mpsc::channel();
    let (miscalculated, miscalculations) = mpsc::channel();
    let name = format!("ruined {seeds:?}");
    let (quiet, ruined) = (std::panic::take_hook(), name.clone());
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() != Some(&ruined) {
            quiet(panic);
        } else if is_miscalculation(panic) {
            let _ = miscalculated.send(panic.to_string());
        }
    }));
    let thread = std::thread::Builder::new().name(name);
    let runs = thread.spawn(move || {
        let ruined = |seed: &u64| {
            // If the receiver is gone, the test has ended.
            let _ = progress.send(*seed);
            catch_unwind(AssertUnwindSafe(|| ruin(*seed))).is_err()
        };
        seeds.filter(ruined).count()
    });
    let runs = runs.unwrap();
    let mut last = None;
    loop {
        match seen.recv_timeout(PATIENCE) {
            Ok(seed) => last = Some(seed),
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("seed {last:?} does not come back"),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    // Otherwise the damage had no effect.
    assert!(runs.join().unwrap() > 0, "no memory was ruined");
    let miscalculations: BTreeSet<String> = miscalculations.try_iter().collect();
    assert!(miscalculations.is_empty(), "{miscalculations:#?}");
}

#[test]
fn stack_in_ruined_memory_returns_from_every_call() {
    ruin_many(0..3000);
}

#[test]
#[ignore = "slow: a stack's memory is ruined twenty thousand times"]
fn stack_in_ruined_memory_returns_from_every_call_for_many_seeds() {
    ruin_many(0..20_000);
}
