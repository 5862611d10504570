//! Facts about a connection in C's form.

use core::mem::{offset_of, size_of};

use libc::tcp_info;
use toehold_stack::{Info, State};

/// TCP_INFO's structure, as Linux lays it out. What the stack does not know is 0.
pub fn tcp_info(info: &Info) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<tcp_info>()];
    let mut put = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
    let micros = |ns: u64| u32::try_from(ns / 1000).unwrap_or(u32::MAX).to_ne_bytes();
    let segment = u32::from(info.segment_size).max(1);
    put(offset_of!(tcp_info, tcpi_state), &[state(info.state)]);
    put(offset_of!(tcp_info, tcpi_options), &[options(info)]);
    put(offset_of!(tcp_info, tcpi_rto), &micros(info.rto_ns));
    put(offset_of!(tcp_info, tcpi_rtt), &micros(info.rtt_ns));
    put(offset_of!(tcp_info, tcpi_rttvar), &micros(info.rtt_variation_ns));
    put(offset_of!(tcp_info, tcpi_min_rtt), &micros(info.min_rtt_ns));
    let segments = [
        (offset_of!(tcp_info, tcpi_snd_mss), segment),
        (offset_of!(tcp_info, tcpi_rcv_mss), segment),
        (offset_of!(tcp_info, tcpi_advmss), segment),
        (offset_of!(tcp_info, tcpi_pmtu), info.path_mtu.into()),
        (
            offset_of!(tcp_info, tcpi_unacked),
            info.unacknowledged.div_ceil(segment),
        ),
        (
            offset_of!(tcp_info, tcpi_snd_cwnd),
            info.congestion_window / segment,
        ),
        (
            offset_of!(tcp_info, tcpi_snd_ssthresh),
            info.slow_start_threshold / segment,
        ),
        (offset_of!(tcp_info, tcpi_total_retrans), info.retransmits),
        (offset_of!(tcp_info, tcpi_notsent_bytes), info.unsent),
        (offset_of!(tcp_info, tcpi_snd_wnd), info.send_window),
    ];
    for (offset, value) in segments {
        put(offset, &value.to_ne_bytes());
    }
    put(
        offset_of!(tcp_info, tcpi_bytes_acked),
        &info.bytes_acked.to_ne_bytes(),
    );
    put(
        offset_of!(tcp_info, tcpi_bytes_received),
        &info.bytes_received.to_ne_bytes(),
    );
    bytes
}

/// Linux's number of a state.
fn state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

/// TCPI_OPT_*: timestamps, SACK, window scaling, ECN.
fn options(info: &Info) -> u8 {
    u8::from(info.timestamps)
        | u8::from(info.sack) << 1
        | u8::from(info.window_scaling) << 2
        | u8::from(info.ecn) << 3
}
