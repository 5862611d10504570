//! What the two sides do with one another. A kind of traffic a file.
//!
//! The generators are cheap on purpose: nothing is allocated while traffic runs, the
//! clock is read once a round trip in a ping-pong and every few dozen operations in a
//! stream, and whatever is recorded is recorded while waiting for the other side.

mod connect;
mod meter;
mod metrics;
mod ping_pong;
mod stream;

pub use meter::process_cpu;
pub use metrics::{Better, Metric, Quantity};

use std::io::{self, Read};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::experiment::Settings;
use crate::samples::Side;
use crate::size::Size;
use crate::testbed::Testbed;

/// Bytes of a message that wakes the other side up.
const WAKE_UP_MESSAGE: usize = 64;

/// How long both sides of a wake-up have nothing to do: far longer than anybody spins.
const WAKE_UP_PAUSE: Duration = Duration::from_millis(1);

/// Bytes of each write of a bulk stream, iperf3's default: 128 KiB.
const BULK_WRITE: usize = 128 << 10;

/// What the two sides do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Workload {
    /// The client sends a message, the server sends it back, one at a time.
    PingPong {
        /// Bytes of a message.
        size: Size,
    },
    /// The same with pauses, so that both sides sleep: what waking up costs.
    WakeUp,
    /// The client writes messages as fast as they are taken, the server reads.
    Stream {
        /// Bytes of a write.
        size: Size,
    },
    /// A stream of large writes, 128 KiB each.
    Bulk,
    /// Connections are set up and torn down, one after the other.
    Connect,
}

/// How long the parts of a measurement are.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Before anything counts.
    pub warm_up: Duration,
    /// That counts.
    pub span: Duration,
}

impl From<&Settings> for Pace {
    fn from(settings: &Settings) -> Self {
        Self {
            warm_up: Duration::from_millis(settings.warm_up_ms),
            span: Duration::from_millis(settings.span_ms),
        }
    }
}

impl Workload {
    /// Stable name, the first part of the names of its metrics: `latency_64B`,
    /// `wakeup`, `stream_1K`, `stream`, `connect`.
    pub fn name(&self) -> String {
        match self {
            Self::PingPong { size } => format!("latency_{size}"),
            Self::WakeUp => "wakeup".into(),
            Self::Stream { size } => format!("stream_{size}"),
            Self::Bulk => "stream".into(),
            Self::Connect => "connect".into(),
        }
    }

    /// For people.
    pub fn title(&self) -> String {
        match self {
            Self::PingPong { size } => format!("ping-pong, {size}"),
            Self::WakeUp => "wake-up, 64B".into(),
            Self::Stream { size } => format!("stream, {size} writes"),
            Self::Bulk => "bulk stream".into(),
            Self::Connect => "connections".into(),
        }
    }

    /// Does the accepting side's part, from accepting to the client's end.
    pub fn serve<T: Testbed>(
        &self,
        testbed: &mut T,
        listener: &mut T::Listener,
        pace: &Pace,
    ) -> io::Result<Side> {
        match self {
            Self::PingPong { size } => ping_pong::serve(testbed.accept(listener)?, size.bytes(), pace),
            Self::WakeUp => ping_pong::serve(testbed.accept(listener)?, WAKE_UP_MESSAGE, pace),
            Self::Stream { size } => stream::serve(testbed.accept(listener)?, size.bytes(), pace),
            Self::Bulk => stream::serve(testbed.accept(listener)?, BULK_WRITE, pace),
            Self::Connect => connect::serve(testbed, listener, pace),
        }
    }

    /// Does the connecting side's part, with a server that listens at `address`.
    pub fn drive<T: Testbed>(&self, testbed: &mut T, address: &str, pace: &Pace) -> io::Result<Side> {
        let mut connect = || testbed.connect(address, self);
        match self {
            Self::PingPong { size } => ping_pong::drive(connect()?, size.bytes(), Duration::ZERO, pace),
            Self::WakeUp => ping_pong::drive(connect()?, WAKE_UP_MESSAGE, WAKE_UP_PAUSE, pace),
            Self::Stream { size } => stream::drive(connect()?, size.bytes(), pace),
            Self::Bulk => stream::drive(connect()?, BULK_WRITE, pace),
            Self::Connect => connect::drive(connect, pace),
        }
    }
}

/// Fills `buffer`; `false` if the other side has ended before its first byte.
fn read_whole(connection: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        match connection.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Waits until the other side has ended, having nothing more to say.
fn read_end(connection: &mut impl Read) -> io::Result<()> {
    if read_whole(connection, &mut [0])? {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the other side sent more than was agreed",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
