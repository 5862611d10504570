//! Receives: post, cancel, peek, claim, discard.

use super::entry::ReceiveEntry;
use super::entry::{MessageBytes, MessageStage, ReceiveStage};
use super::{CompletionError, EndpointState, ProgramBuffer, ProgramMemory};
use crate::matching::Selector;
use crate::moment::Moment;
use crate::names::{FlowId, MessageId, ReceiveId};

/// A receive was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The table of receives is full. Take completions and try again.
    #[error("no room, try again")]
    TryAgain,
    /// The flow that the receive names has ended, and no message of it is left.
    #[error("the peer has gone")]
    PeerGone,
    /// The claimed message is gone with its sender, or was taken before.
    #[error("no such message")]
    NoMessage,
}

/// An unexpected message, as a program sees it without taking it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeekedMessage {
    /// The message's tag; 0 if it has none.
    pub tag: u64,
    /// The flow of the message.
    pub flow: FlowId,
    /// Length in bytes.
    pub len: u64,
    /// The sender's eight bytes, if it gave some.
    pub data: Option<u64>,
}

/// A message that a program has taken out of the queue, and not received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimedMessage(MessageId);

impl EndpointState {
    /// Posts a receive. It gets the oldest unexpected message that it takes, or waits.
    ///
    /// # Errors
    ///
    /// [`PostError::TryAgain`]; [`PostError::PeerGone`].
    pub fn post(
        &mut self,
        now: Moment,
        selector: Selector,
        buffer: ProgramBuffer,
        context: u64,
        memory: &mut dyn ProgramMemory,
    ) -> Result<ReceiveId, PostError> {
        let flow = selector.source.map(|source| FlowId::from_bits(source.0));
        let is_live = |id: FlowId| self.flows.get(id).is_some_and(|flow| !flow.is_gone());
        if flow.is_some_and(|flow| !is_live(flow)) && self.matcher.peek(&selector).is_none() {
            return Err(PostError::PeerGone);
        }
        let id = self.insert_receive(selector, buffer, context)?;
        if let Some(message) = self.matcher.post(id.index(), selector) {
            self.match_unexpected(now, message, id, memory);
        } else if let Some(flow) = flow {
            if let Some(flow) = self.flows.get_mut(flow) {
                flow.directed += 1;
            }
            self.touch(now, flow);
        }
        Ok(id)
    }

    fn insert_receive(
        &mut self,
        selector: Selector,
        buffer: ProgramBuffer,
        context: u64,
    ) -> Result<ReceiveId, PostError> {
        let receive = ReceiveEntry {
            selector,
            buffer,
            context,
            stage: ReceiveStage::Posted,
        };
        let id = self.receives.insert(receive);
        self.counters.refused_receives += u64::from(id.is_none());
        id.ok_or(PostError::TryAgain)
    }

    fn match_unexpected(
        &mut self,
        now: Moment,
        place: u32,
        receive: ReceiveId,
        memory: &mut dyn ProgramMemory,
    ) {
        if let Some(message) = self.messages.at(place) {
            self.match_message(now, message, receive, memory);
        }
    }

    /// Cancels a receive that has no message. It then completes with
    /// [`CompletionError::Cancelled`]. Returns `false` if it has a message or is complete.
    pub fn cancel(&mut self, now: Moment, receive: ReceiveId) -> bool {
        let is_posted = self
            .receives
            .get(receive)
            .is_some_and(|receive| matches!(receive.stage, ReceiveStage::Posted));
        if !is_posted || !self.matcher.cancel(receive.index()) {
            return false;
        }
        self.leave_directed(now, receive);
        self.fail_receive(receive, CompletionError::Cancelled);
        true
    }

    /// Notes that a receive for one flow waits no longer.
    pub(super) fn leave_directed(&mut self, now: Moment, receive: ReceiveId) {
        let source = self
            .receives
            .get(receive)
            .and_then(|receive| receive.selector.source);
        let flow = source.map(|source| FlowId::from_bits(source.0));
        if let Some(id) = flow
            && let Some(flow) = self.flows.get_mut(id)
        {
            flow.directed -= 1;
            self.touch(now, id);
        }
    }

    /// Shows the oldest unexpected message that a receive would get.
    pub fn peek(&mut self, selector: &Selector) -> Option<PeekedMessage> {
        let place = self.matcher.peek(selector)?;
        let message = self.messages.get(self.messages.at(place)?)?;
        Some(PeekedMessage {
            tag: message.envelope.tag,
            flow: message.flow,
            len: message.len,
            data: message.data,
        })
    }

    /// Takes the oldest unexpected message that a receive would get out of the queue. No
    /// other receive gets it.
    pub fn claim(&mut self, selector: &Selector) -> Option<ClaimedMessage> {
        let place = self.matcher.claim(selector)?;
        let id = self.messages.at(place)?;
        self.messages.get_mut(id)?.stage = MessageStage::Claimed;
        Some(ClaimedMessage(id))
    }

    /// Receives a claimed message.
    ///
    /// # Errors
    ///
    /// [`PostError::TryAgain`], and the message stays claimed; [`PostError::NoMessage`].
    pub fn receive_claimed(
        &mut self,
        now: Moment,
        claimed: ClaimedMessage,
        buffer: ProgramBuffer,
        context: u64,
        memory: &mut dyn ProgramMemory,
    ) -> Result<ReceiveId, PostError> {
        let message = self.claimed(claimed).ok_or(PostError::NoMessage)?;
        let envelope = self.messages.get(message).ok_or(PostError::NoMessage)?.envelope;
        let selector = Selector {
            tag: envelope.tag,
            ignore: 0,
            source: Some(envelope.source),
            is_tagged: envelope.is_tagged,
        };
        let receive = self.insert_receive(selector, buffer, context)?;
        self.match_message(now, message, receive, memory);
        Ok(receive)
    }

    fn claimed(&self, ClaimedMessage(id): ClaimedMessage) -> Option<MessageId> {
        let message = self.messages.get(id)?;
        (message.stage == MessageStage::Claimed).then_some(id)
    }

    /// Forgets a claimed message. Its sender is complete. Returns `false` if there is none.
    pub fn discard(&mut self, now: Moment, claimed: ClaimedMessage) -> bool {
        let Some(id) = self.claimed(claimed) else {
            return false;
        };
        if let Some(message) = self.messages.get_mut(id) {
            if let MessageBytes::Own(send) = message.bytes {
                self.complete_send(send, Ok(()));
            } else if !matches!(message.bytes, MessageBytes::Offered { .. }) && message.arrived < message.len
            {
                message.stage = MessageStage::Dropped;
                self.release_bytes(now, id);
                return true;
            }
        }
        self.conclude_message(now, id);
        true
    }
}
