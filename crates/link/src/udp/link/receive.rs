//! Receives: judges datagrams, takes them apart, and merges consecutive segments.

use std::ops::Range;

use toehold_shm::{Gather, MAX_PARTS};

use super::super::association::Verdict;
use super::super::fragments::Outcome;
use super::super::header::{Envelope, Hello, Kind, NoHeader, Record};
use super::super::inbox::{Datagram, Inbox};
use super::super::merge::Row;
use super::super::outbox::lead;
use super::{MAX_LINK_HEADER, MIN_FRAME, UdpLink};
use crate::layout::private_len;
use crate::{Checksum, MIN_PRIVATE, NeighborChange, Offload, Received};

/// A received frame.
#[derive(Debug)]
pub(super) struct Located {
    bytes: FrameBytes,
    checksum: Checksum,
}

#[derive(Debug)]
pub(super) enum FrameBytes {
    /// A range of the inbox.
    Inbox(Range<usize>),
    /// A reassembled frame.
    Whole(Vec<u8>),
}

impl UdpLink {
    /// Judges a datagram, and starts to read it if it has frames.
    fn open_datagram(&mut self, datagram: &Datagram) {
        let bytes = &self.inbox.bytes[datagram.range.clone()];
        let Some(&index) = self.by_socket.get(&datagram.from) else {
            self.statistics.strangers += 1;
            return;
        };
        let envelope = match Envelope::parse(bytes) {
            Ok((envelope, _)) if !datagram.is_cut => envelope,
            Ok(_) | Err(NoHeader::Malformed) => return self.statistics.malformed += 1,
            Err(NoHeader::Version) => return self.statistics.other_version += 1,
        };
        let is_authentic = match &self.common.seal {
            Some(seal) => envelope.sealed && seal.is_intact(bytes),
            None => !envelope.sealed,
        };
        if !is_authentic {
            return self.statistics.not_authentic += 1;
        }
        if envelope.fabric != self.common.fabric {
            self.peers[index].elsewhere = Some(envelope.fabric);
            return self.statistics.other_fabric += 1;
        }
        if envelope.sender == self.common.sender {
            return self.statistics.reflected += 1;
        }
        let body = datagram.range.start + lead(envelope.sealed)..datagram.range.end;
        let verdict = self.peers[index]
            .association
            .judge(envelope.sender, envelope.token, envelope.sequence);
        match verdict {
            Verdict::Replayed => return self.statistics.replayed += 1,
            // The old association is over. A hello brings the new one.
            Verdict::Fresh => self.lose(index),
            Verdict::Current | Verdict::Unknown => {}
        }
        let is_known = verdict != Verdict::Unknown;
        if is_known {
            self.peers[index].heard_ns = self.now_ns;
            self.peers[index].statistics.datagrams_received += 1;
        }
        match envelope.kind {
            Kind::Frames if is_known => self.inbox.open(index, body),
            Kind::Frames => self.statistics.unknown_token += 1,
            Kind::Hello => match Hello::parse(&self.inbox.bytes[body]) {
                // The hello answers none of this node's. An answer would let an
                // attacker that replays old hellos make two nodes begin anew again
                // and again.
                Some(_) if !is_known && envelope.token != 0 => self.statistics.unknown_token += 1,
                Some(_) if !is_known && self.is_outdated(index, &envelope) => self.statistics.replayed += 1,
                Some(hello) => self.greet(index, &hello, is_known),
                None => self.statistics.malformed += 1,
            },
        }
    }

    fn is_outdated(&self, index: usize, envelope: &Envelope) -> bool {
        let association = &self.peers[index].association;
        association.is_outdated(envelope.sender, envelope.sequence)
    }

    /// Takes a hello. Only one with this node's token has an effect. One without a
    /// token is answered with a token to return.
    fn greet(&mut self, index: usize, hello: &Hello, is_known: bool) {
        if !is_known {
            return self.peers[index].send_hello(&self.common, self.now_ns, hello.token(), true);
        }
        let peer = &self.peers[index];
        let is_same =
            peer.association.outbound() == Some(hello.token()) && peer.address == Some(hello.address);
        if !is_same {
            if peer.association.outbound().is_some() {
                // A new association begins with a token that this node has just
                // made.
                return self.statistics.unproven_hellos += 1;
            }
            self.lose(index);
            // Two nodes have one hardware address: the first one keeps it.
            if hello.address == self.common.address || self.by_node.contains_key(&hello.address) {
                self.peers[index].is_double = true;
                return self.statistics.not_learned += 1;
            }
            self.peers[index].association.adopt(hello.token());
            self.peers[index].connect(hello.address);
            self.by_node.insert(hello.address, index);
            self.note(NeighborChange::Joined(hello.address));
        }
        if hello.wants_answer() {
            self.peers[index].send_hello(&self.common, self.now_ns, hello.token(), false);
        }
    }

