//! Requests about holders: the descriptors that stand for connections and listeners.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::{Connection, ControlError};
use crate::callers::Forwarded;
use crate::control::message::{Answer, Request};
use crate::descriptors::copy_for_a_moment;

impl Connection {
    /// Asks for holders, whose other ends the node has. Returns their numbers and ends: at least
    /// one, but perhaps fewer than `count`.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the node refuses or does not answer;
    /// EMFILE if this process has no room for descriptors.
    pub fn holders(&mut self, count: u16) -> Result<Vec<(u32, OwnedFd)>, ControlError> {
        let (answer, descriptors) = self.exchange(&Request::Holders { count }, &[])?;
        match answer {
            Answer::Holders(_) if descriptors.is_empty() => Err(self.system(Errno::MFILE)),
            // The first of them came along.
            Answer::Holders(numbers) => Ok(numbers.into_iter().zip(descriptors).collect()),
            _ => Err(self.nonsense()),
        }
    }

    /// The number of the holder that a descriptor is.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the descriptor is no holder of the node.
    pub fn identify(&mut self, descriptor: BorrowedFd<'_>) -> Result<u32, ControlError> {
        let copy = copy_for_a_moment(descriptor);
        let copy = copy.map_err(|errno| self.system(errno))?;
        match self.ask(&Request::Identify, &[copy])? {
            (Answer::Holders(numbers), _) => numbers.first().copied().ok_or_else(|| self.nonsense()),
            _ => Err(self.nonsense()),
        }
    }

    /// Lets go of a holder that other processes may have too. If none has, gives its number and a
    /// new descriptor of it that no other process has. The former descriptor is only closed in the
    /// order of this call, and says nothing any more. Returns `None` if other processes have it.
    ///
    /// # Errors
    ///
    /// If the process has not attached, the descriptor is no holder of the node, or the node does
    /// not answer. The node closes what no other process has, after the next request if it is late.
    pub fn inherit(&mut self, descriptor: OwnedFd) -> Result<Option<(u32, OwnedFd)>, ControlError> {
        self.done(&Request::Entrust, std::slice::from_ref(&descriptor))?;
        drop(descriptor);
        match self.ask(&Request::Inherit, &[])? {
            (Answer::Holders(numbers), descriptors) => Ok(numbers.into_iter().zip(descriptors).next()),
            _ => Err(self.nonsense()),
        }
    }

    /// Takes a port from the kernel beside the node, for the listener that a holder will
    /// stand for, and says which: 0 is any.
    ///
    /// # Errors
    ///
    /// `System` with ADDRINUSE if a program of the kernel's has it; if the process has not
    /// attached, or the node refuses or does not answer.
    pub fn take_port(
        &mut self,
        holder: u32,
        address: SocketAddr,
        only_ipv6: bool,
    ) -> Result<u16, ControlError> {
        let request = Request::TakePort {
            holder,
            address,
            only_ipv6,
        };
        match self.ask(&request, &[])? {
            (Answer::Port(port), _) => Ok(port),
            (Answer::NoPort(errno), _) => Err(self.system(Errno::from_raw_os_error(errno))),
            _ => Err(self.nonsense()),
        }
    }

    /// Gives back the port of a holder whose listener is closed.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the node refuses or does not answer.
    pub fn release_port(&mut self, holder: u32) -> Result<(), ControlError> {
        self.done(&Request::ReleasePort { holder }, &[])
    }

    /// Has the node carry the bytes between a connection of a shard, that a holder stands for,
    /// and its descriptor.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the node refuses or does not answer.
    pub fn relay(&mut self, shard: u8, holder: u32) -> Result<(), ControlError> {
        self.done(&Request::Relay { shard, holder }, &[])
    }

    /// Has the kernel signal the owner of a holder's connection when its peer announces urgent
    /// data. The owner is that of the first of two connected Unix sockets.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the node refuses or does not answer.
    pub fn own(&mut self, shard: u8, holder: u32, messenger: [OwnedFd; 2]) -> Result<(), ControlError> {
        self.done(&Request::Own { shard, holder }, &messenger)
    }

    /// Has the node forward peers that connect to a holder's listener to one of the kernel's. The
    /// table that comes with it tells the peers' addresses.
    ///
    /// # Errors
    ///
    /// If the process has not attached, or the node refuses or does not answer.
    pub fn forward(
        &mut self,
        holder: u32,
        descriptors: [OwnedFd; 2],
        which: Forwarded,
    ) -> Result<(), ControlError> {
        self.done(&Request::Forward { holder, which }, &descriptors)
    }
}
