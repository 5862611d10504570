//! Connections that an instance watches of a life of the node's that is over. No poll tells of
//! them any more, so this does, as the kernel does of connections that were reset.

use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use libc::epoll_event;

use super::{Epoll, Watched};
use crate::file::{File, Kind};

/// The events that are told of a lost connection, if they were asked for.
const ASKED: i32 = libc::EPOLLIN | libc::EPOLLRDNORM | libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLRDHUP;
/// The flags by which a program asks to be told of a lost connection once.
const ONCE: i32 = libc::EPOLLET | libc::EPOLLONESHOT;

/// Whether a life is over in which a connection or listener was the node's.
pub(super) fn is_lost(file: &File) -> bool {
    match &file.kind {
        Kind::Stream(stream) => stream.is_lost(),
        Kind::Listener(listener) => listener.is_lost(),
        Kind::Fresh(_) | Kind::Found(_) | Kind::Forwarded(_) | Kind::Relayed(_) | Kind::Epoll(_) => false,
    }
}

impl Watched {
    /// Whether it is a connection that is lost.
    fn is_lost_stream(&self) -> bool {
        let file = self.file.upgrade();
        file.is_some_and(|file| file.stream().is_some() && is_lost(&file))
    }

    fn is_to_be_told(&self) -> bool {
        !(self.is_told && self.asked.events & ONCE as u32 != 0) && self.is_lost_stream()
    }
}

impl Epoll {
    /// Notes that a connection may be lost.
    pub(super) fn note_lost(&self) {
        self.lost.store(true, Relaxed);
    }

    /// Whether it watches connections that are lost, or an instance that does, and has not told.
    pub(super) fn has_lost(&self) -> bool {
        let own = || self.watched().values().any(Watched::is_to_be_told);
        let inner = |(_, file, _): &(_, Arc<File>, _)| file.epoll().is_some_and(Epoll::has_lost);
        (self.lost.load(Relaxed) && own()) || self.list().iter().any(inner)
    }

    /// Reports lost connections. Returns the number of events, and the room that is left.
    pub(super) fn tell_lost<'a>(&self, events: &'a mut [epoll_event]) -> (usize, &'a mut [epoll_event]) {
        if !self.lost.load(Relaxed) {
            return (0, events);
        }
        let mut watched = self.watched();
        if !watched.values().any(Watched::is_lost_stream) {
            // Without a poll, there is one as soon as the node is back.
            self.lost.store(self.present().is_none(), Relaxed);
            return (0, events);
        }
        let mut count = 0;
        let untold = watched.values_mut().filter(|watched| watched.is_to_be_told());
        for (watched, place) in untold.zip(events.iter_mut()) {
            watched.is_told = true;
            *place = epoll_event {
                events: watched.asked.events & ASKED as u32 | (libc::EPOLLERR | libc::EPOLLHUP) as u32,
                u64: watched.asked.data,
            };
            count += 1;
        }
        let (_, rest) = events.split_at_mut(count);
        (count, rest)
    }
}
