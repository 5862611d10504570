//! Calls that have to do with channels, by which programs send and receive without the
//! lease; see [`toehold_shm::Channels`] for what a program does with one.

use toehold_shm::{Channels, Direction};

use super::{ConnectionId, ReceiveFlags, SendFlags, SocketError};
use crate::Stack;

impl Stack {
    /// The channels of all connections.
    pub fn channels(&self) -> &Channels {
        &self.tcp.channels
    }

    /// The channel of a connection, if it has one.
    #[inline]
    pub fn channel(&self, id: ConnectionId) -> Option<u32> {
        let index = self.tcp.resolve(id).ok()?;
        self.tcp.pcbs[index].channel()
    }

    /// The channel of a connection, which it gets if it has none. `None`: it is not
    /// connected yet, or there are as many channels as there may be.
    pub fn open_channel(&mut self, id: ConnectionId) -> Option<u32> {
        let index = self.tcp.enter(id).ok()?;
        self.tcp.open_channel(index)
    }

    /// Does what a program has left a request for: takes in what it has written, makes
    /// room for what it has read, and says how far it may go.
    pub fn serve_channel(&mut self, channel: u32) {
        self.tcp.serve(channel);
    }

    /// The same, for a thread with the lease that waits for room to write.
    pub fn want_room(&mut self, channel: u32) {
        if let Some(lane) = self.tcp.channels.lane(channel, Direction::Send) {
            lane.want();
        }
        self.tcp.serve(channel);
    }

    /// Whether another thread copies along a connection's channel in that direction. If
    /// so, those who wait for the connection are told of the end of that.
    #[inline]
    pub fn is_taken(&self, id: ConnectionId, direction: Direction) -> bool {
        let channel = self.channel(id);
        let lane = channel.and_then(|channel| self.tcp.channels.lane(channel, direction));
        lane.is_some_and(|lane| {
            let free = lane.enter();
            if free {
                // Only who has the lease asks for it in this way.
                lane.leave();
            }
            !free
        })
    }

    /// Gives a connection another name: whoever has the former one has nothing any more.
    /// What was written along its channel is taken in, and the channel is closed.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Taken` if another thread copies along the channel at the moment.
    pub fn rename(&mut self, id: ConnectionId) -> Result<ConnectionId, SocketError> {
        let index = self.tcp.resolve(id)?;
        if [Direction::Send, Direction::Receive]
            .iter()
            .any(|&direction| self.is_taken(id, direction))
        {
            return Err(SocketError::Taken);
        }
        Ok(self.tcp.rename(index))
    }

    /// Channels that are in use.
    pub fn open_channels(&self) -> u32 {
        self.tcp.open_channels()
    }

    /// Sends on a connection that has a channel.
    pub(super) fn send_beside_channel(
        &mut self,
        index: u32,
        bytes: &[u8],
        flags: SendFlags,
    ) -> Result<usize, SocketError> {
        self.tcp.enter_lane(index, Direction::Send)?;
        let result = self.queue(index, bytes, flags);
        self.tcp.leave_lane(index, Direction::Send);
        result
    }

    /// Receives on a connection that has a channel.
    pub(super) fn receive_beside_channel(
        &mut self,
        index: u32,
        buffer: &mut [u8],
        flags: ReceiveFlags,
    ) -> Result<usize, SocketError> {
        self.tcp.enter_lane(index, Direction::Receive)?;
        let result = self.take(index, buffer, flags);
        self.tcp.leave_lane(index, Direction::Receive);
        result
    }
}
