//! Socket options between C's form and the stack's.

use crate::node::State;
use crate::sockets::{Kind, Socket};
use libc::{
    IPPROTO_TCP, SO_ACCEPTCONN, SO_ERROR, SO_KEEPALIVE, SO_LINGER, SO_RCVBUF, SO_SNDBUF, SO_TYPE,
    SO_ZEROCOPY, SOL_SOCKET, TCP_CORK, TCP_FASTOPEN_CONNECT, TCP_INFO, TCP_MAXSEG, TCP_NODELAY,
    TCP_USER_TIMEOUT, c_int,
};
use toehold_posix::errno::{Errno, Outcome};
use toehold_posix::info::tcp_info;
use toehold_posix::options::{
    Meaning, TCP_FASTOPEN_NO_COOKIE, TCP_INQ, TCP_NOTSENT_LOWAT, meaning, said_of_buffer,
};
use toehold_stack::{SocketError, SocketOption};

/// Segment size that a socket without a connection reports (RFC 9293 §3.7.1).
const DEFAULT_SEGMENT: c_int = 536;

impl State {
    pub(crate) fn set_option(&mut self, fd: i32, level: c_int, name: c_int, value: &[u8]) -> Outcome<()> {
        let now = self.now;
        let socket = self.descriptors.socket(fd)?;
        match meaning(level, name, value)? {
            Meaning::Stack(option @ (SocketOption::FastOpen(_) | SocketOption::DeferAccept(_)))
                if matches!(socket.kind, Kind::Fresh) =>
            {
                socket.of_listener.push(option);
            }
            // Of sockets that are not connected.
            Meaning::Stack(SocketOption::FastOpenConnect(_)) if !matches!(socket.kind, Kind::Fresh) => {
                return Err(Errno::INVAL);
            }
            Meaning::Stack(SocketOption::FastOpenNoCookie(_))
                if matches!(socket.kind, Kind::Connected(_)) =>
            {
                return Err(Errno::INVAL);
            }
            Meaning::Stack(option) => match socket.kind {
                Kind::Fresh => socket.settings.apply(option)?,
                Kind::Listening(id) => {
                    self.stack.set_listener_option(id, option)?;
                    // What a listener says of itself.
                    let _ = socket.settings.apply(option);
                }
                Kind::Connected(id) => self.stack.set_option(now, id, option)?,
            },
            Meaning::ReceiveTimeout(span) => socket.receive_timeout = span,
            Meaning::SendTimeout(span) => socket.send_timeout = span,
            Meaning::ReportUnread(on) => socket.report_unread = on,
            Meaning::ZeroCopy(on) => socket.completions.wanted = on,
            Meaning::PeekBehind(_) | Meaning::LocalPorts(..) | Meaning::Nothing => {}
            // No stamps of what is received are taken here.
            Meaning::Stamps(_) | Meaning::Stamping(..) => return Err(Errno::NOPROTOOPT),
        }
        Ok(())
    }

    /// An option's value, in the bytes that C has for it.
    pub(crate) fn option(&mut self, fd: i32, level: c_int, name: c_int) -> Outcome<Vec<u8>> {
        let socket = self.descriptors.socket(fd)?;
        let settings = match socket.kind {
            Kind::Connected(id) => self.stack.settings(id)?,
            Kind::Fresh | Kind::Listening(_) => socket.settings,
        };
        let number = match (level, name) {
            (SOL_SOCKET, SO_TYPE) => libc::SOCK_STREAM,
            (SOL_SOCKET, SO_ACCEPTCONN) => c_int::from(matches!(socket.kind, Kind::Listening(_))),
            (SOL_SOCKET, SO_ERROR) => self.pending_error(fd)?,
            (SOL_SOCKET, SO_SNDBUF) => said_of_buffer(settings.send_buffer()),
            (SOL_SOCKET, SO_RCVBUF) => said_of_buffer(settings.receive_buffer()),
            (SOL_SOCKET, SO_KEEPALIVE) => c_int::from(settings.keepalive()),
            (SOL_SOCKET, SO_ZEROCOPY) => c_int::from(socket.completions.wanted),
            (SOL_SOCKET, SO_LINGER) => {
                let linger = settings.linger();
                let seconds = linger.map_or(0, |span| span.as_secs() as c_int);
                return Ok([c_int::from(linger.is_some()), seconds]
                    .map(c_int::to_ne_bytes)
                    .concat());
            }
            (IPPROTO_TCP, TCP_NODELAY) => c_int::from(settings.no_delay()),
            (IPPROTO_TCP, TCP_CORK) => c_int::from(settings.cork()),
            (IPPROTO_TCP, TCP_NOTSENT_LOWAT) => settings.unsent_low_water() as c_int,
            (IPPROTO_TCP, TCP_INQ) => c_int::from(socket.report_unread),
            (IPPROTO_TCP, TCP_USER_TIMEOUT) => settings.user_timeout().as_millis() as c_int,
            (IPPROTO_TCP, TCP_MAXSEG) => self.segment_size(fd)?,
            (IPPROTO_TCP, TCP_FASTOPEN_CONNECT) => c_int::from(settings.fast_open_connect()),
            (IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE) => c_int::from(settings.fast_open_no_cookie()),
            (IPPROTO_TCP, TCP_INFO) => return self.info(fd),
            _ => return Err(Errno::NOPROTOOPT),
        };
        Ok(number.to_ne_bytes().to_vec())
    }

    fn pending_error(&mut self, fd: i32) -> Outcome<c_int> {
        match self.descriptors.socket(fd)?.kind {
            Kind::Connected(id) => Ok(self
                .stack
                .take_error(id)?
                .map_or(0, |error: SocketError| Errno::from(error).0)),
            Kind::Fresh | Kind::Listening(_) => Ok(0),
        }
    }

    /// TCP_INFO's structure; of a socket without a connection it says no more than that.
    fn info(&mut self, fd: i32) -> Outcome<Vec<u8>> {
        /// TCP_CLOSE and TCP_LISTEN.
        const STATES: [u8; 2] = [7, 10];
        let socket = self.descriptors.socket(fd)?;
        let state = match socket.kind {
            Kind::Connected(id) => return Ok(tcp_info(&self.stack.details(self.now, id)?)),
            Kind::Fresh => STATES[0],
            Kind::Listening(_) => STATES[1],
        };
        let mut bytes = vec![0; size_of::<libc::tcp_info>()];
        bytes[0] = state;
        Ok(bytes)
    }

    fn segment_size(&mut self, fd: i32) -> Outcome<c_int> {
        let socket: &mut Socket = self.descriptors.socket(fd)?;
        match socket.kind {
            Kind::Connected(id) => Ok(c_int::from(self.stack.info(id)?.segment_size)),
            Kind::Fresh | Kind::Listening(_) => Ok(match socket.settings.max_segment() {
                0 => DEFAULT_SEGMENT,
                bytes => bytes.into(),
            }),
        }
    }
}
