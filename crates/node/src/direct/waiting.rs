//! How a thread waits for direct connections: it looks for a while, and sleeps.
//!
//! It announces its sleep, arms what it waits for, and looks once more before it sleeps. So no
//! wake-up is lost, and no timer is needed to hide one. It wakes now and then to see whether the
//! node is still there.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;

pub use toehold_shm::direct::end_own_sleep;
use toehold_shm::direct::{ArmError, Sleep, ThreadNumber, WaiterNumber, Woken};
use toehold_stack::Instant;

use super::Direct;
use super::bank::Bank;
use super::counts::Count;
use super::ear::{Ear, LOOK_AGAIN};
use crate::shards::Shards;
use crate::wait::{Beside, Gone, SpinBudget, sleep_on};
use crate::{clock, interrupts};

/// How long a thread sleeps before it looks whether the node's engine is there.
const SLICE: Duration = Duration::from_millis(500);

/// The target of a thread's wait.
pub trait WaitTarget {
    /// Returns whether there may be something. Called again and again: it changes nothing, and
    /// takes no lock.
    fn is_ready(&self) -> bool;

    /// Has the waiter woken by changes from now on. Returns whether there is something already.
    ///
    /// # Errors
    ///
    /// If the waiter cannot be told.
    fn arm(&mut self, thread: ThreadNumber, waiter: WaiterNumber) -> Result<bool, ArmError>;
}

/// How a wait has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DirectWait {
    /// There may be something to take.
    Ready,
    /// The time is over.
    TimedOut,
    /// A signal has come that ends the call.
    Interrupted,
    /// A descriptor of the kernel has something.
    Beside,
}

/// The memory and descriptors on which a thread sleeps.
#[derive(Debug, Clone, Copy)]
pub struct Bed<'a> {
    /// The banks whose other sides may tell the waiter.
    pub banks: &'a [Arc<Bank>],
    /// The waiter that is told. `None` stands for that of the calling thread.
    pub waiter: Option<WaiterNumber>,
    /// The sides that ring the waiter.
    pub rings: RungBy,
    /// Descriptors of the kernel that end the sleep as well.
    pub beside: &'a [Beside<'a>],
    /// The ear of the waiter while it sleeps on descriptors.
    pub ear: Option<&'a Ear>,
}

/// The sides that ring a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RungBy {
    /// Changes of one end: all rings come through the signals of its one bank.
    Bank,
    /// Any side: the node itself, and the peers of all banks.
    Any,
}

/// The reason why a thread cannot wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The node is gone.
    #[error(transparent)]
    Gone(#[from] Gone),
    /// The node has no waiter or no bitmap left.
    #[error("too many threads of the node wait at once")]
    Waiters,
}

impl From<ArmError> for WaitError {
    fn from(_: ArmError) -> WaitError {
        WaitError::Waiters
    }
}

impl Shards {
    /// Waits until a look at the target may find something, a descriptor beside has something, or
    /// a time has come.
    ///
    /// # Errors
    ///
    /// If the node is gone, or has no waiter left.
    pub fn wait_directly(
        &self,
        direct: &Direct,
        target: &mut impl WaitTarget,
        bed: Bed<'_>,
        spin: &SpinBudget,
        deadline: Option<Instant>,
    ) -> Result<DirectWait, WaitError> {
        if direct.look(target, spin, deadline) {
            return Ok(DirectWait::Ready);
        }
        let thread = direct.thread().ok_or(WaitError::Waiters)?;
        let waiter = bed.waiter.or_else(|| direct.waiter()).ok_or(WaitError::Waiters)?;
        loop {
            if self.is_over() {
                return Err(Gone.into());
            }
            let signals = bed.banks.iter().map(|bank| &bank.signals);
            let sleep = direct.waiters().begin_sleep(waiter, thread, signals);
            if target.arm(thread, waiter)? {
                return Ok(DirectWait::Ready);
            }
            let now = clock::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(DirectWait::TimedOut);
            }
            let slice = now + SLICE;
            let until = clock::earlier(deadline, Some(slice)).unwrap_or(slice);
            direct.count(Count::Sleeps, 1);
            let woken = match bed.beside {
                [] => sleep_on_word(&sleep, bed.rings, until),
                _ => Some(self.sleep_on_descriptors(&bed, until.since(now))?),
            };
            drop(sleep);
            let is_ready = target.is_ready();
            let waited = match woken {
                Some(Woken::Rung) if is_ready => return Ok(DirectWait::Ready),
                _ if Beside::any(bed.beside) => DirectWait::Beside,
                None => DirectWait::Interrupted,
                _ if interrupts::is_pending() => DirectWait::Interrupted,
                Some(Woken::TimedOut) => {
                    self.get(0).check_engine()?;
                    continue;
                }
                _ => continue,
            };
            if is_ready {
                // It is for another thread that sleeps on the waiter.
                direct.waiters().ring(waiter);
            }
            return Ok(waited);
        }
    }
}

impl Shards {
    /// Sleeps on the descriptors beside, and on the ear. Sleeps only briefly if the ear lacks the
    /// bell of a bank.
    fn sleep_on_descriptors(&self, bed: &Bed<'_>, longest: Duration) -> Result<Woken, Gone> {
        let engine = self.get(0).engine();
        let Some(ear) = bed.ear else {
            let [] = sleep_on([], bed.beside, Some(longest.min(LOOK_AGAIN)));
            return Ok(Woken::Rung);
        };
        let hears_all = ear.listen_to_all(bed.banks);
        let longest = if hears_all {
            longest
        } else {
            longest.min(LOOK_AGAIN)
        };
        let own = [ear.as_fd(), engine.unwrap_or(ear.as_fd())];
        let found = sleep_on(own, bed.beside, Some(longest));
        if !found[0].is_empty() {
            ear.silence();
        }
        if engine.is_some() && found[1].intersects(PollFlags::HUP | PollFlags::ERR) {
            self.get(0).check_engine()?;
        }
        Ok(Woken::Rung)
    }
}

/// Sleeps on futex words. Returns `None` if a signal has come before.
fn sleep_on_word(sleep: &Sleep<'_>, rings: RungBy, until: Instant) -> Option<Woken> {
    let _interruptible = sleep.interruptible();
    if interrupts::is_pending() {
        return None;
    }
    Some(match rings {
        RungBy::Bank => sleep.wait_for_bank(Some(until.0)),
        RungBy::Any => sleep.wait(Some(until.0)),
    })
}

impl Direct {
    /// Looks for a while, if that has paid lately.
    fn look(&self, target: &impl WaitTarget, spin: &SpinBudget, deadline: Option<Instant>) -> bool {
        if target.is_ready() {
            return true;
        }
        let budget_ns = spin.get();
        if budget_ns == 0 {
            return false;
        }
        let until = clock::now().plus_nanos(budget_ns);
        let until = clock::earlier(deadline, Some(until)).unwrap_or(until);
        spin.look(until, || target.is_ready());
        let found = target.is_ready();
        match found {
            true => spin.helped(),
            false => spin.in_vain(),
        }
        found
    }
}
