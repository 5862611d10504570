//! A node's doorbell: what wakes whichever of its processes sleeps.
//!
//! Why it is no eventfd: an eventfd is one open file shared by both sides, and
//! either may make it blocking, read it empty or write it full; the other side's
//! next ring or clear would then hang. A bell is a Unix datagram socket that only
//! this node holds, and each peer gets a sender of its own that is connected to
//! it. What a peer does to its sender it does to its own rings. Every call here
//! says MSG_DONTWAIT.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use rustix::rand::{GetRandomFlags, getrandom};

/// Rings taken in one go. A peer that rings on and on wakes this node again and
/// again, and keeps it from nothing.
const MAX_RINGS: usize = 64;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

fn socket() -> Result<OwnedFd, Errno> {
    net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, FLAGS, None)
}

/// A process's handle of its node's doorbell: the end to sleep on, which all
/// processes of the node share, and a sender to wake whoever sleeps on it.
#[derive(Debug)]
pub struct Bell {
    receiver: OwnedFd,
    sender: OwnedFd,
}

impl Bell {
    /// The handle behind descriptors that another process of the node gave, in the
    /// order of [`Bell::into_descriptors`].
    pub fn from_descriptors([receiver, sender]: [OwnedFd; 2]) -> Bell {
        Bell { receiver, sender }
    }

    /// Gives the descriptors away: the end to sleep on, then the sender.
    pub fn into_descriptors(self) -> [OwnedFd; 2] {
        [self.receiver, self.sender]
    }

    /// A second handle.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left.
    pub fn try_clone(&self) -> Result<Bell, Errno> {
        Ok(Bell {
            receiver: rustix::io::fcntl_dupfd_cloexec(&self.receiver, 0)?,
            sender: rustix::io::fcntl_dupfd_cloexec(&self.sender, 0)?,
        })
    }

    /// Wakes whoever sleeps on the bell.
    pub fn ring(&self) {
        ring(self.sender.as_fd());
    }

    /// Takes the rings that came in. True if there were any. Descriptors that come
    /// along are dropped by the kernel.
    pub fn clear(&self) -> bool {
        let taken = (0..MAX_RINGS).take_while(|_| {
            let mut byte = [MaybeUninit::uninit(); 1];
            net::recv(&self.receiver, &mut byte, RecvFlags::DONTWAIT).is_ok()
        });
        taken.count() > 0
    }
}

/// The end to sleep on: readable when the bell was rung.
impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

/// Rings another node's bell, or this node's. If its queue of rings is full it has
/// been rung often enough.
pub(super) fn ring(sender: BorrowedFd<'_>) {
    let _ = net::send(sender, b"!", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Whether a descriptor that a peer handed over can be rung without harm. It may be
/// connected to anything or to nothing: what the peer itself could send to anyway.
pub(super) fn is_sender(descriptor: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(descriptor) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(descriptor) == Ok(SocketType::DGRAM)
}

/// Where senders are made. Nobody else can: the bell's name is gone as soon as it
/// was made, and what is left of it is a descriptor.
#[derive(Debug)]
pub(super) struct Belfry {
    receiver: OwnedFd,
    place: OwnedFd,
}

impl Belfry {
    /// Hangs a bell in the directory, for a moment.
    pub(super) fn new(directory: BorrowedFd<'_>) -> Result<Belfry, Errno> {
        let mut number = [0; 8];
        getrandom(&mut number, GetRandomFlags::empty())?;
        let name = format!(".bell-{:016x}", u64::from_ne_bytes(number));
        let receiver = socket()?;
        // Through the descriptor, so that the path is short whatever the directory's is.
        let path = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
        net::bind(&receiver, &SocketAddrUnix::new(path)?)?;
        let place = fs::openat(
            directory,
            &name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let _ = fs::unlinkat(directory, &name, AtFlags::empty());
        Ok(Belfry {
            receiver,
            place: place?,
        })
    }

    /// A sender that shares nothing with any other.
    pub(super) fn sender(&self) -> Result<OwnedFd, Errno> {
        let sender = socket()?;
        let path = format!("/proc/self/fd/{}", self.place.as_raw_fd());
        net::connect(&sender, &SocketAddrUnix::new(path)?)?;
        Ok(sender)
    }

    /// A handle for a process of this node.
    pub(super) fn bell(&self) -> Result<Bell, Errno> {
        Ok(Bell {
            receiver: rustix::io::fcntl_dupfd_cloexec(&self.receiver, 0)?,
            sender: self.sender()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn readable(bell: &Bell) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(bell, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    fn belfry() -> Belfry {
        let name = |test: Option<&str>| test.unwrap_or("alone").replace(':', "-");
        let directory = std::env::temp_dir().join(format!(
            "toehold-bell-{}-{}",
            std::process::id(),
            name(std::thread::current().name())
        ));
        std::fs::create_dir(&directory).unwrap();
        let handle = std::fs::File::open(&directory).unwrap();
        let belfry = Belfry::new(handle.as_fd()).unwrap();
        std::fs::remove_dir(&directory).expect("nothing is left in the directory");
        belfry
    }

    #[test]
    fn every_handle_rings_for_all() {
        let belfry = belfry();
        let here = belfry.bell().unwrap();
        let there = Bell::from_descriptors(belfry.bell().unwrap().into_descriptors());
        let peer = belfry.sender().unwrap();
        assert!(!readable(&here) && !here.clear());
        for ringer in [&here, &there] {
            ringer.ring();
            assert!(readable(&here) && readable(&there));
            assert!(here.clear() && !readable(&there));
        }
        ring(peer.as_fd());
        assert!(there.try_clone().unwrap().clear() && !readable(&here));
    }

    #[test]
    fn a_full_queue_is_a_ring_and_never_blocks() {
        let belfry = belfry();
        let bell = belfry.bell().unwrap();
        let peers = [(); 3].map(|()| belfry.sender().unwrap());
        // One that was made blocking by the peer that shares it does not block.
        rustix::io::ioctl_fionbio(&peers[0], false).unwrap();
        for _ in 0..2000 {
            peers.iter().for_each(|peer| ring(peer.as_fd()));
        }
        assert!(readable(&bell));
        let mut clears = 0;
        while bell.clear() {
            clears += 1;
            assert!(clears < 6000);
        }
        assert!(!readable(&bell));
        ring(peers[1].as_fd());
        assert!(readable(&bell));
        drop((belfry, bell));
        ring(peers[1].as_fd());
    }

    #[test]
    fn only_datagram_sockets_are_senders() {
        let belfry = belfry();
        assert!(is_sender(belfry.sender().unwrap().as_fd()));
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!is_sender(reader.as_fd()));
        let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(!is_sender(stream.as_fd()));
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(!is_sender(udp.as_fd()));
        assert!(!is_sender(belfry.place.as_fd()));
    }
}
