//! The layout of every memory of direct connections, version [`VERSION`].
//!
//! Processes of different builds agree on this file alone: every change of it changes
//! [`VERSION`]. Words are indices, positions and generations, never addresses.
//!
//! Half, 32 GiB and 2 MiB of addresses, sparse:
//!
//! | offset | what |
//! | --- | --- |
//! | 0 | `Header` |
//! | `WRITE_LINES` | a `WriteLine` for each connection |
//! | `READ_LINES` | a `ReadLine` for each connection |
//! | `ARM_LINES` | an `ArmLine` for each connection |
//! | `RECORD_LINES` | a `RecordLine` for each connection |
//! | `BYTES` | [`RING_BYTES`] for each connection: a ring of each [`Class`] |
//!
//! Signals to one side of a bank: `Header`, then `READY_LINES`, `BELL_LINES`, `QUEUE_LINES`
//! and `QUEUE_SLOTS`. Directory of a node: `Header`, then `ENTRY_LINES`, `WATCH_LINES`,
//! `WAITER_LINES` and `AUDIENCE_LINES`. Ends of one side of a bank: `Header`,
//! `NUMBER_LINE`, then `END_LINES`. Journal of a node: `Header`, then `JOURNAL_LINES`,
//! `LOCAL_LINES` and `PORT_LINES`.

use crate::futex::{AtomicU32, AtomicU64};

/// Version of all layouts of this file. Two nodes must have the same.
pub const VERSION: u32 = 1;

/// "toehold+" in memory on a little-endian machine.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"toehold+");

/// Connections of a bank.
pub const CONNECTIONS: usize = 4096;
/// Waiters of a node: threads in a call, and epoll instances.
pub const WAITERS: usize = 16384;
/// Threads of a node that use direct connections at one time.
pub const THREADS: usize = 16384;
/// Listeners that a node can publish.
pub const LISTENERS: usize = 1024;
/// Processes of a node: their numbers are below.
pub const PROCESSES: usize = 8192;
/// Entries of a directory: four for each listener, so that a probe ends soon.
pub(crate) const ENTRIES: usize = 4096;
/// Connections whose bytes are mapped together.
pub(crate) const EXTENT: usize = 64;
/// Extents of a half.
pub(crate) const EXTENTS: usize = CONNECTIONS / EXTENT;
/// Bitmaps of waiters that an audience of more than four needs.
pub(crate) const AUDIENCES: usize = 1024;
/// Words of a bitmap with a bit for each waiter.
pub(crate) const WAITER_WORDS: usize = WAITERS / 64;
/// Words of a bitmap with a bit for each connection of a bank.
pub(crate) const READY_WORDS: usize = CONNECTIONS / 64;
/// Words of a bitmap with a bit for each process of a node.
pub(crate) const USER_WORDS: usize = PROCESSES / 64;
/// Slots of an accept queue.
pub const QUEUE_LEN: usize = 4096;

/// Bytes of addresses for the rings of one connection.
pub const RING_BYTES: usize = 8 << 20;

/// The beginning of each memory; a page is left for it.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Header {
    /// [`MAGIC`].
    pub(crate) magic: AtomicU64,
    /// [`VERSION`].
    pub(crate) version: AtomicU32,
    /// [`Kind`] of the memory.
    pub(crate) kind: AtomicU32,
    /// A random number that tells this memory from any other.
    pub(crate) incarnation: AtomicU64,
    /// The greatest generation that was given out: of listeners in a directory.
    pub(crate) generation: AtomicU64,
}

/// The contents of a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Half = 1,
    Signals = 2,
    Directory = 3,
    Ends = 4,
    Journal = 5,
}

/// Size of a byte ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// 4 KiB.
    K4 = 0,
    /// 16 KiB.
    K16 = 1,
    /// 64 KiB.
    K64 = 2,
    /// 256 KiB.
    K256 = 3,
    /// 1 MiB.
    M1 = 4,
    /// 4 MiB.
    M4 = 5,
}

impl Class {
    /// All classes, the smallest first.
    pub const ALL: [Class; 6] = [
        Class::K4,
        Class::K16,
        Class::K64,
        Class::K256,
        Class::M1,
        Class::M4,
    ];

