//! Options of a stream, and queries about it.

use std::io::{self, IoSlice};
use std::time::Duration;

use toehold_stack::{Details, Info, Readiness, Settings, SocketOption};

use super::{Connected, SendOptions, TcpStream};

/// How to find out whether a silent peer is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe; whole seconds, 1 to 32767.
    pub idle: Duration,
    /// Time between probes; whole seconds, 1 to 32767.
    pub interval: Duration,
    /// Unanswered probes before the connection is given up, 1 to 127.
    pub probes: u8,
}

impl Default for Keepalive {
    /// The intervals of RFC 9293 §3.8.4 and of Linux: two hours, then nine
    /// probes 75 seconds apart.
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(7200),
            interval: Duration::from_secs(75),
            probes: 9,
        }
    }
}

impl TcpStream {
    /// Sets any option.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the value is out of the option's range.
    pub fn set_option(&self, option: SocketOption) -> io::Result<()> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.set_option(option),
            Connected::Direct(connection) => connection.set_option(option),
        }
    }

    /// The present settings.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn settings(&self) -> io::Result<Settings> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.with(|shard, id| shard.stack.settings(id)),
            Connected::Direct(connection) => connection.settings(),
        }
    }

    /// Sets whether small segments are sent at once, instead of waiting for the acknowledgement of
    /// what was sent before (TCP_NODELAY).
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.set_option(SocketOption::NoDelay(nodelay))
    }

    /// Whether small segments are sent at once.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.settings()?.no_delay())
    }

    /// Sets whether segments of less than full size are held back, for 200 ms at most (TCP_CORK).
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn set_cork(&self, cork: bool) -> io::Result<()> {
        self.set_option(SocketOption::Cork(cork))
    }

    /// Whether segments of less than full size are held back.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn cork(&self) -> io::Result<bool> {
        Ok(self.settings()?.cork())
    }

    /// Sets whether everything received is acknowledged at once (TCP_QUICKACK).
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        self.set_option(SocketOption::QuickAck(quickack))
    }

    /// Sets what dropping the stream does (SO_LINGER). With `None` it returns at once, and the node
    /// delivers the rest. With a time it waits for the acknowledgement of everything, that long at
    /// most, after which the node delivers the rest. With a time of zero it resets the connection.
    ///
    /// Of several processes that have the connection, the last one to drop it waits, as with the
    /// kernel's. No process waits if the last one just ends, or is killed; the kernel's do not,
    /// either. A forked child does not wait that has made no call on the node.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.set_option(SocketOption::Linger(linger))
    }

    /// Returns the setting that decides what dropping the stream does.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.settings()?.linger())
    }

    /// Sets whether and how silent peers are probed (SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL,
    /// TCP_KEEPCNT).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a value is out of range; nothing has changed then.
    pub fn set_keepalive(&self, keepalive: Option<Keepalive>) -> io::Result<()> {
        let Some(keepalive) = keepalive else {
            return self.set_option(SocketOption::Keepalive(false));
        };
        let options = [
            SocketOption::KeepaliveIdle(keepalive.idle),
            SocketOption::KeepaliveInterval(keepalive.interval),
            SocketOption::KeepaliveProbes(keepalive.probes),
            SocketOption::Keepalive(true),
        ];
        match &*self.connection {
            Connected::Tcp(connection) => connection.set_options(&options),
            Connected::Direct(connection) => connection.set_options(&options),
        }
    }

    /// Whether silent peers are probed.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn keepalive(&self) -> io::Result<bool> {
        Ok(self.settings()?.keepalive())
    }

    /// Sets how long data may stay unacknowledged before the connection is given up
    /// (TCP_USER_TIMEOUT, RFC 5482). `None` means as many retransmissions as
    /// [`TcpConfig::retries`](crate::TcpConfig::retries) says.
    ///
    /// # Errors
    ///
    /// `InvalidInput` beyond 49 days.
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_option(SocketOption::UserTimeout(timeout.unwrap_or_default()))
    }

    /// How long data may stay unacknowledged.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn user_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(Some(self.settings()?.user_timeout()).filter(|timeout| !timeout.is_zero()))
    }

    /// Bounds the send queue in bytes: 4 KiB to 16 MiB (SO_SNDBUF).
    ///
    /// # Errors
    ///
    /// None for a stream that exists: values out of range are rounded.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.set_option(SocketOption::SendBuffer(u32::try_from(bytes).unwrap_or(u32::MAX)))
    }

    /// Bound of the send queue in bytes.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        Ok(self.settings()?.send_buffer() as usize)
    }

    /// Bounds the receive queue in bytes: 2 KiB to 16 MiB (SO_RCVBUF). To grow
    /// beyond 64 KiB times what was agreed on in the handshake, set it before:
    /// [`ConnectOptions::settings`](crate::ConnectOptions::settings).
    ///
    /// # Errors
    ///
    /// None for a stream that exists: values out of range are rounded.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.set_option(SocketOption::ReceiveBuffer(
            u32::try_from(bytes).unwrap_or(u32::MAX),
        ))
    }

    /// Bounds what is queued and not yet sent, in bytes (TCP_NOTSENT_LOWAT). The stream takes more
    /// while less than that waits, and is writable while less than half of it does. So a program
    /// can decide late what it sends. `None` means as much as the send queue holds.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn set_unsent_low_water(&self, bytes: Option<u32>) -> io::Result<()> {
        self.set_option(SocketOption::UnsentLowWater(bytes.unwrap_or(0)))
    }

    /// Bound of the bytes that are queued and not yet sent, if there is one.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn unsent_low_water(&self) -> io::Result<Option<u32>> {
        let bytes = self.settings()?.unsent_low_water();
        Ok((bytes > 0).then_some(bytes))
    }

    /// Bound of the receive queue in bytes.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        Ok(self.settings()?.receive_buffer() as usize)
    }

    /// Sends bytes of which the last one is urgent (MSG_OOB).
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room and the call does not wait, or its time is over.
    /// EINPROGRESS before the handshake is done; `BrokenPipe` after a shutdown; `NetworkDown` if
    /// the node is gone; or the connection's error.
    pub fn send_out_of_band(&self, buf: &[u8]) -> io::Result<usize> {
        let options = SendOptions {
            urgent: true,
            ..SendOptions::default()
        };
        self.send_with(&[IoSlice::new(buf)], options)
    }

    /// Sends bytes of which the last one ends a record (MSG_EOR): no segment
    /// holds bytes of this and of the next send. What the peer reads stays a
    /// stream of bytes. Where the node has no memory left to note the place,
    /// segments are filled as ever.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room and the call does not wait, or its time is over.
    /// EINPROGRESS before the handshake is done; `BrokenPipe` after a shutdown; `NetworkDown` if
    /// the node is gone; or the connection's error. A record that did not fit as a whole has no end
    /// yet.
    pub fn send_record(&self, buf: &[u8]) -> io::Result<usize> {
        let options = SendOptions {
            end_of_record: true,
            ..SendOptions::default()
        };
        self.send_with(&[IoSlice::new(buf)], options)
    }

    /// Takes the urgent byte (MSG_OOB). Never waits.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is none, or it stays in the stream
    /// ([`SocketOption::UrgentInline`]); `WouldBlock` if it is announced and
    /// did not arrive yet.
    pub fn recv_out_of_band(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.out_of_band(buf, false)
    }

    /// Reads the urgent byte and leaves it where it is (MSG_OOB and MSG_PEEK). Never waits.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there is none, or it stays in the stream ([`SocketOption::UrgentInline`]);
    /// `WouldBlock` if it is announced and did not arrive yet.
    pub fn peek_out_of_band(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.out_of_band(buf, true)
    }

    fn out_of_band(&self, buf: &mut [u8], peek: bool) -> io::Result<usize> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.out_of_band(buf, peek),
            Connected::Direct(connection) => connection.out_of_band(buf, peek),
        }
    }

    /// Whether the next byte to be read is the urgent one, or follows it
    /// (`sockatmark(3)`).
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn at_mark(&self) -> io::Result<bool> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.with(|shard, id| shard.stack.at_mark(id)),
            Connected::Direct(connection) => connection.at_mark(),
        }
    }

    /// Bytes that can be read without waiting (FIONREAD), up to an urgent one that is read by
    /// itself.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn readable_bytes(&self) -> io::Result<usize> {
        match &*self.connection {
            Connected::Tcp(connection) => {
                connection.ask(|shard, id| shard.stack.bytes_before_mark(id), |&bytes| bytes > 0)
            }
            Connected::Direct(connection) => connection.readable_bytes(),
        }
    }

    /// Bytes that can be written without waiting.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn send_room(&self) -> io::Result<usize> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.send_room(),
            Connected::Direct(connection) => connection.send_room(),
        }
    }

    /// Bytes written and not yet acknowledged by the peer (SIOCOUTQ).
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn unacknowledged_bytes(&self) -> io::Result<usize> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.with(|shard, id| shard.stack.unacknowledged_bytes(id)),
            Connected::Direct(connection) => connection.unacknowledged_bytes(),
        }
    }

    /// Takes the pending error (SO_ERROR).
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.take_error(),
            Connected::Direct(connection) => connection.take_error(),
        }
    }

    /// Facts about the connection (TCP_INFO).
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn info(&self) -> io::Result<Info> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.with(|shard, id| shard.stack.info(id)),
            Connected::Direct(connection) => connection.info(),
        }
    }

    /// All facts about the connection that TCP_INFO has a place for.
    ///
    /// # Errors
    ///
    /// None for a stream that exists.
    pub fn details(&self) -> io::Result<Details> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.details(),
            Connected::Direct(connection) => connection.details(),
        }
    }

    /// Returns the stream's readiness, as far as received frames were looked at.
    ///
    /// # Errors
    ///
    /// `NetworkDown` if the node is gone.
    pub fn readiness(&self) -> io::Result<Readiness> {
        match &*self.connection {
            Connected::Tcp(connection) => connection.with(|shard, id| Ok(shard.stack.readiness(id))),
            Connected::Direct(connection) => connection.readiness(),
        }
    }

    /// Whether calls fail instead of waiting.
    ///
    /// # Errors
    ///
    /// Never.
    pub fn nonblocking(&self) -> io::Result<bool> {
        Ok(self.connection.description().is_nonblocking())
    }
}
