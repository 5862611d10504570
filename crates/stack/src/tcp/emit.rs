//! Makes segments from a connection's state, and hands them to the link.

use toehold_link::{Checksum, Offload, Transmit, TransmitError, Transmitter};
use toehold_shm::{Gather, NONE};
use toehold_wire::checksum;
use toehold_wire::tcp::{Flags, Header, Options, SackBlocks, Seq, Timestamps};

use super::memory::room_of;
use super::pcb::{Pcb, flag};
use super::queued::Queued;
use super::{Context, Tcp};
use crate::ip::{HOP_LIMIT, set_hops};
use crate::socket::family;
use crate::time::Instant;

/// Room for Ethernet with a VLAN tag, IPv6 and the longest TCP header.
const HEADER_ROOM: usize = 128;

/// Least payload, in bytes, to which a link refers in place. The link copies shorter payload.
const WORTH_AN_ARENA: usize = 512;

/// ECN-capable transport, ECT(0).
//= RFC 3168 §5
const ECT_0: u8 = 0b10;

/// The description of a segment to make.
pub(super) struct Emission {
    flags: Flags,
    seq: Seq,
    /// Offset in the send queue; the next field is the length.
    offset: usize,
    len: usize,
}

impl Emission {
    /// A segment without payload.
    pub(super) fn bare(flags: Flags, seq: Seq) -> Self {
        Self {
            flags,
            seq,
            offset: 0,
            len: 0,
        }
    }

    /// A segment, or super-frame, with payload.
    pub(super) fn data(flags: Flags, seq: Seq, offset: usize, len: usize) -> Self {
        Self {
            flags,
            seq,
            offset,
            len,
        }
    }

    /// Whether the segment carries bytes that were never sent before.
    fn is_new_data(&self, pcb: &Pcb) -> bool {
        self.len > 0 && self.seq.ge(pcb.snd_nxt)
    }
}

impl Pcb {
    /// The largest window that can be announced to the peer.
    #[inline]
    pub(super) fn largest_window(&self) -> u32 {
        65535_u32.wrapping_shl(self.rcv_wscale.into())
    }
}

impl Tcp {
    /// Sends one segment of a connection whose path is current.
    pub(super) fn emit(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        out: &mut dyn Transmitter,
        emission: &Emission,
    ) -> Result<(), TransmitError> {
        let mut buffer = [0u8; HEADER_ROOM];
        let written = self.write_headers(cx, index, emission, &mut buffer);
        let end = written.transport + written.transport_len;
        let hops = self.hops(index);
        if let Some(hops) = hops {
            set_hops(&mut buffer[..written.transport], hops);
        }
        let pcb = &mut self.pcbs[index];
        if pcb.path.is_loopback() {
            let place = (emission.offset, emission.len);
            let payload = Queued::new(index, pcb, &self.payload, place).ok_or(TransmitError::TooLong)?;
            let ends = pcb.tuple;
            let hops = hops.unwrap_or(HOP_LIMIT);
            self.push_loopback(ends, &buffer[written.transport..end], payload, hops)?;
            self.note_sent(cx, index, &written, emission);
            return Ok(());
        }
        let payload = pcb
            .send_queue
            .gather(&self.payload, emission.offset, emission.len);
        if payload.len() != emission.len {
            let missing = pcb
                .send_queue
                .block_at(&self.payload, emission.offset + payload.len());
            return Err(match missing {
                // Another process must send it, or this one after it maps the peer's arena.
                Some(block) if !self.payload.is_mapped(block) => TransmitError::Full,
                // The chunk spans more blocks than one frame can name.
                _ => TransmitError::TooLong,
            });
        }
        let partial = self.checksum_offload;
        if !partial {
            fill_checksum(&mut buffer[written.transport..end], pcb, &payload);
        }
        // Data in a SYN are one segment, since no size is agreed yet.
        let is_super = emission.len > usize::from(pcb.mss) && !emission.flags.contains(Flags::SYN);
        let segment_size = if is_super { pcb.mss } else { 0 };
        let offload = Offload {
            checksum: if partial {
                Checksum::Partial
            } else {
                Checksum::Complete
            },
            segment_size,
        };
        out.transmit(&Transmit {
            headers: &buffer[..end],
            payload: &payload,
            offload,
        })?;
        if emission.len >= WORTH_AN_ARENA || emission.flags.contains(Flags::SYN) {
            self.pcbs[index].path.arena = out.payload_arena();
        }
        self.note_sent(cx, index, &written, emission);
        Ok(())
    }

    /// The hop limit of a connection's packets, if its program has set one.
    #[inline]
    fn hops(&self, index: u32) -> Option<u8> {
        let of_family = family(self.pcbs[index].tuple.local.is_ipv4());
        let hops = self.tuning(index)?.hops[of_family];
        (hops > 0).then_some(hops)
    }

