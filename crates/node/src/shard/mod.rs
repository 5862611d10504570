//! A shard: a stack, the link it uses, and the threads that wait for it.
//!
//! These are one process's handles to state that lies in the node's region, with what it needs
//! beside them. Everything here happens under the shard's lease and never waits.

mod due;
mod holders;
mod interest;
mod interests;
mod link;
mod listeners;
mod mend;
mod owners;
mod polls;
mod seats;
mod served;
mod waiting;
mod watching;

pub(crate) use due::Leaving;
pub use interest::Interest;
pub use interests::Watched;
pub(crate) use link::NodeLink;
pub use polls::Told;
pub(crate) use seats::{Pulse, WAITERS};
pub(crate) use waiting::{Bells, Resters, Waiting, Wake, Wakes};

use std::sync::Arc;

use toehold_link::{Link, NeighborChange, Received, Watch};
use toehold_shm::Channels;
use toehold_stack::{
    Change, ConnectionId, DirectReceive, Event, FourTuple, Instant, LOOK_AHEAD, SocketError, SocketOption,
    Stack, ToKernel,
};

use self::due::Wakeup;
use self::interests::{Entry, Key, Kind};
use crate::clock;
use crate::direct::Published;
use crate::kernel::Outlet;

/// Most frames taken from the link before they are answered.
const BURST: usize = 64;

/// With as many connections, their control blocks fill the cache of a processor's core.
const MANY_CONNECTIONS: u32 = 2048;

/// Bytes of a burst of long frames, about: no more than stay in the processor's own cache until the
/// program reads them.
const BURST_BYTES: usize = 64 << 10;

/// A frame is long from this length on: its copy takes longer than all else that is done with it.
const LONG_FRAME: usize = 16 << 10;

/// Speed, about, at which a program reads the bytes of long frames.
const READ_BYTES_PER_NS: u64 = 4;

/// How much time may pass between two looks at the timers while frames flow.
/// The stack's timers are no more precise than this.
const HOUSEKEEPING_NS: u64 = 50_000;

/// How often the engine is asked at most to give pages back that hold nothing.
const DISCARDS_NS: u64 = 1_000_000_000;

/// A program that only ever writes looks for acknowledgements this often.
const STALE_NS: u64 = 2_000;

/// When to try again to send what the link had no room for, if nothing else happens before. Most
/// links cannot tell when there is room again.
const FULL_LINK_RETRY_NS: u64 = 1_000_000;

/// The reason to wake a thread that rests.
#[derive(Debug, Clone, Copy)]
pub enum Subscription {
    /// A change of a connection or listener.
    Source(Event),
    /// A source registered with a poll.
    Poll(u32),
    /// The need for a driver alone.
    Nothing,
}

impl Subscription {
    fn key(self) -> Option<Key> {
        match self {
            Subscription::Source(source) => Some(Key::of(source)),
            Subscription::Poll(poll) => Some(Key::of_poll(poll)),
            Subscription::Nothing => None,
        }
    }
}

/// One stack and all that belongs to it, as one process sees it.
pub struct Shard {
    /// The stack.
    pub stack: Stack,
    pub(crate) link: NodeLink,
    /// The time of the present round.
    pub now: Instant,
    /// When this process last asked the link for frames.
    received_at: Instant,
    housekeeping_at: Instant,
    /// When the engine may next be asked to give pages back.
    discards_at: Instant,
    /// The length of the longest frame that came lately, about: a guess at that of the next.
    frame_len: usize,
    /// Bytes of the long ones among the frames that came last, which the program has to copy.
    unread: usize,
    pub(crate) waiting: Waiting,
    /// A thread was woken on a lane since the driver last looked for frames.
    pub(crate) has_woken: bool,
    bells: Bells,
    channels: Channels,
    /// The way of frames that are not for the stack, if the kernel's is beside it.
    pub(crate) kernel: Option<Outlet>,
    /// The listeners that take direct connections: in the first shard of a node that has them.
    pub(crate) published: Option<Published>,
    /// The wakes of all shards of the node.
    pub(crate) wakes: Arc<Wakes>,
}

impl Shard {
    pub(crate) fn new(
        stack: Stack,
        link: NodeLink,
        waiting: Waiting,
        bells: Bells,
        wakes: Arc<Wakes>,
    ) -> Self {
        let now = clock::now();
        Self {
            channels: stack.channels().clone(),
            stack,
            link,
            now,
            received_at: now,
            housekeeping_at: now,
            discards_at: now,
            frame_len: 0,
            unread: 0,
            kernel: None,
            published: None,
            waiting,
            has_woken: false,
            bells,
            wakes,
        }
    }

