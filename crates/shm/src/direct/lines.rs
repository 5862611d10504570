//! The words of an end: how far it has written and read, and what it waits for.
//!
//! No byte of a stream is touched here, so that the very same code runs under loom. Three ways
//! in which one end waits for the other:
//!
//! - Bytes become visible when `w` is stored (release); the reader loads it (acquire).
//! - Space becomes free when `r` is stored (release); the writer loads it (acquire) when it
//!   seems out of space.
//! - An end that waits stores marks and audience, then a new generation (release), fences, and
//!   looks once more. The other end stores its position, fences, and loads the generation
//!   (acquire), then mark and audience. Of two ends that both have fenced, at least one sees
//!   what the other stored before. A generation that was posted for is remembered, so that
//!   a wait is told once; a generation never comes again.
//!
//! Words that the peer has written are loaded once and checked against those seen before.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::audience::Audience;
use super::bank::{ArmLine, Class, ReadLine, ReaderLine, RecordLine, WriteLine, WriterLine};
use super::lock::full_fence;

/// The largest window, which an end may grant and which a peer is believed.
pub const MOST_WINDOW: u64 = 4 << 20;

/// Bytes that may be written before the accepting end has said what its window is.
pub(super) const FIRST_WINDOW: u64 = MOST_WINDOW;

/// A rule that a peer has broken. The connection is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Offence {
    /// The peer has written backwards, or more than its rings hold.
    #[error("the peer's write position is none that it can have")]
    WritePosition,
    /// The peer has read backwards, or more than was written.
    #[error("the peer's read position is none that it can have")]
    ReadPosition,
    /// The peer writes to a ring of an unknown or too large class, or changed rings too early.
    #[error("the peer's ring is none that it can have")]
    Layout,
    /// The peer's stream ends before what was read of it, or in an unknown way.
    #[error("the peer's end of stream is none that it can have")]
    End,
}

/// How a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamState {
    /// More bytes may come.
    Open,
    /// Nothing comes after this position.
    Fin(u64),
    /// The connection was reset after this position.
    Reset(u64),
}

impl StreamState {
    pub(super) fn to_word(self) -> u64 {
        match self {
            StreamState::Open => 0,
            StreamState::Fin(position) => 1 | position << 2,
            StreamState::Reset(position) => 2 | position << 2,
        }
    }

    pub(super) fn from_word(word: u64) -> Option<StreamState> {
        match word & 3 {
            0 => Some(StreamState::Open),
            1 => Some(StreamState::Fin(word >> 2)),
            2 => Some(StreamState::Reset(word >> 2)),
            _ => None,
        }
    }
}

/// In which ring bytes lie: those below `from` in that of the class before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) class: Class,
    pub(super) from: u64,
}

impl Layout {
    #[inline]
    pub(super) fn to_word(self) -> u64 {
        self.class as u64 | self.from << 3
    }

    #[inline]
    pub(super) fn from_word(word: u64) -> Option<Layout> {
        let class = Class::from_number(word & 7)?;
        Some(Layout {
            class,
            from: word >> 3,
        })
    }
}

/// The waiters to tell, and the generation that they are told with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) audience: Audience,
    generation: u64,
}

/// The peer's lines of one connection. They are only loaded from.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerLines<'a> {
    pub(super) write: &'a WriteLine,
    pub(super) read: &'a ReadLine,
    pub(super) arm: &'a ArmLine,
    pub(super) record: &'a RecordLine,
}

impl PeerLines<'_> {
    /// Whether the peer's lines are of this connection: until it has stored its record, they
    /// are of an earlier one.
    #[inline]
    fn is_of(&self, generation: u32) -> bool {
        self.record.generation.load(Acquire) == u64::from(generation)
    }
}

/// A direction as its writer has it. All calls but those after the unlocking are made with the
/// write lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) own: &'a WriterLine,
    pub(super) write: &'a WriteLine,
    pub(super) peer: PeerLines<'a>,
    pub(super) generation: u32,
}

/// Where a writer is, and how much it may write there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) w: u64,
    pub(super) layout: Layout,
    /// The peer's read position, as last seen.
    r: u64,
    /// Bytes that the reader's window leaves.
    by_window: u64,
    /// Bytes that the ring leaves.
    by_ring: u64,
}

impl Room {
    /// Bytes that may be written now.
    #[inline]
    pub(super) fn free(&self) -> u64 {
        self.by_window.min(self.by_ring)
    }

