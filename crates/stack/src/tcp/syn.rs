//! Contents of SYNs: offered options, agreed options, and initial sequence numbers.

use toehold_wire::tcp::{Options, Timestamps};

use super::congestion::Congestion;
use super::pcb::{Pcb, flag};
use super::{Context, Tcp};
use crate::socket::{Settings, setting};
use crate::time::Instant;
use crate::tuple::FourTuple;

/// Default MSS, by address family.
//= RFC 9293 §3.7.1 (536 for IPv4, 1220 for IPv6)
const DEFAULT_MSS: [u16; 2] = [536, 1220];

/// Lower bound of a peer's MSS, so that a peer cannot ask for a frame per byte.
pub(super) const MIN_MSS: u16 = 88;

/// Largest shift of a window.
//= RFC 7323 §2.3 (a larger one counts as 14)
const MAX_SCALE: u8 = 14;

/// Acknowledgements sent without delay at a connection's beginning, so that the peer's window opens
/// quickly.
const QUICK_ACKS: u8 = 16;

impl Tcp {
    /// A control block with its sequence numbers chosen.
    pub(super) fn new_pcb(&mut self, now: Instant, tuple: FourTuple, settings: &Settings) -> Pcb {
        let generation = self.state[0].next_generation();
        let mut pcb = Pcb::new(
            tuple,
            generation,
            settings.of_family(tuple.local.is_ipv4()).common,
        );
        pcb.settings.set(setting::INTERNAL, false);
        //= RFC 6528 §3
        pcb.iss = self.keys.initial_sequence(&tuple, now);
        pcb.snd_una = pcb.iss;
        pcb.snd_nxt = pcb.iss;
        pcb.snd_up = pcb.iss;
        pcb.ecn_recover = pcb.iss;
        pcb.ts_offset = self.keys.timestamp_offset(&tuple);
        pcb.rcv_wscale = window_scale(self.config.largest_receive_buffer(settings));
        pcb.quick_acks = QUICK_ACKS;
        pcb.last_received = now;
        pcb.last_sent = now;
        pcb
    }

    /// The options of this side's SYN or SYN-ACK.
    pub(super) fn syn_options(&self, cx: &Context<'_>, index: u32) -> Options {
        let pcb = &self.pcbs[index];
        let answering = pcb.has(flag::PASSIVE) || pcb.state() == super::State::SynReceived;
        let offer = |ours: bool, agreed: u32| if answering { pcb.has(agreed) } else { ours };
        Options {
            mss: Some(self.advertised_mss(pcb)),
            window_scale: offer(self.config.window_scaling, flag::WINDOW_SCALING).then_some(pcb.rcv_wscale),
            sack_permitted: offer(self.config.sack, flag::SACK),
            timestamps: offer(self.config.timestamps, flag::TIMESTAMPS).then(|| Timestamps {
                value: pcb.timestamp(cx.now),
                echo: pcb.ts_recent,
            }),
            fast_open: self.fast_open_option(pcb).or_else(|| self.client_option(index)),
            ..Options::default()
        }
    }

    /// The largest segment that this side wants to receive.
    //= RFC 9293 §3.7.1 (the effective MTU less fixed IP and TCP headers)
    pub(crate) fn advertised_mss(&self, pcb: &Pcb) -> u16 {
        let own = pcb
            .path
            .mtu
            .saturating_sub(fixed_headers(pcb.tuple.local.is_ipv4()))
            .max(MIN_MSS);
        if pcb.settings.max_segment > 0 {
            own.min(pcb.settings.max_segment)
        } else {
            own
        }
    }

    /// Takes the options of the peer's SYN.
    pub(super) fn negotiate(&self, now: Instant, pcb: &mut Pcb, options: &Options) {
        let default = DEFAULT_MSS[usize::from(!pcb.tuple.local.is_ipv4())];
        pcb.peer_mss = options.mss.unwrap_or(default).max(MIN_MSS);
        if let (Some(shift), true) = (options.window_scale, self.config.window_scaling) {
            pcb.set(flag::WINDOW_SCALING);
            pcb.snd_wscale = shift.min(MAX_SCALE);
        } else {
            pcb.rcv_wscale = 0;
        }
        if options.sack_permitted && self.config.sack {
            pcb.set(flag::SACK);
        }
        if let (Some(timestamps), true) = (options.timestamps, self.config.timestamps) {
            pcb.set(flag::TIMESTAMPS);
            pcb.ts_recent = timestamps.value;
            pcb.ts_recent_at = now.millis() as u32;
        }
    }

    /// Sets segment size and congestion window once path and options are known.
    pub(super) fn settle_segment_size(&self, pcb: &mut Pcb) {
        pcb.mss = self.segment_size(pcb);
        pcb.rcv_mss = pcb.mss;
        //= RFC 6928 §2 (initial window of ten segments)
        let mss = u32::from(pcb.mss);
        let window = (self.config.initial_window * mss)
            .min((2 * mss).max(14_600.max(self.config.initial_window * mss)));
        pcb.congestion = Congestion::new(pcb.settings.algorithm(), window, mss);
    }

    /// Largest payload of a segment: the smaller of what the peer takes and the path carries, less
    /// the options of every segment.
    //= RFC 9293 §3.7.1 (effective send MSS)
    pub(super) fn segment_size(&self, pcb: &Pcb) -> u16 {
        let path = pcb
            .path
            .mtu
            .saturating_sub(fixed_headers(pcb.tuple.local.is_ipv4()));
        let nameable = u16::try_from(self.nameable()).unwrap_or(u16::MAX);
        let mut size = pcb.peer_mss.min(path).min(nameable);
        if pcb.settings.max_segment > 0 {
            size = size.min(pcb.settings.max_segment);
        }
        let options = if pcb.has(flag::TIMESTAMPS) { 12 } else { 0 };
        size.saturating_sub(options).max(MIN_MSS - 40)
    }
}

/// IP and TCP headers without options.
pub(super) fn fixed_headers(ipv4: bool) -> u16 {
    if ipv4 { 40 } else { 60 }
}

/// The smallest shift with which the whole buffer can be advertised.
pub(super) fn window_scale(receive_buffer: u32) -> u8 {
    (0..MAX_SCALE)
        .find(|&shift| receive_buffer >> shift <= 65535)
        .unwrap_or(MAX_SCALE)
}
