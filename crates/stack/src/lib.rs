//! TCP/IP as a passive state machine in shared memory.
//!
//! A [`Stack`] has no thread, clock or I/O of its own. Whoever drives it gives
//! it the time and the frames that arrived, and takes the frames it wants sent:
//!
//! 1. [`Stack::handle_timeout`], if [`Stack::poll_timeout`] has passed;
//! 2. [`Stack::handle_frame`] for every frame received;
//! 3. the program's calls: [`Stack::connect`], [`Stack::send`], [`Stack::receive`] …;
//! 4. [`Stack::poll_transmit`], after which the link is flushed;
//! 5. [`Stack::next_event`] until there is none, to wake those who wait.
//!
//! Between two rounds the driver may sleep until [`Stack::poll_timeout`].
//!
//! All of a stack's state lies in a region, addressed by index: any process that
//! maps the region, and holds the lease, can make a `Stack` of it with
//! [`Stack::create`] on an attached [`Carver`], and go on where another stopped.
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
    Change, CommonSettings, CongestionState, ConnectionId, Details, Event, Info, ListenerId, Placement,
    Readiness, ReceiveFlags, SendFlags, Settings, Shutdown, SocketError, SocketOption, Timer, TimerKind,
};
pub use tcp::{Damaged, EarlyData, EarlyDataFailure, MOST_WHOLE, NetworkReport, State};
pub use time::Instant;
pub use tuple::{Address, FourTuple};

use toehold_link::{Offload, Received, Transmitter};
use toehold_shm::{Arenas, Carver, Gather, OutOfMemory, PayloadArea, Table};

use ip::{Ingress, Ip};
use tcp::{Context, Tcp};

/// Segments to itself that a stack handles in one transmission round.
const LOOPED_A_ROUND: usize = 256;

/// Most segments that [`Stack::foresee`] prepares for.
pub const LOOK_AHEAD: usize = 32;

/// One TCP/IP stack.
pub struct Stack {
    ip: Ip,
    tcp: Tcp,
    counters: Table<Counters>,
    context_bytes: usize,
}

impl Stack {
    /// Bytes of region a stack with this configuration needs, at most.
    pub fn region_len(config: &Config) -> usize {
        Ip::bytes_needed(config) + Tcp::bytes_needed(config) + Table::<Counters>::bytes_needed(1)
    }

    /// Makes a stack in a fresh region, or takes over the one in an attached
    /// region that was made with the same configuration.
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

    /// Lends the parts of the stack for one call of TCP.
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

    /// The ends of the connection that a frame is probably for, if it is for one: a guess for
    /// [`Stack::foresee`].
    #[inline]
    pub fn probable_ends(&self, frame: &Received<'_>) -> Option<FourTuple> {
        self.ip.probable_ends(frame.private)
    }

    /// Has the processor fetch what segments of these connections will need, of [`LOOK_AHEAD`]
    /// at most, and does not wait for it: for a driver that sees several frames before it hands
    /// the first one over. Nothing changes, and nothing depends on it but time.
    pub fn foresee(&self, ends: &[FourTuple]) {
        self.tcp.foresee(&ends[..ends.len().min(LOOK_AHEAD)]);
    }

    /// Takes a frame from the link.
    pub fn handle_frame(&mut self, now: Instant, frame: &Received<'_>) {
        self.handle_frame_into(now, frame, None);
    }

    /// Takes a frame from the link; data of the connection that `placement`
    /// names go straight into its buffer if they are in order.
    pub fn handle_frame_into(
        &mut self,
        now: Instant,
        frame: &Received<'_>,
        placement: Option<&mut Placement<'_>>,
    ) {
        // A stack that is alone leaves nothing to anybody.
        self.handle_frame_beside(now, frame, placement, &mut |_| ToKernel::Gone);
    }

