//! Stacks whose process is killed at any point of its work. They are repaired, and only the
//! connections that were being changed are lost.

mod support;

use core::net::SocketAddr;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::time::Duration;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use toehold_shm::{Access, Carver, Direction, Lease, Leased, OutOfMemory, Region, RegionError, Table, Words};
use toehold_stack::{
    Config, ConnectionId, DemuxStrategy, Event, Instant, ReceiveFlags, SendFlags, Settings, Shutdown,
    SocketError, SocketOption, Stack, State, TcpConfig,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use support::{HOSTS, LINK, Random, Wire};

const SEED: &str = "TOEHOLD_TEST_KILLED_SEED";
const STRATEGY: &str = "TOEHOLD_TEST_KILLED_STRATEGY";

const PORT: u16 = 7;
const PAIRS: usize = 24;

/// Pairs from this one on have both ends on one host.
const LOOPBACK: usize = 18;

/// The host of an end.
fn host_of(pair: usize, end: usize) -> usize {
    if pair < LOOPBACK { end } else { pair % 2 }
}

/// Rounds of two milliseconds without data after which none will arrive. Longer than a timer that
/// was backed off a few times.
const QUIET: u32 = 5000;

/// The number of the process that is killed.
const MORTAL: u16 = 2;

/// One end of a connection, as its program knows it.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct End {
    /// The connection's word; 0: none.
    id: u64,
    sent: u64,
    received: u64,
}

impl End {
    fn connection(&self) -> Option<ConnectionId> {
        match Event::from_word(self.id) {
            Event::Connection(id) if self.id != 0 => Some(id),
            _ => None,
        }
    }
}

/// The two ends of a connection.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Pair {
    ends: [End; 2],
    /// Not 0: no more data are sent.
    closing: u64,
}

#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Notes {
    now: u64,
    /// The connections in use by the program, whose state is unknown after a kill.
    doing: u64,
}

/// The contents of the memory behind the lease.
struct World {
    stacks: [Stack; 2],
    pairs: Table<Pair>,
    notes: Table<Notes>,
    wires: [Wire; 2],
}

fn config(host: usize, demux: DemuxStrategy) -> Config {
    Config {
        mac: [2, 0, 0, 0, 0, host as u8],
        ipv4: Some((HOSTS[host], 8)),
        link: LINK,
        demux,
        connections: 128,
        listeners: 4,
        time_wait_records: 64,
        neighbors: 8,
        payload_blocks: 512,
        payload_block_len: 1024,
        seed: 3 + host as u64,
        tcp: TcpConfig {
            time_wait: Duration::from_millis(300),
            send_buffer: 16 << 10,
            receive_buffer: 16 << 10,
            ..TcpConfig::default()
        },
        ..Config::default()
    }
}

/// The byte of a stream at a position.
fn byte(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8
}

struct Shared {
    steps: Words,
    world: Leased<World>,
}

impl Shared {
    fn len(demux: DemuxStrategy) -> usize {
        let stacks = (0..2).map(|host| Stack::region_len(&config(host, demux)));
        Lease::BYTES_NEEDED
            + Words::bytes_needed(1)
            + stacks.sum::<usize>()
            + Table::<Pair>::bytes_needed(PAIRS)
            + Table::<Notes>::bytes_needed(1)
    }

    fn carve(carver: &mut Carver, demux: DemuxStrategy) -> Result<(Lease, Words, World), OutOfMemory> {
        let (lease, steps) = (carver.lease()?, carver.words(1)?);
        let world = World {
            stacks: [
                Stack::create(carver, &config(0, demux))?,
                Stack::create(carver, &config(1, demux))?,
            ],
            pairs: carver.table(PAIRS)?,
            notes: carver.table(1)?,
            wires: Default::default(),
        };
        Ok((lease, steps, world))
    }

    fn create(region: Region, demux: DemuxStrategy) -> Shared {
        let mut carver = Carver::new(region).unwrap();
        let (lease, steps, world) = Shared::carve(&mut carver, demux).unwrap();
        let world = Leased::new(lease, world);
        Shared { steps, world }
    }

    fn attach(region: Region, demux: DemuxStrategy) -> Shared {
        let mut kept = None;
        let world = Leased::attach(region, |carver| {
            let (lease, steps, mut world) = Shared::carve(carver, demux).unwrap();
            world
                .stacks
                .iter_mut()
                .for_each(|stack| stack.set_process(MORTAL));
            kept = Some(steps);
            Ok::<_, RegionError>((lease.with_holder(MORTAL), world))
        });
        Shared {
            world: world.unwrap(),
            steps: kept.unwrap(),
        }
    }
}

