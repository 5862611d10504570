//! Byte rings between two nodes, one for each direction.
//!
//! Each node owns a [`Section`] of shared memory, and sends it to the other node, which maps it for
//! reading ([`PeerSection`]). [`connect`] joins the two to [`Rings`], which have a [`Producer`] and
//! a [`Consumer`]. The state of these two is plain data ([`ProducerState`], [`ConsumerState`]).
//! Several processes of a node can therefore take turns: each maps the sections for itself.
//!
//! ```
//! use toehold_shm::ring::{ConsumerState, PeerSection, ProducerState, Section, connect};
//!
//! // Two nodes; in practice two processes that send the descriptors to each other.
//! let here = Section::create("here", 1 << 16, 17)?;
//! let there = Section::create("there", 1 << 16, 18)?;
//! let peer_of_here = PeerSection::open(there.read_only_fd()?, 1 << 20)?;
//! let peer_of_there = PeerSection::open(here.read_only_fd()?, 1 << 20)?;
//! let (here, there) = (connect(here, peer_of_here), connect(there, peer_of_there));
//! let (mut sent, mut received) = (ProducerState::default(), ConsumerState::default());
//! let mut producer = here.producer(&mut sent);
//! let mut consumer = there.consumer(&mut received);
//!
//! let mut record = producer.reserve(1, 5)?;
//! record.copy_from_slice(b"hello");
//! record.commit();
//! assert!(!producer.publish(), "the consumer does not sleep");
//!
//! let record = consumer.peek()?.expect("published");
//! let mut copy = [0; 5];
//! record.copy_to(0, &mut copy);
//! assert_eq!((record.kind(), &copy), (1, b"hello"));
//! consumer.advance();
//! consumer.release();
//! assert_eq!(producer.consumed()?, producer.position());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The other side's writes are hostile. The producer reads one word of them, the consumer's
//! position, and checks that it is possible. The consumer reads a record's header once, checks that
//! the record lies in the ring, and lets callers only copy its bytes. The other side cannot cause
//! accesses outside the ring, waits, or panics. A breach of the rules is [`Corrupt`].
//!
//! To sleep, call [`Consumer::prepare_sleep`]. If it returns true, wait for the doorbell. Then call
//! [`Consumer::finish_sleep`], clear the doorbell, and only then check for records again.
//! [`Producer::publish`] returns whether to ring.

mod barrier;
mod consumer;
mod incoming;
mod layout;
mod outgoing;
mod producer;
mod protocol;
mod rings;
mod section;
pub mod segment;
mod state;

pub use barrier::fence_before_sleep;
pub use consumer::{Consumer, Record};
pub use layout::VERSION;
pub use producer::{Producer, Reservation};
pub use protocol::ReserveError;
pub use rings::{Place, Rings, connect};
pub use section::{PeerSection, Section, SectionError};
pub use state::{ConsumerState, ProducerState};

/// A rule of the ring that the other side broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Corrupt {
    /// A consumer's position that is not a multiple of the alignment.
    #[error("the consumer's position is not aligned")]
    ConsumedUnaligned = 1,
    /// A consumer's position before an earlier one.
    #[error("the consumer's position went backwards")]
    ConsumedBackwards = 2,
    /// A consumer's position beyond what was sent.
    #[error("the consumer's position is ahead of the producer's")]
    ConsumedAhead = 3,
    /// A record of kind 0.
    #[error("a record has no kind")]
    RecordKind = 4,
    /// A record with the sequence number of another position.
    #[error("a record's sequence number belongs to another position")]
    RecordSequence = 5,
    /// A record longer than the ring allows.
    #[error("a record is longer than the ring allows")]
    RecordLength = 6,
    /// A record that would reach beyond the end of the ring.
    #[error("a record crosses the end of the ring")]
    RecordCrossesEnd = 7,
    /// Padding that does not end at the end of the ring.
    #[error("padding does not end at the end of the ring")]
    Padding = 8,
}

impl Corrupt {
    const ALL: [Corrupt; 8] = [
        Corrupt::ConsumedUnaligned,
        Corrupt::ConsumedBackwards,
        Corrupt::ConsumedAhead,
        Corrupt::RecordKind,
        Corrupt::RecordSequence,
        Corrupt::RecordLength,
        Corrupt::RecordCrossesEnd,
        Corrupt::Padding,
    ];

    /// The rule as a number that is never 0, for shared memory.
    #[inline]
    pub fn code(self) -> u64 {
        self as u64
    }

    /// The rule with this number. 0 is none; an unknown number stands for any rule.
    #[inline]
    pub fn from_code(code: u64) -> Option<Corrupt> {
        let index = code.checked_sub(1)?;
        let known = usize::try_from(index).ok().and_then(|index| Self::ALL.get(index));
        Some(known.copied().unwrap_or(Corrupt::ConsumedAhead))
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
