//! The calls of a program. Each does what is possible at once and never waits.

use core::net::{IpAddr, SocketAddr};

use toehold_shm::Direction;

use super::urgent::hidden;
use super::{
    ConnectionId, ListenerId, Readiness, ReceiveFlags, SendFlags, Settings, Shutdown, SocketError, setting,
};
use crate::Stack;
use crate::tcp::{Opening, Pcb, State, Tcp, flag, urgent_state};
use crate::time::Instant;
use crate::tuple::Address;

impl Stack {
    /// Settings of a new socket, from the stack's configuration.
    pub fn default_settings(&self) -> Settings {
        Settings::from_config(&self.tcp.config)
    }

    /// Opens a listener. Port 0 lets the stack choose. At most `backlog + 1` connections wait in
    /// its accept queue.
    ///
    /// # Errors
    ///
    /// `AddressInUse`, `AddressNotAvailable`, `OutOfMemory`.
    pub fn listen(
        &mut self,
        now: Instant,
        local: SocketAddr,
        backlog: u32,
        settings: &Settings,
    ) -> Result<ListenerId, SocketError> {
        let (tcp, mut cx) = self.split(now);
        tcp.listen(&mut cx, local.ip().into(), local.port(), backlog, *settings)
    }

    /// Takes the oldest connection from a listener's accept queue.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the queue is empty, `NotFound`.
    pub fn accept(&mut self, listener: ListenerId) -> Result<ConnectionId, SocketError> {
        let index = self.tcp.listeners.resolve(listener)?;
        self.tcp.accept(index)
    }

