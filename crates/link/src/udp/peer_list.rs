//! The file with the nodes of a fabric: a numeric address and a port per line, and
//! remarks after `#`. One file serves all nodes.

use std::collections::HashSet;
use std::net::SocketAddr;

use super::settings::{MAX_PEERS, canonical};

/// Length of the longest line, remark included.
const MAX_LINE: usize = 512;

/// Reason for which a list of peers is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerListError {
    /// A line without a valid address.
    #[error("line {line}: {text:?} is not ADDRESS:PORT, for example 192.0.2.1:7005 or [2001:db8::1]:7005")]
    NoAddress {
        /// Number of the line, from 1 on.
        line: usize,
        /// Text of the line.
        text: String,
    },
    /// An address that an earlier line has.
    #[error("line {line}: {address} stands in the list twice")]
    Twice {
        /// Number of the line, from 1 on.
        line: usize,
        /// The address.
        address: SocketAddr,
    },
    /// A line above the length limit.
    #[error("line {0} is longer than {MAX_LINE} bytes")]
    TooLong(usize),
    /// More peers than a node can have.
    #[error("line {0}: there are more than {MAX_PEERS} peers")]
    TooMany(usize),
}

/// Parses a list of peers.
///
/// # Errors
///
/// The first invalid line.
///
/// ```
/// let list = "# two hosts\n192.0.2.1:7005\n[2001:db8::2]:7005 # in the other room\n";
/// assert_eq!(toehold_link::udp::parse_peers(list).unwrap().len(), 2);
/// ```
pub fn parse_peers(list: &str) -> Result<Vec<SocketAddr>, PeerListError> {
    let mut peers = Vec::new();
    let mut seen = HashSet::new();
    for (line, text) in (1..).zip(list.split('\n')) {
        if text.len() > MAX_LINE {
            return Err(PeerListError::TooLong(line));
        }
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let Ok(address) = text.parse() else {
            return Err(PeerListError::NoAddress {
                line,
                text: text.to_owned(),
            });
        };
        if !seen.insert(canonical(address)) {
            return Err(PeerListError::Twice { line, address });
        }
        if peers.len() == MAX_PEERS {
            return Err(PeerListError::TooMany(line));
        }
        peers.push(address);
    }
    Ok(peers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wrong_line_is_named_in_error() {
        let parsed = parse_peers("\n 10.0.0.1:1 # a\r\n\n[::1]:2\n# 10.0.0.1:1");
        assert_eq!(
            parsed,
            Ok(vec!["10.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()])
        );
        let error = parse_peers("10.0.0.1:1\nexample.org:7005").unwrap_err();
        assert!(
            error.to_string().starts_with("line 2: \"example.org:7005\""),
            "{error}"
        );
        let twice = parse_peers("10.0.0.1:1\n[::ffff:10.0.0.1]:1");
        assert!(matches!(twice, Err(PeerListError::Twice { line: 2, .. })));
        assert_eq!(
            parse_peers(&"#".repeat(MAX_LINE + 1)),
            Err(PeerListError::TooLong(1))
        );
        let many: String = (0..=MAX_PEERS)
            .map(|port| format!("10.0.0.1:{}\n", port + 1))
            .collect();
        assert_eq!(parse_peers(&many), Err(PeerListError::TooMany(MAX_PEERS + 1)));
    }

    proptest! {
        #[test]
        fn parse_of_any_text_never_panics(text in "[0-9:.#\\[\\]\n\\PC]{0,200}") {
            if let Ok(peers) = parse_peers(&text) {
                prop_assert!(peers.len() <= text.len());
            }
        }
    }
}
