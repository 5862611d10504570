//! Toehold's stack and smoltcp's as peers, under virtual time. Two instances of one
//! stack could share a misunderstanding.

mod theirs;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use theirs::{Settings, Theirs};
use toehold_link::impair::{Impair, ImpairSettings, Impairments};
use toehold_link::loopback::{Loopback, LoopbackSettings};
use toehold_link::{Capabilities, Link};
use toehold_shm::{Carver, Region};
use toehold_sim::endpoint::{Endpoint, Outcome, Plan, Server, Service};
use toehold_stack::{Config, Instant, Stack};

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PORT: u16 = 80;
/// Longest exchange in nanoseconds of virtual time.
const MOST_NS: u64 = 3_600_000_000_000;
/// Most steps at one point in time.
const MOST_ROUNDS: u32 = 10_000;
const MS: u64 = 1_000_000;

fn address(host: u8, ipv6: bool) -> IpAddr {
    match ipv6 {
        false => Ipv4Addr::new(10, 9, 0, host).into(),
        true => Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, host.into()).into(),
    }
}

/// Parameters of one exchange.
#[derive(Debug, Clone)]
struct Exchange {
    seed: u64,
    we_connect: bool,
    ipv6: bool,
    mtu: u16,
    path: Impairments,
    /// The plans of Toehold's program and of smoltcp's.
    plans: [Plan; 2],
    /// Bytes of Toehold's receive buffer, and of smoltcp's buffers.
    our_buffer: u32,
    their_buffers: [usize; 2],
}

impl Exchange {
    /// Draws an exchange from a seed, over a path.
    fn seeded(seed: u64, path: Impairments) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut plans = Plan::pair(seed, 200_000);
        // smoltcp discards unread data when its TIME-WAIT of ten seconds ends.
        let [_, theirs] = &mut plans;
        let reads = 1 + theirs.receive / theirs.read_len as u64;
        theirs.read_pause = theirs.read_pause.min(Duration::from_secs(5) / reads as u32);
        Self {
            seed,
            we_connect: random.bool(),
            ipv6: random.bool(),
            mtu: [1280, 1500, 9000][random.usize(..3)],
            path,
            plans,
            our_buffer: 1 << random.u32(12..20),
            their_buffers: [1 << random.u32(11..17), 1 << random.u32(11..17)],
        }
    }

    /// Runs the exchange. Returns its duration.
    fn run(&self) -> Duration {
        let mut world = World::new(self);
        world.run_until("both are done", |world| {
            world
                .ours
                .as_ref()
                .is_some_and(|end| end.outcome != Outcome::Running)
                && world.theirs.is_done()
        });
        let ours = world.ours.as_ref().map(|end| end.outcome);
        assert_eq!(ours, Some(Outcome::Complete), "{self:?}");
        let took = world.now - World::BEGINNING;
        world.run_until("nothing is left", |world| {
            world.stack.connections() == 0 && world.theirs.is_closed()
        });
        assert_eq!(world.stack.payload_blocks_used(), 0, "{self:?}");
        Duration::from_nanos(took)
    }
}

/// Both hosts, their cable and their clock.
struct World {
    exchange: Exchange,
    now: u64,
    stack: Stack,
    link: Impair<Loopback>,
    server: Option<Server>,
    ours: Option<Endpoint>,
    theirs: Theirs,
    /// Time at which Toehold's program wants to be called.
    wants: Option<Instant>,
}

impl World {
    const BEGINNING: u64 = 3_600_000_000_000;