    /// The class of that number; `None` if there is none.
    #[inline]
    pub const fn from_number(number: u64) -> Option<Class> {
        if number < Class::ALL.len() as u64 {
            Some(Class::ALL[number as usize])
        } else {
            None
        }
    }

    /// Bytes of the ring: a power of two.
    #[inline]
    pub const fn bytes(self) -> u64 {
        4096 << (2 * self as u64)
    }

    /// Offset of the ring within the bytes of a connection. Each ring begins where a multiple
    /// of its size does.
    #[inline]
    pub const fn offset(self) -> usize {
        self.bytes() as usize
    }

    /// The next larger class.
    #[inline]
    pub const fn larger(self) -> Option<Class> {
        Class::from_number(self as u64 + 1)
    }
}

/// How far an end has written, and what it has said with that. The writer's node writes it, the
/// peer reads it. A message changes [`w`](Self::w) alone.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct WriteLine {
    /// Bytes written since the connection began.
    pub(crate) w: AtomicU64,
    /// [`Class`] in the low 3 bits; above them the position from which on bytes lie in its ring.
    pub(crate) layout: AtomicU64,
    /// State of the stream in the low 2 bits, see `lines::State`; above them its last position.
    pub(crate) state: AtomicU64,
    /// Position after the last urgent byte; 0 if there was none.
    pub(crate) urgent: AtomicU64,
}

/// How far an end has read. The reader's node writes it, the peer reads it. A message changes
/// [`r`](Self::r) alone.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct ReadLine {
    /// Bytes read since the connection began.
    pub(crate) r: AtomicU64,
    /// Bytes beyond `r` that the peer may write.
    pub(crate) window: AtomicU64,
    /// The largest [`Class`] that this end maps.
    pub(crate) class_limit: AtomicU64,
}

/// The waits of an end. That end's node writes the line, the peer reads it after each message.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct ArmLine {
    /// Changes with each wait for bytes; never restarts. Stored last.
    pub(crate) read_generation: AtomicU64,
    /// The peer's `w` from which on the wait for bytes is over.
    pub(crate) read_mark: AtomicU64,
    /// Changes with each wait for room; never restarts. Stored last.
    pub(crate) room_generation: AtomicU64,
    /// The peer's `r` from which on the wait for room is over.
    pub(crate) room_mark: AtomicU64,
    /// The waiters of this end, see `audience::Audience`.
    pub(crate) audience: AtomicU64,
    /// Generation of the connection after the last holder of this end has closed it. It lies
    /// here because a writer looks at this line anyhow, and no message changes it.
    pub(crate) closed: AtomicU64,
}

/// Whose connection a number is at present. An end's node writes it, the peer reads it.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct RecordLine {
    /// Generation of the number; 0 while the record is written. Stored last.
    pub(crate) generation: AtomicU64,
    /// Address of this end: IPv6, or IPv4 in the low bits of the first word.
    pub(crate) local: [AtomicU64; 2],
    /// Address of the other end.
    pub(crate) remote: [AtomicU64; 2],
    /// Ports of this end (16 bits) and the other end (16 bits), then 4 or 6.
    pub(crate) ports: AtomicU64,
    /// Number of the listener; all ones at the accepting end.
    pub(crate) listener: AtomicU64,
    /// Generation of the listener.
    pub(crate) listener_generation: AtomicU64,
    /// Options of the end, as the sockets above define them.
    pub(crate) options: AtomicU64,
    /// Initial sequence number, for recordings.
    pub(crate) iss: AtomicU64,
    /// When the connection was opened, on the monotonic clock.
    pub(crate) opened_ns: AtomicU64,
}

/// A waiter's ready bits in one bank, set by the peer.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ReadyLine {
    /// A bit for each word of `words` that may have bits.
    pub(crate) summary: AtomicU64,
    /// A bit for each listener with a new connection: its number modulo 64.
    pub(crate) listeners: AtomicU64,
    pub(crate) reserved: [AtomicU64; 6],
    /// A bit for each connection.
    pub(crate) words: [AtomicU64; READY_WORDS],
}

