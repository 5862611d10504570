//! A non-blocking connection that is polled until it is ready.

use std::hint::spin_loop;
use std::io::{self, Read, Write};

use super::Connection;

/// Repeats an operation that would block. The wait uses a core fully, and no sleeping thread has to
/// be woken.
#[derive(Debug)]
pub(super) struct Spinning<C>(pub(super) C);

/// Calls `operation` until it succeeds or fails.
pub(super) fn spin<T>(mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => spin_loop(),
            done => return done,
        }
    }
}

impl<C: Read> Read for Spinning<C> {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        spin(|| self.0.read(buffer))
    }
}

impl<C: Write> Write for Spinning<C> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        spin(|| self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        spin(|| self.0.flush())
    }
}

impl<C: Connection> Connection for Spinning<C> {
    fn finish(&mut self) -> io::Result<()> {
        self.0.finish()
    }
}
