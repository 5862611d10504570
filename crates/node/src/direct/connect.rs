//! Opening direct connections: choosing the bank, the listener, the number and the port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use toehold_shm::direct::{
    BeginError, Beginning, Begun, CONNECTIONS, ConnectError, ConnectionId, Found, PeerDirectory, Place,
    Record, Step, ThreadNumber,
};

use super::Direct;
use super::bank::Bank;
use super::counts::Count;
use super::end::DirectEnd;
use super::published::ONLY_IPV6;
use super::table::OWN;
use crate::clock;

/// If fewer numbers of a bank are free, another bank is made.
pub(crate) const FEW: usize = 64;

/// Listeners that a call to connect finds closed at most, one after another.
const CLOSED_LISTENERS: usize = 8;

/// The reason why a direct connection was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectFailure {
    /// The connection is to be made over TCP. The reason was counted.
    UseTcp,
    /// The listener was closed in this moment, and no other one is there: ECONNREFUSED.
    Refused,
}

/// An end of a direct connection that no holder stands for yet. Its process's journal names it
/// until [`Opened::held`]: if the process dies before, the engine closes the end.
#[derive(Debug)]
pub struct Opened {
    bank: Arc<Bank>,
    connection: ConnectionId,
    local: SocketAddr,
    remote: SocketAddr,
    /// The step of the journal that goes on.
    begun: Option<(ThreadNumber, Begun)>,
}

impl Opened {
    pub(super) fn new(
        bank: Arc<Bank>,
        connection: ConnectionId,
        [local, remote]: [SocketAddr; 2],
        begun: (ThreadNumber, Begun),
    ) -> Opened {
        Opened {
            bank,
            connection,
            local,
            remote,
            begun: Some(begun),
        }
    }

    /// The bank of the connection.
    pub fn bank(&self) -> &Arc<Bank> {
        &self.bank
    }

    /// The connection in the bank.
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// This side's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The address of the other side.
    pub fn peer_addr(&self) -> SocketAddr {
        self.remote
    }

    /// The end that a holder is to stand for.
    pub fn end(&self) -> DirectEnd {
        DirectEnd {
            slot: self.bank.slot(),
            number: self.connection.number,
            generation: self.connection.generation,
        }
    }

    /// Notes that a holder stands for the end from now on, or that it is closed.
    pub fn held(mut self) -> (Arc<Bank>, ConnectionId) {
        self.finish();
        (Arc::clone(&self.bank), self.connection)
    }

    /// Writes the end's present step into the journal.
    pub(super) fn go_on(&mut self, step: Step) {
        if let Some((thread, former)) = self.begun.take() {
            let journal = self.bank.journal();
            let begun = journal.begin(thread, place(&self.bank, self.connection), step);
            journal.end(thread, former);
            self.begun = Some((thread, begun));
        }
    }

    /// Frees the number and memory of an end that was not offered.
    fn give_up(mut self, thread: ThreadNumber, process: u16) {
        // If a signal handler has interrupted a call there, the engine does that after the process.
        let _ = self.bank.abandon(thread, self.connection, process);
        self.finish();
    }

    fn finish(&mut self) {
        if let Some((thread, begun)) = self.begun.take() {
            self.bank.journal().end(thread, begun);
        }
    }
}

impl Direct {
    /// Opens a connection to an address, if there is a listener there that takes direct ones.
    /// `local`: the address that the program has bound its socket to. `window`: bytes that the
    /// peer may send beyond those received.
    ///
    /// # Errors
    ///
    /// If the connection is to be made over TCP, or is refused.
    pub fn connect(
        &self,
        thread: ThreadNumber,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        window: u64,
    ) -> Result<Opened, ConnectFailure> {
        let entries = self.banks.towards(remote.ip());
        if entries.is_empty() || remote.port() == 0 {
            return Err(ConnectFailure::UseTcp);
        }
        let Some(from) = self.source(remote.ip(), local) else {
            return Err(ConnectFailure::UseTcp);
        };
        let banks = self.map(entries);
        // Of several listeners that share an address, one was closed in this moment.
        for _ in 1..CLOSED_LISTENERS {
            match self.connect_once(thread, &banks, (from, remote), window) {
                Err(ConnectFailure::Refused) if is_listed(&banks, (from, remote)) => {}
                opened => return opened,
            }
        }
        self.connect_once(thread, &banks, (from, remote), window)
    }

    fn connect_once(
        &self,
        thread: ThreadNumber,
        banks: &[Arc<Bank>],
        (from, remote): (IpAddr, SocketAddr),
        window: u64,
    ) -> Result<Opened, ConnectFailure> {
        let Some(port) = self.ports.take(self.process) else {
            return self.use_tcp(Count::TcpPorts);
        };
        let ends = [SocketAddr::new(from, port), remote];
        let opened = self.connect_from(thread, banks, ends, window);
        // One that was refused has its port until the other side has closed its end.
        if matches!(opened, Err(ConnectFailure::UseTcp)) {
            self.ports.free(port, self.process);
        }
        opened
    }