/// The word on which a waiter of one side sleeps, and the sleep for which it was rung.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct BellLine {
    /// The futex word; a ring adds one.
    pub(crate) bell: AtomicU32,
    pub(crate) reserved: AtomicU32,
    /// Sleep generation that was rung for last.
    pub(crate) told: AtomicU64,
}

/// Ends of an accept queue.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct QueueLine {
    /// Connections offered. The offering side moves it.
    pub(crate) tail: AtomicU64,
    pub(crate) reserved: [AtomicU64; 15],
    /// Connections taken. The accepting side moves it.
    pub(crate) head: AtomicU64,
}

/// An entry of the directory. It is read between two loads of `sequence`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct EntryLine {
    /// Odd while the entry is written; 0 if it never was.
    pub(crate) sequence: AtomicU64,
    /// Address: IPv6, or IPv4 in the low bits of the first word.
    pub(crate) address: [AtomicU64; 2],
    /// Port (16 bits), 4 or 6, or 0 if the entry is empty (8 bits), flags (8 bits), backlog (32).
    pub(crate) port: AtomicU64,
    /// Generation of the listener: it changes when its last holder closes it.
    pub(crate) generation: AtomicU64,
    /// Number of the listener, which is that of its queue (16 bits); group (32 bits).
    pub(crate) listener: AtomicU64,
    /// Options that accepted ends have, as the sockets above define them.
    pub(crate) options: AtomicU64,
    /// Window of accepted ends.
    pub(crate) window: AtomicU64,
}

/// Waiters that sleep until a listener has a connection.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct WatchLine {
    /// Every waiter here is told of every connection.
    pub(crate) all: [AtomicU64; WAITER_WORDS],
    /// One waiter here is told of a connection.
    pub(crate) exclusive: [AtomicU64; WAITER_WORDS],
}

/// A thread in a call, or an epoll instance with any number of threads.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct WaiterLine {
    /// Threads asleep in the low 14 bits; above them a number that changes with each sleep.
    pub(crate) sleep: AtomicU64,
    /// How the waiter is rung, see `waiter::Bell`.
    pub(crate) bell: AtomicU64,
    /// Waiters that are told with this one, see `audience::Audience`.
    pub(crate) outer: AtomicU64,
}

/// A bitmap for an audience of more than four waiters.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct AudienceLine {
    /// A bit for each waiter.
    pub(crate) words: [AtomicU64; WAITER_WORDS],
}

/// Numbers of a bank. Only the side that opens connections gives them out.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct NumberLine {
    /// A bit for each number that is probably taken. `owner` of the end decides.
    pub(crate) taken: [AtomicU64; READY_WORDS],
    /// A bit for each process that has opened or accepted connections of the bank.
    pub(crate) users: [AtomicU64; USER_WORDS],
}

/// The notes of the writers of one end. A message stores nothing here but the lock.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct WriterLine {
    /// Number of the thread that writes, see `lock::Lock`.
    pub(crate) lock: AtomicU32,
    pub(crate) reserved: AtomicU32,
    /// The peer's `read_generation` whose audience was told.
    pub(crate) posted: AtomicU64,
    /// The peer's `r`, as last loaded.
    pub(crate) seen: AtomicU64,
    /// The peer's window, as last loaded.
    pub(crate) window: AtomicU64,
    /// Generation of the connection whose peer has written its record.
    pub(crate) live: AtomicU64,
    /// Bits of the classes whose rings this end has in use.
    pub(crate) charged: AtomicU64,
    /// Since when writers have found no room, in nanoseconds; 0 if the last one found some.
    pub(crate) full_since: AtomicU64,
}

/// The notes of the readers of one end. A message stores `seen` here, and the lock.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct ReaderLine {
    /// Number of the thread that reads, see `lock::Lock`.
    pub(crate) lock: AtomicU32,
    pub(crate) reserved: AtomicU32,
    /// The peer's `room_generation` whose audience was told.
    pub(crate) posted: AtomicU64,
    /// The peer's `w`, as last loaded and checked.
    pub(crate) seen: AtomicU64,
    /// The peer's layout word, as last checked.
    pub(crate) layout: AtomicU64,
    /// Class of the ring in which bytes below the layout's position lie.
    pub(crate) former: AtomicU64,
    /// Bits of what this end's program was told once: errors.
    pub(crate) told: AtomicU64,
}