    /// Writes Ethernet, IP and TCP headers into `buffer`. The checksum is zero.
    #[inline]
    fn write_headers(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        emission: &Emission,
        buffer: &mut [u8; HEADER_ROOM],
    ) -> Written {
        let pcb = &self.pcbs[index];
        if is_plain(pcb, emission) {
            // Specialised for this shape of header, which nearly all segments have.
            let header = Header {
                flags: emission.flags,
                window: self
                    .window_to_advertise(index)
                    .wrapping_shr(pcb.rcv_wscale.into())
                    .min(0xffff) as u16,
                ack: pcb.rcv_nxt,
                options: Options {
                    timestamps: Some(timestamps(cx, pcb)),
                    ..Options::NONE
                },
                ..bare_header(pcb, emission.seq)
            };
            let tos = pcb.settings.traffic_class;
            return write(cx, pcb, &header, tos, emission.len, buffer);
        }
        let header = self.header(cx, index, emission);
        let pcb = &self.pcbs[index];
        //= RFC 3168 §6.1.5 (retransmissions are not ECN-capable)
        let ecn = if pcb.has(flag::ECN) && emission.is_new_data(pcb) {
            ECT_0
        } else {
            0
        };
        let tos = pcb.settings.traffic_class | ecn;
        write(cx, pcb, &header, tos, emission.len, buffer)
    }

    fn header(&mut self, cx: &Context<'_>, index: u32, emission: &Emission) -> Header {
        let syn = emission.flags.contains(Flags::SYN);
        let window = self.window_to_advertise(index);
        let pcb = &self.pcbs[index];
        let mut flags = emission.flags;
        let options = if syn {
            self.syn_options(cx, index)
        } else {
            self.segment_options(cx, pcb, emission)
        };
        if pcb.has(flag::ECN) && !syn {
            if pcb.has(flag::ECN_ECHO) {
                flags |= Flags::ECE;
            }
            //= RFC 3168 §6.1.2 (CWR in the first new data after the window was reduced)
            if pcb.has(flag::ECN_CWR) && emission.is_new_data(pcb) {
                flags |= Flags::CWR;
            }
        }
        let mut urgent = 0;
        if pcb.has(flag::URGENT_OUT) && !syn && pcb.snd_up.gt(emission.seq) {
            //= RFC 6093 §3.1 (the pointer names the byte behind the urgent data)
            flags |= Flags::URG;
            urgent = pcb.snd_up.distance(emission.seq).min(0xffff) as u16;
        }
        //= RFC 7323 §2.2 (the window in a SYN is never scaled)
        let shift = if syn { 0 } else { pcb.rcv_wscale };
        Header {
            ack: if flags.contains(Flags::ACK) {
                pcb.rcv_nxt
            } else {
                Seq(0)
            },
            flags,
            window: window.wrapping_shr(shift.into()).min(0xffff) as u16,
            urgent,
            options,
            ..bare_header(pcb, emission.seq)
        }
    }

    #[inline]
    fn segment_options(&self, cx: &Context<'_>, pcb: &Pcb, emission: &Emission) -> Options {
        let mut options = Options::default();
        if pcb.has(flag::TIMESTAMPS)
            && (!emission.flags.contains(Flags::RST) || emission.flags.contains(Flags::ACK))
        {
            options.timestamps = Some(timestamps(cx, pcb));
        }
        if let Some(blocks) = self.blocks_beside(pcb, emission.len) {
            options.sack = blocks;
        }
        options
    }

    /// The SACK blocks of a segment with `len` bytes of payload. They go with data that leave room
    /// for all of them. Returns `None` if there are none, or a bare acknowledgement follows with
    /// them.
    //= RFC 2018 §4 (blocks are in all acknowledgements that do not acknowledge all there is)
    #[inline]
    fn blocks_beside(&self, pcb: &Pcb, len: usize) -> Option<SackBlocks> {
        if !pcb.has(flag::SACK) || (pcb.ranges == NONE && !pcb.has(flag::DSACK)) {
            return None;
        }
        let blocks = self.ranges.blocks_to_report(pcb);
        let room = usize::from(pcb.mss).checked_sub(len);
        (len == 0 || room.is_some_and(|room| blocks.room() <= room)).then_some(blocks)
    }

    /// The window to advertise: never less than before (RFC 9293 §3.8.6), and more only if it is
    /// worth a segment.
    //= RFC 9293 §3.8.6.2.2 (the receiver's side of silly window avoidance)
    #[inline]
    pub(super) fn window_to_advertise(&self, index: u32) -> u32 {
        let pcb = &self.pcbs[index];
        let standing = pcb.rcv_adv.after(pcb.rcv_nxt);
        let limit = self.receive_limit(pcb);
        let room = room_of(pcb, limit)
            .min(pcb.largest_window())
            .min(self.clamp(index));
        let worth = (limit / 2).min(pcb.rcv_mss.max(1).into());
        let below_granule = 1u32.wrapping_shl(pcb.rcv_wscale.into()) - 1;
        if room <= standing || room - standing < worth {
            let rounded = standing.wrapping_add(below_granule) & !below_granule;
            //= RFC 7323 §2.4 (what scaling cannot express: upwards the edge would creep beyond the buffer)
            return if rounded <= room {
                rounded
            } else {
                standing & !below_granule
            };
        }
        room & !below_granule
    }

