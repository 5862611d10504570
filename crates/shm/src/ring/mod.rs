//! Byte rings between two nodes, one for each direction.
//!
//! Each node owns a [`Section`] of shared memory, which it hands to the other one
//! to map for reading ([`PeerSection`]). Out of the two, [`connect`] makes a
//! [`Producer`] and a [`Consumer`].
//!
//! ```
//! use toehold_shm::ring::{PeerSection, Section, connect};
//!
//! // Two nodes; in real life two processes, that send the descriptors to each other.
//! let here = Section::create("here", 1 << 16, 17)?;
//! let there = Section::create("there", 1 << 16, 18)?;
//! let peer_of_here = PeerSection::open(there.fd().try_clone_to_owned()?, 1 << 20)?;
//! let peer_of_there = PeerSection::open(here.fd().try_clone_to_owned()?, 1 << 20)?;
//! let (mut producer, _) = connect(here, peer_of_here);
//! let (_, mut consumer) = connect(there, peer_of_there);
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
//! What the other side writes is hostile. The producer reads one word of it, the
//! consumer's position, and checks that it is possible. The consumer reads a
//! record's header once, checks that the record lies in the ring, and gives its
//! bytes out for copying only. Nothing the other side does can lead outside the
//! ring, block, or panic; what breaks the rules is [`Corrupt`].
//!
//! To sleep: [`Consumer::prepare_sleep`]; if it returns true, wait for the
//! doorbell; then [`Consumer::finish_sleep`], clear the doorbell, and only then
//! look for records again. [`Producer::publish`] says when to ring.

mod barrier;
mod consumer;
mod layout;
mod producer;
mod protocol;
mod section;

pub use barrier::fence_before_sleep;
pub use consumer::{Consumer, Record};
pub use layout::VERSION;
pub use producer::{Producer, Reservation};
pub use protocol::ReserveError;
pub use section::{PeerSection, Section, SectionError, connect};

/// A rule of the ring that the other side broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// A consumer's position that no record begins or ends at.
    #[error("the consumer's position is not aligned")]
    ConsumedUnaligned,
    /// A consumer's position before an earlier one.
    #[error("the consumer's position went backwards")]
    ConsumedBackwards,
    /// A consumer's position beyond what was sent.
    #[error("the consumer's position is ahead of the producer's")]
    ConsumedAhead,
    /// A record of kind 0.
    #[error("a record has no kind")]
    RecordKind,
    /// A record that was not written for this position.
    #[error("a record's sequence number belongs to another position")]
    RecordSequence,
    /// A record longer than the ring allows.
    #[error("a record is longer than the ring allows")]
    RecordLength,
    /// A record that would reach beyond the end of the ring.
    #[error("a record crosses the end of the ring")]
    RecordCrossesEnd,
    /// Padding that does not end at the end of the ring.
    #[error("padding does not end at the end of the ring")]
    Padding,
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
