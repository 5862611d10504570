//! What a testbed is: its connections, its sides, and the steps in which they are set up.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::far::Path;
use crate::program::Program;
use crate::settings::Settings;
use crate::workload::Workload;

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
    pub path: Option<Path>,
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
    /// The testbed's description, in a line.
    const ABOUT: &'static str;
    /// Required programs, with the Debian packages that have them.
    const PROGRAMS: &'static [Program] = &[];
    /// Whether its sides are on two machines.
    const IS_BETWEEN_HOSTS: bool = false;
    /// The testbed's listener.
    type Listener;
    /// The testbed's connection.
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
pub(super) fn stays(workload: &Workload) -> bool {
    let others = matches!(
        workload,
        Workload::Switching { still: false, .. } | Workload::Impaired { .. } | Workload::Layout { .. }
    );
    !others && !workload.is_of_programs()
}
