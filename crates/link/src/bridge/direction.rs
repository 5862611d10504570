//! One direction of a bridge: passes frames on, and finishes or cuts them where
//! needed.

use toehold_shm::Gather;

use super::held::Held;
use super::statistics::BridgeStatistics;
use super::too_long::{Allowance, exceeds, fragments, report};
use crate::checksum::complete;
use crate::gso::Segments;
use crate::layout::{Layout, Transport, with_headers};
use crate::loopback::copy_frame;
use crate::steering::{Flow, Steering};
use crate::{Capabilities, Checksum, Link, Offload, Received, Transmit, TransmitError};

/// Most frames of one burst, and about how many bytes. A larger burst of
/// super-frames would fill the other link's ring and then wait in memory, which
/// costs another copy.
const BURST: usize = 64;
const BURST_BYTES: usize = 256 << 10;
/// Most frames of one burst while others wait for room.
const CAUTIOUS_BURST: usize = 4;
/// Shortest frame: its Ethernet header.
const MIN_FRAME: usize = 14;
/// Longest header in front of an IP packet: Ethernet with two VLAN tags.
pub(super) const MAX_LINK_HEADER: usize = 22;
/// Most segments of an honest super-frame: 64 KB in pieces of 48 bytes.
const MAX_SEGMENTS: usize = 1400;
/// Most reports of packets that are too long, in a round.
const MAX_REPORTS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Direction {
    /// The only permitted sender; `None` permits all.
    source: Option<[u8; 6]>,
    /// The shard whose share of the frames passes; `None` passes all.
    share: Option<Steering>,
    held: Held,
    /// Mean length of the frames of the last burst.
    mean_len: usize,
    /// Buffer for a frame in one piece, whose checksums are filled in.
    scratch: Vec<u8>,
    /// Buffer for a segment of a cut frame.
    segment: Vec<u8>,
    /// Buffer for a frame with headers in several pieces.
    whole: Vec<u8>,
    /// Frames for the link that this direction receives from.
    reports: Vec<Vec<u8>>,
    allowance: Allowance,
    statistics: BridgeStatistics,
}

impl Direction {
    pub(super) fn only_from(&mut self, source: [u8; 6]) {
        self.source = Some(source);
    }

    pub(super) fn only_share_of(&mut self, steering: Steering) {
        self.share = Some(steering);
    }

    pub(super) fn statistics(&self) -> BridgeStatistics {
        self.statistics
    }

    /// Returns whether no frame waits for room.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Passes a burst from one link to the other. Returns the number of frames that
    /// came or no longer wait.
    pub(super) fn round(&mut self, now_ns: u64, from: &mut impl Link, to: &mut impl Link) -> usize {
        let mut moved = 0;
        if !self.held.is_empty() {
            moved = self.held.retry(now_ns, to, &mut self.statistics);
        }
        let can = to.capabilities();
        // Without a budget, the link still does its housekeeping.
        let budget = match (self.is_stalled(), self.is_empty()) {
            (true, _) => 0,
            (false, false) => CAUTIOUS_BURST,
            (false, true) => (BURST_BYTES / self.mean_len.max(1)).clamp(CAUTIOUS_BURST, BURST),
        };
        let before = self.statistics.bytes;
        let came = from.receive(now_ns, budget, &mut |frame| self.pass(now_ns, frame, to, can));
        if let Some(mean) = (self.statistics.bytes - before).checked_div(came as u64) {
            self.mean_len = mean as usize;
        }
        for report in self.reports.drain(..) {
            // A lost report is repeated for the next packet.
            let _ = from.transmit(&in_one_piece(&report));
        }
        moved + came
    }

    /// Returns whether no frames are taken until some have found room.
    pub(super) fn is_stalled(&self) -> bool {
        self.held.is_enough()
    }

    fn pass(&mut self, now_ns: u64, frame: &Received<'_>, to: &mut impl Link, can: Capabilities) {
        let len = frame.len();
        self.statistics.frames += 1;
        self.statistics.bytes += len as u64;
        let Some(source) = frame.private.get(6..12).filter(|_| len >= MIN_FRAME) else {
            self.statistics.too_short += 1;
            return;
        };
        if self.source.is_some_and(|own| own != source) {
            self.statistics.foreign += 1;
            return;
        }
        if self.share.is_some_and(|share| !is_in(&share, frame.private)) {
            self.statistics.others += 1;
            return;
        }
        let Offload {
            checksum,
            segment_size,
        } = frame.offload;
        let is_super = segment_size != 0;
        if is_super {
            self.statistics.super_frames += 1;
            if len / usize::from(segment_size) > MAX_SEGMENTS {
                self.statistics.bad_super_frames += 1;
                return;
            }
        }
        let mut whole = std::mem::take(&mut self.whole);
        let frame = Transmit {
            headers: frame.private,
            payload: &frame.rest,
            offload: frame.offload,
        };
        let frame = &with_headers(&frame, &mut whole);
        let packet = if is_super {
            can.super_frame as usize
        } else {
            usize::from(can.mtu)
        };
        if exceeds(frame.headers, len, packet) {
            self.cut(now_ns, frame, to, can);
        } else if checksum == Checksum::Partial && !can.checksum_offload {
            self.finish(now_ns, frame, to);
        } else {
            self.put(now_ns, frame, to);
        }
        self.whole = whole;
    }

