//! The link over UDP: frames to and from all peers over one socket.

mod receive;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use self::receive::Located;
use super::inbox::Inbox;
use super::peer::{Common, Peer, Tick};
use super::seal::Seal;
use super::settings::{MAX_PEERS, canonical, check_peer};
use super::socket::Socket;
use super::{UdpError, UdpPeerInfo, UdpSettings, UdpStatistics};
use crate::address_table::AddressTable;
use crate::layout::{Layout, copy_from, with_headers};
use crate::random::unpredictable;
use crate::{Capabilities, Checksum, Link, NeighborChange, Received, Transmit, TransmitError, Transmitter};

/// Longest IP packet.
const MAX_PACKET: usize = 65_535;
/// Longest header before an IP packet: Ethernet with two VLAN tags.
const MAX_LINK_HEADER: usize = 22;
/// Shortest frame: its Ethernet header.
const MIN_FRAME: usize = 14;
/// Interval of the link's periodic work, in nanoseconds.
const TICK_NS: u64 = 100_000_000;
/// Interval of expiring learnt addresses, in nanoseconds.
const AGE_NS: u64 = 10_000_000_000;
/// Interval at which a sleeping driver is woken for periodic work, in nanoseconds.
const WAKE_NS: u64 = 250_000_000;
/// Most receiving system calls in one round, so that a flood of bad datagrams ends.
const MAX_REFILLS: usize = 8;

/// A link to the nodes of other hosts.
#[derive(Debug)]
pub struct UdpLink {
    common: Common,
    bind: SocketAddr,
    mtu: u16,
    peers: Vec<Peer>,
    by_socket: HashMap<SocketAddr, usize>,
    /// Hardware addresses of the peers themselves, which no other node can have.
    by_node: HashMap<[u8; 6], usize>,
    learned: AddressTable,
    inbox: Inbox,
    /// A frame taken out of the inbox and not yet passed on.
    held: Option<Located>,
    scratch: Vec<u8>,
    /// Buffer for a frame with headers in several pieces.
    whole: Vec<u8>,
    changes: VecDeque<NeighborChange>,
    statistics: UdpStatistics,
    now_ns: u64,
    tick_ns: u64,
    age_ns: u64,
    /// Readable when the socket or the timer is.
    waiting: OwnedFd,
    timer: OwnedFd,
}

impl UdpLink {
    /// Opens a link, which looks for its peers when it is driven.
    ///
    /// # Errors
    ///
    /// If the settings are impossible, or the kernel refuses the socket.
    pub fn open(settings: &UdpSettings) -> Result<UdpLink, UdpError> {
        settings.check()?;
        let socket = Socket::open(settings.bind)?;
        if settings.offload {
            // Without this, receiving takes more calls.
            let _ = socket.join_received();
        }
        let system = |action| move |error| UdpError::System { action, error };
        let (waiting, timer) = sleep_descriptor(&socket).map_err(system("make a descriptor for sleeping"))?;
        let common = Common {
            fabric: settings.fabric,
            sender: unpredictable() as u32,
            address: settings.address,
            seal: settings.key.as_ref().map(Seal::new),
            datagram: usize::from(settings.datagram.min(65_000)),
            segments: settings.offload,
            socket,
        };
        let mut link = UdpLink {
            common,
            bind: settings.bind,
            mtu: settings.mtu,
            peers: Vec::new(),
            by_socket: HashMap::new(),
            by_node: HashMap::new(),
            learned: AddressTable::default(),
            inbox: Inbox::new(),
            held: None,
            scratch: Vec::new(),
            whole: Vec::new(),
            changes: VecDeque::new(),
            statistics: UdpStatistics::default(),
            now_ns: 0,
            tick_ns: 0,
            age_ns: 0,
            waiting,
            timer,
        };
        for &peer in &settings.peers {
            link.add_peer(peer)?;
        }
        Ok(link)
    }

