//! The control connection between two nodes: a Unix socket that carries the
//! handshake, then nothing, and whose hang-up tells of the other node's death.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use toehold_shm::direct::BELLS;

use super::access::SocketAccess;
use super::quotas::Caller;
use crate::credentials::{self, PeerCredentials};

/// Most descriptors a message may bring: a bank's half and signals, and a set of bells.
pub(super) const MAX_DESCRIPTORS: usize = 2 + BELLS;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

fn socket() -> Result<OwnedFd, Errno> {
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)
}

/// Makes a socket at `path`, which must not exist yet. The users that may join the fabric can dial
/// it; the path's directory is the fabric.
pub(super) fn listen(path: &Path) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::INVAL)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent, flags, Mode::empty())?;
    let access = SocketAccess::of(directory.as_fd())?;
    let socket = socket()?;
    net::bind(&socket, &address)?;
    let listening = access
        .give(directory.as_fd(), name)
        .and_then(|()| net::listen(&socket, BACKLOG));
    if let Err(errno) = listening {
        let _ = rustix::fs::unlinkat(&directory, name, AtFlags::empty());
        return Err(errno);
    }
    Ok(socket)
}

/// Dials. Never waits: an owner that does not keep up is `Errno::AGAIN`, a dead
/// one `Errno::CONNREFUSED`.
pub(super) fn dial(path: &Path) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket()?;
    net::connect(&socket, &address)?;
    Ok(socket)
}

/// The next connection, or `None` if no caller waits.
pub(super) fn accept(listener: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    match net::accept_with(listener, FLAGS) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The process at the other end: the one that dialled, or the one that listened.
pub(super) fn caller(socket: BorrowedFd<'_>) -> Result<Caller, Errno> {
    let credentials = PeerCredentials::of(socket)?;
    Ok(Caller {
        uid: credentials.uid,
        process: credentials.pid.map(u64::from).or_else(|| foreign_process(socket)),
    })
}

/// Returns a number that tells a process of another PID namespace from others: the inode of its pidfd
/// (`pidfs`, Linux 6.9), beyond all process numbers.
fn foreign_process(socket: BorrowedFd<'_>) -> Option<u64> {
    let pidfd = credentials::peer_pidfd(socket).ok().flatten()?;
    let inode = rustix::fs::fstat(&pidfd).ok()?.st_ino;
    Some(inode | 1 << 63)
}

/// Sends one packet with descriptors.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SEND).map(drop)
}

/// A packet that came over a connection during the handshake.
#[derive(Debug)]
pub(super) enum Packet {
    /// Nothing yet.
    Nothing,
    /// The peer closed the connection, or it broke.
    HungUp,
    /// More bytes or descriptors than any message has. What came is gone.
    Oversized,
    /// A packet of this many bytes, with its descriptors.
    Message(usize, Vec<OwnedFd>),
}

/// Takes one packet. Descriptors beyond [`MAX_DESCRIPTORS`] never become this
/// process's: the kernel drops what does not fit.
pub(super) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Packet {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Packet::Nothing,
        Err(_) => return Packet::HungUp,
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        || descriptors.len() > MAX_DESCRIPTORS
    {
        return Packet::Oversized;
    }
    if received.bytes == 0 {
        return Packet::HungUp;
    }
    Packet::Message(received.bytes, descriptors)
}

/// Whether the other side has not hung up.
pub(super) fn is_connected(socket: BorrowedFd<'_>) -> bool {
    let mut state = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut state, Some(&now)).is_ok() && state[0].revents().is_empty()
}
