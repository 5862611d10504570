//! The beginning of a connection: bytes that leave with its SYN (RFC 7413), and what the network says of an attempt.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use std::io::{IoSlice, IoSliceMut};

use toehold_posix::errno::{Errno, Outcome};
use toehold_socket::NetworkReport;

use super::Stream;
use crate::usage::{Counter, count};

impl Stream {
    /// Notes that the SYN waits for the program's first bytes.
    pub(super) fn note_deferred(&self) -> c_int {
        self.deferred.store(true, Relaxed);
        0
    }

    /// Returns whether the SYN waits for the program's first bytes.
    pub(crate) fn is_deferred(&self) -> bool {
        self.inner.is_deferred()
    }

    /// Sends the first bytes of a connection, which may leave with its SYN.
    #[cold]
    pub(super) fn send_first(&self, buffers: &[IoSlice<'_>], flags: c_int) -> Outcome<isize> {
        self.deferred.store(false, Relaxed);
        if !self.inner.is_deferred() {
            if flags & libc::MSG_FASTOPEN != 0 {
                self.open_again(flags & libc::MSG_DONTWAIT != 0)?;
            }
            return self.send_more(buffers, flags);
        }
        let sent = self.inner.send_first(buffers, Self::send_options(flags));
        let sent = sent.map_err(Errno::from);
        match &sent {
            Ok(_) if !self.is_connecting() => {
                self.note_connected();
            }
            Err(Errno::INTR | Errno::INPROGRESS) | Ok(_) => {}
            Err(errno) => {
                self.note_failed(*errno);
            }
        }
        let sent = sent?;
        count(Counter::BytesSent, sent as u64);
        Ok(sent as isize)
    }

    /// Takes the network's report of an attempt to connect that it ended.
    pub(crate) fn take_report(&self) -> Outcome<NetworkReport> {
        let report = self.inner.take_report().map_err(Errno::from)?;
        report.ok_or(Errno::AGAIN)
    }
}

/// Copies bytes into buffers, as many as there is room for. Returns how many.
pub(crate) fn scatter(mut bytes: &[u8], buffers: &mut [IoSliceMut<'_>]) -> usize {
    let mut copied = 0;
    for buffer in buffers {
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        (bytes, copied) = (&bytes[len..], copied + len);
    }
    copied
}
