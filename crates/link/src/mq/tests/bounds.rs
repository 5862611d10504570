//! The table of bounds says what the code does.

use crate::mq::direct::{MAX_BANKS, MAX_BANKS_IN_ALL, MAX_MESSAGES};
use crate::mq::handshake::{MAX_HANDSHAKES, TIMEOUT_NS};
use crate::mq::message::MESSAGE_LEN;
use crate::mq::name::MAX_NAME;
use crate::mq::record::{MAX_FRAME, MIN_FRAME};
use crate::mq::settings::{MAX_PAYLOAD, MAX_PEERS};
use crate::mq::{MeshSettings, control};
use crate::steering::MAX_SHARDS;

#[test]
fn document_has_the_bounds_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bounds.md");
    let document = std::fs::read_to_string(path).unwrap();
    assert_eq!(TIMEOUT_NS, 1_000_000_000);
    for (constant, bound) in [
        ("MESSAGE_LEN", MESSAGE_LEN as u64),
        ("MAX_DESCRIPTORS", control::MAX_DESCRIPTORS as u64),
        ("MAX_NAME", MAX_NAME as u64),
        ("MAX_SHARDS", MAX_SHARDS.into()),
        ("MAX_RING_CAPACITY", MeshSettings::MAX_RING_CAPACITY as u64),
        ("MAX_PAYLOAD", MAX_PAYLOAD),
        ("MAX_PEERS", MAX_PEERS as u64),
        ("MAX_HANDSHAKES", MAX_HANDSHAKES as u64),
        ("MAX_BANKS", MAX_BANKS.into()),
        ("MAX_BANKS_IN_ALL", MAX_BANKS_IN_ALL as u64),
        ("MAX_MESSAGES", MAX_MESSAGES.into()),
        ("MIN_FRAME", MIN_FRAME as u64),
        ("MAX_FRAME", MAX_FRAME as u64),
    ] {
        let named = document
            .lines()
            .find(|line| line.contains(&format!("`{constant}`")));
        let row = named.unwrap_or_else(|| panic!("{constant} is not in the table"));
        let mut numbers = row.split(|c: char| !c.is_ascii_digit());
        assert!(
            numbers.any(|number| number == bound.to_string()),
            "{constant} is {bound}: {row}"
        );
    }
}
