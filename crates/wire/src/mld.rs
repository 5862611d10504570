//! Multicast listener discovery (RFC 3810; RFC 2710 for older queriers). A host
//! reports its groups, so that switches forward their packets to it.

use core::net::Ipv6Addr;

use crate::icmp;
use crate::icmpv6::{self, pseudo_header};
use crate::{Result, WireError, protocol};

/// The type of a query in ICMPv6.
pub const QUERY: u8 = 130;
const REPORT_V1: u8 = 131;
const REPORT_V2: u8 = 143;

/// Bytes of a version 1 query, and the minimum for version 2.
const QUERY_V1_LEN: usize = 24;
const QUERY_V2_LEN: usize = 28;
/// Bytes of a version 2 report before its records, and of a record without
/// sources.
const REPORT_HEADER_LEN: usize = 8;
const RECORD_LEN: usize = 20;

/// Hop limit of every message: it crosses no router.
//= RFC 3810 §5
pub const HOP_LIMIT: u8 = 1;

/// Destination of version 2 reports: all MLDv2-capable routers.
//= RFC 3810 §5.2.14
pub const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// Hop-by-hop options before every message: MLD's router alert, and padding.
//= RFC 3810 §5
//= RFC 2711 §2.1
pub const ROUTER_ALERT: [u8; 8] = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];

/// Most groups in a report.
pub const MAX_GROUPS: usize = 4;

/// Length of the longest report in bytes, hop-by-hop options included.
pub const MAX_LEN: usize = ROUTER_ALERT.len() + REPORT_HEADER_LEN + MAX_GROUPS * RECORD_LEN;

/// Versions of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Version 1 (RFC 2710).
    V1,
    /// Version 2 (RFC 3810).
    V2,
}

/// A router's question for groups with listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// The router's protocol version.
    pub version: Version,
    /// The group in question; `None` for all groups.
    pub group: Option<Ipv6Addr>,
    /// Time limit for the answer, in milliseconds.
    pub within_ms: u32,
}

impl Query {
    /// Reads an ICMPv6 message with a verified checksum. Returns `None` if it
    /// is no query.
    ///
    /// # Errors
    ///
    /// `Truncated` if a query has an impossible length.
    //= RFC 3810 §8.2.1 (the version of a query is told by its length)
    pub fn parse(message: &[u8]) -> Result<Option<Self>> {
        if message.first() != Some(&QUERY) {
            return Ok(None);
        }
        let version = match message.len() {
            QUERY_V1_LEN => Version::V1,
            QUERY_V2_LEN.. => Version::V2,
            _ => return Err(WireError::Truncated),
        };
        let code = u16::from_be_bytes([message[4], message[5]]);
        let mut group = [0; 16];
        group.copy_from_slice(&message[8..QUERY_V1_LEN]);
        let group = Ipv6Addr::from(group);
        Ok(Some(Self {
            version,
            group: (!group.is_unspecified()).then_some(group),
            within_ms: match version {
                Version::V1 => code.into(),
                Version::V2 => span(code),
            },
        }))
    }
}

/// Decodes a maximum response code to milliseconds (RFC 3810 §5.1.3).
//= RFC 3810 §5.1.3
fn span(code: u16) -> u32 {
    if code < 0x8000 {
        return code.into();
    }
    let (exponent, mantissa) = (u32::from(code >> 12 & 7), u32::from(code & 0xfff));
    (mantissa | 0x1000) << (exponent + 3)
}

/// Writes a version 2 report with its hop-by-hop options. Returns the length.
/// The report says that the host listens to all sources of `groups`, of which
/// at most [`MAX_GROUPS`] are written. `is_change` marks newly joined groups.
///
/// # Panics
///
/// If the buffer is shorter than [`MAX_LEN`].
//= RFC 3810 §5.2
pub fn emit_report(source: Ipv6Addr, groups: &[Ipv6Addr], is_change: bool, buffer: &mut [u8]) -> usize {
    //= RFC 3810 §5.2.12 (MODE_IS_EXCLUDE, CHANGE_TO_EXCLUDE_MODE)
    let kind = if is_change { 4 } else { 2 };
    let groups = &groups[..groups.len().min(MAX_GROUPS)];
    let len = REPORT_HEADER_LEN + groups.len() * RECORD_LEN;
    let (alert, rest) = buffer.split_at_mut(ROUTER_ALERT.len());
    let message = &mut rest[..len];
    alert.copy_from_slice(&ROUTER_ALERT);
    message.fill(0);
    message[0] = REPORT_V2;
    message[7] = groups.len() as u8;
    for (record, group) in message[REPORT_HEADER_LEN..]
        .chunks_exact_mut(RECORD_LEN)
        .zip(groups)
    {
        record[0] = kind;
        record[4..].copy_from_slice(&group.octets());
    }
    icmpv6::set_checksum(message, pseudo_header(source, ROUTERS, len), 0);
    ROUTER_ALERT.len() + len
}

