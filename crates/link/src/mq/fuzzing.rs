//! Doors for the fuzz targets: what a peer's bytes go through, without a peer.

use toehold_shm::{Region, ring::Record};

use super::BadRecord;
use super::message::Message;
use super::record::{self, Ends, HEADER_LEN, PayloadView, Private, WHOLE};

/// Payload memory that a peer's records may refer to.
pub struct Payload(PayloadView);

impl Payload {
    /// `None` unless the range lies in the region.
    pub fn new(region: Region, offset: u64, len: u64) -> Option<Payload> {
        PayloadView::new(region, offset, len).map(Payload)
    }
}

/// Reads a record as a frame and copies all of the frame out.
pub fn read_record(record: &Record<'_>, payload: Option<&Payload>) -> Result<Vec<u8>, BadRecord> {
    let mut private: Private = [0; HEADER_LEN + WHOLE];
    let ends = Ends {
        sender: [2, 0, 0, 0, 0, 1],
        receiver: [2, 0, 0, 0, 0, 2],
    };
    let frame = record::open(record, &ends, payload.map(|payload| &payload.0), &mut private)?;
    let mut bytes = frame.private.to_vec();
    bytes.resize(frame.len(), 0);
    let copied = frame.rest.copy_to(0, &mut bytes[frame.private.len()..]);
    assert_eq!(copied, frame.rest.len());
    Ok(bytes)
}

/// Reads a message of the handshake. What is accepted means the same when it is
/// written again.
pub fn read_message(bytes: &[u8]) {
    if let Ok(message) = Message::parse(bytes) {
        assert_eq!(Message::parse(&message.emit()), Ok(message));
    }
}
