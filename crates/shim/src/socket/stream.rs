//! Connections of the node's, as the program's descriptors.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use toehold_posix::errno::{Errno, Outcome};
use toehold_posix::message::Control;
use toehold_posix::options::{Meaning, TCP_INQ};
use toehold_socket::{ReceiveOptions, SendOptions, State, TcpStream};

use super::early::scatter;
use super::fresh::limit;
use super::stamps::Stamps;
use super::{History, Legacy, UnconnectedSocket, plain};
use crate::usage::{Counter, count};
use crate::{signals, table};

/// The knowledge of the program's processes about a connection beside its stack, in its
/// description's marks.
mod marks {
    /// The program's knowledge of `connect`.
    pub(super) const PHASE: u32 = 0b11;
    pub(super) const CONNECTED: u32 = 0;
    /// The program has not been told the outcome.
    pub(super) const CONNECTING: u32 = 1;
    /// The program has been told that there is no connection.
    pub(super) const FAILED: u32 = 2;
    /// The program has ended the connection by another `connect`, maybe while calls wait for it.
    pub(super) const DISSOLVED: u32 = 3;

    /// Calls say how much is left to be read (TCP_INQ).
    pub(super) const REPORTS_UNREAD: u32 = 1 << 2;
    /// The program has chosen the address that it leaves from.
    pub(super) const BOUND: u32 = 1 << 3;
    /// The kernel's socket has the options that were set, since the engine carries the bytes.
    pub(super) const PREPARED: u32 = 1 << 4;
    /// The stamps that the program wants of received bytes, a [`Stamps`](super::Stamps).
    pub(super) const STAMPS: u32 = 0b1111 << STAMPS_SHIFT;
    pub(super) const STAMPS_SHIFT: u32 = 5;
}

/// Values of a stream's `mode`: whether the library knows if a call with nothing to read waits.
mod mode {
    /// The program may have told the kernel not to wait, past the library.
    pub(super) const UNSURE: u8 = 0;
    /// A call found nothing to read, and it is time to ask the kernel.
    pub(super) const ASKS: u8 = 1;
    pub(super) const KNOWN: u8 = 2;
}

/// A connection.
pub(crate) struct Stream {
    pub(crate) inner: TcpStream,
    /// The family that the program asked for.
    pub(crate) domain: c_int,
    mode: AtomicU8,
    /// Whether the SYN may wait for this process's first bytes.
    pub(super) deferred: AtomicBool,
    /// Whether another process may have the descriptor, and the library did not see how.
    shared: AtomicBool,
    pub(super) history: History,
    /// The last copy of the descriptor, once the program has none any more.
    last: Mutex<Option<OwnedFd>>,
}

impl Stream {
    fn new(inner: TcpStream, domain: c_int, history: History) -> Stream {
        Stream {
            inner,
            domain,
            mode: AtomicU8::new(mode::UNSURE),
            deferred: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            history,
            last: Mutex::new(None),
        }
    }

    /// A connection that is being set up, as the program wants it.
    pub(super) fn connecting(inner: TcpStream, from: &UnconnectedSocket) -> Stream {
        let bound = if from.is_bound() { marks::BOUND } else { 0 };
        inner
            .description()
            .change_marks(u32::MAX, marks::CONNECTING | bound);
        inner.description().set_ipv6(from.domain == libc::AF_INET6);
        let history = History::begin(inner.description(), &from.history);
        Stream::new(inner, from.domain, history)
    }

    /// A connection that another process has made.
    pub(crate) fn adopted(inner: TcpStream) -> Stream {
        let is_ipv6 = inner.description().is_ipv6() || inner.local_addr().is_ok_and(|local| local.is_ipv6());
        let domain = if is_ipv6 { libc::AF_INET6 } else { libc::AF_INET };
        let history = History::shared(inner.description());
        Stream::new(inner, domain, history)
    }

    /// Makes a stream of an accepted connection, with the options that were set of its listener.
    pub(super) fn accepted(inner: TcpStream, domain: c_int, listeners: (&History, &Legacy)) -> Stream {
        inner.description().set_ipv6(domain == libc::AF_INET6);
        let history = History::begin_accepted(inner.description(), listeners.0, listeners.1);
        Stream::new(inner, domain, history)
    }