    /// The number of connections in a listener's accept queue.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn accept_queue_len(&self, listener: ListenerId) -> Result<u32, SocketError> {
        let index = self.tcp.listeners.resolve(listener)?;
        Ok(self.tcp.listeners[index].accept_queue_len())
    }

    /// The oldest connection in a listener's accept queue: the one that [`Stack::accept`] takes.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn first_waiting(&self, listener: ListenerId) -> Result<Option<ConnectionId>, SocketError> {
        Ok(self.tcp.first_waiting(self.tcp.listeners.resolve(listener)?))
    }

    /// The address and port of a listener.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn listener_addr(&self, listener: ListenerId) -> Result<SocketAddr, SocketError> {
        let index = self.tcp.listeners.resolve(listener)?;
        let (address, port) = self.tcp.listeners[index].local_end();
        Ok(SocketAddr::new(address.into(), port))
    }

    /// The number of listeners of this stack for an address and port.
    pub fn listeners_at(&self, local: SocketAddr) -> usize {
        self.tcp.listeners.count_at(local.ip().into(), local.port())
    }

    /// Whether an address is one of this stack's own, or a loopback address.
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.ip.is_local(address.into())
    }

    /// Changes a listener's backlog.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn set_backlog(&mut self, listener: ListenerId, backlog: u32) -> Result<(), SocketError> {
        let index = self.tcp.listeners.resolve(listener)?;
        self.tcp.listeners[index].set_backlog(backlog);
        Ok(())
    }

    /// Marks a listener as preferred, or not, among listeners that share an address and port
    /// ([`SocketOption::ReusePort`]). Connections go to preferred listeners, if there are any. On a
    /// node with several stacks, a listener is preferred in the stack that its threads use.
    ///
    /// [`SocketOption::ReusePort`]: crate::SocketOption::ReusePort
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn prefer_listener(&mut self, listener: ListenerId, preferred: bool) -> Result<(), SocketError> {
        let index = self.tcp.listeners.resolve(listener)?;
        self.tcp.listeners[index].prefer(preferred);
        Ok(())
    }

    /// Closes a listener. Its waiting connections move to another listener at the same address and
    /// port; without one, they are reset.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn close_listener(&mut self, listener: ListenerId) -> Result<(), SocketError> {
        let index = self.tcp.listeners.resolve(listener)?;
        self.tcp.close_listener(index);
        Ok(())
    }

    /// Begins to connect. `local` may be unspecified in address, port or both. A given port must
    /// assign the connection to this shard, see [`Stack::shard_for`]. [`Stack::readiness`] and
    /// [`Stack::take_error`] tell the outcome.
    ///
    /// # Errors
    ///
    /// `AddressInUse`, `AddressNotAvailable`, `InvalidInput`, `NetworkUnreachable`, `OutOfMemory`.
    pub fn connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        settings: &Settings,
    ) -> Result<ConnectionId, SocketError> {
        let local = local.map_or((Address::UNSPECIFIED, 0), |a| (Address::from(a.ip()), a.port()));
        let (tcp, mut cx) = self.split(now);
        let remote = (remote.ip().into(), remote.port());
        tcp.connect(&mut cx, local, remote, *settings, Opening::Ordinary)
    }

    /// Begins to connect as [`Stack::connect`] does, but delays the SYN until the first
    /// [`Stack::send`] (MSG_FASTOPEN). The SYN carries the bytes if the server's Fast Open cookie
    /// is known.
    ///
    /// # Errors
    ///
    /// `AddressInUse`, `AddressNotAvailable`, `InvalidInput`, `NetworkUnreachable`, `OutOfMemory`.
    pub fn connect_with_data(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        settings: &Settings,
    ) -> Result<ConnectionId, SocketError> {
        let local = local.map_or((Address::UNSPECIFIED, 0), |a| (Address::from(a.ip()), a.port()));
        let (tcp, mut cx) = self.split(now);
        let remote = (remote.ip().into(), remote.port());
        tcp.connect(&mut cx, local, remote, *settings, Opening::WithData)
    }

    /// Whether the SYN of a connection waits for the first [`Stack::send`].
    pub fn is_deferred(&self, id: ConnectionId) -> bool {
        self.tcp
            .resolve(id)
            .is_ok_and(|index| self.tcp.is_deferred(index))
    }

    /// Notes that a thread waits to send once the handshake is done. The last acknowledgement of
    /// the handshake then goes with its bytes.
    pub fn note_waiting_sender(&mut self, id: ConnectionId) {
        if let Ok(index) = self.tcp.enter(id) {
            self.tcp.note_waiting_sender(index);
        }
    }

    /// The shard of the node in which [`Stack::connect`] must be called with this local address;
    /// `None` means any shard.
    pub fn shard_for(&self, local: Option<SocketAddr>, remote: SocketAddr) -> Option<u8> {
        let local = local?;
        let ends = [local, remote].map(|end| (Address::from(end.ip()), end.port()));
        self.tcp.shard_of(&self.ip, ends[0], ends[1])
    }

    /// Queues bytes for sending and returns the number queued. A record of at most
    /// [`MOST_WHOLE`](crate::MOST_WHOLE) bytes is queued as a whole or not at all, so that records
    /// of several writers do not mix.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room; `InProgress` before the handshake is done; `BrokenPipe`
    /// after a shutdown; or the connection's error. `Taken` if another thread is writing.
    pub fn send(&mut self, id: ConnectionId, bytes: &[u8], flags: SendFlags) -> Result<usize, SocketError> {
        let index = self.tcp.enter(id)?;
        if self.tcp.pcbs[index].channel().is_some() {
            return self.send_beside_channel(index, bytes, flags);
        }
        match self.queue(index, bytes, flags) {
            Err(SocketError::InProgress) => self.send_first(index, bytes, flags),
            result => result,
        }
    }

    /// Sends the first bytes of a connection whose SYN waited for them.
    #[cold]
    fn send_first(&mut self, index: u32, bytes: &[u8], flags: SendFlags) -> Result<usize, SocketError> {
        let queued = match self.tcp.is_deferred(index) {
            true => self.tcp.send_with_syn(&self.ip, index, bytes, flags)?,
            false => 0,
        };
        match queued {
            0 => Err(SocketError::InProgress),
            queued => Ok(queued),
        }
    }

    /// Queues bytes for sending. No other thread may use the connection's send queue.
    #[inline]
    pub(super) fn queue(&mut self, index: u32, bytes: &[u8], flags: SendFlags) -> Result<usize, SocketError> {
        let tcp = &mut self.tcp;
        let queueable = tcp.queueable(index);
        let pcb = &mut tcp.pcbs[index];
        may_send(pcb)?;
        let room = pcb.send_room();
        if bytes.len() > room && bytes.len() <= pcb.most_whole() {
            pcb.set(flag::WRITER_WAITS);
            return Err(SocketError::WouldBlock);
        }
        let take = bytes.len().min(room);
        let queued =
            pcb.send_queue
                .append_in(&mut tcp.payload, pcb.path.arena, &bytes[..take.min(queueable)]);
        if queued < take {
            self.counters[0].payload_memory_out += 1;
            tcp.await_memory(index);
        }
        let pcb = &mut tcp.pcbs[index];
        if queued < bytes.len() {
            pcb.set(flag::WRITER_WAITS);
        }
        if queued == 0 && !bytes.is_empty() {
            return Err(SocketError::WouldBlock);
        }
        if flags.urgent && queued == bytes.len() && queued > 0 {
            pcb.snd_up = pcb.queue_end();
            pcb.set(flag::URGENT_OUT);
        }
        pcb.settings.set(setting::MORE_ANNOUNCED, flags.more);
        // A buffer shorter than a segment never holds a whole segment.
        let is_short = pcb.send_room() == 0 && pcb.send_queue.len() < usize::from(pcb.mss);
        if flags.more && queued == bytes.len() && !is_short {
            pcb.set(flag::MORE);
        } else {
            pcb.clear(flag::MORE);
        }
        if flags.end_of_record && queued == bytes.len() {
            let counters = &mut self.counters[0];
            let tcp = &mut self.tcp;
            tcp.record_ends.end_record(&mut tcp.pcbs[index], counters);
        }
        self.tcp.mark_ready(index);
        Ok(queued)
    }

    /// Checks whether bytes may be sent, without sending any.
    ///
    /// # Errors
    ///
    /// The errors of [`Stack::send`].
    pub fn may_send(&mut self, id: ConnectionId) -> Result<(), SocketError> {
        let index = self.tcp.enter(id)?;
        may_send(&mut self.tcp.pcbs[index])
    }

    /// Takes received bytes. Returns 0 at the end of the stream.
    ///
    /// # Errors
    ///
    /// `WouldBlock`, `NotConnected`, `InvalidInput` (no urgent byte to take), or the connection's
    /// error, once. `Taken` if another thread is reading.
    #[inline]
    pub fn receive(
        &mut self,
        id: ConnectionId,
        buffer: &mut [u8],
        flags: ReceiveFlags,
    ) -> Result<usize, SocketError> {
        let index = self.tcp.resolve(id)?;
        if self.tcp.pcbs[index].awaits_data() && !flags.urgent {
            return Err(SocketError::WouldBlock);
        }
        self.tcp.touch(index);
        self.receive_from(index, buffer, flags)
    }

    fn receive_from(
        &mut self,
        index: u32,
        buffer: &mut [u8],
        flags: ReceiveFlags,
    ) -> Result<usize, SocketError> {
        if self.tcp.pcbs[index].channel().is_some() {
            return self.receive_beside_channel(index, buffer, flags);
        }
        self.take(index, buffer, flags)
    }

    /// Takes received bytes. No other thread may use the connection's receive queue.
    #[inline]
    pub(super) fn take(
        &mut self,
        index: u32,
        buffer: &mut [u8],
        flags: ReceiveFlags,
    ) -> Result<usize, SocketError> {
        if flags.urgent {
            return self.receive_urgent(index, buffer, flags);
        }
        let before_mark = self.skip_urgent(index, flags.peek);
        let tcp = &mut self.tcp;
        let pcb = &mut tcp.pcbs[index];
        if pcb.receive_queue.is_empty() {
            return end_of_stream(pcb);
        }
        if before_mark == 0 {
            return Err(SocketError::WouldBlock);
        }
        let take = buffer.len().min(before_mark);
        let buffer = &mut buffer[..take];
        if flags.peek {
            let hidden = hidden(pcb, pcb.receive_queue.len());
            return match pcb.receive_queue.len() - hidden {
                0 => end_of_stream(pcb),
                _ => Ok(pcb.receive_queue.peek(&tcp.payload, hidden, buffer)),
            };
        }
        let taken = pcb.receive_queue.read(&mut tcp.payload, buffer);
        tcp.window_opened(index);
        Ok(taken)
    }

    /// Bytes that can be read without waiting (FIONREAD).
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn readable_bytes(&self, id: ConnectionId) -> Result<usize, SocketError> {
        Ok(self.tcp.unread(self.tcp.resolve(id)?))
    }

    /// Bytes not yet acknowledged by the peer (SIOCOUTQ).
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn unacknowledged_bytes(&self, id: ConnectionId) -> Result<usize, SocketError> {
        let index = self.tcp.resolve(id)?;
        let queued = self.tcp.pcbs[index].send_queue.len();
        Ok(queued.wrapping_add(self.tcp.unabsorbed(index)))
    }

    /// Shuts down one or both directions.
    ///
    /// # Errors
    ///
    /// `NotConnected`, `NotFound`; `Taken` if another thread is about to write.
    pub fn shutdown(&mut self, now: Instant, id: ConnectionId, how: Shutdown) -> Result<(), SocketError> {
        let index = self.tcp.enter(id)?;
        // No other thread may write between the queued bytes and the FIN.
        self.tcp.enter_lane(index, Direction::Send)?;
        let (tcp, mut cx) = self.split(now);
        let result = tcp.shutdown(&mut cx, index, how);
        tcp.leave_lane(index, Direction::Send);
        result
    }

    /// Closes a connection. Queued bytes are still sent, then a FIN.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn close(&mut self, now: Instant, id: ConnectionId) -> Result<(), SocketError> {
        let index = self.tcp.enter(id)?;
        let (tcp, mut cx) = self.split(now);
        tcp.close(&mut cx, index);
        Ok(())
    }

    /// Closes a connection with a reset.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn abort(&mut self, id: ConnectionId) -> Result<(), SocketError> {
        let index = self.tcp.enter(id)?;
        let tcp = &mut self.tcp;
        tcp.close_channel(index);
        tcp.pcbs[index].set(flag::RELEASED);
        tcp.abort(index);
        tcp.leave_neighbor(&mut self.ip, index);
        tcp.free_if_done(index);
        Ok(())
    }

    /// Ends a connection with a reset, and wakes the threads of its program that wait for it.
    ///
    /// # Errors
    ///
    /// `NotFound`; `Taken` if another thread is writing.
    pub fn disconnect(&mut self, id: ConnectionId) -> Result<(), SocketError> {
        let index = self.tcp.enter(id)?;
        self.tcp.disconnect(index);
        Ok(())
    }

    /// The readiness of a connection. A connection that no longer exists counts as hung up.
    #[inline]
    pub fn readiness(&self, id: ConnectionId) -> Readiness {
        let Ok(index) = self.tcp.resolve(id) else {
            return Readiness {
                readable: true,
                writable: true,
                hang_up: true,
                error: true,
                ..Readiness::default()
            };
        };
        let lengths = (self.tcp.unread(index), self.tcp.unabsorbed(index));
        readiness(&self.tcp, index, lengths)
    }

    /// Asks for an event when a connection has room to write.
    pub fn want_write(&mut self, id: ConnectionId) {
        if let Ok(index) = self.tcp.enter(id) {
            self.tcp.pcbs[index].set(flag::WRITER_WAITS);
            if !self.tcp.may_queue(index) {
                self.tcp.await_memory(index);
            }
        }
    }

    /// Takes the pending error (SO_ERROR), or else the last error that the network reported about
    /// the path.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn take_error(&mut self, id: ConnectionId) -> Result<Option<SocketError>, SocketError> {
        let index = self.tcp.resolve(id)?;
        let error = std::mem::take(&mut self.tcp.pcbs[index].error);
        self.tcp.publish(index);
        let (pcb, cold) = (&self.tcp.pcbs[index], &mut self.tcp.cold[index as usize]);
        Ok(SocketError::from_code(error).or_else(|| cold.take_soft_error(pcb)))
    }

    /// The local address.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn local_addr(&self, id: ConnectionId) -> Result<SocketAddr, SocketError> {
        Ok(self.tcp.pcbs[self.tcp.resolve(id)?].tuple.local_addr())
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn peer_addr(&self, id: ConnectionId) -> Result<SocketAddr, SocketError> {
        Ok(self.tcp.pcbs[self.tcp.resolve(id)?].tuple.remote_addr())
    }

    /// The connection's state.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn state(&self, id: ConnectionId) -> Result<State, SocketError> {
        Ok(self.tcp.pcbs[self.tcp.resolve(id)?].state())
    }
}

