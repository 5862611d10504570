//! TIME-WAIT records: small records of connections that this side closed first. If there are too
//! many, the oldest goes. The demultiplexer finds them like connections, with ids behind those of
//! connections.
//!
//! All records live equally long. The order of the queue is therefore the order of expiry, and no
//! timer is needed.

use toehold_shm::{Carver, NONE, OutOfMemory, Slab, Table, prefetch};
use toehold_wire::tcp::Seq;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::pcb::Pcb;
use crate::demux::{HasTuple, Tuples};
use crate::time::Instant;
use crate::tuple::FourTuple;

/// A connection in TIME-WAIT (RFC 9293 §3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct TimeWait {
    /// End of 2 MSL.
    pub(crate) deadline: Instant,
    pub(crate) tuple: FourTuple,
    snd_nxt: Seq,
    rcv_nxt: Seq,
    /// The peer's last timestamp, with `timestamps`.
    pub(crate) ts_recent: u32,
    /// Offset added to the clock in timestamps, with `timestamps`.
    pub(crate) ts_offset: u32,
    /// The header's window field, scaled.
    window: u16,
    /// 1: timestamps were agreed on.
    timestamps: u8,
    /// Answered segments without data.
    answers: u8,
}

const _: () = assert!(size_of::<TimeWait>() == 64);

impl TimeWait {
    /// Creates a record; `window` as in a header, `timestamps` are `ts_recent` and the offset of
    /// this side, if agreed on.
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
            answers: 0,
        }
    }

    /// Whether timestamps were agreed on (RFC 7323).
    pub(crate) fn has_timestamps(&self) -> bool {
        self.timestamps != 0
    }

    /// The window to advertise: the connection's last, since the announced edge must not move back.
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

