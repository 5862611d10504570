//! Segments that stand for what a direct connection carries, for a capture.
//!
//! Direct connections have no segments. While a capture runs, an end reports segments of TCP for what
//! it sends and receives, at that moment. Positions in the stream are sequence numbers. A recorder
//! puts the segments into the capture.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::ops::Deref;

use super::end::End;
use super::lock::ThreadNumber;
use super::record::Record;

/// Most bytes of a segment: what a packet of IP holds, with room for headers.
const MOST_PAYLOAD: usize = 60_000;

/// Bit of an end's word of what was recorded: the end of the peer's stream was.
const PEER_ENDED: u64 = 1 << 63;

/// What a segment says beside its numbers and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ControlFlag {
    /// Nothing: it carries data, or an acknowledgement alone.
    None,
    /// SYN: it opens a stream.
    Open,
    /// FIN: it ends a stream.
    End,
    /// RST: it resets the connection.
    Reset,
}

/// A segment of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamSegment<'a> {
    /// Whether this side has sent it.
    pub is_sent: bool,
    /// This side's address.
    pub local: SocketAddr,
    /// The other side's address.
    pub remote: SocketAddr,
    /// The sequence number of its first byte.
    pub sequence: u32,
    /// The sequence number that its sender expects next; `None` in a first SYN.
    pub acknowledgement: Option<u32>,
    /// What it says beside that.
    pub control: ControlFlag,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// Puts segments into a capture.
pub trait SegmentRecorder: Send + Sync {
    /// Whether a capture runs.
    fn is_on(&self) -> bool;

    /// Whether the other side is another node's: otherwise it records what it sends itself.
    fn records_peer(&self) -> bool;

    /// Records a segment. Called with a lock of the end: it does not wait for other processes for
    /// longer than a moment.
    fn record(&self, thread: ThreadNumber, segment: &StreamSegment<'_>);
}

/// An end whose node is captured.
struct Recorded<'a> {
    recorder: &'a dyn SegmentRecorder,
    thread: ThreadNumber,
    record: Record,
    is_peers: bool,
}

impl Recorded<'_> {
    fn number(&self, position: u64) -> u32 {
        self.record.iss.wrapping_add(1).wrapping_add(position as u32)
    }

    fn put(
        &self,
        is_sent: bool,
        [sequence, acknowledgement]: [u32; 2],
        control: ControlFlag,
        payload: &[u8],
    ) {
        let segment = StreamSegment {
            is_sent,
            local: self.record.local,
            remote: self.record.remote,
            sequence,
            acknowledgement: Some(acknowledgement),
            control,
            payload,
        };
        self.recorder.record(self.thread, &segment);
    }

    /// Bytes at a position, in as many segments as they need.
    fn put_bytes(&self, is_sent: bool, from: u64, acknowledgement: u32, bytes: &[u8]) {
        let mut position = from;
        for payload in bytes.chunks(MOST_PAYLOAD) {
            let numbers = [self.number(position), acknowledgement];
            self.put(is_sent, numbers, ControlFlag::None, payload);
            position += payload.len() as u64;
        }
    }
}