    /// Updates the connection after a segment has left.
    #[inline]
    fn note_sent(&mut self, cx: &mut Context<'_>, index: u32, header: &Written, emission: &Emission) {
        cx.counters.tcp_segments_sent += 1;
        cx.counters.frames_sent += 1;
        self.count_out(cx.now, index, emission.len);
        let pcb = &mut self.pcbs[index];
        if emission.len > 0 || emission.flags.intersects(Flags::SYN | Flags::FIN) {
            pcb.last_sent = cx.now;
        }
        if emission.len > 0 {
            if pcb.unacked_received > 0 && cx.now.nanos_since(pcb.last_received) < super::data::INTERACTIVE_NS
            {
                pcb.set(flag::INTERACTIVE);
            }
            if emission.is_new_data(pcb) {
                pcb.clear(flag::ECN_CWR);
            }
        }
        // A probe from below the window is answered, and otherwise ignored, including its
        // acknowledgement (RFC 9293 §3.10.7.4).
        let syn = header.flags.contains(Flags::SYN);
        if !header.flags.contains(Flags::ACK) || (emission.seq.lt(pcb.snd_una) && !syn) {
            return;
        }
        let shift = if syn { 0 } else { pcb.rcv_wscale };
        self.grow_receive_buffer(cx.now, index);
        let pcb = &self.pcbs[index];
        let blocks_due = pcb.has(flag::SACK) && (pcb.ranges != NONE || pcb.has(flag::DSACK));
        let blocks_sent = blocks_due && self.blocks_beside(pcb, emission.len).is_some();
        let pcb = &mut self.pcbs[index];
        let edge = pcb.rcv_nxt + u32::from(header.window).wrapping_shl(shift.into());
        if edge.gt(pcb.rcv_adv) {
            pcb.rcv_adv = edge;
        }
        pcb.last_ack_sent = pcb.rcv_nxt;
        if blocks_sent || !blocks_due {
            pcb.clear(flag::ACK_NOW | flag::DSACK);
        }
        pcb.ack_at = Instant::NEVER;
        pcb.unacked_received = 0;
        pcb.quick_acks = pcb.quick_acks.saturating_sub(1);
    }
}

/// The layout of written headers.
struct Written {
    /// Offset of the TCP header.
    transport: usize,
    /// Length of the TCP header, bytes.
    transport_len: usize,
    flags: Flags,
    window: u16,
}

/// Whether the header has no option but timestamps, and no flag or urgent pointer to set.
#[inline]
fn is_plain(pcb: &Pcb, emission: &Emission) -> bool {
    let announces = flag::ECN | flag::URGENT_OUT | flag::DSACK;
    pcb.flags & (flag::TIMESTAMPS | announces) == flag::TIMESTAMPS
        && emission.flags & (Flags::SYN | Flags::RST | Flags::ACK) == Flags::ACK
        && pcb.ranges == NONE
}

/// A header of the connection without flags or options.
#[inline]
fn bare_header(pcb: &Pcb, seq: Seq) -> Header {
    Header {
        src_port: pcb.tuple.local_port,
        dst_port: pcb.tuple.remote_port,
        seq,
        ..Header::default()
    }
}

#[inline]
fn timestamps(cx: &Context<'_>, pcb: &Pcb) -> Timestamps {
    Timestamps {
        value: pcb.timestamp(cx.now),
        echo: pcb.ts_recent,
    }
}

/// Writes the headers of a segment with `len` bytes of payload.
#[inline(always)]
fn write(
    cx: &mut Context<'_>,
    pcb: &Pcb,
    header: &Header,
    tos: u8,
    len: usize,
    buffer: &mut [u8; HEADER_ROOM],
) -> Written {
    let transport_len = header.len();
    let transport = cx.ip.emit_headers(
        buffer,
        &pcb.path,
        pcb.tuple.local,
        pcb.tuple.remote,
        toehold_wire::protocol::TCP,
        tos,
        transport_len + len,
    );
    header.emit(&mut buffer[transport..]);
    Written {
        transport,
        transport_len,
        flags: header.flags,
        window: header.window,
    }
}

/// Completes the checksum of a header for its payload.
fn fill_checksum(header: &mut [u8], pcb: &Pcb, payload: &Gather<'_>) {
    let transport_len = (header.len() + payload.len()) as u32;
    let pseudo = checksum::pseudo_header(
        pcb.tuple.local.into(),
        pcb.tuple.remote.into(),
        toehold_wire::protocol::TCP,
        transport_len,
    );
    toehold_wire::tcp::set_checksum(header, pseudo, payload.checksum());
}
