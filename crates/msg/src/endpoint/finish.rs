//! Ends: of sends, of receives, and of flows.

use super::entry::{MessageBytes, MessageStage, ReceiveStage, SendBytes, SendStage};
use super::{CompleteEntry, CompletedOperation, Completion, CompletionError, EndpointState, source};
use crate::links::ListEnds;
use crate::moment::Moment;
use crate::names::{FlowId, MessageId, ReceiveId, SendId};
use crate::payload::{FillPoint, StoredBytes};
use crate::rmpp::flow::{ClosePhase, FlowLife, FlowPath};
use toehold_wire::Mac;

impl EndpointState {
    /// Completes a send if the peer owes nothing for it any more.
    pub(super) fn settle_send(&mut self, id: SendId) {
        let is_done = self.sends.get(id).is_some_and(|send| {
            let is_sent = matches!(send.stage, SendStage::Sent | SendStage::Offered { .. });
            is_sent && send.unacknowledged == 0 && !send.wants_answer
        });
        if is_done {
            self.complete_send(id, Ok(()));
        }
    }

    /// Completes a send. The program is told unless the message was injected.
    pub(super) fn complete_send(&mut self, id: SendId, result: Result<(), CompletionError>) {
        let Some(send) = self.sends.get_mut(id) else {
            return;
        };
        if matches!(send.stage, SendStage::Complete(_)) {
            return;
        }
        if let SendBytes::Stored(stored) = send.bytes {
            send.bytes = SendBytes::Short([0; super::entry::SHORT_LEN]);
            self.payload.release(stored, &mut FillPoint::NONE.clone());
        }
        if let Some(flow) = self.flows.get_mut(send.flow)
            && flow.path != FlowPath::Own
        {
            flow.pending_sends -= 1;
        }
        if !send.is_reported {
            self.sends.remove(id);
            return;
        }
        send.stage = SendStage::Complete(Completion {
            operation: CompletedOperation::Send,
            context: send.context,
            result,
            len: send.len,
            placed: send.len,
            tag: send.tag,
            flow: Some(send.flow),
            data: send.data,
        });
        self.complete.push_back(CompleteEntry::Send(id));
    }

    /// Completes a receive with its message.
    pub(super) fn complete_receive(&mut self, id: ReceiveId, message: MessageId) {
        let Some(message) = self.messages.get(message) else {
            return;
        };
        let Some(receive) = self.receives.get_mut(id) else {
            return;
        };
        let result = match message.fault {
            Some(fault) => Err(fault),
            None if message.len > receive.buffer.len => Err(CompletionError::Truncated),
            None => Ok(()),
        };
        receive.stage = ReceiveStage::Complete(Completion {
            operation: CompletedOperation::Receive,
            context: receive.context,
            result,
            len: message.len,
            placed: message.placed,
            tag: message.envelope.tag,
            flow: Some(message.flow),
            data: message.data,
        });
        self.complete.push_back(CompleteEntry::Receive(id));
    }

    /// Completes a receive that gets no message.
    pub(super) fn fail_receive(&mut self, id: ReceiveId, error: CompletionError) {
        let Some(receive) = self.receives.get_mut(id) else {
            return;
        };
        receive.stage = ReceiveStage::Complete(Completion {
            operation: CompletedOperation::Receive,
            context: receive.context,
            result: Err(error),
            len: 0,
            placed: 0,
            tag: receive.selector.tag,
            flow: None,
            data: None,
        });
        self.complete.push_back(CompleteEntry::Receive(id));
    }

    pub(super) fn release_spare(&mut self, stored: StoredBytes) {
        self.payload.release(stored, &mut FillPoint::NONE.clone());
    }

    /// Closes a flow once its messages have gone. Later sends are refused.
    pub fn close_flow(&mut self, now: Moment, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(id)
            && flow.closing == ClosePhase::None
            && flow.path != FlowPath::Own
        {
            flow.closing = ClosePhase::Wanted;
            self.touch(now, id);
        }
    }

    /// Notes that a hardware address has left the fabric: all lives there have ended.
    pub fn peer_left(&mut self, now: Moment, mac: Mac) {
        let lives = self.by_check.range((mac, 0)..=(mac, u32::MAX));
        let flows: Vec<FlowId> = lives.map(|(_, flow)| *flow).collect();
        for flow in flows {
            self.end_flow(now, flow, CompletionError::PeerGone);
        }
    }