    /// The room there would be if the reader were at `r` and had that window.
    pub(super) fn with_reader(self, r: u64, window: u64) -> Room {
        let in_ring = self.w.saturating_sub(r.max(self.layout.from));
        Room {
            r,
            by_window: window.saturating_sub(self.w.wrapping_sub(r)),
            by_ring: self.layout.class.bytes().saturating_sub(in_ring),
            ..self
        }
    }

    /// Whether the reader has read all bytes.
    pub(super) fn is_read(&self) -> bool {
        self.r == self.w && self.r >= self.layout.from
    }

    /// Whether a larger ring would leave more room, and may be taken now.
    pub(super) fn wants_larger(&self) -> bool {
        self.by_ring == 0 && self.by_window != 0 && self.r >= self.layout.from
    }
}

impl<'a> Outgoing<'a> {
    /// Makes the lines those of a new connection. The peer reads none of them before the record
    /// is stored with the new generation.
    pub(super) fn begin(&self, class: Class) {
        let own = self.own;
        for word in [&own.seen, &own.live, &own.full_since] {
            word.store(0, Relaxed);
        }
        own.window.store(FIRST_WINDOW, Relaxed);
        let write = self.write;
        for word in [&write.w, &write.state, &write.urgent] {
            word.store(0, Relaxed);
        }
        let layout = Layout { class, from: 0 };
        write.layout.store(layout.to_word(), Relaxed);
    }

    #[inline]
    fn layout(&self) -> Layout {
        let word = self.write.layout.load(Relaxed);
        // The node's own word: should a process of it have written nonsense, nothing is read or
        // written outside of the rings all the same.
        Layout::from_word(word).unwrap_or(Layout {
            class: Class::K4,
            from: word >> 3,
        })
    }

    /// Whether the peer's lines are of this connection already.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        let generation = u64::from(self.generation);
        if self.own.live.load(Relaxed) == generation {
            return true;
        }
        let is_live = self.peer.is_of(self.generation);
        if is_live {
            self.own.live.store(generation, Relaxed);
        }
        is_live
    }

    /// The room there is, by what was last seen of the reader.
    #[inline]
    pub(super) fn room(&self) -> Room {
        let room = Room {
            w: self.write.w.load(Relaxed),
            layout: self.layout(),
            r: 0,
            by_window: 0,
            by_ring: 0,
        };
        room.with_reader(self.own.seen.load(Relaxed), self.own.window.load(Relaxed))
    }

    /// The room there is, after a look at what the reader says.
    pub(super) fn reload(&self) -> Result<Room, Offence> {
        if self.is_live() {
            let r = self.peer.read.r.load(Acquire);
            let seen = self.own.seen.load(Relaxed);
            if r < seen || r > self.write.w.load(Relaxed) {
                return Err(Offence::ReadPosition);
            }
            let window = self.peer.read.window.load(Relaxed);
            self.own.seen.store(r, Relaxed);
            self.own.window.store(window.min(MOST_WINDOW), Relaxed);
        }
        Ok(self.room())
    }

    /// The largest class that the reader maps: `first`, until it says so.
    pub(super) fn class_limit(&self, first: Class) -> Class {
        if !self.is_live() {
            return first;
        }
        let limit = self.peer.read.class_limit.load(Relaxed);
        Class::from_number(limit).unwrap_or(Class::K4)
    }

    /// Continues in another ring. To be called when the reader has read all that lies in the
    /// ring before this one: `r ≥ from`.
    pub(super) fn change_class(&self, class: Class) {
        let from = self.write.w.load(Relaxed);
        let layout = Layout { class, from };
        self.write.layout.store(layout.to_word(), Release);
    }

    /// Makes bytes visible that were copied behind `w`.
    #[inline]
    pub(super) fn publish(&self, w: u64) {
        self.write.w.store(w, Release);
    }

    /// Ends the stream: after the bytes written so far there is this.
    pub(super) fn set_state(&self, state: StreamState) {
        self.write.state.store(state.to_word(), Release);
    }

    /// Whether the stream was ended by this side.
    #[inline]
    pub(super) fn state(&self) -> StreamState {
        StreamState::from_word(self.write.state.load(Relaxed)).unwrap_or(StreamState::Open)
    }

    /// Returns the waiters to tell of bytes up to `w`; `is_full` if there is no room behind them.
    /// After the lock was given back with its fence.
    #[inline]
    pub(super) fn due(&self, w: u64, is_full: bool) -> Option<Due> {
        if !self.is_live() {
            return None;
        }
        let arm = self.peer.arm;
        let generation = arm.read_generation.load(Acquire);
        if generation == self.own.posted.load(Relaxed) {
            return None;
        }
        if arm.read_mark.load(Relaxed) > w && !is_full {
            return None;
        }
        Some(due(arm, generation))
    }

    /// Returns the waiters to tell of a change that is no position: the end of a stream, urgent
    /// bytes, the window, a closed end. After a fence.
    pub(super) fn due_always(&self) -> Option<Due> {
        let arm = self.peer.arm;
        self.is_live()
            .then(|| due(arm, arm.read_generation.load(Acquire)))
    }

    /// The audience was told.
    #[inline]
    pub(super) fn told(&self, due: Due) {
        self.own.posted.store(due.generation, Release);
    }
}

