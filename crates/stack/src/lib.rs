//! TCP/IP as a passive state machine in shared memory.
//!
//! A [`Stack`] has no thread, clock or I/O of its own. Its driver passes it the time and received
//! frames, and takes the frames to send:
//!
//! 1. [`Stack::handle_timeout`], if [`Stack::poll_timeout`] has passed;
//! 2. [`Stack::handle_frame`] for every frame received;
//! 3. the program's calls: [`Stack::connect`], [`Stack::send`], [`Stack::receive`] …;
//! 4. [`Stack::poll_transmit`], after which the driver flushes the link;
//! 5. [`Stack::next_event`] until it returns `None`, to wake waiting threads.
//!
//! Between two rounds the driver may sleep until [`Stack::poll_timeout`].
//!
//! All of a stack's state lies in a region, addressed by index. Any process that maps the region
//! and holds the lease can attach to it with [`Stack::create`] on an attached [`Carver`]. It
//! continues where another process stopped.
#![forbid(unsafe_code)]

mod config;
mod counters;
pub mod demux;
mod flow_key;
mod ip;
mod kernel;
mod keyed;
mod sip;
mod socket;
mod tcp;
mod time;
mod tuple;
mod wheel;

pub use config::{Config, CongestionAlgorithm, TcpConfig};
pub use counters::{Counters, DemuxCounters, Work};
pub use demux::{DemuxStrategy, MAX_FLOWS};
pub use kernel::{FromKernel, ToKernel};
pub use socket::{
    AcceptLengths, Change, CommonSettings, CongestionState, ConnectionId, Details, DirectReceive, Event,
    Info, ListenerId, Readiness, ReceiveFlags, SendFlags, Settings, Shutdown, SocketError, SocketOption,
    Timer, TimerKind,
};
pub use tcp::{Damaged, EarlyData, EarlyDataFailure, MOST_WHOLE, NetworkReport, State};
pub use time::Instant;
pub use tuple::{Address, FourTuple};

use toehold_link::{Offload, Received, Transmitter};
use toehold_shm::{Arenas, Carver, Gather, OutOfMemory, PayloadArea, Table};

use ip::{Ingress, Ip};
use tcp::{Context, Tcp};

/// Segments to itself that a stack handles in one transmission round.
const LOOPBACK_A_ROUND: usize = 256;

/// Most segments that [`Stack::prefetch`] prepares for.
pub const LOOK_AHEAD: usize = 32;

/// One TCP/IP stack.
pub struct Stack {
    ip: Ip,
    tcp: Tcp,
    counters: Table<Counters>,
    context_bytes: usize,
}

impl Stack {
    /// Bytes of region that a stack with this configuration needs at most.
    pub fn region_len(config: &Config) -> usize {
        Ip::bytes_needed(config) + Tcp::bytes_needed(config) + Table::<Counters>::bytes_needed(1)
    }

    /// Creates a stack in a fresh region, or attaches to the one in an attached region that was
    /// created with the same configuration.
    ///
    /// # Errors
    ///
    /// The region is shorter than [`Stack::region_len`].
    pub fn create(carver: &mut Carver, config: &Config) -> Result<Self, OutOfMemory> {
        let ip = Ip::create(carver, config)?;
        let tcp = Tcp::create(carver, config)?;
        let context_bytes = tcp.context_bytes_per_connection(config);
        Ok(Self {
            ip,
            tcp,
            counters: carver.table(1)?,
            context_bytes,
        })
    }

    /// Borrows the parts of the stack for one call of TCP.
    fn split(&mut self, now: Instant) -> (&mut Tcp, Context<'_>) {
        (
            &mut self.tcp,
            Context {
                now,
                ip: &mut self.ip,
                counters: &mut self.counters[0],
            },
        )
    }

    /// The probable four-tuple of a frame, if it is a TCP segment: a guess for [`Stack::prefetch`].
    #[inline]
    pub fn probable_ends(&self, frame: &Received<'_>) -> Option<FourTuple> {
        self.ip.probable_ends(frame.private)
    }

