//! A network of nodes under virtual time.
//!
//! Nothing runs by itself. [`Network::step`] advances the clock to the next
//! event (a frame's arrival, a stack's deadline, a program's pause) and lets
//! every node act. One seed always gives one run, to the last bit, see
//! [`Network::fingerprint`]. With `TOEHOLD_TRACE` in the environment every
//! packet is printed as it is sent.
//!
//! After every step the network checks its invariants. Bounds are kept, and no
//! connection is silent for longer than TCP's timers explain.

mod node;
mod switch;
mod watch;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::sync::{Arc, Mutex};

use toehold_stack::{Config, ConnectionId, Instant};

pub use self::node::{Node, NodeSettings};
use self::switch::Switch;
use crate::endpoint::{Endpoint, Outcome, Plan, Server, Service, connection_seed};
use crate::host::BEGINNING;
use crate::packet::Packet;

/// A jump of the clock from which connections are also checked at its end.
const LONG_JUMP: Duration = Duration::from_millis(50);

/// Longest time in which the remains of connections must vanish.
const MOST_SETTLING: Duration = Duration::from_secs(3600);

/// Nodes on one switch.
pub struct Network {
    /// The nodes in the order of [`Network::add`].
    pub nodes: Vec<Node>,
    now: Instant,
    seed: u64,
    switch: Arc<Mutex<Switch>>,
}

impl Network {
    /// Creates a network without nodes.
    pub fn new(seed: u64) -> Self {
        Self {
            nodes: Vec::new(),
            now: BEGINNING,
            seed,
            switch: Arc::default(),
        }
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Adds a node and returns its number. Number `n` has the addresses
    /// 10.0.0.`n+1` and fd00::`n+1`.
    ///
    /// # Panics
    ///
    /// If there is no memory for the node.
    pub fn add(&mut self, settings: &NodeSettings) -> usize {
        let index = self.nodes.len();
        let host = index as u8 + 1;
        let mut secret = [0; 16];
        fastrand::Rng::with_seed(self.seed ^ u64::from(host)).fill(&mut secret);
        let config = Config {
            mac: [2, 0, 0, 0, 0, host],
            ipv4: Some((Ipv4Addr::new(10, 0, 0, host), 24)),
            ipv6: Some((Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()), 64)),
            secret,
            seed: self.seed ^ u64::from(host) << 32,
            ..settings.config.clone()
        };
        let node = Node::new(&self.switch, settings, config, self.seed ^ u64::from(host) << 48);
        self.nodes.push(node.expect("memory for a node"));
        index
    }

    /// Returns a node's address, IPv4 or IPv6.
    pub fn address(&self, node: usize, ipv6: bool) -> IpAddr {
        let config = self.nodes[node].config();
        let v4 = config.ipv4.map(|(address, _)| IpAddr::from(address));
        let v6 = config.ipv6.map(|(address, _)| IpAddr::from(address));
        if ipv6 { v6 } else { v4 }.expect("every node has both")
    }

    /// Opens a listener with a program that serves accepted connections.
    ///
    /// # Panics
    ///
    /// If the port is taken.
    pub fn serve(&mut self, node: usize, port: u16, ipv6: bool, most_bytes: u64) {
        let service = Service::Seeded(self.seed, most_bytes);
        self.serve_as(node, port, ipv6, service);
    }

    /// Opens a listener with a program that serves accepted connections as
    /// `service` says.
    ///
    /// # Panics
    ///
    /// If the port is taken.
    pub fn serve_as(&mut self, node: usize, port: u16, ipv6: bool, service: Service) {
        let address = SocketAddr::new(self.address(node, ipv6), port);
        let now = self.now;
        let node = &mut self.nodes[node];
        let settings = node.stack.default_settings();
        let listener = node.stack.listen(now, address, 64, &settings);
        let listener = listener.expect("a free port");
        node.add_server(Server { listener, service });
    }

