//! The link over a packet socket.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::filter::{self, MAX_ADDRESSES};
use super::socket::{Failure, Socket};
use super::{PacketError, PacketStatistics};
use crate::interface::{Interface, Namespace};
use crate::virtio_net::{Counts, MAX_LINK_HEADER, MAX_PACKET, MIN_FRAME, Queue};
use crate::{Capabilities, Link, NeighborChange, Received, Transmit, TransmitError, Transmitter};

/// A link over an interface of the kernel, through a packet socket.
#[derive(Debug)]
pub struct PacketLink {
    queue: Queue<Socket>,
    interface: String,
    address: [u8; 6],
    mtu: u16,
    /// The nodes behind this link, whose frames are taken.
    nodes: BTreeSet<[u8; 6]>,
    /// Whether all frames come to the interface, as it refused a node's address.
    takes_all: bool,
    statistics: PacketStatistics,
    /// Frames that found the buffer full, as of the last query of the kernel.
    dropped: Cell<u64>,
    /// Whether the interface was removed.
    gone: bool,
    /// Whether the last frame found no room.
    full: bool,
}

impl PacketLink {
    /// Takes frames from an interface in the namespace. [`Link::address`] reports
    /// `address`, the driver's own. The interface keeps its own address.
    ///
    /// # Errors
    ///
    /// If there is no such interface, it carries no Ethernet, or the process lacks
    /// the right.
    pub fn open(interface: &str, namespace: &Namespace, address: [u8; 6]) -> Result<PacketLink, PacketError> {
        let mut found = Interface::open(namespace, interface)?;
        let state = found.state()?;
        if !state.ethernet {
            return Err(PacketError::NotEthernet(interface.to_owned()));
        }
        let failed = |failure| refused(failure, interface);
        let index = found.index();
        let socket = namespace
            .run(|| Socket::open(index, &filter::program([].iter())))?
            .map_err(failed)?;
        socket.join_groups().map_err(failed)?;
        Ok(PacketLink {
            queue: Queue::new(socket, true, true),
            interface: interface.to_owned(),
            address,
            mtu: state.mtu.min(MAX_PACKET as u32) as u16,
            nodes: BTreeSet::new(),
            takes_all: false,
            statistics: PacketStatistics::default(),
            dropped: Cell::new(0),
            gone: false,
            full: false,
        })
    }

    /// The interface's name when it was opened.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Returns the link's counters.
    pub fn statistics(&self) -> PacketStatistics {
        let Counts {
            frames_received,
            bytes_received,
            super_frames_received,
            segmented,
            bad_headers,
            last_bad_header,
            bad_length,
            bad_super_frames,
            bad_checksums,
        } = self.queue.counts;
        self.dropped
            .set(self.dropped.get() + self.queue.device.take_drops());
        PacketStatistics {
            frames_received,
            bytes_received,
            super_frames_received,
            segmented,
            dropped: self.dropped.get(),
            bad_headers,
            last_bad_header,
            bad_length: bad_length + self.statistics.bad_length,
            bad_super_frames,
            bad_checksums,
            ..self.statistics
        }
    }

    /// Returns whether the interface was removed. The link then carries no frames
    /// any more, even if another interface gets the name.
    pub fn is_gone(&self) -> bool {
        self.gone || self.queue.device.is_gone()
    }

    /// Returns whether the interface is up.
    pub fn is_up(&self) -> bool {
        self.queue.device.has_flag(libc::IFF_UP)
    }

    /// Returns whether the interface is up and has a carrier.
    pub fn is_running(&self) -> bool {
        self.queue.device.has_flag(libc::IFF_RUNNING)
    }

