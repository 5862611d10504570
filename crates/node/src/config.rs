//! The configuration of a node that a program makes.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toehold_link::Capabilities;
use toehold_link::impair::ImpairSettings;
use toehold_link::mq::{Bound, Quotas};
use toehold_link::steering::MAX_SHARDS;
use toehold_stack::{Config, DemuxStrategy, TcpConfig};

use crate::direct::share_out;
use crate::error::NodeError;
use crate::kernel::Device;
use crate::placement::Placement;

/// Most connections of a node. The remains of closed ones are found through the same table.
pub(crate) const MAX_CONNECTIONS: u32 = 16_000_000;

/// Settings of a node, with defaults for all but its names.
///
/// ```
/// use toehold_node::NodeConfig;
///
/// let config = NodeConfig::new("/run/user/1000/fabric", "web-1")
///     .ipv4([10, 0, 0, 1], 24)
///     .connections(10_000)
///     .tcp(|tcp| tcp.receive_buffer = 4 << 20);
/// assert_eq!(config.name(), "web-1");
/// ```
#[derive(Debug, Clone)]
pub struct NodeConfig {
    pub(crate) fabric: Option<PathBuf>,
    pub(crate) name: String,
    pub(crate) mac: Option<[u8; 6]>,
    pub(crate) ipv4: Option<(Ipv4Addr, u8)>,
    pub(crate) ipv6: Option<(Ipv6Addr, u8)>,
    pub(crate) mtu: u16,
    pub(crate) ring_capacity: usize,
    pub(crate) max_peers: usize,
    pub(crate) quotas: Quotas,
    pub(crate) zero_copy: bool,
    pub(crate) capture: Option<PathBuf>,
    pub(crate) impair: Option<ImpairSettings>,
    pub(crate) connections: u32,
    pub(crate) payload_memory: usize,
    pub(crate) demux: DemuxStrategy,
    pub(crate) demux_counters: bool,
    pub(crate) direct: bool,
    pub(crate) tcp: Option<TcpConfig>,
    pub(crate) drain: Duration,
    pub(crate) placement: Placement,
    pub(crate) shards: u8,
    pub(crate) seed: Option<u64>,
    /// The device of the kernel's stack beside the node's.
    pub(crate) kernel: Option<Arc<Device>>,
}

/// Bytes of a connection's send buffer at first. With the peer's receive buffer it stays in the
/// second-level cache of a core, see docs/performance.md.
const SEND_BUFFER: u32 = 256 << 10;

/// Bytes of a connection's receive buffer at first.
const RECEIVE_BUFFER: u32 = 128 << 10;

/// Bytes of a connection's buffers over short paths at most, each.
const SHORT_PATHS_BUFFER: u32 = 1 << 20;

/// Bytes of a connection's buffers whose reader does not come, each: together what the kernel's take
/// (`net.ipv4.tcp_wmem`, 4 MiB).
const IDLE_BUFFER: u32 = 2 << 20;

/// Bytes of a connection's buffers over the longest paths, each: 400 ms at 160 Mb/s.
const LONG_PATHS_BUFFER: u32 = 8 << 20;

/// Bytes of a block of payload memory.
const BLOCK_LEN: u32 = 1 << 14;

impl NodeConfig {
    /// A node of the fabric whose directory this is, which is made if it does not exist. The name
    /// is unique in it: 1 to 63 letters, digits, `-`, `_` or `.`.
    pub fn new(fabric: impl Into<PathBuf>, name: impl Into<String>) -> Self {
        Self {
            fabric: Some(fabric.into()),
            ..Self::alone(name)
        }
    }

    /// A node of no fabric: its programs can reach one another and no other node.
    pub fn alone(name: impl Into<String>) -> Self {
        let stack = Config::default();
        Self {
            fabric: None,
            name: name.into(),
            mac: None,
            ipv4: None,
            ipv6: None,
            mtu: 1500,
            ring_capacity: 1 << 20,
            max_peers: 64,
            quotas: Quotas::NONE,
            zero_copy: true,
            capture: None,
            impair: None,
            connections: stack.connections,
            payload_memory: stack.payload_blocks as usize * BLOCK_LEN as usize,
            demux: stack.demux,
            demux_counters: stack.demux_counters,
            tcp: None,
            drain: Duration::from_secs(2),
            placement: Placement::default(),
            shards: 1,
            seed: None,
            kernel: None,
            direct: false,
        }
    }

