//! TCP by RFC 9293 and its companions, with one concern in each file.
//!
//! [`Tcp`] owns every connection of a stack. Its callers pass it segments (`input`), ask it for
//! segments (`output`), and tell it that time has passed (`timers`). It never calls back.
//! Connections with data to send wait on the ready list, and those whose readiness changed on the
//! event list. Both lists are linked through the control blocks.

pub(crate) mod accept;
mod acceptable;
mod ack;
mod aside;
mod channel;
mod close;
mod cold;
pub(crate) mod congestion;
mod connect;
mod data;
mod deferred_free;
mod delayed_ack;
mod drain;
mod emit;
mod fast_open;
mod fast_open_cache;
mod fast_open_client;
mod flows;
mod growth;
mod input;
mod listener;
mod listeners;
mod loopback;
mod loss_detection;
mod measure;
mod memory;
mod mend;
mod open_channel;
mod output;
mod path;
mod pcb;
mod peer_gone;
mod pending;
mod prediction;
mod probes;
mod progress;
mod queued;
mod ranges;
mod reassembly;
mod records;
mod replies;
mod reply;
mod report;
mod retransmit;
mod room;
mod round;
pub(crate) mod rtt;
mod sack;
mod scoreboard;
mod segment;
mod segmentation;
mod sent;
mod state;
mod syn;
pub(crate) mod syn_cookie;
mod tally;
mod thresholds;
pub(crate) mod time_wait;
mod timers;
mod urgent;

use toehold_link::steering::Steering;
use toehold_shm::{Carver, Channels, NONE, OutOfMemory, Payload, Slab, Table};

pub(crate) use fast_open_client::Opening;
pub use fast_open_client::{EarlyData, EarlyDataFailure};
pub(crate) use loss_detection::DUPLICATE_THRESHOLD;
pub use mend::Damaged;
pub use pcb::State;
pub(crate) use pcb::{Pcb, Repair, RetransmitTimer, flag, urgent as urgent_state};
pub use report::NetworkReport;
pub use room::MOST_WHOLE;
pub(crate) use timers::user_timeout_at;

use self::cold::Cold;
use self::fast_open_cache::FastOpenCache;
use self::listeners::Listeners;
use self::open_channel::Channel;
use self::ranges::Ranges;
use self::records::RecordEnds;
use self::reply::Reply;
use self::report::Report;
use self::rtt::RtoBounds;
use self::scoreboard::Scoreboard;
use self::state::{DeferredFree, TcpState};
use self::tally::Aside;
use self::thresholds::Thresholds;
use self::time_wait::TimeWaits;
use crate::config::{Config, TcpConfig};
use crate::counters::{Counters, Work};
use crate::demux::Demultiplexer;
use crate::ip::Ip;
use crate::keyed::Keys;
use crate::socket::{Change, ConnectionId, Event, ListenerId, SocketError, setting};
use crate::time::Instant;
use crate::wheel::Wheel;

/// The parts of the layers around TCP that it needs for one call.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) ip: &'a mut Ip,
    pub(crate) counters: &'a mut Counters,
}

/// Every connection of a stack.
pub(crate) struct Tcp {
    pub(crate) config: TcpConfig,
    steering: Steering,
    /// Bounds from the configuration.
    rto_bounds: RtoBounds,
    checksum_offload: bool,
    /// Whether the kernel's stack has the same addresses.
    beside_kernel: bool,
    /// Whether the link carries super-frames.
    super_frames: bool,
    pub(crate) pcbs: Slab<Pcb>,
    asides: Table<Aside>,
    pub(crate) scoreboard: Scoreboard,
    deferred_free: Slab<DeferredFree>,
    ranges: Ranges,
    /// A cold record for each control block.
    pub(crate) cold: Table<Cold>,
    /// A record for each control block, of errors that ended an attempt to connect.
    reports: Table<Report>,
    pub(crate) record_ends: RecordEnds,
    pub(crate) payload: Payload,
    thresholds: Thresholds,
    pub(crate) channels: Channels,
    /// The lease holder's knowledge of each open channel.
    open_channels: Slab<Channel>,
    pub(crate) demux: Demultiplexer,
    pub(crate) listeners: Listeners,
    wheel: Wheel,
    pub(crate) time_waits: TimeWaits,
    state: Table<TcpState>,
    replies: Table<Reply>,
    keys: Keys,
    fast_open_cache: FastOpenCache,
    /// Disables header prediction.
    #[cfg(test)]
    long_way_only: bool,
    #[cfg(test)]
    predictions: u64,
    /// The process of this handle, as in `mend`.
    process: u64,
}

