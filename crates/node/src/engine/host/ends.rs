//! The engine's ends of the holders: pairs of sockets whose other ends are the
//! descriptors of connections and listeners.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

/// Holders that are seen to be gone in one go; more are found the next time.
const AT_ONCE: usize = 64;

/// The ends, by the numbers of their holders.
#[derive(Debug)]
pub(super) struct Ends {
    epoll: OwnedFd,
    /// Readable while holders whose other ends are known to be gone stand for something that is not
    /// closed yet.
    closing: OwnedFd,
    /// Readable while `epoll` or `closing` is.
    events: OwnedFd,
    ends: Vec<Option<End>>,
    /// Numbers that may be given again.
    free: Vec<u32>,
    /// The system's name of each holder's other end.
    numbers: HashMap<u64, u32>,
}

#[derive(Debug)]
struct End {
    socket: OwnedFd,
    cookie: u64,
    is_lent: bool,
}

/// An end that the engine uses, see [`Ends::lend`].
#[derive(Debug)]
pub(super) struct Lent {
    number: u32,
    cookie: u64,
    socket: OwnedFd,
    epoll: OwnedFd,
}

/// A holder that no process has any more. Until this is dropped, it is [seen](Ends::closings) that
/// there is something to be closed.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) number: u32,
    _end: Option<OwnedFd>,
}

impl Lent {
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }
}

impl Drop for Lent {
    /// Watches the end again.
    fn drop(&mut self) {
        // If that fails, its number is not given again before the node's next life.
        let _ = watch(&self.epoll, &self.socket, self.cookie);
    }
}

/// Has the poll tell, unasked, when the other end of the holder with that cookie is gone. The
/// cookie identifies it, since the poll may go on telling of an end for as long as a process has a
/// copy. Its number may have been given again by then.
fn watch(epoll: &OwnedFd, socket: &OwnedFd, cookie: u64) -> Result<(), Errno> {
    epoll::add(epoll, socket, EventData::new_u64(cookie), EventFlags::empty())
}

/// Whether no process has the other end of a pair, or neither end is used any more.
pub(super) fn is_alone(socket: &OwnedFd) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut state = [PollFd::new(socket, PollFlags::empty())];
    let told = poll(&mut state, Some(&at_once));
    told == Ok(1) && state[0].revents().contains(PollFlags::HUP)
}

