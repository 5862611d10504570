//! epoll sets: level and edge triggered, one-shot.

use crate::descriptors::Descriptor;
use crate::node::State;
use libc::{EPOLLERR, EPOLLET, EPOLLEXCLUSIVE, EPOLLHUP, EPOLLONESHOT, EPOLLOUT, EPOLLWAKEUP};
use toehold_posix::errno::{Errno, Outcome};

/// A descriptor in a set.
struct Watch {
    fd: i32,
    /// The events that are asked for, with the modes.
    events: u32,
    data: u64,
    /// Readiness when it was last looked at, for edges.
    seen: u32,
    /// Arrivals when it was last looked at: new data are an edge even if old
    /// ones are still unread.
    arrivals: u64,
    /// One-shot, and shot.
    spent: bool,
}

impl Watch {
    fn is_edge_triggered(&self) -> bool {
        self.events & EPOLLET as u32 != 0
    }
}

/// A set of watched descriptors.
#[derive(Default)]
pub(crate) struct Epoll {
    watches: Vec<Watch>,
}

/// The events that are reported of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) events: u32,
    pub(crate) data: u64,
}

impl Epoll {
    /// Carries out `epoll_ctl`.
    pub(crate) fn control(&mut self, operation: i32, fd: i32, events: u32, data: u64) -> Outcome<()> {
        let position = self.watches.iter().position(|watch| watch.fd == fd);
        let watch = Watch {
            fd,
            events,
            data,
            seen: 0,
            arrivals: 0,
            spent: false,
        };
        match (operation, position) {
            (libc::EPOLL_CTL_ADD, None) => self.watches.push(watch),
            (libc::EPOLL_CTL_ADD, Some(_)) => return Err(Errno::EXIST),
            (libc::EPOLL_CTL_MOD, Some(at)) => self.watches[at] = watch,
            (libc::EPOLL_CTL_DEL, Some(at)) => drop(self.watches.remove(at)),
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None) => return Err(Errno::NOENT),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// A descriptor was closed.
    pub(crate) fn forget(&mut self, fd: i32) {
        self.watches.retain(|watch| watch.fd != fd);
    }

    /// A write found no room: when there is some again, that is an edge.
    pub(crate) fn no_room(&mut self, fd: i32) {
        for watch in self.watches.iter_mut().filter(|watch| watch.fd == fd) {
            watch.seen &= !(EPOLLOUT as u32);
        }
    }

    fn watched(&self) -> Vec<i32> {
        self.watches.iter().map(|watch| watch.fd).collect()
    }

    /// Returns the events that a descriptor's state means for its watch.
    fn look(&mut self, fd: i32, bits: u32, arrivals: u64) -> Option<Ready> {
        let modes = (EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP) as u32;
        let watch = self.watches.iter_mut().find(|watch| watch.fd == fd)?;
        // Errors and hang-ups are reported whether asked for or not.
        let ready = bits & (watch.events & !modes | (EPOLLERR | EPOLLHUP) as u32);
        let edge = ready & !watch.seen != 0 || arrivals != watch.arrivals;
        let fires = ready != 0 && !watch.spent && (edge || !watch.is_edge_triggered());
        if !fires {
            // What has become unready may become ready again.
            watch.seen &= ready;
            return None;
        }
        watch.seen = ready;
        watch.arrivals = arrivals;
        watch.spent = watch.events & EPOLLONESHOT as u32 != 0;
        Some(Ready {
            events: ready,
            data: watch.data,
        })
    }
}

impl State {
    pub(crate) fn epoll_create(&mut self) -> Outcome<i32> {
        self.descriptors.open(Descriptor::Epoll(Epoll::default()))
    }

    /// Returns the descriptors that are ready in a set, at most `most`; EAGAIN if none is.
    pub(crate) fn epoll_ready(&mut self, set: i32, most: usize) -> Outcome<Vec<Ready>> {
        let mut found = Vec::new();
        for fd in self.descriptors.epoll(set)?.watched() {
            if found.len() == most {
                break;
            }
            // epoll's bits are poll's.
            let bits = u32::from(self.poll_bits(fd)? as u16);
            let arrivals = self.arrivals(fd)?;
            found.extend(self.descriptors.epoll(set)?.look(fd, bits, arrivals));
        }
        if found.is_empty() {
            Err(Errno::AGAIN)
        } else {
            Ok(found)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLIN};

    const IN: u32 = EPOLLIN as u32;
    const OUT: u32 = EPOLLOUT as u32;

    #[test]
    fn edges_are_reported_once() {
        let mut epoll = Epoll::default();
        epoll
            .control(EPOLL_CTL_ADD, 4, IN | OUT | EPOLLET as u32, 9)
            .expect("new");
        assert_eq!(epoll.look(4, OUT, 0), Some(Ready { events: OUT, data: 9 }));
        assert_eq!(epoll.look(4, OUT, 0), None);
        assert_eq!(
            epoll.look(4, IN | OUT, 100),
            Some(Ready {
                events: IN | OUT,
                data: 9
            })
        );
        assert_eq!(epoll.look(4, IN | OUT, 100), None);
        assert_eq!(
            epoll.look(4, IN | OUT, 200),
            Some(Ready {
                events: IN | OUT,
                data: 9
            })
        );
        epoll.no_room(4);
        assert_eq!(epoll.look(4, OUT, 200), Some(Ready { events: OUT, data: 9 }));
    }

    #[test]
    fn levels_are_reported_as_long_as_they_last() {
        let mut epoll = Epoll::default();
        epoll.control(EPOLL_CTL_ADD, 4, IN, 0).expect("new");
        for _ in 0..2 {
            assert!(epoll.look(4, IN | OUT, 1).is_some());
        }
        assert!(epoll.look(4, OUT, 1).is_none());
        assert!(epoll.look(4, EPOLLHUP as u32, 1).is_some());
    }

    #[test]
    fn one_shot_is_one_shot_until_rearmed() {
        let mut epoll = Epoll::default();
        epoll
            .control(EPOLL_CTL_ADD, 4, IN | EPOLLONESHOT as u32, 0)
            .expect("new");
        assert!(epoll.look(4, IN, 1).is_some());
        assert!(epoll.look(4, IN, 2).is_none());
        epoll
            .control(EPOLL_CTL_MOD, 4, IN | EPOLLONESHOT as u32, 0)
            .expect("there");
        assert!(epoll.look(4, IN, 2).is_some());
    }

    #[test]
    fn membership_is_checked() {
        let mut epoll = Epoll::default();
        assert_eq!(epoll.control(EPOLL_CTL_DEL, 4, 0, 0), Err(Errno::NOENT));
        assert_eq!(epoll.control(EPOLL_CTL_ADD, 4, 0, 0), Ok(()));
        assert_eq!(epoll.control(EPOLL_CTL_ADD, 4, 0, 0), Err(Errno::EXIST));
        assert_eq!(epoll.control(99, 4, 0, 0), Err(Errno::INVAL));
    }
}
