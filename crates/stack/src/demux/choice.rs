//! The choice of a demultiplexing strategy, and its text form.

use core::fmt;
use core::str::FromStr;

/// Chains of a strategy whose text names no number: the demux paper's installation default.
pub const DEFAULT_CHAINS: u32 = 19;

/// Most chains: as many as the most connections.
pub const MAX_CHAINS: u32 = 1 << 24;

/// Demultiplexing strategies. Their text forms are `bsd`, `move-to-front`, `sequent:19`,
/// `hashed-move-to-front:19` and `flow-table`. The number of chains may be omitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum DemuxStrategy {
    /// A list with a one-entry cache (demux paper §3.1).
    Bsd,
    /// A list that moves the entry found to its front (§3.2).
    MoveToFront,
    /// Hash chains, each with a one-entry cache (§3.3).
    Sequent {
        /// Number of chains.
        chains: u32,
    },
    /// Hash chains that move the entry found to their front (§3.4).
    HashedMoveToFront {
        /// Number of chains.
        chains: u32,
    },
    /// Buckets of one cache line, found by a keyed hash.
    FlowTable,
}

/// The text names no strategy, or too many chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no strategy; choose bsd, move-to-front, sequent[:chains], hashed-move-to-front[:chains] or flow-table"
)]
pub struct NoStrategy;

impl FromStr for DemuxStrategy {
    type Err = NoStrategy;

    fn from_str(text: &str) -> Result<Self, NoStrategy> {
        let (name, chains) = match text.split_once(':') {
            Some((name, chains)) => (name, Some(chains)),
            None => (text, None),
        };
        let counted = || match chains.map(str::parse) {
            None => Ok(DEFAULT_CHAINS),
            Some(Ok(chains)) if (1..=MAX_CHAINS).contains(&chains) => Ok(chains),
            Some(_) => Err(NoStrategy),
        };
        match (name, chains) {
            ("bsd", None) => Ok(Self::Bsd),
            ("move-to-front", None) => Ok(Self::MoveToFront),
            ("sequent", _) => Ok(Self::Sequent { chains: counted()? }),
            ("hashed-move-to-front", _) => Ok(Self::HashedMoveToFront { chains: counted()? }),
            ("flow-table", None) => Ok(Self::FlowTable),
            _ => Err(NoStrategy),
        }
    }
}

impl fmt::Display for DemuxStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bsd => f.write_str("bsd"),
            Self::MoveToFront => f.write_str("move-to-front"),
            Self::Sequent { chains } => write!(f, "sequent:{chains}"),
            Self::HashedMoveToFront { chains } => write!(f, "hashed-move-to-front:{chains}"),
            Self::FlowTable => f.write_str("flow-table"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategy_text_round_trips() {
        for (text, shown) in [
            ("bsd", "bsd"),
            ("move-to-front", "move-to-front"),
            ("sequent", "sequent:19"),
            ("sequent:100", "sequent:100"),
            ("hashed-move-to-front", "hashed-move-to-front:19"),
            ("hashed-move-to-front:16777216", "hashed-move-to-front:16777216"),
            ("flow-table", "flow-table"),
        ] {
            let strategy: DemuxStrategy = text.parse().unwrap();
            assert_eq!(strategy.to_string(), shown);
            assert_eq!(shown.parse(), Ok(strategy));
        }
        for text in [
            "",
            "BSD",
            "bsd:1",
            "sequent:0",
            "sequent:",
            "sequent:16777217",
            "sequent:-1",
            "flow-table:2",
        ] {
            assert_eq!(text.parse::<DemuxStrategy>(), Err(NoStrategy), "{text}");
        }
    }
}
