//! The state that all holders of a connection or listener share beside the stack's. It says whether
//! calls wait and how long, and has settings that only programs know of.
//!
//! The kernel keeps this in the open file description. Here it lies in the shard's region, by the number of the
//! [holder](crate::Holder), outside of the lease: whether calls wait is one load. A process may write nonsense there,
//! as in all of its node's memory: readers check what they read.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use toehold_shm::{Carver, OutOfMemory, Words};
use toehold_stack::Settings;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::direct::DirectEnd;

/// Words before the settings: four lines of a cache, of which calls read the first.
const FRONT: usize = 32;

/// Words of the settings of a socket that no stack keeps.
const SETTINGS: usize = size_of::<Settings>().div_ceil(size_of::<u64>());

/// Words of one description.
const WORDS: usize = (FRONT + 1 + SETTINGS).next_multiple_of(8);

/// The words before the notes.
mod at {
    /// Whether calls wait, and marks of the program that uses the socket.
    pub(super) const FLAGS: usize = 0;
    /// Nanoseconds that reading waits at most; 0: any time.
    pub(super) const READ_TIMEOUT: usize = 1;
    pub(super) const WRITE_TIMEOUT: usize = 2;
    /// Bytes that a call which waits for any waits for.
    pub(super) const LOW_WATER: usize = 3;
    /// How many bytes calls that peek leave out; peeking is off if that is less than zero.
    pub(super) const PEEK_BEHIND: usize = 4;
    /// The backlog that `listen` was given.
    pub(super) const BACKLOG: usize = 5;
    /// Odd while a thread changes the notes.
    pub(super) const VERSION: usize = 6;
    /// Bytes of notes.
    pub(super) const NOTED: usize = 7;
    /// The system's names of the descriptor.
    pub(super) const INODE: usize = 8;
    pub(super) const COOKIE: usize = 9;
    pub(super) const NOTES: usize = 10;
    /// Odd while a thread changes the settings, which follow.
    pub(super) const SETTINGS_VERSION: usize = super::FRONT;
}

/// Bytes of notes that there is room for.
const NOTES: usize = (FRONT - at::NOTES) * size_of::<u64>();

/// The flag of calls that do not wait. The bits from 32 on are marks.
const NONBLOCKING: u64 = 1;

/// The flag of an IPv6 socket, whatever its connection's addresses are.
const IPV6: u64 = 2;

/// How often a thread looks again while another one changes the notes. After that it goes on, for
/// the other one may have been killed.
const PATIENCE: u32 = 1000;

/// The descriptions of a shard's holders.
#[derive(Debug, Clone)]
pub(crate) struct Descriptions {
    words: Words<AtomicU64>,
    /// How often a process has looked at the names of what all processes hold.
    looks: Words<AtomicU64>,
    /// By holder, the end of a direct connection that it stands for.
    direct: Words<AtomicU64>,
    /// No holder from this number on has ever stood for a direct connection.
    touched: Words<AtomicU64>,
}

impl Descriptions {
    pub(crate) fn bytes_needed(holders: u32) -> usize {
        Words::wide_bytes_needed(holders as usize * WORDS)
            + Words::wide_bytes_needed(holders as usize)
            + 2 * Words::wide_bytes_needed(1)
    }

    pub(crate) fn create(carver: &mut Carver, holders: u32) -> Result<Descriptions, OutOfMemory> {
        Ok(Descriptions {
            words: carver.wide_words(holders as usize * WORDS)?,
            looks: carver.wide_words(1)?,
            direct: carver.wide_words(holders as usize)?,
            touched: carver.wide_words(1)?,
        })
    }

    /// The description of a holder, by its number.
    #[inline]
    pub(crate) fn of(&self, number: u32) -> Option<Description> {
        let first = number as usize * WORDS;
        (first + WORDS <= self.words.len()).then(|| Description {
            place: Place::Shared {
                words: self.words.clone(),
                first,
            },
        })
    }

    /// Notes the names that a holder's descriptor has in the system.
    pub(crate) fn name(&self, number: u32, inode: u64, cookie: u64) {
        let first = number as usize * WORDS;
        for (at, value) in [(at::INODE, inode), (at::COOKIE, cookie)] {
            if let Some(word) = self.words.get(first + at) {
                word.store(value, Relaxed);
            }
        }
    }

