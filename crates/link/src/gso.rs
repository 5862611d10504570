//! Cuts a super-frame, or any long TCP frame, into frames that fit. A network
//! card's segmentation offload does this; media and receivers without one need it
//! here.

use core::ops::Range;

use toehold_shm::Gather;

use crate::layout::{Layout, Transport, copy_from};
use crate::{Checksum, Offload, Transmit};

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const URG: u8 = 0x20;
const CWR: u8 = 0x80;

/// Iterates over the segments of a long frame, in order.
///
/// A checksum field holds the pseudo-header's sum, as [`Checksum::Partial`] allows.
/// Completing it needs the payload, which stays in place.
#[derive(Debug)]
pub(crate) struct Segments {
    layout: Layout,
    /// The headers of the long frame, from which each segment's are made.
    original: Box<[u8]>,
    headers: Box<[u8]>,
    payload_len: usize,
    size: usize,
    at: usize,
}

/// A segment: its headers, and the range of its payload in the long frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    pub(crate) headers: &'a [u8],
    /// Offsets from the beginning of the long frame.
    pub(crate) payload: Range<usize>,
}

impl Segment<'_> {
    /// Copies the whole segment into `bytes`, with payload from the long frame. Its
    /// checksum stays partial.
    pub(crate) fn put_together<'b>(&self, long: &Transmit<'_>, bytes: &'b mut Vec<u8>) -> Transmit<'b> {
        bytes.resize(self.headers.len() + self.payload.len(), 0);
        let (headers, payload) = bytes.split_at_mut(self.headers.len());
        headers.copy_from_slice(self.headers);
        copy_from(long, self.payload.start, payload);
        Transmit {
            headers: bytes,
            payload: &Gather::EMPTY,
            offload: Offload {
                checksum: Checksum::Partial,
                segment_size: 0,
            },
        }
    }
}

impl Segments {
    /// Prepares to cut a frame of `frame_len` bytes that begins with `beginning`,
    /// into at most `size` bytes of payload each. Returns `None` if there is
    /// nothing to cut.
    pub(crate) fn new(layout: Layout, beginning: &[u8], frame_len: usize, size: usize) -> Option<Segments> {
        let payload_len = frame_len.checked_sub(layout.payload)?;
        if size == 0 || payload_len == 0 {
            return None;
        }
        let original = Box::from(beginning.get(..layout.payload)?);
        Some(Segments {
            layout,
            headers: Box::clone(&original),
            original,
            payload_len,
            size,
            at: 0,
        })
    }

