//! Round-trip time and retransmission timeout (RFC 6298), with bounds for local networks.

/// Least timeout in nanoseconds.
const LEAST_RTO_NS: u64 = 200_000;
/// Most timeout in nanoseconds.
const MOST_RTO_NS: u64 = 1_000_000_000;
/// The timeout before the first measurement, in nanoseconds.
const FIRST_RTO_NS: u64 = 10_000_000;

/// The estimate of a flow's round-trip time.
#[derive(Debug, Clone)]
pub(crate) struct RoundTrip {
    /// Mean and mean deviation in nanoseconds; `None` before the first measurement.
    estimate_ns: Option<(u64, u64)>,
    rto_ns: u64,
}

impl RoundTrip {
    pub(crate) fn new() -> Self {
        Self {
            estimate_ns: None,
            rto_ns: FIRST_RTO_NS,
        }
    }

    /// Takes a measurement of a packet that was sent once.
    pub(crate) fn measure(&mut self, span_ns: u64) {
        //= RFC 6298 §2
        let span_ns = span_ns.min(MOST_RTO_NS);
        let (mean, deviation) = match self.estimate_ns {
            None => (span_ns, span_ns / 2),
            Some((mean, deviation)) => {
                let off = mean.abs_diff(span_ns);
                ((mean * 7 + span_ns) / 8, (deviation * 3 + off) / 4)
            }
        };
        self.estimate_ns = Some((mean, deviation));
        self.rto_ns = (mean + deviation * 4).clamp(LEAST_RTO_NS, MOST_RTO_NS);
    }

    /// Doubles the timeout after one has passed.
    pub(crate) fn back_off(&mut self) {
        //= RFC 6298 §5.5
        self.rto_ns = (self.rto_ns * 2).min(MOST_RTO_NS);
    }

    /// The retransmission timeout in nanoseconds.
    pub(crate) fn rto_ns(&self) -> u64 {
        self.rto_ns
    }

    /// A quarter of the round trip in nanoseconds: how long a gap may close by itself.
    pub(crate) fn reorder_ns(&self) -> u64 {
        let mean = self.estimate_ns.map_or(FIRST_RTO_NS / 4, |(mean, _)| mean);
        (mean / 4).max(LEAST_RTO_NS / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_follows_measurements_within_bounds() {
        let mut trip = RoundTrip::new();
        assert_eq!(trip.rto_ns(), FIRST_RTO_NS);
        trip.measure(1_000_000);
        assert_eq!(trip.rto_ns(), 3_000_000);
        for _ in 0..100 {
            trip.measure(10);
        }
        assert_eq!(trip.rto_ns(), LEAST_RTO_NS);
        (0..20).for_each(|_| trip.back_off());
        assert_eq!(trip.rto_ns(), MOST_RTO_NS);
        trip.measure(u64::MAX);
        assert!(trip.rto_ns() <= MOST_RTO_NS);
    }
}
