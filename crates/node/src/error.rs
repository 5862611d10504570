//! The reason why a node could not be made.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use toehold_link::mq::{InvalidName, JoinError, PortError};
use toehold_shm::direct::MemoryError;
use toehold_shm::{OutOfMemory, RegionError};

use crate::kernel::KernelError;

/// The reason why a node could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The name is no name of a node.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The length of an address's prefix is out of range.
    #[error("an address has no prefix of {0} bits")]
    Prefix(u8),
    /// A bound of the configuration is out of range.
    #[error("{what} cannot be {value}; choose {range}")]
    Bound {
        /// The bound's name.
        what: &'static str,
        /// The value that was given.
        value: u64,
        /// The values that are allowed.
        range: &'static str,
    },
    /// The fabric does not let the node in.
    #[error("cannot join the fabric: {0}")]
    Join(#[from] JoinError),
    /// The system has no memory for the node.
    #[error("no memory for the node: {0}; lower its bounds of connections and payload memory")]
    Region(#[from] RegionError),
    /// The memory is too small for the stack.
    #[error("the node's memory: {0}")]
    Carve(#[from] OutOfMemory),
    /// The TAP device cannot be used.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The system has no memory for direct connections.
    #[error("no memory for direct connections: {0}; `--direct no` goes without")]
    Direct(#[from] MemoryError),
    /// The fabric's node has no port for the stack.
    #[error("the node's port: {0}")]
    Port(#[from] PortError),
    /// The capture cannot be written.
    #[error("cannot write the capture to {path}: {source}")]
    Capture {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system has no descriptor left.
    #[error("cannot make the node's descriptors: {0} (see `ulimit -n`)")]
    Descriptors(io::Error),
    /// Calls on sockets come from any thread, and drive the link.
    #[error(
        "the link can be driven only by the thread that made it; sockets need one that any thread can drive"
    )]
    SingleThread,
    /// A link that the program has made has one queue, and the node has several shards.
    #[error(
        "a node on a link of one's own has one shard; several need a fabric, and a link that is not impaired"
    )]
    OneQueue,
    /// A capture is of one shard, and the node has several.
    #[error(
        "a node with several shards cannot be recorded by its settings; start it with `toehold up`, and record it with `toehold capture`"
    )]
    OneCapture,
    /// The system refuses a thread.
    #[error("cannot start the node's thread: {0} (see `ulimit -u`)")]
    Thread(io::Error),
    /// The system gives no random numbers for the node's secrets.
    #[error("cannot get random numbers: {0}")]
    Random(Errno),
}

impl From<NodeError> for io::Error {
    fn from(error: NodeError) -> Self {
        let kind = match &error {
            NodeError::Name(_) | NodeError::Prefix(_) | NodeError::Bound { .. } => {
                io::ErrorKind::InvalidInput
            }
            NodeError::Region(_) | NodeError::Direct(_) | NodeError::Carve(_) | NodeError::Port(_) => {
                io::ErrorKind::OutOfMemory
            }
            NodeError::Capture { source, .. }
            | NodeError::Descriptors(source)
            | NodeError::Thread(source) => source.kind(),
            NodeError::Random(errno) => errno.kind(),
            NodeError::SingleThread | NodeError::OneQueue | NodeError::OneCapture => {
                io::ErrorKind::Unsupported
            }
            NodeError::Join(_) | NodeError::Kernel(_) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
