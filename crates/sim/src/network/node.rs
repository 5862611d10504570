//! One node: a stack with its link, its programs, and checks of both.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use toehold_link::capture::{Capture, CaptureClock, CaptureSettings, LinkType};
use toehold_link::impair::{Impair, ImpairSettings, Impairments};
use toehold_link::{
    Capabilities, Checksum, Fence, Link, MIN_PRIVATE, Offload, Received, Transmit, TransmitError, Transmitter,
};
use toehold_shm::{Access, Carver, Gather, Region};
use toehold_stack::{Config, ConnectionId, Event, Instant, ListenerId, SocketError, Stack};
use toehold_wire::tcp::Seq;

use super::switch::{Port, Switch};
use super::watch::Watch;
use crate::endpoint::{Endpoint, Outcome, Server};
use crate::packet::Packet;

/// Most frames handled in one round.
const BURST: usize = 64;

/// Most rounds at one point in time. Beyond, the node is stuck.
const MOST_ROUNDS: u32 = 100_000;

/// Settings of a node.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// The stack's settings. The network fills in addresses, link and seed.
    pub config: Config,
    /// Whether the link has super-frames and checksum offload, as between nodes
    /// of one host.
    pub local: bool,
    /// Whether peers read payload in place. Needs `local`.
    pub in_place: bool,
    /// Largest packet of the link, in bytes.
    pub mtu: u16,
    /// Faults of sent frames.
    pub transmit: Impairments,
    /// Faults of received frames.
    pub receive: Impairments,
    /// Path of the capture file, if the link is captured.
    pub capture: Option<PathBuf>,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            config: Config {
                connections: 1024,
                listeners: 16,
                time_wait_records: 1024,
                neighbors: 64,
                payload_blocks: 2048,
                payload_block_len: 4096,
                ..Config::default()
            },
            local: false,
            in_place: false,
            mtu: 1500,
            transmit: Impairments::default(),
            receive: Impairments::default(),
            capture: None,
        }
    }
}

impl NodeSettings {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.mtu,
            super_frame: if self.local { 65_535 } else { self.mtu.into() },
            checksum_offload: self.local,
            local: self.local,
            any_thread: true,
        }
    }
}

/// A node's link to the switch, with faults and an optional capture.
enum Uplink {
    Plain(Box<Impair<Port>>),
    Captured(Box<Capture<Impair<Port>>>),
}

impl Uplink {
    fn link(&mut self) -> &mut dyn Link {
        match self {
            Self::Plain(link) => link.as_mut(),
            Self::Captured(link) => link.as_mut(),
        }
    }

    fn impaired(&self) -> &Impair<Port> {
        match self {
            Self::Plain(link) => link,
            Self::Captured(link) => link.inner(),
        }
    }

    fn port(&mut self) -> &mut Port {
        match self {
            Self::Plain(link) => link.inner_mut(),
            Self::Captured(link) => link.inner_mut().inner_mut(),
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let impaired = self.impaired();
        [impaired.next_due_ns(), impaired.inner().next_due_ns()]
            .into_iter()
            .flatten()
            .min()
            .map(Instant)
    }
}

/// A link wrapper that sees every sent frame.
struct Tap<'a> {
    link: &'a mut dyn Link,
    watch: &'a mut Watch,
    now: Instant,
    /// Whether to print packets.
    trace: bool,
}

impl Transmitter for Tap<'_> {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        if self.trace {
            print_packet(self.now, frame);
        }
        self.link.transmit(frame)?;
        self.watch.sent(self.now, frame);
        Ok(())
    }

    fn fence(&self, destination: [u8; 6], flow: &toehold_link::steering::Flow) -> Fence {
        self.link.fence(destination, flow)
    }

    fn passed(&self, fence: Fence) -> bool {
        self.link.passed(fence)
    }
}

