//! What a program sees of the stack: names of connections and listeners,
//! their settings, errors and readiness. The calls themselves are methods of
//! [`crate::Stack`], in the files beside this one.

mod calls;
mod channel;
mod details;
mod info;
mod list;
mod options;
mod tuning;
mod urgent;

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

/// Something whose readiness may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A connection became readable, writable, connected or broken.
    Connection(ConnectionId),
    /// A listener has a connection to accept.
    Listener(ListenerId),
}

impl Event {
    /// In [`Event::word`]: it names a listener. Indices have fewer bits.
    const LISTENER: u64 = 1 << 31;

    /// The connection or listener as a word, for tables in shared memory. Never 0:
    /// generations begin at 1.
    #[inline]
    pub fn word(self) -> u64 {
        match self {
            Event::Connection(id) => u64::from(id.generation) << 32 | u64::from(id.index),
            Event::Listener(id) => u64::from(id.generation) << 32 | Self::LISTENER | u64::from(id.index),
        }
    }

    /// The connection or listener a word stands for; there may be none such any more.
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

/// What has changed about a connection or listener: what it may be ready for that it was
/// not ready for before, or for more of what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change(pub(crate) u8);

impl Change {
    /// Nothing: somebody who waits for the connection was in another one's way.
    pub const NOTHING: Change = Change(0);
    /// There are more data, or more connections to accept.
    pub const DATA: Change = Change(1);
    /// There is room, after it was missing.
    pub const ROOM: Change = Change(2);
    /// It was connected, one of its directions was closed, or it has failed.
    pub const STATE: Change = Change(4);
    /// Urgent data were announced.
    pub const URGENT: Change = Change(8);

    /// Whether it is one of these, or several.
    #[inline]
    pub const fn is_among(self, changes: Change) -> bool {
        self.0 & changes.0 != 0
    }

    /// Both.
    #[must_use]
    #[inline]
    pub const fn and(self, other: Change) -> Change {
        Change(self.0 | other.0)
    }
}

/// What a connection is ready for, as `poll(2)` would tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// Data, the end of the stream or an error can be read.
    pub readable: bool,
    /// Data can be written, or writing fails at once.
    pub writable: bool,
    /// Urgent data wait.
    pub urgent: bool,
    /// The peer will send no more.
    pub read_closed: bool,
    /// Both directions are over.
    pub hang_up: bool,
    /// An error is pending.
    pub error: bool,
    /// Urgent data have been announced since somebody last asked for that, see
    /// [`Stack::take_announcement`](crate::Stack::take_announcement). No call of `poll(2)` tells.
    pub announced: bool,
}

