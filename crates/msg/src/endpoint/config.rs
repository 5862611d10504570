//! The bounds and the identity of an endpoint.

use crate::matching::MatchStrategy;
use toehold_wire::Mac;

/// Longest eager message in bytes.
pub const MOST_EAGER_LEN: usize = 64 << 10;
/// Longest injected message in bytes.
pub const MOST_INJECT_LEN: usize = 4096;
/// Longest message in bytes.
pub const MOST_MESSAGE_LEN: u64 = toehold_wire::rmpp::OFFER_TOTAL_MAX;

/// An endpoint's identity and bounds.
#[derive(Debug, Clone, Copy)]
pub struct EndpointConfig {
    /// The endpoint's hardware address.
    pub mac: Mac,
    /// The number of the endpoint's life, drawn at random.
    pub incarnation: u64,
    /// Keeps peers from choosing tags that collide. Draw it at random.
    pub secret: [u64; 2],
    /// How messages and receives are matched.
    pub strategy: MatchStrategy,
    /// Most flows. Peers that connect by themselves get at most half of them.
    pub flows: u32,
    /// Most sends that are not complete, or whose completion was not taken.
    pub sends: u32,
    /// Most receives that are not complete, or whose completion was not taken.
    pub receives: u32,
    /// Units of 64 bytes that all grants together promise; at least 64 a flow.
    pub units: u32,
    /// Payload blocks of 8 KiB for injected messages and early packets.
    pub spare_blocks: u32,
    /// Most ended lives that are remembered.
    pub tombstones: u32,
    /// Longest eager message in bytes, at most [`MOST_EAGER_LEN`].
    pub eager_len: usize,
    /// Longest packet on a lossy path before a HELLO has come back, in bytes.
    pub packet_len: usize,
    /// Longest packet that a HELLO tries, in bytes; no HELLO is sent if `packet_len` is not
    /// below it.
    pub hello_len: usize,
    /// Whether packets on lossy paths carry a CRC32C, and must.
    pub has_checksum: bool,
    /// How long a waiting flow on a lossy path may hear nothing, in nanoseconds; `None` if
    /// something else tells of dead peers.
    pub silence_ns: Option<u64>,
}

impl EndpointConfig {
    /// Returns the usual bounds for an endpoint.
    #[must_use]
    pub const fn new(mac: Mac, incarnation: u64, secret: [u64; 2]) -> Self {
        Self {
            mac,
            incarnation,
            secret,
            strategy: MatchStrategy::Bins,
            flows: 512,
            sends: 1 << 16,
            receives: 1 << 20,
            units: 1 << 19,
            spare_blocks: 2048,
            tombstones: 4096,
            eager_len: MOST_EAGER_LEN,
            packet_len: 1500,
            hello_len: 9000,
            has_checksum: false,
            silence_ns: Some(10_000_000_000),
        }
    }
}
