//! Changes of neighbours that no driver has asked for yet.

use std::net::IpAddr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::State;
use super::claims::in_ipv6;
use crate::NeighborChange;
use crate::mq::settings::MAX_PEERS;

/// Changes kept for a driver that does not ask; then the oldest are forgotten.
pub(super) const MAX_CHANGES: usize = 8 * MAX_PEERS;

/// A [`NeighborChange`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct ChangeRecord {
    /// Of a change of an address; one of IPv4 as IPv6 has it.
    address: [u8; 16],
    mac: [u8; 6],
    kind: u16,
}

impl ChangeRecord {
    fn new(change: NeighborChange) -> ChangeRecord {
        let (kind, mac, address) = match change {
            NeighborChange::Joined(mac) => (0, mac, None),
            NeighborChange::Left(mac) => (1, mac, None),
            NeighborChange::Bound { mac, address } => (2, mac, Some(address)),
            NeighborChange::Unbound { mac, address } => (3, mac, Some(address)),
        };
        ChangeRecord {
            address: address.map_or([0; 16], in_ipv6),
            mac,
            kind,
        }
    }

    fn change(&self) -> NeighborChange {
        let mac = self.mac;
        let address = IpAddr::from(self.address).to_canonical();
        match self.kind {
            0 => NeighborChange::Joined(mac),
            2 => NeighborChange::Bound { mac, address },
            3 => NeighborChange::Unbound { mac, address },
            _ => NeighborChange::Left(mac),
        }
    }
}

impl State {
    pub(super) fn add_change(&mut self, change: NeighborChange) {
        let head = &mut self.head[0];
        let (first, count) = (head.first_change as usize, head.changes as usize);
        let at = first.wrapping_add(count) % MAX_CHANGES;
        if count >= MAX_CHANGES {
            head.first_change = ((first + 1) % MAX_CHANGES) as u32;
            head.changes = MAX_CHANGES as u32;
        } else {
            head.changes += 1;
        }
        head.unannounced = 1;
        if let Some(place) = self.changes.get_mut(at) {
            *place = ChangeRecord::new(change);
        }
    }

    pub(in crate::mq) fn next_change(&mut self) -> Option<NeighborChange> {
        let head = &mut self.head[0];
        let count = (head.changes as usize).min(MAX_CHANGES);
        head.changes = count.checked_sub(1)? as u32;
        let at = head.first_change as usize % MAX_CHANGES;
        head.first_change = ((at + 1) % MAX_CHANGES) as u32;
        self.changes.get(at).map(ChangeRecord::change)
    }
}
