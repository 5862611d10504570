//! Why a node did not do what it was asked.

use rustix::io::Errno;
use toehold_link::mq::{InvalidName, NodeName};

use crate::control::host::Refusal;
use crate::why::Reason;

/// Why a node did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The text is no name of a node.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// No process listens.
    #[error(
        "no node named {node} runs in fabric {fabric}; start it with `toehold up {node}`, or see `toehold ps`"
    )]
    Unknown {
        /// The node.
        node: NodeName,
        /// The fabric.
        fabric: String,
    },
    /// The node belongs to another user, and this user may not even ask it.
    #[error(
        "node {0} belongs to another user, and this user may not join its fabric; ask that user, or root (--allow-user)"
    )]
    Foreign(NodeName),
    /// The node refused.
    #[error("node {node}: {refusal}")]
    Refused {
        /// The node.
        node: NodeName,
        /// The reason that the node gave.
        refusal: Refusal,
    },
    /// The node did not answer in time.
    #[error("node {node} does not answer; if its engine process is stopped, `kill -CONT {}` has it go on",
        process.map_or("PID".to_owned(), |process| process.to_string()))]
    TimedOut {
        /// The node.
        node: NodeName,
        /// The node's engine process, if the kernel said which one that is.
        process: Option<u32>,
    },
    /// The node is gone.
    #[error("node {0} has ended")]
    HungUp(NodeName),
    /// The node's answer was not one to the request.
    #[error("node {0} gave an answer that fits no question; is its engine process of another version?")]
    Nonsense(NodeName),
    /// The system refused.
    #[error("cannot reach node {node}: {source}")]
    System {
        /// The node.
        node: NodeName,
        /// The system's error.
        source: Errno,
    },
}

impl ControlError {
    /// The reason why a process is not on the node that did not let it attach.
    pub fn reason(&self) -> Reason {
        match self {
            ControlError::Name(_) | ControlError::Unknown { .. } => Reason::NoNode,
            ControlError::TimedOut { .. } | ControlError::HungUp(_) => Reason::NoNode,
            ControlError::Foreign(_) => Reason::OtherUser,
            ControlError::Refused { refusal, .. } => refusal.reason.unwrap_or(Reason::NodeFull),
            ControlError::Nonsense(_) => Reason::OtherBuild,
            ControlError::System { source, .. } => Reason::of_system(Some(*source)),
        }
    }
}