macro_rules! socket_errors {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal => $text:literal,)+) => {
        /// Why a call on a connection or listener failed. The names follow errno's.
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
    /// EAGAIN: nothing to do right now.
    WouldBlock = 1 => "the operation would block",
    /// ENOTCONN.
    NotConnected = 2 => "the socket is not connected",
    /// ECONNREFUSED: the peer answered the SYN with a reset.
    ConnectionRefused = 3 => "connection refused",
    /// ECONNRESET: the peer reset the connection.
    ConnectionReset = 4 => "connection reset by peer",
    /// ETIMEDOUT: no answer within the limits.
    TimedOut = 5 => "connection timed out",
    /// EHOSTUNREACH: no way to the peer, or it does not answer for its hardware address.
    HostUnreachable = 6 => "no route to host",
    /// ENETUNREACH: this node has no address or route for that family or network.
    NetworkUnreachable = 7 => "network is unreachable",
    /// EPIPE: this side has shut down sending, or the connection is over.
    BrokenPipe = 8 => "broken pipe",
    /// EADDRINUSE.
    AddressInUse = 9 => "address already in use",
    /// EADDRNOTAVAIL: not an address of this node, or no port is left.
    AddressNotAvailable = 10 => "cannot assign the requested address",
    /// ENOBUFS: context or payload memory is out.
    OutOfMemory = 11 => "the node's memory for connections is used up",
    /// EINVAL.
    InvalidInput = 12 => "invalid argument",
    /// EISCONN.
    AlreadyConnected = 13 => "the socket is already connected",
    /// EINPROGRESS, EALREADY: the handshake is not done.
    InProgress = 14 => "the connection is being set up",
    /// ECONNABORTED: the program or the node gave the connection up.
    ConnectionAborted = 15 => "connection aborted",
    /// EBADF: no such connection or listener (any more).
    NotFound = 16 => "no such socket",
    /// EPROTO, and other answers of the network that fit nothing else.
    Protocol = 17 => "protocol error",
    /// EACCES: prohibited by a router or firewall.
    Prohibited = 18 => "communication prohibited",
    /// EAGAIN: another thread copies bytes of that direction along the connection's
    /// channel, for a moment. Whoever waits for the connection is told when it is done.
    Taken = 19 => "another thread uses the socket",
    /// EHOSTDOWN: a router knows of no such host.
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
    /// The SYN-ACK brings a Fast Open cookie.
    pub(crate) const FAST_OPEN_COOKIE: u32 = 1 << 10;
    /// … in the option's experimental form.
    pub(crate) const FAST_OPEN_EXPERIMENT: u32 = 1 << 11;
    /// It has a channel, see [`crate::tcp::Pcb::channel`].
    pub(crate) const CHANNEL: u32 = 1 << 12;
    /// The program has chosen how many bytes are queued.
    pub(crate) const SEND_BUFFER_CHOSEN: u32 = 1 << 13;
    /// The same of those received.
    pub(crate) const RECEIVE_BUFFER_CHOSEN: u32 = 1 << 14;
    /// Others that say so too may listen at the same address and port (SO_REUSEPORT).
    pub(crate) const REUSE_PORT: u32 = 1 << 15;
    /// The SYN waits for the first bytes, if the server's cookie is known (TCP_FASTOPEN_CONNECT).
    pub(crate) const FAST_OPEN_CONNECT: u32 = 1 << 16;
    /// Data in a SYN need no cookie (TCP_FASTOPEN_NO_COOKIE).
    pub(crate) const FAST_OPEN_NO_COOKIE: u32 = 1 << 17;
    /// Acknowledgements wait for data to go with, that of a SYN-ACK as well: the program has
    /// asked for that.
    pub(crate) const LATE_ACK: u32 = 1 << 18;
    /// What has changed since those who wait were last told, a [`super::Change`].
    pub(crate) const CHANGED: u32 = 0b1111 << CHANGED_SHIFT;
    pub(crate) const CHANGED_SHIFT: u32 = 19;
    /// Urgent data have been announced since somebody last asked for that.
    pub(crate) const URGENT_ANNOUNCED: u32 = 1 << 23;
    /// Somebody does, and nobody reads past a mark before.
    pub(crate) const OWNED: u32 = 1 << 24;
    /// Congestion control by RFC 5681, and not by RFC 9438.
    pub(crate) const RENO: u32 = 1 << 25;
    /// Something is not as the stack's configuration has it, see [`super::Tuning`].
    pub(crate) const TUNED: u32 = 1 << 26;
    /// It has been counted what was sent and received, see `crate::tcp::aside`.
    pub(crate) const TALLIED: u32 = 1 << 27;
    /// The timeout stays backed off until a round trip is measured.
    pub(crate) const BACKOFF_KEPT: u32 = 1 << 30;
    /// What a connection keeps here for itself; no new one begins with it.
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

/// A socket's settings; a listener's are inherited by what it accepts.
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

/// The settings that control blocks have room for.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CommonSettings {
    pub(crate) bits: u32,
    /// Bytes not yet sent above which there is no room to queue more; 0: no such mark.
    pub(crate) unsent_low_water: u32,
    /// Bytes.
    pub(crate) send_buffer: u32,
    /// Bytes.
    pub(crate) receive_buffer: u32,
    /// Milliseconds; 0: by the number of retries.
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
    /// From how many bytes on there is something to read, 0 being one; with the highest bit, KiB.
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

    /// Rounded down beyond 32 KiB: who waits for more than there will be waits for ever.
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

/// How a program sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// The last byte is urgent (MSG_OOB).
    pub urgent: bool,
    /// More follows at once (MSG_MORE).
    pub more: bool,
    /// A record ends here (MSG_EOR): no segment holds bytes of this and of the
    /// next send. Where the node has no memory left to note that, segments are
    /// filled as ever; the bytes are the same.
    pub end_of_record: bool,
}

/// How a program receives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveFlags {
    /// Leave the bytes in the queue (MSG_PEEK).
    pub peek: bool,
    /// Take the urgent byte (MSG_OOB).
    pub urgent: bool,
}

/// Which directions a program shuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Receiving.
    Read,
    /// Sending.
    Write,
    /// Both.
    Both,
}

/// Where the bytes of one connection may go straight from the link, because
/// its program waits for them: receive placement.
#[derive(Debug)]
pub struct Placement<'a> {
    /// The connection whose program waits.
    pub connection: ConnectionId,
    /// The program's buffer.
    pub buffer: &'a mut [u8],
    /// How much of it is filled.
    pub filled: usize,
}
