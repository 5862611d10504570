//! Frames for tests, written by hand.

use toehold_shm::Gather;

use crate::{Checksum, Link, Offload, Received, Transmit, TransmitError};

/// Returns an Ethernet frame with a TCP segment over IPv4. Its flags are PSH and
/// ACK, and both checksums are zero.
pub(crate) fn tcp_ipv4(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let total = (40 + payload.len()) as u16;
    frame.extend([0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    tcp_header(&mut frame);
    frame.extend(payload);
    frame
}

/// Returns an Ethernet frame with a VLAN tag and a TCP segment over IPv6.
pub(crate) fn tcp_ipv6_vlan(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 5, 0x86, 0xdd];
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(((20 + payload.len()) as u16).to_be_bytes());
    frame.extend([6, 64]);
    for last in [1, 2] {
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    tcp_header(&mut frame);
    frame.extend(payload);
    frame
}

/// Returns an Ethernet frame with a TCP segment over IPv6 behind these extension
/// headers. The first is of kind `first`, and the last names TCP.
pub(crate) fn tcp_ipv6_behind(first: u8, extensions: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    frame.extend([0x60, 0, 0, 0]);
    frame.extend(((extensions.len() + 20 + payload.len()) as u16).to_be_bytes());
    frame.extend([first, 64]);
    for last in [1, 2] {
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend(extensions);
    tcp_header(&mut frame);
    frame.extend(payload);
    frame
}

/// Returns a header of destination options before TCP, `len` bytes of padding.
pub(crate) fn destination_options(len: usize) -> Vec<u8> {
    let mut header = vec![0; len];
    (header[0], header[1]) = (6, (len / 8 - 1) as u8);
    header
}

fn tcp_header(frame: &mut Vec<u8>) {
    frame.extend(40_000u16.to_be_bytes());
    frame.extend(80u16.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 0x20, 0, 0, 0, 0, 0]);
}

/// Returns a datagram over IPv4 with a UDP checksum of zero.
pub(crate) fn udp_ipv4(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0]);
    frame.extend(((28 + payload.len()) as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 255]);
    frame.extend(40_000u16.to_be_bytes());
    frame.extend(40_001u16.to_be_bytes());
    frame.extend(((8 + payload.len()) as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

/// Returns a frame between these addresses with the given payload.
pub(crate) fn frame_to(destination: [u8; 6], source: [u8; 6], payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::from(destination);
    frame.extend(source);
    frame.extend([0x88, 0xb5]); // an EtherType for experiments (IEEE 802)
    frame.extend(payload);
    frame
}

pub(crate) const PARTIAL: Offload = Offload {
    checksum: Checksum::Partial,
    segment_size: 0,
};

/// Sends a frame in one piece.
pub(crate) fn send(link: &mut impl Link, bytes: &[u8], offload: Offload) -> Result<(), TransmitError> {
    link.transmit(&Transmit {
        headers: bytes,
        payload: &Gather::EMPTY,
        offload,
    })
}

/// Returns a received frame in one piece.
pub(crate) fn whole(frame: &Received<'_>) -> Vec<u8> {
    let mut bytes = frame.private.to_vec();
    bytes.resize(frame.len(), 0);
    frame.rest.copy_to(0, &mut bytes[frame.private.len()..]);
    bytes
}

/// Returns all received frames.
pub(crate) fn receive_all(link: &mut impl Link, now_ns: u64) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while link.receive(now_ns, 64, &mut |frame| frames.push(whole(frame))) != 0 {}
    frames
}
