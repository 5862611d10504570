//! Settings of a stack, given when it is created.

use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use toehold_link::steering::Steering;

use crate::demux::DemuxStrategy;

/// Settings of one stack. Bounds are fixed for its lifetime: they size the region.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct Config {
    /// Hardware address. Ignored on links without hardware addresses.
    pub mac: [u8; 6],
    /// IPv4 address and prefix length.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// IPv4 router for destinations off the prefix.
    pub ipv4_gateway: Option<Ipv4Addr>,
    /// IPv6 address and prefix length, beside the link-local address that
    /// follows from `mac` (RFC 4291 appendix A).
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// IPv6 router for destinations off the prefix.
    pub ipv6_gateway: Option<Ipv6Addr>,
    /// Whether the kernel's stack shares this stack's addresses. If so, frames that are not for
    /// this stack go to the kernel, see
    /// [`Stack::handle_frame_beside`](crate::Stack::handle_frame_beside).
    pub beside_kernel: bool,
    /// What the link can do.
    pub link: toehold_link::Capabilities,
    /// Whether frames begin with an Ethernet header; otherwise with the IP header.
    pub ethernet: bool,
    /// Which of the node's shards this stack is. The stack takes the connections that belong to its
    /// shard. Every shard receives frames of no connection, and the first shard answers them.
    pub steering: Steering,
    /// Secret of the keyed hashes: sequence numbers, cookies, flow look-up. All shards of a node
    /// share it, so that each shard accepts the cookies of the others.
    pub secret: [u8; 16],
    /// Seed of all random numbers that need no secrecy.
    pub seed: u64,
    /// Demultiplexing strategy.
    pub demux: DemuxStrategy,
    /// Whether the demultiplexer counts its work.
    pub demux_counters: bool,
    /// Most connections at once, including half-open and closing connections.
    pub connections: u32,
    /// Most listeners at once.
    pub listeners: u32,
    /// Most TIME-WAIT records at once; the oldest go first.
    pub time_wait_records: u32,
    /// Most neighbours (hardware addresses) known at once.
    pub neighbors: u32,
    /// Blocks of payload memory.
    pub payload_blocks: u32,
    /// Bytes of a block of payload memory: a power of two.
    pub payload_block_len: u32,
    /// Most peers that read payload in place, each from an arena of its own. 0: no peer does.
    pub payload_arenas: u32,
    /// Settings of TCP.
    pub tcp: TcpConfig,
}

