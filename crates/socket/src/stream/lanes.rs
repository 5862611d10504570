//! The calls on a stream without the lease: along the lanes of its channel.

use std::io;

use toehold_node::{
    Description, Direction, Lane, LaneLock, LaneState, Moved, Operation, Shard, ShardHandle, Subscription,
};
use toehold_stack::{ConnectionId, Event, Instant, MOST_WHOLE, ReceiveFlags, SendFlags};

use super::connection::{Connection, LONG};
use super::operations::Receive;
use crate::error::{gone, would_block};

impl Connection {
    /// Sends along the channel, as far as that goes. The rest is sent with the lease.
    pub(super) fn send_along(&self, channel: u32, bytes: &[u8], waits: bool) -> io::Result<usize> {
        let node = self.node.handle()?;
        node.begin_call().map_err(gone)?;
        let Some(lane) = node.channels().lane(channel, Direction::Send) else {
            return self.send_special(bytes, waits);
        };
        let mut done = 0;
        loop {
            let is_record = bytes.len() <= MOST_WHOLE;
            let end = match is_record {
                true => bytes.len(),
                false => bytes.len().min(done + self.known_piece()),
            };
            let moved = self.fill(node, (channel, lane), end - done, |lock, owner| {
                Ok(match is_record {
                    true => lock.write_whole(owner, bytes),
                    false => lock.write(owner, &bytes[done..end]),
                })
            })?;
            done += moved.len;
            if done == bytes.len() {
                return Ok(done);
            }
            // A lane that does not take what it has room for is damaged, or has too little for a record.
            let damaged = moved.left > 0 && done < end;
            if moved.state != LaneState::Open || damaged {
                // What was written counts; the next call gets what stopped this one.
                return if done > 0 {
                    Ok(done)
                } else {
                    self.send_special(bytes, waits)
                };
            }
            if moved.left > 0 {
                continue;
            }
            if !waits || node.channels().is_attended() {
                // There may well be room that was not shown on the lane. A caller that writes more
                // than the lane takes does so faster with the lease than by waking the engine's
                // driver for each lane's length.
                return match self.send_special(&bytes[done..], waits) {
                    Ok(sent) => Ok(done + sent),
                    Err(_) if done > 0 => Ok(done),
                    error => error,
                };
            }
            match self.await_room(channel) {
                Ok(true) => {}
                Ok(false) if done == 0 => return Err(would_block()),
                Err(error) if done == 0 => return Err(error),
                _ => return Ok(done),
            }
        }
    }

