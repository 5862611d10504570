//! A stack at the end of a TAP device, driven by the test's thread, in real
//! time.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant as Clock};

use toehold_link::Link;
use toehold_link::impair::{Impair, ImpairSettings, ImpairStatistics};
use toehold_link::interface::{Interface, Namespace};
use toehold_link::tap::{Tap, TapSettings};
use toehold_shm::{Carver, Region};
use toehold_sim::endpoint::{Endpoint, Outcome, Plan, Server, Service};
use toehold_stack::{Config, Instant, ListenerId, Stack, TcpConfig};

/// Time limit of a test that hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A kernel in a namespace of its own, and the TAP device to it.
pub(crate) struct Cable {
    pub(crate) namespace: Namespace,
    pub(crate) interface: Interface,
    pub(crate) machine: Machine,
}

impl Cable {
    pub(crate) const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];
    pub(crate) const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 7, 0, 1));
    pub(crate) const THEIRS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 7, 0, 2));
    pub(crate) const OURS_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 1));
    pub(crate) const THEIRS_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 2));

    pub(crate) fn new(settings: &TapSettings) -> Self {
        Self::impaired(settings, ImpairSettings::default(), TcpConfig::default())
    }

    /// Creates a cable with faults.
    pub(crate) fn impaired(settings: &TapSettings, faults: ImpairSettings, tcp: TcpConfig) -> Self {
        let namespace = Namespace::create().expect("a network namespace");
        let (tap, mut interface) = Tap::create(settings, &namespace).expect("a TAP device");
        interface.add_address(Self::THEIRS, 24).expect("an address");
        interface.add_address(Self::THEIRS_V6, 64).expect("an address");
        interface.set_up(true).expect("the interface goes up");
        Self {
            namespace,
            interface,
            machine: Machine::new(Impair::new(tap, faults), tcp),
        }
    }
}

/// A stack and its end of the cable.
pub(crate) struct Machine {
    pub(crate) stack: Stack,
    link: Impair<Tap>,
    began: Clock,
    servers: Vec<Server>,
    endpoints: Vec<Endpoint>,
}

/// The endpoint that a listener's connection becomes.
#[derive(Clone, Copy)]
pub(crate) struct Served(usize);

impl Machine {
    fn new(link: Impair<Tap>, tcp: TcpConfig) -> Self {
        let (IpAddr::V4(v4), IpAddr::V6(v6)) = (Cable::OURS, Cable::OURS_V6) else {
            unreachable!("they are what they are called")
        };
        let config = Config {
            mac: Cable::ADDRESS,
            ipv4: Some((v4, 24)),
            ipv6: Some((v6, 64)),
            link: link.capabilities(),
            connections: 64,
            listeners: 16,
            time_wait_records: 64,
            neighbors: 16,
            payload_blocks: 1024,
            tcp,
            ..Config::default()
        };
        let region = Region::private(Stack::region_len(&config)).expect("memory");
        let mut carver = Carver::new(region).expect("a fresh region");
        Self {
            stack: Stack::create(&mut carver, &config).expect("a stack"),
            link,
            began: Clock::now(),
            servers: Vec::new(),
            endpoints: Vec::new(),
        }
    }

    /// Returns Toehold's end of the cable.
    pub(crate) fn tap(&self) -> &Tap {
        self.link.inner()
    }

    /// Returns the faults of sent and of received frames.
    pub(crate) fn faults(&self) -> [ImpairStatistics; 2] {
        [self.link.transmit_statistics(), self.link.receive_statistics()]
    }

    pub(crate) fn now(&self) -> Instant {
        // The clock starts at one second, so that no event is at time zero.
        Instant(1_000_000_000 + self.began.elapsed().as_nanos() as u64)
    }

    /// Lets the next connection to this port follow the plan.
    pub(crate) fn listen(&mut self, address: IpAddr, port: u16, plan: Plan) -> Served {
        let settings = self.stack.default_settings();
        let at = SocketAddr::new(address, port);
        let listener: ListenerId = self
            .stack
            .listen(self.now(), at, 8, &settings)
            .expect("a listener");
        let service = Service::Fixed(plan);
        self.servers.push(Server { listener, service });
        Served(self.endpoints.len())
    }

    /// Runs until Toehold's end of the connection and `kernel` are done. The kernel
    /// may still have to receive data that the program has handed to the stack.
    pub(crate) fn run_until_served(&mut self, served: Served, kernel: &ScopedJoinHandle<'_, ()>) -> Outcome {
        self.run_until(|machine| {
            let endpoint = machine.endpoints.get(served.0)?;
            let done = endpoint.outcome != Outcome::Running && kernel.is_finished();
            done.then_some(endpoint.outcome)
        })
    }

    /// Runs until the connection has received this many bytes.
    pub(crate) fn run_until_received(&mut self, served: Served, bytes: u64) {
        self.run_until(|machine| (machine.endpoints.get(served.0)?.received >= bytes).then_some(()));
    }

    /// Opens a connection that follows the plan.
    pub(crate) fn connect(&mut self, to: SocketAddr, plan: Plan) -> Served {
        let settings = self.stack.default_settings();
        let now = self.now();
        let connection = self
            .stack
            .connect(now, None, to, &settings)
            .expect("a connection");
        let endpoint = Endpoint::new(now, &mut self.stack, connection, plan);
        self.endpoints.push(endpoint);
        Served(self.endpoints.len() - 1)
    }

    fn run_until<T>(&mut self, mut done: impl FnMut(&Self) -> Option<T>) -> T {
        let patience = Clock::now() + PATIENCE;
        loop {
            self.round();
            if let Some(value) = done(self) {
                return value;
            }
            assert!(
                Clock::now() < patience,
                "stuck: {:?} {:?}",
                self.endpoints,
                self.tap().statistics()
            );
        }
    }

    /// Runs a driver's round. It does not sleep: these tests are short.
    pub(crate) fn round(&mut self) {
        let now = self.now();
        if self.stack.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.stack.handle_timeout(now);
        }
        let stack = &mut self.stack;
        self.link
            .receive(now.0, 64, &mut |frame| stack.handle_frame(now, frame));
        for server in &self.servers {
            self.endpoints.extend(server.accept(now, stack));
        }
        for endpoint in &mut self.endpoints {
            endpoint.run(now, stack);
        }
        stack.poll_transmit(now, &mut self.link);
        self.link.flush();
        while self.stack.next_event().is_some() {}
        std::thread::yield_now();
    }
}
