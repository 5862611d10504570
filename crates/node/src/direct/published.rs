//! Which of a node's listeners take direct connections.
//!
//! The directory that peers read has an entry for each of them. What the entry is of is noted in
//! a table of the first shard's region: the holder of that shard's lease changes both. A listener
//! that is closed leaves the directory at once. Its number is free only when the engine has
//! emptied its queues.

use core::sync::atomic::Ordering::Release;
use core::sync::atomic::compiler_fence;
use std::net::{IpAddr, SocketAddr};

use toehold_shm::direct::{Directory, LISTENERS, ListenerId, Listing};
use toehold_shm::{Carver, OutOfMemory, Table};
use toehold_stack::{Event, Settings};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::listener_words::ListenerWords;

/// The listener takes connections to addresses of IPv6 only.
pub(crate) const ONLY_IPV6: u64 = 1;

/// Others may listen at the same address and port.
const SHARES_PORT: u64 = 2;

/// The listener, or another one of its port, takes no direct connections.
const KEPT_OUT: u32 = 4;

/// No thread has waited for the listener yet.
const PARKED: u32 = 8;

/// Reasons why peers do not find a listener.
const HIDDEN: u32 = KEPT_OUT | PARKED;

/// Bytes that may be written to a connection that waits to be accepted.
const WINDOW: u64 = 256 << 10;

/// Ports of which listeners can be kept out of the directory.
const PORTS: usize = 1 << 16;

const FREE: u32 = 0;
const PUBLISHED: u32 = 1;
const WITHDRAWN: u32 = 2;

/// The listener of a number of the directory.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Record {
    /// The word of the listener.
    source: u64,
    generation: u64,
    /// The state, which is changed last.
    state: u32,
    port: u32,
    backlog: u32,
    /// [`ONLY_IPV6`], [`SHARES_PORT`], [`KEPT_OUT`] and [`PARKED`].
    flags: u32,
    /// An address of IPv4 as one mapped into IPv6.
    address: [u8; 16],
}

impl Record {
    fn is_hidden(&self) -> bool {
        self.flags & HIDDEN != 0
    }

    /// Whether another listener shares the connections of this one.
    fn shares_with(&self, other: &Record) -> bool {
        let shares = |record: &Record| u64::from(record.flags) & SHARES_PORT != 0;
        shares(self) && shares(other) && (self.address, self.port) == (other.address, other.port)
    }
}

/// The records, in a region: part of a shard's state.
#[derive(Debug)]
pub(crate) struct Records {
    records: Table<Record>,
    /// For each port, the number of listeners that take no direct connections. As long as there is
    /// one, no other listener of the port takes any: it could get a connection that is meant for
    /// that one.
    kept_out: Table<u16>,
}

impl Records {
    pub(crate) fn bytes_needed() -> usize {
        Table::<Record>::bytes_needed(LISTENERS) + Table::<u16>::bytes_needed(PORTS)
    }

    pub(crate) fn create(carver: &mut Carver) -> Result<Records, OutOfMemory> {
        Ok(Records {
            records: carver.table(LISTENERS)?,
            kept_out: carver.table(PORTS)?,
        })
    }
}

/// The directory, and the listeners of its entries. For the holder of the first shard's lease.
#[derive(Debug)]
pub(crate) struct Published {
    records: Records,
    directory: Directory,
    words: ListenerWords,
}

impl Published {
    pub(crate) fn new(records: Records, directory: Directory, words: ListenerWords) -> Published {
        Published {
            records,
            directory,
            words,
        }
    }

    /// Publishes a listener's id for peers to calls without the lease.
    fn note(&self, source: Event, listener: Option<ListenerId>) {
        if let Event::Listener(id) = source {
            self.words.set(id, listener);
        }
    }

    fn record(&mut self, number: u16) -> Option<&mut Record> {
        self.records.records.get_mut(usize::from(number))
    }

    fn number_of(&self, source: Event) -> Option<u16> {
        let word = source.word();
        let records = self.records.records.iter();
        let found = |record: &Record| record.state == PUBLISHED && record.source == word;
        records
            .enumerate()
            .find(|(_, record)| found(record))
            .map(|(number, _)| number as u16)
    }

    fn kept_out(&mut self, port: u16) -> Option<&mut u16> {
        self.records.kept_out.get_mut(usize::from(port))
    }

