//! Facts about a connection in C's form.

use toehold_stack::{CongestionState, Details, Info, Instant, State};

/// Encodes `struct tcp_info` as Linux has it from 6.18 on. The caller cuts it
/// off for older layouts.
///
/// Two fields are 0 on Linux as well: `tcpi_fackets`, and `tcpi_last_ack_sent`,
/// which Linux does not remember. Of the fields of accurate ECN, which the stack
/// lacks, only the count of received marks is set.
pub fn tcp_info(details: &Details) -> Vec<u8> {
    let info = &details.info;
    let mut bytes = Fields(Vec::with_capacity(LEN));
    // To Linux, a connection opened early is still in the handshake.
    bytes.byte(
        match details.early_data.awaits_ack && info.state == State::Established {
            true => state(State::SynReceived),
            false => state(info.state),
        },
    );
    bytes.byte(congestion(details.congestion));
    bytes.byte(details.backoff);
    bytes.byte(details.probes);
    bytes.byte(details.backoff);
    bytes.byte(options(details));
    bytes.byte(details.send_scale & 0xf | details.receive_scale << 4);
    let failure = details.early_data.failure.map_or(0, |failure| failure as u8);
    bytes.byte(u8::from(details.is_app_limited) | failure << 1);
    bytes.micros(info.rto_ns);
    bytes.micros(details.ack_delay_ns);
    bytes.word(info.segment_size.into());
    bytes.word(details.receive_segment_size.into());
    of_flight(&mut bytes, details);
    of_times(&mut bytes, details);
    of_path(&mut bytes, details);
    of_rates(&mut bytes, details);
    of_totals(&mut bytes, details);
    debug_assert_eq!(bytes.0.len(), LEN);
    bytes.0
}

/// Bytes of `struct tcp_info`.
const LEN: usize = 280;

/// Slow-start threshold before slow start has ended (TCP_INFINITE_SSTHRESH).
const NO_THRESHOLD: u32 = 0x7fff_ffff;

struct Fields(Vec<u8>);

impl Fields {
    fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    fn half(&mut self, value: u32) {
        let value = u16::try_from(value).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn word(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn long(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn micros(&mut self, ns: u64) {
        self.word(u32::try_from(ns.div_ceil(1000)).unwrap_or(u32::MAX));
    }

    fn millis(&mut self, ns: u64) {
        self.word(u32::try_from(ns / 1_000_000).unwrap_or(u32::MAX));
    }
}

/// Returns the number of segments that hold `bytes` bytes.
fn segments(info: &Info, bytes: u32) -> u32 {
    bytes.div_ceil(u32::from(info.segment_size).max(1))
}

fn of_flight(bytes: &mut Fields, details: &Details) {
    let info = &details.info;
    bytes.word(segments(info, info.unacknowledged));
    bytes.word(segments(info, details.sacked));
    bytes.word(segments(info, details.lost));
    bytes.word(details.retransmitted);
    bytes.word(0);
}

fn of_times(bytes: &mut Fields, details: &Details) {
    let since = |then: Instant| details.now.nanos_since(then);
    bytes.millis(since(details.last_sent));
    bytes.word(0);
    // Before the first data, the handshake counts as the time of reception.
    bytes.millis(since(details.last_data_received.unwrap_or(details.last_received)));
    bytes.millis(since(details.last_received));
}

fn of_path(bytes: &mut Fields, details: &Details) {
    let info = &details.info;
    let threshold = match info.slow_start_threshold {
        NO_THRESHOLD.. => NO_THRESHOLD,
        threshold => segments(info, threshold),
    };
    bytes.word(info.path_mtu.into());
    bytes.word(details.receive_limit);
    bytes.micros(info.rtt_ns);
    bytes.micros(info.rtt_variation_ns);
    bytes.word(threshold);
    bytes.word(info.congestion_window / u32::from(info.segment_size).max(1));
    bytes.word(details.advertised_segment_size.into());
    bytes.word(details.reordering);
    bytes.micros(info.rtt_ns);
    bytes.word(details.receive_space);
    bytes.word(info.retransmits);
}

fn of_rates(bytes: &mut Fields, details: &Details) {
    let info = &details.info;
    // Only the program limits the rate.
    let rate = details.max_pacing_rate.unwrap_or(u64::MAX);
    bytes.long(rate);
    bytes.long(rate);
    bytes.long(info.bytes_acked);
    bytes.long(info.bytes_received);
    bytes.word(details.segments_sent);
    bytes.word(details.segments_received);
    bytes.word(info.unsent);
    bytes.micros(info.min_rtt_ns);
    bytes.word(details.data_segments_received);
    bytes.word(details.data_segments_sent);
    bytes.long(details.delivery_rate);
    for ns in details.busy_ns {
        bytes.long(ns / 1000);
    }
}

fn of_totals(bytes: &mut Fields, details: &Details) {
    bytes.word(details.delivered);
    bytes.word(details.delivered_marked);
    bytes.long(details.bytes_sent);
    bytes.long(details.bytes_retransmitted);
    bytes.word(details.duplicate_reports);
    bytes.word(details.reorderings);
    bytes.word(details.out_of_order);
    bytes.word(details.info.send_window);
    bytes.word(details.receive_window);
    // Flows are never rehashed.
    bytes.word(0);
    bytes.half(details.timeouts);
    bytes.half(details.timeout_recoveries);
    bytes.millis(details.timeout_ns);
    bytes.word(details.received_marked);
    // Accurate ECN: six byte counts, and two counts of options.
    for _ in 0..7 {
        bytes.word(0);
    }
}

/// Returns Linux's number of a state.
fn state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

/// Returns the value of TCP_CA_*.
fn congestion(state: CongestionState) -> u8 {
    match state {
        CongestionState::Open => 0,
        CongestionState::Disorder => 1,
        CongestionState::Reduced => 2,
        CongestionState::Recovery => 3,
        CongestionState::Loss => 4,
    }
}

/// Returns the bits of TCPI_OPT_*: timestamps, SACK, window scaling, ECN, data of the SYN taken,
/// cookie used by the peer.
fn options(details: &Details) -> u8 {
    let info = &details.info;
    u8::from(info.timestamps)
        | u8::from(info.sack) << 1
        | u8::from(info.window_scaling) << 2
        | u8::from(info.ecn) << 3
        | u8::from(details.early_data.taken) << 5
        | u8::from(details.early_data.is_child) << 7
}