impl<'a> End<'a> {
    /// What records for this end at present.
    #[inline]
    pub(super) fn recorder(&self) -> Option<&'a dyn SegmentRecorder> {
        let recorder = self.bank().recorder.as_deref()?;
        recorder.is_on().then_some(recorder)
    }

    fn recorded(&self, recorder: &'a dyn SegmentRecorder, thread: ThreadNumber) -> Option<Recorded<'a>> {
        Some(Recorded {
            recorder,
            thread,
            record: self.bank().half.record(self.id().number, self.id().generation)?,
            is_peers: recorder.records_peer(),
        })
    }

    /// What this side has received so far, and whether it has received the end.
    fn acknowledged(&self, recorded: &Recorded<'_>) -> u32 {
        let has_ended = self.own().state.recorded.load(Relaxed) & PEER_ENDED != 0;
        recorded.number(self.received() + u64::from(has_ended))
    }

    /// Records the handshake of a connection that this side has offered, or accepted.
    pub fn record_opening(&self, thread: ThreadNumber, is_connecting: bool) {
        let recorder = self.recorder();
        let Some(recorded) = recorder.and_then(|recorder| self.recorded(recorder, thread)) else {
            return;
        };
        if !recorded.is_peers && !is_connecting {
            return;
        }
        let (iss, next) = (recorded.record.iss, recorded.number(0));
        let syn = StreamSegment {
            is_sent: is_connecting,
            local: recorded.record.local,
            remote: recorded.record.remote,
            sequence: iss,
            acknowledgement: None,
            control: ControlFlag::Open,
            payload: &[],
        };
        recorded.recorder.record(thread, &syn);
        recorded.put(!is_connecting, [iss, next], ControlFlag::Open, &[]);
        recorded.put(is_connecting, [next, next], ControlFlag::None, &[]);
    }

    /// Records bytes that are about to be visible for the peer, from a position on. `parts` begin at
    /// position `start`. The caller has the write lock.
    #[cold]
    pub(super) fn record_sent(
        &self,
        (recorder, thread): (&'a dyn SegmentRecorder, ThreadNumber),
        parts: &[IoSlice<'_>],
        start: u64,
        (from, to): (u64, u64),
    ) {
        let recorded = self.recorded(recorder, thread).filter(|_| from != to);
        let Some(recorded) = recorded else {
            return;
        };
        if recorded.is_peers {
            self.record_receipt(&recorded, from);
        }
        let bytes = gathered(parts, (from - start) as usize, (to - from) as usize);
        recorded.put_bytes(true, from, self.acknowledged(&recorded), &bytes);
    }

    /// Records what the peer has read by now, if that is news. `sent`: what it may have read.
    fn record_receipt(&self, recorded: &Recorded<'_>, sent: u64) {
        let read = self.read_by_peer().min(sent);
        let known = self.own().state.recorded.fetch_max(read, AcqRel);
        // With the bit of the peer's end, the word is greater than any position.
        if known & PEER_ENDED == 0 && known < read {
            let numbers = [recorded.number(self.received()), recorded.number(read)];
            recorded.put(false, numbers, ControlFlag::None, &[]);
        }
    }

    /// Records bytes that were received from a position on, before the peer is told. The caller
    /// has the read lock.
    #[cold]
    pub(super) fn record_received(
        &self,
        (recorder, thread): (&'a dyn SegmentRecorder, ThreadNumber),
        into: &[IoSliceMut<'_>],
        (from, to): (u64, u64),
    ) {
        let Some(recorded) = self.recorded(recorder, thread) else {
            return;
        };
        let sent = self.sent();
        if recorded.is_peers {
            let read = self.read_by_peer().min(sent);
            self.own().state.recorded.fetch_max(read, AcqRel);
            let bytes = gathered(into, 0, (to - from) as usize);
            recorded.put_bytes(false, from, recorded.number(read), &bytes);
        }
        recorded.put(
            true,
            [recorded.number(sent), recorded.number(to)],
            ControlFlag::None,
            &[],
        );
    }

    /// Records that this side ends its stream, or resets the connection, at a position. The caller
    /// has the write lock.
    pub(super) fn record_end(&self, thread: ThreadNumber, control: ControlFlag, at: u64) {
        let recorder = self.recorder();
        if let Some(recorded) = recorder.and_then(|recorder| self.recorded(recorder, thread)) {
            let numbers = [recorded.number(at), self.acknowledged(&recorded)];
            recorded.put(true, numbers, control, &[]);
        }
    }

    /// Records that the peer's stream ends at a position, or that the peer has reset the connection,
    /// once.
    pub(super) fn record_peer_end(&self, thread: ThreadNumber, control: ControlFlag, at: u64) {
        let recorder = self.recorder();
        let Some(recorded) = recorder.and_then(|recorder| self.recorded(recorder, thread)) else {
            return;
        };
        let was = self.own().state.recorded.fetch_or(PEER_ENDED, AcqRel);
        if was & PEER_ENDED != 0 {
            return;
        }
        let sent = recorded.number(self.sent());
        if recorded.is_peers {
            let read = recorded.number(self.read_by_peer().min(self.sent()));
            recorded.put(false, [recorded.number(at), read], control, &[]);
        }
        if control == ControlFlag::End {
            recorded.put(true, [sent, recorded.number(at + 1)], ControlFlag::None, &[]);
        }
    }
}

/// So many bytes of the parts, after those that are skipped.
fn gathered<P: Deref<Target = [u8]>>(parts: &[P], skipped: usize, len: usize) -> Vec<u8> {
    let all = parts.iter().flat_map(|part| part.iter().copied());
    all.skip(skipped).take(len).collect()
}