    /// Notes that a process looks at the names of all held descriptors. From then on no other
    /// connection is to have one of those names.
    pub(crate) fn look(&self) {
        self.looks.word(0).fetch_add(1, Relaxed);
    }

    /// How often a process has looked at the names of all held descriptors.
    #[inline]
    pub(crate) fn looks(&self) -> u64 {
        self.looks.word(0).load(Relaxed)
    }

    /// The end of a direct connection that a holder stands for, if it stands for one.
    pub(crate) fn direct_end(&self, number: u32) -> Option<DirectEnd> {
        let word = self.direct.get(number as usize)?;
        DirectEnd::from_word(word.load(Acquire))
    }

    /// Whether the engine carries the bytes of the direct connection that a holder stands for.
    pub(crate) fn is_direct_relayed(&self, number: u32) -> bool {
        let word = self.direct.get(number as usize);
        word.is_some_and(|word| DirectEnd::is_relayed(word.load(Acquire)))
    }

    /// Says that it does from now on. Returns `false` if the holder stands for none.
    pub(crate) fn relay_direct(&self, number: u32) -> bool {
        let relay = |word| Some(DirectEnd::relayed_word(word)).filter(|word| *word != 0);
        let word = self.direct.get(number as usize);
        word.is_some_and(|word| word.fetch_update(AcqRel, Acquire, relay).is_ok())
    }

    /// Lets a holder stand for an end of a direct connection, or for none. Returns `false` if
    /// there is no such holder.
    pub(crate) fn set_direct_end(&self, number: u32, end: Option<DirectEnd>) -> bool {
        let word = self.direct.get(number as usize);
        if end.is_some() {
            self.touched.word(0).fetch_max(u64::from(number) + 1, Relaxed);
        }
        word.is_some_and(|word| {
            word.store(end.map_or(0, DirectEnd::word), Release);
            true
        })
    }

    /// The ends of direct connections that holders stand for.
    pub(crate) fn direct_ends(&self) -> impl Iterator<Item = DirectEnd> {
        self.direct_holders().map(|(_, end)| end)
    }

    /// The holders that stand for ends of direct connections, and these.
    pub(crate) fn direct_holders(&self) -> impl Iterator<Item = (u32, DirectEnd)> {
        let touched = self.touched.word(0).load(Relaxed).min(self.direct.len() as u64);
        let touched = 0..touched as u32;
        touched.filter_map(|number| Some((number, self.direct_end(number)?)))
    }

    /// Begins the description of the socket that the holder of that number stands for now.
    pub(crate) fn begin(&self, number: u32) {
        let first = number as usize * WORDS;
        let word = |at| self.words.get(first + at);
        let values = [
            (at::FLAGS, 0),
            (at::READ_TIMEOUT, 0),
            (at::WRITE_TIMEOUT, 0),
            (at::LOW_WATER, 1),
            (at::PEEK_BEHIND, u64::MAX),
            (at::BACKLOG, 0),
            (at::NOTED, 0),
        ];
        for (at, value) in values {
            if let Some(word) = word(at) {
                word.store(value, Relaxed);
            }
        }
        if self.direct_end(number).is_some() {
            self.set_direct_end(number, None);
        }
    }
}

/// The state that the holders of one connection or listener share.
#[derive(Clone)]
pub struct Description {
    place: Place,
}

#[derive(Clone)]
enum Place {
    Shared {
        words: Words<AtomicU64>,
        first: usize,
    },
    /// The words of a node that only this process uses.
    Own(Arc<[AtomicU64; WORDS]>),
}

impl Description {
    /// Bytes of notes that there is room for.
    pub const NOTES: usize = NOTES;

    /// The description of something that has no holder.
    pub fn private() -> Description {
        let words = std::array::from_fn(|at| {
            AtomicU64::new(match at {
                at::PEEK_BEHIND => u64::MAX,
                at::LOW_WATER => 1,
                _ => 0,
            })
        });
        Description {
            place: Place::Own(Arc::new(words)),
        }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        match &self.place {
            Place::Shared { words, first } => words.word(first + at),
            Place::Own(words) => &words[at],
        }
    }

    /// Whether calls fail that would wait.
    #[inline]
    pub fn is_nonblocking(&self) -> bool {
        self.word(at::FLAGS).load(Relaxed) & NONBLOCKING != 0
    }

