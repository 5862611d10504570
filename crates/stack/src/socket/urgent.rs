//! Urgent data: the byte out of line, its mark in the stream, and the signal to the program.

use super::{Change, ConnectionId, ReceiveFlags, SocketError, setting};
use crate::Stack;
use crate::tcp::{Pcb, flag, urgent_state};

impl Stack {
    /// Steps over an urgent byte that is read out of line. Returns the number of bytes before the
    /// next mark. 0: the program must be signalled first.
    pub(super) fn skip_urgent(&mut self, index: u32, peek: bool) -> usize {
        let tcp = &mut self.tcp;
        let pcb = &mut tcp.pcbs[index];
        if pcb.urgent_state == urgent_state::NONE {
            return usize::MAX;
        }
        let head = pcb.rcv_nxt - u32::from(pcb.has(flag::FIN_RECEIVED)) - pcb.receive_queue.len() as u32;
        if pcb.rcv_up.lt(head) {
            if pcb.urgent_state != urgent_state::AHEAD {
                pcb.urgent_state = urgent_state::NONE;
            }
            return usize::MAX;
        }
        let distance = pcb.rcv_up.distance(head) as usize;
        if distance > 0 {
            return distance;
        }
        if pcb.settings.has(setting::OWNED) && pcb.settings.has(setting::URGENT_ANNOUNCED) {
            return 0;
        }
        if pcb.urgent_state == urgent_state::AHEAD || peek {
            return usize::MAX;
        }
        if !pcb.settings.has(setting::URGENT_INLINE) {
            pcb.receive_queue.take(&mut tcp.payload, 1);
        }
        pcb.urgent_state = urgent_state::NONE;
        usize::MAX
    }

    pub(super) fn receive_urgent(
        &mut self,
        index: u32,
        buffer: &mut [u8],
        flags: ReceiveFlags,
    ) -> Result<usize, SocketError> {
        let pcb = &mut self.tcp.pcbs[index];
        if pcb.settings.has(setting::URGENT_INLINE) {
            return Err(SocketError::InvalidInput);
        }
        match pcb.urgent_state {
            urgent_state::AHEAD => Err(SocketError::WouldBlock),
            urgent_state::HERE => {
                let Some(place) = buffer.first_mut() else {
                    return Ok(0);
                };
                *place = pcb.urgent_byte;
                if !flags.peek {
                    pcb.urgent_state = urgent_state::TAKEN;
                }
                Ok(1)
            }
            _ => Err(SocketError::InvalidInput),
        }
    }

    /// Whether the next byte to read is the urgent one (`sockatmark(3)`).
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn at_mark(&self, id: ConnectionId) -> Result<bool, SocketError> {
        Ok(self.mark(id)? == Some(0))
    }

    /// The number of bytes to read before the urgent one.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn mark(&self, id: ConnectionId) -> Result<Option<usize>, SocketError> {
        let index = self.tcp.resolve(id)?;
        let pcb = &self.tcp.pcbs[index];
        let unread = self.tcp.unread(index) as u32;
        let head = pcb.rcv_nxt - u32::from(pcb.has(flag::FIN_RECEIVED)) - unread;
        let is_ahead = pcb.urgent_state != urgent_state::NONE && pcb.rcv_up.ge(head);
        Ok(is_ahead.then(|| pcb.rcv_up.distance(head) as usize))
    }

    /// Sets whether a process receives SIGURG for urgent data from now on. If so, no thread reads
    /// past a mark before the announcement was taken. This matches Linux, where the signal
    /// interrupts a blocked reader.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn set_owned(&mut self, id: ConnectionId, owned: bool) -> Result<(), SocketError> {
        let index = self.tcp.resolve(id)?;
        let settings = &mut self.tcp.pcbs[index].settings;
        if settings.has(setting::OWNED) != owned {
            settings.set(setting::URGENT_ANNOUNCED, false);
            settings.set(setting::OWNED, owned);
            self.tcp.mark_event(index, Change::DATA);
        }
        Ok(())
    }

    /// Whether a process receives SIGURG, as last set.
    #[inline]
    pub fn is_owned(&self, id: ConnectionId) -> bool {
        let index = self.tcp.resolve(id);
        index.is_ok_and(|index| self.tcp.pcbs[index].settings.has(setting::OWNED))
    }

    /// Whether urgent data have been announced since the last call.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn take_announcement(&mut self, id: ConnectionId) -> Result<bool, SocketError> {
        let index = self.tcp.resolve(id)?;
        let settings = &mut self.tcp.pcbs[index].settings;
        let announced = settings.has(setting::URGENT_ANNOUNCED);
        if announced {
            settings.set(setting::URGENT_ANNOUNCED, false);
            self.tcp.mark_event(index, Change::DATA);
        }
        Ok(announced)
    }

    /// Bytes that can be read without waiting, up to an urgent byte that is read out of line.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn bytes_before_mark(&self, id: ConnectionId) -> Result<usize, SocketError> {
        let index = self.tcp.resolve(id)?;
        let (unread, pcb) = (self.tcp.unread(index), &self.tcp.pcbs[index]);
        let head = pcb.rcv_nxt - u32::from(pcb.has(flag::FIN_RECEIVED)) - pcb.receive_queue.len() as u32;
        let in_line = pcb.urgent_state == urgent_state::NONE || pcb.settings.has(setting::URGENT_INLINE);
        Ok(if in_line || pcb.rcv_up.lt(head) {
            unread
        } else {
            unread.min(pcb.rcv_up.distance(head) as usize)
        })
    }
}

/// Of `unread` bytes, the number at the head that the program does not read: an urgent byte out of
/// line.
#[inline]
pub(super) fn hidden(pcb: &Pcb, unread: usize) -> usize {
    let stands = [urgent_state::HERE, urgent_state::TAKEN].contains(&pcb.urgent_state);
    if unread == 0 || !stands || pcb.settings.has(setting::URGENT_INLINE) {
        return 0;
    }
    let head = pcb.rcv_nxt - u32::from(pcb.has(flag::FIN_RECEIVED)) - unread as u32;
    usize::from(pcb.rcv_up == head)
}