/// The state of one end that changes seldom.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct StateLine {
    /// Number of the thread that arms, see `lock::Lock`.
    pub(crate) arm_lock: AtomicU32,
    pub(crate) reserved: AtomicU32,
    /// Process that has the number (low 32 bits), 0 if it is free, and the generation that it
    /// has, or had last. Only the opening side uses it.
    pub(crate) owner: AtomicU64,
    /// Generation (low 32 bits) and process that took the connection from the queue.
    pub(crate) taker: AtomicU64,
    /// Generation (low 32 bits) of the connection that this node has moved to another listener's
    /// queue. The number of that listener is above it.
    pub(crate) moved: AtomicU64,
    /// Generation of the listener to whose queue the connection was moved.
    pub(crate) moved_to: AtomicU64,
    /// The engine's number of the descriptor's other end; 0 if there is none.
    pub(crate) holder: AtomicU64,
    /// Bits of what was shut, see `lines`.
    pub(crate) shut: AtomicU64,
    /// Error that the next call returns, as errno; 0 if there is none.
    pub(crate) error: AtomicU64,
    /// Generation of the connection that this end is of; 0 if it is of none.
    pub(crate) generation: AtomicU64,
    /// Position after the urgent byte that the program has taken last.
    pub(crate) urgent_taken: AtomicU64,
    /// One more than the position after the urgent byte that the end's owner was signalled about
    /// last; 0: it has no owner.
    pub(crate) owner_told: AtomicU64,
    /// Position up to which the peer may write, plus 1; 0 if it may write on.
    pub(crate) read_limit: AtomicU64,
    /// How long a writer may wait for room in vain, in milliseconds; 0 for any time.
    pub(crate) user_timeout_ms: AtomicU64,
    /// What a capture was told: the peer's last read position, and in the highest bit that the
    /// peer's stream has ended.
    pub(crate) recorded: AtomicU64,
}

/// One end, as its own node alone sees it.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct EndLines {
    pub(crate) writer: WriterLine,
    pub(crate) reader: ReaderLine,
    pub(crate) state: StateLine,
}

/// The present steps of a thread. Its process never reads them, the engine does after a death.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct JournalLine {
    /// Process of the thread; 0 if the line is free.
    pub(crate) owner: AtomicU64,
    /// The step of the thread, and those of calls that signal handlers have interrupted; 0 for
    /// none. A step has the bank (32 bits), the connection number (12), the side (1), and from bit
    /// 48 on the step, see `journal::Step`.
    pub(crate) steps: [AtomicU64; 4],
    /// Waiter on which the thread sleeps, plus 1; 0 if it does not.
    pub(crate) asleep: AtomicU64,
    /// Waiter whose bits the thread has taken and not yet looked at, plus 1; 0 if there is none.
    pub(crate) collecting: AtomicU64,
}

/// The state of a waiter that its own node alone uses.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct LocalLine {
    /// Process that made the waiter; 0 if the number is free.
    pub(crate) owner: AtomicU32,
    /// A futex word that the node's own threads change.
    pub(crate) bell: AtomicU32,
    /// Lock of those that collect ready bits.
    pub(crate) lock: AtomicU32,
    pub(crate) reserved: AtomicU32,
    /// Changes each time the number is given out.
    pub(crate) generation: AtomicU64,
    /// Sleep generation that the node's own threads rang for last.
    pub(crate) told: AtomicU64,
}

/// Ports that a process may use without asking.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct PortLine {
    /// The batch, or 0 if there is none. It has the first port (16 bits), the ports (8 bits), and
    /// from bit 32 on whether no port is given out any more.
    pub(crate) range: AtomicU64,
    /// A bit for each port that is free.
    pub(crate) free: AtomicU64,
    /// A bit for each port that has come back since the batch gives out none.
    pub(crate) returned: AtomicU64,
    /// When a port was taken last.
    pub(crate) used_ns: AtomicU64,
}