/// Prints a line about a sent packet.
fn print_packet(now: Instant, frame: &Transmit<'_>) {
    let mut bytes = frame.headers.to_vec();
    let at = bytes.len();
    bytes.resize(frame.len(), 0);
    frame.payload.copy_to(0, &mut bytes[at..]);
    let partial = frame.offload.checksum != Checksum::Complete;
    match Packet::parse(bytes.get(14..).unwrap_or(&[]), partial) {
        Ok(packet) => println!("{:.6} {} {packet}", now.0 as f64 / 1e9, packet.source),
        Err(error) => println!("{:.6} {error}, {} bytes", now.0 as f64 / 1e9, bytes.len()),
    }
}

/// A node of the network.
pub struct Node {
    /// The stack, for a test's direct calls.
    pub stack: Stack,
    /// The node's programs, those of accepted connections included.
    pub endpoints: Vec<Endpoint>,
    pub(super) watch: Watch,
    config: Config,
    servers: HashMap<ListenerId, Server>,
    by_connection: HashMap<ConnectionId, usize>,
    wake_at: Vec<Option<Instant>>,
    uplink: Uplink,
    trace: bool,
}

impl Node {
    pub(super) fn new(
        switch: &Arc<Mutex<Switch>>,
        settings: &NodeSettings,
        config: Config,
        seed: u64,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let port = Port::new(switch, config.mac, settings.capabilities());
        let impair = ImpairSettings {
            seed,
            transmit: settings.transmit,
            receive: settings.receive,
            super_frames: false,
            raw_ip: false,
        };
        let impaired = Impair::new(port, impair);
        let uplink = match &settings.capture {
            Some(path) => {
                let capture = CaptureSettings {
                    link_type: LinkType::Ethernet,
                    clock: CaptureClock::Driver,
                    ..CaptureSettings::default()
                };
                Uplink::Captured(Box::new(Capture::create(impaired, path, &capture)?))
            }
            None => Uplink::Plain(Box::new(impaired)),
        };
        let config = Config {
            link: uplink.impaired().capabilities(),
            ..config
        };
        let (stack, memory) = make_stack(&config, settings.in_place)?;
        let mut node = Self {
            stack,
            endpoints: Vec::new(),
            watch: Watch::default(),
            config,
            servers: HashMap::new(),
            by_connection: HashMap::new(),
            wake_at: Vec::new(),
            uplink,
            trace: std::env::var_os("TOEHOLD_TRACE").is_some(),
        };
        if let Some(memory) = memory {
            let area = node.stack.payload_area();
            node.uplink.port().share_payload(area, memory);
        }
        Ok(node)
    }

    /// Returns the stack's settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Starts a program.
    pub fn add_endpoint(&mut self, now: Instant, endpoint: Endpoint) {
        self.by_connection
            .insert(endpoint.connection, self.endpoints.len());
        self.endpoints.push(endpoint);
        self.wake_at.push(Some(now));
    }

    /// Starts a program that accepts connections.
    pub fn add_server(&mut self, server: Server) {
        self.servers.insert(server.listener, server);
    }

    /// Makes a program abort its connection, if it has not ended.
    pub fn abort_endpoint(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        if endpoint.outcome == Outcome::Running {
            endpoint.outcome = Outcome::Failed(SocketError::ConnectionAborted);
            let _ = self.stack.abort(endpoint.connection);
        }
    }

    /// Returns whether every program is done.
    pub fn is_done(&self) -> bool {
        self.endpoints
            .iter()
            .all(|endpoint| endpoint.outcome != Outcome::Running)
    }

    /// Receives a packet that no node sent.
    pub(super) fn forge(&mut self, now: Instant, packet: &Packet) {
        let mut frame = self.config.mac.to_vec();
        frame.extend([2, 0, 0, 0, 0, 0xee]);
        frame.extend(if packet.source.is_ipv4() {
            [0x08, 0x00]
        } else {
            [0x86, 0xdd]
        });
        frame.extend(packet.bytes());
        let (private, rest) = frame.split_at(frame.len().min(MIN_PRIVATE));
        let received = Received {
            private,
            rest: Gather::from_slice(rest),
            offload: Offload::default(),
        };
        self.stack.handle_frame(now, &received);
        self.run(now);
    }

