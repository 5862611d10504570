//! The carriers of traffic between two sides, with a file for each candidate. Also [`Source`]s,
//! which consist of one process.
//!
//! The server's process and the client's both create the testbed, in steps that the runner makes in
//! turn. It calls [`Testbed::enter`] in the server, then in the client; then [`Testbed::join`] in
//! the server, then in the client. After that, both run one workload after the other, each over its
//! own connections.

mod attached;
mod carrier;
mod demux;
mod device;
mod floor;
mod hosts;
mod kernel_loopback;
mod kernel_tcp;
mod kernel_veth;
mod mixed;
mod relay;
mod source;
mod spinning;
mod stacks;
mod toehold;
mod unix;
mod veth;

use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::experiment::Settings;
use crate::far;
use crate::programs::Generator;
use crate::side::{self, Control};
use crate::workload::Workload;

/// All candidates.
pub const ALL: &[Candidate] = &[
    Candidate::of::<toehold::Toehold<toehold::Own>>(),
    Candidate::of::<kernel_veth::KernelVeth>(),
    Candidate::of::<kernel_veth::KernelVethSpinning>(),
    Candidate::of::<kernel_loopback::KernelLoopback>(),
    Candidate::of::<unix::Unix>(),
    Candidate::of::<floor::Floor>(),
    Candidate::of::<toehold::Toehold<toehold::Private>>(),
    Candidate::of::<toehold::Toehold<attached::Inline>>(),
    Candidate::of::<toehold::Toehold<attached::Adaptive>>(),
    Candidate::of::<toehold::Toehold<attached::Engine>>(),
    Candidate::of::<device::Device<device::Ethom>>(),
    Candidate::of::<device::Device<device::Ethos>>(),
    Candidate::of::<relay::Relay>(),
    Candidate::of::<mixed::Mixed<mixed::ToKernel>>(),
    Candidate::of::<mixed::Mixed<mixed::FromKernel>>(),
    Candidate::of::<mixed::Mixed<mixed::Kernels>>(),
    Candidate::of::<mixed::Mixed<mixed::ToKernelJumbo>>(),
    Candidate::of::<mixed::Mixed<mixed::FromKernelJumbo>>(),
    Candidate::of::<mixed::Mixed<mixed::KernelsJumbo>>(),
    Candidate::of::<toehold::Toehold<hosts::Between>>(),
    Candidate::of::<hosts::Kernel>(),
    Candidate::of::<hosts::Interfaces>(),
    Candidate::generator(
        Generator::Sockperf,
        "sockperf over the kernel's TCP between two namespaces",
    ),
    Candidate::generator(
        Generator::Netpipe,
        "NetPIPE over the kernel's TCP between two namespaces",
    ),
    Candidate::generator(Generator::Wrk, "wrk over the kernel's TCP between two namespaces"),
    Candidate::alone::<demux::Printed>(),
    Candidate::alone::<demux::Corrected>(),
    Candidate::alone::<demux::Model>(),
    Candidate::alone::<demux::Simulation>(),
    Candidate::alone::<demux::Measured>(),
];

/// Candidates between two machines, in the order of columns.
pub const HOSTS: &[Candidate; 3] = &[
    Candidate::of::<toehold::Toehold<hosts::Between>>(),
    Candidate::of::<hosts::Kernel>(),
    Candidate::of::<hosts::Interfaces>(),
];

/// Candidates on kernel interfaces, in the order of columns.
pub const ETHERNETS: &[Candidate] = &[
    Candidate::of::<device::Device<device::Ethom>>(),
    Candidate::of::<device::Device<device::Ethos>>(),
    Candidate::of::<relay::Relay>(),
    Candidate::of::<kernel_veth::KernelVeth>(),
    Candidate::of::<mixed::Mixed<mixed::ToKernel>>(),
    Candidate::of::<mixed::Mixed<mixed::FromKernel>>(),
    Candidate::of::<mixed::Mixed<mixed::Kernels>>(),
    Candidate::of::<mixed::Mixed<mixed::ToKernelJumbo>>(),
    Candidate::of::<mixed::Mixed<mixed::FromKernelJumbo>>(),
    Candidate::of::<mixed::Mixed<mixed::KernelsJumbo>>(),
];

