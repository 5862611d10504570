//! The program's view of the stack: ids of connections and listeners, their settings, errors and
//! readiness. The calls are methods of [`crate::Stack`], in the files of this folder.

mod accept_lengths;
mod calls;
mod channel;
mod details;
mod info;
mod listing;
mod options;
mod tuning;
mod urgent;

pub use accept_lengths::AcceptLengths;
pub use details::{CongestionState, Details};
pub use info::{Info, Timer, TimerKind};
pub use options::SocketOption;
pub(crate) use tuning::{NO_FIN_WAIT_2, Tuning, family};

use core::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::config::{CongestionAlgorithm, TcpConfig};

/// Names a connection for as long as the program holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Names a listener for as long as the program holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ListenerId {
    /// The listener's place among those of its stack. Another one may have it later.
    #[inline]
    pub fn index(self) -> u32 {
        self.index
    }
}

/// Something whose readiness may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A connection became readable, writable, connected or broken.
    Connection(ConnectionId),
    /// A listener has a connection to accept.
    Listener(ListenerId),
}

impl Event {
    /// Bit of [`Event::word`] for a listener; indices have fewer bits.
    const LISTENER: u64 = 1 << 31;

    /// The connection or listener as a word, for tables in shared memory. Never 0: generations
    /// begin at 1.
    #[inline]
    pub fn word(self) -> u64 {
        match self {
            Event::Connection(id) => u64::from(id.generation) << 32 | u64::from(id.index),
            Event::Listener(id) => u64::from(id.generation) << 32 | Self::LISTENER | u64::from(id.index),
        }
    }

    /// The connection or listener of a word; it may no longer exist.
    #[inline]
    pub fn from_word(word: u64) -> Self {
        let generation = (word >> 32) as u32;
        let index = word as u32 & (Self::LISTENER as u32 - 1);
        if word & Self::LISTENER == 0 {
            Event::Connection(ConnectionId { index, generation })
        } else {
            Event::Listener(ListenerId { index, generation })
        }
    }
}

/// Changes of a connection or listener. Each names an operation that may succeed now and did not
/// before, or that may do more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change(pub(crate) u8);

impl Change {
    /// No change: a thread that waits for the connection was blocked by another thread.
    pub const NOTHING: Change = Change(0);
    /// More data, or more connections to accept.
    pub const DATA: Change = Change(1);
    /// Room became available after it was missing.
    pub const ROOM: Change = Change(2);
    /// The connection was established, was closed in one direction, or failed.
    pub const STATE: Change = Change(4);
    /// Urgent data were announced.
    pub const URGENT: Change = Change(8);

    /// Whether this contains one of `changes`.
    #[inline]
    pub const fn is_among(self, changes: Change) -> bool {
        self.0 & changes.0 != 0
    }

    /// The union of two sets of changes.
    #[must_use]
    #[inline]
    pub const fn and(self, other: Change) -> Change {
        Change(self.0 | other.0)
    }
}

/// The readiness of a connection, as `poll(2)` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Data, the end of the stream or an error can be read.
    pub readable: bool,
    /// Data can be written, or writing fails at once.
    pub writable: bool,
    /// Urgent data are pending.
    pub urgent: bool,
    /// The peer will send no more data.
    pub read_closed: bool,
    /// Both directions are closed.
    pub hang_up: bool,
    /// An error is pending.
    pub error: bool,
    /// Urgent data have been announced since the last call of
    /// [`Stack::take_announcement`](crate::Stack::take_announcement). `poll(2)` has no such event.
    pub announced: bool,
}

macro_rules! socket_errors {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal => $text:literal,)+) => {
        /// Reasons for the failure of a call on a connection or listener. The names follow those of
        /// errno.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
        #[repr(u8)]
        pub enum SocketError { $($(#[doc = $doc])+ #[error($text)] $name = $code,)+ }

        impl SocketError {
            pub(crate) fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$name),)+ _ => None }
            }
        }
    };
}