    /// Opens a connection with a program at this end. The caller has called
    /// [`Network::serve`] for the other end with an equal number of bytes.
    ///
    /// # Panics
    ///
    /// If the stack refuses the attempt.
    pub fn connect(
        &mut self,
        node: usize,
        to: usize,
        port: u16,
        ipv6: bool,
        most_bytes: u64,
    ) -> ConnectionId {
        let seed = self.seed;
        self.connect_as(node, to, port, ipv6, |client| {
            let [plan, _] = Plan::pair(connection_seed(seed, client), most_bytes);
            plan
        })
    }

    /// Opens a connection with a program at this end. The program's plan may
    /// depend on its address.
    ///
    /// # Panics
    ///
    /// If the stack refuses the attempt.
    pub fn connect_as(
        &mut self,
        node: usize,
        to: usize,
        port: u16,
        ipv6: bool,
        plan: impl FnOnce(SocketAddr) -> Plan,
    ) -> ConnectionId {
        let remote = SocketAddr::new(self.address(to, ipv6), port);
        let local = SocketAddr::new(self.address(node, ipv6), 0);
        let now = self.now;
        let node = &mut self.nodes[node];
        let settings = node.stack.default_settings();
        let id = node.stack.connect(now, Some(local), remote, &settings);
        let id = id.expect("an attempt");
        let client = node.stack.local_addr(id).expect("just opened");
        let endpoint = Endpoint::new(now, &mut node.stack, id, plan(client));
        node.add_endpoint(now, endpoint);
        id
    }

    /// Advances to the next event, but not beyond `limit`. Returns `false` if
    /// nothing happens until then.
    pub fn step(&mut self, limit: Instant) -> bool {
        let next = self.nodes.iter().filter_map(Node::next_due).min();
        let Some(next) = next.filter(|next| *next <= limit) else {
            self.now = self.now.max(limit);
            return false;
        };
        if next.since(self.now) >= LONG_JUMP {
            // A silence is checked at its end, before an event breaks it.
            self.check(next);
        }
        self.now = self.now.max(next);
        for node in &mut self.nodes {
            node.run(self.now);
        }
        self.check(self.now);
        true
    }

    fn check(&mut self, now: Instant) {
        for node in &mut self.nodes {
            node.check(now);
        }
    }

    /// Runs until every program is done.
    ///
    /// # Panics
    ///
    /// If a program is not done after `most`.
    pub fn run(&mut self, most: Duration) {
        let limit = self.now + most;
        while !self.nodes.iter().all(Node::is_done) {
            if !self.step(limit) {
                break;
            }
        }
        for (index, node) in self.nodes.iter().enumerate() {
            for endpoint in &node.endpoints {
                assert_ne!(
                    endpoint.outcome,
                    Outcome::Running,
                    "node {index}: {endpoint:?} is not done after {most:?}: {:?}",
                    node.stack.info(endpoint.connection)
                );
            }
        }
    }

    /// Runs for the given span.
    pub fn run_for(&mut self, span: Duration) {
        let limit = self.now + span;
        while self.step(limit) {}
    }

    /// Runs until all connections are freed.
    ///
    /// # Panics
    ///
    /// If connections remain after an hour, or payload memory is in use without
    /// connections.
    pub fn settle(&mut self) {
        let limit = self.now + MOST_SETTLING;
        let busy = |node: &Node| node.stack.connections() > 0;
        while self.nodes.iter().any(busy) && self.step(limit) {}
        for (index, node) in self.nodes.iter().enumerate() {
            assert_eq!(node.stack.connections(), 0, "node {index} keeps connections");
            assert_eq!(
                node.stack.payload_blocks_used(),
                0,
                "node {index} keeps payload memory"
            );
        }
    }

    /// Passes a node a packet that no node sent, as an attacker on its wire
    /// would.
    pub fn forge(&mut self, node: usize, packet: &Packet) {
        let now = self.now;
        self.nodes[node].forge(now, packet);
    }

    /// Returns a hash of the run. Two runs have equal hashes only if equal frames
    /// passed at equal times.
    pub fn fingerprint(&self) -> u64 {
        let nodes = self.nodes.iter().map(|node| node.watch.fingerprint());
        nodes.fold(0, |sum: u64, part| sum.rotate_left(7) ^ part)
    }

    /// Number of frames that nodes sent and received.
    pub fn frames(&self) -> u64 {
        self.nodes.iter().map(|node| node.watch.frames).sum()
    }
}