    fn new(exchange: &Exchange) -> Self {
        let cable = LoopbackSettings {
            capabilities: Capabilities {
                mtu: exchange.mtu,
                super_frame: exchange.mtu.into(),
                checksum_offload: false,
                local: false,
                any_thread: true,
            },
            frames: 1 << 16,
            ..LoopbackSettings::default()
        };
        let (near, far) = Loopback::pair([OURS, THEIRS], cable).expect("a cable");
        let link = Impair::new(
            near,
            ImpairSettings {
                seed: exchange.seed,
                transmit: exchange.path,
                receive: exchange.path,
                ..ImpairSettings::default()
            },
        );
        let theirs = Settings {
            address: THEIRS,
            ips: [(address(2, false), 24), (address(2, true), 64)],
            mtu: exchange.mtu,
            buffers: exchange.their_buffers,
            seed: exchange.seed,
        };
        let [ours, plan] = exchange.plans.clone();
        let mut world = Self {
            now: Self::BEGINNING,
            stack: stack(exchange, link.capabilities()),
            link,
            server: None,
            ours: None,
            theirs: Theirs::new(Self::BEGINNING, far, &theirs, plan),
            wants: None,
            exchange: exchange.clone(),
        };
        world.begin(ours);
        world
    }

    fn begin(&mut self, plan: Plan) {
        let (now, settings) = (Instant(self.now), self.stack.default_settings());
        let Exchange { we_connect, ipv6, .. } = self.exchange;
        if we_connect {
            self.theirs.listen(PORT);
            let to = SocketAddr::new(address(2, ipv6), PORT);
            let connection = self.stack.connect(now, None, to, &settings);
            let connection = connection.expect("an attempt");
            self.ours = Some(Endpoint::new(now, &mut self.stack, connection, plan));
        } else {
            let at = SocketAddr::new(address(1, ipv6), PORT);
            let listener = self.stack.listen(now, at, 8, &settings).expect("a listener");
            let service = Service::Fixed(plan);
            self.server = Some(Server { listener, service });
            self.theirs.connect((address(1, ipv6), PORT), 49_500);
        }
    }

    fn run_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let limit = self.now + MOST_NS;
        let mut rounds = 0;
        while !done(self) {
            let busy = self.round();
            rounds = if busy { rounds + 1 } else { 0 };
            assert!(
                rounds < MOST_ROUNDS,
                "the hosts never come to rest: {}",
                self.describe()
            );
            if !busy && !done(self) {
                let next = self.next_due().filter(|next| *next <= limit);
                let Some(next) = next else {
                    panic!("never: {what}; {}", self.describe());
                };
                self.now = next.max(self.now + 1000);
            }
        }
    }

    /// Lets both hosts act. Returns whether one of them did.
    fn round(&mut self) -> bool {
        let now = Instant(self.now);
        if self.stack.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.stack.handle_timeout(now);
        }
        let stack = &mut self.stack;
        let frames = self
            .link
            .receive(now.0, 64, &mut |frame| stack.handle_frame(now, frame));
        if self.ours.is_none()
            && let Some(server) = &self.server
        {
            self.ours = server.accept(now, stack).pop();
        }
        let mut moved = 0;
        if let Some(end) = &mut self.ours {
            let before = end.sent + end.received;
            self.wants = end.run(now, stack);
            moved = end.sent + end.received - before;
        }
        let had_output = stack.has_output();
        stack.poll_transmit(now, &mut self.link);
        self.link.flush();
        while stack.next_event().is_some() {}
        let sent = had_output && !stack.has_output();
        self.theirs.run(self.now) || frames != 0 || moved != 0 || sent
    }

    fn next_due(&mut self) -> Option<u64> {
        let ours = self.stack.poll_timeout().into_iter().chain(self.wants);
        let ours = ours.map(|instant| instant.0).min();
        let theirs = self.theirs.next_due(self.now);
        [ours, self.link.next_due_ns(), theirs]
            .into_iter()
            .flatten()
            .min()
    }

    fn describe(&self) -> String {
        let ours = self.ours.as_ref();
        let info = ours.map(|end| self.stack.info(end.connection));
        format!(
            "{:?}\n{ours:?}\n{info:?}\n{}",
            self.exchange,
            self.theirs.describe()
        )
    }
}

