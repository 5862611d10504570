//! Wake-ups that wait until the lease is let go. A thread that is woken before that may take the
//! processor from the thread that has the lease. It would only find that it has to wait for the
//! lease.

use std::cell::Cell;
use std::sync::Arc;

use super::Shard;
use super::waiting::{Wake, Wakes};
use crate::direct::ListenerBell;
use toehold_shm::Farewell;
use toehold_shm::direct::LISTENERS;

/// Wake-ups that a thread with the lease owes at most. What there is no room for is done at once.
const MOST: usize = 4;

/// The thread to wake. Numbers are those of shards, [`Wakes`] has them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakeup {
    /// Threads that sleep on the lanes of a channel.
    Lanes { shard: u8, channel: u32 },
    /// The thread that rests on a word.
    Parked { shard: u8, word: u16 },
    /// The thread that sleeps at the link.
    Sleeper { shard: u8 },
    /// The threads of a process that rest on descriptors of their own.
    Resters { shard: u8, process: u16 },
}

impl Wakeup {
    fn perform(self, wakes: &[Wake]) {
        let of = |shard: u8| wakes.get(usize::from(shard));
        match self {
            Wakeup::Lanes { shard, channel } => of(shard).map(|wake| wake.channels.wake(channel)),
            Wakeup::Parked { shard, word } => of(shard).map(|wake| wake.parking.wake(word.into())),
            Wakeup::Sleeper { shard } => of(shard).map(|wake| wake.sleeper.ring()),
            Wakeup::Resters { shard, process } => of(shard).map(|wake| wake.resters.of(process).ring()),
        };
    }
}

/// The wake-ups that the thread with the lease owes.
#[derive(Debug, Default)]
pub(crate) struct Due(Cell<Debt>);

/// The wake-ups that a thread owes that had the lease.
#[derive(Debug, Clone, Copy, Default)]
pub struct Debt {
    wakeups: [Option<Wakeup>; MOST],
    /// Numbers of published listeners whose waiters are to be told.
    listeners: [Option<u16>; MOST],
    /// A bit for each further number modulo 64.
    crowd: u64,
}

impl Debt {
    fn is_any(&self) -> bool {
        self.wakeups[0].is_some() || self.listeners[0].is_some()
    }

    fn tell(&self, bell: &ListenerBell) {
        let listeners = self.listeners.into_iter().flatten();
        listeners.for_each(|number| bell.ring(number));
        if self.crowd != 0 {
            let crowd = (0..LISTENERS as u16).filter(|number| self.crowd >> (number % 64) & 1 != 0);
            crowd.for_each(|number| bell.ring(number));
        }
    }
}

impl Due {
    /// Whether anything is owed.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.0.get().is_any()
    }

    /// Puts off a wake-up, or performs it if there is no room.
    pub(super) fn owe(&self, wakeup: Wakeup, wakes: &[Wake]) {
        let mut debt = self.0.get();
        match debt
            .wakeups
            .iter_mut()
            .find(|owed| owed.is_none_or(|owed| owed == wakeup))
        {
            Some(room) => *room = Some(wakeup),
            None => return wakeup.perform(wakes),
        }
        self.0.set(debt);
    }

    /// Puts off to tell the waiters of a published listener. It is never done under the lease, since
    /// a process may have to ask the engine for their bells.
    pub(super) fn owe_listener(&self, number: u16) {
        let mut debt = self.0.get();
        let room = debt.listeners.iter_mut();
        match room
            .into_iter()
            .find(|owed| owed.is_none_or(|owed| owed == number))
        {
            Some(room) => *room = Some(number),
            None => debt.crowd |= 1 << (number % 64),
        }
        self.0.set(debt);
    }

    fn take(&self) -> Option<Debt> {
        self.is_any().then(|| self.0.take())
    }
}

/// The work of a thread of a node when it lets go of a shard.
#[derive(Debug)]
pub struct Leaving {
    /// The wakes of all shards of the node.
    pub(crate) wakes: Arc<Wakes>,
}

impl Farewell<Shard> for Leaving {
    type Debt = Debt;

    fn serve(&self, shard: &mut Shard) {
        shard.serve();
    }

    #[inline]
    fn owed(&self, shard: &mut Shard) -> Option<Debt> {
        shard.waiting.due.take()
    }

    #[cold]
    fn pay(&self, debt: Debt) {
        let wakeups = debt.wakeups.into_iter().flatten();
        wakeups.for_each(|wakeup| wakeup.perform(self.wakes.all()));
        if let Some(bell) = self.wakes.listeners() {
            debt.tell(bell);
        }
    }
}
