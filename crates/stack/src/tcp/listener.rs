//! The state of a listener, and the addresses that it accepts.

use toehold_shm::NONE;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::pcb::{Pcb, State};
use super::pending::Pending;
use crate::socket::{Settings, family, setting};
use crate::tuple::{Address, FourTuple};

/// A listener. All zeroes: a free slot.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Listener {
    pub(super) address: Address,
    pub(super) port: u16,
    /// [`Listener::OPEN`], [`Listener::PREFERRED`].
    pub(super) flags: u8,
    pub(super) on_events: u8,
    pub(super) generation: u32,
    /// One less than the most connections in the accept queue (as in BSD and Linux).
    pub(super) backlog: u32,
    /// Head of the accept queue, oldest connection first.
    pub(super) queue_head: u32,
    pub(super) queue_tail: u32,
    pub(super) queue_len: u32,
    /// Connections in SYN-RECEIVED.
    pub(super) half_open: u32,
    /// Connections opened before their handshake is done.
    pub(super) fast_open: Pending,
    /// The number of timeouts in which a connection must bring data before it is accepted without;
    /// 0: none.
    pub(super) deferral: u32,
    pub(super) event_next: u32,
    /// Next listener with the same port bucket, plus one; 0: none.
    pub(super) bucket_next: u32,
    pub(super) settings: Settings,
}

impl Listener {
    /// The listener is open.
    pub(super) const OPEN: u8 = 1;
    /// The listener is preferred among those that share its address and port.
    const PREFERRED: u8 = 1 << 1;

    pub(super) fn is_open(&self) -> bool {
        self.flags & Self::OPEN != 0
    }

    pub(super) fn is_preferred(&self) -> bool {
        self.flags & Self::PREFERRED != 0
    }

    /// Makes the listener one of the preferred among those that share its address and port.
    pub(crate) fn prefer(&mut self, preferred: bool) {
        match preferred {
            true => self.flags |= Self::PREFERRED,
            false => self.flags &= !Self::PREFERRED,
        }
    }

    /// Empties its queue, and clears its links on lists.
    pub(super) fn forget(&mut self) {
        (self.queue_head, self.queue_tail, self.queue_len) = (NONE, NONE, 0);
        (self.on_events, self.event_next, self.bucket_next) = (0, NONE, 0);
        self.half_open = 0;
        self.fast_open.forget();
    }

    /// Counts a block that refers to this listener, if it is pending.
    pub(super) fn count(&mut self, pcb: &Pcb) {
        if pcb.state() == State::SynReceived {
            self.begin_handshake();
        }
        if pcb.is_fast_open() {
            self.fast_open.begin();
        }
    }

    /// Counts a connection that enters SYN-RECEIVED.
    pub(super) fn begin_handshake(&mut self) {
        self.half_open = self.half_open.wrapping_add(1);
    }

    /// Counts a half-open connection that becomes established.
    pub(super) fn complete_handshake(&mut self) {
        self.half_open = self.half_open.wrapping_sub(1);
    }

    /// Counts the end of a half-open connection before it was established.
    pub(super) fn abandon_handshake(&mut self) {
        self.half_open = self.half_open.saturating_sub(1);
    }

    /// The program's options of the listener.
    pub(crate) fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// The local end: an address, which may be a wildcard, and a port.
    pub(crate) fn local_end(&self) -> (Address, u16) {
        (self.address, self.port)
    }

    /// One less than the most connections in the accept queue.
    pub(crate) fn backlog(&self) -> u32 {
        self.backlog
    }

    /// Changes the backlog, as a second `listen(2)` does.
    pub(crate) fn set_backlog(&mut self, backlog: u32) {
        self.backlog = backlog;
    }

    /// The number of connections in the accept queue.
    pub(crate) fn accept_queue_len(&self) -> u32 {
        self.queue_len
    }

    /// The least hops left of segments from a tuple's remote end.
    pub(super) fn least_hops(&self, tuple: &FourTuple) -> u8 {
        self.settings.tuning.least_hops[family(tuple.local.is_ipv4())]
    }

    /// Sets the bound of connections whose handshake is not done; 0 turns Fast Open off.
    pub(crate) fn set_fast_open(&mut self, limit: u32) {
        self.fast_open.set_limit(limit);
    }

    /// Whether any connection waits in the accept queue, or is pending.
    pub(super) fn has_connections(&self) -> bool {
        self.queue_len != 0 || self.half_open != 0 || !self.fast_open.is_idle()
    }

    pub(super) fn is_full(&self) -> bool {
        self.queue_len > self.backlog
    }

    pub(super) fn may_share(&self) -> bool {
        self.settings.has(setting::REUSE_PORT)
    }

    pub(super) fn scope(&self) -> Scope {
        Scope::new(self.address, &self.settings)
    }

    /// Whether a connection to `address` matches this listener, exactly or by wildcard.
    pub(super) fn takes(&self, address: Address, port: u16) -> bool {
        self.is_open() && self.port == port && self.scope().has(address)
    }

    /// Whether this listener conflicts with a new one.
    pub(super) fn conflicts(&self, scope: &Scope, port: u16) -> bool {
        self.is_open() && self.port == port && self.scope().meets(scope)
    }
}

/// The addresses that a listener accepts.
#[derive(Debug)]
pub(super) struct Scope {
    address: Address,
    /// Whether it accepts IPv4, and IPv6.
    families: [bool; 2],
}

impl Scope {
    pub(super) fn new(address: Address, settings: &Settings) -> Scope {
        let families = match address {
            Address::UNSPECIFIED => [!settings.has(setting::V6_ONLY), true],
            _ => [address.is_ipv4(), !address.is_ipv4()],
        };
        Scope { address, families }
    }

    pub(super) fn has(&self, address: Address) -> bool {
        match self.address.is_unspecified() {
            true => self.families[usize::from(!address.is_ipv4())],
            false => self.address == address,
        }
    }

    /// Whether both scopes contain a common address.
    pub(super) fn meets(&self, other: &Scope) -> bool {
        let families = self
            .families
            .iter()
            .zip(other.families)
            .any(|(&own, others)| own && others);
        let any = self.address.is_unspecified() || other.address.is_unspecified();
        families && (any || self.address == other.address)
    }
}
