//! The directory: which listeners of a node take direct connections.
//!
//! One process of the node at a time writes it, the one that has the lease. Peers read it: an
//! entry is copied between two loads of its sequence word.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::audience::WaiterNumber;
use super::bank::{
    AUDIENCE_LINES, AUDIENCES, AudienceLine, DIRECTORY_LEN, ENTRIES, ENTRY_LINES, EntryLine, Kind,
    LISTENER_BITS, LISTENERS, WAITER_LINES, WAITERS, WATCH_LINES, WaiterLine, WatchLine,
};
use super::memory::{Memory, MemoryError};
use super::record::{ListenerId, address_of, address_words};
use crate::Access;
use crate::futex::{AtomicU64, fence};

/// Entries that are looked at for one address. What finds no entry there is not published.
const PROBES: usize = 64;
/// Tries to copy an entry that is being written.
const TRIES: usize = 8;

const EMPTY: u64 = 0;
/// Flag of an empty entry behind which others may follow.
const FOLLOWED: u64 = 1 << 24;
/// Flag of an entry that peers do not find.
const HIDDEN: u64 = 1 << 25;

/// The facts that a node publishes of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listing {
    /// The bound address. An unspecified one takes connections to every address of the node.
    pub address: SocketAddr,
    /// Connections that may wait, beyond one.
    pub backlog: u32,
    /// Listeners of one address with the same number above 0 share its connections.
    pub group: u32,
    /// Options that accepted ends have, as the sockets above define them.
    pub options: u64,
    /// Bytes that a connecting end may write before the connection is accepted.
    pub window: u64,
}

/// A listener that was found, with the place of its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The listener.
    pub listener: ListenerId,
    /// The facts that its node publishes of it.
    pub listing: Listing,
    entry: u16,
}

/// This node's directory of listeners, and its waiters. A clone is of the same mapping.
///
/// ```
/// use toehold_shm::direct::{Directory, Listing, PeerDirectory};
///
/// let ours = Directory::create("toehold-directory", 1)?;
/// let theirs = PeerDirectory::open(ours.read_only_fd()?)?;
/// let address = "10.0.0.1:80".parse().unwrap();
/// let listing = Listing { address, backlog: 128, group: 0, options: 0, window: 65536 };
///
/// let listener = ours.publish(&listing).expect("a free number");
/// let found = theirs.find(address, 0).expect("it was published");
/// assert_eq!(found.listener, listener);
/// assert!(theirs.is_current(&found));
/// ours.withdraw(listener);
/// assert!(!theirs.is_current(&found));
/// # Ok::<(), toehold_shm::direct::MemoryError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Directory {
    memory: Arc<Memory>,
}

/// Another node's directory and waiters, which this process can only read. A clone is of the
/// same mapping.
#[derive(Debug, Clone)]
pub struct PeerDirectory {
    memory: Arc<Memory>,
}

impl Directory {
    /// Makes a directory of no listeners. `name` shows up in `/proc/PID/maps`.
    ///
    /// # Errors
    ///
    /// If the kernel makes no memory file, or this process has too few addresses.
    pub fn create(name: &str, incarnation: u64) -> Result<Directory, MemoryError> {
        let len = DIRECTORY_LEN as u64;
        Memory::create(name, Kind::Directory, len, DIRECTORY_LEN, incarnation).map(Directory::over)
    }

    /// Maps the directory that another process of this node has made.
    ///
    /// # Errors
    ///
    /// If the descriptor is of something else, or this process has too few addresses.
    pub fn open(fd: OwnedFd) -> Result<Directory, MemoryError> {
        let len = DIRECTORY_LEN as u64;
        Memory::open(fd, Kind::Directory, len, DIRECTORY_LEN, Access::ReadWrite).map(Directory::over)
    }

    fn over(memory: Memory) -> Directory {
        Directory {
            memory: Arc::new(memory),
        }
    }

    /// The directory as peers have it. For a node's bank with itself.
    pub fn as_peer(&self) -> PeerDirectory {
        PeerDirectory {
            memory: Arc::clone(&self.memory),
        }
    }

    /// The descriptor, for processes of this node.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// A descriptor for peers, which other users can map for reading only.
    ///
    /// # Errors
    ///
    /// If `/proc` is not mounted.
    pub fn read_only_fd(&self) -> Result<OwnedFd, MemoryError> {
        self.memory.read_only_fd()
    }

