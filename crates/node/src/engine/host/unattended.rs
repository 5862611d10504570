//! Connections that a program has registered with an instance of epoll in which nobody has ever
//! waited on the node: the program may wait past the library, by system calls of its own, of
//! which the kernel tells it. So the engine carries the bytes of those that it finds so twice,
//! and from then on the kernel has something to tell.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use toehold_stack::{Event, SocketError, State};

use super::ends::{Ends, Lent};
use crate::shard::Shard;
use crate::shards::Shards;

/// Time between two looks, and from the last registration to the next one: who goes on
/// registering does not wait yet, and a program that begins may have other things to do before.
const PERIOD_NS: i64 = 250_000_000;

/// What tells when to look.
pub(super) struct Look(OwnedFd);

impl Look {
    /// Makes those events ready when it is time.
    pub(super) fn new(events: BorrowedFd<'_>) -> Result<Look, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // It is no holder's.
        epoll::add(events, &timer, EventData::new_u64(u64::MAX), EventFlags::IN)?;
        Ok(Look(timer))
    }

    /// A period from now.
    pub(super) fn arm(&self) {
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let once = Itimerspec {
            it_interval: zero,
            it_value: Timespec {
                tv_nsec: PERIOD_NS,
                ..zero
            },
        };
        // Of a timer of this process nothing is wrong.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
    }

    /// Whether it is time, once.
    pub(super) fn is_due(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

/// What is to be carried from now on, by shard, and whether there is something to look at later.
pub(super) fn take(shards: &Shards, ends: &mut Ends) -> (Vec<(u8, Lent)>, bool) {
    let mut taken = Vec::new();
    let mut again = false;
    for (index, handle) in shards.iter() {
        // Nobody has to wait for this, and it waits for nobody.
        let Ok(Some(mut shard)) = handle.try_enter() else {
            again = true;
            continue;
        };
        let (seen, ripe) = shard.waiting.holders.look_at_unattended();
        again |= seen;
        for number in ripe {
            match take_one(&mut shard, ends, number) {
                Ok(Some(lent)) => taken.push((index, lent)),
                Ok(None) => {}
                Err(SocketError::InProgress | SocketError::Taken) => again = true,
                Err(_) => {}
            }
        }
        shard.respond();
        handle.settle(&mut shard);
    }
    (taken, again)
}

fn take_one(shard: &mut Shard, ends: &mut Ends, number: u32) -> Result<Option<Lent>, SocketError> {
    let Some(Event::Connection(id)) = shard.waiting.holders.get(number) else {
        return Ok(None);
    };
    if let State::SynSent | State::SynReceived = shard.stack.state(id)? {
        return Err(SocketError::InProgress);
    }
    let Ok(Some(lent)) = ends.lend(number) else {
        return Ok(None);
    };
    shard.relay(number, id)?;
    Ok(Some(lent))
}
