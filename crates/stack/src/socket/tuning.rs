//! Settings that few sockets change. They lie outside of the control block, and are read only for
//! connections whose program has set one, see [`setting::TUNED`](super::setting::TUNED).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The value of [`Tuning::fin_wait_2_s`] for no stay at all.
pub(crate) const NO_FIN_WAIT_2: u8 = u8::MAX;

/// The longest stay in FIN-WAIT-2 that a program can ask for, in seconds.
pub(crate) const MOST_FIN_WAIT_2_S: u8 = 120;

/// The settings that a program has changed. All zeroes: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Tuning {
    /// Bytes a second, at most (SO_MAX_PACING_RATE); 0: no bound.
    pub(crate) pacing_rate: u64,
    /// Largest window to advertise, in bytes (TCP_WINDOW_CLAMP); 0: no bound.
    pub(crate) window_clamp: u32,
    /// Longest retransmission timeout, in milliseconds (TCP_RTO_MAX_MS); 0: the stack's default.
    pub(crate) rto_max_ms: u32,
    /// Shortest retransmission timeout, in microseconds (TCP_RTO_MIN_US); 0: the stack's default.
    pub(crate) rto_min_us: u32,
    /// Longest delay of an acknowledgement, in microseconds (TCP_DELACK_MAX_US); 0: the stack's
    /// default.
    pub(crate) ack_delay_us: u32,
    /// Traffic class of packets of IPv4 and of IPv6, without ECN's bits.
    pub(crate) traffic_class: [u8; 2],
    /// Hop limits of IPv4 and IPv6 packets; 0: the stack's default.
    pub(crate) hops: [u8; 2],
    /// Least hops left of accepted IPv4 and IPv6 packets (RFC 5082).
    pub(crate) least_hops: [u8; 2],
    /// Number of SYN retransmissions (TCP_SYNCNT); 0: the stack's default.
    pub(crate) syn_retries: u8,
    /// Stay in FIN-WAIT-2 after the program has closed, in seconds (TCP_LINGER2); 0: the stack's
    /// default.
    pub(crate) fin_wait_2_s: u8,
    /// 1: the timeout of a thin stream does not grow at once (TCP_THIN_LINEAR_TIMEOUTS).
    pub(crate) thin_linear: u8,
    /// 1: network errors are reported to the program (IP_RECVERR, IPV6_RECVERR), by family.
    pub(crate) reports_errors: [u8; 2],
    reserved: [u8; 5],
}

impl Tuning {
    /// The largest window to advertise, in bytes.
    pub(crate) fn clamp(&self) -> u32 {
        match self.window_clamp {
            0 => u32::MAX,
            clamp => clamp,
        }
    }
}

/// Index of a family's value in the pairs of [`Tuning`].
pub(crate) fn family(is_ipv4: bool) -> usize {
    usize::from(!is_ipv4)
}
