//! TCP packets, built by tests or parsed from a stack's output. They are whole
//! IP packets without an Ethernet header.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use toehold_wire::tcp::{Flags, Header, Options, Seq, View};
use toehold_wire::{WireError, checksum, ipv4, ipv6, protocol, tcp};

/// A TCP segment in an IP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The source address.
    pub source: IpAddr,
    /// The destination address, of the source's family.
    pub destination: IpAddr,
    /// The two ECN bits of the IP header (RFC 3168 §5).
    pub ecn: u8,
    /// The TCP header, ports included.
    pub header: Header,
    /// The option list byte by byte, at most 40, instead of `header.options`.
    /// Padded with zeroes to a multiple of four.
    pub raw_options: Option<Vec<u8>>,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Packet {
    /// Creates a segment without options and payload.
    pub fn new(source: SocketAddr, destination: SocketAddr, flags: Flags, seq: Seq, ack: Seq) -> Self {
        Self {
            source: source.ip(),
            destination: destination.ip(),
            ecn: 0,
            header: Header {
                src_port: source.port(),
                dst_port: destination.port(),
                seq,
                ack,
                flags,
                window: u16::MAX,
                urgent: 0,
                options: Options::NONE,
            },
            raw_options: None,
            payload: Vec::new(),
        }
    }

    /// Returns the sequence space that the segment occupies.
    pub fn sequence_len(&self) -> u32 {
        self.payload.len() as u32
            + u32::from(self.header.flags.contains(Flags::SYN))
            + u32::from(self.header.flags.contains(Flags::FIN))
    }

    /// Encodes the packet with its checksums.
    ///
    /// # Panics
    ///
    /// If source and destination differ in family, or the packet is longer than
    /// 65 535 bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let segment = self.segment();
        let mut bytes = vec![0; 40];
        let len = match (self.source, self.destination) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => ipv4::Header {
                tos: self.ecn,
                protocol: protocol::TCP,
                payload_len: u16::try_from(segment.len()).expect("fits into a packet"),
                ..ipv4::Header::new(src, dst)
            }
            .emit(&mut bytes),
            (IpAddr::V6(src), IpAddr::V6(dst)) => ipv6::Header {
                traffic_class: self.ecn,
                next_header: protocol::TCP,
                payload_len: u16::try_from(segment.len()).expect("fits into a packet"),
                ..ipv6::Header::new(src, dst)
            }
            .emit(&mut bytes),
            _ => panic!("one address family a packet"),
        };
        bytes.truncate(len);
        bytes.extend(segment);
        bytes
    }

    fn segment(&self) -> Vec<u8> {
        let mut bytes = vec![0; 60];
        let mut len = self.header.emit(&mut bytes);
        if let Some(raw) = &self.raw_options {
            let options = raw.len().min(40).next_multiple_of(4);
            len = 20 + options;
            bytes[20..].fill(0);
            bytes[20..20 + raw.len().min(40)].copy_from_slice(&raw[..raw.len().min(40)]);
            bytes[12] = (len as u8 / 4) << 4 | bytes[12] & 0x0f;
        }
        bytes.truncate(len);
        let total = len + self.payload.len();
        let pseudo = checksum::pseudo_header(self.source, self.destination, protocol::TCP, total as u32);
        tcp::set_checksum(&mut bytes, pseudo, checksum::sum(&self.payload));
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// Parses a packet. The TCP checksum is verified unless `partial`.
    ///
    /// # Errors
    ///
    /// If the packet is malformed or not TCP.
    pub fn parse(bytes: &[u8], partial: bool) -> Result<Self, ParseError> {
        let (source, destination, ecn, segment) = match bytes.first().map(|byte| byte >> 4) {
            Some(4) => {
                let view = ipv4::View::new(bytes, bytes.len())?;
                if view.protocol() != protocol::TCP {
                    return Err(ParseError::NotTcp);
                }
                (view.src().into(), view.dst().into(), view.ecn(), view.payload())
            }
            Some(6) => {
                let view = ipv6::View::new(bytes, bytes.len())?;
                if view.next_header() != protocol::TCP {
                    return Err(ParseError::NotTcp);
                }
                (view.src().into(), view.dst().into(), view.ecn(), view.payload())
            }
            _ => return Err(ParseError::NotIp),
        };
        let view = View::new(segment, segment.len())?;
        let payload = segment[view.header_len()..].to_vec();
        let pseudo = checksum::pseudo_header(source, destination, protocol::TCP, segment.len() as u32);
        if !partial && !view.verify(pseudo, checksum::sum(&payload)) {
            return Err(ParseError::Wire(WireError::BadChecksum));
        }
        Ok(Self {
            source,
            destination,
            ecn,
            header: view.header(),
            raw_options: None,
            payload,
        })
    }
}

