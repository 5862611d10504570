//! ICMP errors from a router about the packet that the stack sent last.

use toehold_wire::{icmpv4, icmpv6, ipv4, ipv6, protocol};

use crate::script::parse::number;
use crate::script::run::Runner;

impl Runner {
    pub(super) fn icmp(&mut self, words: &[&str]) -> Result<(), String> {
        let (&kind, mut rest) = words.split_first().ok_or("the kind of ICMP error is missing")?;
        let (mut mtu, mut code, mut seq) = (0, 0, None);
        while let [name, value, after @ ..] = rest {
            match *name {
                "mtu" => mtu = number(value)?,
                "code" => code = number(value)? as u8,
                "seq" => seq = Some(number(value)?.wrapping_add(self.local_isn())),
                _ => return Err(format!("`{name}` is none of `mtu`, `code`, `seq`")),
            }
            rest = after;
        }
        let mut packet = self.last_sent().ok_or("the stack has sent nothing yet")?.clone();
        if let Some(seq) = seq {
            packet.header.seq.0 = seq;
        }
        let bytes = match packet.source.is_ipv4() {
            true => icmp_v4(kind, (code, mtu), &packet.bytes())?,
            false => icmp_v6(kind, (code, mtu), &packet.bytes())?,
        };
        self.inject_bytes(&bytes)
    }
}

/// Builds an ICMP error from a router about a packet.
fn icmp_v4(kind: &str, (code, mtu): (u8, u32), about: &[u8]) -> Result<Vec<u8>, String> {
    let about = &about[..about.len().min(28 + 20)];
    let unreachable = |code| icmpv4::Message::DestinationUnreachable {
        code,
        mtu: mtu as u16,
        original: about,
    };
    let message = match kind {
        "net_unreachable" => unreachable(0),
        "host_unreachable" => unreachable(1),
        "protocol_unreachable" => unreachable(2),
        "port_unreachable" => unreachable(3),
        "too_big" => unreachable(4),
        "unreachable" => unreachable(code),
        "parameter_problem" => icmpv4::Message::ParameterProblem {
            pointer: 0,
            code,
            original: about,
        },
        "time_exceeded" => icmpv4::Message::TimeExceeded {
            code,
            original: about,
        },
        "source_quench" => {
            let mut bytes = icmp_v4("host_unreachable", (0, 0), about)?;
            bytes[20] = 4;
            bytes[21] = 0;
            icmpv4::set_checksum(&mut bytes[20..], 0);
            return Ok(bytes);
        }
        _ => return Err(format!("`{kind}` is no ICMP error")),
    };
    let view = ipv4::View::quoted(about).map_err(|error| error.to_string())?;
    let mut bytes = vec![0; 20 + message.len()];
    ipv4::Header {
        protocol: protocol::ICMPV4,
        payload_len: message.len() as u16,
        ..ipv4::Header::new([10, 0, 0, 254].into(), view.src())
    }
    .emit(&mut bytes);
    message.emit(&mut bytes[20..]);
    Ok(bytes)
}

fn icmp_v6(kind: &str, (code, mtu): (u8, u32), about: &[u8]) -> Result<Vec<u8>, String> {
    let about = &about[..about.len().min(1232)];
    let unreachable = |code| icmpv6::Message::DestinationUnreachable {
        code,
        original: about,
    };
    let message = match kind {
        "net_unreachable" => unreachable(0),
        "host_unreachable" => unreachable(3),
        "port_unreachable" => unreachable(4),
        "unreachable" => unreachable(code),
        "parameter_problem" => icmpv6::Message::ParameterProblem {
            pointer: 0,
            code,
            original: about,
        },
        "too_big" => icmpv6::Message::PacketTooBig { mtu, original: about },
        "time_exceeded" => icmpv6::Message::TimeExceeded {
            code,
            original: about,
        },
        _ => return Err(format!("`{kind}` is no ICMPv6 error")),
    };
    let view = ipv6::View::quoted(about).map_err(|error| error.to_string())?;
    let router = core::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xfe);
    let len = message.len();
    let mut bytes = vec![0; 40 + len];
    ipv6::Header {
        next_header: protocol::ICMPV6,
        payload_len: len as u16,
        ..ipv6::Header::new(router, view.src())
    }
    .emit(&mut bytes);
    message.emit(router, view.src(), &mut bytes[40..]);
    Ok(bytes)
}
