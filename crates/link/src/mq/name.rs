//! Names of nodes: unique within a fabric, and part of a file name.

use core::fmt;
use core::str::FromStr;

use crate::steering::MAX_SHARDS;

/// Longest name in bytes.
pub(super) const MAX_NAME: usize = 63;

/// The name of a node: 1 to 63 ASCII letters, digits, `-`, `_` or `.`, the
/// first of them no dot.
///
/// ```
/// use toehold_link::mq::NodeName;
/// let name: NodeName = "web-1".parse()?;
/// assert_eq!(name.as_str(), "web-1");
/// assert!("../etc".parse::<NodeName>().is_err());
/// # Ok::<(), toehold_link::mq::InvalidName>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeName {
    bytes: [u8; MAX_NAME],
    len: u8,
}

/// One shard of a node as a member of the fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct MemberName {
    pub(super) node: NodeName,
    pub(super) shard: u8,
}

impl MemberName {
    /// The character between the node's name and the number of a shard. No name has it.
    const MARK: char = '#';
}

impl From<NodeName> for MemberName {
    /// A node's first shard, which has the node's name.
    fn from(node: NodeName) -> MemberName {
        MemberName { node, shard: 0 }
    }
}

impl FromStr for MemberName {
    type Err = InvalidName;

    /// There is one way to write a name.
    fn from_str(name: &str) -> Result<Self, InvalidName> {
        let Some((node, shard)) = name.split_once(Self::MARK) else {
            return Ok(name.parse::<NodeName>()?.into());
        };
        let number = shard.parse().map_err(|_| InvalidName)?;
        let plain = (1..MAX_SHARDS).contains(&number) && number.to_string() == shard;
        let node = node.parse()?;
        plain
            .then_some(MemberName { node, shard: number })
            .ok_or(InvalidName)
    }
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shard {
            0 => self.node.fmt(f),
            shard => write!(f, "{}{}{shard}", self.node, Self::MARK),
        }
    }
}

/// The text is no name of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a node's name has 1 to 63 letters, digits, '-', '_' or '.', and does not begin with a dot")]
pub struct InvalidName;

impl NodeName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }

    /// A name from what another node sent.
    pub(super) fn from_bytes(name: &[u8]) -> Result<NodeName, InvalidName> {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        if name.is_empty() || name.len() > MAX_NAME || name[0] == b'.' || !name.iter().all(plain) {
            return Err(InvalidName);
        }
        let mut bytes = [0; MAX_NAME];
        bytes[..name.len()].copy_from_slice(name);
        Ok(NodeName {
            bytes,
            len: name.len() as u8,
        })
    }
}

impl FromStr for NodeName {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        NodeName::from_bytes(name.as_bytes())
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_differ_from_all_node_names() {
        for text in ["web", "web#1", "web#15", "a.b-c_d#9"] {
            let name: MemberName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
            assert_eq!(name.shard != 0, text.parse::<NodeName>().is_err());
        }
        for text in [
            "web#0", "web#16", "web#01", "web#+1", "web#", "#1", "web#1#1", "web# 1",
        ] {
            assert_eq!(text.parse::<MemberName>(), Err(InvalidName), "{text}");
        }
    }
}
