//! Parses arbitrary RMPP packets. What is read can be written, and is then read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toehold_wire::rmpp::{MAX_HEADERS_LEN, Packet, VERSION};

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    // Other versions are refused by their first byte alone.
    if let Some(first) = bytes.first_mut() {
        *first = VERSION << 4 | *first & 15;
    }
    let Ok(packet) = Packet::parse(&bytes) else {
        return;
    };
    assert!(packet.len() <= bytes.len());
    assert!(packet.headers_len() <= MAX_HEADERS_LEN);
    let mut again = vec![0; packet.len()];
    assert_eq!(packet.emit(&mut again), packet.len());
    assert_eq!(Packet::parse(&again), Ok(packet));
});
