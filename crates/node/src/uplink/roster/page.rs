//! The pages that uplinks send one another: Ethernet frames for all of them, with JSON in them.

use serde::{Deserialize, Serialize};
use toehold_link::mq::NodeName;

use crate::as_text;
use crate::fabric::{Identity, NodeRecord};

/// The destination of pages: a group that no other protocol has, of the locally administered
/// addresses.
const GROUP: [u8; 6] = [0x03, b't', b'o', b'e', 0, 1];
/// For experiments, IEEE 802 §9.2.3; only uplinks ever see it.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
pub(super) const HEADER: usize = 14;

/// The version of pages. Those of another one are not read.
pub(super) const VERSION: u8 = 1;
/// Bytes of all but the members, at most.
const FRAME: usize = 320;
/// Bytes that a member takes up, at most.
const MEMBER: usize = 190;
/// Letters of a host's name.
pub(super) const MAX_HOST: usize = 64;

/// A part of an uplink's list of members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Page {
    pub(super) version: u8,
    /// The host's name.
    pub(super) host: String,
    /// The uplink's name.
    #[serde(with = "as_text")]
    pub(super) uplink: NodeName,
    /// The fabric's number.
    pub(super) fabric: u64,
    /// The number of the part.
    pub(super) number: u32,
    pub(super) pages: u32,
    pub(super) members: Vec<Identity>,
}

impl Page {
    /// Reads the page in a frame; `None` if it is none, or of another version.
    pub(super) fn parse(frame: &[u8]) -> Option<Page> {
        let mut page: Page = serde_json::from_slice(frame.get(HEADER..)?).ok()?;
        page.host = plain(&page.host);
        (page.version == VERSION).then_some(page)
    }
}

/// Whether a frame, of which this is the beginning, is a page.
pub(super) fn is_page(frame: &[u8]) -> bool {
    frame.get(..6) == Some(&GROUP) && frame.get(12..HEADER) == Some(&ETHER_TYPE)
}

/// The frames that list the members that are there; none over links whose frames are too short for
/// that.
pub(super) fn frames(
    fabric: u64,
    host: &str,
    uplink: &NodeRecord,
    members: &[Identity],
    mtu: usize,
) -> Vec<Vec<u8>> {
    let room = mtu.saturating_sub(FRAME) / MEMBER;
    if room == 0 {
        return Vec::new();
    }
    let parts = members.chunks(room);
    let pages = parts.len() as u32;
    let frame = |(number, members): (usize, &[Identity])| {
        let page = Page {
            version: VERSION,
            host: host.to_owned(),
            uplink: uplink.name,
            fabric,
            number: number as u32,
            pages,
            members: members.to_vec(),
        };
        let mut frame = [&GROUP[..], &uplink.mac.0, &ETHER_TYPE].concat();
        let written = serde_json::to_writer(&mut frame, &page);
        written.ok().map(|()| frame)
    };
    parts.enumerate().filter_map(frame).collect()
}

/// A name as it can be shown, whichever peer has sent it.
pub(super) fn plain(name: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_graphic() { letter } else { '?' };
    name.chars().take(MAX_HOST).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Role;

    fn record(name: &str) -> NodeRecord {
        NodeRecord {
            name: name.parse().unwrap(),
            mac: crate::fabric::mac_of_name(name),
            role: Role::Node,
            ipv4: "255.255.255.255/32".parse().unwrap(),
            ipv6: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128".parse().unwrap(),
            mtu: 1500,
            pid: 1,
            started: 0,
        }
    }

    #[test]
    fn pages_of_the_longest_names_fit_into_a_frame_and_say_who_is_there() {
        let members: Vec<Identity> = (0..40)
            .map(|number| Identity::from(&record(&format!("{number:x>63}"))))
            .collect();
        let uplink = record(&"u".repeat(63));
        let host = "h".repeat(MAX_HOST);
        for mtu in [576, 1280, 1500, 9000] {
            let frames = frames(u64::MAX >> 11, &host, &uplink, &members, mtu);
            assert!(
                frames
                    .iter()
                    .all(|frame| is_page(frame) && frame.len() <= mtu + HEADER)
            );
            let pages: Vec<_> = frames.iter().map(|frame| Page::parse(frame).unwrap()).collect();
            let told: Vec<_> = pages.iter().flat_map(|page| page.members.clone()).collect();
            assert_eq!(told, members);
            let numbers = pages.iter().map(|page| page.number);
            assert!(numbers.eq(0..pages[0].pages));
        }
        assert!(frames(1, &host, &uplink, &members, 500).is_empty());
    }

    #[test]
    fn what_is_no_page_is_not_read() {
        let frame = &frames(1, "a\u{1b}[2Jb", &record("u"), &[], 1500);
        assert!(frame.is_empty(), "nobody is there, not even the uplink");
        let members = [Identity::from(&record("u"))];
        let frame = &frames(1, "a\u{1b}[2Jb", &record("u"), &members, 1500)[0];
        assert_eq!(Page::parse(frame).unwrap().host, "a?[2Jb");
        for len in 0..frame.len() {
            assert_eq!(Page::parse(&frame[..len]), None, "{len}");
        }
        let later = String::from_utf8_lossy(&frame[HEADER..]).replace("\"version\":1", "\"version\":2");
        assert_eq!(Page::parse(&[&frame[..HEADER], later.as_bytes()].concat()), None);
        assert!(!is_page(&frame[..13]) && !is_page(&[0xff; 60]));
    }
}
