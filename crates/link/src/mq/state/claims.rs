//! Which peer has which IP addresses, and the claims that were refused.

use std::net::IpAddr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{PeerRecord, State};
use crate::NeighborChange;
use crate::mq::identity::Claim;
use crate::mq::name::{MAX_NAME, NodeName};
use crate::mq::peer::count;
use crate::mq::statistics::Conflict;

/// A [`Conflict`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct ConflictRecord {
    count: u64,
    address: [u8; 16],
    owner: [u8; 6],
    is_ipv4: u8,
    name_len: u8,
    name: [u8; MAX_NAME],
    unused: u8,
}

impl State {
    /// Gives a live peer its addresses, but those that another member has.
    pub(super) fn bind(&mut self, slot: u16, tells: bool) {
        let Some(&PeerRecord { mac, bound, .. }) = self.get(slot) else {
            return;
        };
        for address in bound.all(mac) {
            match self.bindings.insert(address, mac) {
                Some(owner) => {
                    if let Some(record) = self.get_mut(slot) {
                        record.bound.forget(address);
                    }
                    self.refuse_claim(slot, 1, Claim::Ip(address, owner));
                }
                None if tells && bound.given().any(|given| given == address) => {
                    self.add_change(NeighborChange::Bound { mac, address })
                }
                None => {}
            }
        }
    }

    /// Counts frames of a peer that were not taken, and keeps what the last one claimed.
    #[cold]
    pub(in crate::mq) fn refuse_claim(&mut self, slot: u16, frames: usize, claim: Claim) {
        let Some(record) = self.records.get_mut(usize::from(slot)) else {
            return;
        };
        let (len, name) = (record.name_len, record.name);
        let head = &mut self.head[0];
        let Claim::Ip(address, owner) = claim else {
            return count(&mut record.statistics.forged, frames);
        };
        count(&mut head.statistics.claims_refused, frames);
        head.conflict = ConflictRecord {
            count: head.statistics.claims_refused,
            address: in_ipv6(address),
            owner,
            is_ipv4: address.is_ipv4().into(),
            name_len: len,
            name,
            unused: 0,
        };
    }

    /// The claim that was refused last, if any was.
    pub(in crate::mq) fn conflict(&self) -> Option<Conflict> {
        let ConflictRecord {
            count,
            address,
            owner,
            is_ipv4,
            name_len,
            name,
            ..
        } = self.head().conflict;
        let address = IpAddr::from(address);
        let mut peers = self.iter().map(|(_, record)| record);
        (count != 0).then_some(Conflict {
            name: NodeName::from_bytes(name.get(..usize::from(name_len))?).ok()?,
            address: match is_ipv4 {
                0 => address,
                _ => address.to_canonical(),
            },
            owner: (
                owner,
                peers
                    .find(|record| record.mac == owner)
                    .and_then(PeerRecord::name),
            ),
            count,
        })
    }
}

pub(super) fn in_ipv6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