    /// Prefetches the memory that segments of these connections will need, of [`LOOK_AHEAD`] at
    /// most, and does not wait. A driver that holds several frames calls it before it hands over
    /// the first. It changes no state.
    pub fn prefetch(&self, ends: &[FourTuple]) {
        self.tcp.prefetch(&ends[..ends.len().min(LOOK_AHEAD)]);
    }

    /// Handles a frame from the link.
    pub fn handle_frame(&mut self, now: Instant, frame: &Received<'_>) {
        self.handle_frame_into(now, frame, None);
    }

    /// Handles a frame from the link. In-order data of the connection in `direct_receive` go
    /// straight into its buffer.
    pub fn handle_frame_into(
        &mut self,
        now: Instant,
        frame: &Received<'_>,
        direct_receive: Option<&mut DirectReceive<'_>>,
    ) {
        // A stack without a kernel beside it leaves no frame to others.
        self.handle_frame_beside(now, frame, direct_receive, &mut |_| ToKernel::Gone);
    }

    /// Handles a frame from the link for a stack [beside the kernel's](Config::beside_kernel).
    /// Calls `kernel` with frames for the kernel, whether or not this stack handles them too.
    ///
    /// A TCP segment belongs to this stack if the stack has its connection, or its TIME-WAIT
    /// record, or a listener that accepts it. The one look-up of the connection decides. An ICMP
    /// error belongs to the owner of the quoted packet. All other frames belong to the kernel,
    /// except address resolution, which goes to both.
    pub fn handle_frame_beside(
        &mut self,
        now: Instant,
        frame: &Received<'_>,
        direct_receive: Option<&mut DirectReceive<'_>>,
        kernel: &mut dyn FnMut(&Received<'_>) -> ToKernel,
    ) {
        let ingress = self.ip.receive(now, frame, &mut self.counters[0]);
        match ingress {
            Ingress::Tcp(packet) => {
                let (tcp, mut cx) = self.split(now);
                if !tcp.segment_arrives(&mut cx, &packet, direct_receive) {
                    self.hand_over(frame, kernel);
                }
            }
            other => self.handle_uncommon(now, frame, other, kernel),
        }
    }

    #[cold]
    fn handle_uncommon(
        &mut self,
        now: Instant,
        frame: &Received<'_>,
        ingress: Ingress<'_>,
        kernel: &mut dyn FnMut(&Received<'_>) -> ToKernel,
    ) {
        match ingress {
            Ingress::Tcp(packet) => {
                let (tcp, mut cx) = self.split(now);
                if !tcp.segment_arrives(&mut cx, &packet, None) {
                    self.hand_over(frame, kernel);
                }
            }
            Ingress::IcmpError(error) => {
                let (tcp, mut cx) = self.split(now);
                if !tcp.icmp_error(&mut cx, &error) {
                    self.hand_over(frame, kernel);
                }
            }
            Ingress::Kernel => self.hand_over(frame, kernel),
            Ingress::Whole(bytes) => {
                let frame = Received {
                    private: &bytes,
                    rest: Gather::EMPTY,
                    offload: frame.offload,
                };
                let ingress = self.ip.receive(now, &frame, &mut self.counters[0]);
                if !matches!(ingress, Ingress::Whole(_)) {
                    self.handle_uncommon(now, &frame, ingress, kernel);
                }
            }
            Ingress::Reassembled(bytes) => {
                let frame = Received {
                    private: &bytes,
                    rest: Gather::EMPTY,
                    offload: Offload::default(),
                };
                let ingress = self.ip.receive(now, &frame, &mut self.counters[0]);
                // A reassembled frame is whole: this recurses once at most.
                if !matches!(ingress, Ingress::Reassembled(_)) {
                    self.handle_uncommon(now, &frame, ingress, kernel);
                }
            }
            Ingress::Done => {}
        }
        self.neighbor_events(now);
    }

    pub(crate) fn neighbor_events(&mut self, now: Instant) {
        while let Some(event) = self.ip.next_event() {
            let (tcp, mut cx) = self.split(now);
            tcp.neighbor_event(&mut cx, event);
        }
    }

    /// Gives all frames that are due to the link, as far as it takes them.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut dyn Transmitter) {
        for _ in 0..LOOPBACK_A_ROUND {
            let (tcp, mut cx) = self.split(now);
            tcp.poll_transmit(&mut cx, out);
            if !tcp.handle_loopback(&mut cx) {
                break;
            }
        }
        self.ip.poll_transmit(now, out, &mut self.counters[0]);
        self.neighbor_events(now);
    }

    /// Whether [`Stack::poll_transmit`] has work to do.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.tcp.has_ready() || self.ip.has_output()
    }

