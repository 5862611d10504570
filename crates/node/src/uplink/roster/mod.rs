//! The members beyond: uplinks tell one another the members of their fabrics. So no name and no
//! address is given twice, and no two uplinks lead from one fabric to the same other one.
//!
//! A *page* is an Ethernet frame from an uplink to all others that it leads to, which goes no
//! further ([`page`]). The thread that forwards passes pages on, and sends those it is given
//! ([`link`]). All else is this module's own thread, which wakes up when something has changed, and
//! every few seconds to repeat what it says. What it has heard is in the uplink's status, where
//! members look that give out names and addresses ([`known_beyond`]).
//!
//! Of several uplinks of a fabric that lead to the same other one, the oldest forwards, and the
//! others stand by until it ends. The fabric with the smaller number decides which one, so
//! that both ends do not choose differently.

mod beyond;
mod conflicts;
mod exchange;
#[cfg(any(fuzzing, test))]
mod fuzzing;
mod link;
mod page;
mod siblings;
#[cfg(test)]
mod tests;

#[cfg(any(fuzzing, test))]
pub use self::fuzzing::Listener;

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::beyond::Known;
pub(super) use self::exchange::{Exchange, Findings};
pub(super) use self::link::{Announced, AnnouncedStatistics};
use self::page::Page;
pub(crate) use self::siblings::known_beyond;
pub(super) use self::siblings::living as living_uplinks;
use crate::fabric::{Beyond, Fabric, Identity, NodeRecord, Place};

/// How often pages are repeated.
const PERIOD: Duration = Duration::from_secs(5);

/// An uplink's part in the roster: the pages it sends and receives.
pub(super) struct Roster {
    exchange: Arc<Exchange>,
    fabric: Fabric,
    own: NodeRecord,
    /// The fabric's number; of a device that is not on the fabric, one of its own.
    number: u64,
    /// Whether the fabric's members are reached through it.
    leads_from_fabric: bool,
    host: String,
    mtu: usize,
    known: Known,
    findings: Findings,
}

impl Roster {
    /// Starts the thread, which ends when the exchange is closed.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor or no thread left.
    pub(super) fn start(
        exchange: &Arc<Exchange>,
        place: &Place,
        leads_from_fabric: bool,
        mtu: u16,
    ) -> io::Result<JoinHandle<()>> {
        let own = place.record().clone();
        let mut number = place.fabric().number();
        if !leads_from_fabric {
            number ^=
                u64::from_le_bytes([0, own.mac.0[5], own.mac.0[4], own.mac.0[3], own.mac.0[2], 0, 0, 0]);
        }
        let roster = Roster {
            exchange: Arc::clone(exchange),
            fabric: place.fabric().try_clone()?,
            own,
            number,
            leads_from_fabric,
            host: host_name(),
            mtu: usize::from(mtu),
            known: Known::default(),
            findings: Findings::default(),
        };
        let thread = std::thread::Builder::new().name("toehold-roster".into());
        thread.spawn(move || roster.run())
    }

    fn run(mut self) {
        let mut due = Instant::now();
        while let Some(heard) = self.exchange.wait(due) {
            let now = Instant::now();
            let mut has_news = heard.changed;
            for bytes in heard.pages {
                match Page::parse(&bytes) {
                    Some(page) => has_news |= self.known.take(page, now),
                    None => self.exchange.count_malformed(),
                }
            }
            self.known.expire(now);
            let own = self.members(&heard.living);
            if has_news || now >= due {
                due = now + PERIOD;
                let frames = page::frames(self.number, &self.host, &self.own, &own, self.mtu);
                self.exchange.send(frames);
            }
            self.find(&own);
        }
    }

    /// The members that are reached through this uplink, itself first.
    fn members(&self, living: &HashSet<[u8; 6]>) -> Vec<Identity> {
        let mut members = vec![Identity::from(&self.own)];
        if self.leads_from_fabric {
            let mut records = self.fabric.records();
            records.retain(|record| living.contains(&record.mac.0) && record.name != self.own.name);
            members.extend(records.iter().map(Identity::from));
        }
        members
    }

    fn find(&mut self, own: &[Identity]) {
        let beyond: Vec<Beyond> = self.known.list();
        let standby = match self.leads_from_fabric {
            true => siblings::elder(&self.fabric, &self.own, self.number, &beyond),
            false => None,
        };
        let findings = Findings {
            conflicts: conflicts::between(own, &beyond),
            beyond,
            standby,
        };
        let told = |sentence: &&String| !self.findings.sentences().any(|known| known == *sentence);
        for sentence in findings.sentences().filter(told) {
            eprintln!("{}: {sentence}", self.own.name);
        }
        self.exchange.publish(&findings);
        self.findings = findings;
    }
}

/// The host's name for people.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    page::plain(name.trim())
}
