//! How a node falls asleep and wakes up: which peers it tells, and which ones it looks at.

use toehold_shm::ring::fence_before_sleep;

use super::activity::FEW;
use super::peer::Peer;
use super::port::Port;
use super::slots::Slots;

impl Port {
    /// Announces the sleep to all peers that do not ring anyhow. Returns `false` if there is work
    /// to do, or if a peer cannot be reached.
    pub(super) fn announce_sleep(&mut self) -> bool {
        if self.take_unannounced() || self.unmapped().is_some() {
            return false;
        }
        let told = self.state.awake();
        let (mut everywhere, mut idle) = (false, true);
        self.for_each(&told, |peer| everywhere |= peer.announce_sleep());
        let fenced = told.is_empty() || fence_before_sleep(everywhere);
        if fenced {
            self.for_each(&told, |peer| idle &= idle && peer.confirm_sleep());
        }
        if !fenced || !idle {
            self.end_sleep();
            return false;
        }
        let many = self.state.len() > FEW;
        let head = self.state.head_mut();
        if many {
            head.activity.told(told);
        }
        head.sleeping = 1;
        true
    }

    /// Takes the announcements back, but those that peers may go on believing. What another
    /// process announced to a peer that this one has not mapped stands: it is rung once in
    /// vain.
    pub(super) fn end_sleep(&mut self) {
        self.state.end_sleep();
        self.for_each(&self.state.awake(), |peer| peer.finish_sleep());
        self.state.head_mut().sleeping = 0;
    }

    /// Takes the rings that came in, and notes which peers to look at.
    pub(super) fn take_rings(&mut self) {
        let Port { bell, state, .. } = self;
        let rings = bell.take(|slot| state.rouse(slot));
        if rings >= state.head().rings_held {
            // Some may have found no room, and what they said is lost.
            let silent = state.head().activity.silent();
            let mut sent = Slots::default();
            for slot in silent.iter() {
                let peer = self.mappings.peer(&mut self.state, slot);
                if peer.is_none_or(|mut peer| peer.has_unread()) {
                    sent.insert(slot);
                }
            }
            sent.iter().for_each(|slot| self.state.rouse(slot));
        }
    }

    /// Does something with each live peer of a set that this process has mapped.
    #[inline]
    fn for_each(&mut self, slots: &Slots, mut action: impl FnMut(&mut Peer<'_>)) {
        slots.for_each(|slot| {
            if let Some(mut peer) = self.mappings.peer(&mut self.state, slot) {
                action(&mut peer);
            }
        });
    }

    /// Whether a change was added that the driver had no reason to ask for yet.
    #[inline]
    pub(super) fn take_unannounced(&mut self) -> bool {
        std::mem::take(&mut self.state.head_mut().unannounced) != 0
    }
}