    /// The node's IP addresses.
    pub(crate) fn bound(&self) -> Bound {
        Bound::new(
            self.ipv4.map(|(address, _)| address),
            self.ipv6.map(|(address, _)| address),
        )
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// IPv4 address and the length of its network's prefix in bits.
    #[must_use]
    pub fn ipv4(mut self, address: impl Into<Ipv4Addr>, prefix: u8) -> Self {
        self.ipv4 = Some((address.into(), prefix));
        self
    }

    /// IPv6 address and the length of its network's prefix in bits. A
    /// link-local address follows from the hardware address in any case.
    #[must_use]
    pub fn ipv6(mut self, address: impl Into<Ipv6Addr>, prefix: u8) -> Self {
        self.ipv6 = Some((address.into(), prefix));
        self
    }

    /// Hardware address, unique in the fabric. By default it follows from the name.
    #[must_use]
    pub fn mac(mut self, mac: [u8; 6]) -> Self {
        self.mac = Some(mac);
        self
    }

    /// Largest IP packet in bytes, 68 to 65521; 1500 by default. Bulk data
    /// cross the fabric in super-frames whatever the MTU is.
    #[must_use]
    pub fn mtu(mut self, mtu: u16) -> Self {
        self.mtu = mtu;
        self
    }

    /// Bytes of the ring to each peer: a power of two from 64 KiB to 16 MiB, 1 MiB by default.
    #[must_use]
    pub fn ring_capacity(mut self, bytes: usize) -> Self {
        self.ring_capacity = bytes;
        self
    }

    /// Most peers at once, 1 to 128; 64 by default.
    #[must_use]
    pub fn max_peers(mut self, peers: usize) -> Self {
        self.max_peers = peers;
        self
    }

    /// Limits how many of the peers one user and one process can be. By default they can be all
    /// peers.
    #[must_use]
    pub fn quotas(mut self, quotas: Quotas) -> Self {
        self.quotas = quotas;
        self
    }

    /// Whether peers of the same user read bulk data in place, the default. Each peer does so in a
    /// memory file that holds nothing but what is sent to it.
    #[must_use]
    pub fn zero_copy(mut self, on: bool) -> Self {
        self.zero_copy = on;
        self
    }

    /// Records all frames in a new pcapng file.
    #[must_use]
    pub fn capture(mut self, file: impl Into<PathBuf>) -> Self {
        self.capture = Some(file.into());
        self
    }

    /// Makes the link bad: loss, delay, reordering. It no longer counts as local then.
    #[must_use]
    pub fn impair(mut self, settings: ImpairSettings) -> Self {
        self.impair = Some(settings);
        self
    }

    /// Most connections at once, half-open and closing ones included; 65536 by
    /// default. Each takes about half a KiB of memory from its first use on.
    #[must_use]
    pub fn connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// Bytes that may wait in all send and receive queues together; 128 MiB by
    /// default. Memory is taken up as it is used.
    #[must_use]
    pub fn payload_memory(mut self, bytes: usize) -> Self {
        self.payload_memory = bytes;
        self
    }

    /// Demultiplexing strategy.
    #[must_use]
    pub fn demux(mut self, strategy: DemuxStrategy) -> Self {
        self.demux = strategy;
        self
    }

    /// Sets whether the work of the strategy of [`demux`](Self::demux) is counted; not by default.
    #[must_use]
    pub fn demux_counters(mut self, on: bool) -> Self {
        self.demux_counters = on;
        self
    }

    /// Changes settings of TCP, beginning with [`local_tcp`]. Left alone, they
    /// are these on a local link, and [`TcpConfig::default`] on any other.
    #[must_use]
    pub fn tcp(mut self, change: impl FnOnce(&mut TcpConfig)) -> Self {
        change(self.tcp.get_or_insert_with(local_tcp));
        self
    }

    /// The threads that drive the stack; [`Placement::Adaptive`] by default.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Independent stacks in the node, 1 to 16; 1 by default. A connection belongs to one
    /// of them, and threads that use different ones never wait for each other. They share
    /// out the bounds of connections and payload memory.
    #[must_use]
    pub fn shards(mut self, shards: u8) -> Self {
        self.shards = shards;
        self
    }

    /// Whether connections with nodes of this host that have them too, and with the node itself,
    /// are direct; not by default. Only nodes with an engine process have direct connections.
    #[must_use]
    pub fn direct(mut self, on: bool) -> Self {
        self.direct = on;
        self
    }

    /// Whether the node has direct connections: what counts or compares look-ups counts those of
    /// all connections.
    pub(crate) fn has_direct(&self) -> bool {
        let is_plain = self.demux == DemuxStrategy::FlowTable && !self.demux_counters;
        self.direct && is_plain && self.impair.is_none()
    }

    /// Puts the kernel's stack beside the node's, over a device.
    pub(crate) fn beside(mut self, kernel: Option<Device>) -> Self {
        self.kernel = kernel.map(Arc::new);
        self
    }

    /// How long the end of the node waits for what its programs have written
    /// and closed to arrive, at most; 2 s by default.
    #[must_use]
    pub fn drain(mut self, longest: Duration) -> Self {
        self.drain = longest;
        self
    }

    /// Makes the node's random choices repeatable, those that need secrecy too:
    /// for tests only.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The hardware address: as set, or from the name, locally administered.
    pub(crate) fn hardware_address(&self) -> [u8; 6] {
        self.mac.unwrap_or_else(|| {
            // FNV-1a: the same for every life of a node, and different for different names.
            let hash = self.name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            let [a, b, c, d, e, ..] = (hash ^ hash >> 40).to_le_bytes();
            [0x02, a, b, c, d, e]
        })
    }

    /// The stack's configuration on a link, as far as it follows from this one.
    pub(crate) fn stack(&self, link: Capabilities) -> Result<Config, NodeError> {
        for (address_bits, prefix) in [(32, self.ipv4.map(|a| a.1)), (128, self.ipv6.map(|a| a.1))] {
            if let Some(prefix) = prefix.filter(|&prefix| prefix > address_bits) {
                return Err(NodeError::Prefix(prefix));
            }
        }
        if !(1..=MAX_CONNECTIONS).contains(&self.connections) {
            let value = self.connections.into();
            return Err(NodeError::Bound {
                what: "the bound of connections",
                value,
                range: "1 to 16000000",
            });
        }
        if !(1..=MAX_SHARDS).contains(&self.shards) {
            return Err(NodeError::Bound {
                what: "the number of shards",
                value: self.shards.into(),
                range: "1 to 16",
            });
        }
        let blocks = self.payload_memory / BLOCK_LEN as usize;
        if !(16..=1 << 24).contains(&blocks) {
            let value = self.payload_memory as u64;
            return Err(NodeError::Bound {
                what: "payload memory",
                value,
                range: "256 KiB to 256 GiB",
            });
        }
        let mut tcp = match (&self.tcp, link.local) {
            (Some(tcp), _) => tcp.clone(),
            (None, true) => local_tcp(),
            (None, false) => growing(TcpConfig::default()),
        };
        if let Some(kernel) = &self.kernel {
            let ports = kernel.ports();
            (tcp.ephemeral_first, tcp.ephemeral_last) = (*ports.start(), *ports.end());
        }
        if self.has_direct() {
            share_out(&mut tcp);
        }
        Ok(Config {
            beside_kernel: self.kernel.is_some(),
            mac: self.hardware_address(),
            ipv4: self.ipv4,
            ipv6: self.ipv6,
            demux: self.demux,
            demux_counters: self.demux_counters,
            connections: self.connections,
            payload_blocks: blocks as u32,
            payload_block_len: BLOCK_LEN,
            payload_arenas: match self.zero_copy && self.fabric.is_some() {
                true => self.max_peers as u32,
                false => 0,
            },
            tcp,
            link,
            ..Config::default()
        })
    }
}

/// TCP's settings for links that stay on one machine: round trips of
/// microseconds, and losses only where a ring is full.
///
/// The retransmission timeout's floor is 10 ms, above the delays that a busy machine's scheduler
/// causes. Acknowledgements wait long enough for a program's answer to carry them, and no longer.
/// The peer's tail loss probe goes out 2 ms after the last segment (RFC 8985 §7.2), and what it
/// brings again was never lost.
pub fn local_tcp() -> TcpConfig {
    growing(TcpConfig {
        rto_min: Duration::from_millis(10),
        rto_initial: Duration::from_millis(200),
        delayed_ack: Duration::from_micros(500),
        ack_every: 8,
        ..TcpConfig::default()
    })
}

/// Settings with buffers that grow: beyond a gateway, paths may be long.
fn growing(tcp: TcpConfig) -> TcpConfig {
    TcpConfig {
        send_buffer: SEND_BUFFER,
        receive_buffer: RECEIVE_BUFFER,
        short_path_buffer: SHORT_PATHS_BUFFER,
        idle_buffer: IDLE_BUFFER,
        send_buffer_max: LONG_PATHS_BUFFER,
        receive_buffer_max: LONG_PATHS_BUFFER,
        ..tcp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toehold_stack::MAX_FLOWS;

    #[test]
    fn addresses_follow_from_names() {
        let address = |name: &str| NodeConfig::alone(name).hardware_address();
        assert_eq!(address("a"), address("a"));
        assert_ne!(address("a"), address("b"));
        assert_eq!(address("node-1")[0], 2);
        assert_eq!(NodeConfig::alone("a").mac([2; 6]).hardware_address(), [2; 6]);
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        let config = || NodeConfig::alone("a");
        let link = Config::default().link;
        assert!(config().ipv4([10, 0, 0, 1], 24).stack(link).is_ok());
        assert!(matches!(
            config().ipv4([10, 0, 0, 1], 33).stack(link),
            Err(NodeError::Prefix(33))
        ));
        let most = config().connections(MAX_CONNECTIONS).stack(link).unwrap();
        assert!(most.connections + most.time_wait_records <= MAX_FLOWS);
        let error = config().connections(0).stack(link).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the bound of connections cannot be 0; choose 1 to 16000000"
        );
        assert!(config().payload_memory(1 << 10).stack(link).is_err());
    }
}