    /// Starts or stops to take the frames for a node.
    fn serve(&mut self, node: [u8; 6], serve: bool) {
        let changed = match serve {
            true if self.nodes.len() == MAX_ADDRESSES => false,
            true => self.nodes.insert(node),
            false => self.nodes.remove(&node),
        };
        if !changed {
            self.statistics.not_served += u64::from(serve && !self.nodes.contains(&node));
            return;
        }
        let socket = &self.queue.device;
        let joined = socket.join_address(node, serve);
        if serve && joined.is_err() && !self.takes_all {
            self.takes_all = socket.join_all().is_ok();
        }
        let program = filter::program(self.nodes.iter());
        if socket.set_filter(&program).is_err() {
            self.statistics.not_served += u64::from(serve);
        }
    }

    #[cold]
    fn note_read_error(&mut self, error: Errno) {
        match error {
            // The kernel reports this once when it goes down, and once when it is
            // removed.
            Errno::NETDOWN => self.gone = self.queue.device.is_gone(),
            _ => self.statistics.read_errors += 1,
        }
    }

    #[cold]
    fn not_sent(&mut self, error: Errno) -> Result<(), TransmitError> {
        match error {
            Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => {
                self.statistics.full += 1;
                self.full = true;
                Err(TransmitError::Full)
            }
            Errno::NETDOWN | Errno::NXIO | Errno::NODEV => {
                self.gone = self.queue.device.is_gone();
                match self.gone {
                    true => self.statistics.gone += 1,
                    false => self.statistics.down += 1,
                }
                Err(TransmitError::Unreachable)
            }
            Errno::MSGSIZE => {
                self.statistics.bad_length += 1;
                Err(TransmitError::TooLong)
            }
            _ => {
                self.statistics.refused += 1;
                Ok(())
            }
        }
    }
}

fn refused((action, error): Failure, interface: &str) -> PacketError {
    let interface = interface.to_owned();
    match error {
        Errno::PERM | Errno::ACCESS => PacketError::NotPermitted(interface),
        _ => PacketError::System {
            action,
            interface,
            error,
        },
    }
}

impl Transmitter for PacketLink {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let is_super = frame.offload.segment_size != 0;
        let packet = if is_super {
            MAX_PACKET
        } else {
            usize::from(self.mtu)
        };
        if !(MIN_FRAME..=packet + MAX_LINK_HEADER).contains(&frame.len()) {
            self.statistics.bad_length += 1;
            return Err(TransmitError::TooLong);
        }
        if self.gone {
            self.statistics.gone += 1;
            return Err(TransmitError::Unreachable);
        }
        self.full = false;
        match self.queue.send(frame) {
            Ok(()) => {
                self.statistics.frames_sent += 1;
                self.statistics.bytes_sent += frame.len() as u64;
                self.statistics.super_frames_sent += u64::from(is_super);
                Ok(())
            }
            Err(error) => self.not_sent(error),
        }
    }
}

impl Link for PacketLink {
    /// The kernel cuts super-frames and fills in checksums where the interface does
    /// not.
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
        self.address
    }

    fn receive(&mut self, _now_ns: u64, budget: usize, handler: &mut dyn FnMut(&Received<'_>)) -> usize {
        if self.gone {
            return 0;
        }
        let (count, error) = self.queue.receive(budget, handler);
        if let Some(error) = error {
            self.note_read_error(error);
        }
        count
    }

    /// Does nothing: the kernel has every frame already.
    fn flush(&mut self) {}

    /// Returns `None` once the interface was removed: no frame comes any more.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (!self.gone).then(|| self.queue.device.as_fd())
    }

    /// Returns `false` while a frame waits for room, as nothing tells when there is
    /// some. Otherwise sleep needs no announcement: a waiting frame makes the
    /// descriptor readable.
    fn prepare_sleep(&mut self) -> bool {
        !std::mem::take(&mut self.full)
    }

    fn finish_sleep(&mut self, _now_ns: u64) {}

    fn note_beyond(&mut self, change: NeighborChange) {
        match change {
            NeighborChange::Joined(node) => self.serve(node, true),
            NeighborChange::Left(node) => self.serve(node, false),
            NeighborChange::Bound { .. } | NeighborChange::Unbound { .. } => {}
        }
    }
}
