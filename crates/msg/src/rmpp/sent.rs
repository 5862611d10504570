//! Packets that were sent and are not acknowledged.

use crate::moment::Moment;
use crate::names::SendId;
use std::collections::VecDeque;
use toehold_wire::rmpp::{MissingRange, Seq};

/// Unacknowledged packets of a flow, at most.
pub(crate) const MOST_UNACKNOWLEDGED: usize = 4096;

/// A numbered packet, as the state that it is built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentBody {
    /// A whole message.
    Eager { send: SendId },
    /// Bytes of an eager message.
    Part { send: SendId, offset: u32, len: u32 },
    /// A message that stays here.
    Offer { send: SendId },
    /// Asks for bytes of a peer's offer.
    Pull {
        token: u64,
        sink: u64,
        offset: u64,
        len: u64,
    },
    /// Bytes that the peer has asked for.
    Piece { send: SendId, offset: u64, len: u32 },
    /// Ends an offer, or tells that a message was placed.
    Done { token: u64, is_delivery: bool },
    /// Ends the flow.
    Bye,
}

impl SentBody {
    /// The send that the packet needs until it is acknowledged.
    pub(crate) fn send(&self) -> Option<SendId> {
        match *self {
            Self::Eager { send }
            | Self::Part { send, .. }
            | Self::Offer { send }
            | Self::Piece { send, .. } => Some(send),
            Self::Pull { .. } | Self::Done { .. } | Self::Bye => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct SentFrame {
    body: SentBody,
    len: u32,
    sent_at: Moment,
    /// Whether the packet was sent more than once, so that its time measures nothing.
    is_repeated: bool,
    /// Whether the packet has to be sent again.
    is_lost: bool,
}

/// What an acknowledgement said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Acknowledged {
    /// Bytes of the packets that left the list.
    pub(crate) bytes: u64,
    /// When the newest packet that was sent once had been sent.
    pub(crate) sent_at: Option<Moment>,
}

/// The unacknowledged packets of a flow, oldest first.
#[derive(Debug, Clone)]
pub(crate) struct SentFrames {
    frames: VecDeque<SentFrame>,
    /// The number of the oldest.
    first: Seq,
    /// Bytes of packets that are not lost.
    under_way: u64,
    /// Lost packets, and an index before which there are none.
    lost: usize,
    lost_from: usize,
}

impl SentFrames {
    pub(crate) fn new() -> Self {
        Self {
            frames: VecDeque::new(),
            first: Seq(0),
            under_way: 0,
            lost: 0,
            lost_from: 0,
        }
    }

    /// The number of the next packet.
    pub(crate) fn next(&self) -> Seq {
        self.first + self.frames.len() as u32
    }

    /// The oldest unacknowledged number.
    pub(crate) fn first(&self) -> Seq {
        self.first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.frames.len() < MOST_UNACKNOWLEDGED
    }

    /// Bytes that are believed to be under way.
    pub(crate) fn under_way(&self) -> u64 {
        self.under_way
    }

    /// Notes that the next packet was sent.
    pub(crate) fn push(&mut self, body: SentBody, len: usize, now: Moment) {
        self.under_way += len as u64;
        self.frames.push_back(SentFrame {
            body,
            len: len as u32,
            sent_at: now,
            is_repeated: false,
            is_lost: false,
        });
    }

    /// Counts a number without keeping its packet: for a path that loses none.
    pub(crate) fn skip(&mut self) {
        debug_assert!(self.frames.is_empty());
        self.first += 1;
    }

    /// Takes all packets before `ack` out and shows each. Returns `None` if the peer
    /// acknowledges what was not sent.
    pub(crate) fn acknowledge(
        &mut self,
        ack: Seq,
        mut show: impl FnMut(Seq, SentBody),
    ) -> Option<Acknowledged> {
        if ack.gt(self.next()) {
            return None;
        }
        let mut report = Acknowledged::default();
        while self.first.lt(ack) {
            let Some(frame) = self.frames.pop_front() else {
                break;
            };
            self.lost_from = self.lost_from.saturating_sub(1);
            report.bytes += u64::from(frame.len);
            if frame.is_lost {
                self.lost -= 1;
            } else {
                self.under_way -= u64::from(frame.len);
            }
            if !frame.is_repeated {
                report.sent_at = Some(frame.sent_at);
            }
            show(self.first, frame.body);
            self.first += 1;
        }
        Some(report)
    }

    /// Marks the packets of a range as lost. Returns the number of the first one, if there
    /// is one.
    pub(crate) fn lose(&mut self, range: MissingRange) -> Option<Seq> {
        let from = range.start.after(self.first) as usize;
        let to = (range.end.after(self.first) as usize).min(self.frames.len());
        let mut first = None;
        for index in from..to {
            let frame = &mut self.frames[index];
            if !frame.is_lost {
                frame.is_lost = true;
                self.lost += 1;
                self.under_way -= u64::from(frame.len);
                self.lost_from = self.lost_from.min(index);
                first = first.or(Some(self.first + index as u32));
            }
        }
        first
    }

    /// The oldest lost packet.
    pub(crate) fn next_lost(&mut self) -> Option<(Seq, SentBody)> {
        if self.lost == 0 {
            self.lost_from = self.frames.len();
            return None;
        }
        while !self.frames.get(self.lost_from)?.is_lost {
            self.lost_from += 1;
        }
        let frame = self.frames.get(self.lost_from)?;
        Some((self.first + self.lost_from as u32, frame.body))
    }

    /// Notes that the oldest lost packet was sent again.
    pub(crate) fn repeat(&mut self, now: Moment) {
        if let Some(frame) = self.frames.get_mut(self.lost_from)
            && frame.is_lost
        {
            (frame.is_lost, frame.is_repeated, frame.sent_at) = (false, true, now);
            self.lost -= 1;
            self.under_way += u64::from(frame.len);
            self.lost_from += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn acknowledgement_of_unsent_packet_is_refused() {
        let mut sent = SentFrames::new();
        sent.push(SentBody::Bye, 24, Moment(1));
        assert_eq!(sent.acknowledge(Seq(2), |_, _| ()), None);
        assert_eq!(sent.acknowledge(Seq(0), |_, _| ()), Some(Acknowledged::default()));
        assert_eq!(
            sent.acknowledge(Seq(u32::MAX), |_, _| ()),
            Some(Acknowledged::default())
        );
        let report = sent.acknowledge(Seq(1), |_, _| ()).unwrap();
        assert_eq!((report.bytes, report.sent_at), (24, Some(Moment(1))));
    }

    proptest! {
        #[test]
        fn lost_packets_are_repeated_oldest_first(steps in proptest::collection::vec((0u8..4, 0u32..40, 0u32..8), 0..200)) {
            let mut sent = SentFrames { first: Seq(u32::MAX - 20), ..SentFrames::new() };
            // By packet: its number, and whether it is lost.
            let mut model: VecDeque<(Seq, bool)> = VecDeque::new();
            for (step, at, len) in steps {
                match step {
                    0 => {
                        model.push_back((sent.next(), false));
                        sent.push(SentBody::Bye, 10, Moment(0));
                    }
                    1 => {
                        let start = sent.first() + at;
                        sent.lose(MissingRange { start, end: start + len });
                        for (seq, is_lost) in &mut model {
                            *is_lost |= seq.ge(start) && seq.lt(start + len);
                        }
                    }
                    2 => {
                        let ack = sent.first() + at.min(model.len() as u32);
                        sent.acknowledge(ack, |_, _| ());
                        model.retain(|(seq, _)| seq.ge(ack));
                    }
                    _ => {
                        let lost = model.iter_mut().find(|(_, is_lost)| *is_lost);
                        prop_assert_eq!(sent.next_lost().map(|(seq, _)| seq), lost.as_ref().map(|(seq, _)| *seq));
                        if let Some((_, is_lost)) = lost {
                            *is_lost = false;
                            sent.repeat(Moment(1));
                        }
                    }
                }
                let under_way = model.iter().filter(|(_, is_lost)| !is_lost).count();
                prop_assert_eq!(sent.under_way(), under_way as u64 * 10);
                prop_assert_eq!(sent.is_empty(), model.is_empty());
            }
        }
    }
}