impl Tcp {
    pub(crate) fn bytes_needed(config: &Config) -> usize {
        Slab::<Pcb>::bytes_needed(config.connections)
            + Table::<Aside>::bytes_needed(config.connections as usize)
            + Scoreboard::bytes_needed(config.connections)
            + Slab::<DeferredFree>::bytes_needed(config.connections)
            + Ranges::bytes_needed(config.connections)
            + Table::<Cold>::bytes_needed(config.connections as usize)
            + Table::<Report>::bytes_needed(config.connections as usize)
            + RecordEnds::bytes_needed()
            + Payload::bytes_needed_with(
                config.payload_blocks,
                config.payload_block_len,
                config.payload_arenas,
            )
            + Channels::bytes_needed(open_channel::capacity(config))
            + Slab::<Channel>::bytes_needed(open_channel::capacity(config))
            + Demultiplexer::bytes_needed(config.demux, config.connections, config.time_wait_records)
            + Listeners::bytes_needed(config.listeners)
            + Wheel::bytes_needed(config.connections)
            + TimeWaits::bytes_needed(config.time_wait_records)
            + Table::<TcpState>::bytes_needed(1)
            + Table::<Reply>::bytes_needed(reply::CAPACITY as usize)
            + FastOpenCache::bytes_needed()
    }

    pub(crate) fn create(carver: &mut Carver, config: &Config) -> Result<Self, OutOfMemory> {
        let payload = carver.payload_with(
            config.payload_blocks,
            config.payload_block_len,
            config.payload_arenas,
        )?;
        let mut tcp = Self {
            config: config.tcp.clone(),
            steering: config.steering,
            rto_bounds: RtoBounds::new(&config.tcp),
            checksum_offload: config.link.checksum_offload,
            beside_kernel: config.beside_kernel,
            super_frames: config.link.super_frame > config.link.mtu.into(),
            channels: carver.channels(open_channel::capacity(config), &payload)?,
            open_channels: carver.slab(open_channel::capacity(config))?,
            thresholds: Thresholds::new(&payload),
            payload,
            pcbs: carver.slab(config.connections)?,
            asides: carver.table(config.connections as usize)?,
            scoreboard: Scoreboard::create(carver, config.connections)?,
            deferred_free: carver.slab(config.connections)?,
            ranges: Ranges::create(carver, config.connections)?,
            cold: carver.table(config.connections as usize)?,
            reports: carver.table(config.connections as usize)?,
            record_ends: RecordEnds::create(carver)?,
            demux: Demultiplexer::create(
                carver,
                config.demux,
                config.demux_counters,
                (config.connections, config.time_wait_records),
                &config.secret,
            )?,
            listeners: Listeners::create(carver, config.listeners)?,
            wheel: Wheel::create(carver, config.connections)?,
            time_waits: TimeWaits::create(carver, config.time_wait_records)?,
            state: carver.table(1)?,
            replies: carver.table(reply::CAPACITY as usize)?,
            keys: Keys::new(&config.secret),
            fast_open_cache: FastOpenCache::create(carver)?,
            #[cfg(test)]
            long_way_only: false,
            #[cfg(test)]
            predictions: 0,
            process: 0,
        };
        if let Some(key) = &config.tcp.fast_open_key {
            tcp.keys.set_fast_open_key(key);
        }
        if carver.is_fresh() {
            tcp.state[0] = TcpState::new(config.seed);
        }
        Ok(tcp)
    }