impl World {
    fn now(&self) -> Instant {
        Instant(self.notes[0].now)
    }

    /// A driver's round for both hosts. Some frames are lost.
    fn round(&mut self, passed: Duration, losses: Option<&mut Random>) {
        let now = self.now() + passed;
        self.notes[0].now = now.0;
        if let Some(random) = losses {
            for wire in &mut self.wires {
                wire.0.retain(|_| random.below(64) != 0);
            }
        }
        for host in 0..2 {
            let stack = &mut self.stacks[host];
            if stack.poll_timeout().is_some_and(|deadline| deadline <= now) {
                stack.handle_timeout(now);
            }
            self.wires[1 - host].deliver(stack, now);
            stack.poll_transmit(now, &mut self.wires[host]);
            while stack.next_event().is_some() {}
        }
    }

    /// Assigns accepted connections to their pairs.
    fn accept(&mut self) {
        for host in 0..2 {
            let listeners: Vec<_> = self.stacks[host]
                .sockets()
                .filter_map(|socket| match socket {
                    Event::Listener(id) => Some(id),
                    Event::Connection(_) => None,
                })
                .collect();
            for listener in listeners {
                while let Ok(id) = self.stacks[host].accept(listener) {
                    self.take_in(host, id);
                }
            }
        }
    }

    fn take_in(&mut self, host: usize, id: ConnectionId) {
        let peer = self.stacks[host].peer_addr(id).unwrap();
        let places = (0..PAIRS).flat_map(|pair| [(pair, 0), (pair, 1)]);
        let free =
            places.filter(|&(pair, end)| self.pairs[pair].ends[end].id == 0 && host_of(pair, end) == host);
        let called = |&(pair, end): &(usize, usize)| {
            let stack = &self.stacks[host_of(pair, 1 - end)];
            let caller = self.pairs[pair].ends[1 - end].connection();
            caller.is_some_and(|caller| stack.local_addr(caller) == Ok(peer))
        };
        match { free }.find(called) {
            Some((pair, end)) => self.pairs[pair].ends[end].id = Event::Connection(id).word(),
            // Its caller was killed, or has given up.
            None => self.stacks[host].abort(id).unwrap(),
        }
    }

    /// Performs one action of a program.
    fn step(&mut self, random: &mut Random) {
        let (pair, end) = (random.below(PAIRS as u64) as usize, random.below(2) as usize);
        let host = host_of(pair, end);
        let now = self.now();
        self.notes[0].doing = pair as u64 + 1;
        let settings = self.stacks[host].default_settings();
        let Pair { ends, closing } = self.pairs[pair];
        let Some(id) = ends[end].connection() else {
            if ends[1 - end].id == 0 {
                let remote = SocketAddr::new(HOSTS[host_of(pair, 1 - end)].into(), PORT);
                if let Ok(id) = self.stacks[host].connect(now, None, remote, &settings) {
                    self.pairs[pair].ends[end].id = Event::Connection(id).word();
                }
            }
            return;
        };
        match random.below(40) {
            0..14 if closing == 0 => self.send(pair, end, 1 + random.below(6000)),
            14..30 => {
                self.receive(pair, end, 1 + random.below(6000) as usize);
            }
            30 if random.below(3) == 0 && ends[1 - end].id != 0 => {
                self.pairs[pair].closing = 1;
                let _ = self.stacks[host].shutdown(now, id, Shutdown::Write);
            }
            31 if random.below(8) == 0 => {
                // A pair with both ends closed starts again.
                self.forget(pair);
            }
            32 => {
                let _ = self.stacks[host].open_channel(id);
            }
            33..36 if closing == 0 => self.send_along_lane(pair, end, 1 + random.below(3000)),
            36 => self.stacks[host].want_write(id),
            37 => {
                let on = random.below(2) == 0;
                let option = SocketOption::Keepalive(on);
                let _ = self.stacks[host].set_option(now, id, option);
            }
            38 => self.listen_elsewhere(host, &settings),
            _ => {}
        }
    }

    fn listen_elsewhere(&mut self, host: usize, settings: &Settings) {
        let (stack, at) = (&mut self.stacks[host], SocketAddr::new(HOSTS[host].into(), 90));
        if let Ok(listener) = stack.listen(Instant(self.notes[0].now), at, 1, settings) {
            stack.close_listener(listener).unwrap();
        }
    }

