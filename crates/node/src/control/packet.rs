//! Packets with descriptors over a Unix socket, and memory files in their stead.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::message::MAX_DESCRIPTORS;
use crate::descriptors::keep;

/// Bytes of an answer in a memory file, at most: more than a node's bounds allow.
const MAX_FILE: u64 = 1 << 32;

/// Bytes of a block as `stat(2)` counts them.
const STAT_BLOCK: u64 = 512;

const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::WRITE)
    .union(SealFlags::SEAL);

/// A packet as it came.
#[derive(Debug)]
pub(super) enum Packet {
    /// The peer closed the connection.
    HungUp,
    /// More bytes or descriptors than any message has. They are dropped.
    Oversized,
    /// A number of bytes, and descriptors.
    Message(usize, Vec<OwnedFd>),
    /// A number of bytes, and descriptors of which the last ones are missing, since this process
    /// has no room for more.
    Cut(usize, Vec<OwnedFd>),
}

/// Sends one packet.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[OwnedFd],
    flags: SendFlags,
) -> Result<(), Errno> {
    send_borrowed(
        socket,
        bytes,
        &descriptors.iter().map(AsFd::as_fd).collect::<Vec<_>>(),
        flags,
    )
}

/// Sends one packet with one descriptor, without memory of its own.
pub(super) fn send_one(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptor: BorrowedFd<'_>,
    flags: SendFlags,
) -> Result<(), Errno> {
    send_borrowed(socket, bytes, &[descriptor], flags)
}

fn send_borrowed(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    loop {
        let flags = flags | SendFlags::NOSIGNAL;
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            done => return done.map(drop),
        }
    }
}

/// Takes one packet. Descriptors beyond [`MAX_DESCRIPTORS`], or beyond what this
/// process may have, never become its own: the kernel drops them.
///
/// # Errors
///
/// `AGAIN` if there is no packet; after any other error the connection is broken.
pub(super) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: RecvFlags) -> Result<Packet, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights.map(keep));
        }
    }
    let cut = received.flags.contains(ReturnFlags::CTRUNC);
    let full = descriptors.len() >= MAX_DESCRIPTORS;
    if received.flags.contains(ReturnFlags::TRUNC) || cut && full || descriptors.len() > MAX_DESCRIPTORS {
        return Ok(Packet::Oversized);
    }
    if received.bytes == 0 {
        return Ok(Packet::HungUp);
    }
    Ok(match cut {
        true => Packet::Cut(received.bytes, descriptors),
        false => Packet::Message(received.bytes, descriptors),
    })
}

/// Puts bytes into a memory file that cannot change any more.
pub(super) fn to_file(bytes: &[u8]) -> Result<OwnedFd, Errno> {
    let file = memfd_create("toehold-answer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(&file, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// Reads a packet from a file. A descriptor without seals is refused: it could be a pipe that never
/// ends.
pub(super) fn from_file(file: &OwnedFd, len: u64) -> Result<Vec<u8>, Errno> {
    if len > MAX_FILE || !fcntl_get_seals(file)?.contains(SEALS) {
        return Err(Errno::INVAL);
    }
    let status = rustix::fs::fstat(file)?;
    let size = status.st_size as u64;
    // A file of holes costs its maker nothing, and this process all its bytes.
    if (status.st_blocks as u64).saturating_mul(STAT_BLOCK) < size {
        return Err(Errno::INVAL);
    }
    let mut bytes = vec![0; size.min(len) as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::io::pread(file, &mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_that_is_a_file_of_holes_is_refused() {
        for bytes in [&b""[..], b"{}", &[b' '; 100_000]] {
            let file = to_file(bytes).unwrap();
            assert_eq!(from_file(&file, bytes.len() as u64).unwrap(), bytes);
        }
        let holes = memfd_create("holes", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&holes, 1 << 31).unwrap();
        fcntl_add_seals(&holes, SEALS).unwrap();
        assert_eq!(from_file(&holes, 1 << 31), Err(Errno::INVAL));
        assert_eq!(from_file(&holes, MAX_FILE + 1), Err(Errno::INVAL));
    }
}
