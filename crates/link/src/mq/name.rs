//! Names of nodes: unique within a fabric, and part of a file name.

use core::fmt;
use core::str::FromStr;

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