socket_errors! {
    /// EAGAIN: the call would block.
    WouldBlock = 1 => "the operation would block",
    /// ENOTCONN.
    NotConnected = 2 => "the socket is not connected",
    /// ECONNREFUSED: the peer answered the SYN with a reset.
    ConnectionRefused = 3 => "connection refused",
    /// ECONNRESET: the peer reset the connection.
    ConnectionReset = 4 => "connection reset by peer",
    /// ETIMEDOUT: the peer did not answer in time.
    TimedOut = 5 => "connection timed out",
    /// EHOSTUNREACH: no route to the peer, or its hardware address cannot be resolved.
    HostUnreachable = 6 => "no route to host",
    /// ENETUNREACH: this node has no address or route for that family or network.
    NetworkUnreachable = 7 => "network is unreachable",
    /// EPIPE: this side has shut down sending, or the connection has ended.
    BrokenPipe = 8 => "broken pipe",
    /// EADDRINUSE.
    AddressInUse = 9 => "address already in use",
    /// EADDRNOTAVAIL: not an address of this node, or no port is left.
    AddressNotAvailable = 10 => "cannot assign the requested address",
    /// ENOBUFS: context or payload memory ran out.
    OutOfMemory = 11 => "the node's memory for connections is used up",
    /// EINVAL.
    InvalidInput = 12 => "invalid argument",
    /// EISCONN.
    AlreadyConnected = 13 => "the socket is already connected",
    /// EINPROGRESS, EALREADY: the handshake is not done.
    InProgress = 14 => "the connection is being set up",
    /// ECONNABORTED: the program or the node gave the connection up.
    ConnectionAborted = 15 => "connection aborted",
    /// EBADF: the connection or listener does not exist (any more).
    NotFound = 16 => "no such socket",
    /// EPROTO: a network error without a better match.
    Protocol = 17 => "protocol error",
    /// EACCES: prohibited by a router or firewall.
    Prohibited = 18 => "communication prohibited",
    /// EAGAIN: another thread is copying bytes of that direction along the connection's channel.
    /// Threads that wait for the connection are woken when it is done.
    Taken = 19 => "another thread uses the socket",
    /// EHOSTDOWN: a router reports no such host.
    HostDown = 20 => "host is down",
    /// ENONET: the network has cut this node off.
    NotOnNetwork = 21 => "machine is not on the network",
    /// ENOPROTOOPT: the peer's host does not speak TCP.
    ProtocolNotAvailable = 22 => "protocol not available",
    /// EOPNOTSUPP: a source route failed.
    NotSupported = 23 => "operation not supported",
}

/// Bits of [`CommonSettings::bits`].
pub(crate) mod setting {
    pub(crate) const NO_DELAY: u32 = 1 << 0;
    pub(crate) const CORK: u32 = 1 << 1;
    pub(crate) const KEEPALIVE: u32 = 1 << 2;
    pub(crate) const LINGER: u32 = 1 << 3;
    pub(crate) const URGENT_INLINE: u32 = 1 << 4;
    pub(crate) const QUICK_ACK: u32 = 1 << 5;
    pub(crate) const REUSE_ADDRESS: u32 = 1 << 6;
    pub(crate) const V6_ONLY: u32 = 1 << 7;
    /// The last write announced more (MSG_MORE).
    pub(crate) const MORE_ANNOUNCED: u32 = 1 << 8;
    /// Opened early (RFC 7413): the SYN-ACK is not acknowledged yet.
    pub(crate) const FAST_OPEN: u32 = 1 << 9;
    /// The SYN-ACK carries a Fast Open cookie.
    pub(crate) const FAST_OPEN_COOKIE: u32 = 1 << 10;
    /// The Fast Open cookie has the option's experimental form.
    pub(crate) const FAST_OPEN_EXPERIMENT: u32 = 1 << 11;
    /// The connection has a channel, see [`crate::tcp::Pcb::channel`].
    pub(crate) const CHANNEL: u32 = 1 << 12;
    /// The program has chosen the send buffer.
    pub(crate) const SEND_BUFFER_CHOSEN: u32 = 1 << 13;
    /// The program has chosen the receive buffer.
    pub(crate) const RECEIVE_BUFFER_CHOSEN: u32 = 1 << 14;
    /// Other sockets with this option may listen at the same address and port (SO_REUSEPORT).
    pub(crate) const REUSE_PORT: u32 = 1 << 15;
    /// The SYN waits for the first bytes, if the server's cookie is known (TCP_FASTOPEN_CONNECT).
    pub(crate) const FAST_OPEN_CONNECT: u32 = 1 << 16;
    /// Data in a SYN need no cookie (TCP_FASTOPEN_NO_COOKIE).
    pub(crate) const FAST_OPEN_NO_COOKIE: u32 = 1 << 17;
    /// Acknowledgements wait for data to carry them, including that of a SYN-ACK: the program has
    /// asked for that.
    pub(crate) const LATE_ACK: u32 = 1 << 18;
    /// Changes since waiting threads were last woken, a [`super::Change`].
    pub(crate) const CHANGED: u32 = 0b1111 << CHANGED_SHIFT;
    pub(crate) const CHANGED_SHIFT: u32 = 19;
    /// Urgent data have been announced since the last query.
    pub(crate) const URGENT_ANNOUNCED: u32 = 1 << 23;
    /// A process receives SIGURG, and no thread reads past the mark before the signal.
    pub(crate) const OWNED: u32 = 1 << 24;
    /// Congestion control is NewReno (RFC 5681) instead of CUBIC (RFC 9438).
    pub(crate) const RENO: u32 = 1 << 25;
    /// A setting differs from the stack's configuration, see [`super::Tuning`].
    pub(crate) const TUNED: u32 = 1 << 26;
    /// Segments sent and received were counted, see `crate::tcp::aside`.
    pub(crate) const TALLIED: u32 = 1 << 27;
    /// The timeout stays backed off until a round trip is measured.
    pub(crate) const BACKOFF_KEPT: u32 = 1 << 30;
    /// Bits that belong to one connection; new connections begin without them.
    pub(crate) const INTERNAL: u32 = MORE_ANNOUNCED
        | BACKOFF_KEPT
        | FAST_OPEN
        | FAST_OPEN_COOKIE
        | FAST_OPEN_EXPERIMENT
        | CHANNEL
        | CHANGED
        | URGENT_ANNOUNCED
        | OWNED
        | TALLIED;
}