    /// Begins a round: reads the clock.
    #[inline]
    pub fn tick(&mut self) {
        self.now = clock::now();
    }

    /// Hands a burst of frames to the stack; data for `placement` go straight
    /// into its buffer. Returns how many frames there were.
    #[inline]
    pub fn receive(&mut self, placement: Option<&mut DirectReceive<'_>>) -> usize {
        self.received_at = self.now;
        self.unread = 0;
        match placement {
            None => {
                let budget = (BURST_BYTES / self.frame_len.max(64)).clamp(1, BURST);
                self.receive_burst(budget, None)
            }
            Some(placement) => self.receive_into(placement),
        }
    }

    /// Receives no more frames than the program's buffer will probably hold: what is beyond has to
    /// be copied twice.
    #[inline]
    fn receive_into(&mut self, placement: &mut DirectReceive<'_>) -> usize {
        let mut frames = 0;
        loop {
            let room = placement.buffer.len() - placement.filled;
            let usual = self.frame_len.max(64);
            let expected = if room < usual { 0 } else { room / usual };
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
    fn receive_burst(&mut self, budget: usize, placement: Option<&mut DirectReceive<'_>>) -> usize {
        if self.stack.connections() >= MANY_CONNECTIONS {
            self.receive_foreseen(budget, placement)
        } else {
            self.take_burst(budget, placement)
        }
    }

    /// Receives segments of connections that are more than a processor's caches hold. Segments wait
    /// for the memory of their connections then, so that of several is fetched before the first one
    /// is handled.
    #[inline(never)]
    fn receive_foreseen(&mut self, budget: usize, mut placement: Option<&mut DirectReceive<'_>>) -> usize {
        let mut frames = 0;
        while frames < budget {
            let expected = LOOK_AHEAD.min(budget - frames);
            self.foresee(expected);
            let got = self.take_burst(expected, placement.as_deref_mut());
            frames += got;
            if got < expected {
                break;
            }
        }
        frames
    }

    fn foresee(&mut self, frames: usize) {
        let Self { stack, link, .. } = self;
        let mut ends = [FourTuple::default(); LOOK_AHEAD];
        let mut count = 0;
        link.look_ahead(frames, &mut |frame| {
            if let (Some(place), Some(found)) = (ends.get_mut(count), stack.probable_ends(frame)) {
                *place = found;
                count += 1;
            }
        });
        stack.prefetch(&ends[..count]);
    }

    #[inline]
    fn take_burst(&mut self, budget: usize, mut placement: Option<&mut DirectReceive<'_>>) -> usize {
        let Self {
            stack,
            link,
            now,
            frame_len,
            unread,
            kernel,
            ..
        } = self;
        let is_placed = placement.is_some();
        let mut to_kernel = |frame: &Received<'_>| match kernel {
            Some(outlet) => outlet.hand_over(frame),
            None => ToKernel::Gone,
        };
        link.receive(now.0, budget, &mut |frame| {
            // Short ones among long ones say little of what comes next.
            *frame_len = frame.len().max(*frame_len - *frame_len / 8);
            if !is_placed && frame.len() >= LONG_FRAME {
                *unread += frame.len();
            }
            stack.handle_frame_beside(*now, frame, placement.as_deref_mut(), &mut to_kernel);
        })
    }

    /// Whether there are no frames to be had.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.link.is_quiet()
    }

    /// Fills `watch` with the words to look at, without the lease, for the next frame.
    #[inline]
    pub(crate) fn watch(&self, watch: &mut Watch) -> bool {
        self.link.watch(watch)
    }

    /// Responds to received frames, or to a program's call: sends, and wakes threads.
    #[inline]
    pub fn respond(&mut self) {
        if self.stack.has_output() {
            self.transmit();
        }
        self.dispatch();
    }