/// Settings of TCP. A duration that names an RFC defaults to the RFC's value.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct TcpConfig {
    /// Congestion control of new connections.
    pub congestion: CongestionAlgorithm,
    /// Initial limit of a connection's send queue, in bytes.
    pub send_buffer: u32,
    /// Initial limit of a connection's receive queue, in bytes: the window.
    pub receive_buffer: u32,
    /// Limit to which the send buffer grows over a path that holds more, in bytes. It does not grow
    /// if this is below `send_buffer`.
    pub send_buffer_max: u32,
    /// Limit to which the receive buffer grows over a path that holds more, in bytes. It does not
    /// grow if this is below `receive_buffer`.
    pub receive_buffer_max: u32,
    /// Limit to which both buffers grow over any path, in bytes. They grow while an engine takes
    /// what programs write. The send buffer also grows where the peer's window takes more. Neither
    /// grows if this is below its initial limit.
    pub short_path_buffer: u32,
    /// Limit to which both buffers grow while the peer's program does not read, in bytes. It
    /// applies while more than half of the payload memory is free; otherwise `short_path_buffer`
    /// does.
    pub idle_buffer: u32,
    /// Initial congestion window in segments (RFC 6928).
    pub initial_window: u32,
    /// Floor of the retransmission timeout (RFC 6298 §2.4 says 1 s; Linux uses
    /// 200 ms; a link that declares itself local allows less).
    pub rto_min: Duration,
    /// Retransmission timeout before the first measurement (RFC 6298 §2.1).
    pub rto_initial: Duration,
    /// Ceiling of the retransmission timeout (RFC 6298 §2.5).
    pub rto_max: Duration,
    /// Acknowledge at least every this many full segments (RFC 9293 §3.8.6.3 says two). Larger
    /// values suit local links, where a segment is a fraction of a super-frame and no frame is
    /// lost. Must be below the initial window.
    pub ack_every: u32,
    /// Longest delay of an acknowledgement (RFC 9293 §3.8.6.3: under 500 ms).
    pub delayed_ack: Duration,
    /// Retransmissions before an established connection is given up
    /// (RFC 9293 §3.8.3 R2).
    pub retries: u8,
    /// Retransmissions of SYN and SYN-ACK before the attempt is given up.
    pub syn_retries: u8,
    /// Length of TIME-WAIT (2 MSL).
    pub time_wait: Duration,
    /// Longest stay in FIN-WAIT-2 after the program has closed.
    pub fin_wait_2: Duration,
    /// Challenge acknowledgements a second (RFC 5961 §10).
    pub challenge_ack_rate: u32,
    /// Offer SACK (RFC 2018).
    pub sack: bool,
    /// Offer timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offer window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Offer ECN (RFC 3168) on connections opened by this side.
    pub ecn: bool,
    /// Accept a peer's offer of ECN.
    pub ecn_accept: bool,
    /// Most segments of a super-frame; 0: as many as the link carries.
    pub super_frame_segments: u32,
    /// Key of Fast Open's cookies (RFC 7413 §4.1.2), where several nodes serve an
    /// address; otherwise derived from the node's secret.
    pub fast_open_key: Option<[u8; 16]>,
    /// First port of the ephemeral range (RFC 6056).
    pub ephemeral_first: u16,
    /// Last port of the ephemeral range.
    pub ephemeral_last: u16,
}

/// Congestion control algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum CongestionAlgorithm {
    /// NewReno (RFC 5681 and RFC 6582).
    Reno = 0,
    /// CUBIC (RFC 9438).
    Cubic = 1,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            congestion: CongestionAlgorithm::Cubic,
            send_buffer: 1 << 20,
            receive_buffer: 1 << 20,
            send_buffer_max: 0,
            receive_buffer_max: 0,
            short_path_buffer: 0,
            idle_buffer: 0,
            initial_window: 10,
            rto_min: Duration::from_millis(200),
            rto_initial: Duration::from_secs(1),
            rto_max: Duration::from_secs(120),
            ack_every: 2,
            delayed_ack: Duration::from_millis(40),
            retries: 15,
            syn_retries: 6,
            time_wait: Duration::from_secs(60),
            fin_wait_2: Duration::from_secs(60),
            challenge_ack_rate: 1000,
            sack: true,
            timestamps: true,
            window_scaling: true,
            ecn: false,
            ecn_accept: true,
            super_frame_segments: 0,
            fast_open_key: None,
            ephemeral_first: 32768,
            ephemeral_last: 60999,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mac: [0x02, 0, 0, 0, 0, 1],
            ipv4: None,
            ipv4_gateway: None,
            ipv6: None,
            ipv6_gateway: None,
            beside_kernel: false,
            link: toehold_link::Capabilities {
                mtu: 1500,
                super_frame: 1500,
                checksum_offload: false,
                local: false,
                any_thread: true,
            },
            ethernet: true,
            steering: Steering::SOLE,
            secret: [0; 16],
            seed: 0,
            demux: DemuxStrategy::FlowTable,
            demux_counters: false,
            connections: 1 << 16,
            listeners: 1 << 10,
            time_wait_records: 1 << 16,
            neighbors: 1 << 10,
            payload_blocks: 1 << 13,
            payload_block_len: 1 << 14,
            payload_arenas: 0,
            tcp: TcpConfig::default(),
        }
    }
}
