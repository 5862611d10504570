//! The IP layer: all protocols between Ethernet frames and TCP segments.
//!
//! [`Ip`] owns the stack's addresses, its neighbours (ARP and neighbour discovery), path MTUs and
//! fragments in reassembly. It also sends a few packets of its own: ARP, neighbour discovery, echo
//! replies, ICMP errors. It passes TCP segments and ICMP errors about them up as [`Ingress`]. TCP
//! asks for a [`Path`], and calls [`Ip::emit_headers`] to write the headers of its frames.
//!
//! It never forwards. It never configures itself from the network (no DHCP, router advertisements
//! or redirects): addresses and routers are settings. It never queues a TCP segment. Connections
//! that wait for a hardware address are on a list of TCP's own, whose head is kept in the
//! neighbour's record.
//!
//! The order of calls in a driver's round: [`Ip::handle_timeout`];
//! [`Ip::receive`] for every frame; [`Ip::next_event`] until it is `None`;
//! [`Ip::poll_transmit`]; sleep until [`Ip::poll_timeout`].

mod addresses;
mod ahead;
mod announcement;
mod arp;
mod discovery;
mod egress;
mod ethernet;
mod fragments;
mod headers;
mod icmp;
mod icmp_error;
mod index;
mod ingress;
mod ipv4;
mod ipv6;
mod kernel;
mod list;
mod membership;
mod neighbor;
mod path;
mod path_mtu;
mod state;
mod udp;
mod waiting;

#[cfg(test)]
mod tests;

pub(crate) use headers::{HOP_LIMIT, set_hops};
pub(crate) use ingress::{IcmpError, IcmpErrorKind, IcmpOrigin, Ingress, TcpPacket};
pub(crate) use path::{NeighborEvent, Path, PathState};

use crate::config::Config;
use crate::counters::Counters;
use crate::time::Instant;
use crate::tuple::Address;
use addresses::{Addresses, NextHop};
use ethernet::LinkShape;
use fragments::Fragments;
use neighbor::{Neighbors, Resolution};
use path_mtu::PathMtus;
use state::{Context, State};
use toehold_link::steering::Steering;
use toehold_link::{Received, Transmitter};
use toehold_shm::{Carver, NONE, OutOfMemory, Table};
use waiting::Packets;

/// Longest headers [`Ip::emit_headers`] writes, in bytes: Ethernet and IPv6.
pub(crate) const MAX_HEADERS: usize = 54;

const _: () = assert!(MAX_HEADERS == ethernet::HEADER_LEN + toehold_wire::ipv6::HEADER_LEN);

/// Largest packet that a loopback path takes, in bytes. A packet waits in payload memory together
/// with a few bytes about it. It must fit into the part of the memory that programs cannot fill
/// with data to send, or it would wait forever.
fn loopback_mtu(config: &Config) -> u16 {
    let kept = u64::from(config.payload_blocks / 4) * u64::from(config.payload_block_len);
    let mtu = kept.saturating_sub(64).max(path_mtu::LEAST_IPV6.into());
    u16::try_from(mtu).unwrap_or(u16::MAX)
}

/// The IP layer of one stack: its settings and handles to its state.
pub(crate) struct Ip {
    own: Addresses,
    link: LinkShape,
    loopback_mtu: u16,
    /// Which shard of its node this stack is.
    steering: Steering,
    /// Whether this stack answers for its node: it is the first shard.
    speaks: bool,
    /// Whether this shard answers the frame that arrived last. Only a flow's own shard answers
    /// frames of the flow.
    answers: bool,
    /// Whether the kernel's stack has the same addresses.
    beside_kernel: bool,
    state: Table<State>,
    neighbors: Neighbors,
    packets: Packets,
    path_mtus: PathMtus,
    fragments: Fragments,
    /// Private copy of a packet that is examined beyond its headers. Unused between two calls.
    scratch: Vec<u8>,
}

