//! Passes arbitrary frames to a whole stack that listens, on a link that is full
//! now and then. The stack answers or drops them. It never panics, loops or loses
//! memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;
use std::time::Duration;
use toehold_fuzz::{Choices, LOCAL, Sink, check_counters, config, deliver, pass, settle, stack};
use toehold_stack::Instant;
use toehold_wire::{checksum, ethernet, ipv4};

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices::new(input);
    let mut stack = stack(&config(true));
    let mut sink = Sink::default();
    let mut now = Instant(1 << 40);
    let settings = stack.default_settings();
    stack
        .listen(now, SocketAddr::from((LOCAL, 80)), 4, &settings)
        .expect("room for a listener");
    while !choices.is_over() {
        let kind = choices.byte();
        let len = usize::from(choices.short() % 2048);
        let mut frame = choices.bytes(len).to_vec();
        if kind & 1 == 0 {
            set_header_checksum(&mut frame);
        }
        deliver(&mut stack, now, &frame, kind & 2 == 0);
        if kind & 8 != 0 {
            sink.room = (kind & 16 != 0).then_some(kind >> 5);
        }
        settle(&mut stack, now, &mut sink);
        if kind & 4 != 0 {
            // Output that waits for the link is tried again every millisecond.
            let unit = if sink.room.is_some() { 1 } else { 40 };
            let span = Duration::from_millis(u64::from(kind) * unit);
            pass(&mut stack, &mut now, span, &mut sink);
        }
    }
    // Due resets and answers stay due while the link is full.
    pass(&mut stack, &mut now, Duration::from_secs(1), &mut sink);
    sink.room = None;
    settle(&mut stack, now, &mut sink);
    pass(&mut stack, &mut now, Duration::from_secs(3600), &mut sink);
    check_counters(&stack, &sink);
    assert_eq!(
        stack.connections(),
        0,
        "no program holds a connection, and all have timed out"
    );
    assert_eq!(stack.payload_blocks_used(), 0);
});

/// Repairs the checksum of an IPv4 header, which no mutation would find.
fn set_header_checksum(frame: &mut [u8]) {
    let Ok(header) = ethernet::Frame::new(frame).map(|frame| frame.header_len()) else {
        return;
    };
    let Some(packet) = frame.get_mut(header..) else {
        return;
    };
    let len = usize::from(packet.first().map_or(0, |first| first & 15)) * 4;
    if let Some(header) = packet.get_mut(..len.max(ipv4::HEADER_LEN)) {
        header[10..12].fill(0);
        let sum = checksum::finish(checksum::sum(header));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}