    /// The control block of a program's id.
    #[inline]
    pub(crate) fn resolve(&self, id: ConnectionId) -> Result<u32, SocketError> {
        match self.pcbs.peek(id.index) {
            Some(pcb)
                if pcb.generation == id.generation && id.generation != 0 && !pcb.has(flag::RELEASED) =>
            {
                Ok(id.index)
            }
            _ => Err(SocketError::NotFound),
        }
    }

    /// The control block of a program's id, announced as being changed.
    #[inline]
    pub(crate) fn enter(&mut self, id: ConnectionId) -> Result<u32, SocketError> {
        let index = self.resolve(id)?;
        self.touch(index);
        Ok(index)
    }

    /// Frees a control block, whose id becomes invalid.
    fn remove_pcb(&mut self, index: u32) {
        self.pcbs[index].generation = 0;
        self.pcbs.remove(index);
    }

    pub(crate) fn connection_id(&self, index: u32) -> ConnectionId {
        ConnectionId {
            index,
            generation: self.pcbs[index].generation,
        }
    }

    /// Gives a connection another id, and closes its channel.
    pub(crate) fn rename(&mut self, index: u32) -> ConnectionId {
        self.touch(index);
        self.close_channel(index);
        let generation = self.state[0].next_generation();
        self.pcbs[index].generation = generation;
        ConnectionId { index, generation }
    }

    /// Puts a connection on the list of those that may have data to send.
    #[inline]
    pub(crate) fn mark_ready(&mut self, index: u32) {
        let pcb = &mut self.pcbs[index];
        if pcb.has(flag::ON_READY | flag::ON_NEIGHBOR) {
            return;
        }
        pcb.set(flag::ON_READY);
        pcb.ready_next = NONE;
        let tail = std::mem::replace(&mut self.state[0].ready_tail, index);
        if tail == NONE {
            self.state[0].ready_head = index;
        } else {
            self.pcbs[tail].ready_next = index;
        }
    }

    /// Takes the next connection off the ready list.
    #[inline]
    fn next_ready(&mut self) -> Option<u32> {
        let index = self.state[0].ready_head;
        if index == NONE {
            return None;
        }
        let pcb = &mut self.pcbs[index];
        pcb.clear(flag::ON_READY);
        let next = std::mem::replace(&mut pcb.ready_next, NONE);
        self.state[0].ready_head = next;
        if next == NONE {
            self.state[0].ready_tail = NONE;
        }
        Some(index)
    }

