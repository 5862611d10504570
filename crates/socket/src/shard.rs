//! A shard: a stack, the link it uses, and the threads that wait for it.
//!
//! Everything here happens with the shard's lock held and never waits.

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;
use toehold_link::{Link, NeighborChange};
use toehold_shm::Doorbell;
use toehold_stack::{Event, Instant, Placement, Stack};

use crate::clock;
use crate::engine::Engine;
use crate::interests::Interests;
use crate::parker::Parker;
use crate::poll::PollSet;

/// Most frames taken from the link before they are answered.
const BURST: usize = 64;

/// How much time may pass between two looks at the timers while frames flow.
/// The stack's timers are no more precise than this.
const HOUSEKEEPING_NS: u64 = 50_000;

/// A program that only ever writes looks for acknowledgements this often.
const STALE_NS: u64 = 2_000;

/// When to try again to send what the link had no room for, if nothing else
/// happens before: most links cannot tell when there is room again.
const FULL_LINK_RETRY_NS: u64 = 1_000_000;

/// One stack and all that belongs to it in this process.
pub(crate) struct Shard {
    pub(crate) stack: Stack,
    link: Box<dyn Link>,
    /// The time of this round.
    pub(crate) now: Instant,
    /// When the link was last asked for frames.
    received_at: Instant,
    housekeeping_at: Instant,
    /// Length of the frame that came last, a guess at that of the next.
    frame_len: usize,
    pub(crate) interests: Interests,
    pub(crate) polls: Slab<PollSet>,
    pub(crate) seats: Seats,
    pub(crate) engine: Engine,
    bell: Arc<Doorbell>,
}

/// Who drives the shard, and who rests until it is needed.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    /// The call that drives: the one that most lately began to wait.
    pub(crate) driver: Option<u64>,
    /// The thread that sleeps on the link's descriptor.
    pub(crate) sleeper: Option<Sleeper>,
    /// Threads that sleep until somebody wakes them, oldest first.
    pub(crate) parked: VecDeque<Arc<Parker>>,
    /// The link was told that the node sleeps.
    pub(crate) armed: bool,
    /// Numbers the calls that wait.
    pub(crate) last_ticket: u64,
}

#[derive(Debug)]
pub(crate) struct Sleeper {
    pub(crate) parker: Arc<Parker>,
    /// The call it waits in.
    pub(crate) ticket: u64,
    /// When it wakes up by itself.
    pub(crate) until: Option<Instant>,
}

impl Shard {
    pub(crate) fn new(stack: Stack, link: Box<dyn Link>, bell: Arc<Doorbell>) -> Self {
        let now = clock::now();
        Self {
            stack,
            link,
            now,
            received_at: now,
            housekeeping_at: now,
            frame_len: 0,
            interests: Interests::default(),
            polls: Slab::new(),
            seats: Seats::default(),
            engine: Engine::new(),
            bell,
        }
    }

    /// Begins a round: reads the clock.
    #[inline]
    pub(crate) fn tick(&mut self) {
        self.now = clock::now();
    }

    /// Hands a burst of frames to the stack; data for `placement` go straight
    /// into its buffer. Returns how many frames there were.
    #[inline]
    pub(crate) fn receive(&mut self, placement: Option<&mut Placement<'_>>) -> usize {
        self.received_at = self.now;
        match placement {
            None => self.receive_burst(BURST, None),
            Some(placement) => self.receive_into(placement),
        }
    }

    /// No more frames than the program's buffer will probably hold: what is
    /// beyond has to be copied twice.
    #[inline]
    fn receive_into(&mut self, placement: &mut Placement<'_>) -> usize {
        let mut frames = 0;
        loop {
            let room = placement.buffer.len() - placement.filled;
            let expected = room / self.frame_len.max(64);
            if frames > 0 && expected == 0 {
                return frames;
            }
            let budget = expected.clamp(1, BURST);
            let got = self.receive_burst(budget, Some(placement));
            frames += got;
            if got < budget || placement.filled == 0 || frames >= BURST {
                return frames;
            }
        }
    }