/// Reason for which a packet could not be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The packet is neither IPv4 nor IPv6.
    #[error("no IP packet")]
    NotIp,
    /// The packet carries another protocol.
    #[error("an IP packet, but not TCP")]
    NotTcp,
    /// A header is malformed.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// Returns a segment's flags in the syntax of scripts: `S.`, `FP.`, `R`.
pub(crate) fn flag_letters(flags: Flags) -> String {
    const LETTERS: [(Flags, char); 9] = [
        (Flags::SYN, 'S'),
        (Flags::FIN, 'F'),
        (Flags::RST, 'R'),
        (Flags::PSH, 'P'),
        (Flags::ACK, '.'),
        (Flags::URG, 'U'),
        (Flags::ECE, 'E'),
        (Flags::CWR, 'W'),
        (Flags::AE, 'A'),
    ];
    let letters: String = LETTERS
        .iter()
        .filter_map(|&(flag, letter)| flags.contains(flag).then_some(letter))
        .collect();
    if letters.is_empty() { "-".into() } else { letters }
}

impl fmt::Display for Packet {
    /// Formats the segment like `tcpdump -S`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = &self.header;
        let end = header.seq + self.sequence_len();
        write!(
            f,
            "{}>{} {} {}:{}({})",
            header.src_port,
            header.dst_port,
            flag_letters(header.flags),
            header.seq,
            end,
            self.payload.len()
        )?;
        if header.flags.contains(Flags::ACK) {
            write!(f, " ack {}", header.ack)?;
        }
        write!(f, " win {}", header.window)?;
        if header.flags.contains(Flags::URG) {
            write!(f, " urg {}", header.urgent)?;
        }
        let options = option_words(&header.options);
        if !options.is_empty() {
            write!(f, " <{}>", options.join(","))?;
        }
        Ok(())
    }
}

/// Returns options in the syntax of scripts.
pub(crate) fn option_words(options: &Options) -> Vec<String> {
    let mut words = Vec::new();
    words.extend(options.mss.map(|mss| format!("mss {mss}")));
    if options.sack_permitted {
        words.push("sackOK".into());
    }
    words.extend(
        options
            .timestamps
            .map(|ts| format!("TS val {} ecr {}", ts.value, ts.echo)),
    );
    words.extend(options.window_scale.map(|shift| format!("wscale {shift}")));
    if !options.sack.is_empty() {
        let blocks: Vec<String> = options
            .sack
            .iter()
            .map(|(left, right)| format!("{left}:{right}"))
            .collect();
        words.push(format!("sack {}", blocks.join(" ")));
    }
    words.extend(options.fast_open.map(|option| {
        let name = if option.is_experimental() { "FOEXP" } else { "FO" };
        let cookie: String = option.cookie().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{name} {cookie}").trim_end().to_owned()
    }));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_of_either_family_round_trips() {
        for (source, destination) in [("10.0.0.1:1", "10.0.0.2:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
            let mut packet = Packet::new(
                source.parse().unwrap(),
                destination.parse().unwrap(),
                Flags::SYN | Flags::ACK,
                Seq(u32::MAX),
                Seq(7),
            );
            packet.ecn = 3;
            packet.header.options.mss = Some(1460);
            packet.payload = vec![1, 2, 3];
            let bytes = packet.bytes();
            assert_eq!(Packet::parse(&bytes, false), Ok(packet.clone()));
            assert_eq!(
                packet.to_string(),
                "1>2 S. 4294967295:3(3) ack 7 win 65535 <mss 1460>"
            );
            let mut damaged = bytes;
            *damaged.last_mut().unwrap() ^= 1;
            assert_eq!(
                Packet::parse(&damaged, false),
                Err(ParseError::Wire(WireError::BadChecksum))
            );
            assert!(Packet::parse(&damaged, true).is_ok());
        }
    }

    #[test]
    fn raw_options_are_padded() {
        let mut packet = Packet::new(
            "10.0.0.1:1".parse().unwrap(),
            "10.0.0.2:2".parse().unwrap(),
            Flags::ACK,
            Seq(1),
            Seq(2),
        );
        packet.raw_options = Some(vec![1, 1, 1, 8, 10]);
        assert_eq!(packet.bytes().len(), 20 + 28);
        assert!(Packet::parse(&packet.bytes(), false).is_ok());
    }
}
