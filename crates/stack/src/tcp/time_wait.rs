//! What remains of connections that this side closed first: small records in
//! a table of their own, the oldest of which goes when there are too many.
//!
//! All records live equally long, so the order of a queue is the order of
//! expiry and no timer is needed.

use toehold_shm::{Carver, NONE, OutOfMemory, Slab, Table};
use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::demux::{FlowIndex, HasTuple, Unobserved};
use crate::keyed::{Key, Purpose};
use crate::time::Instant;
use crate::tuple::FourTuple;

/// Most records that one call of [`TimeWaits::expire`] takes out.
pub(crate) const EXPIRED_A_CALL: u32 = 256;

/// A connection in TIME-WAIT (RFC 9293 §3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct TimeWait {
    /// When 2 MSL are over.
    pub(crate) deadline: Instant,
    pub(crate) tuple: FourTuple,
    snd_nxt: Seq,
    rcv_nxt: Seq,
    /// The peer's timestamp last seen, with `timestamps`.
    pub(crate) ts_recent: u32,
    /// What is added to the clock in timestamps, with `timestamps`.
    pub(crate) ts_offset: u32,
    /// What the header's window field says, scaled.
    window: u16,
    /// 1: timestamps were agreed on.
    timestamps: u16,
}

const _: () = assert!(size_of::<TimeWait>() == 64);

impl TimeWait {
    /// A record; `window` as in a header, `timestamps` are ts_recent and the
    /// offset of ours, if agreed on.
    pub(crate) fn new(
        tuple: FourTuple,
        (snd_nxt, rcv_nxt): (Seq, Seq),
        window: u16,
        timestamps: Option<(u32, u32)>,
        deadline: Instant,
    ) -> Self {
        let (ts_recent, ts_offset) = timestamps.unwrap_or_default();
        let timestamps = timestamps.is_some().into();
        Self {
            deadline,
            tuple,
            snd_nxt,
            rcv_nxt,
            ts_recent,
            ts_offset,
            window,
            timestamps,
        }
    }

    /// Whether timestamps were agreed on (RFC 7323).
    pub(crate) fn has_timestamps(&self) -> bool {
        self.timestamps != 0
    }

    /// The window to advertise: the connection's last, for the edge that the
    /// peer was told of does not move back.
    //= RFC 9293 §3.8.6 (a receiver should not shrink the window)
    pub(crate) fn window(&self) -> u16 {
        self.window
    }

    /// The sequence number behind this side's FIN.
    pub(crate) fn snd_nxt(&self) -> Seq {
        self.snd_nxt
    }

    /// The sequence number behind the peer's FIN.
    pub(crate) fn rcv_nxt(&self) -> Seq {
        self.rcv_nxt
    }
}

/// A record's neighbours in the queue.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Link {
    next: u32,
    previous: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Queue {
    oldest: u32,
    newest: u32,
}

/// The records of a stack.
#[derive(Debug)]
pub(crate) struct TimeWaits {
    queue: Table<Queue>,
    records: Slab<TimeWait>,
    links: Table<Link>,
    index: FlowIndex,
}

impl HasTuple for TimeWait {
    #[inline]
    fn tuple(&self) -> &FourTuple {
        &self.tuple
    }
}

impl TimeWaits {
    /// Bytes of a region that up to `capacity` records take.
    pub(crate) fn bytes_needed(capacity: u32) -> usize {
        Table::<Queue>::bytes_needed(1)
            + Slab::<TimeWait>::bytes_needed(capacity)
            + Table::<Link>::bytes_needed(capacity as usize)
            + FlowIndex::bytes_needed(capacity)
    }

    /// Makes an empty table, or attaches to the one there is.
    pub(crate) fn create(carver: &mut Carver, capacity: u32, secret: &[u8; 16]) -> Result<Self, OutOfMemory> {
        let mut new = Self {
            queue: carver.table(1)?,
            records: carver.slab(capacity)?,
            links: carver.table(capacity as usize)?,
            index: FlowIndex::create(carver, capacity, Key::derive(secret, Purpose::TimeWaits))?,
        };
        if carver.is_fresh() {
            new.queue[0] = Queue {
                oldest: NONE,
                newest: NONE,
            };
        }
        Ok(new)
    }

