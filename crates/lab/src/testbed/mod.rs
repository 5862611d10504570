//! The carriers of traffic between two sides, with a file for each candidate. Also [`Source`]s,
//! which consist of one process.
//!
//! The server's process and the client's both create the testbed, in steps that the runner makes in
//! turn. It calls [`Testbed::enter`] in the server, then in the client; then [`Testbed::join`] in
//! the server, then in the client. After that, both run one workload after the other, each over its
//! own connections.

mod attached;
mod carrier;
mod contract;
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

use std::io;

use crate::attend::{self, Control};
use crate::programs::Generator;
use crate::workload::Workload;

/// All candidates.
pub const ALL: &[Candidate] = &[
    Candidate::of::<toehold::Toehold<attached::Direct>>(),
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
    Candidate::of::<toehold::Toehold<attached::Direct>>(),
    Candidate::of::<toehold::Toehold<toehold::Own>>(),
    Candidate::of::<kernel_veth::KernelVeth>(),
    Candidate::of::<kernel_veth::KernelVethSpinning>(),
    Candidate::of::<kernel_loopback::KernelLoopback>(),
    Candidate::of::<unix::Unix>(),
    Candidate::of::<floor::Floor>(),
];

/// Candidates over which messages can be followed, in the order of columns.
pub const FOLLOWED: &[Candidate] = &[
    Candidate::of::<kernel_loopback::KernelLoopback>(),
    Candidate::of::<kernel_veth::KernelVeth>(),
];

/// Candidates for programs with several workers, in the order of columns.
pub const WORKERS: &[Candidate] = &[
    Candidate::of::<toehold::Toehold<attached::Direct>>(),
    Candidate::of::<toehold::Toehold<attached::Adaptive>>(),
    Candidate::of::<kernel_loopback::KernelLoopback>(),
    Candidate::of::<kernel_veth::KernelVeth>(),
    Candidate::of::<unix::Unix>(),
];

pub use crate::program::Program;
pub(crate) use attached::{DIRECT, EngineOrder};
pub use contract::{Connection, Context, Role, Switch, Testbed, TestbedError};
pub(crate) use kernel_loopback::KERNEL_LOOPBACK;
pub(crate) use kernel_veth::KERNEL_VETH;
pub use source::Source;
pub(crate) use unix::UNIX;

/// A testbed or a source as a value: its name, and the functions that run its sides, or all of it.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Stable name.
    pub name: &'static str,
    /// The candidate's description, in a line.
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
            supports: |workload| {
                !workload.is_alone() && !workload.is_of_deployments() && T::supports(workload)
            },
            attend: attend::attend::<T>,
        }
    }

    /// The candidate of the source `S`.
    pub const fn alone<S: Source>() -> Self {
        Self {
            name: S::NAME,
            about: S::ABOUT,
            programs: &[],
            is_between_hosts: false,
            generator: None,
            supports: S::supports,
            attend: attend::attend_alone::<S>,
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
