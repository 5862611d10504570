//! Merges consecutive TCP segments into super-frames, as network cards and the
//! kernel do (generic receive offload).

use crate::layout::{Layout, Transport};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const URG: u8 = 0x20;
const CWR: u8 = 0x80;
/// Flags that any segment of a row may have.
const ANYWHERE: u8 = FIN | PSH | CWR;
/// Longest IP packet.
const MAX_PACKET: usize = 65_535;

/// A row of segments, as a pattern for the next one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    layout: Layout,
    /// Payload length of each segment but the last.
    size: usize,
    /// Payload length of the whole row.
    len: usize,
    /// Flags of the last segment.
    flags: u8,
}

impl Row {
    /// Begins a row. Returns `None` if no segment can follow this frame.
    pub(super) fn begin(frame: &[u8]) -> Option<Row> {
        let layout = Layout::of(frame).filter(|layout| layout.protocol == Transport::Tcp)?;
        let size = payload_len(&layout, frame)?;
        let flags = frame[layout.transport + 13];
        (size > 0 && flags & (FIN | SYN | RST | PSH | URG) == 0).then_some(Row {
            layout,
            size,
            len: size,
            flags,
        })
    }

    /// Adds a frame to the row that `first` begins. Returns the offset of its
    /// payload, or `None` if it does not continue the row.
    pub(super) fn add(&mut self, first: &[u8], frame: &[u8]) -> Option<usize> {
        let ended = self.flags & (FIN | PSH) != 0 || !self.len.is_multiple_of(self.size);
        if ended || Layout::of(frame) != Some(self.layout) {
            return None;
        }
        let len = payload_len(&self.layout, frame)?;
        let flags = frame[self.layout.transport + 13];
        let header_len = self.layout.payload - self.layout.network;
        let fits = (1..=self.size).contains(&len) && header_len + self.len + len <= MAX_PACKET;
        if !fits || flags & (SYN | RST | URG | CWR) != 0 || !self.is_continued(first, frame) {
            return None;
        }
        self.len += len;
        self.flags = flags;
        Some(self.layout.payload)
    }

    /// Sets the first frame's headers for the whole row.
    pub(super) fn finish(&self, first: &mut [u8]) {
        let packet_len = self.layout.payload - self.layout.network + self.len;
        self.layout.set_packet_len(first, packet_len);
        first[self.layout.transport + 13] |= self.flags & (FIN | PSH);
    }

    /// Payload length of each segment but the last.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns whether the frame comes next and differs in no other relevant field.
    fn is_continued(&self, first: &[u8], frame: &[u8]) -> bool {
        let Layout {
            network,
            transport,
            payload,
            is_v4,
            ..
        } = self.layout;
        let same = |from: usize, to: usize| first[from..to] == frame[from..to];
        let same_ip = if is_v4 {
            // Length, identification and checksum may differ.
            same(network, network + 2) && same(network + 6, network + 10) && same(network + 12, transport)
        } else {
            same(network, network + 4) && same(network + 6, transport)
        };
        let seq = |frame: &[u8]| u32::from_be_bytes([0, 1, 2, 3].map(|at| frame[transport + 4 + at]));
        let flags = |frame: &[u8]| frame[transport + 13] & !ANYWHERE;
        same(0, network)
            && same_ip
            && same(transport, transport + 4)
            && seq(frame) == seq(first).wrapping_add(self.len as u32)
            && same(transport + 8, transport + 13)
            && flags(first) == flags(frame)
            && same(transport + 14, transport + 16)
            && same(transport + 18, payload)
    }
}

/// Returns the payload length, or `None` if the frame's length differs from its
/// headers'.
fn payload_len(layout: &Layout, frame: &[u8]) -> Option<usize> {
    let end = layout.network + layout.packet_len(frame);
    (end == frame.len()).then(|| end - layout.payload)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gso::Segments;
    use crate::test_frames::{tcp_ipv4, tcp_ipv6_vlan, udp_ipv4};

    fn cut(frame: &[u8], size: usize) -> Vec<Vec<u8>> {
        let mut segments = Segments::new(Layout::of(frame).unwrap(), frame, frame.len(), size).unwrap();
        let mut all = Vec::new();
        while let Some(segment) = segments.next() {
            all.push([segment.headers, &frame[segment.payload]].concat());
        }
        all
    }

    /// Merges the first frames as far as possible. Returns the result and their
    /// number.
    fn merged(frames: &[Vec<u8>]) -> (Vec<u8>, usize) {
        let mut whole = frames[0].clone();
        let Some(mut row) = Row::begin(&whole) else {
            return (whole, 1);
        };
        let mut count = 1;
        for frame in &frames[1..] {
            let Some(at) = row.add(&frames[0], frame) else {
                break;
            };
            whole.extend_from_slice(&frame[at..]);
            count += 1;
        }
        row.finish(&mut whole);
        (whole, count)
    }

    proptest! {
        #[test]
        fn cut_segments_are_merged_again(len in 1usize..5000, size in 1usize..3000, v6: bool, last: bool) {
            let bytes: Vec<u8> = (0..len).map(|at| (at / 5) as u8).collect();
            let mut frame = if v6 { tcp_ipv6_vlan(&bytes) } else { tcp_ipv4(&bytes) };
            let layout = Layout::of(&frame).unwrap();
            frame[layout.transport + 13] = if last { 0x98 } else { 0x10 };
            let pieces = cut(&frame, size);
            let (mut whole, count) = merged(&pieces);
            prop_assert_eq!(count, pieces.len());
            let packet_len = frame.len() - layout.network;
            layout.set_packet_len(&mut frame, packet_len);
            for bytes in [&mut whole, &mut frame] {
                bytes[layout.checksum()].fill(0);
            }
            prop_assert_eq!(whole, frame);
        }

        #[test]
        fn changed_header_ends_row(at in 0usize..54, bit in 0u8..8) {
            let mut pieces = cut(&tcp_ipv4(&[0; 300]), 100);
            pieces.iter_mut().for_each(|piece| piece[47] = 0x10);
            pieces[1][at] ^= 1 << bit;
            // Identification, checksums, and flags that may come with the last
            // segment.
            let immaterial = matches!(at, 18..20 | 24..26 | 50..52) || (at == 47 && [0, 3].contains(&bit));
            let (_, count) = merged(&pieces);
            let ended = at == 47;
            prop_assert_eq!(count, if !immaterial { 1 } else if ended { 2 } else { 3 });
        }
    }

    #[test]
    fn other_frames_begin_no_row() {
        assert!(Row::begin(&udp_ipv4(&[0; 100])).is_none());
        assert!(Row::begin(&tcp_ipv4(&[])).is_none());
        let mut padded = tcp_ipv4(&[0; 4]);
        padded[47] = 0x10;
        assert!(Row::begin(&padded).is_some());
        padded.push(0);
        assert!(Row::begin(&padded).is_none());
    }

    #[test]
    fn row_is_not_longer_than_packet() {
        let mut first = tcp_ipv4(&[0; 60_000]);
        first[47] = 0x10;
        let mut row = Row::begin(&first).unwrap();
        let mut next = first.clone();
        next[38..42].copy_from_slice(&60_001u32.to_be_bytes());
        assert_eq!(row.add(&first, &next), None);
    }
}
