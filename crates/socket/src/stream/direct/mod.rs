//! Streams over direct connections: no lease, no stack, no segment.
//!
//! A call takes the lock of one direction for one copy, publishes a position, and tells the peer if
//! that waits for it (`toehold_shm::direct`). In each state of a connection these calls return what
//! the kernel's do on its loopback.
//!
//! | file | what |
//! | --- | --- |
//! | `open` | beginning and end of a stream |
//! | `receive`, `send` | bytes |
//! | `urgent` | the urgent byte and the mark |
//! | `readiness` | what polls tell, and what calls wait for |
//! | `options` | settings, and facts about the connection |

mod open;
mod options;
mod readiness;
mod receive;
mod send;
mod urgent;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use toehold_node::direct::{Bank, Bed, Count, Direct, DirectWait, RungBy, WaitError, WaitTarget};
use toehold_node::{Description, Holder, Relayed, Shards, SpinBudget};
use toehold_shm::direct::{ConnectionId, End, Noted, ThreadNumber};
use toehold_stack::Instant;

pub(crate) use self::readiness::look;
use crate::error::from_holder;
use crate::node::Shared;

/// A direct connection as long as the program holds it.
pub(crate) struct DirectConnection {
    node: Arc<Shared>,
    /// The one bank that has the connection.
    banks: [Arc<Bank>; 1],
    id: ConnectionId,
    local: SocketAddr,
    peer: SocketAddr,
    /// The holder; taken when the connection is dropped, and not before.
    holder: Option<Holder>,
    /// Whether calls wait and how long, for all processes that have the connection.
    pub(super) description: Description,
    spin: SpinBudget,
}

/// A call on a connection: what it needs of the node, and the end.
#[derive(Clone, Copy)]
pub(crate) struct DirectCall<'a> {
    shards: &'a Shards,
    pub(crate) direct: &'a Direct,
    pub(crate) thread: ThreadNumber,
    pub(crate) end: End<'a>,
    bank: &'a Bank,
}

impl DirectCall<'_> {
    /// Whether the peer's node is there.
    #[inline]
    fn is_peer_there(&self) -> bool {
        self.direct.is_there(self.bank)
    }

    /// The error that a call returns once: the peer's reset and its death are noticed here.
    #[inline]
    fn take_error(&self) -> Option<Errno> {
        self.notice();
        match self.end.take_error() {
            0 => None,
            error => Some(Errno::from_raw_os_error(error as i32)),
        }
    }

    /// Notes a reset of the peer's as the pending error, once.
    #[inline]
    fn notice(&self) {
        if self.end.is_beyond_limit() {
            self.refuse_more();
        }
        let is_reset = || self.end.is_reset_by_peer() || !self.is_peer_there();
        if !self.end.has_noted(Noted::ResetSeen) && is_reset() && self.end.note(Noted::ResetSeen) {
            let is_lost = self.end.has_noted(Noted::SentInVain);
            if !is_lost {
                let error = match self.end.has_noted(Noted::EndSeen) {
                    // The peer sees this node's end before this process does.
                    _ if self.shards.has_lost_engine() => Errno::NETDOWN,
                    // As in CLOSE-WAIT, where the peer has ended its stream before.
                    true => Errno::PIPE,
                    false => Errno::CONNRESET,
                };
                self.end.set_error(error.raw_os_error() as u32);
            }
        }
    }

    /// Resets the connection: the peer has sent bytes to an end that is shut both ways.
    #[cold]
    fn refuse_more(&self) {
        if self.end.note(Noted::ResetSeen) {
            self.end.set_error(Errno::CONNRESET.raw_os_error() as u32);
            let _ = self.end.reset(self.thread);
        }
    }

    /// Whether the connection is over in both directions: reset, or its peer gone.
    fn is_closed(&self) -> bool {
        self.notice();
        self.end.has_noted(Noted::ResetSeen) || self.end.has_noted(Noted::SentInVain)
    }
}

impl DirectConnection {
    pub(super) fn node(&self) -> &Arc<Shared> {
        &self.node
    }

    #[inline]
    pub(crate) fn bank(&self) -> &Arc<Bank> {
        &self.banks[0]
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    pub(crate) fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    pub(super) fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    pub(super) fn holder_mut(&mut self) -> Option<&mut Holder> {
        self.holder.as_mut()
    }

    /// Begins a call.
    ///
    /// # Errors
    ///
    /// ENETDOWN if the node is gone. EBADF if the connection is this process's no more. ENOBUFS if
    /// the node has no number left for the thread, or the process cannot map the rings.
    #[inline]
    pub(crate) fn enter(&self) -> io::Result<DirectCall<'_>> {
        let shards = self.node.shards()?;
        let direct = shards.direct().ok_or(Errno::NETDOWN)?;
        if shards.is_over() {
            return Err(Errno::NETDOWN.into());
        }
        let bank = self.bank();
        let is_relayed = || {
            self.holder
                .as_ref()
                .is_some_and(|holder| shards.is_direct_relayed(holder))
        };
        if bank.ends.generation(self.id.number) != self.id.generation || is_relayed() {
            return Err(Errno::BADF.into());
        }
        let thread = direct.thread().ok_or(Errno::NOBUFS)?;
        let end = bank.end(self.id).map_err(|_| Errno::NOBUFS)?;
        Ok(DirectCall {
            shards,
            direct,
            thread,
            end,
            bank,
        })
    }

    /// Waits until there may be something for a call that has just failed.
    fn wait(
        &self,
        call: &DirectCall<'_>,
        target: &mut impl WaitTarget,
        deadline: Option<Instant>,
    ) -> io::Result<DirectWait> {
        let bed = Bed {
            banks: &self.banks,
            waiter: None,
            rings: RungBy::Bank,
            beside: &[],
            ear: None,
        };
        let waited = call
            .shards
            .wait_directly(call.direct, target, bed, &self.spin, deadline);
        waited.map_err(|error| match error {
            WaitError::Gone(_) => Errno::NETDOWN.into(),
            WaitError::Waiters => Errno::NOBUFS.into(),
        })
    }

    /// Counts a rule of the protocol that the peer has broken, which has ended the connection.
    #[cold]
    fn count_offence(&self, call: &DirectCall<'_>) {
        call.direct.count(Count::Offences, 1);
    }

    pub(super) fn relay(&self) -> io::Result<()> {
        self.node.contain(|| match &self.holder {
            Some(holder) => self.node.shards()?.relay_direct(holder).map_err(from_holder),
            None => Ok(()),
        })
    }

    pub(super) fn relayed(&self) -> io::Result<Option<Relayed>> {
        self.node.contain(|| match &self.holder {
            Some(holder) => {
                let relayed = self.node.shards()?.is_direct_relayed(holder);
                Ok(relayed.then_some(Relayed {
                    local: Some(self.local),
                    peer: Some(self.peer),
                }))
            }
            None => Ok(None),
        })
    }

    pub(super) fn signal_owner(&self, messenger: [OwnedFd; 2]) -> io::Result<()> {
        self.node.contain(|| match &self.holder {
            Some(holder) => {
                let shards = self.node.shards()?;
                shards.signal_direct_owner(holder, messenger).map_err(from_holder)
            }
            None => Ok(()),
        })
    }
}

/// The point in time at which a call of so long ends.
fn deadline(span: Option<Duration>) -> Option<Instant> {
    span.map(|span| Instant(toehold_shm::monotonic_ns()) + span)
}
