//! Reassembles fragmented IPv4 and IPv6 datagrams.
//!
//! There is a small fixed number of datagrams. Each has a buffer of its own and a map of the 8-byte
//! units that have arrived. No two fragments may disagree: the first overlap discards a datagram
//! for good. A flood of fragments can only push out datagrams of other senders.

use super::state::State;
use crate::time::Instant;
use crate::tuple::Address;
use toehold_shm::{Carver, OutOfMemory, Table};
use toehold_wire::{ipv4, ipv6};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Datagrams in reassembly at once.
const DATAGRAMS: usize = 8;
/// Longest headers in front of the fragmented part: IPv4's largest, or IPv6's
/// with 80 bytes of extension headers and the fragment header.
pub(super) const HEADER_ROOM: usize = 128;
/// Room for the largest datagram.
const BUFFER: usize = HEADER_ROOM + (1 << 16);
/// Most bytes of an IP packet that this stack examines as a whole.
pub(super) const LARGEST_PACKET: usize = BUFFER;
const UNIT: usize = 8;
/// Words of 64 units in the map of a datagram.
const WORDS: usize = (1 << 16) / UNIT / 64;

/// The time in which a datagram must be complete after its first fragment.
//= RFC 1122 §3.3.2
//= RFC 8200 §4.5
const LIFETIME: u64 = 60_000_000_000;

const FREE: u8 = 0;
const OPEN: u8 = 1;
/// The datagram had fragments that disagree: later fragments are refused too.
const POISONED: u8 = 2;

/// Above the most bytes of a datagram's fragmented part: the length is not known yet.
const UNKNOWN: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Datagram {
    key: Key,
    deadline: Instant,
    /// Bytes of the whole fragmented part.
    total: u32,
    /// Units that have arrived.
    units: u32,
    /// End of the furthest byte that has arrived.
    reach: u32,
    /// Bytes of the first fragment.
    first_len: u16,
    /// Bytes of the headers in front of the first fragment; 0: not received yet.
    header_len: u8,
    /// Bit `n`: a fragment had `n` in its ECN field.
    ecn: u8,
    state: u8,
    reserved: [u8; 7],
}

/// Fields that the fragments of a datagram have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Key {
    pub(super) source: Address,
    pub(super) destination: Address,
    pub(super) id: u32,
    /// For IPv4 the protocol, for IPv6 0.
    pub(super) protocol: u32,
}

/// A fragment that arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) key: Key,
    /// The headers in front, for IPv6 up to and including the fragment header.
    pub(super) header: &'a [u8],
    pub(super) data: &'a [u8],
    /// Offset of `data` in the datagram, in bytes.
    pub(super) offset: u16,
    /// Whether other fragments follow.
    pub(super) more: bool,
    pub(super) ecn: u8,
}

/// The result of inserting a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Stored, or a duplicate.
    Kept,
    /// Refused.
    Refused,
    /// The datagram is complete: an IP packet.
    Complete(usize),
}

/// The datagrams: handles to their state.
pub(super) struct Fragments {
    datagrams: Table<Datagram>,
    maps: Table<u64>,
    bytes: Table<u8>,
}

impl Fragments {
    pub(super) fn bytes_needed() -> usize {
        Table::<Datagram>::bytes_needed(DATAGRAMS)
            + Table::<u64>::bytes_needed(DATAGRAMS * WORDS)
            + Table::<u8>::bytes_needed(DATAGRAMS * BUFFER)
    }

    // Fresh memory is all zero, which is free datagrams.
    pub(super) fn create(carver: &mut Carver) -> Result<Self, OutOfMemory> {
        Ok(Self {
            datagrams: carver.table(DATAGRAMS)?,
            maps: carver.table(DATAGRAMS * WORDS)?,
            bytes: carver.table(DATAGRAMS * BUFFER)?,
        })
    }

    /// Discards all datagrams. It may be called after a process died in the middle of a change.
    pub(super) fn forget(&mut self) {
        self.datagrams.as_mut_bytes().fill(0);
    }

