//! Receiving over a direct connection.

use std::io::{self, IoSliceMut};
use std::time::Duration;

use rustix::io::Errno;
use toehold_node::direct::DirectWait;
use toehold_node::interrupts;
use toehold_shm::direct::{Noted, ReceiveError, Take};
use toehold_stack::Instant;

use super::readiness::ForBytes;
use super::urgent::Mark;
use super::{DirectCall, DirectConnection, deadline, look};
use crate::error::would_block;
use crate::stream::{ReceiveOptions, scatter};

/// How long a call waits at an urgent byte until the owner of the connection is signalled.
const LONGEST_SIGNAL: Duration = Duration::from_millis(100);

/// More bytes than any ring holds.
const MOST: usize = 16 << 20;

impl DirectConnection {
    /// Receives into the buffers, one after the other; see [`TcpStream::receive_with`].
    ///
    /// [`TcpStream::receive_with`]: crate::TcpStream::receive_with
    #[inline]
    pub(crate) fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        options: ReceiveOptions,
    ) -> io::Result<usize> {
        self.node.contain(|| {
            let call = self.enter()?;
            let waits = !options.nonblocking && !self.description.is_nonblocking();
            let take = if options.peek { Take::Peek } else { Take::Remove };
            let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
            let low_water = self.description.low_water() as usize;
            let least = match (waits, options.all) {
                (false, _) => 1,
                (true, true) => room,
                (true, false) => room.min(low_water.max(1)),
            };
            if room == 0 {
                return Ok(0);
            }
            match self.receive_now(&call, buffers, take) {
                Ok(received) if received == 0 || received >= least => Ok(received),
                Err(Errno::AGAIN) if waits => self.receive_later(&call, (buffers, take), least, 0),
                Ok(received) => self.receive_later(&call, (buffers, take), least, received),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Goes on until there are as many bytes as the call wants, or its time is over. An end, an
    /// error or a mark ends it, too, which the next call is told of.
    fn receive_later(
        &self,
        call: &DirectCall<'_>,
        (buffers, take): (&mut [IoSliceMut<'_>], Take),
        least: usize,
        received: usize,
    ) -> io::Result<usize> {
        let until = deadline(self.description.read_timeout());
        let mut left = buffers;
        let mut received = received;
        if take == Take::Remove {
            IoSliceMut::advance_slices(&mut left, received);
        }
        loop {
            let before_mark = look(call, self).readable as usize;
            let is_at_mark = received > 0 && take == Take::Remove && self.mark(call) == Mark::Here;
            let missing = match take {
                Take::Remove => least - received,
                Take::Peek => least,
            };
            if is_at_mark || !self.wait_for_bytes(call, missing as u64, until)? {
                // What there is counts, though it is less than the call wants.
                let rest = match look(call, self).readable > 0 && !is_at_mark {
                    true => self.receive_now(call, left, take).unwrap_or(0),
                    false => 0,
                };
                let received = if take == Take::Peek {
                    received.max(rest)
                } else {
                    received + rest
                };
                return match received {
                    0 => Err(would_block()),
                    received => Ok(received),
                };
            }
            if take == Take::Remove && received > 0 && look(call, self).readable == 0 {
                // What ends the stream is for the next call.
                return Ok(received);
            }
            match self.receive_now(call, left, take) {
                Ok(0) => return Ok(received),
                Ok(peeked) if take == Take::Peek => {
                    received = peeked;
                    if peeked >= least || peeked <= before_mark {
                        return Ok(peeked);
                    }
                }
                Ok(more) => {
                    received += more;
                    if received >= least {
                        return Ok(received);
                    }
                    IoSliceMut::advance_slices(&mut left, more);
                }
                // A signal's handler comes before the bytes behind the mark.
                Err(Errno::AGAIN) if interrupts::is_pending() => {
                    return (received > 0).then_some(received).ok_or_else(would_block);
                }
                Err(Errno::AGAIN) => {}
                Err(error) if received == 0 => return Err(error.into()),
                Err(_) => return Ok(received),
            }
        }
    }

    /// Waits for so many bytes. Returns `false` if the call is over: its time has come, or a
    /// signal.
    fn wait_for_bytes(&self, call: &DirectCall<'_>, low: u64, until: Option<Instant>) -> io::Result<bool> {
        let mut target = ForBytes {
            call: *call,
            connection: self,
            low,
        };
        Ok(self.wait(call, &mut target, until)? == DirectWait::Ready)
    }

    /// Receives the bytes that have arrived.
    ///
    /// # Errors
    ///
    /// EAGAIN if there is nothing; the pending error.
    #[inline]
    fn receive_now(
        &self,
        call: &DirectCall<'_>,
        buffers: &mut [IoSliceMut<'_>],
        take: Take,
    ) -> Result<usize, Errno> {
        if call.end.is_beyond_limit() {
            return call.take_error().map_or(Ok(0), Err);
        }
        let received = match self.mark(call) {
            Mark::None => call.end.receive(call.thread, buffers, take, u64::MAX),
            Mark::At(position) => call.end.receive(call.thread, buffers, take, position),
            Mark::Here => self.receive_behind_urgent(call, buffers, take),
        };
        match received {
            Ok(0) if !call.end.has_noted(Noted::EndSeen) => self.see_end(call),
            Ok(received) => Ok(received),
            Err(ReceiveError::Empty) => self.receive_nothing(call),
            Err(ReceiveError::Reset) => call.take_error().map_or(Ok(0), Err),
            Err(ReceiveError::Offence(_)) => {
                self.count_offence(call);
                call.take_error().map_or(Ok(0), Err)
            }
            Err(ReceiveError::Reentered(_)) => Err(Errno::AGAIN),
        }
    }

    /// Receives the end of the stream, which comes first. The peer may have ended the stream
    /// because it has seen this node's end, of which this process learns here.
    #[cold]
    fn see_end(&self, call: &DirectCall<'_>) -> Result<usize, Errno> {
        if call.shards.has_lost_engine() {
            return Err(Errno::NETDOWN);
        }
        call.end.note(Noted::EndSeen);
        Ok(0)
    }

    /// The result of a call that finds no bytes, and no end of the stream.
    #[cold]
    fn receive_nothing(&self, call: &DirectCall<'_>) -> Result<usize, Errno> {
        if let Some(error) = call.take_error() {
            return Err(error);
        }
        let is_over = call.end.has_noted(Noted::ReadShut) || call.is_closed();
        if is_over { Ok(0) } else { Err(Errno::AGAIN) }
    }

    /// Receives behind the urgent byte, which is next and is no part of the stream.
    #[cold]
    fn receive_behind_urgent(
        &self,
        call: &DirectCall<'_>,
        buffers: &mut [IoSliceMut<'_>],
        take: Take,
    ) -> Result<usize, ReceiveError> {
        // The engine is about to signal. A handler may take the byte before this call goes on.
        let urgent = call.end.urgent();
        let began = std::time::Instant::now();
        while call.end.awaits_owner(urgent) && began.elapsed() < LONGEST_SIGNAL {
            std::thread::yield_now();
        }
        if interrupts::is_pending() {
            return Err(ReceiveError::Empty);
        }
        let until = match (urgent - 1).checked_sub(call.end.received()) {
            Some(1..) => urgent - 1,
            _ => u64::MAX,
        };
        let mut byte = [0];
        let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut all = vec![0; room.min(MOST)];
        let mut into = [IoSliceMut::new(&mut byte), IoSliceMut::new(&mut all)];
        match call.end.receive(call.thread, &mut into, take, until)? {
            0 => Ok(0),
            1 => Err(ReceiveError::Empty),
            received => Ok(scatter(&all[..received - 1], buffers)),
        }
    }

    /// Peeks behind so many bytes (SO_PEEK_OFF).
    pub(crate) fn peek_behind(
        &self,
        bytes: usize,
        buffers: &mut [IoSliceMut<'_>],
        options: ReceiveOptions,
    ) -> io::Result<usize> {
        let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut all = vec![0; bytes.saturating_add(room).min(MOST)];
        self.node.contain(|| {
            let call = self.enter()?;
            let waits = !options.nonblocking && !self.description.is_nonblocking();
            let until = deadline(self.description.read_timeout());
            let least = if options.all { all.len() } else { bytes + 1 };
            loop {
                let mut into = [IoSliceMut::new(&mut all)];
                let peeked = match self.receive_now(&call, &mut into, Take::Peek) {
                    Err(Errno::AGAIN) => 0,
                    peeked => peeked?,
                };
                let is_over = look(&call, self).is_read_closed && look(&call, self).unread <= peeked as u64;
                if peeked >= least.min(all.len()) || is_over || (peeked > bytes && !options.all) {
                    return Ok(scatter(&all[bytes.min(peeked)..peeked], buffers));
                }
                if !waits || !self.wait_for_bytes(&call, least as u64, until)? {
                    return match peeked > bytes {
                        true => Ok(scatter(&all[bytes..peeked], buffers)),
                        false => Err(would_block()),
                    };
                }
            }
        })
    }
}
