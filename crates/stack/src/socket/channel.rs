//! Calls for channels, through which programs send and receive without the lease; see
//! [`toehold_shm::Channels`] for the program's side.

use toehold_shm::{Channels, Direction};

use super::{AcceptLengths, ConnectionId, ReceiveFlags, SendFlags, SocketError};
use crate::Stack;

impl Stack {
    /// The channels of all connections.
    pub fn channels(&self) -> &Channels {
        &self.tcp.channels
    }

    /// The lengths of all accept queues.
    pub fn accept_lengths(&self) -> &AcceptLengths {
        self.tcp.listeners.accept_lengths()
    }

    /// The channel of a connection, if it has one.
    #[inline]
    pub fn channel(&self, id: ConnectionId) -> Option<u32> {
        let index = self.tcp.resolve(id).ok()?;
        self.tcp.pcbs[index].channel()
    }

    /// The channel of a connection, opened if necessary. Returns `None` if it is not connected yet,
    /// or all channels are in use.
    pub fn open_channel(&mut self, id: ConnectionId) -> Option<u32> {
        let index = self.tcp.enter(id).ok()?;
        self.tcp.open_channel(index)
    }

    /// Handles a program's request on a channel. Takes written bytes, frees the room of bytes that
    /// were read, and publishes the new limits.
    pub fn serve_channel(&mut self, channel: u32) {
        self.tcp.serve(channel);
    }

    /// Asks for room to write on a channel and handles the program's request. For a thread that
    /// holds the lease.
    pub fn want_room(&mut self, channel: u32) {
        if let Some(lane) = self.tcp.channels.lane(channel, Direction::Send) {
            lane.want();
        }
        self.tcp.serve(channel);
    }

    /// Whether another thread copies along a connection's channel in that direction. If so, threads
    /// that wait for the connection are woken when the copy ends.
    #[inline]
    pub fn is_taken(&self, id: ConnectionId, direction: Direction) -> bool {
        let channel = self.channel(id);
        let lane = channel.and_then(|channel| self.tcp.channels.lane(channel, direction));
        lane.is_some_and(|lane| {
            let free = lane.enter();
            if free {
                // Only the holder of the lease asks in this way.
                lane.leave();
            }
            !free
        })
    }

    /// Gives a connection another id; the former id becomes invalid. Takes the bytes written along
    /// its channel, and closes the channel.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Taken` if another thread is copying along the channel.
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