    /// Adds a peer. A known peer stays unchanged, and this node itself is not
    /// added: one list may serve all nodes.
    ///
    /// # Errors
    ///
    /// If the address cannot be a peer's, or there are too many.
    pub fn add_peer(&mut self, peer: SocketAddr) -> Result<(), UdpError> {
        check_peer(self.bind, peer)?;
        let peer = canonical(peer);
        if Some(peer) == self.local_address() || self.by_socket.contains_key(&peer) {
            return Ok(());
        }
        if self.peers.len() == MAX_PEERS {
            return Err(UdpError::TooManyPeers(MAX_PEERS + 1));
        }
        self.by_socket.insert(peer, self.peers.len());
        self.peers.push(Peer::new(peer, &self.common));
        Ok(())
    }

    /// The address on which the link listens.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.common.socket.local_address().map(canonical)
    }

    /// Number of the fabric in the settings.
    pub fn fabric(&self) -> u32 {
        self.common.fabric
    }

    /// The link's counters.
    pub fn statistics(&self) -> UdpStatistics {
        self.statistics
    }

    /// The peers, in the order of the settings.
    pub fn peers(&self) -> impl Iterator<Item = UdpPeerInfo> {
        self.peers.iter().map(Peer::info)
    }

    fn tick(&mut self) {
        if self.now_ns < self.tick_ns {
            return;
        }
        self.tick_ns = self.now_ns + TICK_NS;
        for index in 0..self.peers.len() {
            self.statistics.fragments_dropped += self.peers[index].fragments.expire(self.now_ns);
            if self.peers[index].tick(&self.common, self.now_ns) == Tick::Lost {
                self.peers[index].association.forget();
                self.lose(index);
            }
        }
        if self.now_ns >= self.age_ns {
            self.age_ns = self.now_ns + AGE_NS;
            self.learned.age(self.now_ns);
        }
    }

    /// Ends the association with a peer.
    fn lose(&mut self, index: usize) {
        if let Some(address) = self.peers[index].address {
            self.by_node.remove(&address);
            self.note(NeighborChange::Left(address));
        }
        self.learned.forget(index);
        self.peers[index].disconnect();
    }

    /// Queues a change for the driver, up to a bound for a driver that never asks.
    fn note(&mut self, change: NeighborChange) {
        if self.changes.len() >= 4 * self.peers.len().max(1) {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }

    /// Stages a frame for a peer. Sends when enough is staged.
    fn stage(&mut self, index: usize, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let peer = &mut self.peers[index];
        if peer.outbox.is_full() {
            self.statistics.send_calls += peer.send(&mut self.common, self.now_ns);
            if peer.outbox.is_full() {
                return Err(TransmitError::Full);
            }
        }
        peer.stage(&self.common, frame);
        if peer.outbox.has_enough() {
            self.statistics.send_calls += peer.send(&mut self.common, self.now_ns);
        }
        Ok(())
    }

    /// Sends a frame to all peers. A full peer does not hold up others.
    fn replicate(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let mut reached = false;
        for index in 0..self.peers.len() {
            if self.peers[index].is_connected() {
                reached = true;
                self.statistics.group_frames_dropped += u64::from(self.stage(index, frame).is_err());
            }
        }
        match reached {
            true => Ok(()),
            false => {
                self.statistics.unreachable += 1;
                Err(TransmitError::Unreachable)
            }
        }
    }

    /// Returns whether a super-frame can be cut: its headers are known and its
    /// checksum is not wrong. The checksums of its segments would otherwise be
    /// right.
    fn can_be_cut(&mut self, frame: &Transmit<'_>) -> bool {
        let Some(layout) = Layout::of(frame.headers) else {
            self.statistics.bad_length += 1;
            return false;
        };
        if frame.offload.checksum != Checksum::Complete {
            return true;
        }
        self.scratch.resize(frame.len(), 0);
        copy_from(frame, 0, &mut self.scratch);
        let is_intact = layout.is_intact(&self.scratch);
        self.statistics.bad_checksums += u64::from(!is_intact);
        is_intact
    }
}

