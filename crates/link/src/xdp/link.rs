//! The link: sockets of several queues, and a packet socket for other frames.

use std::fmt::{self, Display};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use toehold_shm::Gather;

use super::bpf::{Attachment, MAX_NODES, Redirection};
use super::socket::{Failure, HEADROOM, Socket};
use super::{XdpError, XdpStatistics};
use crate::interface::{Interface, Namespace};
use crate::layout::Layout;
use crate::packet::{PacketError, PacketLink};
use crate::{
    Capabilities, Checksum, Link, NeighborChange, Offload, Received, Transmit, TransmitError, Transmitter,
};

/// Most queues, each with memory for 2048 frames.
const MAX_QUEUES: u32 = 16;
/// Longest header before an IP packet: Ethernet with two VLAN tags.
const MAX_LINK_HEADER: usize = 22;
const MIN_FRAME: usize = 14;
/// Lengths of a frame buffer in bytes, of which the kernel takes [`HEADROOM`].
const PLACES: [usize; 2] = [2048, 4096];
/// Largest MTU whose frames fit a buffer.
const MAX_MTU: u16 = (PLACES[1] - HEADROOM - MAX_LINK_HEADER) as u16;
/// Frames of each round that are reserved for the packet socket.
const SHARE: usize = 8;

/// Mode of copying frames between the interface and this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The interface reads and writes frames in place.
    ZeroCopy,
    /// The interface's driver copies them.
    Copy,
    /// The kernel copies them, with any driver.
    Generic,
}

impl Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::ZeroCopy => "AF_XDP without copies",
            Mode::Copy => "AF_XDP with copies",
            Mode::Generic => "AF_XDP of the generic kind",
        })
    }
}

/// A link over an interface of the kernel, through AF_XDP.
#[derive(Debug)]
pub struct XdpLink {
    /// The packet socket for multicast frames, and for frames without a buffer.
    packet: PacketLink,
    redirection: Redirection,
    sockets: Vec<Socket>,
    /// Index of the socket that is polled first.
    first: usize,
    mode: Mode,
    mtu: u16,
    /// Whether the other end may be a kernel, which leaves checksums partial.
    software: bool,
    statistics: XdpStatistics,
    /// Readable when one of the sockets is.
    waiting: OwnedFd,
    /// Whether the last frame found no buffer.
    full: bool,
}

impl XdpLink {
    /// Takes frames from the first queues of an interface in the namespace, by the
    /// first available mode. `address` is the driver's.
    ///
    /// # Errors
    ///
    /// The error of the last mode or of all modes, or the missing interface.
    pub fn open(
        interface: &str,
        namespace: &Namespace,
        address: [u8; 6],
        modes: &[Mode],
        queues: Option<u32>,
    ) -> Result<Result<XdpLink, XdpError>, PacketError> {
        let packet = PacketLink::open(interface, namespace, address)?;
        let mut found = Interface::open(namespace, interface)?;
        let state = found.state()?;
        let parameters = OpenParameters {
            name: interface,
            interface: found.index(),
            mtu: packet.capabilities().mtu,
            queues: queues.unwrap_or(MAX_QUEUES).min(MAX_QUEUES),
        };
        let opened = namespace.run(|| parameters.open(modes))?;
        Ok(opened.and_then(|(mode, redirection, sockets)| {
            let waiting = sleep_descriptor(&packet, &sockets).map_err(|error| XdpError::Kernel {
                action: "make a descriptor for sleeping",
                error,
            })?;
            Ok(XdpLink {
                packet,
                redirection,
                sockets,
                first: 0,
                mode,
                mtu: parameters.mtu,
                software: state.software && mode != Mode::ZeroCopy,
                statistics: XdpStatistics::default(),
                waiting,
                full: false,
            })
        }))
    }

    /// Returns the mode of copying frames.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Number of the interface's queues with a socket.
    pub fn queues(&self) -> usize {
        self.sockets.len()
    }

    /// The packet socket for other frames.
    pub fn packet(&self) -> &PacketLink {
        &self.packet
    }

    /// Counters of the link without those of the packet socket.
    pub fn statistics(&self) -> XdpStatistics {
        XdpStatistics {
            dropped: self.sockets.iter().map(Socket::drops).sum(),
            ..self.statistics
        }
    }
}

/// Parameters of opening the sockets.
struct OpenParameters<'a> {
    name: &'a str,
    interface: u32,
    mtu: u16,
    queues: u32,
}

type Opened = (Mode, Redirection, Vec<Socket>);

impl OpenParameters<'_> {
    fn open(&self, modes: &[Mode]) -> Result<Opened, XdpError> {
        if self.mtu > MAX_MTU {
            return Err(XdpError::Mtu(self.mtu, MAX_MTU));
        }
        let [short, long] = PLACES;
        let fits = usize::from(self.mtu) + MAX_LINK_HEADER <= short - HEADROOM;
        let place = if fits { short } else { long };
        let longest = (place - HEADROOM) as u32;
        let mut redirection =
            Redirection::new(longest, self.queues).map_err(|error| kernels("load a program", error))?;
        let mut last = None;
        for &mode in modes {
            match self.open_as(mode, &mut redirection, place) {
                Ok(sockets) => return Ok((mode, redirection, sockets)),
                Err(error @ (XdpError::Taken(_) | XdpError::NotPermitted(_))) => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| kernels("do it in no mode at all", Errno::INVAL)))
    }

    fn open_as(
        &self,
        mode: Mode,
        redirection: &mut Redirection,
        place: usize,
    ) -> Result<Vec<Socket>, XdpError> {
        let to = match mode {
            Mode::ZeroCopy | Mode::Copy => Attachment::Driver,
            Mode::Generic => Attachment::Generic,
        };
        redirection
            .attach(self.interface, to)
            .map_err(|error| match error {
                Errno::BUSY | Errno::EXIST => XdpError::Taken(self.name.to_owned()),
                _ => refused(mode, ("run a program", error)),
            })?;
        let mut sockets = Vec::new();
        for queue in 0..self.queues {
            match Socket::open(self.interface, queue, place, mode == Mode::ZeroCopy) {
                Ok(socket) => {
                    redirection
                        .set_socket(queue, socket.as_fd())
                        .map_err(|error| kernels("lead frames to a socket", error))?;
                    sockets.push(socket);
                }
                // The interface has no more queues.
                Err((_, Errno::INVAL)) if queue != 0 => break,
                Err(failure) => return Err(refused(mode, failure)),
            }
        }
        Ok(sockets)
    }
}

