//! One peer: its state, and the frames for it.

use std::net::SocketAddr;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::association::Association;
use super::fragments::Fragments;
use super::header::{
    Envelope, FRAGMENT_LEN, Fragment, HEADER_LEN, HELLO_LEN, Hello, Kind, RECORD_LEN, Record, TAG_LEN,
};
use super::outbox::{Outbox, lead};
use super::seal::Seal;
use super::socket::{Name, Outgoing, Socket};
use super::{UdpPeerInfo, UdpPeerState, UdpPeerStatistics};
use crate::gso::Segments;
use crate::layout::{Layout, copy_from};
use crate::random::unpredictable;
use crate::{Checksum, Transmit};

/// Length of a datagram that every path carries: IPv4's 576 bytes without the
/// longest header.
pub(super) const MIN_DATAGRAM: usize = 508;
/// Length of IPv4 and UDP headers before a datagram.
const OVER_IPV4: usize = 28;
const OVER_IPV6: usize = 48;

/// Time of silence after which a peer is away, in nanoseconds.
const SILENCE_NS: u64 = 5_000_000_000;
/// Time without a datagram after which a peer gets a sign of life, in nanoseconds.
const REMINDER_NS: u64 = 1_000_000_000;
/// First and longest pause between attempts to reach a peer, in nanoseconds.
const FIRST_PAUSE_NS: u64 = 100_000_000;
const LONGEST_PAUSE_NS: u64 = 2_000_000_000;
/// Interval of queries of the path's MTU, in nanoseconds. A decrease is noticed at
/// once, an increase only here.
const ROUTE_NS: u64 = 60_000_000_000;

/// State that all peers of a link share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) fabric: u32,
    pub(super) sender: u32,
    pub(super) address: [u8; 6],
    pub(super) seal: Option<Seal>,
    /// Most bytes of a datagram.
    pub(super) datagram: usize,
    /// Whether the kernel cuts messages into datagrams.
    pub(super) segments: bool,
    pub(super) socket: Socket,
}

#[derive(Debug)]
pub(super) struct Peer {
    socket: SocketAddr,
    name: Name,
    pub(super) association: Association,
    /// The hardware address of the peer's node, during an association.
    pub(super) address: Option<[u8; 6]>,
    pub(super) fragments: Fragments,
    pub(super) outbox: Outbox,
    sequence: u64,
    fragment_id: u32,
    /// Length of datagrams that the path carries.
    datagram: usize,
    pub(super) heard_ns: u64,
    told_ns: u64,
    hello_due_ns: u64,
    pause_ns: u64,
    route_due_ns: u64,
    error: Option<Errno>,
    /// Whether the peer claims another node's hardware address.
    pub(super) is_double: bool,
    /// The fabric that the peer claims, if it is another one.
    pub(super) elsewhere: Option<u32>,
    pub(super) statistics: UdpPeerStatistics,
}

/// The result of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tick {
    Nothing,
    /// The peer was silent for too long.
    Lost,
}

impl Peer {
    pub(super) fn new(socket: SocketAddr, common: &Common) -> Peer {
        let mut peer = Peer {
            socket,
            name: common.socket.name_of(socket),
            association: Association::default(),
            address: None,
            fragments: Fragments::default(),
            outbox: Outbox::default(),
            sequence: 0,
            fragment_id: 0,
            datagram: MIN_DATAGRAM,
            heard_ns: 0,
            told_ns: 0,
            hello_due_ns: 0,
            pause_ns: FIRST_PAUSE_NS,
            route_due_ns: 0,
            error: None,
            is_double: false,
            elsewhere: None,
            statistics: UdpPeerStatistics::default(),
        };
        peer.measure_path(common);
        peer
    }

    pub(super) fn info(&self) -> UdpPeerInfo {
        UdpPeerInfo {
            socket: self.socket,
            state: match (self.address, self.elsewhere) {
                (Some(address), _) => UdpPeerState::Connected { address },
                (None, Some(fabric)) => UdpPeerState::Elsewhere { fabric },
                (None, None) if self.is_double => UdpPeerState::Away {
                    error: Some(Errno::NOTUNIQ),
                },
                (None, None) => UdpPeerState::Away { error: self.error },
            },
            datagram: self.datagram,
            statistics: self.statistics,
        }
    }

    /// Returns whether frames can be sent to the peer.
    pub(super) fn is_connected(&self) -> bool {
        self.address.is_some()
    }

