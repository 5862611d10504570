//! An entry for the fuzz targets: an uplink that receives any bytes as pages.

use std::time::{Duration, Instant};

use super::beyond::{Known, MAX_MEMBERS, MAX_UPLINKS};
use super::conflicts::{self, MAX_CONFLICTS};
use super::page::{self, Page};
use crate::fabric::{Identity, mac_of_name};

/// An uplink's knowledge of others, with members of its own that they may be in conflict with.
pub struct Listener {
    known: Known,
    now: Instant,
    own: Vec<Identity>,
}

fn member(number: u8) -> Identity {
    let name = format!("n{number}");
    Identity {
        mac: mac_of_name(&name),
        name: name.parse().expect("a name"),
        ipv4: [10, 77, 0, number].into(),
        ipv6: [0xfd77, 0, 0, 0, 0, 0, 0, number.into()].into(),
    }
}

impl Listener {
    /// Creates a listener that has received no page yet.
    pub fn new() -> Listener {
        Listener {
            known: Known::default(),
            now: Instant::now(),
            own: (0..4).map(member).collect(),
        }
    }

    /// Takes a frame. If it is a page, that means the same when it is written again.
    pub fn frame(&mut self, bytes: &[u8]) {
        let _ = page::is_page(bytes);
        let Some(page) = Page::parse(bytes) else { return };
        let mut again = bytes[..page::HEADER].to_vec();
        serde_json::to_writer(&mut again, &page).expect("plain data");
        assert_eq!(Page::parse(&again).as_ref(), Some(&page));
        assert!(page.host.len() <= page::MAX_HOST && page.host.bytes().all(|byte| byte.is_ascii_graphic()));
        self.take(page);
    }

    /// Takes a page with any contents, with so many members from this one on.
    pub fn page(&mut self, fabric: u64, uplink: u8, [number, pages]: [u32; 2], [first, members]: [u8; 2]) {
        let members = (0..members).map(|number| member(first.wrapping_add(number)));
        self.take(Page {
            version: page::VERSION,
            host: "beta".to_owned(),
            uplink: format!("u{uplink}").parse().expect("a name"),
            fabric,
            number,
            pages,
            members: members.collect(),
        });
    }

    fn take(&mut self, page: Page) {
        let key = (page.fabric, page.uplink);
        let whole = page.number == 0 && page.pages == 1;
        let said = page.members.len().min(MAX_MEMBERS);
        self.known.take(page, self.now);
        let known = self.known.list();
        let told = known.iter().find(|beyond| (beyond.fabric, beyond.uplink) == key);
        if let (true, Some(told)) = (whole, told) {
            assert_eq!(told.members.len(), said);
        }
        assert!(told.is_some() || known.len() == MAX_UPLINKS);
    }

    /// Lets time pass, and looks through the known uplinks.
    pub fn pass(&mut self, span: Duration) {
        self.now += span;
        self.known.expire(self.now);
        let known = self.known.list();
        assert!(known.len() <= MAX_UPLINKS);
        assert!(known.iter().all(|beyond| beyond.members.len() <= MAX_MEMBERS));
        assert!(self.known.coming() <= MAX_UPLINKS * MAX_MEMBERS);
        let sentences = conflicts::between(&self.own, &known);
        assert!(sentences.len() <= MAX_CONFLICTS);
        let plain = |sentence: &String| sentence.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        assert!(sentences.iter().all(plain), "{sentences:?}");
    }
}

impl Default for Listener {
    fn default() -> Self {
        Self::new()
    }
}