    /// Changes that, for all holders.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        let flags = self.word(at::FLAGS);
        match nonblocking {
            true => flags.fetch_or(NONBLOCKING, Relaxed),
            false => flags.fetch_and(!NONBLOCKING, Relaxed),
        };
    }

    /// Whether it is a socket of IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.word(at::FLAGS).load(Relaxed) & IPV6 != 0
    }

    /// Says whether it is.
    pub fn set_ipv6(&self, is_ipv6: bool) {
        let change = |flags: u64| Some(flags & !IPV6 | if is_ipv6 { IPV6 } else { 0 });
        let _ = self.word(at::FLAGS).fetch_update(Relaxed, Relaxed, change);
    }

    /// The inode of the descriptor, and the cookie that the system has for it.
    pub fn names(&self) -> (u64, u64) {
        [at::INODE, at::COOKIE]
            .map(|at| self.word(at).load(Relaxed))
            .into()
    }

    /// The marks that programs have made. Their meaning is known to the programs alone.
    #[inline]
    pub fn marks(&self) -> u32 {
        (self.word(at::FLAGS).load(Relaxed) >> 32) as u32
    }

    /// Clears marks, and makes others.
    pub fn change_marks(&self, cleared: u32, made: u32) {
        let change = |flags: u64| Some(flags & !(u64::from(cleared) << 32) | u64::from(made) << 32);
        let _ = self.word(at::FLAGS).fetch_update(Relaxed, Relaxed, change);
    }

    /// How long reading waits; `None` means as long as it takes.
    #[inline]
    pub fn read_timeout(&self) -> Option<Duration> {
        span(self.word(at::READ_TIMEOUT))
    }

    /// Changes that, for all holders.
    pub fn set_read_timeout(&self, span: Option<Duration>) {
        self.word(at::READ_TIMEOUT).store(nanos(span), Relaxed);
    }

    /// How long writing waits.
    #[inline]
    pub fn write_timeout(&self) -> Option<Duration> {
        span(self.word(at::WRITE_TIMEOUT))
    }

    /// Changes that, for all holders.
    pub fn set_write_timeout(&self, span: Option<Duration>) {
        self.word(at::WRITE_TIMEOUT).store(nanos(span), Relaxed);
    }

    /// Bytes that a call which waits for any waits for.
    #[inline]
    pub fn low_water(&self) -> u32 {
        self.word(at::LOW_WATER).load(Relaxed) as u32
    }

    /// Changes that, for all holders.
    pub fn set_low_water(&self, bytes: u32) {
        self.word(at::LOW_WATER).store(bytes.into(), Relaxed);
    }

    /// How many bytes calls that peek leave out; peeking is off if that is less than zero.
    #[inline]
    pub fn peek_behind(&self) -> i32 {
        self.word(at::PEEK_BEHIND).load(Relaxed) as i32
    }

    /// Changes that, for all holders.
    pub fn set_peek_behind(&self, bytes: i32) {
        self.word(at::PEEK_BEHIND).store(bytes as u64, Relaxed);
    }

    /// Moves that.
    pub fn move_peek(&self, moved: impl Fn(i32) -> i32) {
        let change = |bytes: u64| (bytes as i32 >= 0).then(|| moved(bytes as i32) as u64);
        let _ = self.word(at::PEEK_BEHIND).fetch_update(Relaxed, Relaxed, change);
    }

    /// The backlog that `listen` was given.
    pub fn backlog(&self) -> i32 {
        self.word(at::BACKLOG).load(Relaxed) as i32
    }

    /// Notes the backlog that `listen` was given.
    pub fn set_backlog(&self, backlog: i32) {
        self.word(at::BACKLOG).store(backlog as u64, Relaxed);
    }

    /// Changes whenever the notes do.
    #[inline]
    pub fn version(&self) -> u64 {
        self.word(at::VERSION).load(Acquire)
    }

    /// The notes of programs about the socket: bytes whose meaning only the programs know. Nothing
    /// but the number of bytes is checked.
    pub fn notes(&self) -> Vec<u8> {
        let mut notes = Vec::new();
        for _ in 0..PATIENCE {
            let before = self.version();
            notes = self.read_notes();
            std::sync::atomic::fence(Acquire);
            if before.is_multiple_of(2) && self.word(at::VERSION).load(Relaxed) == before {
                break;
            }
            std::thread::yield_now();
        }
        notes
    }

    fn read_notes(&self) -> Vec<u8> {
        let noted = (self.word(at::NOTED).load(Relaxed) as usize).min(NOTES);
        let words = noted.div_ceil(size_of::<u64>());
        let mut notes: Vec<u8> = (0..words)
            .flat_map(|word| self.word(at::NOTES + word).load(Relaxed).to_ne_bytes())
            .collect();
        notes.truncate(noted);
        notes
    }

    /// Changes the notes, while no other thread does. `false`: there is no room for so many, and they are as they were.
    pub fn change_notes(&self, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let version = self.word(at::VERSION);
        let began = begin_change(version);
        let mut notes = self.read_notes();
        change(&mut notes);
        let fits = notes.len() <= NOTES;
        if fits {
            self.write_notes(&notes);
        }
        version.store(began.wrapping_add(1), Release);
        fits
    }

    fn write_notes(&self, notes: &[u8]) {
        // A thread that is killed in the middle leaves none.
        self.word(at::NOTED).store(0, Relaxed);
        std::sync::atomic::fence(Release);
        for (at, bytes) in notes.chunks(size_of::<u64>()).enumerate() {
            let mut word = [0; size_of::<u64>()];
            word[..bytes.len()].copy_from_slice(bytes);
            self.word(at::NOTES + at).store(u64::from_ne_bytes(word), Relaxed);
        }
        std::sync::atomic::fence(Release);
        self.word(at::NOTED).store(notes.len() as u64, Relaxed);
    }

    /// The settings of a direct connection, which has no control block to keep them.
    pub fn settings(&self) -> Settings {
        let mut bytes = [0; SETTINGS * size_of::<u64>()];
        for (at, word) in bytes.chunks_exact_mut(size_of::<u64>()).enumerate() {
            let stored = self.word(at::SETTINGS_VERSION + 1 + at).load(Relaxed);
            word.copy_from_slice(&stored.to_ne_bytes());
        }
        // There are as many bytes as settings have, or more.
        Settings::read_from_prefix(&bytes).map_or_else(|_| Settings::new_zeroed(), |(settings, _)| settings)
    }

    /// Sets all of them, of something that no other thread knows of yet.
    pub fn begin_settings(&self, settings: &Settings) {
        let mut bytes = [0; SETTINGS * size_of::<u64>()];
        let _ = settings.write_to_prefix(&mut bytes);
        for (at, word) in bytes.chunks_exact(size_of::<u64>()).enumerate() {
            let mut stored = [0; size_of::<u64>()];
            stored.copy_from_slice(word);
            let word = self.word(at::SETTINGS_VERSION + 1 + at);
            word.store(u64::from_ne_bytes(stored), Relaxed);
        }
    }

    /// Changes the settings, while no other thread does. An error changes nothing.
    ///
    /// # Errors
    ///
    /// The error of `change`.
    pub fn change_settings<E>(&self, change: impl FnOnce(&mut Settings) -> Result<(), E>) -> Result<(), E> {
        let version = self.word(at::SETTINGS_VERSION);
        let began = begin_change(version);
        let mut settings = self.settings();
        let changed = change(&mut settings);
        if changed.is_ok() {
            self.begin_settings(&settings);
        }
        version.store(began.wrapping_add(1), Release);
        changed
    }

    /// Writes the notes of something new that no other thread knows of yet. Returns `false` if
    /// there is no room for so many.
    pub fn begin_notes(&self, notes: &[u8]) -> bool {
        let fits = notes.len() <= NOTES;
        if fits && !notes.is_empty() {
            self.write_notes(notes);
        }
        fits
    }
}

