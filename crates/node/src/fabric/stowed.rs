//! A fabric that can be opened although no directory is open, whatever becomes of the file system
//! that its path leads through. Programs look whether they have a directory open before they lay
//! down their rights (Chromium's sandbox). An open directory would get them out of any other root.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::Fabric;
use crate::descriptors::{copy_for_a_moment, keep};

/// A fabric that can be opened although no directory is open.
#[derive(Debug)]
pub struct Stowed {
    name: String,
    path: PathBuf,
    /// The socket in which a message waits for ever that the directory comes with.
    socket: OwnedFd,
}

impl Fabric {
    /// Stows a handle away.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left.
    pub fn stow(&self) -> std::io::Result<Stowed> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (sends, socket) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        let directory = [self.handle.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&directory));
        sendmsg(&sends, &[IoSlice::new(b".")], &mut control, SendFlags::empty())?;
        Ok(Stowed {
            name: self.name.clone(),
            path: self.path.clone(),
            socket: keep(socket),
        })
    }
}

impl Stowed {
    /// The fabric's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fabric, for as long as it is needed.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left, or the process may not receive messages.
    pub fn open(&self) -> std::io::Result<Fabric> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut [0])],
            &mut control,
            flags,
        )?;
        let received = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let directory = received.ok_or(rustix::io::Errno::MFILE)?;
        Ok(Fabric {
            name: self.name.clone(),
            path: self.path.clone(),
            handle: copy_for_a_moment(directory)?,
        })
    }
}
