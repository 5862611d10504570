//! One stack without a network. A test feeds packets in and takes packets out.
//!
//! Frames begin with the IP header. The clock stands still unless the test
//! advances it.

use std::collections::VecDeque;

use toehold_link::{Checksum, MIN_PRIVATE, Offload, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::{Carver, Gather, Region};
use toehold_stack::{Config, Instant, Stack};

use crate::packet::Packet;

/// Default start of the clock: an hour after its zero, so that no event
/// coincides with the beginning of time.
pub const BEGINNING: Instant = Instant(3_600_000_000_000);

/// Most calls of the stack at one point in time. Beyond, the stack is stuck.
const MOST_ROUNDS: u32 = 10_000;

/// A packet that the stack sent.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Time of sending.
    pub at: Instant,
    /// The packet.
    pub packet: Packet,
}

/// A stack with its clock and its sent packets.
pub struct Host {
    /// The stack, for direct calls.
    pub stack: Stack,
    /// Sent packets that the test has not taken yet, oldest first.
    pub sent: VecDeque<Sent>,
    now: Instant,
}

/// Reason for which a host could not be created, or misbehaved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The stack could not be created.
    #[error("no memory for the stack: {0}")]
    NoMemory(String),
    /// The stack asks to be called at one point in time again and again.
    #[error("the stack's deadline never moves on")]
    StuckTimer,
    /// The stack has output that never leaves.
    #[error("the stack has output that never leaves")]
    StuckOutput,
    /// The stack sent a packet that is not TCP.
    #[error("the stack sent {0}")]
    Unreadable(String),
}

struct Outbox<'a> {
    now: Instant,
    sent: &'a mut VecDeque<Sent>,
    unreadable: Option<String>,
}

impl Transmitter for Outbox<'_> {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let mut bytes = frame.headers.to_vec();
        let at = bytes.len();
        bytes.resize(frame.len(), 0);
        frame.payload.copy_to(0, &mut bytes[at..]);
        match Packet::parse(&bytes, frame.offload.checksum != Checksum::Complete) {
            Ok(packet) => self.sent.push_back(Sent { at: self.now, packet }),
            Err(error) => self.unreadable = Some(format!("{error}: {bytes:02x?}")),
        }
        Ok(())
    }
}

impl Host {
    /// Creates a host with a stack of this configuration, whose `ethernet` is
    /// off.
    ///
    /// # Errors
    ///
    /// `NoMemory`.
    pub fn new(config: &Config, start: Instant) -> Result<Self, HostError> {
        let no_memory = |error: &dyn std::error::Error| HostError::NoMemory(error.to_string());
        let region = Region::private(Stack::region_len(config)).map_err(|error| no_memory(&error))?;
        let mut carver = Carver::new(region).map_err(|error| no_memory(&error))?;
        let stack = Stack::create(&mut carver, config).map_err(|error| no_memory(&error))?;
        Ok(Self {
            stack,
            sent: VecDeque::new(),
            now: start,
        })
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Advances the clock and calls the stack at each of its deadlines.
    ///
    /// # Errors
    ///
    /// If the stack misbehaves.
    pub fn advance(&mut self, to: Instant) -> Result<(), HostError> {
        let mut rounds = 0;
        while let Some(deadline) = self.stack.poll_timeout().filter(|deadline| *deadline <= to) {
            rounds = if deadline > self.now { 0 } else { rounds + 1 };
            if rounds > MOST_ROUNDS {
                return Err(HostError::StuckTimer);
            }
            self.now = self.now.max(deadline);
            self.stack.handle_timeout(self.now);
            self.settle()?;
        }
        self.now = self.now.max(to);
        Ok(())
    }

    /// Sends the stack's pending output.
    ///
    /// # Errors
    ///
    /// If the stack misbehaves.
    pub fn settle(&mut self) -> Result<(), HostError> {
        let mut outbox = Outbox {
            now: self.now,
            sent: &mut self.sent,
            unreadable: None,
        };
        for _ in 0..MOST_ROUNDS {
            self.stack.poll_transmit(self.now, &mut outbox);
            // Tests ask for readiness when they need it.
            while self.stack.next_event().is_some() {}
            if !self.stack.has_output() {
                return outbox
                    .unreadable
                    .map_or(Ok(()), |what| Err(HostError::Unreadable(what)));
            }
        }
        Err(HostError::StuckOutput)
    }

    /// Passes a packet to the stack and sends its answers.
    ///
    /// # Errors
    ///
    /// If the stack misbehaves.
    pub fn inject(&mut self, packet: &Packet) -> Result<(), HostError> {
        self.inject_bytes(&packet.bytes())
    }

    /// Passes arbitrary bytes to the stack, split into pieces as a link does, and
    /// sends its answers.
    ///
    /// # Errors
    ///
    /// If the stack misbehaves.
    pub fn inject_bytes(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        let (private, rest) = bytes.split_at(bytes.len().min(MIN_PRIVATE));
        let frame = Received {
            private,
            rest: Gather::from_slice(rest),
            offload: Offload::default(),
        };
        self.stack.handle_frame(self.now, &frame);
        self.settle()
    }
}