impl Transmitter for UdpLink {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let is_super = frame.offload.segment_size != 0;
        let packet = if is_super {
            MAX_PACKET
        } else {
            usize::from(self.mtu)
        };
        let destination = match frame.headers.first_chunk::<6>() {
            Some(destination) if (MIN_FRAME..=packet + MAX_LINK_HEADER).contains(&frame.len()) => {
                *destination
            }
            _ => {
                self.statistics.bad_length += 1;
                return Err(TransmitError::TooLong);
            }
        };
        let mut whole = std::mem::take(&mut self.whole);
        let sent = self.transmit_whole(destination, &with_headers(frame, &mut whole));
        self.whole = whole;
        sent
    }
}

impl UdpLink {
    /// Sends a frame with its headers in one piece.
    fn transmit_whole(&mut self, destination: [u8; 6], frame: &Transmit<'_>) -> Result<(), TransmitError> {
        if frame.offload.segment_size != 0 && !self.can_be_cut(frame) {
            return Ok(());
        }
        if destination[0] & 1 == 1 {
            // Without receivers a multicast frame counts as sent.
            let _ = self.replicate(frame);
            return Ok(());
        }
        let known = self.by_node.get(&destination).copied();
        let Some(index) = known.or_else(|| self.learned.find(destination)) else {
            self.statistics.flooded += 1;
            return self.replicate(frame);
        };
        if !self.peers[index].is_connected() {
            self.statistics.unreachable += 1;
            return Err(TransmitError::Unreachable);
        }
        let staged = self.stage(index, frame);
        self.statistics.full += u64::from(staged.is_err());
        staged
    }
}

impl Link for UdpLink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.mtu,
            super_frame: MAX_PACKET as u32,
            checksum_offload: true,
            local: false,
            any_thread: false,
        }
    }

    fn address(&self) -> [u8; 6] {
        self.common.address
    }

    fn receive(&mut self, now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        self.now_ns = now_ns;
        self.tick();
        let (mut count, mut refills) = (0, 0);
        while count < budget {
            if let Some(frame) = self.held.take().or_else(|| self.locate()) {
                self.hand_over(frame, handler);
                count += 1;
                continue;
            }
            refills += 1;
            self.statistics.receive_calls += 1;
            if refills > MAX_REFILLS || self.inbox.refill(&self.common.socket).is_err() {
                break;
            }
        }
        count
    }

    fn flush(&mut self) {
        for peer in &mut self.peers {
            if !peer.outbox.is_empty() {
                self.statistics.send_calls += peer.send(&mut self.common, self.now_ns);
            }
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.waiting.as_fd())
    }

    /// Returns `false` while frames taken out of the socket wait, or a frame waits
    /// for room. Neither makes the descriptor readable. Datagrams in the socket do.
    fn prepare_sleep(&mut self) -> bool {
        self.flush();
        self.held.is_none() && !self.inbox.has_more() && self.peers.iter().all(|peer| peer.outbox.is_empty())
    }

    fn finish_sleep(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        let mut expirations = [0; 8];
        let _ = rustix::io::read(&self.timer, &mut expirations);
    }

    fn next_change(&mut self) -> Option<NeighborChange> {
        self.changes.pop_front()
    }
}

/// Returns a descriptor that becomes readable with the socket, and every
/// [`WAKE_NS`], so that the node can tell its peers that it lives.
fn sleep_descriptor(socket: &Socket) -> Result<(OwnedFd, OwnedFd), Errno> {
    let timer = rustix::time::timerfd_create(
        TimerfdClockId::Monotonic,
        TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
    )?;
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: WAKE_NS as i64,
    };
    let every = Itimerspec {
        it_interval: pause,
        it_value: pause,
    };
    rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
    let waiting = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, descriptor) in [socket.as_fd(), timer.as_fd()].into_iter().enumerate() {
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&waiting, descriptor, data, epoll::EventFlags::IN)?;
    }
    Ok((waiting, timer))
}
