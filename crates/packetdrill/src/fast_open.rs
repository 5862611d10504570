//! Fast Open as the system has it set: the bits of Linux's `net.ipv4.tcp_fastopen`.

use toehold_posix::errno::Outcome;
use toehold_stack::{Settings, SocketOption};

/// The system's setting, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastOpen(pub u32);

impl FastOpen {
    /// The setting of packetdrill's scripts by default: clients and servers use it, every listener
    /// without asking.
    pub const DEFAULT: Self = Self(Self::CLIENT | Self::SERVER | Self::EVERY_LISTENER);

    const CLIENT: u32 = 1 << 0;
    const SERVER: u32 = 1 << 1;
    const CLIENT_NO_COOKIE: u32 = 1 << 2;
    const SERVER_NO_COOKIE: u32 = 1 << 9;
    const EVERY_LISTENER: u32 = 1 << 10;

    fn has(self, bit: u32) -> bool {
        self.0 & bit != 0
    }

    /// Whether clients use it.
    pub(crate) fn connects(self) -> bool {
        self.has(Self::CLIENT)
    }

    /// Whether listeners use it.
    pub(crate) fn serves(self) -> bool {
        self.has(Self::SERVER)
    }

    /// Whether listeners take data without a cookie.
    pub(crate) fn takes_without_cookie(self) -> bool {
        self.has(Self::SERVER_NO_COOKIE)
    }

    /// The option that every listener has, without asking for it.
    pub(crate) fn of_every_listener(self, backlog: u32) -> Option<SocketOption> {
        let is_given = self.serves() && self.has(Self::EVERY_LISTENER);
        is_given.then_some(SocketOption::FastOpen(backlog))
    }

    /// The settings of a socket that is about to connect.
    pub(crate) fn of_client(self, mut settings: Settings) -> Outcome<Settings> {
        if self.has(Self::CLIENT_NO_COOKIE) {
            settings.apply(SocketOption::FastOpenNoCookie(true))?;
        }
        Ok(settings)
    }
}