#[inline]
fn may_send(pcb: &mut Pcb) -> Result<(), SocketError> {
    if let Some(error) = SocketError::from_code(pcb.error) {
        pcb.error = 0;
        return Err(error);
    }
    if pcb.has(flag::FIN_QUEUED) {
        return Err(SocketError::BrokenPipe);
    }
    match pcb.state() {
        State::Established | State::CloseWait => Ok(()),
        State::SynSent | State::SynReceived => Err(SocketError::InProgress),
        _ => Err(SocketError::BrokenPipe),
    }
}

/// The result of reading from an empty queue.
fn end_of_stream(pcb: &mut Pcb) -> Result<usize, SocketError> {
    if pcb.has(flag::FIN_RECEIVED) {
        // The peer's stream is complete, whatever followed it. As on Linux, the error goes to
        // writers.
        return Ok(0);
    }
    if let Some(error) = SocketError::from_code(pcb.error) {
        pcb.error = 0;
        return Err(error);
    }
    if pcb.has(flag::READ_SHUT) {
        return Ok(0);
    }
    match pcb.state() {
        State::SynSent | State::SynReceived => Err(SocketError::InProgress),
        State::Closed => Ok(0),
        _ => Err(SocketError::WouldBlock),
    }
}

/// The readiness of a connection. `queued`: bytes that the program has not read. `written`: bytes
/// that it has written and that are not in the send queue yet.
fn readiness(tcp: &Tcp, index: u32, (queued, written): (usize, usize)) -> Readiness {
    let pcb = &tcp.pcbs[index];
    let closed = pcb.state() == State::Closed;
    let connecting = matches!(pcb.state(), State::SynSent | State::SynReceived);
    let read_closed = closed || pcb.has(flag::FIN_RECEIVED | flag::READ_SHUT);
    let error = pcb.error != 0;
    let low_water = pcb.settings.read_low_water() as usize;
    let write_closed = closed || pcb.has(flag::FIN_QUEUED);
    let readable = queued - hidden(pcb, queued);
    // Room for this many bytes never comes if the peer's window is smaller.
    let is_full = || {
        let segment = u32::from(pcb.rcv_mss).min(tcp.receive_limit(pcb) / 4);
        tcp.receive_room(pcb) < segment
    };
    let is_enough = readable >= low_water || (readable > 0 && is_full());
    Readiness {
        readable: is_enough || read_closed || error,
        writable: (!connecting || tcp.is_deferred(index))
            && (write_closed || error || (pcb.is_roomy_behind(written) && tcp.may_queue(index))),
        urgent: pcb.urgent_state == urgent_state::HERE,
        read_closed,
        hang_up: closed || (read_closed && write_closed),
        error,
        announced: pcb.settings.has(setting::URGENT_ANNOUNCED),
    }
}
