//! The direct connections of a node, as `toehold sockets` lists them.

use toehold_shm::direct::{ConnectionId, ListenerId, Side, StreamState};

use super::Banks;
use crate::control::{DirectStatus, SocketState, SocketStatus};
use crate::description::Descriptions;
use crate::direct::DirectEnd;

impl Banks {
    /// The connections that programs have. A connection is left out if its memory cannot be mapped.
    pub(in crate::engine::host) fn sockets(&self, descriptions: &Descriptions) -> Vec<SocketStatus> {
        let held = descriptions.direct_holders();
        let status = |(holder, end)| {
            let mut status = self.socket(end)?;
            if let Some(description) = descriptions.of(holder) {
                (status.inode, status.cookie) = description.names();
                status.ipv6 |= description.is_ipv6();
            }
            Some(status)
        };
        held.filter_map(status).collect()
    }

    /// Connections that wait for a listener.
    pub(in crate::engine::host) fn waiting(&self, listener: ListenerId) -> u32 {
        let accepting = self.all().into_iter().filter(|bank| bank.side == Side::Accepting);
        let waiting: u64 = accepting.map(|bank| bank.waiting(listener)).sum();
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }

    fn socket(&self, end: DirectEnd) -> Option<SocketStatus> {
        let DirectEnd {
            slot,
            number,
            generation,
        } = end;
        let bank = self.bank(slot)?;
        let record = bank.half.record(number, generation)?;
        let there = bank.end(ConnectionId { number, generation }).ok()?;
        let look = there.look();
        let state = match look.peer {
            StreamState::Open => SocketState::Estab,
            StreamState::Fin(_) => SocketState::CloseWait,
            StreamState::Reset(_) => SocketState::Closed,
        };
        let direct = DirectStatus {
            bank: slot,
            number,
            generation,
            bytes_sent: there.sent(),
            bytes_received: there.received(),
        };
        let queues = [look.readable, there.unread_by_peer()];
        let mut status = SocketStatus::direct(state, [record.local, record.remote], queues, direct);
        status.process = bank
            .ends
            .owner(number)
            .and_then(|owner| u16::try_from(owner.get()).ok());
        Some(status)
    }
}