    /// Whether any connection waits for a transmission round.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        let state = &self.state[0];
        state.ready_head != NONE
            || state.reply_head != state.reply_tail
            || !state.loopback.is_empty()
            || self.memory_is_back()
    }

    /// Notes that threads waiting for a connection must be woken.
    #[inline]
    pub(crate) fn mark_event(&mut self, index: u32, change: Change) {
        let pcb = &mut self.pcbs[index];
        if pcb.has(flag::RELEASED) {
            // No program has accepted it. The program that does sees its state then.
            return;
        }
        pcb.settings.bits |= u32::from(change.0) << setting::CHANGED_SHIFT;
        if pcb.has(flag::ON_EVENTS) {
            return;
        }
        pcb.set(flag::ON_EVENTS);
        self.push_event(index);
    }

    /// Listeners stand on the event list with this bit set.
    const LISTENER_EVENT: u32 = 1 << 31;

    fn mark_listener_event(&mut self, listener: u32) {
        if self.listeners[listener].on_events == 0 {
            self.listeners[listener].on_events = 1;
            self.push_event(listener | Self::LISTENER_EVENT);
        }
    }

    fn event_link(&mut self, entry: u32) -> &mut u32 {
        if entry & Self::LISTENER_EVENT != 0 {
            &mut self.listeners[entry & !Self::LISTENER_EVENT].event_next
        } else {
            &mut self.pcbs[entry].event_next
        }
    }

    fn push_event(&mut self, entry: u32) {
        *self.event_link(entry) = NONE;
        let tail = std::mem::replace(&mut self.state[0].event_tail, entry);
        if tail == NONE {
            self.state[0].event_head = entry;
        } else {
            *self.event_link(tail) = entry;
        }
    }

    /// The next connection or listener whose readiness may have changed, with the changes.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<(Event, Change)> {
        if self.state[0].event_head == NONE {
            None
        } else {
            self.take_event()
        }
    }

    fn take_event(&mut self) -> Option<(Event, Change)> {
        loop {
            let entry = self.state[0].event_head;
            if entry == NONE {
                return None;
            }
            let next = std::mem::replace(self.event_link(entry), NONE);
            self.state[0].event_head = next;
            if next == NONE {
                self.state[0].event_tail = NONE;
            }
            if entry & Self::LISTENER_EVENT != 0 {
                let index = entry & !Self::LISTENER_EVENT;
                let listener = &mut self.listeners[index];
                listener.on_events = 0;
                if listener.is_open() {
                    let generation = listener.generation;
                    let event = Event::Listener(ListenerId { index, generation });
                    return Some((event, Change::DATA));
                }
            } else {
                let pcb = &mut self.pcbs[entry];
                pcb.clear(flag::ON_EVENTS);
                let changed = (pcb.settings.bits & setting::CHANGED) >> setting::CHANGED_SHIFT;
                pcb.settings.bits &= !setting::CHANGED;
                if !pcb.has(flag::RELEASED) {
                    let event = Event::Connection(self.connection_id(entry));
                    return Some((event, Change(changed as u8)));
                }
                self.free_if_done(entry);
            }
        }
    }

    pub(crate) fn work(&self) -> Work {
        let demux = self.demux.counters().copied().unwrap_or_default();
        Work {
            lookups: demux.demux_lookups,
            tuples_examined: demux.demux_examined,
            timers_examined: self.wheel.examined(),
        }
    }

    /// Bytes of context memory of an established, idle connection: its control block, and its
    /// entries in the timing wheel and the demultiplexer. It excludes records that such a
    /// connection does not touch: its counts take another 208 bytes from its first data on.
    pub(crate) fn context_bytes_per_connection(&self, config: &Config) -> usize {
        let n = config.connections;
        let total = Slab::<Pcb>::bytes_needed(n)
            + Wheel::bytes_needed(n)
            + Demultiplexer::bytes_needed(config.demux, n, 0)
            - Demultiplexer::bytes_in_reserve(config.demux, n);
        total.div_ceil(n.max(1) as usize)
    }

    /// Frees a block that neither the network, nor the program, nor a list needs.
    #[inline]
    pub(crate) fn free_if_done(&mut self, index: u32) {
        if self.pcbs[index].state() == State::Closed {
            self.free_closed(index);
        }
    }

    fn free_closed(&mut self, index: u32) {
        let pcb = &self.pcbs[index];
        let held = flag::ON_READY
            | flag::ON_NEIGHBOR
            | flag::ON_EVENTS
            | flag::RESET
            | flag::FENCE_WANTED
            | flag::IN_DEFERRED_FREE;
        // A program will still accept this connection, and may read its bytes.
        if !pcb.has(flag::RELEASED) || pcb.has(flag::IN_ACCEPT_QUEUE) {
            return;
        }
        let stays = pcb.has(held);
        // No program will read these bytes any more. The first waiter for memory may wait for
        // exactly these.
        self.touch(index);
        self.pcbs[index].receive_queue.clear(&mut self.payload);
        if stays {
            return;
        }
        self.wheel.cancel(index);
        self.scoreboard.drop_all(&mut self.pcbs[index]);
        self.drop_ranges(index);
        self.record_ends.drop_all(&mut self.pcbs[index]);
        self.pcbs[index].send_queue.clear(&mut self.payload);
        if self.pcbs[index].memory_next == 0 {
            self.remove_pcb(index);
        } else {
            self.state[0].look_through_memory_waiters();
        }
    }
}
