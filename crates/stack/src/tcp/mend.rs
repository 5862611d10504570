//! Repairs a stack whose holder was killed in the middle of a change.
//!
//! A process that changes a control block announces it first, in one word: the *suspect*. All other
//! blocks are consistent at any moment, and so are the bytes and segment records that they alone
//! own. The repair rebuilds the links between blocks: lists, chains, tables, counts and free
//! memory. The suspect may be in any state and is reset. Its bytes stay until its peer can no
//! longer read them. If other damage is found, the stack is not repaired: no part of it can be
//! trusted.

use core::sync::atomic::Ordering::Release;
use core::sync::atomic::compiler_fence;

use toehold_shm::{ByteQueue, Direction, NONE, Plain, Slab};
use toehold_wire::tcp::Seq;

use super::Tcp;
use super::pcb::{Pcb, State, flag};
use crate::Stack;
use crate::socket::{Change, Event, SocketError, setting};
use crate::time::Instant;

/// Set in the suspect's word for a listener. The bits above it name the process that is changing
/// it. Changes of other processes are complete, since they have released the lease.
const LISTENER: u64 = 1 << 32;
const PROCESS_SHIFT: u32 = 48;

/// Flags that tell on which lists a block is.
const LISTED: u32 = flag::ON_READY | flag::ON_NEIGHBOR | flag::ON_EVENTS;

/// What a suspect keeps of its flags.
const KEPT: u32 = flag::RELEASED
    | flag::IN_ACCEPT_QUEUE
    | flag::PASSIVE
    | flag::TIMESTAMPS
    | flag::WINDOW_SCALING
    | flag::FIN_RECEIVED
    | flag::READ_SHUT;

/// Most sequence numbers of one segment, including its FIN.
const LONGEST_SEGMENT: u32 = 1 << 16;

/// The damage to the stack exceeds the block that was being changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stack is damaged in more than what was just being changed")]
pub struct Damaged;

impl Stack {
    /// Sets the number of the process that uses this handle, among the processes that share the
    /// stack. The default is 0.
    pub fn set_process(&mut self, process: u16) {
        self.tcp.process = u64::from(process) << PROCESS_SHIFT;
    }

    /// Repairs the stack after the process that held it died. The connection that was being changed
    /// is reset; all others continue. Threads that wait for any connection are woken, since it may
    /// have changed. Returns the object that was being changed, which may be unknown to any program
    /// yet.
    ///
    /// The caller must first take the dead process's locks of lanes
    /// ([`Channels::mend`](toehold_shm::Channels::mend),
    /// [`Channels::bury`](toehold_shm::Channels::bury)).
    ///
    /// # Errors
    ///
    /// [`Damaged`]: the stack cannot be used any more.
    pub fn mend(&mut self, dead: u16) -> Result<Option<Event>, Damaged> {
        self.ip.mend();
        self.tcp.mend(dead)
    }
}

impl Tcp {
    /// Announces that a block is being changed, and no other one any more.
    #[inline]
    pub(crate) fn touch(&mut self, index: u32) {
        self.suspect(self.process | (u64::from(index) + 1));
    }

    /// Announces that a listener is being created.
    pub(super) fn touch_listener(&mut self, index: u32) {
        self.suspect(self.process | LISTENER | (u64::from(index) + 1));
    }

    /// Announces that no block is being changed.
    #[inline]
    pub(crate) fn touch_nothing(&mut self) {
        self.suspect(0);
    }

    #[inline]
    fn suspect(&mut self, suspect: u64) {
        // Orders earlier changes before the word, and later changes after it.
        compiler_fence(Release);
        self.state[0].suspect = suspect;
        compiler_fence(Release);
    }

    /// Announces up to which number a connection is about to send new data.
    #[inline]
    pub(super) fn note_sending(&mut self, index: u32, end: Seq) {
        self.state[0].sending = u64::from(index) << 32 | u64::from(end.0);
        compiler_fence(Release);
    }

