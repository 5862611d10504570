//! Arbitrary bytes in place of a node's record and the networks in a fabric's
//! directory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toehold_fuzz::Choices;
use toehold_node::fabric::fuzzing::read;

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let len = usize::from(choices.short());
    read(choices.bytes(len), choices.bytes(usize::MAX));
});