    /// The same for a stack [beside the kernel's](Config::beside_kernel): calls `kernel`
    /// with what is for that, in place of this stack or as well as for it.
    ///
    /// A TCP segment belongs to this stack if it has the connection, or what remains of
    /// it, or a listener that the segment may open a connection with: the one look-up that
    /// finds the connection decides. An ICMP error belongs to whom the packet does that it
    /// quotes. Everything else is the kernel's, but what concerns hardware addresses, which
    /// is both's.
    pub fn handle_frame_beside(
        &mut self,
        now: Instant,
        frame: &Received<'_>,
        placement: Option<&mut Placement<'_>>,
        kernel: &mut dyn FnMut(&Received<'_>) -> ToKernel,
    ) {
        let ingress = self.ip.receive(now, frame, &mut self.counters[0]);
        match ingress {
            Ingress::Tcp(packet) => {
                let (tcp, mut cx) = self.split(now);
                if !tcp.segment_arrives(&mut cx, &packet, placement) {
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
                // What was put together is whole: this goes down once at most.
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

    /// Gives everything that is to be sent now to the link, as far as it takes it.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut dyn Transmitter) {
        for _ in 0..LOOPED_A_ROUND {
            let (tcp, mut cx) = self.split(now);
            tcp.poll_transmit(&mut cx, out);
            if !tcp.handle_looped(&mut cx) {
                break;
            }
        }
        self.ip.poll_transmit(now, out, &mut self.counters[0]);
        self.neighbor_events(now);
    }

    /// Whether [`Stack::poll_transmit`] has something to do.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.tcp.has_ready() || self.ip.has_output()
    }

    /// Whether acknowledgements wait for an answer that may take them along, or for their time, although
    /// their connections do not alternate.
    #[inline]
    pub fn owes_acknowledgements(&self) -> bool {
        self.tcp.has_late()
    }

    /// Sends those with the next round: for who has nothing else to do.
    pub fn acknowledge(&mut self, now: Instant) {
        let (tcp, cx) = self.split(now);
        tcp.acknowledge_late(&cx);
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.ip.handle_timeout(now, &mut self.counters[0]);
        self.neighbor_events(now);
        let (tcp, mut cx) = self.split(now);
        tcp.handle_timeout(&mut cx);
    }

    /// When [`Stack::handle_timeout`] wants to be called next.
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

    /// The same, and what may have changed.
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

    /// What the stack has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters[0]
    }

    /// What the demultiplexer has counted, if it counts.
    pub fn demux_counters(&self) -> Option<&DemuxCounters> {
        self.tcp.demux.counters()
    }

    /// What finding connections and timers has cost since the stack's creation.
    pub fn work(&self) -> Work {
        self.tcp.work()
    }

    /// Connections in context memory, half-open and closing ones included.
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

    /// Bytes of context memory a connection takes while it is idle.
    pub fn context_bytes_per_connection(&self) -> usize {
        self.context_bytes
    }

    /// The arenas of payload memory, for a link whose peers read what is sent to them in place.
    pub fn payload_arenas(&self) -> &Arenas {
        self.tcp.payload.arenas()
    }

    /// Whether [`Stack::discard_unused_payload`] is worth a call.
    #[inline]
    pub fn has_unused_payload(&self) -> bool {
        self.tcp.payload.wants_discard()
    }

    /// Gives pages of payload memory back to the system that hold nothing. For the process that
    /// maps all arenas, now and then.
    pub fn discard_unused_payload(&mut self) {
        self.tcp.payload.discard_unused();
    }

    /// Where private payload memory lies, for links that stand for others in tests.
    pub fn payload_area(&self) -> PayloadArea {
        self.tcp.payload.area()
    }

    /// Tells the link's neighbours of this stack's addresses.
    pub fn announce(&mut self) {
        self.ip.announce();
    }

    /// The same for one that has come, with this hardware address.
    pub fn announce_to(&mut self, mac: [u8; 6]) {
        self.ip.announce_to(mac);
    }
}
