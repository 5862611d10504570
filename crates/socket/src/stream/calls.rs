//! Calls with options of their own, as those of `recvmsg(2)` and `sendmsg(2)` have with their
//! flags. Also calls for the descriptors of programs that know nothing of a node.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use toehold_node::Operation;
use toehold_stack::{NetworkReport, ReceiveFlags, SendFlags, State};

use super::connection::Connection;
use super::least::Begun;
use super::operations::Connect;
use super::{Connected, TcpStream};
use crate::error::{from_socket, timed_out, would_block};

/// How one call receives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// Leaves the bytes for the next call (MSG_PEEK).
    pub peek: bool,
    /// Does not wait, whatever the stream's mode is (MSG_DONTWAIT).
    pub nonblocking: bool,
    /// Waits until the buffers are full (MSG_WAITALL).
    pub all: bool,
}

/// How one call sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// The last byte is urgent (MSG_OOB).
    pub urgent: bool,
    /// More will follow soon (MSG_MORE).
    pub more: bool,
    /// The last byte ends a record (MSG_EOR).
    pub end_of_record: bool,
    /// Does not wait, whatever the stream's mode is (MSG_DONTWAIT).
    pub nonblocking: bool,
}

impl TcpStream {
    /// Receives into the buffers, one after the other. If it has to wait, it does so for as many
    /// bytes as there are to be (SO_RCVLOWAT), or as the buffers hold. It returns fewer before the
    /// stream's end, an error or a mark, and when its time is over.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing to read and the call does not wait, or its time is over.
    /// `NotConnected`; `NetworkDown` if the node is gone; or the connection's error, once.
    #[inline]
    pub fn receive_with(&self, buffers: &mut [IoSliceMut<'_>], options: ReceiveOptions) -> io::Result<usize> {
        let connection = match &*self.connection {
            Connected::Tcp(connection) => connection,
            Connected::Direct(connection) => return connection.receive(buffers, options),
        };
        let waits = !options.nonblocking && self.connection.waits();
        let low_water = connection.description.low_water() as usize;
        if waits && (options.all || low_water > 1) {
            let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
            let least = if options.all { room } else { room.min(low_water) };
            return connection.receive_at_least(least, buffers, options.peek);
        }
        connection.receive_some(buffers, options.peek, waits)
    }

    /// Peeks behind so many bytes (SO_PEEK_OFF); with MSG_WAITALL, until the buffers are full.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing behind them; `NotConnected`; `NetworkDown` if the node is
    /// gone; or the connection's error, once.
    pub fn peek_behind(
        &self,
        bytes: usize,
        buffers: &mut [IoSliceMut<'_>],
        options: ReceiveOptions,
    ) -> io::Result<usize> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.peek_behind(bytes, buffers, options),
            Connected::Direct(connection) => connection.peek_behind(bytes, buffers, options),
        }
    }

