//! Sending over a direct connection.

use std::io::{self, IoSlice};

use rustix::io::Errno;
use toehold_node::direct::DirectWait;
use toehold_shm::direct::{Amount, Noted, SendError};
use toehold_stack::{Instant, MOST_WHOLE};

use super::readiness::ForRoom;
use super::{DirectCall, DirectConnection, deadline};
use crate::error::would_block;

impl DirectConnection {
    /// Sends bytes, of which the last one may be urgent.
    #[inline]
    pub(crate) fn send_as(&self, buffers: &[IoSlice<'_>], urgent: bool, waits: bool) -> io::Result<usize> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return self.send_nothing();
        }
        match urgent {
            false => self.send(buffers, waits),
            true => {
                let all = buffers.iter().flat_map(|buffer| buffer.iter().copied());
                self.send_urgent(&all.collect::<Vec<u8>>(), waits)
            }
        }
    }

    /// Sends all bytes, or as many as there is room for if the call may not wait.
    #[inline]
    pub(crate) fn send(&self, buffers: &[IoSlice<'_>], waits: bool) -> io::Result<usize> {
        self.node.contain(|| {
            let call = self.enter()?;
            let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
            let amount = match waits && wanted <= MOST_WHOLE {
                true => Amount::Whole,
                false => Amount::Some,
            };
            match self.attempt(&call, buffers, amount) {
                Ok(sent) if sent == wanted => Ok(sent),
                Ok(sent) if waits => self.send_later(&call, buffers, sent),
                Err(Errno::AGAIN) if waits => self.send_later(&call, buffers, 0),
                sent => {
                    if matches!(sent, Ok(_) | Err(Errno::AGAIN)) {
                        // Polls tell of room again after that (SOCK_NOSPACE).
                        call.end.want_room(call.thread).map_err(|_| Errno::AGAIN)?;
                    }
                    Ok(sent?)
                }
            }
        })
    }

    /// Goes on with a call that has sent some of its bytes.
    fn send_later(&self, call: &DirectCall<'_>, buffers: &[IoSlice<'_>], sent: usize) -> io::Result<usize> {
        let until = deadline(self.description.write_timeout());
        let mut left = buffers.to_vec();
        let mut left = &mut left[..];
        IoSlice::advance_slices(&mut left, sent);
        let amount = if sent == 0 { Amount::Whole } else { Amount::Some };
        let mut sent = sent;
        while !left.is_empty() {
            match self.attempt(call, left, amount) {
                Ok(more) => {
                    sent += more;
                    IoSlice::advance_slices(&mut left, more);
                    continue;
                }
                Err(Errno::AGAIN) => {}
                Err(error) if sent == 0 => return Err(error.into()),
                // What was sent counts; the next call is told what has stopped this one.
                Err(_) => return Ok(sent),
            }
            if !self.wait_until(call, until)? {
                return if sent > 0 { Ok(sent) } else { Err(would_block()) };
            }
        }
        Ok(sent)
    }

    fn wait_until(&self, call: &DirectCall<'_>, until: Option<Instant>) -> io::Result<bool> {
        let mut target = ForRoom {
            call: *call,
            connection: self,
        };
        Ok(self.wait(call, &mut target, until)? == DirectWait::Ready)
    }

    /// Waits for room, if the call may.
    pub(super) fn wait_for_room(&self, call: &DirectCall<'_>, waits: bool) -> io::Result<()> {
        let until = deadline(self.description.write_timeout());
        match waits && self.wait_until(call, until)? {
            true => Ok(()),
            false => Err(would_block()),
        }
    }

    /// Sends as many bytes as there is room for.
    ///
    /// # Errors
    ///
    /// EAGAIN if there is no room; the pending error; EPIPE.
    #[inline]
    pub(super) fn attempt(
        &self,
        call: &DirectCall<'_>,
        buffers: &[IoSlice<'_>],
        amount: Amount,
    ) -> Result<usize, Errno> {
        if (call.end.error() != 0 || call.end.is_reset_by_peer())
            && let Some(error) = call.take_error()
        {
            return Err(error);
        }
        if call.end.has_noted(Noted::ResetSeen) {
            return Err(Errno::PIPE);
        }
        match call.end.send_amount(call.thread, buffers, amount) {
            Ok(sent) => Ok(sent),
            Err(SendError::Full) if call.is_peer_there() => Err(Errno::AGAIN),
            Err(SendError::Full) => Err(call.take_error().unwrap_or(Errno::PIPE)),
            Err(SendError::Shut) => Err(Errno::PIPE),
            Err(SendError::Closed) => self.send_in_vain(call, buffers),
            Err(SendError::Offence(_)) => {
                self.count_offence(call);
                Err(call.take_error().unwrap_or(Errno::PIPE))
            }
            Err(SendError::Reentered(_)) => Err(Errno::AGAIN),
        }
    }

    /// Sends to a peer that has closed its end. The first bytes after that seem to be sent, as over
    /// TCP, where the peer's reset is still to come.
    #[cold]
    fn send_in_vain(&self, call: &DirectCall<'_>, buffers: &[IoSlice<'_>]) -> Result<usize, Errno> {
        if call.end.is_write_shut() {
            return Err(Errno::PIPE);
        }
        if call.is_closed() {
            return Err(call.take_error().unwrap_or(Errno::PIPE));
        }
        if call.end.note(Noted::SentInVain) {
            call.end.set_error(Errno::PIPE.raw_os_error() as u32);
            call.end.rouse();
        }
        Ok(buffers.iter().map(|buffer| buffer.len()).sum())
    }

    /// The error of sending, for a call without bytes.
    #[cold]
    pub(crate) fn send_nothing(&self) -> io::Result<usize> {
        self.node.contain(|| {
            let call = self.enter()?;
            match self.attempt(&call, &[], Amount::Some) {
                Ok(_) | Err(Errno::AGAIN) => Ok(0),
                Err(error) => Err(error.into()),
            }
        })
    }
}
