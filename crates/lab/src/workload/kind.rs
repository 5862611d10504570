//! The kinds of workloads, and what distinguishes them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use toehold_demux_lab::DemuxStrategy;

use super::faults::Faults;
use super::popularity::{Alpha, Trace};
use super::programs::{MpiLibrary, WebServer};
use super::services::MeasuredProgram;
use super::tiers::{FileSize, SiteContent, SiteStart, usual_alpha};
use super::valid;
use crate::program::Program;
use crate::settings::Settings;
use crate::size::Size;

/// The workload of the two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Workload {
    /// The client sends a message, and the server sends it back, one at a time.
    PingPong {
        /// Bytes of a message.
        size: Size,
    },
    /// Ping-pong that is followed through the kernel by its tracepoints.
    Layout {
        /// Bytes of a message.
        size: Size,
        /// Round trips of each of a round's eight blocks.
        #[serde(deserialize_with = "valid::trips")]
        trips: u32,
    },
    /// Ping-pong with pauses, in which both sides sleep: the cost of waking up.
    WakeUp,
    /// The client writes messages as fast as possible, and the server reads.
    Stream {
        /// Bytes of a write.
        size: Size,
    },
    /// A stream of large writes, 128 KiB each.
    Bulk,
    /// A stream over a path with faults.
    Impaired {
        /// The faults of the path.
        faults: Faults,
    },
    /// Connections are set up and torn down, one after the other.
    Connect,
    /// Messages arrive while the server's program computes: the time for which they stay
    /// unacknowledged.
    Acknowledgement {
        /// Number of messages.
        times: u32,
    },
    /// Connections without traffic: the use of idle nodes.
    Idle {
        /// Pairs of processes, each a program with a node of its own; all nodes are in one fabric.
        pairs: u8,
        /// The duration, in milliseconds.
        span_ms: u64,
    },
    /// Ping-pong of many pairs at once, all on the same two cores.
    Crowd {
        /// Pairs of processes, each a program with a node of its own.
        pairs: u8,
        /// Bytes of a message.
        size: Size,
    },
    /// A stream whose receiver shares its core with a computing loop.
    Availability {
        /// Bytes of a write.
        size: Size,
    },
    /// Streams and a ping-pong with checked contents, while both sides change the placement of
    /// their stacks.
    Switching {
        /// Changes on each side.
        times: u32,
        /// Whether the changes are left out, to show the machine's own pauses.
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
        /// Clients, each a process with a node of its own.
        clients: u8,
        /// Bytes of a write.
        size: Size,
    },
    /// Streams of one server to several clients.
    FanOut {
        /// Clients, each a process with a node of its own.
        clients: u8,
        /// Bytes of a write.
        size: Size,
    },
    /// A server sends a request to several clients at once and waits for all answers.
    Incast {
        /// Clients, each a process with a node of its own.
        clients: u8,
        /// Bytes of an answer.
        size: Size,
    },
    /// A stream in each direction at the same time.
    Bidirectional {
        /// Bytes of a write.
        size: Size,
    },
    /// Ping-pong of messages of all sizes.
    Mixed {
        /// Bytes of the largest message.
        size: Size,
    },
    /// A connection for each request: a message in each direction.
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
    /// Clients of a web server that request the same file again and again.
    Web {
        /// The web server.
        server: WebServer,
        /// Connections, with one request at a time.
        clients: u8,
        /// Bytes of the file.
        size: Size,
    },
    /// Clients of a web server with the requests of a trace.
    WebTrace {
        /// The web server.
        server: WebServer,
        /// Connections, with one request at a time.
        clients: u8,
        /// The trace of the files and requests.
        trace: Trace,
    },
    /// Clients of a web server with a trace's files. Their popularity follows Zipf's law, in the
    /// order of the trace.
    WebZipf {
        /// The web server.
        server: WebServer,
        /// Connections, with one request at a time.
        clients: u8,
        /// The trace of the files.
        trace: Trace,
        /// The exponent of their popularity.
        alpha: Alpha,
    },
    /// Clients of a program with several workers, neither of which has a core of its own.
    Workers {
        /// The program, and its requests.
        program: MeasuredProgram,
        /// The program's workers; 1 if it has a process or a thread for each client.
        workers: u8,
        /// Connections, with one request at a time.
        clients: u8,
        /// Computing processes that run at the same time.
        loops: u8,
    },
    /// Ping-pong of two ranks of an MPI program.
    #[serde(rename = "mpi-ping-pong")]
    Mpi {
        /// Their MPI library.
        library: MpiLibrary,
        /// Bytes of a message.
        size: Size,
    },
    /// Windows of messages of one rank to another.
    MpiStream {
        /// The MPI library.
        library: MpiLibrary,
        /// Bytes of a message.
        size: Size,
    },
    /// Segments of TPC/A's users arrive, and their connections are looked up.
    LookUp {
        /// The strategy of look-ups.
        #[serde(with = "valid::strategy")]
        strategy: DemuxStrategy,
        /// Milliseconds from a transaction's entry to its result.
        response_ms: u32,
        /// Users, with ten seconds of thinking on average, each with a connection.
        #[serde(deserialize_with = "valid::users")]
        users: u32,
        /// Measured look-ups.
        #[serde(deserialize_with = "valid::some")]
        lookups: u32,
    },
    /// Connections are set up as nearly at once as possible, with five short messages on each.
    SetUp {
        /// The strategy of look-ups.
        #[serde(with = "valid::strategy")]
        strategy: DemuxStrategy,
        /// Number of connections.
        #[serde(deserialize_with = "valid::opened")]
        connections: u32,
    },
    /// Clients ask the site of a deployment.
    Site {
        /// The files.
        content: SiteContent,
        /// The exponent of their popularity, in a class.
        #[serde(default = "usual_alpha")]
        alpha: Alpha,
        /// Clients, with one request at a time each.
        clients: u8,
        /// Divides the sizes of files, of caches and of the memory for files, and the times of disks.
        #[serde(deserialize_with = "valid::some")]
        scale: u32,
        /// Counted requests; with 0, the span of measurements bounds them.
        #[serde(default)]
        requests: u32,
        /// What the caches hold before.
        #[serde(default)]
        start: SiteStart,
    },
    /// A file is read from its begin to its end.
    FileRead {
        /// Bytes of the file.
        size: FileSize,
        /// Bytes of a call.
        buffer: Size,
        /// Whether the page cache has it.
        #[serde(default)]
        cached: bool,
    },
    /// A file is written, and brought to the disk.
    FileWrite {
        /// Bytes of the file.
        size: FileSize,
        /// Bytes of a call.
        buffer: Size,
    },
    /// Users of TPC/A with immediate results enter transactions.
    Entries {
        /// Users, with ten seconds of thinking on average.
        #[serde(deserialize_with = "valid::users")]
        users: u32,
        /// The span in milliseconds.
        #[serde(deserialize_with = "valid::some")]
        span_ms: u32,
    },
}