    /// Sends the bytes of the buffers.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room and the call does not wait, or its time is over.
    /// EINPROGRESS before the handshake is done; `BrokenPipe` after a shutdown; `NetworkDown` if
    /// the node is gone; or the connection's error.
    #[inline]
    pub fn send_with(&self, buffers: &[IoSlice<'_>], options: SendOptions) -> io::Result<usize> {
        let waits = !options.nonblocking && self.connection.waits();
        let flags = SendFlags {
            urgent: options.urgent,
            more: options.more,
            end_of_record: options.end_of_record,
        };
        match (&*self.connection, buffers) {
            (Connected::Tcp(connection), [one]) => connection.send(one, flags, waits),
            (Connected::Tcp(connection), several) => connection.send_vectored(several, flags, waits),
            (Connected::Direct(connection), buffers) => connection.send_as(buffers, options.urgent, waits),
        }
    }

    /// Returns whether the SYN waits for the program's first bytes, see [`TcpStream::send_first`].
    pub fn is_deferred(&self) -> bool {
        match &*self.connection {
            Connected::Tcp(connection) => {
                let deferred = connection.with(|shard, id| Ok(shard.stack.is_deferred(id)));
                deferred.unwrap_or(false)
            }
            Connected::Direct(_) => false,
        }
    }

    /// Sends the first bytes of a stream whose SYN has waited for them ([`ConnectOptions::with_data`],
    /// [`SocketOption::FastOpenConnect`]): those that the SYN may carry go with it. If the call waits, the others follow
    /// once the handshake is done.
    ///
    /// [`ConnectOptions::with_data`]: super::ConnectOptions::with_data
    /// [`SocketOption::FastOpenConnect`]: crate::SocketOption::FastOpenConnect
    ///
    /// # Errors
    ///
    /// The errors of [`TcpStream::connect`]; EINPROGRESS if the attempt has begun, and carries none
    /// of the bytes.
    pub fn send_first(&self, buffers: &[IoSlice<'_>], options: SendOptions) -> io::Result<usize> {
        let Connected::Tcp(connection) = &*self.connection else {
            return self.send_with(buffers, options);
        };
        let len: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let offered = first_bytes(buffers);
        let waits = !options.nonblocking && self.connection.waits();
        let flags = SendFlags {
            urgent: options.urgent,
            more: options.more,
            end_of_record: options.end_of_record,
        };
        let sent = connection.send_with_syn(&offered, flags, waits && len > 0)?;
        if !waits {
            return if sent > 0 {
                Ok(sent)
            } else {
                Err(Errno::INPROGRESS.into())
            };
        }
        match self.finish_connect(self.write_timeout()?) {
            Ok(()) => {}
            // It goes on.
            Err(error) if error.kind() == io::ErrorKind::TimedOut && self.is_connecting() => {
                return if sent > 0 {
                    Ok(sent)
                } else {
                    Err(Errno::INPROGRESS.into())
                };
            }
            Err(error) => return Err(error),
        }
        let rest = behind(buffers, sent);
        if rest.is_empty() {
            return Ok(sent);
        }
        match self.send_with(&rest, options) {
            Ok(more) => Ok(sent + more),
            Err(_) if sent > 0 => Ok(sent),
            Err(error) => Err(error),
        }
    }

    fn is_connecting(&self) -> bool {
        self.info()
            .is_ok_and(|info| matches!(info.state, State::SynSent | State::SynReceived))
    }

    /// Has a piece of what is to be sent, of `len` bytes at most, written by `fill` where it waits
    /// to be sent. So a `read` of a file, say, needs no copy. `fill` is called once at most, with
    /// places for some bytes. It returns how many it has written, from the first on, and should not
    /// wait for anything.
    ///
    /// Returns `None` if there is no such place now. There may be no room, the bytes may be few, or
    /// the stream may have come to an end. [`TcpStream::send_with`] does what is to be done then.
    ///
    /// # Errors
    ///
    /// The error of `fill`, with nothing sent; `NetworkDown` if the node is gone.
    pub fn send_in_place(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.send_in_place(len, fill),
            Connected::Direct(_) => Ok(None),
        }
    }

    /// Waits for the end of an attempt to connect that was [begun](TcpStream::begin),
    /// `timeout` at most.
    ///
    /// # Errors
    ///
    /// The errors of [`TcpStream::connect`]; `TimedOut` after that time, with the attempt going on.
    pub fn finish_connect(&self, timeout: Option<Duration>) -> io::Result<()> {
        let connection = match &*self.connection {
            Connected::Tcp(connection) => connection,
            // It was connected when it was opened.
            Connected::Direct(_) => return Ok(()),
        };
        connection.node.node.contain(|| {
            let Connection { node, id, spin, .. } = connection;
            let mut operation = Connect { id: *id };
            let mut shard = node.enter()?;
            let result = match operation.attempt(&mut shard) {
                Some(result) => Some(result),
                None => {
                    let deadline = timeout.map(|timeout| shard.now + timeout);
                    node.block(&mut shard, &mut operation, spin, deadline)?
                }
            };
            drop(shard);
            result.ok_or_else(timed_out)?.map_err(from_socket)
        })
    }

    /// Takes the network's report about an attempt to connect that it ended. Returns `None` if
    /// there is none, or it was taken before.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn take_report(&self) -> io::Result<Option<NetworkReport>> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.with(|shard, id| shard.stack.take_report(id)),
            Connected::Direct(_) => Ok(None),
        }
    }

    /// Resets the connection. All calls that wait for it end, in all processes that have it.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn disconnect(&self) -> io::Result<()> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.disconnect(),
            Connected::Direct(connection) => connection.disconnect(),
        }
    }

    /// Lends the stream's descriptor to a caller that makes copies of it for a program and sees all
    /// of them closed. The stream has none until it is [put back](TcpStream::put_back). It must get
    /// it back before it is dropped, or it is closed only when this process ends.
    ///
    /// `None` if there is none, or there are other handles of the stream.
    pub fn lend_descriptor(&mut self) -> Option<OwnedFd> {
        Arc::get_mut(&mut self.connection)?.holder_mut()?.lend()
    }

    /// Notes that the program has set something of the descriptor that another connection would
    /// have from it. So the descriptor stands for this one alone.
    pub fn mark_descriptor(&self) {
        self.connection.mark_descriptor();
    }

    /// Gives back the last copy of the descriptor. `shared`: another process may have copies
    /// that were not seen to be made, beside those of forks.
    pub fn put_back(&mut self, descriptor: OwnedFd, shared: bool) {
        if let Some(holder) = Arc::get_mut(&mut self.connection).and_then(Connected::holder_mut) {
            holder.put_back(descriptor, shared);
        }
    }
}

