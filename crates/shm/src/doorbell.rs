//! Waking a thread of another process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

/// Something to sleep on, and to be woken by.
///
/// Rings are neither lost nor counted: one ring or many before a
/// [`Doorbell::clear`] are the same. The sleeper waits for the descriptor to become
/// readable.
///
/// Inside a node it is an eventfd ([`Doorbell::new`]). Between nodes it is a pair
/// of sockets ([`Doorbell::pair`]): whoever shares an eventfd can fill it up and
/// make it blocking, and so hang everybody that rings it; nobody can do that to a
/// `send` which says itself that it does not wait.
#[derive(Debug)]
pub struct Doorbell {
    fd: OwnedFd,
    socket: bool,
}

impl Doorbell {
    /// A new doorbell for processes that trust one another: every handle both
    /// rings and sleeps.
    pub fn new() -> Result<Self, Errno> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { fd, socket: false })
    }

    /// A new doorbell for processes that do not trust one another: the end to
    /// sleep on, and the end to ring with.
    pub fn pair() -> Result<(Self, Self), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (sleeper, ringer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok((
            Self {
                fd: sleeper,
                socket: true,
            },
            Self {
                fd: ringer,
                socket: true,
            },
        ))
    }

    /// The doorbell behind a descriptor from another process. A descriptor of any
    /// other kind than those above is refused (`ENOTSUP`), lest ringing it block or kill.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Errno> {
        let socket = match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
            FileType::Socket => true,
            // What has no type is an anonymous inode. Of those an eventfd can be
            // written to; a write to the others fails without doing anything.
            FileType::Unknown => false,
            _ => return Err(Errno::NOTSUP),
        };
        Ok(Self { fd, socket })
    }

    /// A second handle to the same end, to be passed to another process.
    pub fn try_clone(&self) -> Result<Self, Errno> {
        Ok(Self {
            fd: rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?,
            socket: self.socket,
        })
    }

    /// Makes the sleeper's descriptor readable. Cannot fail in a way that matters
    /// to the ringer: one that is full is readable already, and a sleeper that is
    /// gone need not be woken.
    pub fn ring(&self) {
        loop {
            let rung = if self.socket {
                send(&self.fd, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            } else {
                rustix::io::write(&self.fd, &1_u64.to_ne_bytes())
            };
            if rung != Err(Errno::INTR) {
                return;
            }
        }
    }

    /// Makes the descriptor unreadable until the next ring. True if it had rung.
    pub fn clear(&self) -> bool {
        if !self.socket {
            return self.take(|fd, bytes| rustix::io::read(fd, &mut bytes[..8])) > 0;
        }
        let mut rung = false;
        // As many rings as a socket's buffer could hold are taken at most: a peer
        // that keeps ringing keeps nobody here.
        for _ in 0..256 {
            let got = self.take(|fd, bytes| recv(fd, bytes, RecvFlags::DONTWAIT).map(|(got, _)| got));
            rung |= got > 0;
            if got < RINGS {
                break;
            }
        }
        rung
    }

    /// Whether nobody can ring any more, since all handles of the other end of a
    /// pair are closed. The descriptor stays readable from then on.
    pub fn is_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        let polled = poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        );
        polled.is_ok()
            && fds[0]
                .revents()
                .intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    }

    /// Gives the descriptor away.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    fn take(&self, read: impl Fn(&OwnedFd, &mut [u8]) -> Result<usize, Errno>) -> usize {
        let mut bytes = [0_u8; RINGS];
        loop {
            match read(&self.fd, &mut bytes) {
                Err(Errno::INTR) => {}
                got => return got.unwrap_or(0),
            }
        }
    }
}

/// Rings taken from a socket by one call.
const RINGS: usize = 256;

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(doorbell: &Doorbell) -> bool {
        let mut fds = [PollFd::new(doorbell, PollFlags::IN)];
        poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .unwrap()
            == 1
    }

    fn rings_until_cleared(sleeper: &Doorbell, ringer: &Doorbell) {
        assert!(!readable(sleeper) && !sleeper.clear());
        ringer.ring();
        assert!(readable(sleeper));
        for _ in 0..1000 {
            ringer.ring();
        }
        assert!(sleeper.clear());
        assert!(!readable(sleeper) && !sleeper.clear());
        ringer.ring();
        assert!(sleeper.clear());
        assert!(!sleeper.is_hung_up());
    }

    #[test]
    fn eventfds_ring_until_cleared() {
        let sleeper = Doorbell::new().unwrap();
        let ringer = Doorbell::from_fd(sleeper.try_clone().unwrap().into_fd()).unwrap();
        rings_until_cleared(&sleeper, &ringer);
    }

    #[test]
    fn socket_pairs_ring_until_cleared_and_hang_up() {
        let (sleeper, ringer) = Doorbell::pair().unwrap();
        let ringer = Doorbell::from_fd(ringer.into_fd()).unwrap();
        rings_until_cleared(&sleeper, &ringer);
        drop(ringer);
        assert!(sleeper.is_hung_up());
    }

    #[test]
    fn a_full_doorbell_neither_blocks_nor_loses_the_ring() {
        let (sleeper, ringer) = Doorbell::pair().unwrap();
        // The sleeper makes the descriptor blocking; ringing must not care.
        rustix::fs::fcntl_setfl(&ringer, rustix::fs::OFlags::empty()).unwrap();
        for _ in 0..10_000 {
            ringer.ring();
        }
        assert!(sleeper.clear());
        assert!(!readable(&sleeper));
        drop(sleeper);
        ringer.ring();
    }

    #[test]
    fn other_descriptors_are_refused() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(Doorbell::from_fd(writer).unwrap_err(), Errno::NOTSUP);
        assert_eq!(Doorbell::from_fd(reader).unwrap_err(), Errno::NOTSUP);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(Doorbell::from_fd(file.into()).unwrap_err(), Errno::NOTSUP);
    }
}
