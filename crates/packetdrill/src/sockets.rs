//! The socket calls, on the stack's: what Linux's `tcp(7)` says of each.

use crate::descriptors::{Descriptor, Descriptors};
use crate::node::{Patience, State};
use crate::zerocopy::Completions;
use core::net::SocketAddr;
use core::time::Duration;
use libc::{AF_INET, AF_INET6, c_int};
use toehold_posix::address::Passed;
use toehold_posix::errno::{Errno, Outcome};
use toehold_stack::{
    ConnectionId, ListenerId, NetworkReport, ReceiveFlags, SendFlags, Settings, Shutdown, SocketError,
    SocketOption, State as TcpState,
};

/// The state of a socket.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Neither listening nor connected.
    Fresh,
    Listening(ListenerId),
    /// Connected, or on the way there.
    Connected(ConnectionId),
}

/// One socket of a script.
pub(crate) struct Socket {
    pub(crate) domain: c_int,
    pub(crate) kind: Kind,
    /// Settings until it listens or connects; after that the stack has them.
    pub(crate) settings: Settings,
    pub(crate) nonblocking: bool,
    pub(crate) receive_timeout: Duration,
    pub(crate) send_timeout: Duration,
    /// Whether `recvmsg` reports what is left to read (TCP_INQ).
    pub(crate) report_unread: bool,
    pub(crate) completions: Completions,
    /// Options of listeners alone that were set before the socket listens.
    pub(crate) of_listener: Vec<SocketOption>,
    bound: Option<SocketAddr>,
    /// `connect` has not reported its outcome yet.
    connecting: bool,
}

/// In which direction a call waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Receive,
    Send,
}

impl Socket {
    fn new(domain: c_int, kind: Kind, settings: Settings, nonblocking: bool) -> Self {
        Self {
            domain,
            kind,
            settings,
            nonblocking,
            receive_timeout: Duration::ZERO,
            send_timeout: Duration::ZERO,
            report_unread: false,
            completions: Completions::default(),
            of_listener: Vec::new(),
            bound: None,
            connecting: false,
        }
    }

    /// The connection, if there is one.
    pub(crate) fn connection(&self) -> Outcome<ConnectionId> {
        match self.kind {
            Kind::Connected(id) => Ok(id),
            Kind::Fresh | Kind::Listening(_) => Err(Errno::NOTCONN),
        }
    }

    /// How long a call may wait.
    pub(crate) fn patience(&self, direction: Direction, flags: c_int) -> Patience {
        let timeout = match direction {
            Direction::Receive => self.receive_timeout,
            Direction::Send => self.send_timeout,
        };
        if self.nonblocking || flags & libc::MSG_DONTWAIT != 0 {
            Patience::None
        } else if timeout.is_zero() {
            Patience::Endless
        } else {
            Patience::For(timeout)
        }
    }
}

impl State {
    pub(crate) fn socket(&mut self, domain: c_int, kind: c_int, protocol: c_int) -> Outcome<i32> {
        if domain != AF_INET && domain != AF_INET6 {
            return Err(Errno(libc::EAFNOSUPPORT));
        }
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let tcp = protocol == 0 || protocol == libc::IPPROTO_TCP;
        if kind & !flags != libc::SOCK_STREAM || !tcp {
            return Err(Errno(libc::EPROTONOSUPPORT));
        }
        let settings = self.stack.default_settings();
        let socket = Socket::new(domain, Kind::Fresh, settings, kind & libc::SOCK_NONBLOCK != 0);
        self.descriptors.open(Descriptor::Socket(Box::new(socket)))
    }

