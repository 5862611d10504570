//! Parses arbitrary packets as messages of the handshake.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toehold_link::mq::fuzzing::read_message;

fuzz_target!(|bytes: &[u8]| read_message(bytes));