    fn mend(&mut self, dead: u16) -> Result<Option<Event>, Damaged> {
        let word = std::mem::take(&mut self.state[0].suspect);
        let suspect = (word as u32).checked_sub(1);
        let suspect = suspect.filter(|_| word >> PROCESS_SHIFT == u64::from(dead));
        let listener = suspect.filter(|_| word & LISTENER != 0);
        let connection = suspect.filter(|_| word & LISTENER == 0);
        self.drop_remains(connection);
        let wreck = connection.filter(|&index| self.pcbs.is_live(index));
        self.mend_channels(wreck)?;
        if let Some(index) = wreck {
            self.strip(index);
        }
        self.mend_memory(wreck)?;
        self.mend_lists();
        self.mend_demux()?;
        self.mend_listeners();
        Ok(match (wreck, listener) {
            (Some(index), _) => Some(Event::Connection(self.connection_id(index))),
            (None, Some(index)) => self.listeners.event_of(index),
            (None, None) => None,
        })
    }

    /// Drops blocks that have no owner and were only waiting to be freed.
    fn drop_remains(&mut self, suspect: Option<u32>) {
        let stays = |index: u32, pcb: &Pcb| {
            let needed = flag::IN_ACCEPT_QUEUE | flag::RESET | flag::FENCE_WANTED | flag::IN_DEFERRED_FREE;
            let over = pcb.state() == State::Closed && pcb.has(flag::RELEASED) && !pcb.has(needed);
            pcb.generation != 0 && (!over || Some(index) == suspect)
        };
        let live = self.pcbs.iter_live();
        let gone: Vec<u32> = live
            .filter(|&(index, pcb)| !stays(index, pcb))
            .map(|(index, _)| index)
            .collect();
        gone.iter().for_each(|&index| self.pcbs[index].generation = 0);
        self.pcbs.mend(|_, pcb| pcb.generation != 0);
    }

    /// Closes the channels without a connection, and the suspect's channel unless a process copies
    /// along it.
    fn mend_channels(&mut self, wreck: Option<u32>) -> Result<(), Damaged> {
        let open: Vec<u32> = self
            .open_channels
            .iter_live()
            .map(|(channel, _)| channel)
            .collect();
        for channel in open {
            let lanes = [Direction::Send, Direction::Receive].map(|way| self.channels.lane(channel, way));
            let owner = self.owner_of(channel);
            if owner.is_some() && owner != wreck {
                continue;
            }
            if !lanes.iter().flatten().all(|lane| lane.enter()) {
                return Err(Damaged);
            }
            self.channels.end(channel);
            for lane in lanes.into_iter().flatten() {
                // The end of the channel wakes a process that wanted it in the meantime.
                let _ = lane.leave();
            }
            self.open_channels[channel].connection = NONE;
        }
        self.open_channels.mend(|_, channel| channel.connection != NONE);
        self.channels.press(false);
        Ok(())
    }