    /// Ends a flow because this endpoint cannot go on with it, and tells the peer.
    pub(super) fn reset_flow(&mut self, now: Moment, id: FlowId, error: CompletionError) {
        if let Some(flow) = self.flows.get(id) {
            let (peer, check) = (flow.peer, flow.check);
            self.queue_reset(peer, check);
            self.end_flow(now, id, error);
        }
    }

    /// Ends a flow at the peer's word.
    pub(super) fn end_by_reset(&mut self, now: Moment, id: FlowId) {
        // A peer that has closed knows the flow no more when a BYE is repeated.
        let is_closing = self
            .flows
            .get(id)
            .is_some_and(|flow| flow.closing == ClosePhase::Sent);
        let error = if is_closing {
            CompletionError::Closed
        } else {
            CompletionError::PeerGone
        };
        self.end_flow(now, id, error);
    }

    /// Ends a flow: all its operations complete with `error`. Whole messages that nothing
    /// has received stay.
    pub(super) fn end_flow(&mut self, now: Moment, id: FlowId, error: CompletionError) {
        let Some(flow) = self.flows.get_mut(id) else {
            return;
        };
        if flow.is_gone() || flow.path == FlowPath::Own {
            return;
        }
        flow.life = FlowLife::Gone;
        for list in [
            &mut flow.waiting,
            &mut flow.serving,
            &mut flow.pulling,
            &mut flow.finishing,
        ] {
            *list = ListEnds::EMPTY;
        }
        flow.sent = crate::rmpp::sent::SentFrames::new();
        flow.deliveries.clear();
        self.by_check.remove(&(flow.peer, flow.check));
        self.tombstones.add(flow.lives.receiver, now);
        let kept: Vec<StoredBytes> = flow.early.drain().collect();
        self.payload.end_fill(&mut flow.fill);
        for stored in kept {
            self.release_spare(stored);
        }
        self.set_deadline(now, id);
        self.end_sends(id, error);
        self.end_messages(now, id, error);
        self.end_receives(now, id, error);
        self.forget_if_empty(id);
    }

    fn end_sends(&mut self, flow: FlowId, error: CompletionError) {
        let of_flow = |id: &SendId| self.sends.get(*id).is_some_and(|send| send.flow == flow);
        let sends: Vec<SendId> = self.sends.ids().filter(of_flow).collect();
        for send in sends {
            self.complete_send(send, Err(error));
        }
    }

    fn end_messages(&mut self, now: Moment, flow: FlowId, error: CompletionError) {
        let of_flow = |id: &MessageId| self.messages.get(*id).is_some_and(|message| message.flow == flow);
        let messages: Vec<MessageId> = self.messages.ids().filter(of_flow).collect();
        for id in messages {
            let Some(message) = self.messages.get_mut(id) else {
                continue;
            };
            let is_whole =
                message.arrived >= message.len && !matches!(message.bytes, MessageBytes::Offered { .. });
            match message.stage {
                MessageStage::Unexpected | MessageStage::Claimed if is_whole => {
                    message.delivery = None;
                    continue;
                }
                MessageStage::Unexpected => {
                    self.matcher.discard(id.index());
                }
                MessageStage::Matched(receive) => {
                    message.fault = Some(error);
                    self.complete_receive(receive, id);
                }
                MessageStage::Claimed | MessageStage::Finishing { .. } | MessageStage::Dropped => {}
            }
            self.free_message(now, id);
        }
    }

    fn end_receives(&mut self, now: Moment, flow: FlowId, error: CompletionError) {
        let source = Some(source(flow));
        let of_flow = |id: &ReceiveId| {
            let receive = self.receives.get(*id);
            receive.is_some_and(|receive| receive.selector.source == source)
        };
        let receives: Vec<ReceiveId> = self.receives.ids().filter(of_flow).collect();
        for id in receives {
            let is_posted = self
                .receives
                .get(id)
                .is_some_and(|receive| matches!(receive.stage, ReceiveStage::Posted));
            if is_posted && self.matcher.cancel(id.index()) {
                self.leave_directed(now, id);
                self.fail_receive(id, error);
            }
        }
    }

    /// Removes an ended flow whose messages are all gone.
    pub(super) fn forget_if_empty(&mut self, id: FlowId) {
        let is_over = self
            .flows
            .get(id)
            .is_some_and(|flow| flow.is_gone() && flow.messages == 0);
        if is_over && let Some(flow) = self.flows.remove(id) {
            flow.grants.end(&mut self.budget);
            self.accepted -= u32::from(flow.is_accepted);
            if flow.is_busy {
                self.busy.retain(|other| *other != id);
            }
        }
    }
}
