//! Announces this stack's addresses to neighbours, unasked.
//!
//! A node that joins the link has heard no announcement, and receives one of its own. If every
//! stack announced to all nodes at every arrival, a link of n stacks would carry n³ frames. All
//! nodes receive an announcement only after too many arrivals at once, or the arrival of a bridge
//! to other nodes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::discovery::MAX_QUESTION;
use super::{Ip, egress};
use crate::counters::Counters;
use crate::time::Instant;
use toehold_link::Transmitter;

/// Most newcomers that receive an announcement of their own.
const MAX_NEWCOMERS: usize = 64;

/// Receivers of the next announcement. Plain data in shared memory; any contents are valid.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Announcement {
    /// Not 0: all neighbours receive it.
    all: u16,
    count: u16,
    newcomers: [[u8; 6]; MAX_NEWCOMERS],
}

impl Announcement {
    pub(super) const NONE: Announcement = Announcement {
        all: 0,
        count: 0,
        newcomers: [[0; 6]; MAX_NEWCOMERS],
    };

    pub(super) fn tell_all(&mut self) {
        (self.all, self.count) = (1, 0);
    }

    pub(super) fn tell(&mut self, mac: [u8; 6]) {
        if self.all != 0 || self.newcomers().contains(&mac) {
            return;
        }
        match self.newcomers.get_mut(usize::from(self.count)) {
            Some(place) => {
                *place = mac;
                self.count += 1;
            }
            None => self.tell_all(),
        }
    }

    fn newcomers(&self) -> &[[u8; 6]] {
        &self.newcomers[..usize::from(self.count).min(MAX_NEWCOMERS)]
    }

    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.all != 0 || self.count != 0
    }
}

impl Ip {
    /// Sends the announcements that are due. A newcomer whose link is full resolves the address
    /// itself.
    pub(super) fn transmit_announcement(
        &mut self,
        now: Instant,
        out: &mut dyn Transmitter,
        counters: &mut Counters,
    ) {
        let due = self.state[0].take_announcement();
        if !self.speaks {
            return;
        }
        if due.all != 0 {
            self.announce_v4(counters);
            self.announce_v6(now, counters);
            self.report_groups(now, counters);
        }
        for &mac in due.newcomers() {
            self.tell(mac, out, counters);
        }
    }

    fn tell(&self, mac: [u8; 6], out: &mut dyn Transmitter, counters: &mut Counters) {
        if !self.link.ethernet {
            return;
        }
        let mut frame = [0; MAX_QUESTION];
        if let Some(own) = self.own.ipv4 {
            //= RFC 5227 §2.3
            let len = self.write_arp_request(own.address, Some(mac), &mut frame);
            let _ = egress::transmit(out, &frame[..len], counters);
        }
        if let Some(own) = self.own.ipv6 {
            for address in [own.address, own.link_local] {
                let len = self.write_announcement(address, mac, &mut frame);
                let _ = egress::transmit(out, &frame[..len], counters);
            }
        }
    }
}