    fn connect_from(
        &self,
        thread: ThreadNumber,
        banks: &[Arc<Bank>],
        ends: [SocketAddr; 2],
        window: u64,
    ) -> Result<Opened, ConnectFailure> {
        let Some(first) = banks.first() else {
            // That it cannot be mapped was counted.
            return Err(ConnectFailure::UseTcp);
        };
        // All banks towards a peer have its one directory.
        let Some(found) = find_listed(&first.peer_directory, ends) else {
            return self.use_tcp(Count::TcpUnlisted);
        };
        for reaps in [0, usize::MAX] {
            if reaps > 0 {
                self.reap(thread, self.closing.len());
            }
            for bank in banks {
                if bank.ends.in_use() + FEW > CONNECTIONS {
                    // The engine makes another bank.
                    self.engine.ring();
                }
                if let Some(connection) = bank.ends.reserve(self.process) {
                    return self.offer(thread, Arc::clone(bank), (connection, &found), ends, window);
                }
            }
        }
        self.use_tcp(Count::TcpNumbers)
    }

    fn offer(
        &self,
        thread: ThreadNumber,
        bank: Arc<Bank>,
        (connection, found): (ConnectionId, &Found),
        ends: [SocketAddr; 2],
        window: u64,
    ) -> Result<Opened, ConnectFailure> {
        let begun = bank.journal().begin(thread, place(&bank, connection), Step::Open);
        let record = Record {
            generation: connection.generation,
            local: ends[0],
            remote: ends[1],
            listener: Some(found.listener),
            options: 0,
            iss: connection.generation ^ clock::now().0 as u32,
            opened_ns: clock::now().0,
        };
        let opened = Opened::new(bank, connection, ends, (thread, begun));
        let began = opened
            .bank
            .begin(thread, connection.number, &Beginning { record, window })
            .map(drop);
        if let Err(error) = began {
            opened.give_up(thread, self.process);
            return match error {
                BeginError::Payload => self.use_tcp(Count::TcpPayload),
                _ => self.use_tcp(Count::TcpMemory),
            };
        }
        let mut opened = opened;
        opened.go_on(Step::Offer);
        match opened.bank.offer(connection, found) {
            Ok(()) => {
                self.count(Count::Opened, 1);
                if let Ok(end) = opened.bank.end(connection) {
                    end.record_opening(thread, true);
                }
                Ok(opened)
            }
            Err(ConnectError::Closed) => {
                // It may have been taken, or wait to be refused: the number comes back with the
                // other side's close.
                self.close(thread, &opened.bank, connection, true);
                opened.held();
                Err(ConnectFailure::Refused)
            }
            Err(ConnectError::Offer(_)) => {
                opened.give_up(thread, self.process);
                self.use_tcp(Count::TcpQueue)
            }
            Err(_) => {
                opened.give_up(thread, self.process);
                self.use_tcp(Count::TcpUnlisted)
            }
        }
    }

    fn use_tcp<T>(&self, why: Count) -> Result<T, ConnectFailure> {
        self.count(why, 1);
        Err(ConnectFailure::UseTcp)
    }

    /// The address that a connection comes from. Returns `None` for an address that only the stack
    /// knows of. It also does for a port that the program has chosen: the stack knows whether that
    /// is free.
    fn source(&self, remote: IpAddr, local: Option<SocketAddr>) -> Option<IpAddr> {
        let own = self.banks.entry(OWN[0])?.addresses;
        let usual = match remote {
            remote if remote.is_loopback() || own.has(remote) => remote,
            IpAddr::V4(_) => own.ipv4?.into(),
            // A link-local address is one of a link, which only the stack tells apart.
            IpAddr::V6(remote) if remote.is_unicast_link_local() => return None,
            IpAddr::V6(_) => own.ipv6?.into(),
        };
        match local {
            None => Some(usual),
            Some(local) if local.port() != 0 => None,
            Some(local) if local.ip().is_unspecified() => Some(usual),
            Some(local) => (local.ip() == usual).then_some(usual),
        }
    }
}

pub(super) fn place(bank: &Bank, connection: ConnectionId) -> Place {
    Place {
        bank: bank.slot().into(),
        number: connection.number,
        side: bank.side,
    }
}

fn is_listed(banks: &[Arc<Bank>], (from, remote): (IpAddr, SocketAddr)) -> bool {
    let ends = [SocketAddr::new(from, 0), remote];
    banks
        .first()
        .is_some_and(|first| find_listed(&first.peer_directory, ends).is_some())
}

/// The listener for connections to an address, by what the peer lists: one that is bound to it, or
/// to all addresses. Of several that share the address, the ends of the connection pick one.
fn find_listed(directory: &PeerDirectory, [local, remote]: [SocketAddr; 2]) -> Option<Found> {
    let hash = u64::from(local.port()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let any = |ip: IpAddr| directory.find(SocketAddr::new(ip, remote.port()), hash);
    let exact = directory.find(remote, hash);
    match remote.ip() {
        IpAddr::V4(_) => exact.or_else(|| any(Ipv4Addr::UNSPECIFIED.into())).or_else(|| {
            let dual = any(Ipv6Addr::UNSPECIFIED.into());
            dual.filter(|found| found.listing.options & ONLY_IPV6 == 0)
        }),
        IpAddr::V6(_) => exact.or_else(|| any(Ipv6Addr::UNSPECIFIED.into())),
    }
}