/// Durations of the parts of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Duration before the measurement.
    pub warm_up: Duration,
    /// Duration of the measurement.
    pub span: Duration,
    /// Duration after the measurement, so that slightly later processes also end during traffic.
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
    /// Number of pairs of processes that run at the same time.
    pub fn pairs(&self) -> u8 {
        match self {
            Self::Idle { pairs, .. } | Self::Crowd { pairs, .. } => *pairs,
            _ => 1,
        }
    }

    /// Number of clients of each server, which are processes with a node of their own; none if the
    /// server runs the workload alone.
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

    /// Whether each side has a core of its own. Workloads in which another process of the node must
    /// run while its program computes are not pinned. Neither are those in which all processes share
    /// the cores.
    pub fn is_pinned(&self) -> bool {
        self.pairs() == 1 && !matches!(self, Self::Acknowledgement { .. })
    }

    /// Whether its sides are unmodified programs, run in the candidate's places.
    pub fn is_of_programs(&self) -> bool {
        !self.programs().is_empty()
    }

    /// Whether it is about a program with several workers.
    pub fn is_of_workers(&self) -> bool {
        matches!(self, Self::Workers { .. })
    }

    /// The programs of the workload's sides, with the Debian packages that have them.
    pub fn programs(&self) -> &'static [Program] {
        match self {
            Self::Web { server, .. } | Self::WebTrace { server, .. } | Self::WebZipf { server, .. } => {
                server.programs()
            }
            Self::Workers { program, .. } => program.programs(),
            Self::Mpi { library, .. } | Self::MpiStream { library, .. } => library.programs(),
            _ => &[],
        }
    }

    /// Whether its messages are followed through the kernel.
    pub fn is_followed(&self) -> bool {
        matches!(self, Self::Layout { .. })
    }

    /// Whether it is about the kernel's or Toehold's nodes, or the path between them, and not
    /// meaningful for other candidates.
    pub fn is_about_nodes(&self) -> bool {
        matches!(
            self,
            Self::Acknowledgement { .. }
                | Self::Idle { .. }
                | Self::Crowd { .. }
                | Self::Availability { .. }
                | Self::Switching { .. }
                | Self::Impaired { .. }
                | Self::Layout { .. }
        )
    }
}