/// Candidates over paths with faults, in the order of columns.
pub const MIXED: &[Candidate] = &[
    Candidate::of::<mixed::Mixed<mixed::ToKernel>>(),
    Candidate::of::<mixed::Mixed<mixed::FromKernel>>(),
    Candidate::of::<mixed::Mixed<mixed::Kernels>>(),
];

/// Candidates for placements of a stack, in the order of columns.
pub const PLACEMENTS: &[Candidate] = &[
    Candidate::of::<toehold::Toehold<toehold::Private>>(),
    Candidate::of::<toehold::Toehold<attached::Inline>>(),
    Candidate::of::<toehold::Toehold<attached::Adaptive>>(),
    Candidate::of::<toehold::Toehold<attached::Engine>>(),
    Candidate::of::<kernel_veth::KernelVeth>(),
];

/// Candidates for sockets, in the order of the report's columns.
pub const SOCKETS: &[Candidate] = &[
    Candidate::of::<toehold::Toehold<toehold::Own>>(),
    Candidate::of::<kernel_veth::KernelVeth>(),
    Candidate::of::<kernel_veth::KernelVethSpinning>(),
    Candidate::of::<kernel_loopback::KernelLoopback>(),
    Candidate::of::<unix::Unix>(),
    Candidate::of::<floor::Floor>(),
];

/// Candidates for programs with several workers, in the order of columns.
pub const WORKERS: &[Candidate] = &[
    Candidate::of::<toehold::Toehold<toehold::Own>>(),
    Candidate::of::<kernel_loopback::KernelLoopback>(),
    Candidate::of::<kernel_veth::KernelVeth>(),
    Candidate::of::<unix::Unix>(),
];

pub(crate) use attached::EngineOrder;
pub use source::Source;

/// The name of the kernel's stack between two namespaces.
pub(crate) const KERNEL_VETH: &str = <kernel_veth::KernelVeth as Testbed>::NAME;

/// The name of the kernel's loopback.
pub(crate) const KERNEL_LOOPBACK: &str = <kernel_loopback::KernelLoopback as Testbed>::NAME;

/// The name of Unix sockets.
pub(crate) const UNIX: &str = <unix::Unix as Testbed>::NAME;

/// A program and the Debian package that has it.
pub type Program = (&'static str, &'static str);

/// One side of a stream connection. Dropping it closes it.
pub trait Connection: Read + Write {
    /// Tells the other side that no more data will be written; reading continues.
    fn finish(&mut self) -> io::Result<()>;
}

/// The side of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Accepts connections.
    Server,
    /// Opens connections.
    Client,
}

/// The parameters of a side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Name of the candidate.
    pub candidate: String,
    /// The side.
    pub role: Role,
    /// The pair of this side among several pairs that run at the same time, from 0.
    pub pair: u8,
    /// Process id of the server.
    pub server: u32,
    /// Process ids of its clients.
    pub clients: Vec<u32>,
    /// The number of this client, from 0, if it is one.
    pub client: u8,
    /// Largest IP packet of the path between the sides, in bytes, if it can be chosen.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// A directory for all pairs of the candidate, empty at first; it is removed after the run. Its
    /// path may be too long for the name of a socket: enter it and use a relative path.
    pub scratch: PathBuf,
    /// The addresses of the two sides' machines, if they are two.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<far::Path>,
    /// The settings of measurements.
    pub settings: Settings,
    /// Seed of all random decisions of this side; different each round.
    #[serde(default)]
    pub seed: u64,
}

/// Reasons why a candidate cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// A requirement is missing on this machine or for this user. The text also tells what to do
    /// about it.
    #[error("{0}")]
    Unavailable(String),
    /// A step failed that should work.
    #[error("{0}")]
    Failed(String),
}

impl TestbedError {
    /// The error of a step that should have worked.
    pub fn failed(step: &str, error: impl std::fmt::Display) -> Self {
        Self::Failed(format!("cannot {step}: {error}"))
    }
}

