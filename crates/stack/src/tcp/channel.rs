//! Channels: the ends of the two queues that a program uses without the lease.
//!
//! Memory behind the end of the send queue is *claimed* for the program to fill. The next holder of
//! the lease *absorbs* the filled bytes into the queue. The program reads at the head of the
//! receive queue; the bytes it has read are absorbed likewise. The stack *publishes* the state of a
//! queue with every event of the connection, and after every absorption.
//!
//! No other process touches published bytes until they are absorbed, even if the connection ends.
//! Their blocks stay in the queue until the program has released them.

use toehold_shm::{Direction, Lane, LaneState};

use super::Tcp;
use super::memory::room_of;
use super::open_channel::Channel;
use super::pcb::{Pcb, State, flag, urgent as urgent_state};
use crate::socket::{Change, Event, SocketError, setting};
use toehold_shm::NONE;

/// Most bytes claimed ahead, which a program may write before the stack absorbs them.
const MOST_AHEAD: u32 = 256 << 10;

/// Most bytes that a program reads without a request, so that their memory returns.
const MOST_UNTOLD: u32 = 64 << 10;

impl Tcp {
    fn lane(&self, channel: u32, direction: Direction) -> Option<Lane<'_>> {
        self.channels.lane(channel, direction)
    }

    /// The channel of a connection, opened if necessary and possible.
    pub(crate) fn open_channel(&mut self, index: u32) -> Option<u32> {
        let pcb = &self.pcbs[index];
        if let Some(channel) = pcb.channel() {
            return Some(channel);
        }
        // The field of the channel's number may still hold the listener's.
        if !pcb.state().is_synchronized() || pcb.listener != NONE || pcb.has(flag::IN_ACCEPT_QUEUE) {
            return None;
        }
        let sent = pcb.send_queue.within(&self.payload, pcb.send_queue.len()) as u64;
        let read = pcb.receive_queue.within(&self.payload, 0) as u64;
        let channel = self.open_channels.insert(Channel {
            sent,
            send_limit: sent,
            read,
            receive_limit: read,
            connection: index,
            ahead: self.payload.block_len() as u32,
            hungry: 0,
            entered_with: 0,
        })?;
        let owner = Event::Connection(self.connection_id(index)).word();
        self.channels.begin(channel, owner, [sent, read]);
        let pcb = &mut self.pcbs[index];
        pcb.listener = channel;
        pcb.settings.set(setting::CHANNEL, true);
        self.publish(index);
        Some(channel)
    }

    /// Closes the channel after the program has closed the connection: absorbs the last written
    /// bytes, and frees claimed memory.
    pub(crate) fn close_channel(&mut self, index: u32) {
        let Some(channel) = self.pcbs[index].channel() else {
            return;
        };
        self.absorb(index);
        let pcb = &mut self.pcbs[index];
        pcb.settings.set(setting::CHANNEL, false);
        pcb.listener = NONE;
        pcb.send_queue.trim(&mut self.payload);
        self.channels.end(channel);
        self.open_channels.remove(channel);
    }

    /// Handles the request that a program has left.
    pub(crate) fn serve(&mut self, channel: u32) {
        let Some(index) = self.owner_of(channel) else {
            return;
        };
        self.touch(index);
        self.absorb(index);
        let wants = |direction| {
            self.lane(channel, direction)
                .is_some_and(|lane| lane.take_wants())
        };
        let (room, news) = (wants(Direction::Send), wants(Direction::Receive));
        if room {
            self.open_channels[channel].hungry = 1;
            self.await_room(index);
        }
        if news {
            self.mark_event(index, Change::NOTHING);
        }
        self.publish(index);
    }

    /// Notes that the program waits for room, and wakes it if there is some already.
    fn await_room(&mut self, index: u32) {
        if self.pcbs[index].is_roomy() && self.may_queue(index) {
            return self.mark_event(index, Change::ROOM);
        }
        self.pcbs[index].set(flag::WRITER_WAITS);
        if !self.may_queue(index) {
            self.await_memory(index);
        }
    }

    /// Channels that are in use.
    pub(crate) fn open_channels(&self) -> u32 {
        self.open_channels.len()
    }

    /// Begins to use a queue with a lane.
    pub(crate) fn enter_lane(&mut self, index: u32, direction: Direction) -> Result<(), SocketError> {
        let Some(channel) = self.pcbs[index].channel() else {
            return Ok(());
        };
        if !self.lane(channel, direction).is_some_and(|lane| lane.enter()) {
            return Err(SocketError::Taken);
        }
        self.absorb(index);
        self.keep_place(index);
        // Bytes used from here on were not absorbed, but belong to the queue.
        let queue = match direction {
            Direction::Send => &self.pcbs[index].send_queue,
            Direction::Receive => &self.pcbs[index].receive_queue,
        };
        self.open_channels[channel].entered_with = queue.len() as u32;
        Ok(())
    }

    /// Ends the use of a queue with a lane: the lane continues where the queue does.
    pub(crate) fn leave_lane(&mut self, index: u32, direction: Direction) {
        let pcb = &self.pcbs[index];
        let Some(channel) = pcb.channel() else { return };
        let before = u64::from(self.open_channels[channel].entered_with);
        let known = &mut self.open_channels[channel];
        let position = match direction {
            Direction::Send => {
                let queued = (pcb.send_queue.len() as u64).saturating_sub(before);
                known.sent = known.sent.wrapping_add(queued);
                known.sent
            }
            Direction::Receive => {
                let taken = before.saturating_sub(pcb.receive_queue.len() as u64);
                known.read = known.read.wrapping_add(taken);
                known.read
            }
        };
        self.keep_place(index);
        let Some(lane) = self.lane(channel, direction) else {
            return;
        };
        lane.advance(position);
        let asked = lane.leave();
        let before = self.open_channels[channel];
        self.publish(index);
        let known = &self.open_channels[channel];
        let more = known.send_limit != before.send_limit || known.receive_limit != before.receive_limit;
        if asked || more {
            self.mark_event(index, Change::NOTHING);
        }
    }

    /// Bytes that the program has not read.
    #[inline]
    pub(crate) fn unread(&self, index: u32) -> usize {
        let pcb = &self.pcbs[index];
        match pcb.channel() {
            None => pcb.receive_queue.len(),
            Some(channel) => {
                let read = self.progress(channel, Direction::Receive) as usize;
                pcb.receive_queue.len().saturating_sub(read)
            }
        }
    }

    /// Bytes that the program has written and that are not in the send queue yet.
    #[inline]
    pub(crate) fn unabsorbed(&self, index: u32) -> usize {
        let channel = self.pcbs[index].channel();
        channel.map_or(0, |channel| self.progress(channel, Direction::Send) as usize)
    }

    /// Bytes of the program's progress that are not absorbed. Impossible values count as none.
    fn progress(&self, channel: u32, direction: Direction) -> u64 {
        let (Some(known), Some(lane)) = (self.open_channels.get(channel), self.lane(channel, direction))
        else {
            return 0;
        };
        let (at, limit) = match direction {
            Direction::Send => (known.sent, known.send_limit),
            Direction::Receive => (known.read, known.receive_limit),
        };
        let more = lane.done().wrapping_sub(at);
        if more <= limit.saturating_sub(at) { more } else { 0 }
    }

    /// Absorbs the bytes that the program has written and read.
    #[inline]
    pub(crate) fn absorb(&mut self, index: u32) {
        if let Some(channel) = self.pcbs[index].channel() {
            self.absorb_written(index, channel);
            self.absorb_read(index, channel);
        }
    }

    /// Frees the memory of all bytes that programs have read. From now on, programs leave a request
    /// before they wait.
    #[cold]
    pub(super) fn press(&mut self) {
        self.channels.press(true);
        for channel in 0..self.open_channels.capacity() {
            if let Some(index) = self.owner_of(channel) {
                self.touch(index);
                self.absorb_read(index, channel);
            }
        }
    }

    /// The connection of a channel.
    pub(super) fn owner_of(&self, channel: u32) -> Option<u32> {
        let index = self.open_channels.get(channel)?.connection;
        (self.pcbs.is_live(index) && self.pcbs[index].channel() == Some(channel)).then_some(index)
    }

    fn absorb_written(&mut self, index: u32, channel: u32) {
        let more = self.progress(channel, Direction::Send);
        if more == 0 {
            return;
        }
        let most = MOST_AHEAD.max(self.payload.block_len() as u32);
        let known = &mut self.open_channels[channel];
        known.sent = known.sent.wrapping_add(more);
        known.hungry = 0;
        known.ahead = (more as u32)
            .saturating_mul(2)
            .clamp(self.payload.block_len() as u32, most);
        let pcb = &mut self.pcbs[index];
        if !pcb.takes_more() {
            // The program wrote while the connection ended.
            return;
        }
        pcb.send_queue.extend(more as usize);
        pcb.settings.set(setting::MORE_ANNOUNCED, false);
        pcb.clear(flag::MORE);
        self.mark_ready(index);
    }

    fn absorb_read(&mut self, index: u32, channel: u32) {
        let more = self.progress(channel, Direction::Receive);
        let pcb = &mut self.pcbs[index];
        if more == 0 || more > pcb.receive_queue.len() as u64 {
            return;
        }
        let known = &mut self.open_channels[channel];
        known.read = known.read.wrapping_add(more);
        pcb.receive_queue.take(&mut self.payload, more as usize);
        self.keep_place(index);
        self.window_opened(index);
    }

    /// Moves an emptied queue to the position of its lane.
    pub(super) fn keep_place(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        let known = pcb.channel().and_then(|channel| self.open_channels.get(channel));
        if let Some(known) = known {
            pcb.send_queue.begin_at(&self.payload, known.sent as usize);
            pcb.receive_queue.begin_at(&self.payload, known.read as usize);
        }
    }

    /// Drops queued bytes, which will not be sent any more. Claimed memory stays: the program may
    /// be filling it.
    pub(super) fn drop_queued(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        if pcb.channel().is_some() {
            let len = pcb.send_queue.len();
            pcb.send_queue.consume(&mut self.payload, len);
        } else {
            pcb.send_queue.clear(&mut self.payload);
        }
    }

    /// Publishes the program's new limits.
    #[inline]
    pub(crate) fn publish(&mut self, index: u32) {
        if let Some(channel) = self.pcbs[index].channel()
            && self.open_channels.is_live(channel)
        {
            self.touch(index);
            self.publish_room(index, channel);
            self.publish_received(index, channel);
        }
    }

    fn publish_room(&mut self, index: u32, channel: u32) {
        let known = self.open_channels[channel];
        let mut limit = known.send_limit.max(known.sent);
        let plain = self.pcbs[index].takes_more() && self.pcbs[index].error == 0;
        if plain {
            let room = self.pcbs[index].send_room();
            let held = self.claim(index, &known, room.min(known.ahead as usize));
            limit = limit.max(known.sent.wrapping_add(held.min(room) as u64));
        }
        let Some(lane) = self.lane(channel, Direction::Send) else {
            return;
        };
        limit = limit.min(lane.furthest(known.sent)).max(known.send_limit);
        let queue = &self.pcbs[index].send_queue;
        let from = known.send_limit.max(known.sent);
        let first = queue.len() as u64;
        for (position, block) in self.blocks(from, limit, |position| {
            let offset = first.wrapping_add(position - known.sent);
            queue.block_at(&self.payload, offset as usize)
        }) {
            lane.set_block(position, block);
        }
        let state = if plain {
            LaneState::Open
        } else {
            LaneState::Special
        };
        lane.publish(limit, known.sent, state);
        self.open_channels[channel].send_limit = limit;
    }

    /// Claims memory behind the send queue and returns its bytes. While memory is scarce, a program
    /// gets only one block ahead, and only if it waits.
    fn claim(&mut self, index: u32, known: &Channel, want: usize) -> usize {
        let scarce = self.payload.free_blocks() < self.payload.capacity() / 2;
        let queue = &mut self.pcbs[index].send_queue;
        let held = queue.claimed();
        if held >= want || (scarce && (held > 0 || known.hungry == 0)) || want == 0 {
            return held;
        }
        let most = if scarce { 1 } else { want };
        let queueable = self.queueable(index);
        let Pcb { send_queue, path, .. } = &mut self.pcbs[index];
        send_queue.begin_at(&self.payload, known.sent as usize);
        send_queue.claim_in(&mut self.payload, path.arena, most.min(queueable))
    }

    fn publish_received(&mut self, index: u32, channel: u32) {
        let known = self.open_channels[channel];
        let pcb = &self.pcbs[index];
        let state = received_state(pcb);
        let Some(lane) = self.lane(channel, Direction::Receive) else {
            return;
        };
        let mut limit = known.receive_limit.max(known.read);
        // The program must not read bytes at an urgent mark before it sees that the lane is
        // special.
        if state != LaneState::Special {
            let end = known.read.wrapping_add(pcb.receive_queue.len() as u64);
            limit = limit.max(end.min(lane.furthest(known.read)));
        }
        let queue = &pcb.receive_queue;
        let from = known.receive_limit.max(known.read);
        for (position, block) in self.blocks(from, limit, |position| {
            queue.block_at(&self.payload, (position - known.read) as usize)
        }) {
            lane.set_block(position, block);
        }
        lane.publish(limit, known.read.wrapping_add(self.untold(pcb).into()), state);
        self.open_channels[channel].receive_limit = limit;
    }

    /// Bytes that the program may read without a request: until the peer should learn of the room,
    /// see [`Tcp::window_opened`].
    fn untold(&self, pcb: &Pcb) -> u32 {
        let buffer = self.receive_limit(pcb);
        let standing = pcb.rcv_adv.after(pcb.rcv_nxt);
        let room = room_of(pcb, buffer).min(pcb.largest_window());
        let segments = 2 * u32::from(pcb.rcv_mss);
        let worth = if standing <= buffer / 8 {
            segments
        } else {
            segments.max(buffer / 4)
        };
        let gain = room.saturating_sub(standing);
        worth.min(buffer / 2).saturating_sub(gain).clamp(1, MOST_UNTOLD)
    }

    /// The blocks of a range of positions.
    fn blocks<'a>(
        &'a self,
        from: u64,
        to: u64,
        block_at: impl Fn(u64) -> Option<u32> + 'a,
    ) -> impl Iterator<Item = (u64, u32)> + 'a {
        let len = self.payload.block_len() as u64;
        let next = move |&position: &u64| (position / len + 1).checked_mul(len).filter(|&next| next < to);
        let positions = std::iter::successors(Some(from).filter(|&from| from < to), next);
        positions.map_while(move |position| block_at(position).map(|block| (position, block)))
    }
}

fn received_state(pcb: &Pcb) -> LaneState {
    if pcb.urgent_state != urgent_state::NONE {
        LaneState::Special
    } else if pcb.state() == State::Closed || pcb.has(flag::FIN_RECEIVED | flag::READ_SHUT) || pcb.error != 0
    {
        LaneState::Ending
    } else {
        LaneState::Open
    }
}