    /// Whether delayed acknowledgements wait for data to carry them, or for their timer, although
    /// their connections do not alternate.
    #[inline]
    pub fn owes_acknowledgements(&self) -> bool {
        self.tcp.has_delayed_acks()
    }

    /// Sends delayed acknowledgements with the next [`Stack::poll_transmit`]. Call when idle.
    pub fn acknowledge(&mut self, now: Instant) {
        let (tcp, cx) = self.split(now);
        tcp.flush_delayed_acks(&cx);
    }

    /// Handles expired timers.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.ip.handle_timeout(now, &mut self.counters[0]);
        self.neighbor_events(now);
        let (tcp, mut cx) = self.split(now);
        tcp.handle_timeout(&mut cx);
    }

    /// The next time at which [`Stack::handle_timeout`] must be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.tcp.next_deadline(), self.ip.poll_timeout()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The next connection or listener whose readiness may have changed.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        self.next_change().map(|(event, _)| event)
    }

    /// The next connection or listener whose readiness may have changed, with the changes.
    #[inline]
    pub fn next_change(&mut self) -> Option<(Event, Change)> {
        let event = self.tcp.next_event();
        match event {
            Some((Event::Connection(id), _)) => self.tcp.publish(id.index),
            Some(_) => {}
            None => self.tcp.touch_nothing(),
        }
        event
    }

    /// The stack's counters.
    pub fn counters(&self) -> &Counters {
        &self.counters[0]
    }

    /// The demultiplexer's counters, if it counts.
    pub fn demux_counters(&self) -> Option<&DemuxCounters> {
        self.tcp.demux.counters()
    }

    /// The cost of finding connections and timers since the stack's creation.
    pub fn work(&self) -> Work {
        self.tcp.work()
    }

    /// Connections in context memory, including half-open and closing ones.
    pub fn connections(&self) -> u32 {
        self.tcp.pcbs.len()
    }

    /// Blocks of payload memory in use.
    pub fn payload_blocks_used(&self) -> u32 {
        self.tcp.payload.capacity() - self.tcp.payload.free_blocks()
    }

    /// Most connections in context memory.
    pub fn connections_bound(&self) -> u32 {
        self.tcp.pcbs.capacity()
    }

    /// Bytes of payload memory in use.
    pub fn payload_bytes_used(&self) -> u64 {
        u64::from(self.payload_blocks_used()) * self.tcp.payload.block_len() as u64
    }

    /// Bytes of payload memory.
    pub fn payload_bytes_bound(&self) -> u64 {
        u64::from(self.tcp.payload.capacity()) * self.tcp.payload.block_len() as u64
    }

    /// Bytes of context memory that an idle connection takes.
    pub fn context_bytes_per_connection(&self) -> usize {
        self.context_bytes
    }

    /// The arenas of payload memory, for a link whose peers read payload in place.
    pub fn payload_arenas(&self) -> &Arenas {
        self.tcp.payload.arenas()
    }

    /// Whether [`Stack::discard_unused_payload`] is worth a call.
    #[inline]
    pub fn has_unused_payload(&self) -> bool {
        self.tcp.payload.wants_discard()
    }

    /// Returns unused pages of payload memory to the system. For the process that maps all arenas,
    /// to be called now and then.
    pub fn discard_unused_payload(&mut self) {
        self.tcp.payload.discard_unused();
    }

    /// The area of private payload memory, for links that simulate others in tests.
    pub fn payload_area(&self) -> PayloadArea {
        self.tcp.payload.area()
    }

    /// Announces this stack's addresses to all neighbours on the link.
    pub fn announce(&mut self) {
        self.ip.announce();
    }

    /// Announces this stack's addresses to one newcomer with this hardware address.
    pub fn announce_to(&mut self, mac: [u8; 6]) {
        self.ip.announce_to(mac);
    }
}