/// A socket's settings. Accepted connections inherit those of their listener.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Settings {
    pub(crate) tuning: Tuning,
    pub(crate) common: CommonSettings,
}

impl core::ops::Deref for Settings {
    type Target = CommonSettings;

    fn deref(&self) -> &CommonSettings {
        &self.common
    }
}

/// The settings stored in control blocks.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CommonSettings {
    pub(crate) bits: u32,
    /// Unsent bytes above which there is no room to queue more; 0: no mark.
    pub(crate) unsent_low_water: u32,
    /// Limit of the send queue, bytes.
    pub(crate) send_buffer: u32,
    /// Limit of the receive queue, bytes.
    pub(crate) receive_buffer: u32,
    /// User timeout in milliseconds; 0: the number of retries decides.
    pub(crate) user_timeout_ms: u32,
    /// Seconds of idleness before the first probe.
    pub(crate) keepalive_idle_s: u16,
    /// Seconds between probes.
    pub(crate) keepalive_interval_s: u16,
    /// Seconds, with `LINGER`.
    pub(crate) linger_s: u16,
    /// Upper bound of the segment size; 0: none.
    pub(crate) max_segment: u16,
    pub(crate) keepalive_probes: u8,
    /// Bits of the traffic class above ECN's two.
    pub(crate) traffic_class: u8,
    /// Bytes from which on the socket is readable, 0 meaning 1. With the highest bit set, in KiB.
    read_low_water: u16,
}

impl Settings {
    pub(crate) fn from_config(config: &TcpConfig) -> Self {
        Self {
            tuning: Tuning::default(),
            common: CommonSettings::from_config(config),
        }
    }
}

impl CommonSettings {
    pub(crate) fn from_config(config: &TcpConfig) -> Self {
        Self {
            bits: match config.congestion {
                CongestionAlgorithm::Reno => setting::RENO,
                CongestionAlgorithm::Cubic => 0,
            },
            unsent_low_water: 0,
            send_buffer: config.send_buffer,
            receive_buffer: config.receive_buffer,
            user_timeout_ms: 0,
            keepalive_idle_s: 7200,
            keepalive_interval_s: 75,
            linger_s: 0,
            max_segment: 0,
            keepalive_probes: 9,
            traffic_class: 0,
            read_low_water: 0,
        }
    }

    #[inline]
    pub(crate) fn has(&self, bits: u32) -> bool {
        self.bits & bits != 0
    }

    pub(crate) fn set(&mut self, bits: u32, on: bool) {
        if on {
            self.bits |= bits;
        } else {
            self.bits &= !bits;
        }
    }

    /// Rounds down beyond 32 KiB: a thread that waits for more than the buffer holds would wait for
    /// ever.
    pub(crate) fn set_read_low_water(&mut self, bytes: u32) {
        self.read_low_water = match bytes {
            ..=0x7fff => bytes as u16,
            _ => 0x8000 | (bytes >> 10).min(0x7fff) as u16,
        };
    }

    pub(crate) fn read_low_water(&self) -> u32 {
        match self.read_low_water & 0x8000 {
            0 => u32::from(self.read_low_water).max(1),
            _ => u32::from(self.read_low_water & 0x7fff) << 10,
        }
    }

    pub(crate) fn algorithm(&self) -> CongestionAlgorithm {
        match self.has(setting::RENO) {
            true => CongestionAlgorithm::Reno,
            false => CongestionAlgorithm::Cubic,
        }
    }

    /// Silence before the first keepalive.
    pub fn keepalive_idle(&self) -> Duration {
        Duration::from_secs(self.keepalive_idle_s.into())
    }
}

/// Flags of a program's send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// The last byte is urgent (MSG_OOB).
    pub urgent: bool,
    /// More data follow at once (MSG_MORE).
    pub more: bool,
    /// A record ends here (MSG_EOR): no segment holds bytes of this and of the next send. If the
    /// node has no memory left to note that, segments are filled as usual; the bytes are the same.
    /// filled as ever; the bytes are the same.
    pub end_of_record: bool,
}

/// Flags of a program's receive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveFlags {
    /// Leaves the bytes in the queue (MSG_PEEK).
    pub peek: bool,
    /// Takes the urgent byte (MSG_OOB).
    pub urgent: bool,
}

/// The directions that a program shuts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Receiving.
    Read,
    /// Sending.
    Write,
    /// Receiving and sending.
    Both,
}

/// The buffer of a waiting program, into which in-order bytes of its connection go straight from
/// the link.
#[derive(Debug)]
pub struct DirectReceive<'a> {
    /// The connection for which the program waits.
    pub connection: ConnectionId,
    /// The program's buffer.
    pub buffer: &'a mut [u8],
    /// Bytes of the buffer that are filled.
    pub filled: usize,
}