    /// Whether a peer may wait for an acknowledgement that was put off.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.stack.owes_acknowledgements()
    }

    /// Puts nothing off any more: the thread that drives has had nothing to do for a moment.
    #[cold]
    pub(crate) fn settle_debts(&mut self) {
        self.stack.acknowledge(self.now);
        self.respond();
    }

    /// Sends everything that can be sent now.
    #[inline]
    pub fn transmit(&mut self) {
        self.stack.poll_transmit(self.now, &mut self.link);
        self.link.flush();
    }

    /// Tells the threads and polls concerned of changes.
    #[inline]
    pub(crate) fn dispatch(&mut self) {
        while let Some((event, change)) = self.stack.next_change() {
            if let Event::Connection(id) = event
                && self.channels.is_attended()
                && let Some(channel) = self.stack.channel(id)
                && self.channels.mark(channel)
            {
                self.has_woken = true;
                let shard = self.waiting.seats.index();
                let wakeup = Wakeup::Lanes { shard, channel };
                self.waiting.due.owe(wakeup, self.wakes.all());
            }
            if let Event::Listener(id) = event
                && let Some(bell) = self.wakes.listeners()
                && let Some(number) = bell.number(self.waiting.seats.index(), id)
            {
                self.waiting.due.owe_listener(number);
            }
            if !self.waiting.interests.is_empty() {
                self.tell(Key::of(event), change);
            }
        }
    }

    /// Whether a program that calls often, but never has to wait, should look
    /// at the link all the same.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.now.nanos_since(self.received_at) > STALE_NS + self.reading_ns()
            && self.waiting.seats.driver().is_none()
    }

    /// How long a program takes to read what came last, about. More frames would only wait behind
    /// it, and be in no cache any more when their turn comes.
    fn reading_ns(&self) -> u64 {
        self.unread as u64 / READ_BYTES_PER_NS
    }

    /// Looks at the link, unless what it brought last is probably still to be read. How many
    /// frames there were.
    pub fn look_unless_unread(&mut self) -> usize {
        self.tick();
        match self.now.nanos_since(self.received_at) < self.reading_ns() {
            true => 0,
            false => self.poll_once(None),
        }
    }

    /// Looks at the link if that was long ago, for a call that never waits and may be made again
    /// and again. As long as a program calls, no other thread looks.
    #[inline]
    pub fn look_if_stale(&mut self) {
        self.tick();
        if self.is_stale() {
            self.poll_once(None);
        }
    }

    /// Looks at the link if that is overdue, for a call that has an answer already, which a look
    /// would not make better.
    #[inline]
    pub fn look_if_overdue(&mut self) {
        self.tick();
        if self.housekeeping_due() && self.is_stale() {
            self.poll_once(None);
        }
    }

    /// Does a round without waiting, for callers that never wait.
    pub fn poll_once(&mut self, placement: Option<&mut DirectReceive<'_>>) -> usize {
        self.tick();
        let frames = self.receive(placement);
        if self.housekeeping_due() {
            self.housekeeping();
        } else {
            self.respond();
        }
        frames
    }

    /// Whether it is time for [`Shard::housekeeping`].
    #[inline]
    pub fn housekeeping_due(&self) -> bool {
        self.now >= self.housekeeping_at
    }

    pub(crate) fn housekeeping_at(&self) -> Instant {
        self.housekeeping_at
    }

    /// Runs timers, takes in peers that joined or left, sends what waits. It is also the round
    /// before sleeping: what is not done here is not done until the next wake-up.
    pub fn housekeeping(&mut self) {
        self.housekeeping_at = self.now.plus_nanos(HOUSEKEEPING_NS);
        if self.stack.poll_timeout().is_some_and(|at| at <= self.now) {
            self.stack.handle_timeout(self.now);
        }
        while let Some(change) = self.link.next_change() {
            match change {
                NeighborChange::Joined(mac) => {
                    let leads_on = self.link.port().is_none_or(|port| port.leads_on(mac));
                    match leads_on {
                        true => self.stack.announce(),
                        false => self.stack.announce_to(mac),
                    }
                }
                NeighborChange::Left(mac) => {
                    self.stack.neighbor_gone(mac);
                    self.stack.discard_unused_payload();
                }
                NeighborChange::Bound { mac, address } => self.stack.neighbor_bound(self.now, address, mac),
                NeighborChange::Unbound { address, .. } => self.stack.neighbor_unbound(self.now, address),
            }
        }
        let has_departed = self.link.port().is_some_and(|port| port.has_departed());
        let discards = self.stack.has_unused_payload() && self.now >= self.discards_at;
        if discards {
            self.discards_at = self.now.plus_nanos(DISCARDS_NS);
        }
        if has_departed || discards {
            self.bells.fabric.ring();
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

    /// Announces to the link that no thread looks any more. Returns `false` if something has
    /// arrived: do another round.
    pub(crate) fn arm(&mut self) -> bool {
        if !self.waiting.seats.is_armed() {
            let armed = self.link.prepare_sleep();
            self.waiting.seats.set_armed(armed);
        }
        self.waiting.seats.is_armed()
    }

    /// Takes the announcement back, and the rings that came in. A ring that comes after another
    /// thread took it back stays, and the thread at the link would not sleep.
    pub(crate) fn quiet(&mut self) {
        if self.waiting.seats.is_armed() {
            self.disarm();
        } else {
            self.tick();
            self.link.finish_sleep(self.now.0);
        }
    }

    /// Takes the announcement back.
    #[inline]
    pub(crate) fn disarm(&mut self) {
        if self.waiting.seats.is_armed() {
            self.waiting.seats.set_armed(false);
            self.tick();
            self.link.finish_sleep(self.now.0);
            // What the link noticed in the meantime is taken in soon.
            self.housekeeping_at = self.now;
        }
    }

    /// The link.
    pub fn link(&self) -> &dyn Link {
        &self.link
    }

    /// Lists a thread that is about to rest among those to be woken. Returns `false` if there is no
    /// room for it.
    pub(crate) fn subscribe(&mut self, subscription: Subscription, slot: u32) -> bool {
        let key = subscription.key();
        key.is_none_or(|key| {
            let entry = Entry::new(key, Kind::Thread, slot);
            self.waiting.interests.insert(entry).is_some()
        })
    }

    pub(crate) fn unsubscribe(&mut self, subscription: Subscription, slot: u32) {
        let interests = &mut self.waiting.interests;
        if let Some(entry) = subscription.key().and_then(|key| interests.thread(key, slot)) {
            interests.remove(entry);
        }
    }

    /// Forgets a process of the node that is gone: nothing of it rests or drives any more, and its
    /// polls are closed. Its connections and listeners are gone with their holders.
    pub(crate) fn forget_process(&mut self, process: u16) {
        if self.waiting.seats.driver_process() == Some(process) {
            self.waiting.seats.clear_driver();
        }
        for slot in self.waiting.seats.waiters_of(process) {
            self.end_rest(slot);
            self.waiting.seats.give_slot(slot);
            self.waiting.interests.remove_threads(slot);
        }
        self.tick();
        for poll in self.waiting.owners.take(process) {
            self.close_poll(poll);
        }
        self.channels.bury(process);
        self.serve();
        self.respond();
    }

    /// Notes that the thread of the slot does not rest any more.
    fn end_rest(&self, slot: u32) {
        if let Some(waiter) = self.waiting.seats.waiters.get(slot)
            && let Some(home) = self.wakes.all().get(usize::from(waiter.home))
        {
            home.parking.end(waiter.word.into());
        }
    }

    /// Closes the connections and listeners of holders that no process has any more.
    pub(crate) fn forget_holders(&mut self, holders: &[u32]) {
        self.tick();
        for &holder in holders {
            if let Some(source) = self.waiting.holders.take(holder) {
                self.close(source);
            }
        }
        self.respond();
    }

    /// Takes a connection from the process that has it, for the engine to carry its bytes. Threads
    /// that wait for it are told.
    ///
    /// # Errors
    ///
    /// The errors of [`Stack::rename`].
    pub(crate) fn relay(&mut self, holder: u32, id: ConnectionId) -> Result<(), SocketError> {
        let renamed = self.stack.rename(id)?;
        self.tick();
        self.make_inline(renamed);
        let _ = self.stack.set_owned(renamed, false);
        self.waiting.holders.relay(holder, Event::Connection(renamed));
        self.tell(Key::of(Event::Connection(id)), Change::STATE);
        Ok(())
    }

    /// Has urgent data of a connection in their place among the rest, where the engine finds them
    /// when it carries the bytes.
    pub(crate) fn make_inline(&mut self, id: ConnectionId) {
        let inline = SocketOption::UrgentInline(true);
        let _ = self.stack.set_option(self.now, id, inline);
    }

    /// Closes a connection or listener as the kernel would.
    pub fn close(&mut self, source: Event) {
        self.forget(source);
        // There is nothing to be done about one that is gone already.
        let _ = match source {
            Event::Connection(id) => self.stack.close(self.now, id),
            Event::Listener(id) => {
                self.unpublish(id);
                self.stack.close_listener(id)
            }
        };
    }
}
