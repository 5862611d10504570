//! What is known of a listener, and the addresses that it is for.

use toehold_shm::NONE;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::fast_open::Pending;
use super::{Pcb, State};
use crate::socket::{Settings, setting};
use crate::tuple::Address;

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
    /// Most connections that may wait to be accepted, less one (as in BSD and Linux).
    pub(super) backlog: u32,
    /// Connections that wait to be accepted, oldest first.
    pub(super) queue_head: u32,
    pub(super) queue_tail: u32,
    pub(super) queue_len: u32,
    /// Connections in SYN-RECEIVED.
    pub(super) half_open: u32,
    /// Connections opened before their handshake is done.
    pub(super) fast_open: Pending,
    /// So many timeouts a connection has to bring data before it is accepted without; 0: none.
    pub(super) deferral: u32,
    pub(super) event_next: u32,
    /// Next listener with the same port bucket, plus one; 0: none.
    pub(super) bucket_next: u32,
    pub(super) settings: Settings,
}

impl Listener {
    /// It listens.
    pub(super) const OPEN: u8 = 1;
    /// Of those that share its address and port, connections are for it.
    const PREFERRED: u8 = 1 << 1;

    pub(super) fn is_open(&self) -> bool {
        self.flags & Self::OPEN != 0
    }

    pub(super) fn is_preferred(&self) -> bool {
        self.flags & Self::PREFERRED != 0
    }

    pub(super) fn prefer(&mut self, preferred: bool) {
        match preferred {
            true => self.flags |= Self::PREFERRED,
            false => self.flags &= !Self::PREFERRED,
        }
    }

    /// Forgets who waits, and on which lists it is itself.
    pub(super) fn forget(&mut self) {
        (self.queue_head, self.queue_tail, self.queue_len) = (NONE, NONE, 0);
        (self.on_events, self.event_next, self.bucket_next) = (0, NONE, 0);
        self.half_open = 0;
        self.fast_open.forget();
    }

    /// Counts a block that knows this listener, if it is one of its pending ones.
    pub(super) fn count(&mut self, pcb: &Pcb) {
        if pcb.state() == State::SynReceived {
            self.half_open = self.half_open.wrapping_add(1);
        }
        if pcb.is_fast_open() {
            self.fast_open.begin();
        }
    }

    /// Whether anybody waits, or is about to.
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

    /// Whether a connection to `address` is for this listener: exact or wildcard.
    pub(super) fn takes(&self, address: Address, port: u16) -> bool {
        self.is_open() && self.port == port && self.scope().has(address)
    }

    /// Whether it stands in the way of a new one.
    pub(super) fn conflicts(&self, scope: &Scope, port: u16) -> bool {
        self.is_open() && self.port == port && self.scope().meets(scope)
    }
}

/// The addresses that a listener is for.
#[derive(Debug)]
pub(super) struct Scope {
    address: Address,
    /// IPv4, IPv6.
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

    /// Whether there is an address that is in both.
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
