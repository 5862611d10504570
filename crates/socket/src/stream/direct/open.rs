//! How streams over direct connections begin and end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustix::io::Errno;
use toehold_node::direct::{ConnectFailure, DirectEnd, Opened};
use toehold_node::{Description, Holder, Shards, SpinBudget};
use toehold_shm::direct::{ListenerId, ThreadNumber};
use toehold_stack::Settings;

use super::DirectConnection;
use crate::error::from_holder;
use crate::node::Shared;

/// Bytes that a peer may send beyond those that were received, unless the program has chosen the
/// length of its receive buffer. The kernel's loopback takes about as many.
const WINDOW: u64 = 4 << 20;

/// The number of bytes that the peer may send, by the settings of the end.
pub(super) fn window(settings: &Settings) -> u64 {
    match settings.buffer_lock() {
        [_, true] => u64::from(settings.receive_buffer()),
        _ => WINDOW,
    }
}

impl DirectConnection {
    /// Opens a connection, if its addresses and both nodes allow a direct one. Returns `None` if it
    /// is to be made over TCP.
    ///
    /// # Errors
    ///
    /// ECONNREFUSED if the listener has just been closed; EMFILE and its like if there is no
    /// holder.
    pub(crate) fn open(
        node: &Arc<Shared>,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        settings: Option<&Settings>,
    ) -> io::Result<Option<DirectConnection>> {
        let shards = node.shards()?;
        let Some(direct) = shards.direct() else {
            return Ok(None);
        };
        if shards.is_over() {
            return Err(Errno::NETDOWN.into());
        }
        let Some(thread) = direct.thread() else {
            return Ok(None);
        };
        let settings = match settings {
            Some(settings) => *settings,
            None => node.enter(0)?.stack.default_settings(),
        };
        // Before the peer sees a connection that nothing could hold.
        let handle = shards.get(0);
        let holder = handle.holder().map_err(from_holder)?;
        match direct.connect(thread, remote, local, window(&settings)) {
            Ok(opened) => Self::hold(node, shards, (holder, opened), &settings).map(Some),
            Err(failure) => {
                handle.give_back(holder);
                match failure {
                    ConnectFailure::UseTcp => Ok(None),
                    ConnectFailure::Refused => Err(Errno::CONNREFUSED.into()),
                }
            }
        }
    }

    /// Takes the next connection that waits for a listener. Returns `None` if none waits.
    ///
    /// # Errors
    ///
    /// EMFILE and its like if there is no holder: the connection waits on.
    pub(crate) fn accept(
        node: &Arc<Shared>,
        shards: &Shards,
        (thread, listener): (ThreadNumber, ListenerId),
        settings: &Settings,
    ) -> io::Result<Option<DirectConnection>> {
        let Some(direct) = shards.direct() else {
            return Ok(None);
        };
        let handle = shards.get(0);
        let holder = handle.holder().map_err(from_holder)?;
        match direct.accept(thread, listener, window(settings)) {
            Some(opened) => Self::hold(node, shards, (holder, opened), settings).map(Some),
            None => {
                handle.give_back(holder);
                Ok(None)
            }
        }
    }

    /// Takes an end that was opened or accepted.
    ///
    /// # Errors
    ///
    /// ENFILE if the holder cannot stand for it. The end is closed then.
    fn hold(
        node: &Arc<Shared>,
        shards: &Shards,
        (holder, opened): (Holder, Opened),
        settings: &Settings,
    ) -> io::Result<DirectConnection> {
        let direct = shards.direct().ok_or(Errno::NETDOWN)?;
        let handle = shards.get(0);
        let is_held = shards.hold_direct(&holder, opened.end());
        let (local, peer) = (opened.local_addr(), opened.peer_addr());
        let (bank, id) = opened.held();
        if !is_held {
            if let Some(thread) = direct.thread() {
                direct.close(thread, &bank, id, true);
            }
            handle.give_back(holder);
            return Err(Errno::NFILE.into());
        }
        let description = handle.description(&holder);
        let timeout_ms = settings.user_timeout().as_millis();
        if timeout_ms > 0
            && let Ok(end) = bank.end(id)
        {
            end.set_user_timeout(u32::try_from(timeout_ms).unwrap_or(u32::MAX));
        }
        description.begin_settings(settings);
        description.set_low_water(settings.receive_low_water());
        Ok(DirectConnection {
            node: Arc::clone(node),
            banks: [bank],
            id,
            local,
            peer,
            holder: Some(holder),
            description,
            spin: SpinBudget::new(),
        })
    }

    /// The connection that a holder stands for, which another process has made.
    ///
    /// # Errors
    ///
    /// ENETDOWN if the connection is gone, or this process cannot map its memory.
    pub(crate) fn adopt(node: &Arc<Shared>, holder: Holder, held: DirectEnd) -> io::Result<DirectConnection> {
        let shards = node.shards()?;
        let direct = shards.direct().ok_or(Errno::NETDOWN)?;
        let bank = direct.bank_of(held).ok_or(Errno::NETDOWN)?;
        let record = bank.half.record(held.number, held.generation);
        let record = record.ok_or(Errno::BADF)?;
        let description = shards.get(0).description(&holder);
        Ok(DirectConnection {
            node: Arc::clone(node),
            id: held.connection(),
            banks: [bank],
            local: record.local,
            peer: record.remote,
            holder: Some(holder),
            description,
            spin: SpinBudget::new(),
        })
    }

    /// The state that the program's processes share of the connection.
    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    fn let_go(&mut self) -> io::Result<()> {
        let Some(holder) = self.holder.take() else {
            return Ok(());
        };
        let shards = self.node.shards_in_use();
        let own = shards.and_then(|shards| {
            let direct = shards.direct()?;
            let is_own = shards.get(0).is_exclusive(&holder) && !shards.is_over();
            is_own.then_some((shards, direct, direct.thread()?))
        });
        let Some((shards, direct, thread)) = own else {
            // The engine closes it, once no process has it.
            self.node.let_go(holder);
            return Ok(());
        };
        if shards.is_direct_relayed(&holder) {
            // The engine carries its bytes.
            return Ok(());
        }
        let abort = self
            .description
            .settings()
            .linger()
            .is_some_and(|span| span.is_zero());
        direct.close(thread, self.bank(), self.id, abort);
        shards.release_direct(&holder);
        shards.get(0).give_back(holder);
        Ok(())
    }
}

impl Drop for DirectConnection {
    fn drop(&mut self) {
        let node = Arc::clone(&self.node);
        // A node that is gone holds nothing.
        let _ = node.contain(|| self.let_go());
    }
}
