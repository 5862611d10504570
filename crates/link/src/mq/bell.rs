//! A node's doorbell: what wakes whichever of its processes sleeps.
//!
//! An eventfd would be one open file shared by both sides. Either side may make it blocking, read
//! it empty or write it full. The other side's next ring or clear would then hang.
//!
//! A bell is a Unix datagram socket that only this node holds. Each peer gets a sender of its own
//! that is connected to the socket. A peer that changes its sender changes its own rings alone.
//! Every call here says MSG_DONTWAIT.

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
const MAX_RINGS: u32 = 64;

/// Bytes of what a peer says when it rings: the number that this node gave it.
const NUMBER: usize = 2;

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

fn socket() -> Result<OwnedFd, Errno> {
    net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, FLAGS, None)
}

/// A process's handle of its node's doorbell. It has the end to sleep on, which all processes of
/// the node share, and a sender that wakes the sleepers.
#[derive(Debug)]
pub struct Bell {
    receiver: OwnedFd,
    sender: OwnedFd,
    held: u32,
}

impl Bell {
    /// The handle behind descriptors that another process of the node gave, in the
    /// order of [`Bell::into_descriptors`].
    pub fn from_descriptors([receiver, sender]: [OwnedFd; 2]) -> Bell {
        Bell {
            receiver,
            sender,
            held: 0,
        }
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
            held: self.held,
        })
    }

    /// Wakes every process that sleeps on the bell.
    pub fn ring(&self) {
        let _ = net::send(&self.sender, b"!", SEND);
    }

    /// Takes the rings that came in, and gives their number. `rung` is told what peers say
    /// when they ring, which may be anything. Descriptors that come along are dropped by
    /// the kernel.
    pub(super) fn take(&self, mut rung: impl FnMut(u16)) -> u32 {
        let mut bytes = [MaybeUninit::uninit(); NUMBER];
        for taken in 0..MAX_RINGS {
            match net::recv(&self.receiver, &mut bytes, RecvFlags::DONTWAIT) {
                Ok(((said, _), _)) => {
                    if let Ok(number) = <[u8; NUMBER]>::try_from(&*said) {
                        rung(u16::from_le_bytes(number));
                    }
                }
                Err(_) => return taken,
            }
        }
        MAX_RINGS
    }

    /// As many rings in one go as tell that others may have found no room; 0 if that is
    /// not known.
    pub(super) fn held(&self) -> u32 {
        self.held
    }
}

/// The end to sleep on: readable when the bell was rung.
impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

/// Rings another node's bell, and says what it wants to be told. If its queue of rings is
/// full it has been rung often enough.
pub(super) fn ring(sender: BorrowedFd<'_>, number: u16) {
    let _ = net::send(sender, &number.to_le_bytes(), SEND);
}

/// Whether a descriptor that a peer handed over can be rung without harm. It may be
/// connected to anything or to nothing: what the peer itself could send to anyway.
pub(super) fn is_sender(descriptor: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(descriptor) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(descriptor) == Ok(SocketType::DGRAM)
}

/// The place where senders are made. No other process can make one: the bell's name is removed as
/// soon as the bell exists, and only a descriptor is left.
#[derive(Debug)]
pub(super) struct Belfry {
    receiver: OwnedFd,
    place: OwnedFd,
    held: u32,
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
        let mut belfry = Belfry {
            receiver,
            place: place?,
            held: 0,
        };
        belfry.held = belfry.try_out()?;
        Ok(belfry)
    }

    /// Rings until there is no room for more. How many rings there is room for is a setting
    /// of the system's, and of the namespace that the bell was made in.
    fn try_out(&self) -> Result<u32, Errno> {
        let bell = self.bell()?;
        let rings = (0..MAX_RINGS).take_while(|_| net::send(&bell.sender, b"?", SEND).is_ok());
        rings.for_each(drop);
        Ok(bell.take(|_| {}))
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
            held: self.held,
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
        assert!(!readable(&here) && here.take(|_| {}) == 0);
        for ringer in [&here, &there] {
            ringer.ring();
            assert!(readable(&here) && readable(&there));
            assert!(here.take(|_| {}) == 1 && !readable(&there));
        }
        ring(peer.as_fd(), 300);
        let mut said = Vec::new();
        assert_eq!(there.try_clone().unwrap().take(|number| said.push(number)), 1);
        assert!(said == [300] && !readable(&here));
    }

    #[test]
    fn full_queue_counts_as_ring_and_never_blocks() {
        let belfry = belfry();
        let bell = belfry.bell().unwrap();
        let peers = [(); 3].map(|()| belfry.sender().unwrap());
        // One that was made blocking by the peer that shares it does not block.
        rustix::io::ioctl_fionbio(&peers[0], false).unwrap();
        for _ in 0..2000 {
            peers.iter().for_each(|peer| ring(peer.as_fd(), 0));
        }
        assert!(readable(&bell));
        let mut clears = 0;
        while bell.take(|_| {}) != 0 {
            clears += 1;
            assert!(clears < 6000);
        }
        assert!(!readable(&bell));
        ring(peers[1].as_fd(), 1);
        assert!(readable(&bell));
        drop((belfry, bell));
        ring(peers[1].as_fd(), 1);
    }

    #[test]
    fn lost_rings_are_noticed_when_queue_is_full() {
        let belfry = belfry();
        let bell = belfry.bell().unwrap();
        assert!((1..=MAX_RINGS).contains(&bell.held()) && !readable(&bell));
        let peers: Vec<OwnedFd> = (0..MAX_RINGS).map(|_| belfry.sender().unwrap()).collect();
        for count in 1..=MAX_RINGS {
            let rung = &peers[..count as usize];
            (0..)
                .zip(rung)
                .for_each(|(number, peer)| ring(peer.as_fd(), number));
            let mut said = Vec::new();
            let taken = bell.take(|number| said.push(number));
            assert_eq!(said, (0..taken as u16).collect::<Vec<_>>());
            assert!(taken == count || taken >= bell.held(), "{taken} of {count}");
        }
        // What was handed over says nothing of that.
        assert_eq!(Bell::from_descriptors(bell.into_descriptors()).held(), 0);
    }

    #[test]
    fn ring_without_number_counts_as_ring() {
        let belfry = belfry();
        let (bell, peer) = (belfry.bell().unwrap(), belfry.sender().unwrap());
        net::send(&peer, b"", SEND).unwrap();
        net::send(&peer, b"x", SEND).unwrap();
        ring(peer.as_fd(), u16::MAX);
        let mut said = Vec::new();
        assert_eq!(bell.take(|number| said.push(number)), 3);
        assert_eq!(said, [u16::MAX]);
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