    fn phase(&self) -> u32 {
        self.inner.description().marks() & marks::PHASE
    }

    fn set_phase(&self, phase: u32) {
        self.inner.description().change_marks(marks::PHASE, phase);
    }

    /// Whether the program has chosen where it leaves from.
    pub(super) fn is_bound(&self) -> bool {
        self.inner.description().marks() & marks::BOUND != 0
    }

    /// Whether the kernel's socket is still to have what was set, for the first process that finds that the engine
    /// carries the bytes. The kernel keeps what is set of it after that.
    pub(crate) fn is_to_be_prepared(&self) -> bool {
        let description = self.inner.description();
        let is_first = description.marks() & marks::PREPARED == 0;
        description.change_marks(0, marks::PREPARED);
        is_first
    }

    /// Whether calls say how much is left to be read (TCP_INQ).
    #[inline]
    pub(crate) fn reports_unread(&self) -> bool {
        self.inner.description().marks() & marks::REPORTS_UNREAD != 0
    }

    /// Lends the connection's descriptor, to make the program's copies of.
    pub(super) fn lend(&mut self) -> Option<OwnedFd> {
        self.inner.lend_descriptor()
    }

    pub(super) fn take_back(&mut self, descriptor: OwnedFd) {
        let shared = self.shared.load(Relaxed);
        self.inner.put_back(descriptor, shared);
    }