    fn send(&mut self, pair: usize, end: usize, len: u64) {
        let host = host_of(pair, end);
        let end = &mut self.pairs[pair].ends[end];
        let bytes: Vec<u8> = (end.sent..end.sent + len).map(byte).collect();
        let sent = self.stacks[host].send(end.connection().unwrap(), &bytes, SendFlags::default());
        end.sent += sent.unwrap_or(0) as u64;
    }

    /// Sends without the lease, within the program's limit.
    fn send_along_lane(&mut self, pair: usize, end: usize, len: u64) {
        let stack = &mut self.stacks[host_of(pair, end)];
        let end = &mut self.pairs[pair].ends[end];
        let Some(channel) = stack.channel(end.connection().unwrap()) else {
            return;
        };
        let bytes: Vec<u8> = (end.sent..end.sent + len).map(byte).collect();
        let lane = stack.channels().lane(channel, Direction::Send).unwrap();
        let Some(mut lock) = lane.lock(MORTAL, || false) else {
            return;
        };
        end.sent += lock.write(end.id, &bytes).len as u64;
        let _ = lock.release();
        stack.serve_channel(channel);
    }

    /// Reads, and checks the bytes. An error belongs to the connection.
    fn receive(&mut self, pair: usize, end: usize, len: usize) -> Option<SocketError> {
        let host = host_of(pair, end);
        let end = &mut self.pairs[pair].ends[end];
        let mut bytes = vec![0; len];
        match self.stacks[host].receive(end.connection()?, &mut bytes, ReceiveFlags::default()) {
            Ok(received) => {
                let expected = (end.received..).map(byte);
                let same = bytes[..received].iter().copied().eq(expected.take(received));
                assert!(
                    same,
                    "other bytes of pair {pair} on host {host} at {}",
                    end.received
                );
                end.received += received as u64;
                None
            }
            Err(SocketError::WouldBlock | SocketError::InProgress) => None,
            Err(error) => Some(error),
        }
    }

    /// Works until the process is killed.
    fn work(shared: &Shared, seed: u64) -> ! {
        let mut random = Random(seed);
        loop {
            let mut world = shared.world.lock().unwrap();
            world.step(&mut random);
            world.accept();
            world.round(Duration::from_micros(random.below(400)), Some(&mut random));
            world.notes[0].doing = 0;
            drop(world);
            shared.steps.word(0).fetch_add(1, Release);
        }
    }

    /// Repairs as the engine does when a process has died with the lease.
    fn mend(&mut self) {
        for (host, stack) in self.stacks.iter_mut().enumerate() {
            stack.channels().mend();
            stack.channels().bury(MORTAL);
            let changed = stack.mend(MORTAL).unwrap();
            let now = Instant(self.notes[0].now);
            match changed {
                // No program knows this listener yet.
                Some(Event::Listener(id)) if stack.listener_addr(id).unwrap().port() != PORT => {
                    stack.close_listener(id).unwrap();
                }
                Some(Event::Connection(id)) => {
                    let word = Event::Connection(id).word();
                    let known = |pair: usize, end: usize| {
                        host_of(pair, end) == host && self.pairs[pair].ends[end].id == word
                    };
                    if !(0..PAIRS).any(|pair| known(pair, 0) || known(pair, 1)) {
                        let _ = stack.close(now, id);
                    }
                }
                Some(Event::Listener(_)) | None => {}
            }
        }
    }

    /// Delivers all data in flight, and checks them. Returns the number of lost connections that no
    /// process was using.
    fn settle(&mut self) -> usize {
        let doing = (self.notes[0].doing as usize).checked_sub(1);
        if let Some(pair) = doing {
            self.forget(pair);
        }
        let mut lost = std::collections::BTreeSet::new();
        let mut quiet = 0;
        // Long enough for retransmissions, and for TIME-WAIT to end.
        for _ in 0..30_000 {
            self.accept();
            self.round(Duration::from_millis(2), None);
            quiet += 1;
            for pair in 0..PAIRS {
                for end in 0..2 {
                    let before = self.pairs[pair].ends[end].received;
                    if self.receive(pair, end, 1 << 16).is_some() {
                        lost.insert(pair);
                        self.forget(pair);
                    } else if self.pairs[pair].ends[end].received != before {
                        quiet = 0;
                    }
                }
            }
            if quiet > QUIET {
                break;
            }
        }
        for (number, pair) in self.pairs.iter().enumerate() {
            let [a, b] = pair.ends;
            if a.id != 0 && b.id != 0 {
                assert_eq!(
                    (a.sent, b.sent),
                    (b.received, a.received),
                    "bytes of pair {number}"
                );
            } else if let Some(id) = pair.ends.iter().find_map(End::connection) {
                let host = host_of(number, usize::from(a.id == 0));
                let state = self.stacks[host].state(id);
                assert_eq!(state, Ok(State::SynSent), "pair {number} has one end only");
            }
        }
        lost.len()
    }