    /// Queries the path's MTU from the kernel. Returns whether it decreased.
    fn measure_path(&mut self, common: &Common) -> bool {
        let over = if self.socket.is_ipv4() {
            OVER_IPV4
        } else {
            OVER_IPV6
        };
        let Some(mtu) = common.socket.path_mtu(self.socket) else {
            return false;
        };
        let before = self.datagram;
        self.datagram = mtu.saturating_sub(over).clamp(MIN_DATAGRAM, common.datagram);
        self.datagram < before
    }

    fn envelope(&mut self, common: &Common, kind: Kind, token: u64) -> Envelope {
        let sequence = self.sequence;
        self.sequence += 1;
        Envelope {
            kind,
            sealed: common.seal.is_some(),
            fabric: common.fabric,
            token,
            sequence,
            sender: common.sender,
        }
    }

    /// Sends a hello. `token` is the one that the peer expects, if known.
    pub(super) fn send_hello(&mut self, common: &Common, now_ns: u64, token: u64, anew: bool) {
        let ours = self.association.offer(anew, unpredictable);
        let answer_wanted = anew || !self.is_connected();
        let mut datagram = [0; HEADER_LEN + TAG_LEN + HELLO_LEN];
        let lead = lead(common.seal.is_some());
        let datagram = &mut datagram[..lead + HELLO_LEN];
        datagram[lead..].copy_from_slice(Hello::new(ours, common.address, answer_wanted).as_bytes());
        self.envelope(common, Kind::Hello, token).emit(datagram);
        if let Some(seal) = &common.seal {
            seal.close(datagram);
        }
        let message = Outgoing {
            bytes: datagram,
            segment: 0,
        };
        self.error = common.socket.send(&self.name, &[message]).err();
        self.told_ns = now_ns;
    }

    /// Runs the periodic work that is due.
    pub(super) fn tick(&mut self, common: &Common, now_ns: u64) -> Tick {
        if now_ns >= self.route_due_ns {
            self.route_due_ns = now_ns + ROUTE_NS;
            self.measure_path(common);
        }
        if self.is_connected() {
            if now_ns.saturating_sub(self.heard_ns) >= SILENCE_NS {
                return Tick::Lost;
            }
            if now_ns.saturating_sub(self.told_ns) >= REMINDER_NS {
                let token = self.association.outbound().unwrap_or(0);
                self.send_hello(common, now_ns, token, false);
            }
        } else if now_ns >= self.hello_due_ns {
            self.hello_due_ns = now_ns + self.pause_ns;
            self.pause_ns = (self.pause_ns * 2).min(LONGEST_PAUSE_NS);
            self.send_hello(common, now_ns, 0, false);
        }
        Tick::Nothing
    }

    /// Begins an association with a node of this hardware address.
    pub(super) fn connect(&mut self, address: [u8; 6]) {
        self.address = Some(address);
        self.is_double = false;
        self.elsewhere = None;
        self.pause_ns = FIRST_PAUSE_NS;
        self.statistics.introductions += 1;
    }

    /// Ends the association and drops staged frames.
    pub(super) fn disconnect(&mut self) {
        self.address = None;
        self.hello_due_ns = 0;
        self.outbox.clear();
        self.fragments = Fragments::default();
    }

    /// Stages a frame, in as many pieces as needed.
    pub(super) fn stage(&mut self, common: &Common, frame: &Transmit<'_>) {
        let lead = lead(common.seal.is_some());
        let room = self.datagram - lead - RECORD_LEN;
        let is_super = frame.offload.segment_size != 0;
        // A wrong checksum must not become right.
        let may_cut = is_super || frame.offload.checksum != Checksum::Complete;
        if (is_super || frame.len() > room)
            && may_cut
            && let Some(mut segments) = self.segments(frame, room)
        {
            while let Some(segment) = segments.next() {
                let headers = segment.headers;
                let len = headers.len() + segment.payload.len();
                let at = segment.payload.start;
                let offset = headers.len();
                self.stage_piece(common, Checksum::Partial, len, is_super, |skip, into| {
                    let own = headers.get(skip..).unwrap_or(&[]);
                    let own = &own[..own.len().min(into.len())];
                    let (first, rest) = into.split_at_mut(own.len());
                    first.copy_from_slice(own);
                    copy_from(frame, at + (skip + first.len()) - offset, rest);
                });
            }
            return;
        }
        self.stage_piece(
            common,
            frame.offload.checksum,
            frame.len(),
            false,
            |skip, into| {
                copy_from(frame, skip, into);
            },
        );
    }