    /// Returns the sequence number behind the last byte that this side of a
    /// connection has sent.
    pub fn sequence_end(&self, local_port: u16, remote_port: u16) -> Option<Seq> {
        self.watch.end(local_port, remote_port)
    }

    /// Returns the time of the node's next event of its own.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let programs = self.wake_at.iter().flatten().copied().min();
        [self.uplink.next_due(), self.stack.poll_timeout(), programs]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does everything that is due at `now`.
    pub(super) fn run(&mut self, now: Instant) {
        for _ in 0..MOST_ROUNDS {
            if !self.round(now) {
                return;
            }
        }
        panic!("the node never comes to rest at {now:?}");
    }

    /// Runs one round of a driver. Returns whether there is more to do at once.
    fn round(&mut self, now: Instant) -> bool {
        self.uplink.port().set_now(now.0);
        if self.stack.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.stack.handle_timeout(now);
        }
        let Self {
            stack, uplink, watch, ..
        } = self;
        let frames = uplink.link().receive(now.0, BURST, &mut |frame: &Received<'_>| {
            watch.received(frame);
            stack.handle_frame(now, frame);
        });
        self.wake_programs(now);
        let Self {
            stack, uplink, watch, ..
        } = self;
        let trace = self.trace;
        stack.poll_transmit(
            now,
            &mut Tap {
                link: uplink.link(),
                watch,
                now,
                trace,
            },
        );
        uplink.link().flush();
        self.wake_programs(now);
        frames > 0 || self.stack.has_output() || self.next_due().is_some_and(|due| due <= now)
    }

    /// Runs the programs that have an event or whose pause has ended.
    fn wake_programs(&mut self, now: Instant) {
        while let Some(event) = self.stack.next_event() {
            match event {
                Event::Connection(id) => {
                    if let Some(&index) = self.by_connection.get(&id) {
                        self.run_endpoint(now, index);
                    }
                }
                Event::Listener(id) => {
                    let Some(server) = self.servers.get(&id) else {
                        continue;
                    };
                    for endpoint in server.accept(now, &mut self.stack) {
                        self.add_endpoint(now, endpoint);
                    }
                }
            }
        }
        for index in 0..self.wake_at.len() {
            if self.wake_at[index].is_some_and(|at| at <= now) {
                self.run_endpoint(now, index);
            }
        }
    }

    fn run_endpoint(&mut self, now: Instant, index: usize) {
        self.wake_at[index] = self.endpoints[index].run(now, &mut self.stack);
    }

    /// Panics if a connection is silent without a timer that explains it.
    pub(super) fn check(&mut self, now: Instant) {
        let running = self
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.outcome == Outcome::Running);
        for endpoint in running {
            self.watch
                .check(now, &self.stack, &self.config, endpoint.connection);
        }
        let counters = self.stack.counters();
        assert!(self.stack.payload_blocks_used() <= self.config.payload_blocks);
        assert!(self.stack.connections() <= self.config.connections);
        assert!(counters.tcp_retransmits <= counters.tcp_segments_sent);
    }
}

/// A stack in a region of its own, with the region's second mapping if peers
/// read payload in place.
type Made = (Stack, Option<Arc<Region>>);

fn make_stack(config: &Config, shared: bool) -> Result<Made, Box<dyn std::error::Error>> {
    let len = Stack::region_len(config);
    let (region, memory) = if shared {
        let region = Region::create("toehold-sim", len)?;
        let memory = Region::open(region.read_only_fd()?, Access::ReadOnly)?;
        (region, Some(Arc::new(memory)))
    } else {
        (Region::private(len)?, None)
    };
    Ok((Stack::create(&mut Carver::new(region)?, config)?, memory))
}
