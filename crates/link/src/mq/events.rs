//! The events that a sleeping node waits for. One epoll set holds the listening socket, every
//! control connection, and a timer for what is due later.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Events taken in one go; what is left is found next time.
const MAX_EVENTS: usize = 64;

/// Where an event came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A node dials.
    Listener,
    /// Something is due.
    Timer,
    /// A packet or the end of a handshake's connection.
    Handshake(u32),
    /// The end of a peer's connection.
    Peer { slot: u16, generation: u16 },
    /// A ring of the node's own bell, where that is among the events.
    Bell,
}

impl Source {
    fn token(self) -> u64 {
        match self {
            Source::Listener => 0,
            Source::Timer => 1,
            Source::Bell => 4,
            Source::Handshake(id) => 2 | u64::from(id) << 8,
            Source::Peer { slot, generation } => 3 | u64::from(slot) << 8 | u64::from(generation) << 24,
        }
    }

    fn from_token(token: u64) -> Source {
        match token & 0xff {
            0 => Source::Listener,
            1 => Source::Timer,
            2 => Source::Handshake((token >> 8) as u32),
            4 => Source::Bell,
            _ => Source::Peer {
                slot: (token >> 8) as u16,
                generation: (token >> 24) as u16,
            },
        }
    }
}

#[derive(Debug)]
pub(super) struct Events {
    epoll: OwnedFd,
    timer: OwnedFd,
    armed: bool,
}

impl Events {
    pub(super) fn new() -> Result<Events, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        let events = Events {
            epoll,
            timer,
            armed: false,
        };
        events.add(events.timer.as_fd(), Source::Timer)?;
        Ok(events)
    }

    /// Readable when an event is there.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(super) fn add(&self, descriptor: BorrowedFd<'_>, source: Source) -> Result<(), Errno> {
        // Messages of a peer wake no thread, unless this node listens to the peer.
        let flags = match source {
            Source::Peer { .. } => EventFlags::RDHUP,
            _ => EventFlags::IN | EventFlags::RDHUP,
        };
        epoll::add(&self.epoll, descriptor, EventData::new_u64(source.token()), flags)
    }

    /// Listens to a peer, so that an event also tells when it has said something, or does not any
    /// more.
    pub(super) fn listen_to_peer(
        &self,
        control: BorrowedFd<'_>,
        (slot, generation): (u16, u16),
        listens: bool,
    ) -> Result<(), Errno> {
        let flags = match listens {
            true => EventFlags::IN | EventFlags::RDHUP,
            false => EventFlags::RDHUP,
        };
        let token = Source::Peer { slot, generation }.token();
        epoll::modify(&self.epoll, control, EventData::new_u64(token), flags)
    }

    /// Stops watching a descriptor. Call it before the descriptor is closed: a child process may
    /// still hold a copy, and the kernel would keep reporting it.
    pub(super) fn remove(&self, descriptor: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// The events that are there now, without waiting.
    pub(super) fn take(&self) -> Vec<Source> {
        let mut buffer = [const { MaybeUninit::uninit() }; MAX_EVENTS];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match epoll::wait(&self.epoll, &mut buffer, Some(&now)) {
            Ok((events, _)) => events
                .iter()
                .map(|event| Source::from_token(event.data.u64()))
                .collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Makes the descriptor readable after `delay`, or not at all.
    pub(super) fn set_timer(&mut self, delay: Option<Duration>) {
        if delay.is_none() && !self.armed {
            return;
        }
        self.armed = delay.is_some();
        // Zero would switch the timer off.
        let delay = delay.map_or(Duration::ZERO, |delay| delay.max(Duration::from_nanos(1)));
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = Timespec {
            tv_sec: delay.as_secs() as i64,
            tv_nsec: i64::from(delay.subsec_nanos()),
        };
        let _ = timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec {
                it_interval: zero,
                it_value: value,
            },
        );
    }
}
