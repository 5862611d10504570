//! Descriptors: what a script's numbers stand for.
//!
//! Every number is a real descriptor of the process, because packetdrill's own
//! clean-up gives the numbers to the real `close()`. Nothing is ever done with
//! it but closing.

use crate::epoll::Epoll;
use crate::sockets::Socket;
use std::collections::HashMap;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use toehold_posix::errno::{Errno, Outcome};

/// A socket or a set of epoll, for which a descriptor stands.
pub(crate) enum Descriptor {
    Socket(Box<Socket>),
    Epoll(Epoll),
}

struct Entry {
    /// Closed by [`Descriptors::close`] only. What is still open at the end
    /// was closed by packetdrill, or is by the end of the process.
    number: ManuallyDrop<OwnedFd>,
    descriptor: Descriptor,
}

/// All open descriptors.
#[derive(Default)]
pub(crate) struct Descriptors {
    entries: HashMap<i32, Entry>,
}

impl Descriptors {
    /// Gives something a number.
    pub(crate) fn open(&mut self, descriptor: Descriptor) -> Outcome<i32> {
        let number = OwnedFd::from(File::open("/dev/null")?);
        let fd = number.as_raw_fd();
        self.entries.insert(
            fd,
            Entry {
                number: ManuallyDrop::new(number),
                descriptor,
            },
        );
        Ok(fd)
    }

    /// Takes a number back and returns what it stood for.
    pub(crate) fn close(&mut self, fd: i32) -> Outcome<Descriptor> {
        let entry = self.entries.remove(&fd).ok_or(Errno::BADF)?;
        drop(ManuallyDrop::into_inner(entry.number));
        for other in self.entries.values_mut() {
            if let Descriptor::Epoll(epoll) = &mut other.descriptor {
                epoll.forget(fd);
            }
        }
        Ok(entry.descriptor)
    }

    pub(crate) fn contains(&self, fd: i32) -> bool {
        self.entries.contains_key(&fd)
    }

    pub(crate) fn socket(&mut self, fd: i32) -> Outcome<&mut Socket> {
        match self.entries.get_mut(&fd).map(|entry| &mut entry.descriptor) {
            Some(Descriptor::Socket(socket)) => Ok(socket),
            Some(Descriptor::Epoll(_)) => Err(Errno::NOTSOCK),
            None => Err(Errno::BADF),
        }
    }

    pub(crate) fn epoll(&mut self, fd: i32) -> Outcome<&mut Epoll> {
        match self.entries.get_mut(&fd).map(|entry| &mut entry.descriptor) {
            Some(Descriptor::Epoll(epoll)) => Ok(epoll),
            Some(Descriptor::Socket(_)) => Err(Errno::INVAL),
            None => Err(Errno::BADF),
        }
    }

    /// Every epoll set.
    pub(crate) fn epolls(&mut self) -> impl Iterator<Item = &mut Epoll> {
        self.entries
            .values_mut()
            .filter_map(|entry| match &mut entry.descriptor {
                Descriptor::Epoll(epoll) => Some(epoll),
                Descriptor::Socket(_) => None,
            })
    }
}