fn due(arm: &ArmLine, generation: u64) -> Due {
    Due {
        audience: Audience::from_word(arm.audience.load(Relaxed)),
        generation,
    }
}

/// A direction as its reader has it. All calls but those after the unlocking are made with the
/// read lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Incoming<'a> {
    pub(super) own: &'a ReaderLine,
    pub(super) read: &'a ReadLine,
    pub(super) peer: PeerLines<'a>,
}

/// The bytes that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Available {
    /// This end's read position.
    pub(super) r: u64,
    /// The peer's write position, checked.
    pub(super) w: u64,
    /// Bytes from `from` on lie in this class's ring, those below in `former`'s.
    pub(super) layout: Layout,
    pub(super) former: Class,
}

impl Available {
    /// Bytes that can be read.
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.w - self.r
    }
}

impl<'a> Incoming<'a> {
    /// Makes the lines those of a new connection. The peer reads none of them before the record
    /// is stored with the new generation.
    pub(super) fn begin(&self, window: u64, class_limit: Class, peer_class: Class) {
        let own = self.own;
        own.seen.store(0, Relaxed);
        let layout = Layout {
            class: peer_class,
            from: 0,
        };
        own.layout.store(layout.to_word(), Relaxed);
        own.former.store(peer_class as u64, Relaxed);
        own.told.store(0, Relaxed);
        let read = self.read;
        read.r.store(0, Relaxed);
        read.window.store(window.min(MOST_WINDOW), Relaxed);
        read.class_limit.store(class_limit as u64, Relaxed);
    }

    /// The bytes that can be read. Returns `Ok(None)` if the peer has not accepted the connection.
    #[inline]
    pub(super) fn available(&self, is_live: bool) -> Result<Option<Available>, Offence> {
        if !is_live {
            return Ok(None);
        }
        let r = self.read.r.load(Relaxed);
        let seen = self.own.seen.load(Relaxed);
        let mut w = self.peer.write.w.load(Acquire);
        let word = self.peer.write.layout.load(Acquire);
        if word != self.own.layout.load(Relaxed) {
            w = self.take_layout(word, w, r, seen)?;
        }
        // Own words, see `Outgoing::layout`.
        let layout = Layout::from_word(word).ok_or(Offence::Layout)?;
        let former = Class::from_number(self.own.former.load(Relaxed)).ok_or(Offence::Layout)?;
        if w != seen {
            let in_ring = w.checked_sub(r.max(layout.from)).ok_or(Offence::WritePosition)?;
            let before = layout.from.saturating_sub(r);
            if w < seen || in_ring > layout.class.bytes() || before > former.bytes() {
                return Err(Offence::WritePosition);
            }
            self.own.seen.store(w, Relaxed);
        }
        if w < r {
            return Err(Offence::WritePosition);
        }
        Ok(Some(Available { r, w, layout, former }))
    }

    /// Checks a layout that was not seen before, and returns a write position that was loaded
    /// after it if that is needed.
    #[cold]
    fn take_layout(&self, word: u64, w: u64, r: u64, seen: u64) -> Result<u64, Offence> {
        let limit = self.read.class_limit.load(Relaxed);
        let new = Layout::from_word(word).filter(|new| new.class as u64 <= limit);
        let new = new.ok_or(Offence::Layout)?;
        let old = Layout::from_word(self.own.layout.load(Relaxed)).ok_or(Offence::Layout)?;
        // What was seen before lay in the old ring, and the writer waits until all that lies in
        // the ring before that was read.
        if r < old.from || new.from < seen {
            return Err(Offence::Layout);
        }
        // The layout may be newer than the position, which the writer has stored before it.
        let w = match w < new.from {
            true => self.peer.write.w.load(Acquire),
            false => w,
        };
        if w < new.from {
            return Err(Offence::Layout);
        }
        self.own.former.store(old.class as u64, Relaxed);
        self.own.layout.store(word, Relaxed);
        Ok(w)
    }