    /// Returns the next frame of the received datagrams.
    pub(super) fn locate(&mut self) -> Option<Located> {
        loop {
            match self.inbox.next_record() {
                Some(Ok((record, range))) => {
                    if let Some(located) = self.frame_of(&record, range) {
                        return Some(located);
                    }
                }
                Some(Err(())) => self.statistics.malformed += 1,
                None => {
                    let datagram = self.inbox.next_datagram()?;
                    self.open_datagram(&datagram);
                }
            }
        }
    }

    /// Returns the frame that a record is, or completes.
    fn frame_of(&mut self, record: &Record, range: Range<usize>) -> Option<Located> {
        let peer = self.inbox.peer;
        let (bytes, checksum) = match record.fragment {
            None => (FrameBytes::Inbox(range), record.checksum),
            Some(fragment) => {
                let part = &self.inbox.bytes[range];
                let fragments = &mut self.peers[peer].fragments;
                let (outcome, given_up) = fragments.take(fragment, part, record.checksum, self.now_ns);
                self.statistics.fragments_dropped += given_up;
                match outcome {
                    Outcome::Waiting => return None,
                    Outcome::Odd => {
                        self.statistics.fragments_dropped += 1;
                        return None;
                    }
                    Outcome::Whole(bytes, checksum) => (FrameBytes::Whole(bytes), checksum),
                }
            }
        };
        let located = Located { bytes, checksum };
        let frame = located.bytes(&self.inbox);
        if !(MIN_FRAME..=usize::from(self.mtu) + MAX_LINK_HEADER).contains(&frame.len()) {
            self.statistics.bad_length += 1;
            return None;
        }
        self.peers[peer].statistics.frames_received += 1;
        let source = frame
            .get(6..12)
            .and_then(|bytes| bytes.first_chunk::<6>())
            .copied();
        if let Some(source) = source.filter(|source| source[0] & 1 == 0)
            && !self.by_node.contains_key(&source)
            && !self.learned.learn(source, peer, self.now_ns)
        {
            self.statistics.not_learned += 1;
        }
        Some(located)
    }

    /// Passes a frame on, merged with the segments directly behind it.
    pub(super) fn hand_over(&mut self, first: Located, handler: &mut dyn FnMut(&Received<'_>)) {
        let FrameBytes::Inbox(range) = first.bytes else {
            let (private, rest) = split(first.bytes(&self.inbox));
            return handler(&Received {
                private,
                rest: Gather::from_slice(rest),
                offload: offload(first.checksum, 0),
            });
        };
        let mut more: [Range<usize>; MAX_PARTS] = core::array::from_fn(|_| 0..0);
        let mut count = 0;
        let mut row = match first.checksum {
            Checksum::Partial => Row::begin(&self.inbox.bytes[range.clone()]),
            Checksum::Complete | Checksum::Verified => None,
        };
        while let Some(row) = &mut row
            && count < more.len()
            && let Some(next) = self.locate()
        {
            let payload = match &next.bytes {
                FrameBytes::Inbox(at) if next.checksum == Checksum::Partial => {
                    let (head, bytes) = (&self.inbox.bytes[range.clone()], &self.inbox.bytes[at.clone()]);
                    row.add(head, bytes).map(|payload| at.start + payload..at.end)
                }
                _ => None,
            };
            let Some(payload) = payload else {
                self.held = Some(next);
                break;
            };
            more[count] = payload;
            count += 1;
        }
        let mut segment_size = 0;
        if let Some(row) = row.filter(|_| count != 0) {
            row.finish(&mut self.inbox.bytes[range.clone()]);
            segment_size = row.size() as u16;
            self.statistics.merged += 1;
        }
        let private = &self.inbox.bytes[range];
        let mut rest = Gather::EMPTY;
        for payload in &more[..count] {
            rest.push(&self.inbox.bytes[payload.clone()]);
        }
        handler(&Received {
            private,
            rest,
            offload: offload(first.checksum, segment_size),
        });
    }
}

impl Located {
    fn bytes<'a>(&'a self, inbox: &'a Inbox) -> &'a [u8] {
        match &self.bytes {
            FrameBytes::Inbox(range) => &inbox.bytes[range.clone()],
            FrameBytes::Whole(bytes) => bytes,
        }
    }
}

fn split(frame: &[u8]) -> (&[u8], &[u8]) {
    let least = &frame[..frame.len().min(MIN_PRIVATE)];
    frame.split_at(private_len(least, frame.len()))
}

fn offload(checksum: Checksum, segment_size: u16) -> Offload {
    Offload {
        checksum,
        segment_size,
    }
}
