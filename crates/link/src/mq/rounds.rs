//! Rounds over the peers: whose frames are taken, and in which order.

use super::activity::{FEW, LOOKS};
use super::peer::{Beyond, Polled, Taker};
use super::port::Port;
use super::state::{Offence, PeerRecord};
use crate::Received;

/// The function to which frames are handed over.
type Handler<'a> = &'a mut dyn FnMut(&Received<'_>);

/// The result of a round.
#[derive(Default)]
struct Round {
    frames: usize,
    /// A peer that is done with, and what it did.
    lost: Option<(u16, Option<Offence>)>,
}

impl Round {
    #[inline(always)]
    fn add(&mut self, slot: u16, polled: Polled) {
        self.frames += polled.frames;
        if polled.offence.is_some() || polled.is_over {
            self.lost = Some((slot, polled.offence));
        }
    }
}

impl Port {
    /// One round over the peers. Returns how many frames there were.
    #[inline]
    pub(super) fn poll_peers(&mut self, budget: usize, handler: Handler<'_>) -> usize {
        let peers = self.state.len();
        if peers > FEW {
            return self.poll_many(budget, handler);
        }
        let mut round = Round::default();
        let mut position = self.state.head().first as usize;
        if position >= peers {
            position = 0;
        }
        for _ in 0..peers {
            let Some(slot) = self.state.live(position) else {
                break;
            };
            self.poll_one(slot, budget, &mut round, handler);
            position = if position + 1 == peers { 0 } else { position + 1 };
            if round.frames >= budget {
                break;
            }
        }
        if peers > 1 {
            self.state.head_mut().first = position as u32;
        }
        self.end_round(round)
    }

    /// Those that frames were exchanged with lately, and some of the others.
    #[inline(never)]
    fn poll_many(&mut self, budget: usize, handler: Handler<'_>) -> usize {
        let mut round = Round::default();
        let lively = self.state.head().activity.lively();
        for position in self.next_positions() {
            let slot = self.state.live(position).filter(|slot| !lively.contains(*slot));
            if let Some(slot) = slot {
                self.poll_noted(slot, budget, &mut round, handler);
            }
        }
        let first = self.state.head().activity.first as u16;
        lively.each_from(first, |slot| {
            self.poll_noted(slot, budget, &mut round, handler);
            let goes_on = round.frames < budget;
            if !goes_on {
                self.state.head_mut().activity.first = u32::from(slot) + 1;
            }
            goes_on
        });
        self.state.head_mut().activity.count_round();
        self.end_round(round)
    }

    /// Positions of peers to be looked at even if they are silent.
    fn next_positions(&mut self) -> impl Iterator<Item = usize> + use<> {
        let peers = self.state.len();
        let next = &mut self.state.head_mut().activity.next;
        let first = if (*next as usize) < peers {
            *next as usize
        } else {
            0
        };
        *next = (first + LOOKS) as u32;
        first..(first + LOOKS).min(peers)
    }

    fn poll_noted(&mut self, slot: u16, budget: usize, round: &mut Round, handler: Handler<'_>) {
        let before = round.frames;
        self.poll_one(slot, budget, round, handler);
        if round.frames != before {
            let head = self.state.head_mut();
            head.activity.rouse(slot);
            // While a process sleeps for the node, the announcement of the sleep stands.
            let awake = head.sleeping == 0;
            if let Some(mut peer) = self.mappings.peer(&mut self.state, slot).filter(|_| awake) {
                peer.finish_sleep();
            }
        }
    }

    #[inline(always)]
    fn poll_one(&mut self, slot: u16, budget: usize, round: &mut Round, handler: Handler<'_>) {
        let left = budget - round.frames;
        if self.state.head().gateways.contains(slot) {
            let polled = self.poll_gateway(slot, left, handler);
            round.add(slot, polled);
        } else {
            let polled = self.poll_peer(slot, left, None, handler);
            round.add(slot, polled);
        }
    }

    /// Takes frames of a peer that claim nothing that is another member's. `beyond`: what the peer
    /// leads to.
    #[inline(always)]
    pub(super) fn poll_peer(
        &mut self,
        slot: u16,
        budget: usize,
        beyond: Option<Beyond>,
        handler: Handler<'_>,
    ) -> Polled {
        let own = self.config.mac;
        let (record, known) = self.state.split(slot);
        let Some(mut peer) = record.and_then(|record| self.mappings.peer_of(record, slot)) else {
            return Polled::default();
        };
        let mut taker = Taker {
            known,
            beyond,
            vouched: peer.record.vouched,
            handler,
        };
        let polled = peer.poll(budget, own, &mut self.private, &mut taker);
        if taker.vouched != peer.record.vouched {
            peer.record.vouched = taker.vouched;
        }
        let fenced = peer.mapping.rings.is_fenced_for();
        if polled.frames != 0 && !fenced {
            self.state.head_mut().released.insert(slot);
        }
        if let Some((frames, claim)) = polled.refused {
            self.state.refuse_claim(slot, frames, claim);
        }
        polled
    }

    #[inline]
    fn end_round(&mut self, round: Round) -> usize {
        if let Some((slot, offence)) = round.lost {
            self.dismiss(slot, offence);
        }
        round.frames
    }

    /// Whether a round would find nothing, as far as it looks.
    #[inline]
    pub(super) fn has_nothing(&self) -> bool {
        if self.state.len() > FEW {
            return self.lively_have_nothing();
        }
        self.state
            .iter()
            .all(|(slot, record)| self.is_silent(slot, record))
    }

    #[inline(never)]
    fn lively_have_nothing(&self) -> bool {
        let lively = self.state.head().activity.lively();
        let mut live = lively
            .iter()
            .filter_map(|slot| Some((slot, self.state.get(slot)?)));
        live.all(|(slot, record)| !record.is_live() || self.is_silent(slot, record))
    }

    #[inline]
    fn is_silent(&self, slot: u16, record: &PeerRecord) -> bool {
        let mapping = self.mappings.get(slot, record.generation);
        !record.is_gone() && mapping.is_some_and(|mapping| !mapping.rings.has_next(&record.incoming))
    }
}
