//! Which threads run a node's stack: a choice that changes nothing but costs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which threads drive a node's stack.
///
/// ```
/// use toehold_node::Placement;
///
/// assert_eq!("engine".parse(), Ok(Placement::Engine));
/// assert_eq!(Placement::default().to_string(), "adaptive");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The programs' threads while they are in a call on a socket of the node; no thread at other
    /// times. In a node with several shards, the call is on a socket of the same shard.
    Inline,
    /// A thread of the engine process, always.
    Engine,
    /// The programs' threads while they are in a call; the engine process as
    /// soon as none has been for some milliseconds.
    #[default]
    Adaptive,
}

/// The text is no name of a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a placement is one of inline, engine, adaptive")]
pub struct InvalidPlacement;

impl Placement {
    /// Every placement.
    pub const ALL: [Placement; 3] = [Placement::Inline, Placement::Engine, Placement::Adaptive];

    /// The placement's name, as it is given on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Inline => "inline",
            Placement::Engine => "engine",
            Placement::Adaptive => "adaptive",
        }
    }
}

impl FromStr for Placement {
    type Err = InvalidPlacement;

    fn from_str(name: &str) -> Result<Self, InvalidPlacement> {
        let named = |placement: &Placement| placement.name() == name;
        Self::ALL.into_iter().find(named).ok_or(InvalidPlacement)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