/// Bytes that lie before the first line of a memory.
pub(crate) const HEADER_LEN: usize = 4096;

const LINES: usize = CONNECTIONS * 128;
pub(crate) const WRITE_LINES: usize = HEADER_LEN;
pub(crate) const READ_LINES: usize = WRITE_LINES + LINES;
pub(crate) const ARM_LINES: usize = READ_LINES + LINES;
pub(crate) const RECORD_LINES: usize = ARM_LINES + LINES;
/// Bytes of a half that are mapped when it is opened.
pub(crate) const HALF_LINES_LEN: usize = RECORD_LINES + LINES;
/// Bytes of connections begin at a multiple of [`RING_BYTES`].
pub(crate) const BYTES: usize = RING_BYTES;
pub(crate) const HALF_LEN: u64 = BYTES as u64 + (CONNECTIONS * RING_BYTES) as u64;

const READY_LINE: usize = 64 * (1 + READY_WORDS / 8);
const BELL_LINE: usize = 64;
const QUEUE_LINE: usize = 256;
pub(crate) const READY_LINES: usize = HEADER_LEN;
pub(crate) const BELL_LINES: usize = READY_LINES + WAITERS * READY_LINE;
pub(crate) const QUEUE_LINES: usize = BELL_LINES + WAITERS * BELL_LINE;
pub(crate) const QUEUE_SLOTS: usize = QUEUE_LINES + LISTENERS * QUEUE_LINE;
pub(crate) const SIGNALS_LEN: usize = QUEUE_SLOTS + LISTENERS * QUEUE_LEN * 8;

pub(crate) const ENTRY_LINES: usize = HEADER_LEN;
/// A bit for each number of a listener that is taken, in the page of the directory's header.
pub(crate) const LISTENER_BITS: usize = 1024;
pub(crate) const WATCH_LINES: usize = ENTRY_LINES + ENTRIES * 64;
pub(crate) const WAITER_LINES: usize = WATCH_LINES + LISTENERS * 4096;
pub(crate) const AUDIENCE_LINES: usize = WAITER_LINES + WAITERS * 128;
pub(crate) const DIRECTORY_LEN: usize = AUDIENCE_LINES + AUDIENCES * WAITER_WORDS * 8;

pub(crate) const NUMBER_LINE: usize = HEADER_LEN;
pub(crate) const END_LINES: usize = NUMBER_LINE + 4096;
pub(crate) const ENDS_LEN: usize = END_LINES + CONNECTIONS * 384;