    /// Returns the pieces of a cut frame: TCP segments that fit, or the datagrams
    /// of a super-frame.
    fn segments(&self, frame: &Transmit<'_>, room: usize) -> Option<Segments> {
        let layout = Layout::of(frame.headers)?;
        let wanted = match frame.offload.segment_size {
            0 => usize::MAX,
            size => usize::from(size),
        };
        let size = match layout.protocol {
            crate::layout::Transport::Tcp => wanted.min(room.checked_sub(layout.payload)?),
            crate::layout::Transport::Udp if wanted == usize::MAX => return None,
            crate::layout::Transport::Udp => wanted,
        };
        // Bytes behind the packet are padding of a short frame.
        Segments::new(layout, frame.headers, frame.len(), size)
    }

    /// Stages one frame that is not cut, in fragments if needed. `copy` fills bytes
    /// from an offset of the frame on.
    fn stage_piece(
        &mut self,
        common: &Common,
        checksum: Checksum,
        len: usize,
        apart: bool,
        copy: impl Fn(usize, &mut [u8]),
    ) {
        let lead = lead(common.seal.is_some());
        let limit = self.datagram;
        self.statistics.frames_sent += 1;
        if lead + RECORD_LEN + len <= limit {
            let record = Record {
                fragment: None,
                checksum,
                len,
            };
            self.outbox.add(lead, limit, apart, &record, |into| copy(0, into));
            return;
        }
        self.statistics.fragmented += 1;
        self.fragment_id = self.fragment_id.wrapping_add(1);
        let most = limit - lead - RECORD_LEN - FRAGMENT_LEN;
        for offset in (0..len).step_by(most) {
            let fragment = Fragment {
                id: self.fragment_id.into(),
                offset: (offset as u16).into(),
                total: (len as u16).into(),
            };
            let part = most.min(len - offset);
            let record = Record {
                fragment: Some(fragment),
                checksum,
                len: part,
            };
            self.outbox
                .add(lead, limit, false, &record, |into| copy(offset, into));
        }
    }

    /// Sends staged datagrams as far as the socket takes them. Returns the number
    /// of system calls.
    pub(super) fn send(&mut self, common: &mut Common, now_ns: u64) -> u64 {
        let mut calls = 0;
        let Some(token) = self.association.outbound() else {
            self.outbox.clear();
            return calls;
        };
        let mut outbox = std::mem::take(&mut self.outbox);
        outbox.close(common.seal.as_ref(), || {
            self.envelope(common, Kind::Frames, token)
        });
        while !outbox.is_empty() {
            let (messages, datagrams, count) = outbox.messages(!common.segments);
            calls += 1;
            match common.socket.send(&self.name, &messages[..count]) {
                Ok(taken) => {
                    let taken = datagrams[..taken.min(count)].iter().sum::<usize>();
                    self.statistics.datagrams_sent += taken as u64;
                    self.told_ns = now_ns;
                    self.error = None;
                    outbox.advance(taken);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => break,
                Err(error) => {
                    let was_cut = messages[0].segment != 0;
                    let lost = self.not_sent(common, error, was_cut, datagrams[0]);
                    outbox.advance(lost);
                }
            }
        }
        self.outbox = outbox;
        calls
    }

    /// Handles the kernel's refusal of the first message. Returns the number of
    /// dropped datagrams.
    #[cold]
    fn not_sent(&mut self, common: &mut Common, error: Errno, was_cut: bool, datagrams: usize) -> usize {
        self.error = Some(error);
        if matches!(error, Errno::MSGSIZE | Errno::INVAL) && self.measure_path(common) {
            self.statistics.too_long += datagrams as u64;
            return datagrams;
        }
        if was_cut
            && matches!(
                error,
                Errno::INVAL | Errno::IO | Errno::NOPROTOOPT | Errno::MSGSIZE
            )
        {
            // The kernel cannot cut messages; the path is not the reason.
            common.segments = false;
            return 0;
        }
        if error == Errno::MSGSIZE {
            self.statistics.too_long += datagrams as u64;
        } else {
            self.statistics.refused += datagrams as u64;
        }
        datagrams
    }
}