    /// Returns the next segment.
    pub(crate) fn next(&mut self) -> Option<Segment<'_>> {
        let at = self.at;
        if at >= self.payload_len {
            return None;
        }
        let len = self.size.min(self.payload_len - at);
        self.at += len;
        self.headers.copy_from_slice(&self.original);
        match self.layout.protocol {
            Transport::Tcp => self.place_in_stream(at, at + len == self.payload_len),
            Transport::Udp => {}
        }
        self.number(at / self.size);
        let packet_len = self.layout.payload - self.layout.network + len;
        // The segment is shorter than the long frame, whose length was
        // possible.
        self.layout.set_packet_len(&mut self.headers, packet_len);
        let sum = self.layout.pseudo_sum(&self.headers, packet_len);
        self.headers[self.layout.checksum()].copy_from_slice(&sum.to_be_bytes());
        let start = self.layout.payload + at;
        Some(Segment {
            headers: &self.headers,
            payload: start..start + len,
        })
    }

    /// Sets the TCP header fields that depend on a segment's position in the
    /// stream.
    fn place_in_stream(&mut self, at: usize, is_last: bool) {
        let header = &mut self.headers[self.layout.transport..];
        let seq = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        header[4..8].copy_from_slice(&seq.wrapping_add(at as u32).to_be_bytes());
        if !is_last {
            header[13] &= !(FIN | PSH);
        }
        if at == 0 {
            return;
        }
        //= RFC 3168 §6.1.2 (CWR stands in the first segment)
        header[13] &= !CWR;
        //= RFC 9293 §3.1 (the urgent pointer counts from the segment's sequence number)
        let urgent = usize::from(u16::from_be_bytes([header[18], header[19]]));
        if header[13] & URG != 0 {
            match urgent.checked_sub(at) {
                Some(left) => header[18..20].copy_from_slice(&(left as u16).to_be_bytes()),
                None => header[13] &= !URG,
            }
        }
    }

    /// Advances the identification of IPv4 packets.
    fn number(&mut self, index: usize) {
        if self.layout.is_v4 {
            let field = &mut self.headers[self.layout.network + 4..self.layout.network + 6];
            let id = u16::from_be_bytes([field[0], field[1]]).wrapping_add(index as u16);
            field.copy_from_slice(&id.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use toehold_wire::checksum::{is_valid, sum};

    use super::*;
    use crate::checksum::complete;
    use crate::test_frames::{PARTIAL, tcp_ipv4, tcp_ipv6_vlan, udp_ipv4};

    /// Returns all segments with complete checksums.
    fn segments(frame: &[u8], size: usize) -> Vec<Vec<u8>> {
        let layout = Layout::of(frame).unwrap();
        let mut segments = Segments::new(layout, frame, frame.len(), size).unwrap();
        let mut all = Vec::new();
        while let Some(segment) = segments.next() {
            let mut whole = segment.headers.to_vec();
            whole.extend_from_slice(&frame[segment.payload]);
            complete(&mut whole, true, &mut PARTIAL.clone());
            all.push(whole);
        }
        all
    }

    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / 7) as u8).collect()
    }

    #[test]
    //= RFC 3168 §6.1.2
    fn tcp_segments_are_consecutive() {
        for make in [tcp_ipv4, tcp_ipv6_vlan] {
            let mut frame = make(&payload(3000));
            let layout = Layout::of(&frame).unwrap();
            frame[layout.transport + 13] = FIN | PSH | CWR | 0x10;
            let cut = segments(&frame, 1448);
            assert_eq!(cut.len(), 3);
            let flags: Vec<_> = cut.iter().map(|segment| segment[layout.transport + 13]).collect();
            assert_eq!(flags, [CWR | 0x10, 0x10, FIN | PSH | 0x10]);
            let seqs: Vec<_> = cut
                .iter()
                .map(|segment| u32::from_be_bytes(*segment[layout.transport + 4..].first_chunk().unwrap()))
                .collect();
            assert_eq!(seqs, [1, 1449, 2897]);
            for segment in &cut {
                let found = Layout::of(segment).unwrap();
                assert_eq!(found, layout);
                assert_eq!(found.packet_len(segment), segment.len() - layout.network);
                if layout.is_v4 {
                    assert!(is_valid(sum(&segment[layout.network..layout.transport])));
                }
            }
        }
    }

    #[test]
    fn udp_datagrams_get_own_lengths() {
        let cut = segments(&udp_ipv4(&payload(250)), 100);
        let lens: Vec<_> = cut
            .iter()
            .map(|datagram| u16::from_be_bytes([datagram[38], datagram[39]]))
            .collect();
        assert_eq!(lens, [108, 108, 58]);
        let ids: Vec<_> = cut
            .iter()
            .map(|datagram| u16::from_be_bytes([datagram[18], datagram[19]]))
            .collect();
        assert_eq!(ids, [1, 2, 3]);
    }

    #[test]
    //= RFC 9293 §3.1
    fn urgent_pointer_keeps_its_position() {
        let mut frame = tcp_ipv4(&payload(300));
        frame[47] |= URG;
        frame[52..54].copy_from_slice(&150u16.to_be_bytes());
        let cut = segments(&frame, 100);
        let urgent: Vec<_> = cut
            .iter()
            .map(|segment| (segment[47] & URG != 0).then(|| u16::from_be_bytes([segment[52], segment[53]])))
            .collect();
        assert_eq!(urgent, [Some(150), Some(50), None]);
    }

    #[test]
    fn short_frame_gives_no_segments() {
        let frame = tcp_ipv4(b"");
        let layout = Layout::of(&frame).unwrap();
        assert!(Segments::new(layout, &frame, frame.len(), 1000).is_none());
        let frame = tcp_ipv4(b"x");
        assert!(Segments::new(layout, &frame, frame.len(), 0).is_none());
        assert!(Segments::new(layout, &frame, 10, 1000).is_none());
    }

    proptest! {
        #[test]
        fn segments_hold_whole_frame(len in 1usize..5000, size in 1usize..3000, v6: bool) {
            let bytes = payload(len);
            let frame = if v6 { tcp_ipv6_vlan(&bytes) } else { tcp_ipv4(&bytes) };
            let layout = Layout::of(&frame).unwrap();
            let cut = segments(&frame, size);
            prop_assert_eq!(cut.len(), len.div_ceil(size));
            let together: Vec<u8> = cut.iter().flat_map(|segment| &segment[layout.payload..]).copied().collect();
            prop_assert_eq!(together, bytes);
            for segment in &cut {
                // With the checksum in place, pseudo-header and segment sum up
                // to -0.
                let transport = sum(&segment[layout.transport..]);
                let pseudo = u32::from(layout.pseudo_sum(segment, segment.len() - layout.network));
                prop_assert!(is_valid(transport + pseudo));
            }
        }
    }
}