    #[inline]
    fn receive_burst(&mut self, budget: usize, mut placement: Option<&mut Placement<'_>>) -> usize {
        let Self {
            stack,
            link,
            now,
            frame_len,
            ..
        } = self;
        link.receive(now.0, budget, &mut |frame| {
            *frame_len = frame.len();
            stack.handle_frame_into(*now, frame, placement.as_deref_mut());
        })
    }

    /// Does what came of the frames or of a program's call: sends, and wakes.
    #[inline]
    pub(crate) fn respond(&mut self) {
        if self.stack.has_output() {
            self.transmit();
        }
        self.dispatch();
    }

    /// Sends everything that can be sent now.
    #[inline]
    pub(crate) fn transmit(&mut self) {
        self.stack.poll_transmit(self.now, &mut *self.link);
        self.link.flush();
    }

    /// Tells those concerned what has changed.
    #[inline]
    pub(crate) fn dispatch(&mut self) {
        while let Some(event) = self.stack.next_event() {
            if !self.interests.is_empty() {
                self.tell(event);
            }
        }
    }

    fn tell(&mut self, source: Event) {
        let Some(interested) = self.interests.of(source) else {
            return;
        };
        for thread in interested.threads() {
            thread.notify(&self.bell);
        }
        for registration in interested.registrations() {
            if let Some(poll) = self.polls.get_mut(registration.poll) {
                poll.may_be_ready(registration.entry, &self.bell);
            }
        }
    }

    /// Whether a program that calls often, but never has to wait, should look
    /// at the link all the same.
    #[inline]
    pub(crate) fn is_stale(&self) -> bool {
        self.now.nanos_since(self.received_at) > STALE_NS && self.seats.driver.is_none()
    }

    /// A round without waiting, for callers that never wait.
    pub(crate) fn poll_once(&mut self, placement: Option<&mut Placement<'_>>) -> usize {
        self.tick();
        let frames = self.receive(placement);
        if self.housekeeping_due() {
            self.housekeeping();
        } else {
            self.respond();
        }
        frames
    }

    #[inline]
    pub(crate) fn housekeeping_due(&self) -> bool {
        self.now >= self.housekeeping_at
    }

    /// Runs timers, takes in who joined or left, sends what waits. Also the
    /// round before sleeping: what is not done here is not done until the next wake-up.
    pub(crate) fn housekeeping(&mut self) {
        self.housekeeping_at = self.now.plus_nanos(HOUSEKEEPING_NS);
        if self.stack.poll_timeout().is_some_and(|at| at <= self.now) {
            self.stack.handle_timeout(self.now);
        }
        while let Some(change) = self.link.next_change() {
            match change {
                NeighborChange::Joined(_) => self.stack.announce(),
                NeighborChange::Left(mac) => self.stack.neighbor_gone(mac),
            }
        }
        self.transmit();
        self.dispatch();
    }

    /// When the stack has to be driven next even if nothing arrives.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let retry = self
            .stack
            .has_output()
            .then(|| self.now.plus_nanos(FULL_LINK_RETRY_NS));
        clock::earlier(self.stack.poll_timeout(), retry)
    }

    /// Announces to the link that nobody looks any more. False: something has
    /// arrived, do another round.
    pub(crate) fn arm(&mut self) -> bool {
        if !self.seats.armed {
            self.seats.armed = self.link.prepare_sleep();
        }
        self.seats.armed
    }

    /// Takes the announcement back.
    #[inline]
    pub(crate) fn disarm(&mut self) {
        if self.seats.armed {
            self.seats.armed = false;
            self.tick();
            self.link.finish_sleep(self.now.0);
            // What the link noticed in the meantime is taken in soon.
            self.housekeeping_at = self.now;
        }
    }

    pub(crate) fn link(&self) -> &dyn Link {
        &*self.link
    }

    pub(crate) fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// The program lets go of a connection or listener: nobody waits for it any
    /// more, and no poll watches it.
    pub(crate) fn forget(&mut self, source: Event) {
        let Some(interested) = self.interests.remove_source(source) else {
            return;
        };
        for registration in interested.registrations() {
            if let Some(poll) = self.polls.get_mut(registration.poll) {
                poll.remove(registration.entry);
            }
        }
    }
}