    /// Inserts a fragment. Its data must begin on a unit and must not exceed the largest datagram.
    pub(super) fn insert(&mut self, now: Instant, piece: &Piece<'_>, state: &mut State) -> Outcome {
        let end = usize::from(piece.offset) + piece.data.len();
        let off_unit =
            !usize::from(piece.offset).is_multiple_of(UNIT) || (piece.more && !end.is_multiple_of(UNIT));
        if off_unit
            || piece.data.is_empty()
            || end > usize::from(u16::MAX)
            || piece.header.len() > HEADER_ROOM
        {
            return Outcome::Refused;
        }
        let slot = self
            .find(&piece.key)
            .unwrap_or_else(|| self.open(now, piece.key, state));
        if self.datagrams[slot].state != OPEN {
            return Outcome::Refused;
        }
        if self.contradicts(slot, piece, end) {
            //= RFC 5722 §4
            //= RFC 8200 §4.5
            // The datagram is discarded, together with fragments that are yet to arrive.
            self.datagrams[slot].state = POISONED;
            return Outcome::Refused;
        }
        self.keep(slot, piece, end);
        let datagram = &self.datagrams[slot];
        let complete = datagram.total != UNKNOWN
            && datagram.header_len != 0
            && datagram.units as usize * UNIT >= datagram.total as usize;
        if complete {
            Outcome::Complete(slot)
        } else {
            Outcome::Kept
        }
    }

    fn find(&self, key: &Key) -> Option<usize> {
        self.datagrams
            .iter()
            .position(|datagram| datagram.state != FREE && datagram.key == *key)
    }

    /// Makes room for a datagram: in a free slot, or in place of a poisoned datagram or the oldest
    /// one.
    fn open(&mut self, now: Instant, key: Key, state: &mut State) -> usize {
        let age = |slot: &usize| {
            (
                self.datagrams[*slot].state == OPEN,
                self.datagrams[*slot].deadline,
            )
        };
        let free = self.datagrams.iter().position(|datagram| datagram.state == FREE);
        let slot = free.or_else(|| (0..DATAGRAMS).min_by_key(age)).unwrap_or(0);
        let deadline = now.plus_nanos(LIFETIME);
        self.datagrams[slot] = Datagram {
            key,
            deadline,
            total: UNKNOWN,
            units: 0,
            reach: 0,
            first_len: 0,
            header_len: 0,
            ecn: 0,
            state: OPEN,
            reserved: [0; 7],
        };
        self.maps[slot * WORDS..(slot + 1) * WORDS].fill(0);
        state.wake_at(deadline);
        slot
    }

    /// Whether a fragment contradicts the data received so far. An exact duplicate does not.
    fn contradicts(&self, slot: usize, piece: &Piece<'_>, end: usize) -> bool {
        let datagram = &self.datagrams[slot];
        let total = datagram.total as usize;
        // No data may lie behind the last fragment, and some must lie behind all others.
        let past_the_end = match (piece.more, datagram.total != UNKNOWN) {
            (true, true) => end >= total,
            (true, false) => false,
            (false, true) => end != total,
            (false, false) => end <= datagram.reach as usize,
        };
        if past_the_end {
            return true;
        }
        let (first, last) = (usize::from(piece.offset) / UNIT, end.div_ceil(UNIT));
        let there = self.units_between(slot, first, last);
        there > 0 && (there < last - first || self.data(slot, usize::from(piece.offset), end) != piece.data)
    }

    fn keep(&mut self, slot: usize, piece: &Piece<'_>, end: usize) {
        let start = usize::from(piece.offset);
        let (first, last) = (start / UNIT, end.div_ceil(UNIT));
        let before = self.units_between(slot, first, last);
        for unit in first..last {
            self.maps[slot * WORDS + unit / 64] |= 1 << (unit % 64);
        }
        let buffer = &mut self.bytes[slot * BUFFER..(slot + 1) * BUFFER];
        buffer[HEADER_ROOM + start..HEADER_ROOM + end].copy_from_slice(piece.data);
        let datagram = &mut self.datagrams[slot];
        datagram.units += (last - first - before) as u32;
        datagram.reach = datagram.reach.max(end as u32);
        datagram.ecn |= 1 << (piece.ecn & 3);
        if !piece.more {
            datagram.total = end as u32;
        }
        if piece.offset == 0 && datagram.header_len == 0 {
            buffer[HEADER_ROOM - piece.header.len()..HEADER_ROOM].copy_from_slice(piece.header);
            datagram.header_len = piece.header.len() as u8;
            datagram.first_len = end as u16;
        }
    }