impl Connection {
    #[inline]
    fn receive_some(&self, buffers: &mut [IoSliceMut<'_>], peek: bool, waits: bool) -> io::Result<usize> {
        let flags = ReceiveFlags { peek, urgent: false };
        match buffers {
            [] => Ok(0),
            [one] => self.receive(one, flags, waits),
            // Each would get the same bytes.
            several if peek => self.peek_into(several, flags, waits),
            several => self.receive_vectored(several, waits),
        }
    }

    #[inline(never)]
    fn receive_at_least(
        &self,
        least: usize,
        buffers: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> io::Result<usize> {
        let at = Instant::now();
        let received = self.receive_some(buffers, peek, true)?;
        if received == 0 || received >= least {
            return Ok(received);
        }
        let begun = Begun { received, least, at };
        if peek {
            self.await_bytes(begun)?;
            return self.receive_some(buffers, peek, false).or(Ok(received));
        }
        self.receive_rest(buffers, begun)
    }

    fn peek_behind(
        &self,
        bytes: usize,
        buffers: &mut [IoSliceMut<'_>],
        options: ReceiveOptions,
    ) -> io::Result<usize> {
        /// More bytes than any receive queue holds.
        const MOST: usize = 64 << 20;
        let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut all = vec![0; bytes.saturating_add(room).min(MOST)];
        let waits = !options.nonblocking && self.waits();
        let least = if options.all { all.len() } else { bytes + 1 };
        let mut into = [IoSliceMut::new(&mut all)];
        let peeked = match waits {
            true => self.receive_at_least(least, &mut into, true)?,
            false => self.receive_some(&mut into, true, false)?,
        };
        if peeked <= bytes && room > 0 {
            let is_over = self.with(|shard, id| {
                let unread = shard.stack.readable_bytes(id)?;
                Ok(unread <= bytes && shard.stack.readiness(id).read_closed)
            });
            return if is_over? { Ok(0) } else { Err(would_block()) };
        }
        Ok(scatter(&all[bytes.min(peeked)..peeked], buffers))
    }

    fn peek_into(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        flags: ReceiveFlags,
        waits: bool,
    ) -> io::Result<usize> {
        let room = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut bytes = vec![0; room];
        let peeked = self.receive(&mut bytes, flags, waits)?;
        Ok(scatter(&bytes[..peeked], buffers))
    }
}

/// Copies bytes into buffers, one after the other. Returns how many were copied.
pub(super) fn scatter(bytes: &[u8], buffers: &mut [IoSliceMut<'_>]) -> usize {
    let mut rest = bytes;
    for buffer in buffers {
        let (now, later) = rest.split_at(rest.len().min(buffer.len()));
        buffer[..now.len()].copy_from_slice(now);
        rest = later;
    }
    bytes.len() - rest.len()
}

/// More bytes than any SYN carries.
const MOST_WITH_SYN: usize = 1 << 16;

/// The first of these bytes, as many as a SYN may carry.
fn first_bytes(buffers: &[IoSlice<'_>]) -> Vec<u8> {
    let bytes = buffers.iter().flat_map(|buffer| buffer.iter().copied());
    bytes.take(MOST_WITH_SYN).collect()
}

/// The rest of buffers behind so many bytes.
fn behind<'a>(buffers: &'a [IoSlice<'_>], mut skipped: usize) -> Vec<IoSlice<'a>> {
    let mut rest = Vec::new();
    for buffer in buffers {
        let skip = skipped.min(buffer.len());
        skipped -= skip;
        if skip < buffer.len() {
            rest.push(IoSlice::new(&buffer[skip..]));
        }
    }
    rest
}