    /// All records, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &TimeWait> {
        self.records.iter_live().map(|(_, record)| record)
    }

    /// Number of records.
    #[cfg(test)]
    pub(crate) fn len(&self) -> u32 {
        self.records.len()
    }

    /// Enters a record in place of any its tuple has. True: there was no room,
    /// and the oldest record, or with a capacity of none this one, is lost.
    pub(crate) fn insert(&mut self, record: TimeWait) -> bool {
        if let Some(id) = self.find(&record.tuple) {
            self.take_out(id);
        }
        let mut lost = false;
        if self.records.len() == self.records.capacity() {
            lost = true;
            match self.queue[0].oldest {
                NONE => return true,
                oldest => self.take_out(oldest),
            }
        }
        let Some(id) = self.records.insert(record) else {
            return true;
        };
        if self.index.insert(id, &self.records).is_err() {
            self.records.remove(id);
            return true;
        }
        self.append(id);
        lost
    }

    /// The record of a tuple.
    #[inline]
    pub(crate) fn get(&self, tuple: &FourTuple) -> Option<TimeWait> {
        if self.records.is_empty() {
            return None;
        }
        self.find(tuple).map(|id| self.records[id])
    }

    /// Takes a tuple's record out.
    pub(crate) fn remove(&mut self, tuple: &FourTuple) -> Option<TimeWait> {
        let id = self.find(tuple)?;
        let record = self.records[id];
        self.take_out(id);
        Some(record)
    }

    /// Gives a tuple's record, if there is one, a new deadline: not before that
    /// of any other.
    //= RFC 9293 §3.10.7.4 (a retransmitted FIN restarts the 2 MSL timeout)
    pub(crate) fn refresh(&mut self, tuple: &FourTuple, deadline: Instant) {
        if let Some(id) = self.find(tuple) {
            self.unlink(id);
            self.records[id].deadline = deadline;
            self.append(id);
        }
    }

    /// Takes out records whose deadline is not after `now`, and returns how many:
    /// at most [`EXPIRED_A_CALL`], see [`TimeWaits::next_deadline`] for more.
    pub(crate) fn expire(&mut self, now: Instant) -> u32 {
        let mut expired = 0;
        while expired < EXPIRED_A_CALL && self.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.take_out(self.queue[0].oldest);
            expired += 1;
        }
        expired
    }

    /// When the oldest record expires.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let oldest = self.queue[0].oldest;
        (oldest != NONE).then(|| self.records[oldest].deadline)
    }

    fn find(&self, tuple: &FourTuple) -> Option<u32> {
        self.index.find(tuple, &self.records, &mut Unobserved)
    }

    fn take_out(&mut self, id: u32) {
        self.unlink(id);
        self.index.remove(id, &self.records);
        self.records.remove(id);
    }

    fn append(&mut self, id: u32) {
        let previous = std::mem::replace(&mut self.queue[0].newest, id);
        self.links[id as usize] = Link { next: NONE, previous };
        match previous {
            NONE => self.queue[0].oldest = id,
            previous => self.links[previous as usize].next = id,
        }
    }

    fn unlink(&mut self, id: u32) {
        let Link { next, previous } = self.links[id as usize];
        match previous {
            NONE => self.queue[0].oldest = next,
            previous => self.links[previous as usize].next = next,
        }
        match next {
            NONE => self.queue[0].newest = previous,
            next => self.links[next as usize].previous = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use toehold_shm::Region;

    const LIFE: Duration = Duration::from_secs(60);

    fn table(capacity: u32) -> TimeWaits {
        let region = Region::private(TimeWaits::bytes_needed(capacity)).unwrap();
        TimeWaits::create(&mut Carver::new(region).unwrap(), capacity, &[9; 16]).unwrap()
    }

    fn tuple(port: u16) -> FourTuple {
        FourTuple::new("10.0.0.1:80".parse().unwrap(), ([10, 0, 0, 2], port).into())
    }

    fn record(port: u16, entered: Instant) -> TimeWait {
        TimeWait::new(
            tuple(port),
            (Seq(u32::from(port)), Seq(7)),
            9,
            Some((5, 6)),
            entered + LIFE,
        )
    }

    #[test]
    fn records_keep_what_they_were_given() {
        let mut table = table(4);
        let with = record(1, Instant(0));
        let without = TimeWait::new(tuple(2), (Seq(1), Seq(2)), 9, None, Instant(3));
        assert!(!table.insert(with));
        assert!(!table.insert(without));
        assert_eq!(table.get(&tuple(1)), Some(with));
        assert_eq!(table.get(&tuple(2)), Some(without));
        assert_eq!(table.get(&tuple(3)), None);
        assert!(with.has_timestamps() && !without.has_timestamps());
        assert_eq!((with.snd_nxt(), with.rcv_nxt()), (Seq(1), Seq(7)));
        assert_eq!(with.window(), 9);
        assert_eq!(table.remove(&tuple(1)), Some(with));
        assert_eq!(table.remove(&tuple(1)), None);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn the_oldest_goes_when_there_is_no_room() {
        let mut table = table(3);
        for port in 1..=3 {
            assert!(!table.insert(record(port, Instant(0))));
        }
        //= RFC 9293 §3.10.7.4
        table.refresh(&tuple(1), Instant(1) + LIFE);
        assert!(table.insert(record(4, Instant(2))), "no room");
        assert_eq!(table.get(&tuple(2)), None, "the oldest after the refresh");
        assert!(table.get(&tuple(1)).is_some());
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn a_table_without_room_keeps_nothing() {
        let mut table = table(0);
        assert!(table.insert(record(1, Instant(0))));
        assert_eq!(table.get(&tuple(1)), None);
        assert_eq!(table.expire(Instant::NEVER), 0);
    }

    #[test]
    fn a_call_takes_out_a_bounded_number() {
        let mut table = table(1000);
        for port in 0..1000 {
            table.insert(record(port, Instant(0)));
        }
        let due = Instant(0) + LIFE;
        assert_eq!(table.expire(Instant(due.0 - 1)), 0);
        let mut calls = 0;
        while table.next_deadline().is_some_and(|at| at <= due) {
            assert!(table.expire(due) <= EXPIRED_A_CALL);
            calls += 1;
        }
        assert_eq!((calls, table.len()), (4, 0));
    }

    proptest! {
        /// The table against a queue in plain memory.
        #[test]
        fn behaves_like_a_queue(steps in prop::collection::vec((0..5_u8, 0..24_u16), 1..400)) {
            let mut table = table(16);
            let mut model: VecDeque<TimeWait> = VecDeque::new();
            let mut now = Instant(0);
            for (what, port) in steps {
                now = now + Duration::from_secs(3);
                let at = model.iter().position(|r| r.tuple == tuple(port));
                match what {
                    0 | 1 => {
                        let new = record(port, now);
                        at.map(|at| model.remove(at));
                        let full = model.len() == 16;
                        if full {
                            model.pop_front();
                        }
                        model.push_back(new);
                        prop_assert_eq!(table.insert(new), full);
                    }
                    2 => prop_assert_eq!(table.remove(&tuple(port)), at.and_then(|at| model.remove(at))),
                    3 => {
                        table.refresh(&tuple(port), now + LIFE);
                        if let Some(mut record) = at.and_then(|at| model.remove(at)) {
                            record.deadline = now + LIFE;
                            model.push_back(record);
                        }
                    }
                    _ => {
                        let due = model.iter().filter(|r| r.deadline <= now).count();
                        prop_assert_eq!(table.expire(now) as usize, due);
                        model.drain(..due);
                    }
                }
                prop_assert_eq!(table.len() as usize, model.len());
                prop_assert_eq!(table.next_deadline(), model.front().map(|r| r.deadline));
                for port in 0..24 {
                    let expected = model.iter().find(|r| r.tuple == tuple(port)).copied();
                    prop_assert_eq!(table.get(&tuple(port)), expected);
                }
            }
        }
    }
}
