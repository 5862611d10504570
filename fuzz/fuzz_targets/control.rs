//! A hostile client of a node's engine, and a hostile engine of a client: packets
//! with descriptors, and memory files in place of sockets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use toehold_fuzz::Choices;
use toehold_node::control::fuzzing::{Serving, answer};

thread_local! {
    static SERVING: RefCell<Serving> = RefCell::new(Serving::new());
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let kind = choices.byte();
    if kind & 1 == 0 {
        let descriptors = choices.byte() % 4;
        let len = usize::from(choices.short());
        let packet = choices.bytes(len);
        let len = usize::from(choices.short());
        return answer(kind >> 1, packet, choices.bytes(len), descriptors);
    }
    let mut packets = Vec::new();
    while !choices.is_over() && packets.len() < 8 {
        let descriptors = choices.byte() % 4;
        let len = usize::from(choices.short());
        packets.push((choices.bytes(len), descriptors));
    }
    SERVING.with_borrow_mut(|serving| serving.client(&packets));
});
