//! Blocks of a pcapng file (draft-ietf-opsawg-pcapng), appended to a buffer.
//!
//! Numbers are in the writer's byte order, as the format allows. A block is
//! complete when the function that writes it returns.

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// The first header of an interface's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkType {
    /// An Ethernet header (LINKTYPE_ETHERNET).
    #[default]
    Ethernet = 1,
    /// An IPv4 or IPv6 header (LINKTYPE_RAW).
    RawIp = 101,
}

/// A frame's direction and kind of address: the option `epb_flags`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags(u32);

impl Flags {
    /// Returns the flags of a frame that begins with `beginning`. Without an
    /// Ethernet header the kind of address is unknown.
    pub(super) fn new(inbound: bool, link_type: LinkType, beginning: &[u8]) -> Flags {
        let direction = if inbound { 1 } else { 2 };
        let addressee = match (link_type, beginning) {
            (LinkType::Ethernet, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, ..]) => 3,
            (LinkType::Ethernet, [first, ..]) if first & 1 == 1 => 2,
            (LinkType::Ethernet, [_, ..]) => 1,
            _ => 0,
        };
        Flags(addressee << 2 | direction)
    }
}

/// A frame with the fields of its block.
pub(super) struct Packet<'a> {
    /// Nanoseconds since 1970 (or since the driver's clock began).
    pub(super) timestamp_ns: u64,
    /// The captured bytes.
    pub(super) data: &'a [u8],
    /// Bytes of the frame before any was cut off.
    pub(super) original_len: usize,
    pub(super) flags: Flags,
    /// Number of frames that the recorder lost since the previous one.
    pub(super) lost: u64,
}

/// Writes the blocks at the start of a file.
pub(super) fn preamble(out: &mut Vec<u8>, link_type: LinkType, snap_len: u32, name: &str, mac: [u8; 6]) {
    section_header(out, concat!("Toehold ", env!("CARGO_PKG_VERSION")));
    interface_description(out, link_type, snap_len, name, mac);
}

/// Opens the file. The section's length is left open, as for a live capture.
fn section_header(out: &mut Vec<u8>, application: &str) {
    block(out, SECTION_HEADER, |out| {
        put_u32(out, BYTE_ORDER_MAGIC);
        out.extend_from_slice(&1u16.to_ne_bytes());
        out.extend_from_slice(&0u16.to_ne_bytes());
        out.extend_from_slice(&u64::MAX.to_ne_bytes());
        option(out, 4, application.as_bytes());
        end_of_options(out);
    });
}

/// Describes the one interface of the section, number 0, with time stamps in nanoseconds.
fn interface_description(out: &mut Vec<u8>, link_type: LinkType, snap_len: u32, name: &str, mac: [u8; 6]) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        out.extend_from_slice(&(link_type as u16).to_ne_bytes());
        out.extend_from_slice(&0u16.to_ne_bytes());
        put_u32(out, snap_len);
        option(out, 2, name.as_bytes());
        if link_type == LinkType::Ethernet {
            option(out, 6, &mac);
        }
        option(out, 9, &[9]);
        end_of_options(out);
    });
}

/// Writes a frame with its direction and the number of frames lost before it.
pub(super) fn enhanced_packet(out: &mut Vec<u8>, packet: &Packet<'_>) {
    block(out, ENHANCED_PACKET, |out| {
        put_u32(out, 0);
        put_timestamp(out, packet.timestamp_ns);
        put_u32(out, packet.data.len() as u32);
        put_u32(out, packet.original_len as u32);
        put_padded(out, packet.data);
        option(out, 2, &packet.flags.0.to_ne_bytes());
        if packet.lost != 0 {
            option(out, 4, &packet.lost.to_ne_bytes());
        }
        end_of_options(out);
    });
}

/// Writes the closing statistics: frames seen, and frames the recorder lost.
pub(super) fn interface_statistics(out: &mut Vec<u8>, timestamp_ns: u64, seen: u64, lost: u64) {
    block(out, INTERFACE_STATISTICS, |out| {
        put_u32(out, 0);
        put_timestamp(out, timestamp_ns);
        option(out, 4, &seen.to_ne_bytes());
        option(out, 7, &lost.to_ne_bytes());
        end_of_options(out);
    });
}

/// Writes a block. Its length precedes and follows its body.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    put_u32(out, kind);
    put_u32(out, 0);
    body(out);
    let len = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&len.to_ne_bytes());
    put_u32(out, len);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let len = value.len().min(usize::from(u16::MAX));
    out.extend_from_slice(&code.to_ne_bytes());
    out.extend_from_slice(&(len as u16).to_ne_bytes());
    put_padded(out, &value[..len]);
}

fn end_of_options(out: &mut Vec<u8>) {
    put_u32(out, 0);
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_ne_bytes());
}

/// Writes a time stamp. The high half comes first in any byte order.
fn put_timestamp(out: &mut Vec<u8>, timestamp_ns: u64) {
    put_u32(out, (timestamp_ns >> 32) as u32);
    put_u32(out, timestamp_ns as u32);
}

fn put_padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}
