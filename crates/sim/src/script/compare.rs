//! Compares the stack's packets with the script's expectations.

use toehold_stack::Instant;
use toehold_wire::tcp::{Flags, Header, Options, SackBlocks, Seq};

use super::{OptionList, Segment};
use crate::host::Sent;
use crate::packet::{Packet, flag_letters, option_words};

/// Returns the byte of a stream at a sequence number.
pub(super) fn pattern(sequence: u32) -> u8 {
    (sequence ^ (sequence >> 8) ^ (sequence >> 16)).wrapping_mul(167) as u8
}

/// Known facts about the stack's end of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FlowState {
    /// The initial sequence number of the stack, and when it was seen.
    pub(super) local_isn: Option<u32>,
    pub(super) isn_at: Option<Instant>,
    /// Offset from the script's timestamps to the stack's.
    pub(super) timestamp_base: Option<u32>,
}

impl FlowState {
    /// Takes the initial numbers from a connection's first packets.
    pub(super) fn learn(&mut self, expected: &Segment, sent: &Sent) {
        let header = &sent.packet.header;
        if self.local_isn.is_none() && header.flags.contains(Flags::SYN) {
            self.local_isn = Some(header.seq.0.wrapping_sub(expected.seq));
            self.isn_at = Some(sent.at);
        }
        if let (None, Some(timestamps), Some((Some(value), _))) = (
            self.timestamp_base,
            header.options.timestamps,
            expected.options.timestamps,
        ) {
            self.timestamp_base = Some(timestamps.value.wrapping_sub(value));
        }
    }

    fn relative(&self, seq: Seq) -> u32 {
        seq.0.wrapping_sub(self.local_isn.unwrap_or(0))
    }

    /// Compares a sent packet with the expected segment. The error says what
    /// differs.
    pub(super) fn compare(
        &self,
        expected: &Segment,
        packet: &Packet,
        remote_isn: u32,
        compare_push: bool,
    ) -> Result<(), String> {
        let header = &packet.header;
        let ignored = if compare_push { Flags::NONE } else { Flags::PSH };
        let flags = header.flags.without(ignored);
        if flags != expected.flags.without(ignored) {
            return Err(format!(
                "flags are {}, not {}",
                flag_letters(flags),
                flag_letters(expected.flags)
            ));
        }
        same("sequence number", self.relative(header.seq), expected.seq)?;
        same("payload length", packet.payload.len() as u32, expected.len)?;
        if let Some(ack) = expected.ack {
            same("acknowledgement", header.ack.0.wrapping_sub(remote_isn), ack)?;
        }
        if let Some(window) = expected.window {
            same("window", header.window.into(), window.into())?;
        }
        same(
            "urgent pointer",
            header.urgent.into(),
            expected.urgent.unwrap_or(0).into(),
        )?;
        if let Some(ecn) = expected.ecn {
            same("ECN field", packet.ecn.into(), ecn.into())?;
        }
        self.compare_payload(expected, packet)?;
        self.compare_options(&expected.options, header, remote_isn)
    }

    fn compare_payload(&self, expected: &Segment, packet: &Packet) -> Result<(), String> {
        let start = expected
            .seq
            .wrapping_add(expected.flags.contains(Flags::SYN).into());
        for (i, &byte) in packet.payload.iter().enumerate() {
            let sequence = start.wrapping_add(i as u32);
            if byte != pattern(sequence) {
                return Err(format!(
                    "the byte at {sequence} differs from the byte that the program wrote"
                ));
            }
        }
        Ok(())
    }

    fn compare_options(&self, expected: &OptionList, header: &Header, remote_isn: u32) -> Result<(), String> {
        if expected.any {
            return Ok(());
        }
        let options = &header.options;
        same_option("mss", options.mss, expected.mss)?;
        same_option("FO", options.fast_open, expected.fast_open)?;
        same_option("wscale", options.window_scale, expected.window_scale)?;
        same_option("sackOK", options.sack_permitted, expected.sack_permitted)?;
        let blocks: Vec<(u32, u32)> = options
            .sack
            .iter()
            .map(|(left, right)| (left.0.wrapping_sub(remote_isn), right.0.wrapping_sub(remote_isn)))
            .collect();
        same_option("sack", &blocks, &expected.sack)?;
        match (options.timestamps, expected.timestamps) {
            (None, None) => Ok(()),
            (Some(timestamps), Some((value, echo))) => {
                let base = self.timestamp_base.unwrap_or(0);
                same_or_wild("TS val", timestamps.value.wrapping_sub(base), value)?;
                same_or_wild("TS ecr", timestamps.echo, echo)
            }
            (timestamps, _) => Err(format!("timestamps are {timestamps:?}")),
        }
    }
}

fn same(what: &str, found: u32, expected: u32) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what} is {found}, not {expected}"))
    }
}

fn same_or_wild(what: &str, found: u32, expected: Option<u32>) -> Result<(), String> {
    expected.map_or(Ok(()), |expected| same(what, found, expected))
}

fn same_option<T: PartialEq + core::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what} is {found:?}, not {expected:?}"))
    }
}

/// Describes a packet of the stack in the syntax of scripts.
pub(super) fn describe(packet: &Packet, flow: &FlowState, remote_isn: u32) -> String {
    let header = &packet.header;
    let seq = flow.relative(header.seq);
    let len = packet.payload.len() as u32;
    let mut text = format!(
        "{} {seq}:{}({len})",
        flag_letters(header.flags),
        seq.wrapping_add(len)
    );
    if header.flags.contains(Flags::ACK) {
        text += &format!(" ack {}", header.ack.0.wrapping_sub(remote_isn));
    }
    text += &format!(" win {}", header.window);
    if header.flags.contains(Flags::URG) {
        text += &format!(" urg {}", header.urgent);
    }
    let options = option_words(&relative_options(&header.options, flow, remote_isn));
    if !options.is_empty() {
        text += &format!(" <{}>", options.join(","));
    }
    text
}

/// Converts options to the script's numbers.
fn relative_options(options: &Options, flow: &FlowState, remote_isn: u32) -> Options {
    let mut relative = *options;
    relative.sack = SackBlocks::EMPTY;
    for (left, right) in options.sack.iter() {
        relative.sack.push(left - remote_isn, right - remote_isn);
    }
    if let Some(timestamps) = &mut relative.timestamps {
        timestamps.value = timestamps.value.wrapping_sub(flow.timestamp_base.unwrap_or(0));
    }
    relative
}
