//! A shard whose process was killed while it had the lease, at any instruction.
//!
//! Records say what there is: entries what is waited for and by which thread, waiters which threads
//! rest, holders what they stand for. Each is made, or changed in what matters, by one write. All
//! that leads to them (lists, counts, marks) is made anew, so that it need not be known what was
//! half done. What was the dead process's is still there then, and is taken from it as from any
//! that dies ([`Shard::forget_process`]).

use std::collections::BTreeSet;

use super::interests::{Entry, Kind};
use super::waiting::Waiting;
use super::{Bells, Shard};
use crate::driver::Mode;
use toehold_stack::Event;

impl Shard {
    /// Makes the shard whole after a process was killed while it had the lease. No thread drives
    /// after this, and none was told of what may have happened: all that rest must be woken.
    /// Returns `false` if it cannot be made whole.
    #[must_use]
    pub(crate) fn mend(&mut self, dead: u16) -> bool {
        self.tick();
        // What is committed is shown first, so that the link knows what peers may read.
        self.link.mend();
        self.channels.mend();
        self.channels.bury(dead);
        self.waiting.mend();
        let Ok(changed) = self.stack.mend(dead) else {
            return false;
        };
        // What was just being made has no process yet that would close it.
        if let Some(source) = changed.filter(|&source| !self.waiting.holders.have(source)) {
            self.close(source);
        }
        if let Some(published) = &mut self.published {
            let stack = &self.stack;
            published.mend(|source| match source {
                Event::Listener(id) => stack.listener_addr(id).ok(),
                Event::Connection(_) => None,
            });
        }
        self.has_woken = true;
        self.housekeeping_at = self.now;
        if self.waiting.seats.mode() != Mode::Absent {
            // It may sleep at the link, which does not know of it any more.
            self.waiting.seats.set_mode(Mode::Watching);
        }
        let Bells { driver, fabric, .. } = &self.bells;
        driver.ring();
        fabric.ring();
        self.respond();
        true
    }
}

impl Waiting {
    /// Makes the lists anew that say which thread waits for what, and takes out what makes no
    /// sense.
    pub(super) fn mend(&mut self) {
        let Waiting {
            interests,
            polls,
            owners,
            holders,
            seats,
            due: _,
        } = self;
        seats.mend();
        holders.mend();
        let owned: BTreeSet<u32> = owners.polls().collect();
        polls.mend(|poll| owned.contains(&poll));
        owners.mend(|poll| polls.is_open(poll));
        let is_sound = |entry: &Entry| match entry.is(Kind::Thread) {
            true => seats.waiters.is_live(entry.owner),
            false => polls.is_sound(entry),
        };
        interests.mend(is_sound);
        polls.mend_lists(interests);
    }
}

#[cfg(test)]
mod tests;