impl fmt::Debug for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Description")
            .field("nonblocking", &self.is_nonblocking())
            .field("marks", &self.marks())
            .finish_non_exhaustive()
    }
}

/// Makes a version odd for one thread at a time, and returns it.
fn begin_change(version: &AtomicU64) -> u64 {
    let mut tries = 0;
    loop {
        let present = version.load(Relaxed);
        // A thread that was killed in the middle keeps no other one waiting.
        let is_free = present.is_multiple_of(2) || tries >= PATIENCE;
        let odd = (present | 1).wrapping_add(if present.is_multiple_of(2) { 0 } else { 2 });
        if is_free && version.compare_exchange(present, odd, AcqRel, Relaxed).is_ok() {
            return odd;
        }
        tries += 1;
        std::thread::yield_now();
    }
}

/// Reads a time. A time of zero stands for any time.
fn span(word: &AtomicU64) -> Option<Duration> {
    Some(word.load(Relaxed))
        .filter(|&ns| ns != 0)
        .map(Duration::from_nanos)
}

fn nanos(span: Option<Duration>) -> u64 {
    span.map_or(0, |span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use toehold_shm::Region;
    use toehold_stack::SocketOption;

    use super::*;

    fn shared() -> Descriptions {
        let region = Region::private(Descriptions::bytes_needed(3)).unwrap();
        Descriptions::create(&mut Carver::new(region).unwrap(), 3).unwrap()
    }

    #[test]
    fn description_of_holder_is_shared_by_its_handles() {
        let all = shared();
        all.begin(1);
        let [one, other] = [(); 2].map(|()| all.of(1).unwrap());
        one.set_nonblocking(true);
        one.change_marks(0, 0b101);
        one.set_read_timeout(Some(Duration::from_millis(3)));
        one.set_peek_behind(7);
        assert!(one.change_notes(|notes| notes.extend(b"noted")));
        assert!(other.is_nonblocking());
        other.change_marks(0b1, 0b10);
        assert_eq!((one.marks(), one.is_nonblocking()), (0b110, true));
        assert_eq!(other.read_timeout(), Some(Duration::from_millis(3)));
        other.move_peek(|bytes| bytes + 1);
        assert_eq!((one.peek_behind(), other.notes()), (8, b"noted".to_vec()));
        for neighbour in [0, 2].map(|number| all.of(number).unwrap()) {
            assert!(!neighbour.is_nonblocking() && neighbour.notes().is_empty());
        }
        assert!(all.of(3).is_none());
    }

    #[test]
    fn description_of_new_connection_begins_anew() {
        let all = shared();
        let former = all.of(0).unwrap();
        former.set_nonblocking(true);
        former.set_write_timeout(Some(Duration::from_secs(1)));
        former.set_backlog(5);
        assert!(former.begin_notes(b"former"));
        all.begin(0);
        let new = all.of(0).unwrap();
        assert!(!new.is_nonblocking() && new.notes().is_empty());
        assert_eq!(
            (new.write_timeout(), new.peek_behind(), new.low_water()),
            (None, -1, 1)
        );
        assert_eq!((new.marks(), new.backlog()), (0, 0));
    }

    #[test]
    fn notes_without_room_stay_as_they_were() {
        let description = Description::private();
        assert!(description.change_notes(|notes| notes.resize(NOTES, 1)));
        assert!(!description.change_notes(|notes| notes.push(2)));
        assert_eq!(description.notes(), vec![1; NOTES]);
        assert!(!description.begin_notes(&[0; NOTES + 1]));
    }

    #[test]
    fn settings_changed_by_one_handle_are_seen_by_another() {
        let all = shared();
        let [one, other] = [(); 2].map(|()| all.of(1).unwrap());
        let mut settings = Settings::new_zeroed();
        settings.apply(SocketOption::KeepaliveProbes(7)).unwrap();
        one.begin_settings(&settings);
        let apply = |option| one.change_settings(|settings| settings.apply(option));
        apply(SocketOption::SendBuffer(9000)).unwrap();
        assert!(apply(SocketOption::KeepaliveProbes(0)).is_err());
        let seen = other.settings();
        assert_eq!((seen.keepalive_probes(), seen.send_buffer()), (7, 9000));
    }

    /// A thread that is killed in the middle of a change must not keep others waiting.
    #[test]
    fn notes_of_killed_writer_are_changed_by_the_next() {
        let all = shared();
        let description = all.of(2).unwrap();
        description.word(at::VERSION).store(7, Relaxed);
        description.word(at::NOTED).store(u64::MAX, Relaxed);
        assert_eq!(description.notes().len(), NOTES);
        assert!(description.change_notes(|notes| notes.clear()));
        assert!(description.version().is_multiple_of(2) && description.notes().is_empty());
    }
}
