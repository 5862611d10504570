//! Tests of this crate's guarantees to other crates.

mod arena;
mod byte_queue;
mod gather;
mod payload;
mod position_independence;
mod region;
mod slab;

use crate::{Carver, Payload, Region};

/// Payload memory for this process only.
fn payload(blocks: u32, block_len: u32) -> Payload {
    let region = Region::private(Payload::bytes_needed(blocks, block_len)).unwrap();
    Carver::new(region).unwrap().payload(blocks, block_len).unwrap()
}

/// KiB of the mappings with this name that are present in this process.
fn resident_kib(name: &str) -> usize {
    let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut named = false;
    let mut total = 0;
    for line in mappings.lines() {
        if line.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit()) {
            named = line.contains(name);
        } else if let Some(resident) = line.strip_prefix("Rss:").filter(|_| named) {
            total += resident
                .split_whitespace()
                .next()
                .unwrap()
                .parse::<usize>()
                .unwrap();
        }
    }
    total
}
