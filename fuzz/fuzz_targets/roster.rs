//! Hostile uplinks send to one: arbitrary frames, and arbitrary pages in any
//! order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::time::Duration;
use toehold_fuzz::Choices;
use toehold_node::uplink::Listener;

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let mut listener = Listener::new();
    while !choices.is_over() {
        match choices.byte() % 4 {
            0 => {
                let len = usize::from(choices.short());
                listener.frame(choices.bytes(len));
            }
            // Few fabrics and uplinks, so that pages belong together.
            1 => {
                let (fabric, uplink) = (u64::from(choices.byte() % 4), choices.byte() % 4);
                let place = [choices.byte(), choices.byte()].map(|number| u32::from(number % 8));
                listener.page(fabric, uplink, place, [choices.byte(), choices.byte()]);
            }
            2 => {
                let place = [choices.word(), choices.word()];
                listener.page(choices.long(), choices.byte(), place, [choices.byte(), 1]);
            }
            _ => listener.pass(Duration::from_millis(choices.short().into())),
        }
    }
    listener.pass(Duration::ZERO);
});