fn stack(exchange: &Exchange, link: Capabilities) -> Stack {
    let (IpAddr::V4(v4), IpAddr::V6(v6)) = (address(1, false), address(1, true)) else {
        unreachable!("they are what they are called")
    };
    let mut config = Config {
        mac: OURS,
        ipv4: Some((v4, 24)),
        ipv6: Some((v6, 64)),
        link,
        connections: 16,
        listeners: 4,
        time_wait_records: 16,
        neighbors: 8,
        payload_blocks: 512,
        payload_block_len: 4096,
        seed: exchange.seed,
        ..Config::default()
    };
    config.tcp.receive_buffer = exchange.our_buffer;
    let region = Region::private(Stack::region_len(&config)).expect("memory");
    let mut carver = Carver::new(region).expect("a fresh region");
    Stack::create(&mut carver, &config).expect("a stack")
}

fn each_seed(seeds: std::ops::Range<u64>, path: impl Fn(u64) -> Impairments) {
    for seed in seeds {
        // On failure the captured output names the seed.
        println!("seed {seed}");
        Exchange::seeded(seed, path(seed)).run();
    }
}

#[test]
fn streams_over_perfect_path_are_intact() {
    each_seed(0..200, |_| Impairments::default());
}

#[test]
fn streams_with_loss_are_intact() {
    each_seed(1000..1100, |seed| Impairments {
        loss: [0.001, 0.01, 0.05, 0.1][(seed % 4) as usize],
        delay_ns: (seed % 7) * MS,
        ..Impairments::default()
    });
}

#[test]
fn streams_with_reordering_and_duplication_are_intact() {
    each_seed(2000..2100, |seed| Impairments {
        reorder: [0.0, 0.01, 0.2][(seed % 3) as usize],
        duplicate: [0.01, 0.2, 0.0][(seed / 3 % 3) as usize],
        delay_ns: MS,
        jitter_ns: MS / 2,
        ..Impairments::default()
    });
}

#[test]
fn streams_over_bad_path_are_intact() {
    each_seed(3000..3050, |seed| Impairments {
        loss: 0.02,
        duplicate: 0.02,
        corrupt: 0.01,
        reorder: 0.05,
        delay_ns: (seed % 4) * 20 * MS,
        jitter_ns: MS,
        rate_bps: 50_000_000,
        ..Impairments::default()
    });
}

/// A program that reads slowly closes its window again and again. Window probes
/// detect when it opens.
#[test]
fn closed_window_opens_again() {
    for (seed, we_connect) in [(1, false), (2, true)] {
        for slow in [0, 1] {
            let mut exchange = Exchange::seeded(
                seed,
                Impairments {
                    loss: 0.05,
                    delay_ns: MS,
                    ..Impairments::default()
                },
            );
            exchange.we_connect = we_connect;
            exchange.our_buffer = 4096;
            exchange.their_buffers = [1 << 14, 1 << 12];
            for plan in &mut exchange.plans {
                plan.send = 60_000;
                plan.receive = 60_000;
                (plan.read_pause, plan.write_pause) = (Duration::ZERO, Duration::ZERO);
                (plan.read_len, plan.write_len) = (1 << 16, 1 << 16);
            }
            exchange.plans[slow].read_len = 3000;
            exchange.plans[slow].read_pause = Duration::from_millis(700);
            let took = exchange.run();
            // The program makes 20 reads of 3000 bytes, with a pause before
            // each but the first.
            assert!(took >= Duration::from_millis(19 * 700), "{took:?}");
        }
    }
}

/// A connection without data only opens and closes.
#[test]
fn connections_without_data_open_and_close() {
    for seed in 4000..4040 {
        let path = Impairments {
            loss: if seed % 2 == 0 { 0.2 } else { 0.0 },
            delay_ns: MS,
            ..Impairments::default()
        };
        let mut exchange = Exchange::seeded(seed, path);
        for plan in &mut exchange.plans {
            (plan.send, plan.receive) = (0, 0);
        }
        exchange.run();
    }
}
