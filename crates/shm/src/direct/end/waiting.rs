//! Waiting: says what an end waits for, and looks at what there is.

use core::sync::atomic::Ordering::{Acquire, Relaxed};

use super::End;
use crate::direct::audience::{Audience, WaiterNumber};
use crate::direct::bank::Class;
use crate::direct::bitmaps;
use crate::direct::journal::Step;
use crate::direct::lines::{MOST_WINDOW, Room, StreamState, read_mark, room_mark};
use crate::direct::lock::{Reentered, ThreadNumber, lock, unlock_and_fence};

/// The events for which a waiter waits at an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// Bytes that have to be there: SO_RCVLOWAT or what a call wants, half of a ring at most.
    /// `None` if the waiter does not read.
    pub read: Option<u64>,
    /// Any new byte ends the wait, though those before it were not read: EPOLLET.
    pub edge: bool,
    /// A third of the room has to be free.
    pub room: bool,
}

/// The result of a look at an end. All of it may change at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Bytes that can be received.
    pub readable: u64,
    /// How the peer's stream ends, whether the bytes before were received or not.
    pub peer: StreamState,
    /// Bytes that can be sent.
    pub room: u64,
    /// Whether as much room is free as ends a wait for it.
    pub has_room: bool,
    /// Position after the peer's last urgent byte; 0 if there was none.
    pub urgent: u64,
    /// Whether the peer has closed its end: it will read nothing more.
    pub is_peer_closed: bool,
}

/// Why an end could not be armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArmError {
    /// More than four waiters watch the end, and the node has no bitmap left for them.
    #[error("too many connections are watched by too many waiters")]
    Audience,
    /// A signal handler has interrupted a call of the same thread.
    #[error(transparent)]
    Reentered(#[from] Reentered),
}

