//! What the two sides do with one another. A kind of traffic a file.
//!
//! The generators are cheap on purpose: nothing is allocated while traffic runs, the
//! clock is read once a round trip in a ping-pong and every few dozen operations in a
//! stream, and whatever is recorded is recorded while waiting for the other side.

mod acknowledgement;
mod alone;
mod availability;
mod cell;
mod churn;
mod connect;
mod costs;
mod faults;
mod idle;
mod incast;
mod machine;
mod meter;
mod metrics;
mod mixed;
mod names;
mod open_loop;
mod ping_pong;
mod popularity;
mod programs;
mod quantity;
mod served;
mod services;
mod several;
mod sides;
mod stream;
mod switching;

pub use cell::{Cell, Factors};
pub use faults::Faults;
pub(crate) use faults::QUEUE;
pub use meter::process_cpu;
pub(crate) use meter::{Meter, Watched, processor_ns_of, watch};
pub(crate) use names::KINDS;
pub use popularity::{Alpha, AlphaError, Trace};
pub use programs::{MpiLibrary, WebServer};
pub use quantity::{Better, Metric, Quantity, Reading};
pub use services::MeasuredProgram;

use std::io::{self, Read};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toehold_demux_lab::DemuxStrategy;

use crate::experiment::Settings;
use crate::size::Size;

/// Bytes of a message that wakes the other side up.
const WAKE_UP_MESSAGE: usize = 64;

/// How long both sides of a wake-up have nothing to do: far longer than anybody spins.
const WAKE_UP_PAUSE: Duration = Duration::from_millis(1);

/// Bytes of each write of a bulk stream, iperf3's default: 128 KiB.
const BULK_WRITE: usize = 128 << 10;

/// How much later than the first of many pairs the last may begin.
const CROWD_OVERLAP: Duration = Duration::from_millis(30);

/// Before anything counts of many pairs: so long they take to find out how many they are,
/// and their engines to look less often at programs that are busy.
const CROWD_WARM_UP: Duration = Duration::from_millis(350);

/// How long what counts of many pairs takes at least: each has the processor for a
/// fraction of that.
const CROWD_SPAN: Duration = Duration::from_millis(250);

/// What servers with several workers take to begin and to end, and their clients to whole seconds.
const SERVICES: Duration = Duration::from_millis(1200);

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
    /// The same over a path with faults.
    Impaired {
        /// What they are.
        faults: Faults,
    },
    /// Connections are set up and torn down, one after the other.
    Connect,
    /// Messages arrive while the server's program computes: how long they stay
    /// unacknowledged.
    Acknowledgement {
        /// Messages.
        times: u32,
    },
    /// Connections on which nothing happens: what the nodes use all the same.
    Idle {
        /// Pairs of processes, each a program with a node of its own; all nodes are of
        /// one fabric.
        pairs: u8,
        /// For how long, in milliseconds.
        span_ms: u64,
    },
    /// Ping-pong of many pairs at once, all on the same two cores.
    Crowd {
        /// Pairs of processes, as above.
        pairs: u8,
        /// Bytes of a message.
        size: Size,
    },
    /// A stream whose receiver shares its core with a loop that computes.
    Availability {
        /// Bytes of a write.
        size: Size,
    },
    /// Streams and a ping-pong whose contents are checked, while both sides change
    /// where their stacks run.
    Switching {
        /// Changes on each side.
        times: u32,
        /// What the machine itself does: everything but the changes.
        still: bool,
    },
    /// Ping-pong of several clients with one server.
    HotSpot {
        /// Clients, each a process with a node of its own.
        clients: u8,
        /// Bytes of a message.
        size: Size,
    },
    /// Streams of one client to one server, each over a connection of its own.
    MultiStream {
        /// Connections.
        streams: u8,
        /// Bytes of a write.
        size: Size,
    },
    /// Streams of several clients to one server.
    FanIn {
        /// Clients, as above.
        clients: u8,
        /// Bytes of a write.
        size: Size,
    },
    /// Streams of one server to several clients.
    FanOut {
        /// Clients, as above.
        clients: u8,
        /// Bytes of a write.
        size: Size,
    },
    /// A server asks several clients at once and waits for all answers.
    Incast {
        /// Clients, as above.
        clients: u8,
        /// Bytes of an answer.
        size: Size,
    },
    /// A stream each way at the same time.
    Bidirectional {
        /// Bytes of a write.
        size: Size,
    },
    /// Ping-pong of messages of all sizes.
    Mixed {
        /// Bytes of the largest message.
        size: Size,
    },
    /// A connection for each request: a message there and back.
    Churn {
        /// Bytes of a message.
        size: Size,
    },
    /// Requests at times that do not depend on the answers.
    OpenLoop {
        /// Requests a second.
        rate: u32,
        /// Bytes of a request, and of its answer.
        size: Size,
    },
    /// Clients of a web server, which ask for the same file again and again.
    Web {
        /// Whose server it is.
        server: WebServer,
        /// Connections, with one request at a time.
        clients: u8,
        /// Bytes of the file.
        size: Size,
    },
    /// The same with the requests of a trace.
    WebTrace {
        /// As above.
        server: WebServer,
        /// As above.
        clients: u8,
        /// Whose files, and whose requests.
        trace: Trace,
    },
    /// The same with a trace's files, the one as popular as Zipf's law says that is as popular in
    /// the trace.
    WebZipf {
        /// As above.
        server: WebServer,
        /// As above.
        clients: u8,
        /// Whose files.
        trace: Trace,
        /// How popular they are.
        alpha: Alpha,
    },
    /// Clients of a program with several workers, neither of which has a core of its own.
    Workers {
        /// The program, and what it is asked.
        program: MeasuredProgram,
        /// Its workers; 1 where it has a process or a thread for each client.
        workers: u8,
        /// Connections, with one request at a time.
        clients: u8,
        /// Processes beside them that compute all the time.
        loops: u8,
    },
    /// Ping-pong of two ranks of an MPI program.
    #[serde(rename = "mpi-ping-pong")]
    Mpi {
        /// Whose library they have.
        library: MpiLibrary,
        /// Bytes of a message.
        size: Size,
    },
    /// Windows of messages of one rank to another.
    MpiStream {
        /// As above.
        library: MpiLibrary,
        /// Bytes of a message.
        size: Size,
    },
    /// Segments of TPC/A's users come, and their connections are looked up.
    LookUp {
        /// How.
        #[serde(with = "alone::strategy")]
        strategy: DemuxStrategy,
        /// Milliseconds from a transaction's entry to its result.
        response_ms: u32,
        /// Users, who think for ten seconds on average, each with a connection.
        #[serde(deserialize_with = "alone::users")]
        users: u32,
        /// Look-ups that count.
        #[serde(deserialize_with = "alone::some")]
        lookups: u32,
    },
    /// Connections are set up as nearly at once as can be, with five short messages on each.
    SetUp {
        /// How they are found.
        #[serde(with = "alone::strategy")]
        strategy: DemuxStrategy,
        /// How many.
        #[serde(deserialize_with = "alone::opened")]
        connections: u32,
    },
    /// Users of TPC/A, who get their results at once, enter transactions.
    Entries {
        /// Users, as above.
        #[serde(deserialize_with = "alone::users")]
        users: u32,
        /// Within so many milliseconds.
        #[serde(deserialize_with = "alone::some")]
        span_ms: u32,
    },
}

