//! A look at frames before they are taken.

use super::activity::FEW;
use super::port::Port;
use super::record::{self, Ends};
use crate::Received;

impl Port {
    /// See [`Link::look_ahead`](crate::Link::look_ahead): peers in the order in which the next
    /// round comes to them, of many the lively ones.
    pub(super) fn see_ahead(&mut self, most: usize, see: &mut dyn FnMut(&Received<'_>)) {
        let mut left = most;
        if self.state.len() > FEW {
            let activity = &self.state.head().activity;
            let (lively, first) = (activity.lively(), activity.first as u16);
            lively.each_from(first, |slot| {
                left -= self.see_frames_of(slot, left, see);
                left > 0
            });
            return;
        }
        let peers = self.state.len();
        let first = (self.state.head().first as usize).min(peers);
        for position in (first..peers).chain(0..first) {
            let Some(slot) = self.state.live(position).filter(|_| left > 0) else {
                return;
            };
            left -= self.see_frames_of(slot, left, see);
        }
    }

    /// Shows up to `most` frames of one peer. Does not check them: the receiver does.
    fn see_frames_of(&mut self, slot: u16, most: usize, see: &mut dyn FnMut(&Received<'_>)) -> usize {
        let Some(peer) = self.state.get(slot) else {
            return 0;
        };
        let Some(mapping) = self.mappings.get(slot, peer.generation) else {
            return 0;
        };
        let ends = Ends {
            sender: peer.mac(),
            receiver: self.config.mac,
        };
        // Of what is known of the ring it is a copy that moves on.
        let mut incoming = peer.incoming;
        let mut consumer = mapping.rings.consumer(&mut incoming);
        let mut seen = 0;
        while seen < most
            && let Ok(Some(next)) = consumer.peek()
            && let Ok(frame) = record::open(&next, &ends, mapping.payload.as_ref(), &mut self.private)
        {
            see(&frame);
            consumer.advance();
            seen += 1;
        }
        seen
    }
}
