//! Sends, from the program's call to the flow's queue.

use super::entry::SendEntry;
use super::entry::{MessageBytes, SHORT_LEN, SendBytes, SendStage};
use super::{EndpointState, MOST_INJECT_LEN, MOST_MESSAGE_LEN, ProgramBuffer, ProgramMemory, source};
use crate::matching::TagEnvelope;
use crate::moment::Moment;
use crate::names::{FlowId, SendId};
use crate::rmpp::flow::{ClosePhase, FlowPath};

/// A message to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutgoingMessage {
    /// The tag; `None` for a message without one.
    pub tag: Option<u64>,
    /// Eight bytes for the receiver's completion.
    pub data: Option<u64>,
    /// The message.
    pub buffer: ProgramBuffer,
    /// A word for the completion.
    pub context: u64,
    /// Whether the message is copied at once, and the program not told of its end.
    pub is_injected: bool,
    /// Whether the send is complete only when the receiver has placed the message.
    pub wants_delivery: bool,
}

impl OutgoingMessage {
    /// Describes a message with a tag.
    #[must_use]
    pub const fn tagged(tag: u64, buffer: ProgramBuffer, context: u64) -> Self {
        Self {
            tag: Some(tag),
            data: None,
            buffer,
            context,
            is_injected: false,
            wants_delivery: false,
        }
    }
}

/// A send was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The table of sends, or the payload memory for an injected message, is full. Take
    /// completions and try again.
    #[error("no room, try again")]
    TryAgain,
    /// The flow has ended.
    #[error("the peer has gone")]
    PeerGone,
    /// The message is too long, or too long to be injected.
    #[error("the message is too long")]
    TooLong,
    /// An injected message could not be read.
    #[error("the buffer cannot be accessed")]
    MemoryFault,
}

impl EndpointState {
    /// Takes a message to send. It goes behind all earlier ones of the flow. A program's
    /// buffer stays as it is until the completion, unless the message is injected.
    ///
    /// # Errors
    ///
    /// [`SubmitError`]. Nothing was sent then.
    pub fn send(
        &mut self,
        now: Moment,
        flow: FlowId,
        message: &OutgoingMessage,
        memory: &mut dyn ProgramMemory,
    ) -> Result<SendId, SubmitError> {
        let len = message.buffer.len;
        let most = if message.is_injected {
            MOST_INJECT_LEN as u64
        } else {
            MOST_MESSAGE_LEN
        };
        if len > most {
            return Err(SubmitError::TooLong);
        }
        let path = match self.flows.get(flow) {
            Some(flow) if !flow.is_gone() && flow.closing == ClosePhase::None => flow.path,
            _ => return Err(SubmitError::PeerGone),
        };
        let has_room = self.sends.has_room() && (path != FlowPath::Own || self.messages.has_room());
        if !has_room {
            self.counters.refused_sends += 1;
            return Err(SubmitError::TryAgain);
        }
        let send = SendEntry {
            flow,
            tag: message.tag.unwrap_or(0),
            is_tagged: message.tag.is_some(),
            data: message.data,
            context: message.context,
            bytes: self.take_bytes(message, memory)?,
            len,
            is_reported: !message.is_injected,
            wants_delivery: message.wants_delivery,
            wants_answer: message.wants_delivery,
            unacknowledged: 0,
            stage: SendStage::Waiting { offset: 0 },
        };
        let id = self.sends.insert(send).ok_or(SubmitError::TryAgain)?;
        self.counters.sends += 1;
        if path == FlowPath::Own {
            self.send_to_oneself(now, id, memory);
        } else if let Some(flow_state) = self.flows.get_mut(flow) {
            self.send_links.push_back(&mut flow_state.waiting, id.index());
            flow_state.pending_sends += 1;
            self.touch(now, flow);
        }
        Ok(id)
    }

    /// Copies a short or injected message.
    fn take_bytes(
        &mut self,
        message: &OutgoingMessage,
        memory: &mut dyn ProgramMemory,
    ) -> Result<SendBytes, SubmitError> {
        let buffer = message.buffer;
        let len = buffer.len as usize;
        if len <= SHORT_LEN {
            let mut bytes = [0; SHORT_LEN];
            let is_read = len == 0 || memory.fetch(buffer, 0, &mut bytes[..len]);
            return if is_read {
                Ok(SendBytes::Short(bytes))
            } else {
                Err(SubmitError::MemoryFault)
            };
        }
        if !message.is_injected {
            return Ok(SendBytes::Program(buffer));
        }
        let mut bytes = [0; MOST_INJECT_LEN];
        if !memory.fetch(buffer, 0, &mut bytes[..len]) {
            return Err(SubmitError::MemoryFault);
        }
        let Some(stored) = self.payload.reserve_spare(len) else {
            self.counters.refused_injects += 1;
            return Err(SubmitError::TryAgain);
        };
        self.payload.write(stored, 0, &bytes[..len]);
        Ok(SendBytes::Stored(stored))
    }

    /// Matches a message to this endpoint itself. Its bytes are copied once, or wait with
    /// the send.
    fn send_to_oneself(&mut self, now: Moment, id: SendId, memory: &mut dyn ProgramMemory) {
        let Some(send) = self.sends.get_mut(id) else {
            return;
        };
        send.stage = SendStage::Own;
        let (flow, len, data) = (send.flow, send.len, send.data);
        let envelope = TagEnvelope {
            tag: send.tag,
            source: source(flow),
            is_tagged: send.is_tagged,
        };
        let arrived = self.insert_message(flow, envelope, data, len, MessageBytes::Own(id));
        if let Some(message) = arrived {
            self.match_arrival(now, message, memory);
        }
    }

    /// Reads bytes of a send. Returns `false` if the program's memory cannot be read.
    pub(super) fn read_send(
        &self,
        bytes: &SendBytes,
        offset: u64,
        into: &mut [u8],
        memory: &mut dyn ProgramMemory,
    ) -> bool {
        if into.is_empty() {
            return true;
        }
        match bytes {
            SendBytes::Program(buffer) => memory.fetch(*buffer, offset, into),
            SendBytes::Short(short) => {
                let from = offset as usize;
                into.copy_from_slice(&short[from..from + into.len()]);
                true
            }
            SendBytes::Stored(stored) => {
                let mut at = 0;
                for piece in self.payload.pieces(*stored, offset as usize, into.len()) {
                    into[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
                at == into.len()
            }
        }
    }
}