impl Ip {
    /// Bytes of a region that [`Ip::create`] takes.
    pub(crate) fn bytes_needed(config: &Config) -> usize {
        Table::<State>::bytes_needed(1)
            + Neighbors::bytes_needed(config)
            + Packets::bytes_needed(config.link.mtu, neighbor::capacity(config))
            + PathMtus::bytes_needed()
            + Fragments::bytes_needed()
    }

    /// Creates the IP layer's state in a fresh region. On a region that holds the state already,
    /// makes handles and changes nothing. `config` must then equal the one at creation.
    ///
    /// # Errors
    ///
    /// If the region is too small.
    pub(crate) fn create(carver: &mut Carver, config: &Config) -> Result<Self, OutOfMemory> {
        let mut state = carver.table(1)?;
        if carver.is_fresh() {
            state[0] = State::new(config);
        }
        Ok(Self {
            own: Addresses::new(config),
            link: LinkShape::new(config),
            loopback_mtu: loopback_mtu(config),
            steering: config.steering,
            speaks: config.steering.index == 0,
            answers: config.steering.index == 0,
            beside_kernel: config.beside_kernel,
            state,
            neighbors: Neighbors::create(carver, config)?,
            packets: Packets::create(carver, config.link.mtu, neighbor::capacity(config))?,
            path_mtus: PathMtus::create(carver, config.secret)?,
            fragments: Fragments::create(carver)?,
            scratch: vec![0; fragments::LARGEST_PACKET],
        })
    }

    /// Repairs the state after a process died in the middle of a change. Path MTUs are learned
    /// again; queued frames are lost, as any packet may be.
    pub(crate) fn mend(&mut self) {
        self.neighbors.mend(&mut self.state[0]);
        self.packets.forget();
        self.path_mtus.forget();
        self.fragments.forget();
        let state = &mut self.state[0];
        state.paths_changed();
        state.forget_deadline();
        state.announcement.tell_all();
    }