    fn forget(&mut self, pair: usize) {
        let now = self.now();
        for (end, known) in self.pairs[pair].ends.iter().enumerate() {
            if let Some(id) = known.connection() {
                let _ = self.stacks[host_of(pair, end)].close(now, id);
            }
        }
        self.pairs[pair] = Pair::default();
    }

    /// Closes all connections, and checks that none is left.
    fn end(&mut self) {
        (0..PAIRS).for_each(|pair| self.forget(pair));
        for _ in 0..20_000 {
            self.accept();
            self.round(Duration::from_millis(10), None);
            if self.stacks.iter().all(|stack| stack.connections() == 0) {
                break;
            }
        }
        for stack in &self.stacks {
            assert_eq!((stack.connections(), stack.payload_blocks_used()), (0, 0));
            assert_eq!(stack.open_channels(), 0);
        }
    }
}

/// Not a test of its own: the process that is killed.
#[test]
fn the_process_that_is_killed() {
    let Ok(seed) = std::env::var(SEED) else {
        return;
    };
    let strategy = std::env::var(STRATEGY).unwrap();
    let fd = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let region = Region::open(fd, Access::ReadWrite).unwrap();
    let shared = Shared::attach(region, strategy_of(&strategy));
    World::work(&shared, seed.parse().unwrap());
}

fn strategy_of(name: &str) -> DemuxStrategy {
    match name {
        "chains" => DemuxStrategy::Sequent { chains: 5 },
        "list" => DemuxStrategy::Bsd,
        _ => DemuxStrategy::FlowTable,
    }
}

struct Process(Child);

impl Process {
    fn start(region: &OwnedFd, seed: u64, strategy: &str) -> Process {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_process_that_is_killed", "--nocapture"])
            .env(SEED, seed.to_string())
            .env(STRATEGY, strategy)
            .stdin(region.try_clone().unwrap())
            .stdout(Stdio::null())
            .spawn();
        Process(child.unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn survive(strategy: &str, kills: u64, seed: u64) {
    println!("seed {seed}");
    let demux = strategy_of(strategy);
    let region = Region::create("killed", Shared::len(demux)).unwrap();
    let fd = region.fd().unwrap().try_clone_to_owned().unwrap();
    let shared = Shared::create(region, demux);
    {
        let mut world = shared.world.lock().unwrap();
        world.notes[0].now = 1_000_000_000;
        for (stack, host) in world.stacks.iter_mut().zip(HOSTS) {
            let at = SocketAddr::new(host.into(), PORT);
            let settings = stack.default_settings();
            stack.listen(Instant(1_000_000_000), at, 64, &settings).unwrap();
        }
    }
    let mut random = Random(seed);
    let (mut seized, mut lost) = (0, 0);
    for _ in 0..kills {
        let before = shared.steps.word(0).load(Acquire);
        let mut process = Process::start(&fd, random.next(), strategy);
        let wanted = 1 + random.below(3000) as u32;
        while shared.steps.word(0).load(Acquire).wrapping_sub(before) < wanted {
            assert!(process.0.try_wait().unwrap().is_none(), "it has ended by itself");
            std::hint::spin_loop();
        }
        (0..random.below(5000)).for_each(|_| std::hint::spin_loop());
        drop(process);
        let mut world = match shared.world.seize(MORTAL) {
            Some(mut world) => {
                world.mend();
                seized += 1;
                world
            }
            None => shared.world.lock().unwrap(),
        };
        for wire in &mut world.wires {
            wire.0.clear();
        }
        let strangers = world.settle();
        // One connection of each host, if it was not the one in use.
        assert!(strangers <= 2, "{strangers} connections were lost");
        lost += strangers;
    }
    println!("{seized} of {kills} were killed with the lease, and took {lost} other connections along");
    assert!(seized > kills / 4, "they were killed elsewhere");
    shared.world.lock().unwrap().end();
}

fn seed() -> u64 {
    std::env::var("TOEHOLD_TEST_SEED").map_or_else(
        |_| std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
        |seed| seed.parse().unwrap(),
    )
}

#[test]
fn connections_survive_kill_of_stack_process() {
    survive("table", 40, seed());
}

#[test]
fn connections_survive_kill_with_other_demultiplexers() {
    survive("chains", 15, seed());
    survive("list", 15, seed());
}