    /// Publishes a listener under a number that no other has. `None` if every number is taken,
    /// or too many listeners have like addresses: then it takes TCP connections only. The
    /// caller has the node's lease.
    pub fn publish(&self, listing: &Listing) -> Option<ListenerId> {
        let index = probe(listing.address)
            .find(|&index| family(entry(&self.memory, index).port.load(Relaxed)) == EMPTY)?;
        let number = self.take_number()?;
        let counter = &self.memory.header().generation;
        let generation = counter.load(Relaxed) + 1;
        counter.store(generation, Release);
        let entry = entry(&self.memory, index);
        write(entry, || {
            let (address, family) = address_words(listing.address.ip());
            entry.address[0].store(address[0], Relaxed);
            entry.address[1].store(address[1], Relaxed);
            let port = u64::from(listing.address.port()) | family << 16;
            entry.port.store(port | u64::from(listing.backlog) << 32, Relaxed);
            entry.generation.store(generation, Relaxed);
            let group = u64::from(listing.group) << 16;
            entry.listener.store(u64::from(number) | group, Relaxed);
            entry.options.store(listing.options, Relaxed);
            entry.window.store(listing.window, Relaxed);
        });
        Some(ListenerId { number, generation })
    }

    /// Changes whenever a listener is published or withdrawn.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.memory.header().generation.load(Acquire)
    }

    /// Changes the backlog of a published listener. The caller has the node's lease.
    pub fn set_backlog(&self, listener: ListenerId, backlog: u32) {
        if let Some((_, entry)) = self.entry_of(listener) {
            let port = entry.port.load(Relaxed) & u64::from(u32::MAX);
            write(entry, || {
                entry.port.store(port | u64::from(backlog) << 32, Relaxed);
            });
        }
    }

    /// Lets peers find a listener no more, or again. It keeps its number and what waits in its
    /// queues. A peer that has found it before may still offer a connection. The caller has the
    /// node's lease.
    pub fn set_hidden(&self, listener: ListenerId, hidden: bool) {
        if let Some((_, entry)) = self.entry_of(listener) {
            let port = entry.port.load(Relaxed) & !HIDDEN;
            let flag = if hidden { HIDDEN } else { 0 };
            write(entry, || entry.port.store(port | flag, Relaxed));
        }
    }

    /// Returns whether a listener has its entry. The caller has the node's lease.
    pub fn has(&self, listener: ListenerId) -> bool {
        self.entry_of(listener).is_some()
    }

    /// Takes a listener out: its generation is no longer the present one. The fence makes every
    /// offerer either see that, or have offered before the caller empties the queue. The number
    /// stays taken until [`Directory::free_number`]. The caller has the node's lease.
    pub fn withdraw(&self, listener: ListenerId) {
        if let Some((index, found)) = self.entry_of(listener) {
            write(found, || {
                found.generation.store(0, Relaxed);
                found.port.store(FOLLOWED, Relaxed);
            });
            self.forget_followed(index);
        }
        let counter = &self.memory.header().generation;
        counter.store(counter.load(Relaxed) + 1, Release);
        fence(core::sync::atomic::Ordering::SeqCst);
    }

    /// Lets another listener have the number, after its queues were emptied. Waiters that have
    /// not ended their watch are told of it no more. The caller has the node's lease.
    pub fn free_number(&self, number: u16) {
        if let Some(watch) = self.watch_line(number) {
            let words = watch.all.iter().chain(&watch.exclusive);
            let set = words.filter(|word| word.load(Relaxed) != 0);
            set.for_each(|word| word.store(0, Relaxed));
        }
        if let Some(word) = self.number_words().get(usize::from(number) / 64) {
            word.fetch_and(!(1 << (number % 64)), Release);
        }
    }

    /// Empties entries that a process left half written when it died. Their listeners' numbers
    /// stay taken; the caller, which has the node's lease, publishes them anew.
    pub fn mend(&self) {
        for index in 0..ENTRIES {
            let entry = entry(&self.memory, index);
            let sequence = entry.sequence.load(Relaxed);
            if sequence % 2 == 1 {
                entry.generation.store(0, Relaxed);
                entry.port.store(FOLLOWED, Relaxed);
                entry.sequence.store(sequence.wrapping_add(1), Release);
            }
        }
    }

    /// Returns whether a listener is published that takes connections to an address. A generation
    /// that is not there never comes again.
    pub fn lists(&self, listener: ListenerId, to: SocketAddr) -> bool {
        let any = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let bound = [to.ip()].into_iter().chain(any);
        let mut places = bound.flat_map(|ip| probe(SocketAddr::new(ip, to.port())));
        places.any(|index| entry(&self.memory, index).generation.load(Acquire) == listener.generation)
    }

    /// Numbers of listeners, from 0 on, among which are all that are taken.
    pub fn listener_numbers(&self) -> u16 {
        let mut words = self.number_words().iter().enumerate();
        let last = words.rfind(|(_, word)| word.load(Relaxed) != 0);
        last.map_or(0, |(index, word)| {
            let bits = 64 - word.load(Relaxed).leading_zeros();
            (index * 64) as u16 + bits as u16
        })
    }

    /// Takes out listeners that a process has published and not written down before it died. `is_known`
    /// tells of the others. Returns their numbers, which stay taken until
    /// [`free_number`](Directory::free_number). The caller has the node's lease.
    pub fn withdraw_unknown(&self, is_known: impl Fn(u16) -> bool) -> Vec<u16> {
        let is_taken = |number: &u16| {
            let word = &self.number_words()[usize::from(*number) / 64];
            word.load(Relaxed) & 1 << (number % 64) != 0
        };
        let unknown = (0..LISTENERS as u16).filter(is_taken);
        let unknown: Vec<u16> = unknown.filter(|&number| !is_known(number)).collect();
        for index in 0..ENTRIES {
            let entry = entry(&self.memory, index);
            let number = entry.listener.load(Relaxed) as u16;
            if family(entry.port.load(Relaxed)) != EMPTY && unknown.contains(&number) {
                let generation = entry.generation.load(Relaxed);
                self.withdraw(ListenerId { number, generation });
            }
        }
        unknown
    }

    #[inline]
    pub(super) fn waiter_line(&self, waiter: WaiterNumber) -> &WaiterLine {
        self.memory.line(WAITER_LINES, waiter.get().into(), WAITERS)
    }

    pub(super) fn audience_line(&self, bitmap: u16) -> &AudienceLine {
        self.memory.line(AUDIENCE_LINES, bitmap.into(), AUDIENCES)
    }

    /// Waiters that are told of a listener's connections; `None` if there can be no such
    /// listener.
    pub(super) fn watch_line(&self, listener: u16) -> Option<&WatchLine> {
        let listener = usize::from(listener);
        (listener < LISTENERS).then(|| self.memory.line(WATCH_LINES, listener, LISTENERS))
    }

    /// An empty entry behind which none follows ends a probe again.
    fn forget_followed(&self, index: usize) {
        let mut index = index;
        for _ in 0..PROBES {
            let next = entry(&self.memory, (index + 1) % ENTRIES).port.load(Relaxed);
            let here = entry(&self.memory, index);
            if next != EMPTY || here.port.load(Relaxed) != FOLLOWED {
                return;
            }
            write(here, || here.port.store(EMPTY, Relaxed));
            index = (index + ENTRIES - 1) % ENTRIES;
        }
    }

    fn entry_of(&self, listener: ListenerId) -> Option<(usize, &EntryLine)> {
        (0..ENTRIES)
            .map(|index| (index, entry(&self.memory, index)))
            .find(|(_, entry)| {
                entry.generation.load(Relaxed) == listener.generation
                    && entry.listener.load(Relaxed) as u16 == listener.number
                    && family(entry.port.load(Relaxed)) != EMPTY
            })
    }

    /// The entry of a listener that was found.
    #[cfg(test)]
    pub(super) fn entry(&self, found: &Found) -> &EntryLine {
        entry(&self.memory, found.entry.into())
    }

    fn number_words(&self) -> &[AtomicU64; LISTENERS / 64] {
        self.memory.line(LISTENER_BITS, 0, 1)
    }

    fn take_number(&self) -> Option<u16> {
        let words = self.number_words().iter().enumerate();
        words
            .map(|(index, word)| (index, word, word.load(Relaxed).trailing_ones()))
            .find(|&(_, _, bit)| bit < 64)
            .map(|(index, word, bit)| {
                word.fetch_or(1 << bit, Relaxed);
                (index * 64) as u16 + bit as u16
            })
    }
}