    /// Handles a frame from the link. Answers of the IP layer leave with [`Ip::poll_transmit`].
    #[inline]
    pub(crate) fn receive<'a>(
        &mut self,
        now: Instant,
        frame: &'a Received<'a>,
        counters: &mut Counters,
    ) -> Ingress<'a> {
        counters.frames_received += 1;
        if let Some(packet) = self.plain_tcp(frame) {
            counters.tcp_segments_received += 1;
            return Ingress::Tcp(packet);
        }
        self.receive_any(now, frame, counters)
    }

    /// The segment in the frame, if it takes the fast path of its family. All other frames take the
    /// general path.
    #[inline]
    fn plain_tcp<'a>(&self, frame: &'a Received<'a>) -> Option<TcpPacket<'a>> {
        if !self.link.ethernet {
            let version = frame.private.first()? >> 4;
            return match version {
                4 => self.plain_tcp_v4(frame, 0),
                _ => self.plain_tcp_v6(frame, 0),
            };
        }
        let header: &[u8; ethernet::HEADER_LEN] = frame.private.first_chunk()?;
        // Checks the destination and the group bit of the source at once.
        let front = u64::from_le_bytes(*header.first_chunk()?) & 0x01_ffff_ffff_ffff;
        if front != self.link.own_front {
            return None;
        }
        match header.last_chunk()? {
            [0x08, 0x00] => self.plain_tcp_v4(frame, ethernet::HEADER_LEN),
            [0x86, 0xdd] => self.plain_tcp_v6(frame, ethernet::HEADER_LEN),
            _ => None,
        }
    }

    /// The path to `remote`. Starts to resolve the next hop's hardware address if necessary; the
    /// request leaves with [`Ip::poll_transmit`].
    pub(crate) fn path(&mut self, now: Instant, remote: Address) -> PathState {
        let next_hop = match (self.own.next_hop(&remote), self.link.ethernet) {
            (NextHop::Loopback, _) => {
                let (mtu, epoch) = (self.loopback_mtu, self.state[0].epoch());
                return PathState::Ready(Path::new(self.own.mac, mtu, mtu, NONE, epoch).with_loopback());
            }
            (NextHop::Group, _) | (NextHop::None, true) => return PathState::Unreachable,
            (NextHop::Neighbor(_) | NextHop::None, false) => {
                return PathState::Ready(self.path_over(remote, [0; 6], NONE));
            }
            (NextHop::Neighbor(next_hop), true) => next_hop,
        };
        let mut cx = Context {
            now,
            state: &mut self.state[0],
            packets: &mut self.packets,
        };
        match self.neighbors.resolve(&mut cx, &next_hop) {
            Resolution::Known { neighbor, mac } => PathState::Ready(self.path_over(remote, mac, neighbor)),
            Resolution::Asking { neighbor } => PathState::Pending { neighbor },
            Resolution::Gone => PathState::Gone,
            Resolution::Full => PathState::Unreachable,
        }
    }

    fn path_over(&self, remote: Address, mac: [u8; 6], neighbor: u32) -> Path {
        let (mtu, may_fragment) = self.packet_limit(&remote);
        let path = Path::new(mac, mtu, self.link.super_frame, neighbor, self.state[0].epoch());
        if may_fragment {
            path.with_may_fragment()
        } else {
            path
        }
    }

    /// Whether a path still equals the answer of [`Ip::path`]. Compares one number; may return
    /// `false` for an unchanged path.
    #[inline]
    pub(crate) fn path_is_current(&self, path: &Path) -> bool {
        path.epoch() == self.state[0].epoch()
    }

    /// Writes the Ethernet and IP headers of a packet to `remote` into `buf`,
    /// and returns their length. `tos` is DSCP and ECN; `transport_len` the
    /// bytes behind the IP header, up to 65515.
    ///
    /// # Panics
    ///
    /// If `buf` is shorter than the headers; [`MAX_HEADERS`] are always enough.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "they are the fields of the header")]
    pub(crate) fn emit_headers(
        &mut self,
        buf: &mut [u8],
        path: &Path,
        local: Address,
        remote: Address,
        protocol: u8,
        tos: u8,
        transport_len: usize,
    ) -> usize {
        let fields = headers::Fields {
            protocol,
            tos,
            transport_len,
        };
        self.emit(buf, path, &local, &remote, fields)
    }

    /// The address of this stack from which to send to `remote`; `None` if the stack has none of
    /// that family.
    pub(crate) fn source_for(&self, remote: Address) -> Option<Address> {
        self.own.source_for(&remote)
    }

    /// Whether `address` is one of this stack's, loopback addresses included.
    pub(crate) fn is_local(&self, address: Address) -> bool {
        self.own.is_local(&address)
    }

    /// Gives queued frames to the link: requests to neighbours, answers, errors, and frames that
    /// waited for a hardware address. Frames that the link has no room for stay queued.
    #[inline]
    pub(crate) fn poll_transmit(&mut self, now: Instant, out: &mut dyn Transmitter, counters: &mut Counters) {
        self.neighbors.settle(counters);
        if self.has_output() {
            self.transmit_own(now, out, counters);
        }
    }

    #[cold]
    fn transmit_own(&mut self, now: Instant, out: &mut dyn Transmitter, counters: &mut Counters) {
        if self.state[0].announcement.is_due() {
            self.transmit_announcement(now, out, counters);
        }
        if !self.transmit_queued(out, counters) {
            self.state[0].wake_at(now.plus_nanos(FULL_LINK_RETRY));
        }
    }

    /// Whether [`Ip::poll_transmit`] has something for the link.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.packets.first_ready().is_some()
            || self.neighbors.has_questions()
            || self.state[0].announcement.is_due()
    }

    /// Handles expired timers. Cheap if none has expired.
    pub(crate) fn handle_timeout(&mut self, now: Instant, counters: &mut Counters) {
        if now < self.state[0].next_deadline() {
            return;
        }
        self.state[0].forget_deadline();
        let mut cx = Context {
            now,
            state: &mut self.state[0],
            packets: &mut self.packets,
        };
        let neighbors = self.neighbors.handle_timeout(&mut cx, counters);
        let path_mtus = self.path_mtus.expire(now, &mut self.state[0]);
        self.expire_fragments(now, counters);
        let report = self.run_report(now, counters);
        let fragments = self.fragments.next_deadline();
        self.state[0].wake_at(neighbors.min(path_mtus).min(fragments).min(report));
    }

    /// The next time at which [`Ip::handle_timeout`] must be called; `None` if no timer runs.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        Some(self.state[0].next_deadline()).filter(|deadline| deadline.is_set())
    }

    /// The next event of a neighbour that TCP waits for.
    pub(crate) fn next_event(&mut self) -> Option<NeighborEvent> {
        let (neighbor, resolved) = self.neighbors.next_event()?;
        Some(if resolved {
            NeighborEvent::Resolved { neighbor }
        } else {
            NeighborEvent::Failed { neighbor }
        })
    }

    /// Head of TCP's list of connections that wait for a neighbour, or [`NONE`].
    pub(crate) fn waiting_head(&self, neighbor: u32) -> u32 {
        self.neighbors.waiting_head(neighbor)
    }

    /// Sets the head of TCP's list of connections that wait for a neighbour. While it is not
    /// [`NONE`] the neighbour's record stays.
    pub(crate) fn set_waiting_head(&mut self, neighbor: u32, head: u32) {
        self.neighbors.set_waiting_head(neighbor, head);
    }

    /// Notes that packets sent over `path` arrive, because new data were acknowledged. This saves a
    /// reachability probe of the neighbour.
    //= RFC 4861 §7.3.1
    #[inline]
    pub(crate) fn confirm(&mut self, now: Instant, path: &Path) {
        if path.neighbor != NONE {
            self.neighbors
                .confirm(now, path.neighbor, path.destination, &mut self.state[0]);
        }
    }

    /// Lowers the MTU of the path to `remote` to `mtu` bytes, as an ICMP message about an
    /// outstanding segment reports. Returns whether the path MTU is smaller now; it stays so for
    /// ten minutes.
    pub(crate) fn update_path_mtu(&mut self, now: Instant, remote: Address, mtu: u16) -> bool {
        let (present, _) = self.packet_limit(&remote);
        self.path_mtus
            .lower(now, &remote, mtu, present, &mut self.state[0])
    }

    /// Sets the hardware address of a neighbour, as the link reports with certainty.
    pub(crate) fn neighbor_bound(&mut self, now: Instant, address: Address, mac: [u8; 6]) {
        if self.neighbors.bind(&address, mac) {
            self.learn(now, &address, mac, neighbor::Evidence::Spoke { create: false });
        }
    }

    /// Handles the end of the node that had an address, as the link reports with certainty.
    pub(crate) fn neighbor_unbound(&mut self, now: Instant, address: Address, counters: &mut Counters) {
        if self.own.is_local(&address) || !self.link.ethernet {
            return;
        }
        let mut cx = Context {
            now,
            state: &mut self.state[0],
            packets: &mut self.packets,
        };
        self.neighbors.lose(&mut cx, &address, counters);
    }

    /// Announces this stack's hardware address to all neighbours, since some may know an earlier
    /// one.
    pub(crate) fn announce(&mut self) {
        self.state[0].announcement.tell_all();
    }

    pub(crate) fn announce_to(&mut self, mac: [u8; 6]) {
        self.state[0].announcement.tell(mac);
    }
}

/// Time to wait for a full link, in nanoseconds.
const FULL_LINK_RETRY: u64 = 1_000_000;

impl core::fmt::Debug for Ip {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ip")
            .field("own", &self.own)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}
