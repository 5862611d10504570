//! How a poll waits.
//!
//! A thread that waits for sources in shards takes their leases, and drives the shards. It waits
//! for other sources on the poll's own waiter. A poll that watches both kinds waits with the
//! leases, and its waiter's bell ends the sleep like a descriptor of the kernel's.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use toehold_node::direct::{Bed, Direct, DirectWait, LOOK_AGAIN, RungBy, WaitError, WaitTarget};
use toehold_node::{Beside, Shards, interrupts};

use super::direct::DirectSet;
use super::registry::Kind;
use super::set::DIRECT;
use super::{Events, Poll, Seen, Waited};
use crate::error::gone;

impl Poll {
    /// Waits for sources that are watched in shards alone.
    pub(super) fn wait_in_shards(
        &self,
        events: &mut Events,
        timeout: Option<Duration>,
        beside: &[Beside<'_>],
    ) -> io::Result<Waited> {
        let set = &self.registry.set;
        let began = timeout.map(|_| Instant::now());
        let mut left = timeout;
        loop {
            let used = set.used.load(Relaxed);
            if used & DIRECT != 0 && set.watches_directly() {
                return self.wait_with_direct(events, left, beside);
            }
            match self.wait_once(used, events, (left, beside))? {
                Some(Seen::Sockets) => {
                    self.spend(events)?;
                    return Ok(Waited::Sockets);
                }
                Some(Seen::Beside) => return Ok(Waited::Beside),
                None => return Ok(Waited::TimedOut),
                Some(Seen::Changed) => {}
            }
            // Another thread has registered a socket of another shard meanwhile.
            left =
                timeout.map(|timeout| timeout.saturating_sub(began.unwrap_or_else(Instant::now).elapsed()));
        }
    }

    fn spend(&self, events: &Events) -> io::Result<()> {
        let mut spent = events.spent();
        spent.try_for_each(|(shard, group)| self.registry.set.spend(shard, group))
    }

    fn wait_once(
        &self,
        used: u32,
        events: &mut Events,
        wait: (Option<Duration>, &[Beside<'_>]),
    ) -> io::Result<Option<Seen>> {
        if (used & !DIRECT).is_power_of_two() {
            self.poll_in(used.trailing_zeros() as u8, used, events, wait)
        } else {
            self.poll_in_several(used, events, wait)
        }
    }

    /// Waits for sources that are watched without the lease, and for those in shards if there are
    /// any.
    fn wait_with_direct(
        &self,
        events: &mut Events,
        timeout: Option<Duration>,
        beside: &[Beside<'_>],
    ) -> io::Result<Waited> {
        let set = &self.registry.set;
        let shards = set.node.shards()?;
        let (Some(direct_set), Some(direct)) = (&set.direct, shards.direct()) else {
            return Err(Errno::NETDOWN.into());
        };
        let began = Instant::now();
        loop {
            if shards.is_over() {
                return Err(Errno::NETDOWN.into());
            }
            let changes = direct_set.changes();
            set.refresh_listeners(direct_set, direct)?;
            direct_set.collect(direct, events)?;
            let has_leased = set.has_leased();
            if has_leased && events.len() < events.capacity() {
                let used = set.used.load(Relaxed);
                self.wait_once(used, events, (Some(Duration::ZERO), &[]))?;
                self.spend(events)?;
            }
            if !events.is_empty() {
                return Ok(Waited::Sockets);
            }
            let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(match Beside::look(beside) {
                    true => Waited::Beside,
                    false => Waited::TimedOut,
                });
            }
            let waited = match has_leased {
                true => self.wait_for_both((direct_set, changes), direct, events, (left, beside))?,
                false => self.wait_leaseless((direct_set, changes), (shards, direct), (left, beside))?,
            };
            if let Some(waited) = waited {
                return Ok(waited);
            }
        }
    }

    /// Waits without the lease. Returns `None` if there may be something.
    fn wait_leaseless(
        &self,
        (set, changes): (&DirectSet, u64),
        (shards, direct): (&Shards, &Direct),
        (left, beside): (Option<Duration>, &[Beside<'_>]),
    ) -> io::Result<Option<Waited>> {
        let banks = set.banks();
        let bed = Bed {
            banks: &banks,
            waiter: Some(set.waiter()),
            rings: RungBy::Any,
            beside,
            ear: if beside.is_empty() { None } else { set.ear(direct) },
        };
        let deadline = left.map(|left| toehold_stack::Instant(toehold_shm::monotonic_ns()) + left);
        let mut target = set.target(direct, &banks, changes);
        let waited = shards.wait_directly(direct, &mut target, bed, &self.spin, deadline);
        match waited {
            Ok(DirectWait::Ready) => Ok(None),
            Ok(DirectWait::Beside) => Ok(Some(Waited::Beside)),
            Ok(DirectWait::TimedOut | DirectWait::Interrupted) => Ok(Some(Waited::TimedOut)),
            Err(WaitError::Gone(error)) => Err(gone(error)),
            Err(WaitError::Waiters) => Err(Errno::NOBUFS.into()),
        }
    }

    /// Waits with the leases of the shards. Returns `None` if there may be something without them.
    fn wait_for_both(
        &self,
        (set, changes): (&DirectSet, u64),
        direct: &Direct,
        events: &mut Events,
        (left, beside): (Option<Duration>, &[Beside<'_>]),
    ) -> io::Result<Option<Waited>> {
        let thread = direct.thread().ok_or(Errno::NOBUFS)?;
        let banks = set.banks();
        let ear = set.ear(direct);
        let hears_all = ear.is_some_and(|ear| ear.listen_to_all(&banks));
        let signals = banks.iter().map(|bank| &bank.signals);
        let _sleep = direct.waiters().begin_sleep(set.waiter(), thread, signals);
        let mut target = set.target(direct, &banks, changes);
        if target.arm(thread, set.waiter()).map_err(|_| Errno::NOBUFS)? {
            return Ok(None);
        }
        let mut all = Vec::with_capacity(beside.len() + 1);
        all.extend(beside.iter().map(Beside::again));
        all.extend(ear.map(|ear| Beside::new(ear.as_fd(), PollFlags::IN)));
        let used = self.registry.set.used.load(Relaxed);
        let longest = if hears_all {
            left
        } else {
            Some(left.map_or(LOOK_AGAIN, |left| left.min(LOOK_AGAIN)))
        };
        let is_whole = longest == left;
        let seen = self.wait_once(used, events, (longest, &all))?;
        for (one, found) in beside.iter().zip(&all) {
            one.take_over(found);
        }
        if let Some(ear) = ear
            && all.last().is_some_and(|last| !last.found().is_empty())
        {
            ear.silence();
        }
        match seen {
            Some(Seen::Sockets) => {
                self.spend(events)?;
                Ok(Some(Waited::Sockets))
            }
            Some(Seen::Beside) if Beside::any(beside) => Ok(Some(Waited::Beside)),
            None if is_whole || interrupts::is_pending() => Ok(Some(Waited::TimedOut)),
            None | Some(Seen::Beside | Seen::Changed) => Ok(None),
        }
    }
}

impl super::set::Set {
    /// Looks up anew how peers know the listeners that are watched, if any has changed.
    fn refresh_listeners(&self, direct_set: &DirectSet, direct: &Direct) -> io::Result<()> {
        if !direct_set.note_epoch(direct) {
            return Ok(());
        }
        let mut moved = Vec::new();
        direct_set.refresh_listeners(direct, |listener, name, asked, is_published| {
            moved.push((Arc::clone(listener), name, asked, is_published));
        });
        for (listener, name, (token, interest), is_published) in moved {
            let kind = Kind::Listener(listener);
            match is_published {
                true => self.deregister_in_shards(&kind, name)?,
                false => self.register_in_shards(&kind, name, (token, interest))?,
            }
        }
        Ok(())
    }
}