impl PeerDirectory {
    /// Maps another node's directory for reading. Only memory is accepted that can never shrink
    /// and has the length of a directory, so that no access to it faults.
    ///
    /// # Errors
    ///
    /// If the descriptor is of something else, or this process has too few addresses.
    pub fn open(fd: OwnedFd) -> Result<PeerDirectory, MemoryError> {
        let len = DIRECTORY_LEN as u64;
        let memory = Memory::open(fd, Kind::Directory, len, DIRECTORY_LEN, Access::ReadOnly)?;
        Ok(PeerDirectory {
            memory: Arc::new(memory),
        })
    }

    /// The descriptor, for other processes of this node.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// The number that the peer says its directory is told from others by. It may change.
    pub fn incarnation(&self) -> u64 {
        self.memory.incarnation()
    }

    /// Finds a listener that is bound to exactly this address. If several share it, `hash` picks
    /// one. Tells nothing of listeners bound to the unspecified address: the caller asks again.
    pub fn find(&self, address: SocketAddr, hash: u64) -> Option<Found> {
        let (words, version) = address_words(address.ip());
        let mut members = [None; PROBES];
        let mut count = 0;
        for index in probe(address) {
            let Some((found, port)) = self.copy(index) else {
                continue;
            };
            if port == EMPTY {
                break;
            }
            let is_found = family(port) == version && port & HIDDEN == 0;
            let same = is_found && port as u16 == address.port();
            if same && address_words(found.listing.address.ip()).0 == words {
                members[count] = Some(found);
                count += 1;
            }
        }
        let picked = hash.checked_rem(count as u64)?;
        members[picked as usize]
    }