    /// Reduces a block to the state that its program and its peer need to learn of the reset.
    fn strip(&mut self, index: u32) {
        let sending = self.state[0].sending;
        let pcb = &mut self.pcbs[index];
        let empty = Pcb::new(pcb.tuple, pcb.generation, pcb.settings);
        let knows_peer = !matches!(pcb.state(), State::Closed | State::SynSent);
        // A connection in the middle of accept has lost its listener.
        let awaits_accept = pcb.has(flag::IN_ACCEPT_QUEUE) && pcb.listener != NONE;
        pcb.flags = pcb.flags & KEPT | flag::FIN_QUEUED | flag::FENCE_WANTED;
        if knows_peer {
            pcb.set(flag::RESET);
        }
        // If its last segment left and that was not noted, the peer expects the number behind it.
        let is_its = sending >> 32 == u64::from(index);
        let end = Seq(sending as u32);
        let unnoted = (1..=LONGEST_SEGMENT).contains(&end.after(pcb.snd_nxt));
        pcb.snd_una = if is_its && unnoted { end } else { pcb.snd_nxt };
        if pcb.error == 0 {
            pcb.error = SocketError::ConnectionReset as u8;
        }
        pcb.set_state(State::Closed);
        pcb.repair_raw = empty.repair_raw;
        pcb.timer_raw = empty.timer_raw;
        pcb.urgent_state = empty.urgent_state;
        pcb.settings.bits &= !(setting::CHANNEL | setting::FAST_OPEN | setting::MORE_ANNOUNCED);
        if !awaits_accept {
            pcb.listener = NONE;
            pcb.clear(flag::IN_ACCEPT_QUEUE);
        }
        (pcb.send_queue, pcb.receive_queue) = (ByteQueue::EMPTY, ByteQueue::EMPTY);
        (pcb.ranges, pcb.latest_range) = (NONE, NONE);
        (pcb.sent_head, pcb.sent_tail, pcb.flight) = (NONE, NONE, NONE);
        (pcb.sacked, pcb.lost) = (0, 0);
        pcb.accept_next = NONE;
        (pcb.retransmit_at, pcb.ack_at, pcb.life_at) = (Instant::NEVER, Instant::NEVER, Instant::NEVER);
        (pcb.wheel_at, pcb.waiting_since) = (Instant::NEVER, Instant::NEVER);
    }

    /// Frees memory that no block owns. Bytes that are in no queue are the suspect's.
    fn mend_memory(&mut self, wreck: Option<u32>) -> Result<(), Damaged> {
        let mut owned = Vec::new();
        let mut sent = Owned::of(&self.scoreboard.sent);
        let mut flights = Owned::of(&self.scoreboard.flights);
        let mut ranges = Owned::of(&self.ranges.ranges);
        let mut ends = Owned::of(&self.record_ends.ends);
        for (index, pcb) in self.pcbs.iter_live() {
            if Some(index) == wreck {
                continue;
            }
            let whole = pcb.send_queue.claim_blocks(&self.payload, &mut owned)
                && pcb.receive_queue.claim_blocks(&self.payload, &mut owned)
                && sent.claim_list(&self.scoreboard.sent, pcb.sent_head, |record| record.next)
                    == Some(pcb.sent_tail)
                && ranges
                    .claim_list(&self.ranges.ranges, pcb.ranges, |range| range.next)
                    .is_some()
                && (pcb.flight == NONE || flights.claim(&self.scoreboard.flights, pcb.flight))
                && ends.claim_ring(&self.record_ends.ends, pcb.record_end(), |end| end.next);
            if !whole {
                return Err(Damaged);
            }
        }
        self.scoreboard.sent.mend(|index, _| sent.has(index));
        self.scoreboard.flights.mend(|index, _| flights.has(index));
        self.ranges.ranges.mend(|index, _| ranges.has(index));
        self.record_ends.ends.mend(|index, _| ends.has(index));
        self.deferred_free.mend(|_, _| false);
        let state = &mut self.state[0];
        state.loopback = ByteQueue::EMPTY;
        state.loopback_taken = state.loopback_sent;
        let stray = self.payload.mend(&owned);
        let mut stray = ByteQueue::of_chain(&self.payload, stray);
        match wreck {
            Some(index) => self.pcbs[index].send_queue = stray,
            None => stray.clear(&mut self.payload),
        }
        Ok(())
    }

