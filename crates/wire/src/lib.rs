//! Packet formats: parse, emit, checksum.
//!
//! Views borrow the bytes that they describe. A view checks once, when it is
//! created, that every accessor stays inside them. Headers are plain structures
//! that write themselves into a buffer. The crate has no clock, no state and no
//! I/O, and never panics on received bytes. Emitters panic if the caller's
//! buffer is shorter than the announced length. That is a bug of the caller; a
//! peer cannot cause it.
//!
//! Each format has one entry point: [`ethernet::Frame::new`], [`arp::Packet::parse`],
//! [`ipv4::View::new`], [`ipv6::View::new`] and [`ipv6::walk`],
//! [`icmp::View::new`], [`icmpv4::Message::parse`], [`icmpv6::Message::parse`],
//! [`ndisc::Message::parse`],
//! [`quote::Quote::v4`] and [`quote::Quote::v6`], [`udp::View::new`],
//! [`tcp::View::new`] and [`tcp::Options::parse`], [`rmpp::Packet::parse`].
//!
//! A SYN from end to end:
//!
//! ```
//! use std::net::Ipv4Addr;
//! use toehold_wire::ethernet::{self, EtherType, Frame};
//! use toehold_wire::tcp::{self, Flags, Options, Seq};
//! use toehold_wire::{Mac, checksum, ipv4, protocol};
//!
//! let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
//! let segment = tcp::Header {
//!     src_port: 40000,
//!     dst_port: 80,
//!     seq: Seq(1000),
//!     flags: Flags::SYN,
//!     window: 65535,
//!     options: Options { mss: Some(1460), sack_permitted: true, ..Options::NONE },
//!     ..tcp::Header::default()
//! };
//! let packet = ipv4::Header {
//!     protocol: protocol::TCP,
//!     payload_len: segment.len() as u16,
//!     ..ipv4::Header::new(src, dst)
//! };
//! let frame = ethernet::Header {
//!     dst: Mac([2, 0, 0, 0, 0, 2]),
//!     src: Mac([2, 0, 0, 0, 0, 1]),
//!     vlan: None,
//!     ethertype: EtherType::IPV4,
//! };
//!
//! let mut bytes = [0; 128];
//! let mut len = frame.emit(&mut bytes);
//! len += packet.emit(&mut bytes[len..]);
//! let transport = len;
//! len += segment.emit(&mut bytes[len..]);
//! let pseudo = checksum::pseudo_header_v4(src, dst, protocol::TCP, segment.len() as u32);
//! tcp::set_checksum(&mut bytes[transport..len], pseudo, 0);
//!
//! let frame = Frame::new(&bytes[..len])?;
//! assert_eq!(frame.ethertype(), EtherType::IPV4);
//! let packet = ipv4::View::new(frame.payload(), frame.payload().len())?;
//! let received = tcp::View::new(packet.payload(), packet.payload_len().into())?;
//! let pseudo = checksum::pseudo_header_v4(packet.src(), packet.dst(), packet.protocol(), packet.payload_len().into());
//! assert!(received.verify(pseudo, 0));
//! assert_eq!(received.header(), segment);
//! # Ok::<(), toehold_wire::WireError>(())
//! ```
#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
mod error;
pub mod ethernet;
pub mod icmp;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
mod mac;
pub mod mld;
pub mod ndisc;
pub mod protocol;
pub mod quote;
pub mod rmpp;
pub mod tcp;
pub mod udp;

pub use error::{Result, WireError};
pub use mac::{Mac, ParseMacError};

/// Returns the first `N` bytes of `buffer`. Headers are written there field by
/// field: a wide copy of a finished header would wait for its narrow stores.
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
