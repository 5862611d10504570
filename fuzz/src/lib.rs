//! Shared parts of the fuzz targets: a stack, and a reader of choices.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use toehold_link::{Checksum, Offload, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::{Carver, Gather, Region};
use toehold_stack::{Config, Instant, Stack};

/// The stack's IPv4 address.
pub const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The peer's IPv4 address.
pub const REMOTE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The stack's IPv6 address.
pub const LOCAL_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

/// Returns a small configuration, so that tables fill up.
pub fn config(ethernet: bool) -> Config {
    let mut config = Config {
        mac: [2, 0, 0, 0, 0, 1],
        ipv4: Some((LOCAL, 24)),
        ipv6: Some((LOCAL_V6, 64)),
        ethernet,
        connections: 8,
        listeners: 4,
        time_wait_records: 4,
        neighbors: 4,
        payload_blocks: 32,
        payload_block_len: 4096,
        ..Config::default()
    };
    config.tcp.send_buffer = 32 << 10;
    config.tcp.receive_buffer = 64 << 10;
    config
}

/// Creates a stack in memory of its own.
pub fn stack(config: &Config) -> Stack {
    let region = Region::private(Stack::region_len(config)).expect("memory");
    let mut carver = Carver::new(region).expect("fresh");
    Stack::create(&mut carver, config).expect("room")
}

/// Collects a stack's output. Keeps the newest frame.
#[derive(Default)]
pub struct Sink {
    /// The last frame, from its first header on.
    pub last: Vec<u8>,
    /// Number of frames since a target last reset it to zero.
    pub count: usize,
    /// Total number of frames.
    pub total: u64,
    /// Number of further frames that the link takes; `None` for no limit.
    pub room: Option<u8>,
}

impl Transmitter for Sink {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        if let Some(room) = &mut self.room {
            *room = room.checked_sub(1).ok_or(TransmitError::Full)?;
        }
        self.last.clear();
        self.last.extend_from_slice(frame.headers);
        let headers = self.last.len();
        self.last.resize(frame.len(), 0);
        assert_eq!(
            frame.payload.copy_to(0, &mut self.last[headers..]),
            frame.payload.len()
        );
        self.count += 1;
        self.total += 1;
        Ok(())
    }
}

/// Passes a frame to the stack. `verified` tells whether the link has verified its
/// checksum.
pub fn deliver(stack: &mut Stack, now: Instant, bytes: &[u8], verified: bool) {
    let checksum = if verified {
        Checksum::Verified
    } else {
        Checksum::Complete
    };
    // Long frames arrive in two parts.
    let (private, rest) = bytes.split_at(bytes.len().min(toehold_link::MIN_PRIVATE));
    let offload = Offload {
        checksum,
        segment_size: 0,
    };
    stack.handle_frame(
        now,
        &Received {
            private,
            rest: Gather::from_slice(rest),
            offload,
        },
    );
}

/// Sends all output of the stack and takes all its events.
pub fn settle(stack: &mut Stack, now: Instant, sink: &mut Sink) {
    stack.poll_transmit(now, sink);
    while stack.next_event().is_some() {}
}

/// Most calls of a driver at one point in time. Entries that move within the timing
/// wheel take more than one call.
const MOST_CALLS: u32 = 16;

/// Advances the clock by a span and runs each timer when it is due.
pub fn pass(stack: &mut Stack, now: &mut Instant, span: Duration, sink: &mut Sink) {
    let end = *now + span;
    let mut rounds = 0;
    let mut calls = 0;
    while let Some(due) = stack.poll_timeout().filter(|due| *due <= end) {
        calls = if due > *now { 0 } else { calls + 1 };
        assert!(calls < MOST_CALLS, "a timer that fired is due again at once");
        *now = due.max(*now);
        stack.handle_timeout(*now);
        settle(stack, *now, sink);
        rounds += 1;
        assert!(rounds < 100_000, "timers fire without end");
    }
    *now = end.max(*now);
}

/// Checks that the stack's counters agree with its output.
pub fn check_counters(stack: &Stack, sink: &Sink) {
    let counters = stack.counters();
    assert_eq!(counters.frames_sent, sink.total);
    let again = counters.tcp_retransmits + counters.tcp_window_probes + counters.tcp_keepalive_probes;
    assert!(again <= counters.tcp_segments_sent);
    assert!(counters.tcp_tail_loss_probes <= counters.tcp_segments_sent);
}

/// Reads choices from a fuzzer's input. Yields zeroes when it is used up.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// Creates a reader of this input.
    pub fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// Returns whether the input is used up.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> u8 {
        let (byte, rest) = self
            .0
            .split_first()
            .map_or((0, self.0), |(byte, rest)| (*byte, rest));
        self.0 = rest;
        byte
    }

    /// Reads two bytes.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Reads four bytes.
    pub fn word(&mut self) -> u32 {
        u32::from(self.short()) | u32::from(self.short()) << 16
    }

    /// Reads eight bytes.
    pub fn long(&mut self) -> u64 {
        u64::from(self.word()) | u64::from(self.word()) << 32
    }

    /// Reads up to `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