    /// Lets peers know of a listener, at the address that it is bound to.
    pub(crate) fn publish(&mut self, source: Event, address: SocketAddr, backlog: u32, settings: &Settings) {
        let flag = |is: bool, flag| if is { flag } else { 0 };
        let flags = flag(settings.v6_only(), ONLY_IPV6) | flag(settings.reuse_port(), SHARES_PORT);
        self.publish_with(source, address, backlog, flags);
    }

    fn publish_with(&mut self, source: Event, address: SocketAddr, backlog: u32, flags: u64) {
        let listing = Listing {
            address,
            backlog,
            group: u32::from(flags & SHARES_PORT != 0),
            options: flags & ONLY_IPV6,
            window: WINDOW,
        };
        let Some(ListenerId { number, generation }) = self.directory.publish(&listing) else {
            return self.keep_out(source, address.port());
        };
        if let Some(record) = self.record(number) {
            record.source = source.word();
            record.generation = generation;
            record.port = address.port().into();
            (record.backlog, record.flags) = (backlog, flags as u32);
            record.address = match address.ip() {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            // A process that is killed here leaves an entry that is of nothing: see `mend`.
            compiler_fence(Release);
            record.state = PUBLISHED;
        }
        self.note(source, Some(ListenerId { number, generation }));
        if flags as u32 & HIDDEN != 0 {
            self.set_flag(number, flags as u32 & HIDDEN, true);
        }
        if self
            .kept_out(address.port())
            .is_some_and(|kept_out| *kept_out != 0)
        {
            self.keep_out(source, address.port());
        }
    }

    /// Keeps direct connections from a listener, and from all of its port until it is closed. What
    /// waits in the queues of these listeners can still be accepted.
    pub(crate) fn keep_out(&mut self, source: Event, port: u16) {
        let has_number = self.number_of(source).is_some();
        let records = self.records.records.iter().enumerate();
        let is_open = |record: &Record| record.state == PUBLISHED && record.flags & KEPT_OUT == 0;
        let of_port = records.filter(|(_, record)| is_open(record) && record.port == u32::from(port));
        let of_port: Vec<u16> = of_port.map(|(number, _)| number as u16).collect();
        let count = of_port.len() as u16 + u16::from(!has_number);
        for number in of_port {
            self.set_flag(number, KEPT_OUT, true);
        }
        if let Some(kept_out) = self.kept_out(port) {
            *kept_out = kept_out.saturating_add(count);
        }
    }

    /// Lets peers know of a listener only when something [waits](Published::attend) for it: until
    /// then new connections come over TCP. What waits in its queues can be accepted.
    pub(crate) fn park(&mut self, source: Event) {
        if let Some(number) = self.number_of(source) {
            self.set_flag(number, PARKED, true);
        }
    }

    /// Notes that a call or poll waits for a listener.
    pub(crate) fn attend(&mut self, source: Event) {
        if let Some(number) = self.number_of(source) {
            self.set_flag(number, PARKED, false);
        }
    }

    /// Notes a reason why peers do not find a listener, or that it is none any more.
    fn set_flag(&mut self, number: u16, flag: u32, is_set: bool) {
        if let Some(record) = self.record(number) {
            record.flags = if is_set {
                record.flags | flag
            } else {
                record.flags & !flag
            };
            let (generation, is_hidden) = (record.generation, record.is_hidden());
            let listener = ListenerId { number, generation };
            self.directory.set_hidden(listener, is_hidden);
        }
    }

    /// Changes how many connections may wait at a listener.
    pub(crate) fn set_backlog(&mut self, source: Event, backlog: u32) {
        if let Some(number) = self.number_of(source)
            && let Some(record) = self.record(number)
        {
            record.backlog = backlog;
            let generation = record.generation;
            self.directory
                .set_backlog(ListenerId { number, generation }, backlog);
        }
    }

    /// Notes that a listener of this port is closed. Returns whether the engine has queues to
    /// empty.
    pub(crate) fn close(&mut self, source: Event, port: u16) -> bool {
        let number = self.number_of(source);
        let record = number.and_then(|number| self.record(number));
        let was_kept_out = record.is_none_or(|record| record.flags & KEPT_OUT != 0);
        if let Some(kept_out) = self.kept_out(port)
            && was_kept_out
        {
            *kept_out = kept_out.saturating_sub(1);
        }
        if let Some(number) = number {
            self.withdraw_number(number);
        }
        number.is_some()
    }

    fn withdraw_number(&mut self, number: u16) {
        let Some(record) = self.record(number) else {
            return;
        };
        let (generation, source) = (record.generation, Event::from_word(record.source));
        record.state = WITHDRAWN;
        self.note(source, None);
        self.directory.withdraw(ListenerId { number, generation });
    }

    /// The id by which peers know the listener that a source is.
    pub(crate) fn listener_of(&mut self, source: Event) -> Option<ListenerId> {
        let number = self.number_of(source)?;
        let &mut Record { generation, .. } = self.record(number)?;
        Some(ListenerId { number, generation })
    }

    /// The id by which peers know a listener, by the word that calls without the lease read.
    pub(crate) fn known(&self, id: toehold_stack::ListenerId) -> Option<ListenerId> {
        self.words.get(id)
    }

    /// Listeners that were closed, and whose queues are still to be emptied.
    pub(crate) fn withdrawn(&self) -> Vec<u16> {
        let records = self.records.records.iter().enumerate();
        records
            .filter(|(_, record)| record.state == WITHDRAWN)
            .map(|(number, _)| number as u16)
            .collect()
    }

    /// The listeners that share the connections of a closed one, those that peers find if there are
    /// any.
    pub(crate) fn heirs(&self, closed: u16) -> Vec<ListenerId> {
        let Some(closed) = self.records.records.get(usize::from(closed)) else {
            return Vec::new();
        };
        let records = (0..).zip(self.records.records.iter());
        let sharing = records.filter(|(_, record)| record.state == PUBLISHED && closed.shares_with(record));
        let (hidden, found): (Vec<_>, Vec<_>) = sharing.partition(|(_, record)| record.is_hidden());
        let heirs = if found.is_empty() { hidden } else { found };
        let heirs = heirs.into_iter().map(|(number, record)| ListenerId {
            number,
            generation: record.generation,
        });
        heirs.collect()
    }

    /// Frees the number of a closed listener whose queues are empty. Another one may have it then.
    pub(crate) fn free(&mut self, number: u16) {
        if let Some(record) = self.record(number).filter(|record| record.state == WITHDRAWN) {
            record.state = FREE;
            self.directory.free_number(number);
        }
    }

    /// Publishes anew what is there, after a process was killed while it had the lease. `bound`
    /// tells where a listener is bound, if it is open.
    pub(crate) fn mend(&mut self, bound: impl Fn(Event) -> Option<SocketAddr>) {
        self.directory.mend();
        let is_known = |number: u16| {
            let record = self.records.records.get(usize::from(number));
            record.is_some_and(|record| record.state != FREE)
        };
        for number in self.directory.withdraw_unknown(is_known) {
            if let Some(record) = self.record(number) {
                (record.generation, record.state) = (0, WITHDRAWN);
            }
        }
        let records = self.records.records.iter().enumerate();
        let known: Vec<(u16, Record)> = records
            .filter(|(_, record)| record.state == PUBLISHED)
            .map(|(number, record)| (number as u16, *record))
            .collect();
        for (number, record) in known {
            let source = Event::from_word(record.source);
            let generation = record.generation;
            let is_listed = self.directory.has(ListenerId { number, generation });
            match bound(source) {
                // What waits in its queues stays there.
                Some(_) if is_listed => self.set_flag(number, record.flags & HIDDEN, true),
                Some(address) => {
                    self.withdraw_number(number);
                    self.publish_with(source, address, record.backlog, record.flags.into());
                }
                None => drop(self.close(source, record.port as u16)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use toehold_shm::Region;
    use toehold_shm::direct::PeerDirectory;
    use toehold_stack::SocketOption;
    use zerocopy::FromZeros;

    use super::*;

    struct Fixture {
        published: Published,
        peer: PeerDirectory,
    }

    fn fixture() -> Fixture {
        const LISTENERS: u32 = 8192;
        let bytes = Records::bytes_needed() + ListenerWords::bytes_needed(LISTENERS);
        let mut carver = Carver::new(Region::private(bytes).unwrap()).unwrap();
        let records = Records::create(&mut carver).unwrap();
        let words = ListenerWords::create(&mut carver, LISTENERS).unwrap();
        let directory = Directory::create("toehold-test", 1).unwrap();
        let peer = directory.as_peer();
        Fixture {
            published: Published::new(records, directory, words),
            peer,
        }
    }

    fn settings() -> Settings {
        Settings::new_zeroed()
    }

    fn source(number: u64) -> Event {
        let Event::Listener(id) = Event::from_word(1 << 32 | 1 << 31 | number) else {
            panic!("the word of a listener");
        };
        Event::Listener(id)
    }

    fn word_of(published: &Published, number: u64) -> Option<ListenerId> {
        let Event::Listener(id) = source(number) else {
            panic!("the word of a listener");
        };
        published.words.get(id)
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 77, 0, 1], port))
    }

    #[test]
    fn listener_is_listed_until_it_is_closed() {
        let Fixture { mut published, peer } = fixture();
        published.publish(source(1), at(80), 7, &settings());
        let found = peer.find(at(80), 0).unwrap();
        assert_eq!(found.listing.backlog, 7);
        assert_eq!(published.listener_of(source(1)), Some(found.listener));
        assert_eq!(word_of(&published, 1), Some(found.listener));
        published.set_backlog(source(1), 9);
        assert_eq!(peer.find(at(80), 0).unwrap().listing.backlog, 9);
        assert!(published.withdrawn().is_empty());
        assert!(published.close(source(1), 80));
        assert_eq!(peer.find(at(80), 0), None);
        assert_eq!(word_of(&published, 1), None);
        let number = found.listener.number;
        assert_eq!(published.withdrawn(), [number]);
        published.publish(source(2), at(81), 7, &settings());
        assert_ne!(published.listener_of(source(2)).unwrap().number, number);
        published.free(number);
        assert!(published.withdrawn().is_empty());
        assert!(!published.close(source(9), 99), "it was never there");
    }

    #[test]
    fn listeners_of_a_port_stay_out_with_one_that_has_to() {
        let Fixture { mut published, peer } = fixture();
        let any = SocketAddr::from(([0, 0, 0, 0], 80));
        published.publish(source(1), any, 7, &settings());
        published.publish(source(2), at(81), 7, &settings());
        published.keep_out(source(3), 80);
        assert_eq!(peer.find(any, 0), None);
        assert!(peer.find(at(81), 0).is_some());
        published.publish(source(4), at(80), 7, &settings());
        assert_eq!(peer.find(at(80), 0), None);
        for closed in [3, 1] {
            published.close(source(closed), 80);
            published.publish(source(5), at(80), 7, &settings());
            assert_eq!(peer.find(at(80), 0), None);
            published.close(source(5), 80);
        }
        published.close(source(4), 80);
        published.publish(source(6), at(80), 7, &settings());
        assert!(peer.find(at(80), 0).is_some());
    }

    #[test]
    fn listener_that_is_kept_out_later_is_counted_once() {
        let Fixture { mut published, peer } = fixture();
        published.publish(source(1), at(80), 7, &settings());
        published.keep_out(source(1), 80);
        assert_eq!(peer.find(at(80), 0), None);
        published.close(source(1), 80);
        published.publish(source(2), at(80), 7, &settings());
        assert!(peer.find(at(80), 0).is_some());
    }

    #[test]
    fn listener_that_nothing_waits_for_is_listed_when_something_does() {
        let Fixture { mut published, peer } = fixture();
        published.publish(source(1), at(80), 7, &settings());
        let listener = published.listener_of(source(1)).unwrap();
        published.park(source(1));
        assert_eq!(peer.find(at(80), 0), None);
        // Another one of the port is none the worse for it.
        published.publish(source(2), at(80), 7, &settings());
        assert!(peer.find(at(80), 0).is_some());
        published.close(source(2), 80);
        published.set_backlog(source(1), 3);
        published.attend(source(1));
        let found = peer.find(at(80), 0).unwrap();
        assert_eq!((found.listing.backlog, found.listener), (3, listener));
        assert!(published.close(source(1), 80));
        published.attend(source(1));
        assert_eq!(peer.find(at(80), 0), None);
    }

    #[test]
    fn listener_kept_out_or_parked_keeps_its_number_and_what_waits_there() {
        let Fixture { mut published, peer } = fixture();
        for number in [1, 2, 3] {
            published.publish(source(number), at(80), 7, &settings());
        }
        let known = |published: &mut Published| [1, 2, 3].map(|number| published.listener_of(source(number)));
        let before = known(&mut published);
        published.park(source(3));
        published.keep_out(source(1), 80);
        published.keep_out(source(1), 80);
        published.mend(|_| Some(at(80)));
        assert_eq!(known(&mut published), before);
        published.attend(source(3));
        assert_eq!(peer.find(at(80), 0), None);
        assert!(published.withdrawn().is_empty());
        for number in [1, 2, 3] {
            assert!(published.close(source(number), 80));
        }
        published.publish(source(4), at(80), 7, &settings());
        assert!(peer.find(at(80), 0).is_some());
    }

    #[test]
    fn more_listeners_than_numbers_keep_their_port_out() {
        let Fixture { mut published, peer } = fixture();
        let last = LISTENERS as u16;
        for port in 1..=last {
            published.publish(source(port.into()), at(port), 7, &settings());
        }
        assert!(peer.find(at(last), 0).is_some());
        published.publish(source(5000), at(5000), 7, &settings());
        assert_eq!(peer.find(at(5000), 0), None);
        assert_eq!(published.listener_of(source(5000)), None);
        published.close(source(1), 1);
        published.free(published.withdrawn()[0]);
        published.publish(source(5001), at(5000), 7, &settings());
        assert_eq!(peer.find(at(5000), 0), None, "the other one is still there");
        published.close(source(5000), 5000);
        published.close(source(5001), 5000);
        published.free(published.withdrawn()[0]);
        published.publish(source(5002), at(5000), 7, &settings());
        assert!(peer.find(at(5000), 0).is_some());
    }

    #[test]
    fn options_of_a_listener_are_told() {
        let Fixture { mut published, peer } = fixture();
        let mut only = settings();
        only.apply(SocketOption::V6Only(true)).unwrap();
        only.apply(SocketOption::ReusePort(true)).unwrap();
        let any: SocketAddr = "[::]:80".parse().unwrap();
        published.publish(source(1), any, 7, &only);
        let found = peer.find(any, 0).unwrap().listing;
        assert_eq!((found.options & ONLY_IPV6, found.group), (ONLY_IPV6, 1));
    }

    #[test]
    fn listener_published_by_a_process_that_was_killed_at_once_is_withdrawn() {
        let Fixture { mut published, peer } = fixture();
        published.publish(source(1), at(80), 7, &settings());
        let number = published.listener_of(source(1)).unwrap().number;
        // Killed before it had noted what the entry is of.
        published.record(number).unwrap().state = FREE;
        published.mend(|_| None);
        assert_eq!(peer.find(at(80), 0), None);
        assert_eq!(published.withdrawn(), [number]);
        published.free(number);
        published.publish(source(2), at(80), 7, &settings());
        assert_eq!(published.listener_of(source(2)).unwrap().number, number);
    }

    #[test]
    fn listeners_that_share_a_port_have_what_waits_at_a_closed_one() {
        let Fixture { mut published, .. } = fixture();
        let sharing = || {
            let mut settings = settings();
            settings.apply(SocketOption::ReusePort(true)).unwrap();
            settings
        };
        for (number, address) in [(1, at(80)), (2, at(80)), (3, at(81)), (4, at(80))] {
            published.publish(source(number), address, 7, &sharing());
        }
        let [closed, second, other, fourth] =
            [1, 2, 3, 4].map(|number| published.listener_of(source(number)).unwrap());
        published.close(source(1), 80);
        assert_eq!(published.heirs(closed.number), [second, fourth]);
        published.park(source(2));
        assert_eq!(published.heirs(closed.number), [fourth]);
        published.park(source(4));
        assert_eq!(published.heirs(closed.number), [second, fourth]);
        published.publish(source(5), at(82), 7, &settings());
        let alone = published.listener_of(source(5)).unwrap();
        published.publish(source(6), at(82), 7, &settings());
        published.close(source(5), 82);
        published.close(source(3), 81);
        assert!(published.heirs(alone.number).is_empty() && published.heirs(other.number).is_empty());
    }

    #[test]
    fn mending_keeps_open_listeners_and_withdraws_others() {
        let Fixture { mut published, peer } = fixture();
        for number in [1, 2] {
            published.publish(source(number), at(80 + number as u16), 7, &settings());
        }
        let former = published.listener_of(source(2)).unwrap();
        published.set_backlog(source(2), 5);
        published.mend(|event| (event == source(2)).then(|| at(82)));
        assert_eq!(peer.find(at(81), 0), None);
        let found = peer.find(at(82), 0).unwrap();
        assert_eq!(found.listing.backlog, 5);
        assert_eq!(published.listener_of(source(2)), Some(found.listener));
        assert_eq!(found.listener, former);
        assert_eq!(
            (word_of(&published, 1), word_of(&published, 2)),
            (None, Some(found.listener))
        );
        assert_eq!(published.withdrawn().len(), 1);
    }
}