/// The records of a stack, in the order in which they expire.
#[derive(Debug)]
pub(crate) struct TimeWaits {
    queue: Table<Queue>,
    records: Slab<TimeWait>,
    links: Table<Link>,
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
    }

    /// Creates an empty table, or attaches to the existing one.
    pub(crate) fn create(carver: &mut Carver, capacity: u32) -> Result<Self, OutOfMemory> {
        let mut new = Self {
            queue: carver.table(1)?,
            records: carver.slab(capacity)?,
            links: carver.table(capacity as usize)?,
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

    /// A record by its number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> TimeWait {
        self.records[number]
    }

    /// Prefetches a record.
    #[inline]
    pub(super) fn prefetch(&self, number: u32) {
        if let Some(record) = self.records.peek(number) {
            prefetch(record);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.records.len() == self.records.capacity()
    }

    /// The number of the record that expires first.
    #[inline]
    pub(super) fn oldest(&self) -> Option<u32> {
        let oldest = self.queue[0].oldest;
        (oldest != NONE).then_some(oldest)
    }

    /// Repairs the order of the records after a process died in the middle of a change. Returns the
    /// existing records.
    pub(super) fn mend(&mut self) -> Vec<u32> {
        self.records.mend(|_, _| true);
        let mut numbers: Vec<u32> = self.records.iter_live().map(|(number, _)| number).collect();
        numbers.sort_by_key(|&number| self.records[number].deadline);
        self.queue[0] = Queue {
            oldest: NONE,
            newest: NONE,
        };
        numbers.iter().for_each(|&number| self.append(number));
        numbers
    }

    /// When the oldest record expires.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.oldest().map(|oldest| self.records[oldest].deadline)
    }

    /// Inserts a record, if there is room, and returns its number.
    pub(super) fn insert(&mut self, record: TimeWait) -> Option<u32> {
        let number = self.records.insert(record)?;
        self.append(number);
        Some(number)
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.unlink(number);
        self.records.remove(number);
    }

    /// Whether a record answers one more segment without data. It answers 255 in its life, so that
    /// two ends that disagree do not send forever.
    pub(super) fn answers_bare(&mut self, number: u32) -> bool {
        let answers = &mut self.records[number].answers;
        let more = *answers < u8::MAX;
        *answers += u8::from(more);
        more
    }

    /// Sets a record's deadline, which must not be before that of any other.
    //= RFC 9293 §3.10.7.4 (a retransmitted FIN restarts the 2 MSL timeout)
    pub(crate) fn refresh(&mut self, number: u32, deadline: Instant) {
        self.unlink(number);
        self.records[number].deadline = deadline;
        self.append(number);
    }

    fn append(&mut self, number: u32) {
        let previous = std::mem::replace(&mut self.queue[0].newest, number);
        self.links[number as usize] = Link { next: NONE, previous };
        match previous {
            NONE => self.queue[0].oldest = number,
            previous => self.links[previous as usize].next = number,
        }
    }

    fn unlink(&mut self, number: u32) {
        let Link { next, previous } = self.links[number as usize];
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

/// The targets of the demultiplexer's ids: connections, and behind them records.
pub(super) struct Flows<'a> {
    pub(super) pcbs: &'a Slab<Pcb>,
    pub(super) time_waits: &'a TimeWaits,
}

/// The result of a look-up.
pub(super) enum Flow {
    /// A control block.
    Connection(u32),
    /// A TIME-WAIT record.
    TimeWait(u32),
}

impl Flow {
    #[inline]
    pub(super) fn new(id: u32, pcbs: &Slab<Pcb>) -> Self {
        match id.checked_sub(pcbs.capacity()) {
            None => Self::Connection(id),
            Some(number) => Self::TimeWait(number),
        }
    }
}

impl Tuples for Flows<'_> {
    #[inline]
    fn tuple(&self, id: u32) -> &FourTuple {
        match Flow::new(id, self.pcbs) {
            Flow::Connection(index) => self.pcbs[index].tuple(),
            Flow::TimeWait(number) => self.time_waits.records[number].tuple(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tcp;
    use super::super::flows::EXPIRED_A_CALL;
    use super::*;
    use crate::Config;
    use crate::demux::DemuxStrategy;
    use core::time::Duration;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use toehold_shm::Region;

    const LIFE: Duration = Duration::from_secs(60);

    fn tcp(demux: DemuxStrategy, time_wait_records: u32) -> Tcp {
        let config = Config {
            demux,
            connections: 8,
            time_wait_records,
            payload_blocks: 16,
            ..Config::default()
        };
        let region = Region::private(Tcp::bytes_needed(&config)).unwrap();
        Tcp::create(&mut Carver::new(region).unwrap(), &config).unwrap()
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

    fn number(tcp: &mut Tcp, port: u16) -> Option<u32> {
        tcp.find_flow(&tuple(port)).map(|flow| match flow {
            Flow::TimeWait(number) => number,
            Flow::Connection(_) => panic!("there is none"),
        })
    }

    fn found(tcp: &mut Tcp, port: u16) -> Option<TimeWait> {
        number(tcp, port).map(|number| tcp.time_waits.get(number))
    }

    #[test]
    fn record_keeps_its_fields() {
        let mut tcp = tcp(DemuxStrategy::FlowTable, 4);
        let with = record(1, Instant(0));
        let without = TimeWait::new(tuple(2), (Seq(1), Seq(2)), 9, None, Instant(3));
        assert!(!tcp.keep_time_wait(with));
        assert!(!tcp.keep_time_wait(without));
        assert_eq!(found(&mut tcp, 1), Some(with));
        assert_eq!(found(&mut tcp, 2), Some(without));
        assert_eq!(found(&mut tcp, 3), None);
        assert!(with.has_timestamps() && !without.has_timestamps());
        assert_eq!((with.snd_nxt(), with.rcv_nxt()), (Seq(1), Seq(7)));
        assert_eq!(with.window(), 9);
        let first = number(&mut tcp, 1).unwrap();
        tcp.end_time_wait(first);
        assert_eq!(found(&mut tcp, 1), None);
        assert_eq!(tcp.time_waits.iter().count(), 1);
    }

    #[test]
    fn full_table_loses_oldest_record() {
        let mut tcp = tcp(DemuxStrategy::FlowTable, 3);
        for port in 1..=3 {
            assert!(!tcp.keep_time_wait(record(port, Instant(0))));
        }
        //= RFC 9293 §3.10.7.4
        let first = number(&mut tcp, 1).unwrap();
        tcp.time_waits.refresh(first, Instant(1) + LIFE);
        assert!(tcp.keep_time_wait(record(4, Instant(2))), "no room");
        assert_eq!(found(&mut tcp, 2), None, "the oldest after the refresh");
        assert!(found(&mut tcp, 1).is_some());
        assert_eq!(tcp.time_waits.iter().count(), 3);
    }

    #[test]
    fn table_without_capacity_keeps_no_record() {
        let mut tcp = tcp(DemuxStrategy::FlowTable, 0);
        assert!(tcp.keep_time_wait(record(1, Instant(0))));
        assert_eq!(found(&mut tcp, 1), None);
        tcp.expire_time_waits(Instant::NEVER);
    }

    #[test]
    fn expiry_removes_bounded_number_per_call() {
        let mut tcp = tcp(DemuxStrategy::FlowTable, 1000);
        for port in 0..1000 {
            tcp.keep_time_wait(record(port, Instant(0)));
        }
        let due = Instant(0) + LIFE;
        tcp.expire_time_waits(Instant(due.0 - 1));
        let mut left = 1000;
        while left > 0 {
            assert_eq!(tcp.time_waits.iter().count() as u32, left);
            tcp.expire_time_waits(due);
            left = left.saturating_sub(EXPIRED_A_CALL);
        }
        assert_eq!(tcp.time_waits.next_deadline(), None);
    }

    proptest! {
        /// Compares the records with a queue in plain memory. One strategy holds the records
        /// together with connections, another holds them beside.
        #[test]
        fn records_behave_like_queue(
            steps in prop::collection::vec((0..5_u8, 0..24_u16), 1..400),
            demux in prop_oneof![
                Just(DemuxStrategy::FlowTable),
                Just(DemuxStrategy::Bsd),
                Just(DemuxStrategy::Sequent { chains: 3 })
            ],
        ) {
            let mut tcp = tcp(demux, 16);
            let mut model: VecDeque<TimeWait> = VecDeque::new();
            let mut now = Instant(0);
            for (what, port) in steps {
                now = now + Duration::from_secs(3);
                let at = model.iter().position(|r| r.tuple == tuple(port));
                let number = number(&mut tcp, port);
                match (what, number) {
                    (0 | 1, _) => {
                        let new = record(port, now);
                        at.map(|at| model.remove(at));
                        let full = model.len() == 16;
                        if full {
                            model.pop_front();
                        }
                        model.push_back(new);
                        prop_assert_eq!(tcp.keep_time_wait(new), full);
                    }
                    (2, Some(number)) => {
                        let record = tcp.time_waits.get(number);
                        tcp.end_time_wait(number);
                        prop_assert_eq!(at.and_then(|at| model.remove(at)), Some(record));
                    }
                    (3, Some(number)) => {
                        tcp.time_waits.refresh(number, now + LIFE);
                        let mut record = at.and_then(|at| model.remove(at)).unwrap();
                        record.deadline = now + LIFE;
                        model.push_back(record);
                    }
                    (2 | 3, None) => prop_assert_eq!(at, None),
                    _ => {
                        tcp.expire_time_waits(now);
                        model.retain(|record| record.deadline > now);
                    }
                }
                prop_assert_eq!(tcp.time_waits.iter().count(), model.len());
                prop_assert_eq!(tcp.time_waits.next_deadline(), model.front().map(|r| r.deadline));
                for port in 0..24 {
                    let expected = model.iter().find(|r| r.tuple == tuple(port)).copied();
                    prop_assert_eq!(found(&mut tcp, port), expected);
                }
            }
        }
    }
}
