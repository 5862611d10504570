//! Requests of a program's launcher to a node that ends with its last user.

use std::os::fd::OwnedFd;

use super::{Connection, ControlError};
use crate::control::keepers::{KeeperPair, keeper_pair};
use crate::control::message::{Answer, Request};

impl Connection {
    /// Keeps the node, if it ends with its last user: it lasts as long as any process has
    /// the descriptor. A process that has it is let in by it ([`crate::control::enter`]), and [tell](crate::control::tell) what is
    /// not on the node.
    ///
    /// # Errors
    ///
    /// If the node refuses or does not answer; `HungUp` if it is ending.
    pub fn keep(&mut self) -> Result<OwnedFd, ControlError> {
        let KeeperPair { end, keeper } = keeper_pair().map_err(|errno| self.system(errno))?;
        let keep = Request::Keep { inode: end.inode };
        self.done(&keep, std::slice::from_ref(&end.descriptor))?;
        Ok(keeper)
    }

    /// Keeps the node, as [`Connection::keep`] does, and besides for as long as this process
    /// lives, whatever program it becomes and whichever descriptors that closes. Waits for one
    /// answer only: the node carries out the second request before it can find that the
    /// descriptor of the first one is closed.
    ///
    /// A node of another namespace cannot see this process. There the descriptor alone keeps it.
    ///
    /// # Errors
    ///
    /// If the node refuses or does not answer; `HungUp` if it is ending.
    pub fn keep_for_life(&mut self) -> Result<OwnedFd, ControlError> {
        let KeeperPair { end, keeper } = keeper_pair().map_err(|errno| self.system(errno))?;
        let keep = Request::Keep { inode: end.inode };
        let asked = self
            .post(&keep, std::slice::from_ref(&end.descriptor))
            .and_then(|()| self.post(&Request::KeepForLife, &[]))
            .and_then(|()| self.take(1));
        match self.heard(asked)? {
            (Answer::Done, _) => Ok(keeper),
            _ => Err(self.nonsense()),
        }
    }
}