    /// Returns whether the listener still has its entry. To be asked after a fence that follows
    /// the offer: an offerer that is told `true` is sure to be seen by a later
    /// [`withdraw`](Directory::withdraw).
    pub fn is_current(&self, found: &Found) -> bool {
        let entry = entry(&self.memory, found.entry.into());
        entry.generation.load(Acquire) == found.listener.generation
    }

    #[inline]
    pub(super) fn waiter_line(&self, waiter: WaiterNumber) -> &WaiterLine {
        self.memory.line(WAITER_LINES, waiter.get().into(), WAITERS)
    }

    /// A bitmap of an audience, whose number was checked.
    pub(super) fn audience_line(&self, bitmap: u16) -> &AudienceLine {
        self.memory.line(AUDIENCE_LINES, bitmap.into(), AUDIENCES)
    }

    pub(super) fn watch_line(&self, listener: u16) -> Option<&WatchLine> {
        let listener = usize::from(listener);
        (listener < LISTENERS).then(|| self.memory.line(WATCH_LINES, listener, LISTENERS))
    }

    /// An entry and its port word; an empty entry has an address that nothing is bound to.
    fn copy(&self, index: usize) -> Option<(Found, u64)> {
        let entry = entry(&self.memory, index);
        for _ in 0..TRIES {
            let sequence = entry.sequence.load(Acquire);
            let address = [entry.address[0].load(Relaxed), entry.address[1].load(Relaxed)];
            let port = entry.port.load(Relaxed);
            let generation = entry.generation.load(Relaxed);
            let listener = entry.listener.load(Relaxed);
            let options = entry.options.load(Relaxed);
            let window = entry.window.load(Relaxed);
            fence(Acquire);
            if sequence % 2 == 1 || entry.sequence.load(Relaxed) != sequence {
                core::hint::spin_loop();
                continue;
            }
            let number = listener as u16;
            let is_number = usize::from(number) < LISTENERS;
            let ip = match family(port) {
                EMPTY => address_of([0; 2], 4)?,
                version => address_of(address, version).filter(|_| is_number)?,
            };
            let found = Found {
                listener: ListenerId { number, generation },
                listing: Listing {
                    address: SocketAddr::new(ip, port as u16),
                    backlog: (port >> 32) as u32,
                    group: (listener >> 16) as u32,
                    options,
                    window,
                },
                entry: index as u16,
            };
            return Some((found, port));
        }
        None
    }
}

#[inline]
fn entry(memory: &Memory, index: usize) -> &EntryLine {
    memory.line(ENTRY_LINES, index, ENTRIES)
}

/// 4 or 6; 0 for an empty entry.
fn family(port: u64) -> u64 {
    port >> 16 & 0xff
}

/// Changes an entry so that no reader takes what is half written.
fn write(entry: &EntryLine, change: impl FnOnce()) {
    let sequence = entry.sequence.load(Relaxed);
    entry.sequence.store(sequence.wrapping_add(1), Relaxed);
    fence(Release);
    change();
    entry.sequence.store(sequence.wrapping_add(2), Release);
}