/// Writes a version 1 report with its hop-by-hop options, for the group itself.
/// Returns the length.
///
/// # Panics
///
/// If the buffer is shorter than [`MAX_LEN`].
//= RFC 2710 §3
pub fn emit_report_v1(source: Ipv6Addr, group: Ipv6Addr, buffer: &mut [u8]) -> usize {
    let (alert, rest) = buffer.split_at_mut(ROUTER_ALERT.len());
    let message = &mut rest[..QUERY_V1_LEN];
    alert.copy_from_slice(&ROUTER_ALERT);
    message.fill(0);
    message[0] = REPORT_V1;
    message[icmp::HEADER_LEN..].copy_from_slice(&group.octets());
    icmpv6::set_checksum(message, pseudo_header(source, group, QUERY_V1_LEN), 0);
    ROUTER_ALERT.len() + QUERY_V1_LEN
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWN: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0x10);

    fn query(len: usize, code: u16, group: Ipv6Addr) -> Vec<u8> {
        let mut message = vec![0; len];
        message[0] = QUERY;
        message[4..6].copy_from_slice(&code.to_be_bytes());
        message[8..24].copy_from_slice(&group.octets());
        message
    }

    #[test]
    fn query_is_read_by_its_length() {
        let read = |message: &[u8]| Query::parse(message).unwrap().unwrap();
        let general = read(&query(28, 10_000, Ipv6Addr::UNSPECIFIED));
        let expected = Query {
            version: Version::V2,
            group: None,
            within_ms: 10_000,
        };
        assert_eq!(general, expected);
        let old = read(&query(24, 0xffff, GROUP));
        assert_eq!(
            (old.version, old.group, old.within_ms),
            (Version::V1, Some(GROUP), 0xffff)
        );
        //= RFC 3810 §5.1.3
        assert_eq!(read(&query(44, 0x8000, GROUP)).within_ms, 0x8000);
        assert_eq!(read(&query(44, 0xffff, GROUP)).within_ms, 0x1fff << 10);
        for len in [23, 25, 27] {
            let mut message = query(28, 0, GROUP);
            message.truncate(len);
            assert_eq!(Query::parse(&message), Err(WireError::Truncated));
        }
        assert_eq!(Query::parse(&[REPORT_V2; 28]), Ok(None));
    }

    #[test]
    fn report_has_router_alert_and_valid_checksum() {
        let mut bytes = [0xff; MAX_LEN];
        let len = emit_report(OWN, &[GROUP, ROUTERS], true, &mut bytes);
        assert_eq!(len, 8 + 8 + 40);
        assert_eq!(bytes[..8], [58, 0, 5, 2, 0, 0, 1, 0]);
        let message = &bytes[8..len];
        assert!(
            icmpv6::View::new(message)
                .unwrap()
                .verify(pseudo_header(OWN, ROUTERS, 48), 0)
        );
        assert_eq!((message[0], &message[6..12]), (143, &[0, 2, 4, 0, 0, 0][..]));
        assert_eq!(message[12..28], GROUP.octets());
        let len = emit_report_v1(OWN, GROUP, &mut bytes);
        let message = &bytes[8..len];
        assert!(
            icmpv6::View::new(message)
                .unwrap()
                .verify(pseudo_header(OWN, GROUP, 24), 0)
        );
        assert_eq!((message[0], message.len()), (131, 24));
    }

    proptest! {
        #[test]
        fn parse_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Query::parse(&bytes);
        }
    }
}
