//! The urgent byte: how it is sent, taken, and read past (RFC 6093, as Linux does it).

use std::io::{self, IoSlice, IoSliceMut};

use rustix::io::Errno;
use toehold_shm::direct::{Amount, End, Take};

use super::readiness::Urgent;
use super::{DirectCall, DirectConnection};
use crate::error::would_block;

impl DirectConnection {
    fn is_urgent_inline(&self) -> bool {
        self.description.settings().urgent_inline()
    }

    /// The effect of the urgent byte before `position` on the bytes that can be received.
    #[cold]
    pub(super) fn urgent(&self, end: &End<'_>, position: u64, readable: u64) -> Urgent {
        let Some(ahead) = (position - 1).checked_sub(end.received()) else {
            return Urgent::default();
        };
        let is_inline = self.is_urgent_inline();
        let has_come = readable > ahead;
        Urgent {
            limit: match (ahead, is_inline) {
                (0, true) => None,
                (0, false) => Some(readable.saturating_sub(1)),
                (ahead, _) => Some(ahead),
            },
            is_there: has_come && end.urgent_taken() < position,
        }
    }

    /// The position up to which a call receives, and whether the byte before that is left out.
    pub(super) fn mark(&self, call: &DirectCall<'_>) -> Mark {
        let urgent = call.end.urgent();
        if urgent == 0 {
            return Mark::None;
        }
        let received = call.end.received();
        if call.end.urgent_taken() == received + 1 && !self.is_urgent_inline() {
            // An earlier one, which stays behind when the next is announced.
            return Mark::Here;
        }
        match (urgent - 1).checked_sub(received) {
            None => Mark::None,
            Some(0) if self.is_urgent_inline() => Mark::None,
            Some(0) => Mark::Here,
            Some(_) => Mark::At(urgent - 1),
        }
    }

    /// Whether the next byte is the urgent one (`sockatmark(3)`).
    pub(crate) fn at_mark(&self) -> io::Result<bool> {
        self.node.contain(|| {
            let call = self.enter()?;
            let urgent = call.end.urgent();
            Ok(urgent != 0 && urgent - 1 == call.end.received())
        })
    }

    /// Takes the urgent byte, or looks at it (MSG_OOB).
    pub(crate) fn out_of_band(&self, into: &mut [u8], peek: bool) -> io::Result<usize> {
        self.node.contain(|| {
            let call = self.enter()?;
            let end = &call.end;
            let urgent = end.urgent();
            let is_ahead = urgent != 0 && end.received() < urgent && end.urgent_taken() < urgent;
            if !is_ahead || self.is_urgent_inline() {
                return Err(Errno::INVAL.into());
            }
            let byte = end.byte_at(call.thread, urgent - 1).map_err(|_| Errno::AGAIN)?;
            let Some(byte) = byte else {
                let present = super::look(&call, self);
                return match present.is_read_closed {
                    true => Ok(0),
                    false => Err(would_block()),
                };
            };
            if !peek {
                self.read_past_earlier(&call, urgent)?;
                if !end.take_urgent(urgent) {
                    return Err(Errno::INVAL.into());
                }
            }
            match into.first_mut() {
                Some(place) => {
                    *place = byte;
                    Ok(1)
                }
                None => Ok(0),
            }
        })
    }

    /// Drops an earlier urgent byte that was taken and is the next of the stream. Once the byte before
    /// `urgent` is taken as well, nothing tells the earlier one from the stream's bytes.
    fn read_past_earlier(&self, call: &DirectCall<'_>, urgent: u64) -> io::Result<()> {
        let earlier = call.end.received() + 1;
        if earlier == urgent || call.end.urgent_taken() != earlier {
            return Ok(());
        }
        let mut byte = [0];
        let dropped = call.end.receive(
            call.thread,
            &mut [IoSliceMut::new(&mut byte)],
            Take::Remove,
            earlier,
        );
        dropped.map(drop).map_err(|_| Errno::AGAIN.into())
    }

    /// Sends bytes of which the last one is urgent: the peer knows of it before it has come.
    #[cold]
    pub(super) fn send_urgent(&self, bytes: &[u8], waits: bool) -> io::Result<usize> {
        let Some((last, first)) = bytes.split_last() else {
            return Ok(0);
        };
        let sent = match first {
            [] => 0,
            first => self.send(&[IoSlice::new(first)], waits)?,
        };
        if sent < first.len() {
            return Ok(sent);
        }
        let last = self.node.contain(|| {
            let call = self.enter()?;
            self.send_last(&call, *last, waits)
        });
        match last {
            Ok(()) => Ok(bytes.len()),
            Err(_) if sent > 0 => Ok(sent),
            Err(error) => Err(error),
        }
    }

    fn send_last(&self, call: &DirectCall<'_>, last: u8, waits: bool) -> io::Result<()> {
        loop {
            if super::look(call, self).is_writable() {
                let position = call.end.sent() + 1;
                call.end
                    .set_urgent(call.thread, position)
                    .map_err(|_| Errno::AGAIN)?;
                match self.attempt(call, &[IoSlice::new(&[last])], Amount::Some) {
                    Err(error) if error == Errno::AGAIN => {}
                    sent => return sent.map(drop).map_err(Into::into),
                }
            }
            self.wait_for_room(call, waits)?;
        }
    }
}

/// Where the next call that receives has to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Nowhere.
    None,
    /// Before the urgent byte at this position.
    At(u64),
    /// The next byte is the urgent one, which is no part of the stream.
    Here,
}