/// Bytes of rings that the node has in use, in the page of the journal's header.
pub(crate) const CHARGED_WORD: usize = 1024;
pub(crate) const JOURNAL_LINES: usize = HEADER_LEN;
pub(crate) const LOCAL_LINES: usize = JOURNAL_LINES + THREADS * 64;
pub(crate) const PORT_LINES: usize = LOCAL_LINES + WAITERS * 64;
/// A word for each bitmap of an audience: which thread takes it or gives it back.
pub(crate) const AUDIENCE_OWNERS: usize = PORT_LINES + PROCESSES * 64;
pub(crate) const JOURNAL_LEN: usize = AUDIENCE_OWNERS + AUDIENCES * 4;

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Header>() == 32 && offset_of!(Header, incarnation) == 16);
    assert!(offset_of!(Header, magic) == 0 && offset_of!(Header, version) == 8);
    assert!(offset_of!(Header, kind) == 12 && offset_of!(Header, generation) == 24);
    assert!(size_of::<WriteLine>() == 128 && size_of::<ReadLine>() == 128);
    assert!(size_of::<ArmLine>() == 128 && size_of::<RecordLine>() == 128);
    // What a message is told by lies in one cache line of 64 bytes.
    assert!(offset_of!(WriteLine, w) == 0 && offset_of!(WriteLine, layout) == 8);
    assert!(offset_of!(WriteLine, state) == 16 && offset_of!(WriteLine, urgent) == 24);
    assert!(offset_of!(ReadLine, r) == 0 && offset_of!(ReadLine, window) == 8);
    assert!(offset_of!(ReadLine, class_limit) == 16);
    assert!(offset_of!(ArmLine, read_generation) == 0 && offset_of!(ArmLine, read_mark) == 8);
    assert!(offset_of!(ArmLine, room_generation) == 16 && offset_of!(ArmLine, room_mark) == 24);
    assert!(offset_of!(ArmLine, audience) == 32 && offset_of!(ArmLine, closed) == 40);
    assert!(offset_of!(RecordLine, generation) == 0 && offset_of!(RecordLine, local) == 8);
    assert!(offset_of!(RecordLine, remote) == 24 && offset_of!(RecordLine, ports) == 40);
    assert!(offset_of!(RecordLine, listener) == 48);
    assert!(offset_of!(RecordLine, listener_generation) == 56);
    assert!(offset_of!(RecordLine, options) == 64 && offset_of!(RecordLine, iss) == 72);
    assert!(offset_of!(RecordLine, opened_ns) == 80);
    assert!(size_of::<ReadyLine>() == READY_LINE && offset_of!(ReadyLine, words) == 64);
    assert!(offset_of!(ReadyLine, summary) == 0 && offset_of!(ReadyLine, listeners) == 8);
    assert!(offset_of!(ReadyLine, reserved) == 16);
    assert!(size_of::<BellLine>() == BELL_LINE && offset_of!(BellLine, told) == 8);
    assert!(offset_of!(BellLine, bell) == 0 && offset_of!(BellLine, reserved) == 4);
    assert!(size_of::<QueueLine>() == QUEUE_LINE && offset_of!(QueueLine, head) == 128);
    assert!(offset_of!(QueueLine, tail) == 0 && offset_of!(QueueLine, reserved) == 8);
    assert!(size_of::<EntryLine>() == 64 && offset_of!(EntryLine, sequence) == 0);
    assert!(offset_of!(EntryLine, address) == 8 && offset_of!(EntryLine, port) == 24);
    assert!(offset_of!(EntryLine, generation) == 32 && offset_of!(EntryLine, listener) == 40);
    assert!(offset_of!(EntryLine, options) == 48 && offset_of!(EntryLine, window) == 56);
    assert!(size_of::<WatchLine>() == 4096 && offset_of!(WatchLine, exclusive) == 2048);
    assert!(offset_of!(WatchLine, all) == 0);
    assert!(size_of::<WaiterLine>() == 128 && offset_of!(WaiterLine, sleep) == 0);
    assert!(offset_of!(WaiterLine, bell) == 8 && offset_of!(WaiterLine, outer) == 16);
    assert!(size_of::<AudienceLine>() == WAITER_WORDS * 8 && offset_of!(AudienceLine, words) == 0);
    assert!(size_of::<NumberLine>() <= 4096 && offset_of!(NumberLine, users) == 512);
    assert!(offset_of!(NumberLine, taken) == 0);
    assert!(size_of::<WriterLine>() == 128 && size_of::<ReaderLine>() == 128);
    assert!(size_of::<StateLine>() == 128 && size_of::<EndLines>() == 384);
    assert!(offset_of!(EndLines, writer) == 0 && offset_of!(EndLines, reader) == 128);
    assert!(offset_of!(EndLines, state) == 256);
    assert!(JOURNAL_LEN.is_multiple_of(4096));
    assert!(size_of::<JournalLine>() == 64 && size_of::<LocalLine>() == 64);
    assert!(size_of::<PortLine>() == 64);
    assert!(HALF_LINES_LEN <= BYTES && BYTES.is_multiple_of(RING_BYTES));
    assert!(Class::M4.offset() + Class::M4.bytes() as usize == RING_BYTES);
    assert!(Class::K4.bytes() == 4096 && Class::M4.bytes() == 4 << 20);
    assert!(READY_LINES.is_multiple_of(4096) && BELL_LINES.is_multiple_of(4096));
    assert!(QUEUE_LINES.is_multiple_of(4096) && QUEUE_SLOTS.is_multiple_of(4096));
    assert!(WATCH_LINES.is_multiple_of(4096) && WAITER_LINES.is_multiple_of(4096));
};