    /// How the peer's stream ends, if all bytes before the end were read. To be asked when
    /// [`available`](Self::available) has found none at `r`; `None` if there may be bytes.
    pub(super) fn end(&self, r: u64) -> Result<Option<StreamState>, Offence> {
        let word = self.peer.write.state.load(Acquire);
        match StreamState::from_word(word).ok_or(Offence::End)? {
            StreamState::Open => Ok(Some(StreamState::Open)),
            StreamState::Fin(at) | StreamState::Reset(at) if at < r => Err(Offence::End),
            StreamState::Fin(at) | StreamState::Reset(at) if at > r => Ok(None),
            end => Ok(Some(end)),
        }
    }

    /// Gives bytes up to `r` back to the writer.
    #[inline]
    pub(super) fn release(&self, r: u64) {
        self.read.r.store(r, Release);
    }

    /// Returns the waiters to tell that bytes up to `r` were read. After the lock was given back
    /// with its fence.
    #[inline]
    pub(super) fn due(&self, r: u64) -> Option<Due> {
        let arm = self.peer.arm;
        let generation = arm.room_generation.load(Acquire);
        if generation == self.own.posted.load(Relaxed) || arm.room_mark.load(Relaxed) > r {
            return None;
        }
        Some(due(arm, generation))
    }

    /// The audience was told.
    #[inline]
    pub(super) fn told(&self, due: Due) {
        self.own.posted.store(due.generation, Release);
    }
}

/// The waits of an end. All calls are made with its arm lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arming<'a> {
    pub(super) arm: &'a ArmLine,
}

impl Arming<'_> {
    /// Nothing is waited for. The generations go on.
    pub(super) fn begin(&self) {
        self.arm.audience.store(0, Relaxed);
        self.arm.read_mark.store(u64::MAX, Relaxed);
        self.arm.room_mark.store(u64::MAX, Relaxed);
    }

    #[inline]
    pub(super) fn audience(&self) -> Audience {
        Audience::from_word(self.arm.audience.load(Relaxed))
    }

    /// Changes which waiters are told. Precedes the arming that the newcomer relies on.
    #[inline]
    pub(super) fn set_audience(&self, audience: Audience) {
        self.arm.audience.store(audience.to_word(), Release);
    }

    /// Waits until the peer has written up to `mark`.
    #[inline]
    pub(super) fn read(&self, mark: u64) {
        self.arm.read_mark.store(mark, Relaxed);
        let generation = self.arm.read_generation.load(Relaxed).wrapping_add(1);
        self.arm.read_generation.store(generation, Release);
    }

    /// Waits until the peer has read up to `mark`.
    #[inline]
    pub(super) fn room(&self, mark: u64) {
        self.arm.room_mark.store(mark, Relaxed);
        let generation = self.arm.room_generation.load(Relaxed).wrapping_add(1);
        self.arm.room_generation.store(generation, Release);
    }

    /// Precedes the look at what the end waits for.
    #[inline]
    pub(super) fn fence(&self) {
        full_fence();
    }
}

/// The peer's `w` from which on a wait for `low` bytes is over, for a waiter that has seen the
/// bytes up to `seen`. `edge`: any new byte ends it. A mark never lies beyond half of the
/// class, or a full ring and a high mark would wait for each other.
pub(super) fn read_mark(r: u64, low: u64, class: Class, seen: u64, edge: bool) -> u64 {
    let mark = r.saturating_add(low.clamp(1, class.bytes() / 2));
    if edge {
        mark.max(seen.saturating_add(1))
    } else {
        mark
    }
}

/// The peer's `r` from which on a wait for room is over. From there on, a third of what the
/// reader's window and the ring allow is free.
pub(super) fn room_mark(w: u64, layout: Layout, window: u64) -> u64 {
    let third = window.min(layout.class.bytes()) / 3;
    let by_window = w.saturating_add(third).saturating_sub(window);
    let left = layout.class.bytes().saturating_sub(w.saturating_sub(layout.from));
    let by_ring = match left >= third {
        true => 0,
        false => w.saturating_add(third).saturating_sub(layout.class.bytes()),
    };
    // With a window of 0 the peer tells when that changes.
    by_window.max(by_ring).min(w)
}
