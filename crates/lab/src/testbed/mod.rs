//! What carries the traffic between the two sides. A candidate a file. And [`Source`]s, of which a
//! process is all there is.
//!
//! A testbed is made twice, in the server's process and in the client's, in steps
//! that the runner takes in turn: [`Testbed::enter`] in the server, then in the
//! client; [`Testbed::join`] in the server, then in the client. From then on both go
//! through one workload after the other, each over connections of its own.

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

/// Everything that can be measured.
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

/// What is measured between two machines, in the order of columns.
pub const HOSTS: &[Candidate; 3] = &[
    Candidate::of::<toehold::Toehold<hosts::Between>>(),
    Candidate::of::<hosts::Kernel>(),
    Candidate::of::<hosts::Interfaces>(),
];

/// What is measured beside one another on interfaces of the kernel, in the order of columns.
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

/// What is measured beside one another over paths with faults, in the order of columns.
pub const MIXED: &[Candidate] = &[
    Candidate::of::<mixed::Mixed<mixed::ToKernel>>(),
    Candidate::of::<mixed::Mixed<mixed::FromKernel>>(),
    Candidate::of::<mixed::Mixed<mixed::Kernels>>(),
];

/// What is measured beside one another on where a stack runs, in the order of columns.
pub const PLACEMENTS: &[Candidate] = &[
    Candidate::of::<toehold::Toehold<toehold::Private>>(),
    Candidate::of::<toehold::Toehold<attached::Inline>>(),
    Candidate::of::<toehold::Toehold<attached::Adaptive>>(),
    Candidate::of::<toehold::Toehold<attached::Engine>>(),
    Candidate::of::<kernel_veth::KernelVeth>(),
];

/// What is measured beside one another on sockets, in the order of the report's columns.
pub const SOCKETS: &[Candidate] = &[
    Candidate::of::<toehold::Toehold<toehold::Own>>(),
    Candidate::of::<kernel_veth::KernelVeth>(),
    Candidate::of::<kernel_veth::KernelVethSpinning>(),
    Candidate::of::<kernel_loopback::KernelLoopback>(),
    Candidate::of::<unix::Unix>(),
    Candidate::of::<floor::Floor>(),
];

/// What is measured beside one another on programs with several workers, in the order of columns.
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
    /// Tells the other side that nothing more will be written; reading goes on.
    fn finish(&mut self) -> io::Result<()>;
}

/// Which of the two sides a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Accepts connections.
    Server,
    /// Makes them.
    Client,
}

/// What a side is told before anything else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Name of the candidate.
    pub candidate: String,
    /// Which side this is.
    pub role: Role,
    /// Which of several pairs of processes that do the same this side is of, from 0.
    pub pair: u8,
    /// Process id of the server.
    pub server: u32,
    /// Process ids of its clients.
    pub clients: Vec<u32>,
    /// Which of them this side is, from 0, if it is one.
    pub client: u8,
    /// Largest IP packet of the path between the sides, in bytes, where one can be chosen.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// A directory that all pairs of the candidate may use, empty at first; it is removed after the run. Its
    /// path may be too long for the name of a socket: go there and use a relative one.
    pub scratch: PathBuf,
    /// The addresses of the two sides' machines, if they are two.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<far::Path>,
    /// How measurements are taken.
    pub settings: Settings,
    /// Of everything random that this side does by itself; another one each round.
    #[serde(default)]
    pub seed: u64,
}

/// Why a candidate cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// This machine or user lacks something. Says what, and what to do about it.
    #[error("{0}")]
    Unavailable(String),
    /// It should work, and does not.
    #[error("{0}")]
    Failed(String),
}

impl TestbedError {
    /// A step that should have worked.
    pub fn failed(step: &str, error: impl std::fmt::Display) -> Self {
        Self::Failed(format!("cannot {step}: {error}"))
    }
}

/// What carries the traffic. One value lives in each side's process.
pub trait Testbed: Sized {
    /// Stable name; part of the names of ratios.
    const NAME: &'static str;
    /// What it is, in a line.
    const ABOUT: &'static str;
    /// Programs that it needs, with the Debian packages that have them.
    const PROGRAMS: &'static [Program] = &[];
    /// Whether its sides are on two machines.
    const IS_BETWEEN_HOSTS: bool = false;
    /// What accepts connections.
    type Listener;
    /// What they are.
    type Connection: Connection + Send;

    /// Whether a workload means anything here.
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

    /// Begins to listen for one workload; also gives the address to connect to.
    fn listen(&mut self, workload: &Workload) -> io::Result<(Self::Listener, String)>;

    /// Waits for a connection.
    fn accept(&mut self, listener: &mut Self::Listener) -> io::Result<Self::Connection>;

    /// Connects to an address that [`Testbed::listen`] gave the other side.
    fn connect(&mut self, address: &str, workload: &Workload) -> io::Result<Self::Connection>;

    /// Processes that belong to this side's node, beside this one.
    fn engines(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Segments that this side's stack has sent again so far, if it says so.
    fn retransmits(&self) -> Option<u64> {
        None
    }

    /// Bytes written that the other side has not acknowledged. Takes in what has come
    /// from it, and never waits.
    fn unacknowledged(&mut self, connection: &Self::Connection) -> io::Result<usize> {
        let _ = connection;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// What changes where this side's stack runs.
    fn switch(&self) -> io::Result<Box<dyn Switch>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Changes where a side's stack runs, from any thread.
pub trait Switch: Send {
    /// To the next of all places there are.
    fn next(&mut self) -> io::Result<()>;

    /// To where it was at first.
    fn restore(&mut self) -> io::Result<()>;
}

/// The workloads of stacks that stay where they are, over paths without faults.
fn stays(workload: &Workload) -> bool {
    let others = matches!(
        workload,
        Workload::Switching { still: false, .. } | Workload::Impaired { .. }
    );
    !others && !workload.is_of_programs()
}

/// A testbed or a source as a value: its name, and how a process becomes one of its sides, or all of it.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Stable name.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Programs that it needs.
    pub programs: &'static [Program],
    /// Whether its sides are on two machines.
    pub is_between_hosts: bool,
    /// Which generator of others it has in place of this program's.
    pub(crate) generator: Option<Generator>,
    /// Whether a workload means anything here.
    pub supports: fn(&Workload) -> bool,
    pub(crate) attend: fn(&mut Control, &Context) -> io::Result<()>,
}

impl Candidate {
    /// The candidate that `T` is.
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

    /// The kernel's stack with a generator of others.
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

    /// Whether both sides of a workload are programs of others here.
    pub(crate) fn is_of_programs(&self, workload: &Workload) -> bool {
        self.generator.is_some() || workload.is_of_programs()
    }
}
