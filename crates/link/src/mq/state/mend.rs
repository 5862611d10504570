//! Makes anew the state that follows from the records.

use super::peer_record::{DEPARTED, LIVE};
#[cfg(test)]
use super::{Head, Offence};
use super::{PeerRecord, State};
use crate::NeighborChange;
use crate::mq::activity::Activity;
use crate::mq::addresses::pack_shard;
use crate::mq::slots::Slots;

impl State {
    /// Rebuilds everything that follows from the records. A change that a killed process left half
    /// done is done then. No process sleeps any more, and every peer is to be looked at. A driver
    /// is told once more which peers are there, and which have gone without word to the membership.
    pub(in crate::mq) fn mend(&mut self) {
        let departed = self.slots_with(PeerRecord::is_departed);
        departed.iter().for_each(|&slot| self.finish_dismissal(slot));
        let live = self.slots_with(PeerRecord::is_live);
        let departed = self.slots_with(PeerRecord::is_departed);
        self.list(&live, &departed);
        self.tell_anew(&live, &departed);
    }

    fn slots_with(&self, is: fn(&PeerRecord) -> bool) -> Vec<u16> {
        let records = (0..).zip(self.records.iter());
        records
            .filter(|(_, record)| is(record))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// The other shards of a node of which one broke a rule are not trusted either.
    fn finish_dismissal(&mut self, slot: u16) {
        let Some(&PeerRecord {
            offence,
            incarnation,
            mac,
            ..
        }) = self.get(slot)
        else {
            return;
        };
        if offence == 0 {
            return;
        }
        for record in self
            .records
            .iter_mut()
            .filter(|record| record.is_live() && record.is_sharded())
        {
            if (record.mac, record.incarnation) == (mac, incarnation) {
                record.offence = offence;
                record.flags = record.flags & !LIVE | DEPARTED;
            }
        }
    }

    fn list(&mut self, live: &[u16], departed: &[u16]) {
        self.addresses.clear();
        self.bindings.clear();
        self.bind_own();
        for &slot in live {
            if let Some(record) = self.get(slot) {
                let address = pack_shard(record.mac, record.shard);
                self.addresses.insert(address, slot);
                self.bind(slot, false);
            }
        }
        let leads_on = |slot: &&u16| self.get(**slot).is_some_and(PeerRecord::is_gateway);
        let gateways = set(live.iter().filter(leads_on));
        let head = self.head_mut();
        head.slots[..live.len()].copy_from_slice(live);
        head.live = live.len() as u32;
        head.members = set(live);
        head.gateways = gateways;
        head.departed = set(departed);
        head.recent = [0; 2];
        (head.sent, head.released) = (Slots::default(), Slots::default());
        head.activity = Activity::default();
        live.iter().for_each(|&slot| head.activity.note(slot));
        head.sleeping = 0;
        // Processes that depend on it look again which peers are there.
        head.epoch = head.epoch.wrapping_add(1);
    }

    fn tell_anew(&mut self, live: &[u16], departed: &[u16]) {
        let head = self.head_mut();
        (head.first_change, head.changes) = (0, 0);
        let mac = |state: &State, slot: u16| state.get(slot).map_or([0; 6], PeerRecord::mac);
        let bound = |state: &State, slot: u16| state.get(slot).map(PeerRecord::bound).unwrap_or_default();
        for &slot in departed {
            let mac = mac(self, slot);
            // A node is there until the last of its shards has gone.
            if !self.addresses.has(mac) {
                self.add_change(NeighborChange::Left(mac));
                for address in bound(self, slot).given() {
                    self.add_change(NeighborChange::Unbound { mac, address });
                }
            }
        }
        for &slot in live {
            let mac = mac(self, slot);
            self.add_change(NeighborChange::Joined(mac));
            for address in bound(self, slot).given() {
                self.add_change(NeighborChange::Bound { mac, address });
            }
        }
    }
}

fn set<'a>(slots: impl IntoIterator<Item = &'a u16>) -> Slots {
    let mut set = Slots::default();
    slots.into_iter().for_each(|&slot| set.insert(slot));
    set
}

#[cfg(test)]
impl State {
    /// Leaves what follows from the records as no change does, finished or not.
    pub(in crate::mq) fn disturb(&mut self, random: &mut impl FnMut() -> u64) {
        use zerocopy::IntoBytes;

        let Head {
            config,
            statistics,
            rings_held,
            ..
        } = *self.head();
        let bytes = self.head_mut().as_mut_bytes();
        bytes.iter_mut().for_each(|byte| *byte = random() as u8);
        let head = self.head_mut();
        (head.config, head.statistics, head.rings_held) = (config, statistics, rings_held);
        self.addresses.disturb(random);
        self.bindings.disturb(random);
        let changes = self.changes.iter_mut().flat_map(IntoBytes::as_mut_bytes);
        changes.for_each(|byte| *byte = random() as u8);
    }

    /// Begins to dismiss a peer, and does no more than what decides it.
    pub(in crate::mq) fn begin_to_dismiss(&mut self, slot: u16, offence: Option<Offence>) {
        let record = &mut self.records[usize::from(slot)];
        record.offence = offence.map_or(0, Offence::code);
        record.flags = record.flags & !LIVE | DEPARTED;
    }
}
