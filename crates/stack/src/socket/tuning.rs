//! Settings that few sockets change. A control block has no room for them: they lie beside it, and are looked at only
//! for connections whose program has set one, see [`setting::TUNED`](super::setting::TUNED).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The seconds in [`Tuning::fin_wait_2_s`] that stand for none at all.
pub(crate) const NO_FIN_WAIT_2: u8 = u8::MAX;

/// The longest stay in FIN-WAIT-2 that a program can ask for, in seconds.
pub(crate) const MOST_FIN_WAIT_2_S: u8 = 120;

/// What a program has tuned. All zeroes: nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Tuning {
    /// Bytes a second, at most (SO_MAX_PACING_RATE); 0: no bound.
    pub(crate) pacing_rate: u64,
    /// Largest window to advertise, in bytes (TCP_WINDOW_CLAMP); 0: no bound.
    pub(crate) window_clamp: u32,
    /// Longest retransmission timeout, in milliseconds (TCP_RTO_MAX_MS); 0: the stack's.
    pub(crate) rto_max_ms: u32,
    /// Shortest retransmission timeout, in microseconds (TCP_RTO_MIN_US); 0: the stack's.
    pub(crate) rto_min_us: u32,
    /// Longest delay of an acknowledgement, in microseconds (TCP_DELACK_MAX_US); 0: the stack's.
    pub(crate) ack_delay_us: u32,
    /// Traffic class of packets of IPv4 and of IPv6, without ECN's bits.
    pub(crate) traffic_class: [u8; 2],
    /// Hops that packets of IPv4 and of IPv6 may take; 0: the stack's number.
    pub(crate) hops: [u8; 2],
    /// Hops that packets of IPv4 and of IPv6 have to have left (RFC 5082).
    pub(crate) least_hops: [u8; 2],
    /// How often a SYN is repeated (TCP_SYNCNT); 0: the stack's number.
    pub(crate) syn_retries: u8,
    /// Stay in FIN-WAIT-2 of a connection that no program holds, in seconds (TCP_LINGER2); 0: the stack's.
    pub(crate) fin_wait_2_s: u8,
    /// 1: the timeout of a thin stream does not grow at once (TCP_THIN_LINEAR_TIMEOUTS).
    pub(crate) thin_linear: u8,
    /// 1: errors that the network reports are the program's to know (IP_RECVERR, IPV6_RECVERR), by family.
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

/// Where in the pairs of [`Tuning`] a family's value stands.
pub(crate) fn family(is_ipv4: bool) -> usize {
    usize::from(!is_ipv4)
}