/// A carrier of traffic. One value lives in each side's process.
pub trait Testbed: Sized {
    /// Stable name; part of the names of ratios.
    const NAME: &'static str;
    /// Its description, in a line.
    const ABOUT: &'static str;
    /// Required programs, with the Debian packages that have them.
    const PROGRAMS: &'static [Program] = &[];
    /// Whether its sides are on two machines.
    const IS_BETWEEN_HOSTS: bool = false;
    /// Its listener.
    type Listener;
    /// Its connection.
    type Connection: Connection + Send;

    /// Whether it supports a workload.
    fn supports(workload: &Workload) -> bool {
        !workload.is_about_nodes() && !workload.is_of_programs()
    }

    /// Sets this side up on its own. Runs before the process has a second thread.
    fn enter(context: &Context) -> Result<Self, TestbedError>;

    /// Connects the two sides, both of which have been entered; the server's first.
    fn join(&mut self, context: &Context) -> Result<(), TestbedError> {
        let _ = context;
        Ok(())
    }

    /// Begins to listen for one workload; also returns the address for the client.
    fn listen(&mut self, workload: &Workload) -> io::Result<(Self::Listener, String)>;

    /// Waits for a connection.
    fn accept(&mut self, listener: &mut Self::Listener) -> io::Result<Self::Connection>;

    /// Connects to an address that [`Testbed::listen`] returned on the other side.
    fn connect(&mut self, address: &str, workload: &Workload) -> io::Result<Self::Connection>;

    /// Other processes of this side's node.
    fn engines(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Segments that this side's stack has retransmitted so far, if it reports them.
    fn retransmits(&self) -> Option<u64> {
        None
    }

    /// Bytes written that the other side has not acknowledged. Handles received frames, and never
    /// waits.
    fn unacknowledged(&mut self, connection: &Self::Connection) -> io::Result<usize> {
        let _ = connection;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The object that changes the placement of this side's stack.
    fn switch(&self) -> io::Result<Box<dyn Switch>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Changes the placement of a side's stack, from any thread.
pub trait Switch: Send {
    /// Changes to the next placement.
    fn next(&mut self) -> io::Result<()>;

    /// Changes to the initial placement.
    fn restore(&mut self) -> io::Result<()>;
}

/// Whether a workload is for stacks with a fixed placement, over paths without faults.
fn stays(workload: &Workload) -> bool {
    let others = matches!(
        workload,
        Workload::Switching { still: false, .. } | Workload::Impaired { .. }
    );
    !others && !workload.is_of_programs()
}

/// A testbed or a source as a value: its name, and the functions that run its sides, or all of it.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Stable name.
    pub name: &'static str,
    /// Its description, in a line.
    pub about: &'static str,
    /// Required programs.
    pub programs: &'static [Program],
    /// Whether its sides are on two machines.
    pub is_between_hosts: bool,
    /// The foreign generator in place of this program's, if any.
    pub(crate) generator: Option<Generator>,
    /// Whether it supports a workload.
    pub supports: fn(&Workload) -> bool,
    pub(crate) attend: fn(&mut Control, &Context) -> io::Result<()>,
}

impl Candidate {
    /// The candidate of the testbed `T`.
    pub const fn of<T: Testbed>() -> Self {
        Self {
            name: T::NAME,
            about: T::ABOUT,
            programs: T::PROGRAMS,
            is_between_hosts: T::IS_BETWEEN_HOSTS,
            generator: None,
            supports: |workload| !workload.is_alone() && T::supports(workload),
            attend: side::attend::<T>,
        }
    }

    /// The kernel's stack with a foreign generator.
    const fn generator(generator: Generator, about: &'static str) -> Self {
        Self {
            name: generator.name(),
            about,
            programs: generator.programs(),
            is_between_hosts: false,
            generator: Some(generator),
            supports: match generator {
                Generator::Sockperf => |workload| Generator::Sockperf.supports(workload),
                Generator::Netpipe => |workload| Generator::Netpipe.supports(workload),
                Generator::Wrk => |workload| Generator::Wrk.supports(workload),
            },
            attend: |_, _| Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether both sides of a workload are unmodified programs here.
    pub(crate) fn is_of_programs(&self, workload: &Workload) -> bool {
        self.generator.is_some() || workload.is_of_programs()
    }
}