/// The places where an address is looked for, in order.
fn probe(address: SocketAddr) -> impl Iterator<Item = usize> {
    let (words, family) = address_words(address.ip());
    let mut hash = u64::from(address.port()) | family << 16;
    for word in words {
        // Peers choose which ports they ask for, not what is published: any mixing will do.
        hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
    }
    (0..PROBES).map(move |at| (hash as usize).wrapping_add(at) % ENTRIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(address: &str) -> Listing {
        Listing {
            address: address.parse().unwrap(),
            backlog: 9,
            group: 0,
            options: 3,
            window: 65536,
        }
    }

    fn pair() -> (Directory, PeerDirectory) {
        let ours = Directory::create("toehold-test", 5).unwrap();
        let theirs = PeerDirectory::open(ours.read_only_fd().unwrap()).unwrap();
        (ours, theirs)
    }

    #[test]
    fn listener_published_is_found_until_withdrawn() {
        let (ours, theirs) = pair();
        let (four, six) = (listing("10.0.0.1:80"), listing("[fd00::1]:80"));
        let first = ours.publish(&four).unwrap();
        let second = ours.publish(&six).unwrap();
        assert_ne!(first.number, second.number);
        let found = theirs.find(four.address, 1).unwrap();
        assert_eq!((found.listener, found.listing), (first, four));
        assert_eq!(theirs.find(six.address, 1).unwrap().listener, second);
        assert_eq!(theirs.find("10.0.0.1:81".parse().unwrap(), 0), None);
        ours.set_backlog(first, 1 << 31);
        assert_eq!(theirs.find(four.address, 1).unwrap().listing.backlog, 1 << 31);
        ours.withdraw(first);
        assert!(!theirs.is_current(&found));
        assert_eq!(theirs.find(four.address, 1), None);
        let third = ours.publish(&four).unwrap();
        assert_ne!(third.number, first.number, "its queue was not emptied yet");
        ours.free_number(first.number);
        assert_eq!(
            ours.publish(&listing("10.0.0.1:82")).unwrap().number,
            first.number
        );
        assert!(!theirs.is_current(&found));
    }

    #[test]
    fn listeners_of_one_address_are_picked_by_hash() {
        let (ours, theirs) = pair();
        let shared = Listing {
            group: 4,
            ..listing("0.0.0.0:443")
        };
        let members = [(); 3].map(|()| ours.publish(&shared).unwrap());
        let picked: Vec<_> = (0..6)
            .map(|hash| theirs.find(shared.address, hash).unwrap().listener)
            .collect();
        assert_eq!(picked, [members, members].concat());
        ours.withdraw(members[1]);
        let picked = |hash| theirs.find(shared.address, hash).unwrap().listener;
        assert_eq!([picked(0), picked(1)], [members[0], members[2]]);
    }

    #[test]
    fn directory_of_many_listeners_finds_each_and_refuses_more() {
        let (ours, theirs) = pair();
        let address = |port: usize| listing(&format!("10.0.0.1:{port}"));
        let all: Vec<_> = (1..=LISTENERS)
            .map(|port| ours.publish(&address(port)).unwrap())
            .collect();
        assert_eq!(ours.publish(&address(LISTENERS + 1)), None);
        for (port, listener) in (1..).zip(&all) {
            let found = theirs.find(address(port).address, 0).unwrap();
            assert_eq!(found.listener, *listener);
        }
        for listener in &all {
            ours.withdraw(*listener);
            ours.free_number(listener.number);
        }
        let followed = (0..ENTRIES).filter(|&index| entry(&ours.memory, index).port.load(Relaxed) != EMPTY);
        assert_eq!(followed.count(), 0, "a probe ends at once again");
    }

    #[test]
    fn entry_left_half_written_is_not_found_and_mended() {
        let (ours, theirs) = pair();
        let listing = listing("10.0.0.1:80");
        ours.publish(&listing).unwrap();
        let index = usize::from(theirs.find(listing.address, 0).unwrap().entry);
        let sequence = &entry(&ours.memory, index).sequence;
        sequence.fetch_add(1, Relaxed);
        assert_eq!(theirs.find(listing.address, 0), None);
        ours.mend();
        assert_eq!(sequence.load(Relaxed) % 2, 0);
        assert_eq!(theirs.find(listing.address, 0), None);
        assert!(ours.publish(&listing).is_some());
        assert!(theirs.find(listing.address, 0).is_some());
    }

    #[test]
    fn directory_of_random_words_names_no_listener_out_of_range() {
        let (ours, theirs) = pair();
        let address: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let mut random = 1_u64;
        for _ in 0..2000 {
            for index in probe(address).take(3) {
                let entry = entry(&ours.memory, index);
                for word in [&entry.port, &entry.listener, &entry.sequence, &entry.generation] {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(99);
                    word.store(random >> (random >> 60), Relaxed);
                }
                let (words, family) = address_words(address.ip());
                entry.address[0].store(words[0], Relaxed);
                entry.port.store(80 | family << 16 | random << 32, Relaxed);
            }
            if let Some(found) = theirs.find(address, random) {
                assert!(usize::from(found.listener.number) < LISTENERS);
            }
        }
    }
}