impl End<'_> {
    /// Looks at the end, without a lock. The result is a guess that is right unless something
    /// changes.
    pub fn look(&self) -> Look {
        let is_live = self.out.is_live();
        let peer = self.out.peer;
        let r = self.incoming.read.r.load(Relaxed);
        // The state first: the bytes before an end are seen with it.
        let state = peer.write.state.load(Acquire);
        let state = StreamState::from_word(state).unwrap_or(StreamState::Reset(r));
        let w = peer.write.w.load(Acquire);
        let room = self.out.room();
        let room = match room.free() {
            0 => self.guess_room(room, is_live),
            _ => room,
        };
        let mark = room_mark(room.w, room.layout, self.window());
        Look {
            readable: if is_live {
                w.saturating_sub(r).min(2 * MOST_WINDOW)
            } else {
                0
            },
            peer: if is_live { state } else { StreamState::Open },
            room: room.free(),
            has_room: room.free() > 0 && self.reader_position(is_live) >= mark,
            urgent: if is_live {
                peer.write.urgent.load(Acquire)
            } else {
                0
            },
            is_peer_closed: self.is_peer_closed(),
        }
    }

    fn window(&self) -> u64 {
        self.own.writer.window.load(Relaxed)
    }

    pub(super) fn reader_position(&self, is_live: bool) -> u64 {
        match is_live {
            true => self.out.peer.read.r.load(Acquire),
            false => 0,
        }
    }

    /// Room by the reader's present position, which is checked when it is written by.
    fn guess_room(&self, room: Room, is_live: bool) -> Room {
        if !is_live {
            return room;
        }
        let r = self.reader_position(is_live).min(room.w);
        let window = self.out.peer.read.window.load(Relaxed).min(MOST_WINDOW);
        room.with_reader(r, window)
    }

    /// Waits for something, as far as this end goes: from now on the peer tells the waiter. The
    /// waiter [sleeps](crate::direct::Waiters::begin_sleep) already, or is an instance whose bits are
    /// looked at before it sleeps. Returns a look that was made after that: what is not in it is
    /// told later.
    ///
    /// Every wait needs a new call, as does every return to one after the waiter was told.
    ///
    /// # Errors
    ///
    /// If the waiter cannot be told, or a signal handler has interrupted the same thread.
    pub fn arm(&self, thread: ThreadNumber, waiter: WaiterNumber, wish: Wish) -> Result<Look, ArmError> {
        let journal = self.bank.journal();
        let begun = journal.begin(thread, self.bank.place(self.id.number), Step::Arm);
        let word = &self.own.state.arm_lock;
        let armed = lock(word, thread).map_err(ArmError::from).and_then(|()| {
            let joined = self.join(thread, waiter);
            if let Ok(is_alone) = joined {
                self.set_marks(wish, is_alone);
            }
            unlock_and_fence(word);
            joined
        });
        journal.end(thread, begun);
        armed?;
        self.arming.fence();
        Ok(self.look())
    }

    /// Where several wait, any byte tells all of them. A mark would have to be no higher than any
    /// other's whose post is still under way. The peer may have loaded the old generation, and load
    /// the new mark.
    fn set_marks(&self, wish: Wish, is_alone: bool) {
        if let Some(low) = wish.read {
            let mark = if is_alone {
                self.read_mark(low, wish.edge)
            } else {
                0
            };
            self.arming.read(mark);
        }
        if wish.room {
            let room = self.out.room();
            let mark = if is_alone {
                room_mark(room.w, room.layout, self.window())
            } else {
                0
            };
            self.arming.room(mark);
        }
    }

    fn read_mark(&self, low: u64, edge: bool) -> u64 {
        let r = self.incoming.read.r.load(Relaxed);
        let seen = match edge && self.out.is_live() {
            true => self.out.peer.write.w.load(Acquire),
            false => r,
        };
        let layout = self.own.reader.layout.load(Relaxed);
        let class = Class::from_number(layout & 7).unwrap_or(Class::K4);
        read_mark(r, low, class, seen, edge)
    }

    /// Makes a waiter one of the audience. Returns whether it is alone there.
    fn join(&self, thread: ThreadNumber, waiter: WaiterNumber) -> Result<bool, ArmError> {
        let waiters = &self.bank.waiters;
        let audience = self.arming.audience();
        if let Some(bitmap) = audience.bitmap() {
            bitmaps::set(waiters, bitmap, waiter);
            return Ok(false);
        }
        // A thread that is awake waits nowhere, and comes again when it does.
        let kept =
            audience.retain(|other| other == waiter || waiters.has_bits(other) || waiters.is_asleep(other));
        let Some(joined) = kept.with(waiter) else {
            let members = kept.waiters().chain([waiter]);
            let given = bitmaps::give(waiters, thread, &self.arming, members);
            return given.then_some(false).ok_or(ArmError::Audience);
        };
        if joined != audience {
            self.arming.set_audience(joined);
        }
        Ok(joined.waiters().count() == 1)
    }

    /// Has the waiters of this end told when there is room again. For a call that has found none,
    /// while an instance that watches the end was told of room before.
    ///
    /// # Errors
    ///
    /// If a signal handler has interrupted a call of the same thread.
    pub fn want_room(&self, thread: ThreadNumber) -> Result<(), Reentered> {
        let audience = self.arming.audience();
        if audience == Audience::NONE {
            return Ok(());
        }
        let is_alone = audience.bitmap().is_none() && audience.waiters().count() == 1;
        let wish = Wish {
            read: None,
            edge: false,
            room: true,
        };
        let word = &self.own.state.arm_lock;
        let journal = self.bank.journal();
        let begun = journal.begin(thread, self.bank.place(self.id.number), Step::Arm);
        let locked = lock(word, thread);
        if locked.is_ok() {
            self.set_marks(wish, is_alone);
            unlock_and_fence(word);
        }
        journal.end(thread, begun);
        locked?;
        self.arming.fence();
        if self.look().has_room {
            self.rouse();
        }
        Ok(())
    }

    /// Tells a waiter no more of this end.
    ///
    /// # Errors
    ///
    /// If a signal handler has interrupted a call of the same thread.
    pub fn disarm(&self, thread: ThreadNumber, waiter: WaiterNumber) -> Result<(), Reentered> {
        let journal = self.bank.journal();
        let begun = journal.begin(thread, self.bank.place(self.id.number), Step::Arm);
        let word = &self.own.state.arm_lock;
        let locked = lock(word, thread);
        if locked.is_ok() {
            let audience = self.arming.audience();
            match audience.bitmap() {
                Some(bitmap) => bitmaps::clear(&self.bank.waiters, bitmap, waiter),
                None => self.arming.set_audience(audience.retain(|other| other != waiter)),
            }
            unlock_and_fence(word);
        }
        journal.end(thread, begun);
        locked
    }
}