    /// Keeps a copy of the last number, which the program has closed.
    pub(crate) fn keep_last(&self, descriptor: OwnedFd) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(descriptor);
    }

    /// Notes that the program has changed attributes of the descriptor, which stay with it.
    pub(crate) fn note_marked(&self) {
        self.inner.mark_descriptor();
    }

    /// Notes that another process has got the descriptor, or may have.
    pub(crate) fn note_shared(&self) {
        self.shared.store(true, Relaxed);
        // The library tells the kernel what others have to know.
        self.mode.store(mode::KNOWN, Relaxed);
    }

    /// Whether the last call has not waited. The caller then asks first whether the program has told the
    /// kernel that calls do not wait.
    #[inline]
    pub(crate) fn takes_question(&self) -> bool {
        self.mode.load(Relaxed) == mode::ASKS && self.mode.swap(mode::KNOWN, Relaxed) == mode::ASKS
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.inner.description().set_nonblocking(nonblocking);
    }

    #[inline]
    pub(crate) fn is_nonblocking(&self) -> bool {
        self.inner.description().is_nonblocking()
    }

    /// Whether it was the connection of a life of the node's that is over.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.inner.readiness().map_err(Errno::from), Err(Errno::NETDOWN))
    }

    /// Calls that wait for a limited time do not go on after a signal (signal(7)).
    pub(crate) fn has_timeout(&self) -> bool {
        let timeouts = [self.inner.read_timeout(), self.inner.write_timeout()];
        timeouts.iter().any(|timeout| matches!(timeout, Ok(Some(_))))
    }

    /// Returns what `connect` returns, on a stream that has begun to. A non-blocking call is never
    /// told the outcome, however soon it is there: programs count on that.
    pub(crate) fn finish_connect(&self, nonblocking: bool) -> Outcome<c_int> {
        if nonblocking {
            return Err(Errno::INPROGRESS);
        }
        let timeout = self.inner.write_timeout().map_err(Errno::from)?;
        match self.inner.finish_connect(timeout) {
            Ok(()) => Ok(self.note_connected()),
            Err(_) if signals::is_pending() => Err(Errno::INTR),
            Err(error) => match Errno::from(error) {
                // It goes on; see socket(7), SO_SNDTIMEO.
                Errno::TIMEDOUT if self.is_connecting() => Err(Errno::INPROGRESS),
                Errno::INTR => Err(Errno::INTR),
                errno => Err(self.note_failed(errno)),
            },
        }
    }

    pub(super) fn note_connected(&self) -> c_int {
        self.set_phase(marks::CONNECTED);
        0
    }

    pub(super) fn note_failed(&self, errno: Errno) -> Errno {
        self.set_phase(marks::FAILED);
        errno
    }

    /// Whether the program has been told that there is no connection.
    pub(crate) fn has_failed(&self) -> bool {
        self.phase() == marks::FAILED
    }

    /// Whether a program that dissolves the connection is told of a reset: as long as it has not ended, or is being set up.
    pub(crate) fn is_reset_by_end(&self) -> bool {
        let is_such = |state| {
            let states = [
                State::SynSent,
                State::SynReceived,
                State::Established,
                State::CloseWait,
                State::FinWait1,
                State::FinWait2,
            ];
            states.contains(&state)
        };
        self.inner.info().is_ok_and(|info| is_such(info.state))
    }

    /// Ends the connection, for calls that wait for it, too.
    pub(super) fn end(&self) {
        self.set_phase(marks::DISSOLVED);
        let _ = self.inner.disconnect();
    }

    pub(crate) fn is_connecting(&self) -> bool {
        let info = self.inner.info();
        info.is_ok_and(|info| matches!(info.state, State::SynSent | State::SynReceived))
    }

    fn take_error(&self) -> Outcome<Errno> {
        let error = self.inner.take_error().map_err(Errno::from)?;
        Ok(error.map_or(Errno(libc::ECONNABORTED), Errno::from))
    }

    /// A further `connect`, which waits for the first one unless it is `at_once`. Returns `true` if
    /// nothing is left of that attempt, and another may be made.
    pub(crate) fn connect_again(&self, at_once: bool) -> Outcome<bool> {
        match self.phase() {
            marks::CONNECTED => Err(Errno::ISCONN),
            marks::FAILED => Ok(true),
            // As far as the program can know it is.
            _ if self.inner.is_deferred() => Err(Errno::ISCONN),
            _ if self.is_connecting() => match self.finish_connect(at_once || self.is_nonblocking()) {
                Err(Errno::INPROGRESS) => Err(Errno::ALREADY),
                finished => finished.map(|_| false),
            },
            _ => match self.inner.info().map_err(Errno::from)?.state {
                State::Closed => Err(self.note_failed(self.take_error()?)),
                _ => {
                    self.note_connected();
                    Ok(false)
                }
            },
        }
    }

    /// Receives; see `recvmsg(2)` for the flags.
    #[inline]
    pub(crate) fn receive(&self, buffers: &mut [IoSliceMut<'_>], flags: c_int) -> Outcome<isize> {
        if flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE | libc::MSG_TRUNC) != 0 {
            return self.receive_specially(buffers, flags);
        }
        if self.mode.load(Relaxed) == mode::UNSURE {
            return self.receive_first(buffers, flags);
        }
        self.receive_once(buffers, flags)
    }

    /// Receives without waiting, if that has to be asked for.
    #[inline(never)]
    fn receive_first(&self, buffers: &mut [IoSliceMut<'_>], flags: c_int) -> Outcome<isize> {
        if self.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0 {
            return self.receive_once(buffers, flags);
        }
        let looking = ReceiveOptions {
            peek: true,
            nonblocking: true,
            all: false,
        };
        let there = self.inner.receive_with(&mut [IoSliceMut::new(&mut [0])], looking);
        let there = there.map_err(|error| self.reason(error));
        if there == Err(Errno::AGAIN) {
            let _ = self
                .mode
                .compare_exchange(mode::UNSURE, mode::ASKS, Relaxed, Relaxed);
        }
        there.and_then(|_| self.receive_once(buffers, flags))
    }

    #[inline]
    fn receive_once(&self, buffers: &mut [IoSliceMut<'_>], flags: c_int) -> Outcome<isize> {
        let options = ReceiveOptions {
            peek: flags & libc::MSG_PEEK != 0,
            nonblocking: flags & libc::MSG_DONTWAIT != 0,
            all: flags & libc::MSG_WAITALL != 0,
        };
        let behind = self.inner.description().peek_behind();
        let received = match usize::try_from(behind) {
            Ok(behind) if options.peek => self.inner.peek_behind(behind, buffers, options),
            _ => self.inner.receive_with(buffers, options),
        };
        let received = received.map_err(|error| self.reason(error))?;
        if behind >= 0 {
            self.move_peek(received, options.peek);
        }
        if received == 0 && buffers.iter().all(|buffer| buffer.is_empty()) {
            return self.receive_nothing(options);
        }
        count(
            Counter::BytesReceived,
            if options.peek { 0 } else { received as u64 },
        );
        Ok(received as isize)
    }

    /// Moves the place for MSG_PEEK: past the bytes that were peeked at, or back by the bytes that were
    /// received.
    #[cold]
    fn move_peek(&self, received: usize, peek: bool) {
        let received = received.min(c_int::MAX as usize) as c_int;
        let moved = |behind: c_int| match peek {
            true => behind.saturating_add(received),
            false => (behind - received).max(0),
        };
        self.inner.description().move_peek(moved);
    }

    /// The reason why nothing is received.
    #[cold]
    fn reason(&self, error: io::Error) -> Errno {
        match Errno::from(error) {
            // The program has ended the connection meanwhile.
            Errno::CONNRESET if self.phase() == marks::DISSOLVED => Errno::PIPE,
            errno => errno,
        }
    }

    /// Waits as a call that receives something, and as in the kernel does not say whether there was
    /// anything.
    #[cold]
    fn receive_nothing(&self, options: ReceiveOptions) -> Outcome<isize> {
        let waits = !options.nonblocking && !self.is_nonblocking();
        let options = ReceiveOptions {
            peek: true,
            ..options
        };
        let seen = self.inner.receive_with(&mut [IoSliceMut::new(&mut [0])], options);
        match seen.map_err(Errno::from) {
            Err(Errno::AGAIN) if waits => Ok(0),
            seen => seen.map(|_| 0),
        }
    }

    #[cold]
    fn receive_specially(&self, buffers: &mut [IoSliceMut<'_>], flags: c_int) -> Outcome<isize> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            let report = self.take_report()?;
            return Ok(scatter(&report.quoted, buffers) as isize);
        }
        if flags & libc::MSG_OOB != 0 {
            let mut nowhere = IoSliceMut::new(&mut []);
            let first = buffers.iter_mut().find(|buffer| !buffer.is_empty());
            let first = first.unwrap_or(&mut nowhere);
            let received = match flags & libc::MSG_PEEK {
                0 => self.inner.recv_out_of_band(first),
                _ => self.inner.peek_out_of_band(first),
            };
            return received.map(|len| len as isize).map_err(Errno::from);
        }
        let room = buffers.iter().map(|buffer| buffer.len()).sum();
        self.discard(room, flags)
    }

    /// Receives bytes that the program does not want to see (tcp(7), MSG_TRUNC).
    pub(crate) fn discard(&self, len: usize, flags: c_int) -> Outcome<isize> {
        // No buffer holds more, and memory is made when it is written to.
        const MOST: usize = 16 << 20;
        let mut bytes = vec![0; len.min(MOST)];
        self.receive_once(&mut [IoSliceMut::new(&mut bytes)], flags & !libc::MSG_TRUNC)
    }

    /// The control messages beside bytes that have just been received.
    #[inline]
    pub(crate) fn controls(&self) -> Vec<Control> {
        match self.inner.description().marks() & (marks::STAMPS | marks::REPORTS_UNREAD) {
            0 => Vec::new(),
            _ => self.wanted_controls(),
        }
    }

    fn stamps(&self) -> Stamps {
        Stamps((self.inner.description().marks() & marks::STAMPS) >> marks::STAMPS_SHIFT)
    }

    fn set_stamps(&self, stamps: Stamps) {
        let bits = stamps.0 << marks::STAMPS_SHIFT;
        self.inner.description().change_marks(marks::STAMPS, bits);
    }

    #[cold]
    fn wanted_controls(&self) -> Vec<Control> {
        let mut controls = Vec::new();
        if self.stamps().are_wanted()
            && let Ok(details) = self.inner.details()
            && let Some(at) = details.last_data_received
        {
            self.stamps().controls(details.now - at, &mut controls);
        }
        if self.reports_unread() {
            let unread = self.inner.readable_bytes().unwrap_or(0) as c_int;
            controls.push(Control {
                level: libc::IPPROTO_TCP,
                kind: TCP_INQ,
                data: unread.to_ne_bytes().to_vec(),
            });
        }
        controls
    }

    /// Sends; see `sendmsg(2)` for the flags. The caller sends SIGPIPE.
    #[inline]
    pub(crate) fn send(&self, buffers: &[IoSlice<'_>], flags: c_int) -> Outcome<isize> {
        if flags & libc::MSG_FASTOPEN != 0 || self.deferred.load(Relaxed) {
            return self.send_first(buffers, flags);
        }
        self.send_more(buffers, flags)
    }

    #[inline]
    pub(super) fn send_more(&self, buffers: &[IoSlice<'_>], flags: c_int) -> Outcome<isize> {
        let options = Self::send_options(flags);
        let sent = self.inner.send_with(buffers, options).map_err(Errno::from)?;
        count(Counter::BytesSent, sent as u64);
        Ok(sent as isize)
    }

    #[inline]
    pub(super) fn send_options(flags: c_int) -> SendOptions {
        SendOptions {
            urgent: flags & libc::MSG_OOB != 0,
            more: flags & libc::MSG_MORE != 0,
            end_of_record: flags & libc::MSG_EOR != 0,
            nonblocking: flags & libc::MSG_DONTWAIT != 0,
        }
    }

    /// Connects first, for MSG_FASTOPEN.
    #[cold]
    pub(super) fn open_again(&self, at_once: bool) -> Outcome<()> {
        match self.connect_again(at_once)? {
            // Without an address to connect to.
            true => Err(Errno::INVAL),
            false => Ok(()),
        }
    }

    /// Has a piece of at most so many bytes written where it waits to be sent. Returns `None` if it
    /// is to be sent in the ordinary way.
    pub(crate) fn send_in_place(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> Outcome<Option<usize>> {
        let sent = self.inner.send_in_place(len, fill).map_err(Errno::from)?;
        count(Counter::BytesSent, sent.unwrap_or(0) as u64);
        Ok(sent)
    }

    pub(crate) fn shutdown(&self, how: c_int) -> Outcome<c_int> {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno::INVAL),
        };
        self.inner.shutdown(how).map_err(Errno::from)?;
        Ok(0)
    }

    pub(crate) fn local(&self) -> Outcome<SocketAddr> {
        self.inner.local_addr().map(plain).map_err(Errno::from)
    }

    pub(crate) fn peer(&self) -> Outcome<SocketAddr> {
        if self.is_connecting() || self.phase() == marks::FAILED {
            return Err(Errno::NOTCONN);
        }
        let state = self.inner.info().map_err(Errno::from)?.state;
        if state == State::Closed {
            return Err(Errno::NOTCONN);
        }
        self.inner.peer_addr().map(plain).map_err(Errno::from)
    }

    /// Sets an option.
    pub(crate) fn apply(&self, option: Meaning) -> Outcome<()> {
        match option {
            Meaning::Stack(option) => self.inner.set_option(option).map_err(Errno::from),
            Meaning::ReceiveTimeout(span) => self.inner.set_read_timeout(limit(span)).map_err(Errno::from),
            Meaning::SendTimeout(span) => self.inner.set_write_timeout(limit(span)).map_err(Errno::from),
            Meaning::ReportUnread(on) => {
                let mark = if on { marks::REPORTS_UNREAD } else { 0 };
                self.inner.description().change_marks(marks::REPORTS_UNREAD, mark);
                Ok(())
            }
            Meaning::PeekBehind(bytes) => {
                self.inner.description().set_peek_behind(bytes);
                Ok(())
            }
            Meaning::Stamps(wanted) => {
                self.set_stamps(self.stamps().with_one(wanted));
                Ok(())
            }
            Meaning::Stamping(are_wanted, new) => {
                self.set_stamps(self.stamps().with_three(are_wanted, new));
                Ok(())
            }
            // Its port is chosen.
            Meaning::ZeroCopy(_) | Meaning::LocalPorts(..) | Meaning::Nothing => Ok(()),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let last = self.last.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(last) = last {
            table::disown(last.as_raw_fd());
            self.take_back(last);
        }
    }
}
