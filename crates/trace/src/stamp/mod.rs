//! Taking stamps, and keeping them in memory that may be shared.

mod edge_stamper;
mod ring;

pub use edge_stamper::{EdgeStamper, StampClock};
pub use ring::{RingError, StampReader, StampRecord, StampWriter, words_for};
