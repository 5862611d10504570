//! Calls that need no lease: along the lanes of a connection's channel.
//!
//! A program's thread fills or reads a lane, and leaves a request if the stack should know. Under
//! [`Placement::Engine`](crate::Placement::Engine) the engine's driver takes it, and a thread that
//! waits for bytes does so on the lane: neither needs the lease. Otherwise the thread that has the
//! lease takes the request. If none has it, the program's thread itself does.

use std::time::Duration;

use toehold_shm::{Channels, Direction, Lane, LaneLock, Left};
use toehold_stack::Instant;

use super::{Gone, Guard, ShardHandle, SpinBudget};
use crate::attachment::Attachment;
use crate::{clock, interrupts};

impl ShardHandle {
    /// The channels of the node's connections.
    #[inline]
    pub fn channels(&self) -> &Channels {
        &self.channels
    }

    /// One direction of a connection's channel, to be used by one thread at a time.
    ///
    /// # Errors
    ///
    /// If the node goes away while another thread has it.
    #[inline]
    pub fn lock_lane<'a>(&self, lane: Lane<'a>) -> Result<LaneLock<'a>, Gone> {
        lane.lock(self.process(), || self.check().is_ok()).ok_or(Gone)
    }

    /// Leaves a request, after something was done with a channel. Returns `false` if another
    /// thread, which has the lease, serves it.
    ///
    /// # Errors
    ///
    /// If no thread is left to serve it.
    #[inline]
    pub fn leave_request(&self, channel: u32) -> Result<bool, Gone> {
        match self.channels.leave_request(channel) {
            Left::Attended => {}
            Left::MustRing => self.bells.sleeper.ring(),
            Left::Unattended => return self.serve_unless_held(),
        }
        Ok(true)
    }

    /// Begins a call that may do without the lease: looks now and then whether the node is still
    /// there.
    ///
    /// # Errors
    ///
    /// If it is gone.
    #[inline]
    pub fn begin_call(&self) -> Result<(), Gone> {
        self.attachment.as_ref().map_or(Ok(()), Attachment::count_call)
    }

    fn serve_unless_held(&self) -> Result<bool, Gone> {
        let Some(mut shard) = self.enter_or_request()? else {
            return Ok(false);
        };
        if shard.is_stale() {
            shard.receive(None);
            shard.respond();
            if shard.housekeeping_due() {
                shard.housekeeping();
            }
        }
        self.settle(&mut shard);
        Ok(true)
    }

    /// Takes the lease if no thread has it, and serves what is left; else the thread that has it
    /// will.
    fn enter_or_request(&self) -> Result<Option<Guard<'_>>, Gone> {
        self.announce();
        match self.lease.try_lock_or_request()? {
            Some(shard) => self.entered(shard).map(Some),
            None => Ok(None),
        }
    }

    /// Leaves a request of a channel, and takes the lease if no thread has it: the request is
    /// served then. With the lease a call goes on where its lane has come to its end.
    ///
    /// # Errors
    ///
    /// If the node is gone.
    pub fn go_on(&self, channel: u32) -> Result<Option<Guard<'_>>, Gone> {
        match self.channels.leave_request(channel) {
            Left::Attended => Ok(None),
            Left::MustRing => {
                self.bells.sleeper.ring();
                Ok(None)
            }
            Left::Unattended => self.enter_or_request(),
        }
    }

    /// Fails if the node is gone.
    fn check(&self) -> Result<(), Gone> {
        if self.lease.lease().is_closed() {
            return Err(Gone);
        }
        self.check_engine()
    }

    /// When a wait ends that begins now and is to take so long at most.
    pub fn deadline(&self, longest: Option<Duration>) -> Option<Instant> {
        longest.map(|longest| clock::now() + longest)
    }

    /// Waits until there is reason to look at a lane once more, while the engine's driver attends
    /// to the channels. Returns `false` if the deadline has passed, or a
    /// [signal](crate::interrupts) came.
    ///
    /// # Errors
    ///
    /// If the node goes away in the meantime.
    pub fn wait_on_lane(
        &self,
        (lane, owner): (Lane<'_>, u64),
        spin: &SpinBudget,
        deadline: Option<Instant>,
    ) -> Result<bool, Gone> {
        let must_wait = || lane.bounds(owner).must_wait() && self.channels.is_attended();
        let budget_ns = spin.get();
        if budget_ns > 0 {
            if spin.crowd().look_alone(budget_ns, || !must_wait()) {
                spin.helped();
                return Ok(true);
            }
            spin.in_vain();
        }
        while must_wait() {
            if interrupts::is_pending() || deadline.is_some_and(|deadline| clock::now() >= deadline) {
                return Ok(false);
            }
            let until = self.end_of_slice(deadline);
            self.channels.sleep(lane, owner, until.map(|until| until.0));
            self.check()?;
        }
        Ok(true)
    }

    /// Waits until no other thread goes along a lane.
    ///
    /// # Errors
    ///
    /// If the node goes away in the meantime.
    pub fn await_lane(&self, channel: u32, direction: Direction) -> Result<(), Gone> {
        if let Some(lane) = self.channels.lane(channel, direction)
            && self.lock_lane(lane)?.release()
        {
            self.tell_waiters(channel)?;
        }
        Ok(())
    }

    /// Has threads told that wait for a connection with the lease, if a thread that used one of its
    /// lanes was in their way.
    ///
    /// # Errors
    ///
    /// If the node is gone.
    #[cold]
    pub fn tell_waiters(&self, channel: u32) -> Result<(), Gone> {
        if let Some(lane) = self.channels.lane(channel, Direction::Receive) {
            lane.want();
        }
        self.leave_request(channel).map(drop)
    }
}