impl Ends {
    pub(super) fn new() -> Result<Ends, Errno> {
        let [epoll, closing, events] = [(); 3].map(|()| epoll::create(CreateFlags::CLOEXEC));
        let (epoll, closing, events) = (epoll?, closing?, events?);
        for inner in [&epoll, &closing] {
            epoll::add(&events, inner, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(Ends {
            epoll,
            closing,
            events,
            ends: Vec::new(),
            free: Vec::new(),
            numbers: HashMap::new(),
        })
    }

    /// A descriptor that is readable when a holder's other end is gone.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// A descriptor that is readable as long as something is to be closed that no process has any
    /// more. Processes see so without asking.
    pub(super) fn closings(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Makes holders, as many as wanted or as the system lets, whose numbers are below
    /// `capacity`.
    ///
    /// # Errors
    ///
    /// If it does not let any.
    pub(super) fn make(&mut self, count: u16, capacity: u32) -> Result<Vec<(u32, OwnedFd)>, Errno> {
        let mut made = Vec::new();
        for _ in 0..count {
            match self.make_one(capacity) {
                Ok(holder) => made.push(holder),
                Err(errno) if made.is_empty() => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(made)
    }

    fn make_one(&mut self, capacity: u32) -> Result<(u32, OwnedFd), Errno> {
        let number = self.free.last().copied().unwrap_or(self.ends.len() as u32);
        if number >= capacity {
            return Err(Errno::NFILE);
        }
        let (end, other) = self.pair(number)?;
        match self.free.pop() {
            Some(_) => self.ends[number as usize] = Some(end),
            None => self.ends.push(Some(end)),
        }
        Ok((number, other))
    }

    /// A pair of ends for a holder, of which the first is watched.
    fn pair(&mut self, number: u32) -> Result<(End, OwnedFd), Errno> {
        let (socket, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let cookie = sockopt::socket_cookie(&other)?;
        watch(&self.epoll, &socket, cookie)?;
        self.numbers.insert(cookie, number);
        let end = End {
            socket,
            cookie,
            is_lent: false,
        };
        Ok((end, other))
    }

    /// Makes another pair in the place of one whose other end no process has any more, before that
    /// is [taken](Ends::gone). Returns `None` if a process has it.
    ///
    /// # Errors
    ///
    /// If the system does not let one be made. The former one is gone then.
    pub(super) fn inherit(&mut self, number: u32) -> Result<Option<(u32, OwnedFd)>, Errno> {
        let end = self.ends.get(number as usize).and_then(Option::as_ref);
        let Some(End { socket, cookie, .. }) = end else {
            return Ok(None);
        };
        if !is_alone(socket) {
            return Ok(None);
        }
        let former = *cookie;
        let (end, other) = self.pair(number)?;
        self.numbers.remove(&former);
        self.ends[number as usize] = Some(end);
        Ok(Some((number, other)))
    }

    /// Takes an end for more than to learn that the other one is gone. No thread looks for that
    /// until it is given back. Returns `None` if it was taken before.
    ///
    /// # Errors
    ///
    /// If there is none of that number, or the system has no descriptors left.
    pub(super) fn lend(&mut self, number: u32) -> Result<Option<Lent>, Errno> {
        let end = self.ends.get_mut(number as usize).and_then(Option::as_mut);
        let end = end.ok_or(Errno::BADF)?;
        if end.is_lent {
            return Ok(None);
        }
        let socket = rustix::io::fcntl_dupfd_cloexec(&end.socket, 0)?;
        let epoll = rustix::io::fcntl_dupfd_cloexec(&self.epoll, 0)?;
        epoll::delete(&self.epoll, &end.socket)?;
        end.is_lent = true;
        Ok(Some(Lent {
            number,
            cookie: end.cookie,
            socket,
            epoll,
        }))
    }

    /// Whether there is a holder of that number.
    pub(super) fn has(&self, number: u32) -> bool {
        self.ends.get(number as usize).is_some_and(Option::is_some)
    }

    /// The number of the holder that a descriptor is.
    pub(super) fn identify(&self, descriptor: BorrowedFd<'_>) -> Option<u32> {
        let cookie = sockopt::socket_cookie(descriptor).ok()?;
        self.numbers.get(&cookie).copied()
    }

    /// Takes the holders that no process has any more. Their numbers are not given again before
    /// they are [released](Ends::release).
    pub(super) fn gone(&mut self) -> Vec<Gone> {
        let mut buffer = [const { MaybeUninit::uninit() }; AT_ONCE];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // After a signal the next time will do.
        let told = epoll::wait(&self.epoll, &mut buffer, Some(&at_once));
        let events = told.map(|(events, _)| &*events).unwrap_or_default();
        let gone = events
            .iter()
            .filter_map(|event| self.numbers.remove(&event.data.u64()));
        let gone: Vec<u32> = gone.collect();
        gone.into_iter().filter_map(|number| self.take(number)).collect()
    }

    fn take(&mut self, number: u32) -> Option<Gone> {
        let End {
            socket,
            cookie,
            is_lent,
        } = self.ends[number as usize].take()?;
        if is_lent {
            // It is watched by a name that it does not have any more, and ends with its last copy only.
            return Some(Gone { number, _end: None });
        }
        // Of what cannot be shown to be closed, the engine's thread takes care all the same.
        let _ = watch(&self.closing, &socket, cookie);
        let _ = epoll::delete(&self.epoll, &socket);
        Some(Gone {
            number,
            _end: Some(socket),
        })
    }

    /// Frees numbers that were taken.
    pub(super) fn release(&mut self, numbers: Vec<u32>) {
        self.free.extend(numbers);
    }

    /// Forgets all holders, since their connections and listeners are gone.
    pub(super) fn clear(&mut self) {
        self.ends.clear();
        self.free.clear();
        self.numbers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(ends: &mut Ends) -> Vec<u32> {
        ends.gone().iter().map(|gone| gone.number).collect()
    }

    /// The thread that gave an end back had not closed its copy yet, and the number was given to
    /// two holders.
    #[test]
    fn who_is_gone_is_told_once_though_somebody_has_a_copy_of_the_end() {
        let mut ends = Ends::new().unwrap();
        let (number, holder) = ends.make(1, 16).unwrap().remove(0);
        let lent = ends.lend(number).unwrap().unwrap();
        let copy = lent.socket().try_clone().unwrap();
        drop(holder);
        drop(lent);
        assert_eq!(gone(&mut ends), [number]);
        assert!(gone(&mut ends).is_empty());
        ends.release(vec![number]);
        let again = ends.make(1, 16).unwrap().remove(0);
        assert_eq!(again.0, number);
        assert!(gone(&mut ends).is_empty() && ends.has(number));
        drop(copy);
        drop(again);
        assert_eq!(gone(&mut ends), [number]);
    }

    #[test]
    fn who_is_gone_is_told_once_and_numbers_come_again() {
        let mut ends = Ends::new().unwrap();
        let mut made = ends.make(3, 16).unwrap();
        assert_eq!(
            made.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert!(gone(&mut ends).is_empty());
        assert!(ends.has(2) && !ends.has(3));
        let (number, first) = made.remove(1);
        let copy = first.try_clone().unwrap();
        assert_eq!(ends.identify(copy.as_fd()), Some(number));
        drop(first);
        assert!(gone(&mut ends).is_empty());
        drop(copy);
        assert_eq!(gone(&mut ends), [1]);
        assert!(!ends.has(1));
        assert!(gone(&mut ends).is_empty());
        assert_eq!(ends.make(1, 16).unwrap()[0].0, 3);
        ends.release(vec![1]);
        let again = ends.make(2, 16).unwrap();
        assert_eq!(
            again.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
            [1, 4]
        );
        assert_eq!(ends.identify(again[0].1.as_fd()), Some(1));
    }

    #[test]
    fn what_is_to_be_closed_is_seen_until_it_is_closed() {
        let mut ends = Ends::new().unwrap();
        let sees = |ends: &Ends| {
            let mut state = [PollFd::from_borrowed_fd(ends.closings(), PollFlags::IN)];
            let at_once = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            poll(&mut state, Some(&at_once)).unwrap() == 1
        };
        let holders = ends.make(2, 16).unwrap();
        assert!(!sees(&ends));
        drop(holders);
        assert!(sees(&ends));
        let gone = ends.gone();
        assert_eq!(gone.len(), 2);
        assert!(sees(&ends), "nobody has closed anything yet");
        drop(gone);
        assert!(!sees(&ends));
    }

    #[test]
    fn the_last_one_inherits() {
        let mut ends = Ends::new().unwrap();
        let (number, first) = ends.make(1, 1).unwrap().remove(0);
        let copy = first.try_clone().unwrap();
        drop(first);
        assert!(ends.inherit(number).unwrap().is_none(), "there is a copy");
        drop(copy);
        let (again, heir) = ends.inherit(number).unwrap().unwrap();
        assert_eq!((again, ends.identify(heir.as_fd())), (number, Some(number)));
        assert!(gone(&mut ends).is_empty(), "the former one is told of");
        assert!(ends.inherit(number).unwrap().is_none());
        assert!(ends.inherit(7).unwrap().is_none());
        drop(heir);
        assert_eq!(gone(&mut ends), [number]);
        assert!(ends.inherit(number).unwrap().is_none(), "it was taken");
        assert!(ends.numbers.is_empty());
    }

    #[test]
    fn a_lent_end_is_watched_again_when_it_comes_back() {
        let mut ends = Ends::new().unwrap();
        let (number, other) = ends.make(1, 1).unwrap().remove(0);
        let lent = ends.lend(number).unwrap().unwrap();
        assert!(ends.lend(number).unwrap().is_none(), "lent twice");
        drop(other);
        assert!(gone(&mut ends).is_empty() && is_alone(lent.socket()));
        drop(lent);
        assert_eq!(gone(&mut ends), [number]);
        assert_eq!(ends.lend(number).unwrap_err(), Errno::BADF);
        ends.release(vec![number]);
        let (again, _other) = ends.make(1, 1).unwrap().remove(0);
        assert!(ends.lend(again).unwrap().is_some());
    }

    #[test]
    fn there_are_no_more_than_there_may_be() {
        let mut ends = Ends::new().unwrap();
        let made = ends.make(5, 4).unwrap();
        assert_eq!(made.len(), 4);
        assert_eq!(ends.make(1, 4).unwrap_err(), Errno::NFILE);
        ends.clear();
        let (other, _mine) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(ends.identify(other.as_fd()), None);
        assert_eq!(ends.identify(made[0].1.as_fd()), None);
        assert_eq!(ends.make(1, 4).unwrap().len(), 1);
    }
}