/// How long the parts of a measurement are.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Before anything counts.
    pub warm_up: Duration,
    /// That counts.
    pub span: Duration,
    /// After that, so that others who began a little later end in traffic too.
    pub overlap: Duration,
}

impl From<&Settings> for Pace {
    fn from(settings: &Settings) -> Self {
        Self {
            warm_up: Duration::from_millis(settings.warm_up_ms),
            span: Duration::from_millis(settings.span_ms),
            overlap: Duration::ZERO,
        }
    }
}

impl Workload {
    /// How many pairs of processes it takes at once.
    pub fn pairs(&self) -> u8 {
        match self {
            Self::Idle { pairs, .. } | Self::Crowd { pairs, .. } => *pairs,
            _ => 1,
        }
    }

    /// How many clients each server has, which are processes with a node of their own; none if
    /// it attends to the workload alone.
    pub fn clients(&self) -> u8 {
        match self {
            Self::HotSpot { clients, .. }
            | Self::FanIn { clients, .. }
            | Self::FanOut { clients, .. }
            | Self::Incast { clients, .. } => *clients,
            _ if self.is_alone() => 0,
            _ => 1,
        }
    }

    /// Whether a server has several connections at once.
    pub fn is_of_several(&self) -> bool {
        self.clients() > 1
            || matches!(
                self,
                Self::HotSpot { .. }
                    | Self::MultiStream { .. }
                    | Self::FanIn { .. }
                    | Self::FanOut { .. }
                    | Self::Incast { .. }
                    | Self::Bidirectional { .. }
            )
    }

    /// Whether either side has a core of its own. Not where it matters that somebody else
    /// of the node can run while its program computes, nor where all are to share.
    pub fn is_pinned(&self) -> bool {
        self.pairs() == 1 && !matches!(self, Self::Acknowledgement { .. })
    }

    /// Whether its sides are programs of others, which are run where the candidate has them.
    pub fn is_of_programs(&self) -> bool {
        !self.programs().is_empty()
    }

    /// Whether it is of a program with several workers.
    pub fn is_of_workers(&self) -> bool {
        matches!(self, Self::Workers { .. })
    }

    /// About how long it takes if all goes well.
    pub fn length(&self, settings: &Settings) -> Duration {
        let pace = Pace::from(settings);
        match self {
            Self::Acknowledgement { times } => acknowledgement::CYCLE * *times,
            Self::Idle { span_ms, .. } => Duration::from_millis(*span_ms) + 3 * idle::SETTLE,
            Self::Crowd { .. } => {
                let pace = sides::crowded(&pace);
                pace.warm_up + pace.span + pace.overlap
            }
            Self::Availability { .. } => pace.warm_up + availability::span(&pace) + availability::ALONE,
            Self::Switching { times, .. } => switching::LONGEST_REST * *times,
            Self::Impaired { faults } => pace.warm_up + pace.span + faults.overlap(),
            Self::Workers { .. } => pace.warm_up + pace.span + SERVICES,
            _ if self.is_alone() => self.length_alone(),
            _ if self.is_of_several() => {
                let pace = self.pace_of_several(&pace);
                pace.warm_up + pace.span + pace.overlap
            }
            _ => pace.warm_up + pace.span,
        }
    }

    /// Whether it is about the kernel's or Toehold's nodes, or the path between them, and
    /// means nothing elsewhere.
    pub fn is_about_nodes(&self) -> bool {
        matches!(
            self,
            Self::Acknowledgement { .. }
                | Self::Idle { .. }
                | Self::Crowd { .. }
                | Self::Availability { .. }
                | Self::Switching { .. }
                | Self::Impaired { .. }
        )
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