    /// Passes a frame to the link, or keeps it until there is room.
    fn put(&mut self, now_ns: u64, frame: &Transmit<'_>, to: &mut impl Link) {
        let destination = frame.headers.get(..6).unwrap_or_default();
        let sent = if !self.held.is_empty() && self.held.concerns(destination) {
            Err(TransmitError::Full)
        } else {
            to.transmit(frame)
        };
        match sent {
            Ok(()) => {
                self.statistics.forwarded += 1;
                self.held.note_sent(destination);
            }
            Err(TransmitError::Full) if self.held.is_stuck(destination) => self.statistics.late += 1,
            Err(TransmitError::Full) => match self.held.keep(now_ns, frame) {
                true => self.statistics.held += 1,
                false => self.statistics.crowded += 1,
            },
            Err(TransmitError::Unreachable) => self.statistics.unreachable += 1,
            Err(TransmitError::TooLong) => self.statistics.too_long += 1,
        }
    }

    /// Fills in the checksums for a link that does not.
    fn finish(&mut self, now_ns: u64, frame: &Transmit<'_>, to: &mut impl Link) {
        self.statistics.completed += 1;
        let mut scratch = std::mem::take(&mut self.scratch);
        copy_frame(frame, &mut scratch);
        let mut offload = frame.offload;
        complete(&mut scratch, true, &mut offload);
        let finished = Transmit {
            headers: &scratch,
            payload: &Gather::EMPTY,
            offload,
        };
        self.put(now_ns, &finished, to);
        self.scratch = scratch;
    }

    /// Cuts a frame into pieces that the link carries, and passes them on.
    fn cut(&mut self, now_ns: u64, frame: &Transmit<'_>, to: &mut impl Link, can: Capabilities) {
        let Some(mut segments) = segments(frame, can) else {
            return self.fragment(now_ns, frame, to, can);
        };
        // A wrong checksum must not become right.
        if frame.offload.checksum == Checksum::Complete && !self.is_intact(frame) {
            self.statistics.bad_checksums += 1;
            return;
        }
        self.statistics.segmented += 1;
        let mut bytes = std::mem::take(&mut self.segment);
        while let Some(segment) = segments.next() {
            let piece = segment.put_together(frame, &mut bytes);
            match can.checksum_offload {
                true => self.put(now_ns, &piece, to),
                false => self.finish(now_ns, &piece, to),
            }
        }
        self.segment = bytes;
    }

    /// Passes a packet that cannot be cut to the link in fragments, or reports
    /// it to its sender.
    #[cold]
    fn fragment(&mut self, now_ns: u64, frame: &Transmit<'_>, to: &mut impl Link, can: Capabilities) {
        let mut scratch = std::mem::take(&mut self.scratch);
        copy_frame(frame, &mut scratch);
        let mut offload = frame.offload;
        complete(&mut scratch, true, &mut offload);
        let mtu = usize::from(can.mtu);
        let is_one = frame.offload.segment_size == 0;
        if let Some(fragments) = fragments(&scratch, mtu).filter(|_| is_one) {
            self.statistics.fragmented += 1;
            for fragment in fragments {
                self.put(now_ns, &in_one_piece(&fragment), to);
            }
        } else {
            self.statistics.too_long += 1;
            if self.reports.len() < MAX_REPORTS
                && let Some(report) = report(&scratch, mtu)
                && self.allowance.take(now_ns)
            {
                self.statistics.reported += 1;
                self.reports.push(report);
            }
        }
        self.scratch = scratch;
    }

    fn is_intact(&mut self, frame: &Transmit<'_>) -> bool {
        copy_frame(frame, &mut self.scratch);
        Layout::of(&self.scratch).is_some_and(|layout| layout.is_intact(&self.scratch))
    }
}

fn in_one_piece(frame: &[u8]) -> Transmit<'_> {
    Transmit {
        headers: frame,
        payload: &Gather::EMPTY,
        offload: Offload::default(),
    }
}

/// Returns whether a frame belongs to a shard. Each shard has the segments and
/// datagrams of its flows. Other frames belong to the first one, which passes them
/// to all.
fn is_in(share: &Steering, frame: &[u8]) -> bool {
    match Flow::of_frame(frame) {
        Some(flow) => share.is_own(&flow),
        None => share.index == 0,
    }
}

/// Returns the segments into which a link's frame is cut. A stream may be cut
/// anywhere, a super-frame of datagrams only between datagrams.
fn segments(frame: &Transmit<'_>, can: Capabilities) -> Option<Segments> {
    let layout = Layout::of(frame.headers)?;
    let room = usize::from(can.mtu).checked_sub(layout.payload - layout.network)?;
    let own = usize::from(frame.offload.segment_size);
    let size = match layout.protocol {
        Transport::Tcp if own == 0 => room,
        Transport::Tcp => own.min(room),
        Transport::Udp if own == 0 || own > room => return None,
        Transport::Udp => own,
    };
    let payload = frame.len() - layout.payload;
    let honest = size != 0 && payload.div_ceil(size) <= MAX_SEGMENTS;
    Segments::new(layout, frame.headers, frame.len(), size).filter(|_| honest)
}