fn kernels(action: &'static str, error: Errno) -> XdpError {
    match error {
        Errno::PERM | Errno::ACCESS => XdpError::NotPermitted(action),
        _ => XdpError::Kernel { action, error },
    }
}

fn refused(mode: Mode, (action, error): Failure) -> XdpError {
    match error {
        Errno::PERM | Errno::ACCESS => XdpError::NotPermitted(action),
        _ => XdpError::Mode { mode, action, error },
    }
}

fn sleep_descriptor(packet: &PacketLink, sockets: &[Socket]) -> Result<OwnedFd, Errno> {
    let waiting = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let sources = sockets.iter().map(AsFd::as_fd).chain(packet.descriptor());
    for (number, source) in sources.enumerate() {
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&waiting, source, data, epoll::EventFlags::IN)?;
    }
    Ok(waiting)
}

/// Returns whether a frame's transport checksum is the sum of the pseudo-header,
/// which the kernel leaves to an interface. An intact frame has that by chance
/// only.
fn is_unfinished(beginning: &[u8]) -> bool {
    let Some(layout) = Layout::of(beginning) else {
        return false;
    };
    let packet_len = layout.packet_len(beginning);
    packet_len >= layout.payload - layout.network
        && beginning[layout.checksum()] == layout.pseudo_sum(beginning, packet_len).to_be_bytes()
}

impl Transmitter for XdpLink {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let longest = usize::from(self.mtu) + MAX_LINK_HEADER;
        if !(MIN_FRAME..=longest).contains(&frame.len()) {
            self.statistics.bad_length += 1;
            return Err(TransmitError::TooLong);
        }
        // One queue sends all frames. They stay in order, and one thread needs no
        // more.
        let Some(socket) = self.sockets.first_mut() else {
            return Err(TransmitError::Unreachable);
        };
        if !socket.transmit(frame, &mut self.statistics) {
            self.statistics.full += 1;
            self.full = true;
            return Err(TransmitError::Full);
        }
        self.statistics.frames_sent += 1;
        self.statistics.bytes_sent += frame.len() as u64;
        Ok(())
    }
}

impl Link for XdpLink {
    /// No work is left to the interface.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.mtu,
            super_frame: u32::from(self.mtu),
            checksum_offload: false,
            local: false,
            any_thread: false,
        }
    }

    fn address(&self) -> [u8; 6] {
        self.packet.address()
    }

    fn receive(&mut self, now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        let (mut count, software) = (0, self.software);
        let (mut bytes, mut unfinished) = (0, 0);
        let mut hand_over = |private: &[u8], rest: Gather<'_>| {
            bytes += (private.len() + rest.len()) as u64;
            let mut offload = Offload::default();
            if software && is_unfinished(private) {
                unfinished += 1;
                offload.checksum = Checksum::Partial;
            }
            handler(&Received {
                private,
                rest,
                offload,
            });
        };
        let sockets = self.sockets.len();
        let most = budget - SHARE.min(budget / 4);
        for number in 0..sockets {
            let socket = &mut self.sockets[(self.first + number) % sockets];
            let left = most.saturating_sub(count);
            count += socket.receive(left, &mut self.statistics, &mut hand_over);
        }
        self.first = (self.first + 1) % sockets.max(1);
        self.statistics.frames_received += count as u64;
        self.statistics.bytes_received += bytes;
        self.statistics.unfinished += unfinished;
        count + self.packet.receive(now_ns, budget.saturating_sub(count), handler)
    }

    fn flush(&mut self) {
        for socket in &mut self.sockets {
            socket.flush(&mut self.statistics);
        }
    }

    /// Returns `None` once the interface was removed: no frame comes any more.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.packet.descriptor().map(|_| self.waiting.as_fd())
    }

    /// Returns `false` while a frame waits for a buffer, as nothing tells when
    /// there is one. Waiting received frames make the descriptor readable.
    fn prepare_sleep(&mut self) -> bool {
        self.flush();
        if self.packet.descriptor().is_none() {
            return true;
        }
        let busy = self
            .sockets
            .iter_mut()
            .any(|socket| socket.has_pending() || !socket.is_empty());
        self.packet.prepare_sleep() && !busy && !std::mem::take(&mut self.full)
    }

    fn finish_sleep(&mut self, now_ns: u64) {
        self.packet.finish_sleep(now_ns);
    }

    fn note_beyond(&mut self, change: NeighborChange) {
        // The packet socket takes frames for nodes that the program lacks.
        self.packet.note_beyond(change);
        let set = match change {
            NeighborChange::Joined(node) => self.redirection.set_node(node, true),
            NeighborChange::Left(node) => self.redirection.set_node(node, false),
            NeighborChange::Bound { .. } | NeighborChange::Unbound { .. } => return,
        };
        let joined = matches!(change, NeighborChange::Joined(_));
        self.statistics.not_served += u64::from(joined && set.is_err());
    }
}

const _: () = assert!(MAX_NODES >= 256, "the map holds all members of a fabric");
