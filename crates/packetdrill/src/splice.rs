//! `pipe` and `splice`: pipes are the kernel's, and bytes are copied through.

use crate::node::State;
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, IntoRawFd};
use toehold_posix::errno::{Errno, Outcome};

/// Most bytes a call moves: what a pipe holds by default.
const MOST: usize = 64 << 10;

/// A new pipe: its reading and its writing end.
pub(crate) fn pipe() -> Outcome<[i32; 2]> {
    let (reader, writer) = io::pipe()?;
    Ok([reader.into_raw_fd(), writer.into_raw_fd()])
}

impl State {
    /// Moves bytes from a socket into a pipe or the other way round, as many as
    /// there are.
    pub(crate) fn splice(&mut self, from: i32, to: i32, len: usize) -> Outcome<usize> {
        let mut bytes = vec![0; len.min(MOST)];
        match (self.descriptors.contains(from), self.descriptors.contains(to)) {
            (true, false) => {
                let at_mark = self.at_mark(from)?;
                let received = match self.receive(from, &mut bytes, 0) {
                    // Urgent data stop a splice: the rest has to be read.
                    Err(Errno::AGAIN) if at_mark => 0,
                    outcome => outcome?,
                };
                self.pipe_end(to)?.write_all(&bytes[..received])?;
                Ok(received)
            }
            (false, true) => {
                let read = self.pipe_end(from)?.read(&mut bytes)?;
                self.send(to, &bytes[..read], 0)
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn at_mark(&mut self, fd: i32) -> Outcome<bool> {
        let id = self.descriptors.socket(fd)?.connection()?;
        Ok(self.stack.at_mark(id)?)
    }

    /// A pipe's end under a handle of its own.
    fn pipe_end(&self, fd: i32) -> Outcome<std::fs::File> {
        if fd < 0 {
            return Err(Errno::BADF);
        }
        // SAFETY: the number is one that `pipe` gave out and the script has not
        // closed; if it has, duplicating it fails.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        Ok(borrowed.try_clone_to_owned()?.into())
    }
}