    /// How many of the units from `first` up to `last` have arrived.
    fn units_between(&self, slot: usize, first: usize, last: usize) -> usize {
        let map = &self.maps[slot * WORDS..(slot + 1) * WORDS];
        (first..last)
            .filter(|unit| map[unit / 64] >> (unit % 64) & 1 != 0)
            .count()
    }

    fn data(&self, slot: usize, start: usize, end: usize) -> &[u8] {
        let base = slot * BUFFER + HEADER_ROOM;
        &self.bytes[base + start..base + end]
    }

    /// Frees a complete datagram and returns it as an IP packet behind `link_header`. Returns
    /// `None` if no valid packet results.
    pub(super) fn take(&mut self, slot: usize, link_header: &[u8]) -> Option<Box<[u8]>> {
        let datagram = self.datagrams[slot];
        self.free(slot);
        let (header_len, total) = (usize::from(datagram.header_len), datagram.total as usize);
        //= RFC 3168 §5.3
        // A mark on any fragment marks the datagram. A combination that no single sender sets means
        // that something is wrong.
        let marked = datagram.ecn & 0b1000 != 0;
        if marked && datagram.ecn & 1 != 0 {
            return None;
        }
        let start = slot * BUFFER + HEADER_ROOM - header_len;
        let packet = &mut self.bytes[start..start + header_len + total];
        let whole = if datagram.key.source.is_ipv4() {
            mend_v4(packet, header_len, marked)
        } else {
            mend_v6(packet, header_len, marked)
        };
        whole.then(|| [link_header, packet].concat().into_boxed_slice())
    }

    fn free(&mut self, slot: usize) {
        self.datagrams[slot].state = FREE;
    }

    /// A datagram whose lifetime is over, if any.
    pub(super) fn expired(&self, now: Instant) -> Option<usize> {
        self.datagrams
            .iter()
            .position(|datagram| datagram.state != FREE && datagram.deadline <= now)
    }

    /// Frees an expired datagram. If its first fragment has arrived, copies that fragment unchanged
    /// into `packet` and returns its length.
    pub(super) fn give_up(&mut self, slot: usize, packet: &mut [u8]) -> Option<usize> {
        let datagram = self.datagrams[slot];
        self.free(slot);
        if datagram.state != OPEN || datagram.header_len == 0 {
            return None;
        }
        let header_len = usize::from(datagram.header_len);
        let len = (header_len + usize::from(datagram.first_len)).min(packet.len());
        let start = slot * BUFFER + HEADER_ROOM - header_len;
        packet[..len].copy_from_slice(&self.bytes[start..start + len]);
        Some(len)
    }

    pub(super) fn next_deadline(&self) -> Instant {
        let open = self.datagrams.iter().filter(|datagram| datagram.state != FREE);
        open.map(|datagram| datagram.deadline)
            .min()
            .unwrap_or(Instant::NEVER)
    }
}

/// Turns the header of the first fragment into that of the whole datagram.
fn mend_v4(packet: &mut [u8], header_len: usize, marked: bool) -> bool {
    let Ok(len) = u16::try_from(packet.len()) else {
        return false;
    };
    let Some(header) = packet
        .get_mut(..header_len)
        .filter(|header| header.len() >= ipv4::HEADER_LEN)
    else {
        return false;
    };
    header[2..4].copy_from_slice(&len.to_be_bytes());
    header[6..8].fill(0);
    header[1] |= if marked { 3 } else { 0 };
    header[10..12].fill(0);
    let sum = toehold_wire::checksum::finish(toehold_wire::checksum::sum(header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    true
}

/// Turns the headers of the first fragment into those of the whole datagram.
/// The fragment header stays, as that of a packet in one fragment.
//= RFC 6946 §4
fn mend_v6(packet: &mut [u8], header_len: usize, marked: bool) -> bool {
    let Ok(len) = u16::try_from(packet.len() - ipv6::HEADER_LEN.min(packet.len())) else {
        return false;
    };
    if header_len < ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN {
        return false;
    }
    let fragment_header = header_len - ipv6::FRAGMENT_HEADER_LEN;
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet[1] |= if marked { 0x30 } else { 0 };
    packet[fragment_header + 2..fragment_header + 4].fill(0);
    //= RFC 5722 §4
    // No honest sender nests fragments.
    ipv6::View::new(packet, packet.len())
        .is_ok_and(|view| view.upper().is_ok_and(|upper| upper.fragment.is_none()))
}