    pub(crate) fn bind(&mut self, fd: i32, address: Passed) -> Outcome<()> {
        let socket = self.descriptors.socket(fd)?;
        match (address, socket.kind, socket.bound) {
            (Passed::Inet(address), Kind::Fresh, None) => socket.bound = Some(address),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    pub(crate) fn listen(&mut self, fd: i32, backlog: c_int) -> Outcome<()> {
        let now = self.now;
        let backlog = u32::try_from(backlog).unwrap_or(u32::MAX);
        let socket = self.descriptors.socket(fd)?;
        match socket.kind {
            Kind::Fresh => {
                let local = socket.bound.unwrap_or_else(|| unspecified(socket.domain));
                let mut settings = socket.settings;
                if self.fast_open.takes_without_cookie() {
                    settings.apply(SocketOption::FastOpenNoCookie(true))?;
                }
                let id = self.stack.listen(now, local, backlog, &settings)?;
                let default = self.fast_open.of_every_listener(backlog);
                for &option in default.iter().chain(&socket.of_listener) {
                    if self.fast_open.serves() || !matches!(option, SocketOption::FastOpen(_)) {
                        self.stack.set_listener_option(id, option)?;
                    }
                }
                socket.kind = Kind::Listening(id);
                Ok(())
            }
            Kind::Listening(id) => Ok(self.stack.set_backlog(id, backlog)?),
            Kind::Connected(_) => Err(Errno::INVAL),
        }
    }

    /// Takes a connection that waits: its descriptor, the peer, and in which
    /// domain the listener names it.
    pub(crate) fn accept(&mut self, fd: i32) -> Outcome<(i32, SocketAddr, c_int)> {
        let socket = self.descriptors.socket(fd)?;
        let Kind::Listening(listener) = socket.kind else {
            return Err(Errno::INVAL);
        };
        let domain = socket.domain;
        let id = self.stack.accept(listener)?;
        let peer = self.stack.peer_addr(id)?;
        let mut accepted = Socket::new(domain, Kind::Connected(id), self.stack.settings(id)?, false);
        accepted.completions = socket.completions.inherited();
        let fd = self.descriptors.open(Descriptor::Socket(Box::new(accepted)))?;
        Ok((fd, peer, domain))
    }

    /// Begins to connect, or goes on.
    pub(crate) fn begin_connect(&mut self, fd: i32, address: Passed) -> Outcome<()> {
        let now = self.now;
        let socket = self.descriptors.socket(fd)?;
        match (address, socket.kind) {
            (Passed::Unspecified, _) => self.disconnect(fd),
            (Passed::Inet(remote), Kind::Fresh) => {
                let settings = self.fast_open.of_client(socket.settings)?;
                let id = self.stack.connect(now, socket.bound, remote, &settings)?;
                socket.kind = Kind::Connected(id);
                socket.connecting = true;
                if socket.nonblocking && !self.stack.is_deferred(id) {
                    Err(Errno::INPROGRESS)
                } else {
                    Ok(())
                }
            }
            // The SYN waits for what the program sends.
            (Passed::Inet(_), Kind::Connected(id)) if self.stack.is_deferred(id) => Err(Errno::ISCONN),
            (Passed::Inet(_), Kind::Connected(_)) if socket.connecting => match self.connected(fd) {
                Err(Errno::AGAIN) if self.descriptors.socket(fd)?.nonblocking => Err(Errno::ALREADY),
                Err(Errno::AGAIN) => Ok(()),
                outcome => outcome,
            },
            (Passed::Inet(_), _) => Err(Errno::ISCONN),
        }
    }

    /// The outcome of a connect, once; EAGAIN while there is none.
    pub(crate) fn connected(&mut self, fd: i32) -> Outcome<()> {
        let socket = self.descriptors.socket(fd)?;
        if !socket.connecting {
            return Ok(());
        }
        let id = socket.connection()?;
        if self.stack.is_deferred(id) {
            return Ok(());
        }
        let error = self.stack.take_error(id)?;
        let state = self.stack.state(id)?;
        if error.is_none() && matches!(state, TcpState::SynSent | TcpState::SynReceived) {
            return Err(Errno::AGAIN);
        }
        socket.connecting = false;
        let Some(error) = error else { return Ok(()) };
        // A socket that failed to connect may try again.
        self.stack.close(self.now, id)?;
        socket.kind = Kind::Fresh;
        Err(error.into())
    }

    /// Dissolves whatever the socket was.
    fn disconnect(&mut self, fd: i32) -> Outcome<()> {
        let socket = self.descriptors.socket(fd)?;
        match socket.kind {
            Kind::Fresh => {}
            Kind::Listening(id) => self.stack.close_listener(id)?,
            Kind::Connected(id) => self.stack.abort(id)?,
        }
        socket.kind = Kind::Fresh;
        socket.connecting = false;
        Ok(())
    }

    pub(crate) fn receive(&mut self, fd: i32, into: &mut [u8], flags: c_int) -> Outcome<usize> {
        let id = self.descriptors.socket(fd)?.connection()?;
        let flags = ReceiveFlags {
            peek: flags & libc::MSG_PEEK != 0,
            urgent: flags & libc::MSG_OOB != 0,
        };
        Ok(self.stack.receive(id, into, flags)?)
    }

    /// Sends from `bytes`, as much as there is room for.
    pub(crate) fn send(&mut self, fd: i32, bytes: &[u8], flags: c_int) -> Outcome<usize> {
        let socket = self.descriptors.socket(fd)?;
        let id = match socket.kind {
            Kind::Connected(id) => id,
            Kind::Fresh | Kind::Listening(_) => return Err(Errno::PIPE),
        };
        let send = SendFlags {
            urgent: flags & libc::MSG_OOB != 0,
            more: flags & libc::MSG_MORE != 0,
            end_of_record: flags & libc::MSG_EOR != 0,
        };
        let outcome = self.stack.send(id, bytes, send);
        if outcome == Err(SocketError::InProgress) {
            self.note_waiting_sender(fd, flags)?;
        }
        let outcome = outcome.map_err(Errno::from);
        if outcome != Ok(bytes.len()) {
            // A program that found no room wants to be told of room.
            self.stack.want_write(id);
            self.descriptors.epolls().for_each(|epoll| epoll.no_room(fd));
        }
        outcome
    }

    /// Sends with the SYN, which has waited for these bytes, what it may carry.
    pub(crate) fn send_first(&mut self, fd: i32, bytes: &[u8], flags: c_int) -> Outcome<usize> {
        let sent = match self.send(fd, bytes, flags) {
            Err(Errno::AGAIN) => 0,
            sent => sent?,
        };
        if sent < bytes.len() {
            self.note_waiting_sender(fd, flags)?;
        }
        Ok(sent)
    }

    /// A call that waits has more to send once the handshake is done.
    fn note_waiting_sender(&mut self, fd: i32, flags: c_int) -> Outcome<()> {
        let socket = self.descriptors.socket(fd)?;
        if socket.patience(Direction::Send, flags) != Patience::None {
            self.stack.note_waiting_sender(socket.connection()?);
        }
        Ok(())
    }

    /// Whether the SYN of a socket waits for what the program sends.
    pub(crate) fn is_deferred(&mut self, fd: i32) -> Outcome<bool> {
        let socket = self.descriptors.socket(fd)?;
        Ok(match socket.kind {
            Kind::Connected(id) => self.stack.is_deferred(id),
            Kind::Fresh | Kind::Listening(_) => false,
        })
    }

    /// Begins to connect, for a call that sends with MSG_FASTOPEN.
    pub(crate) fn open_to_send(&mut self, fd: i32, to: Passed) -> Outcome<()> {
        let now = self.now;
        let socket = self.descriptors.socket(fd)?;
        let Passed::Inet(remote) = to else {
            return Err(Errno::OPNOTSUPP);
        };
        if !self.fast_open.connects() {
            return Err(Errno::OPNOTSUPP);
        }
        match socket.kind {
            Kind::Fresh => {
                let settings = self.fast_open.of_client(socket.settings)?;
                let id = self
                    .stack
                    .connect_with_data(now, socket.bound, remote, &settings)?;
                socket.kind = Kind::Connected(id);
                socket.connecting = true;
                Ok(())
            }
            Kind::Connected(id) if self.stack.is_deferred(id) => Ok(()),
            Kind::Connected(_) if socket.connecting => match self.connected(fd) {
                Err(Errno::AGAIN) => Err(Errno::ALREADY),
                outcome => outcome,
            },
            Kind::Connected(_) => Err(Errno::ISCONN),
            Kind::Listening(_) => Err(Errno::INVAL),
        }
    }

    /// Notes a send that was asked to report when its bytes are not needed any more.
    pub(crate) fn sent_zerocopy(&mut self, fd: i32, sent: usize) -> Outcome<()> {
        let socket = self.descriptors.socket(fd)?;
        let id = socket.connection()?;
        let info = self.stack.info(id)?;
        let queued = self.stack.unacknowledged_bytes(id)? as u64;
        if sent > 0 {
            socket.completions.add(info.bytes_acked + queued);
        }
        Ok(())
    }

    /// Takes what the network said of an attempt to connect that it ended.
    pub(crate) fn take_report(&mut self, fd: i32) -> Outcome<Option<(NetworkReport, c_int)>> {
        let socket = self.descriptors.socket(fd)?;
        let Kind::Connected(id) = socket.kind else {
            return Ok(None);
        };
        let report = self.stack.take_report(id)?;
        Ok(report.map(|report| (report, socket.domain)))
    }

    /// Moves sends that are acknowledged to the queue of reports.
    pub(crate) fn update_completions(&mut self, fd: i32) -> Outcome<()> {
        let socket = self.descriptors.socket(fd)?;
        if let Kind::Connected(id) = socket.kind {
            let acked = match self.stack.state(id)? {
                TcpState::Closed => u64::MAX,
                _ => self.stack.info(id)?.bytes_acked,
            };
            socket.completions.acknowledged(acked);
        }
        Ok(())
    }

    pub(crate) fn shutdown(&mut self, fd: i32, how: c_int) -> Outcome<()> {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno::INVAL),
        };
        let id = self.descriptors.socket(fd)?.connection()?;
        Ok(self.stack.shutdown(self.now, id, how)?)
    }