    /// Puts every block on the lists of blocks that may have data to send or events, and on the
    /// wheel. Blocks that waited before wait again.
    fn mend_lists(&mut self) {
        let state = &mut self.state[0];
        (state.ready_head, state.ready_tail) = (NONE, NONE);
        (state.event_head, state.event_tail) = (NONE, NONE);
        state.deferred_head = NONE;
        (state.reply_head, state.reply_tail) = (0, 0);
        (state.memory_waiters, state.memory_waiters_tail) = (0, 0);
        (state.memory_first_passed, state.memory_too_little) = (0, 0);
        self.wheel.forget(0..self.pcbs.touched());
        for index in self.live() {
            let pcb = &mut self.pcbs[index];
            if pcb.has(flag::IN_DEFERRED_FREE) {
                pcb.set(flag::FENCE_WANTED);
            }
            pcb.clear(LISTED | flag::IN_DEFERRED_FREE);
            (pcb.ready_next, pcb.event_next, pcb.memory_next) = (NONE, NONE, 0);
            let wheel_at = pcb.wheel_at;
            if wheel_at.is_set() {
                self.wheel.schedule(index, wheel_at);
            }
            self.mark_ready(index);
            self.mark_event(index, Change::DATA.and(Change::ROOM).and(Change::STATE));
        }
    }

    /// Rebuilds every listener's accept queue, in the order of arrival.
    fn mend_listeners(&mut self) {
        self.listeners.mend();
        let mut waiting: Vec<(u32, u32)> = Vec::new();
        for index in self.live() {
            let pcb = &self.pcbs[index];
            let Some(listener) = self.listeners.get_mut(pcb.listener) else {
                continue;
            };
            if pcb.has(flag::IN_ACCEPT_QUEUE) {
                waiting.push((pcb.generation, index));
            }
            listener.count(pcb);
        }
        waiting.sort_unstable();
        for (_, index) in waiting {
            self.enqueue_accepted(self.pcbs[index].listener, index);
        }
        for index in 0..self.listeners.capacity() {
            match self.listeners[index].is_open() {
                true => self.mark_listener_event(index),
                false if self.listeners[index].has_connections() => self.scatter(index),
                false => {}
            }
        }
    }

    /// Enters all flows into the demultiplexer.
    fn mend_demux(&mut self) -> Result<(), Damaged> {
        self.demux.forget();
        for index in self.live() {
            if self.pcbs[index].state() != State::Closed {
                self.enter_flow(index).map_err(|_| Damaged)?;
            }
        }
        for number in self.time_waits.mend() {
            self.enter_flow(self.pcbs.capacity() + number)
                .map_err(|_| Damaged)?;
        }
        Ok(())
    }

    fn live(&self) -> Vec<u32> {
        self.pcbs.iter_live().map(|(index, _)| index).collect()
    }
}

/// The records of a slab that belong to a block.
struct Owned(Vec<bool>);

impl Owned {
    fn of<T: Plain>(slab: &Slab<T>) -> Self {
        Self(vec![false; slab.touched() as usize])
    }

    fn has(&self, index: u32) -> bool {
        self.0.get(index as usize) == Some(&true)
    }

    /// Claims a record for a block. Returns `false` if there is no such record, or another block
    /// owns it.
    fn claim<T: Plain>(&mut self, slab: &Slab<T>, index: u32) -> bool {
        let place = self.0.get_mut(index as usize);
        match place.filter(|owned| slab.is_live(index) && !**owned) {
            Some(owned) => {
                *owned = true;
                true
            }
            None => false,
        }
    }

    /// Claims the records of a list. Returns the last one, or [`NONE`]; `None` if one could not be
    /// claimed.
    fn claim_list<T: Plain>(&mut self, slab: &Slab<T>, first: u32, next: impl Fn(&T) -> u32) -> Option<u32> {
        let (mut last, mut at) = (NONE, first);
        while at != NONE {
            if !self.claim(slab, at) {
                return None;
            }
            (last, at) = (at, next(&slab[at]));
        }
        Some(last)
    }

    /// Claims the records of a ring, of which one is known.
    fn claim_ring<T: Plain>(&mut self, slab: &Slab<T>, one: u32, next: impl Fn(&T) -> u32) -> bool {
        let mut at = one;
        while at != NONE {
            if !self.claim(slab, at) {
                return false;
            }
            at = next(&slab[at]);
            if at == one {
                break;
            }
        }
        true
    }
}
