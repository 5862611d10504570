//! Packet formats: parse, emit, checksum.
//!
//! Views borrow the bytes they describe and check once, when they are made,
//! that every accessor stays inside them; headers are plain structures that
//! write themselves into a buffer. The crate knows no time, no state and no
//! I/O, and nothing in it panics on bytes that came from a network. Emitters
//! panic if the caller's buffer is shorter than the length they announce: that
//! is a bug of the caller, not something a peer can bring about.
//!
//! One entry point a format: [`ethernet::Frame::new`], [`arp::Packet::parse`],
//! [`ipv4::View::new`], [`ipv6::View::new`] and [`ipv6::walk`],
//! [`icmpv4::View::new`], [`icmpv6::View::new`], [`ndisc::Message::parse`],
//! [`quote::Quote::v4`] and [`quote::Quote::v6`], [`udp::View::new`],
//! [`tcp::View::new`] and [`tcp::Options::parse`].
#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
mod error;
pub mod ethernet;
mod icmp;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
mod mac;
pub mod ndisc;
pub mod protocol;
pub mod quote;
pub mod tcp;
pub mod udp;

pub use error::{Result, WireError};
pub use mac::{Mac, ParseMacError};

/// The first `N` bytes of `buffer`. Headers are written there field by field:
/// put together elsewhere first, the wide copy would wait for the narrow stores.
///
/// # Panics
///
/// If the buffer is shorter than `N`.
#[inline]
#[track_caller]
fn start<const N: usize>(buffer: &mut [u8]) -> &mut [u8; N] {
    let len = buffer.len();
    match buffer.first_chunk_mut::<N>() {
        Some(place) => place,
        None => short_buffer(N, len),
    }
}

/// Copies `bytes` to the start of `buffer`.
///
/// # Panics
///
/// If the buffer is shorter than `N`.
#[inline]
#[track_caller]
fn put<const N: usize>(buffer: &mut [u8], bytes: [u8; N]) {
    *start(buffer) = bytes;
}

#[cold]
#[inline(never)]
#[track_caller]
fn short_buffer(needed: usize, got: usize) -> ! {
    panic!("a buffer of {got} bytes for a header of {needed}")
}