    pub(crate) fn close(&mut self, fd: i32) -> Outcome<()> {
        let Descriptor::Socket(socket) = self.descriptors.close(fd)? else {
            return Ok(());
        };
        match socket.kind {
            Kind::Fresh => Ok(()),
            Kind::Listening(id) => Ok(self.stack.close_listener(id)?),
            Kind::Connected(id) => Ok(self.stack.close(self.now, id)?),
        }
    }

    pub(crate) fn fcntl(&mut self, fd: i32, command: c_int, argument: usize) -> Outcome<c_int> {
        let socket = self.descriptors.socket(fd)?;
        match command {
            libc::F_GETFL if socket.nonblocking => Ok(libc::O_RDWR | libc::O_NONBLOCK),
            libc::F_GETFL => Ok(libc::O_RDWR),
            libc::F_SETFL => {
                socket.nonblocking = argument & libc::O_NONBLOCK as usize != 0;
                Ok(0)
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// The number an `ioctl` asks for.
    pub(crate) fn ioctl(&mut self, fd: i32, request: u64) -> Outcome<c_int> {
        const SIOCATMARK: u64 = 0x8905;
        const SIOCOUTQNSD: u64 = 0x894b;
        let socket = self.descriptors.socket(fd)?;
        let Kind::Connected(id) = socket.kind else {
            return Err(Errno::INVAL);
        };
        let number = match request {
            libc::FIONREAD => self.stack.readable_bytes(id)?,
            libc::TIOCOUTQ => self.stack.unacknowledged_bytes(id)?,
            SIOCOUTQNSD => self.stack.info(id)?.unsent as usize,
            SIOCATMARK => usize::from(self.stack.at_mark(id)?),
            _ => return Err(Errno::NOTTY),
        };
        Ok(c_int::try_from(number).unwrap_or(c_int::MAX))
    }

    /// The number of bytes that `recvmsg` reports as left to read. The end of the stream counts as
    /// a byte, so that a program reads it.
    pub(crate) fn unread(&mut self, fd: i32) -> Outcome<Option<c_int>> {
        let socket = self.descriptors.socket(fd)?;
        let id = socket.connection()?;
        if !socket.report_unread {
            return Ok(None);
        }
        let bytes = self.stack.readable_bytes(id)?;
        let ended = bytes == 0 && self.stack.readiness(id).read_closed;
        Ok(Some(
            c_int::try_from(bytes).unwrap_or(c_int::MAX) + c_int::from(ended),
        ))
    }

    /// The bits that `poll` reports of a descriptor.
    pub(crate) fn poll_bits(&mut self, fd: i32) -> Outcome<i16> {
        self.update_completions(fd)?;
        let socket = self.descriptors.socket(fd)?;
        let mut bits = if socket.completions.is_reported() {
            libc::POLLERR
        } else {
            0
        };
        let id = match socket.kind {
            Kind::Fresh => return Ok(bits | libc::POLLOUT | libc::POLLHUP),
            Kind::Listening(id) => {
                let waits = self.stack.accept_queue_len(id)? > 0;
                return Ok(if waits { libc::POLLIN | libc::POLLRDNORM } else { 0 });
            }
            Kind::Connected(id) => id,
        };
        let ready = self.stack.readiness(id);
        let table = [
            (ready.readable, libc::POLLIN | libc::POLLRDNORM),
            (ready.writable, libc::POLLOUT | libc::POLLWRNORM),
            (ready.urgent, libc::POLLPRI),
            (ready.read_closed, libc::POLLRDHUP),
            (ready.hang_up, libc::POLLHUP),
            (ready.error, libc::POLLERR),
        ];
        for (is_set, bit) in table {
            bits |= if is_set { bit } else { 0 };
        }
        if !ready.writable {
            self.stack.want_write(id);
        }
        Ok(bits)
    }

    /// Changes whenever something new arrived for a descriptor.
    pub(crate) fn arrivals(&mut self, fd: i32) -> Outcome<u64> {
        let socket = self.descriptors.socket(fd)?;
        let reports = socket.completions.reports();
        Ok(match socket.kind {
            Kind::Fresh => 0,
            Kind::Listening(id) => u64::from(self.stack.accept_queue_len(id)?),
            Kind::Connected(id) => {
                let ready = self.stack.readiness(id);
                let ends = u64::from(ready.read_closed) + u64::from(ready.hang_up);
                self.stack
                    .info(id)
                    .map_or(0, |info| info.bytes_received + ends + reports)
            }
        })
    }
}

fn unspecified(domain: c_int) -> SocketAddr {
    if domain == AF_INET {
        SocketAddr::from(([0; 4], 0))
    } else {
        SocketAddr::from(([0_u16; 8], 0))
    }
}

/// For the calls that work on one socket's own fields only.
pub(crate) fn patience_of(
    descriptors: &mut Descriptors,
    fd: i32,
    direction: Direction,
    flags: c_int,
) -> Outcome<Patience> {
    Ok(descriptors.socket(fd)?.patience(direction, flags))
}