    /// Fills a lane with `len` bytes, as far as it has room, and leaves a request.
    fn fill(
        &self,
        node: &ShardHandle,
        (channel, lane): (u32, Lane<'_>),
        len: usize,
        work: impl FnOnce(&mut LaneLock<'_>, u64) -> io::Result<Moved>,
    ) -> io::Result<Moved> {
        let mut lock = node.lock_lane(lane).map_err(gone)?;
        let moved = work(&mut lock, self.source().word());
        let asked = lock.release();
        let (done, full) = match &moved {
            Ok(moved) => {
                let full = moved.left == 0 && moved.state == LaneState::Open;
                (moved.len, moved.len < len && full)
            }
            Err(_) => (0, false),
        };
        if full {
            lane.want();
        }
        if asked {
            node.tell_waiters(channel).map_err(gone)?;
        } else if done > 0 || full {
            self.leave_request(node, channel)?;
        }
        moved
    }

    /// Has a piece of `len` bytes at most written by `fill` where it waits to be sent, instead of
    /// copied there. Returns `None` if there is no such place now.
    pub(super) fn send_in_place(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [io::IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        self.node.node.contain(|| {
            let Some(channel) = self.channel_for(len)? else {
                return Ok(None);
            };
            let node = self.node.handle()?;
            node.begin_call().map_err(gone)?;
            let Some(lane) = node.channels().lane(channel, Direction::Send) else {
                return Ok(None);
            };
            let bounds = lane.bounds(self.source().word());
            let len = len.min(bounds.len).min(self.known_piece());
            if len < LONG || bounds.state != LaneState::Open {
                return Ok(None);
            }
            // Another thread may have taken the room, or the stream ended, before the lock was there.
            let mut asked = false;
            let moved = self.fill(node, (channel, lane), len, |lock, owner| {
                lock.fill(owner, len, |places| {
                    asked = true;
                    fill(places)
                })
            })?;
            Ok(asked.then_some(moved.len))
        })
    }

    /// Waits for room, of which there was none. Returns `false` if the time has come.
    fn await_room(&self, channel: u32) -> io::Result<bool> {
        let mut operation = Room { id: self.id, channel };
        let mut shard = self.node.enter()?;
        if operation.attempt(&mut shard).is_some() {
            self.node.settle(&mut shard);
            return Ok(true);
        }
        Ok(self
            .finish(&mut shard, &mut operation, Description::write_timeout, true)?
            .is_some())
    }

    /// Sends with the lease the bytes that cannot be sent along the channel.
    #[cold]
    fn send_special(&self, bytes: &[u8], waits: bool) -> io::Result<usize> {
        let mut shard = self.enter_free(Direction::Send)?;
        self.send_leased(&mut shard, bytes, SendFlags::default(), waits)
    }

    /// Takes the bytes on a lane. The caller has to serve the requests that are `due` then.
    fn take(
        &self,
        node: &ShardHandle,
        (channel, lane): (u32, Lane<'_>),
        buffer: &mut [u8],
        peek: bool,
    ) -> io::Result<Moved> {
        let mut lock = node.lock_lane(lane).map_err(gone)?;
        let mut moved = lock.read(self.source().word(), buffer, peek);
        if lock.release() {
            node.tell_waiters(channel).map_err(gone)?;
            moved.due = false;
        }
        Ok(moved)
    }

    /// Waits until there is something on a lane, which the engine's driver serves. Returns `false`
    /// if the time has come.
    fn wait_on_lane(
        &self,
        node: &ShardHandle,
        lane: Lane<'_>,
        deadline: Option<Instant>,
    ) -> io::Result<bool> {
        let owner = self.source().word();
        node.wait_on_lane((lane, owner), &self.spin, deadline)
            .map_err(gone)
    }

    /// Receives along the channel what is there. What is not is waited for on the lane if
    /// the engine's driver serves it, and with the lease otherwise.
    pub(super) fn receive_along(
        &self,
        channel: u32,
        buffer: &mut [u8],
        flags: ReceiveFlags,
        waits: bool,
    ) -> io::Result<usize> {
        let node = self.node.handle()?;
        node.begin_call().map_err(gone)?;
        if let Some(lane) = node.channels().lane(channel, Direction::Receive) {
            let mut deadline = None;
            loop {
                let moved = self.take(node, (channel, lane), buffer, flags.peek)?;
                let room = &mut buffer[moved.len..];
                let goes_on = moved.len > 0 && moved.left == 0 && !flags.peek && room.len() > LONG;
                let asked = match goes_on && !node.channels().is_attended() {
                    true => self.receive_on(node, channel, room),
                    false if moved.due => self.leave_request(node, channel).map(|()| 0),
                    false => Ok(0),
                };
                if moved.len > 0 {
                    // What was taken counts; the next call is told what is wrong.
                    return Ok(moved.len + asked.unwrap_or(0));
                }
                asked?;
                if moved.state != LaneState::Open || moved.left > 0 || !node.channels().is_attended() {
                    break;
                }
                if node.channels().is_pressed() {
                    self.leave_request(node, channel)?;
                }
                // The engine's driver would not find more if it were asked.
                if !waits {
                    return Err(would_block());
                }
                let deadline =
                    *deadline.get_or_insert_with(|| node.deadline(self.description.read_timeout()));
                if !self.wait_on_lane(node, lane, deadline)? {
                    return Err(would_block());
                }
            }
        }
        let mut shard = self.enter_free(Direction::Receive)?;
        self.receive_leased(&mut shard, buffer, flags, waits)
    }

    /// Goes on with what the link has, when all that had come before is taken. The bytes are not
    /// copied in between, as they would be by the next thread that looks. Returns how many bytes
    /// those are.
    fn receive_on(&self, node: &ShardHandle, channel: u32, room: &mut [u8]) -> io::Result<usize> {
        let entered = node.go_on(channel).map_err(gone)?;
        self.count_left(entered.is_some());
        let Some(mut shard) = entered else { return Ok(0) };
        if shard.stack.is_taken(self.id, Direction::Receive) {
            return Ok(0);
        }
        let mut operation = Receive::new(self.id, room, ReceiveFlags::default());
        shard.tick();
        operation.receive(&mut shard);
        shard.respond();
        self.node.settle(&mut shard);
        // An error or the stream's end, the next call tells.
        Ok(operation.placed())
    }
}

/// Waits for room on the lane of a channel, with the lease.
struct Room {
    id: ConnectionId,
    channel: u32,
}

impl Operation for Room {
    type Output = ();

    fn attempt(&mut self, shard: &mut Shard) -> Option<()> {
        let owner = Event::Connection(self.id).word();
        shard.stack.want_room(self.channel);
        let lane = shard.stack.channels().lane(self.channel, Direction::Send)?;
        let bounds = lane.bounds(owner);
        (bounds.len > 0 || bounds.state != LaneState::Open).then_some(())
    }

    fn subscription(&self) -> Subscription {
        Subscription::Source(Event::Connection(self.id))
    }
}
