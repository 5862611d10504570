//! Calls every accessor of every packet view, from the Ethernet header inwards.
//! Each answers for any bytes and stays inside them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::hint::black_box;
use toehold_wire::ethernet::{EtherType, Frame};
use toehold_wire::{checksum, ipv4, ipv6, protocol, tcp};

fuzz_target!(|bytes: &[u8]| {
    let Ok(frame) = Frame::new(bytes) else { return };
    black_box((frame.dst(), frame.src(), frame.vlan(), frame.header()));
    let payload = frame.payload();
    assert_eq!(frame.header_len() + payload.len(), bytes.len());
    match frame.ethertype() {
        EtherType::IPV4 => {
            ip_version_4(payload);
            ip_version_4(&with_header_checksum(payload));
        }
        EtherType::IPV6 => ip_version_6(payload),
        _ => {}
    }
});

/// Repairs the header checksum, which no mutation would find.
fn with_header_checksum(bytes: &[u8]) -> Vec<u8> {
    let mut copy = bytes.to_vec();
    let len = usize::from(bytes.first().map_or(0, |first| first & 15)) * 4;
    if let Some(header) = copy.get_mut(..len.max(ipv4::HEADER_LEN)) {
        header[10..12].fill(0);
        let sum = checksum::finish(checksum::sum(header));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    copy
}

fn ip_version_4(bytes: &[u8]) {
    let _ = black_box(ipv4::View::quoted(bytes).map(|view| (view.src(), view.dst(), view.payload().len())));
    let Ok(view) = ipv4::View::new(bytes, bytes.len()) else {
        return;
    };
    black_box((
        view.tos(),
        view.ecn(),
        view.id(),
        view.ttl(),
        view.fragment_offset(),
    ));
    black_box((
        view.dont_fragment(),
        view.more_fragments(),
        view.is_fragment(),
        view.has_source_route(),
    ));
    assert_eq!(
        view.header_len() + usize::from(view.payload_len()),
        usize::from(view.total_len())
    );
    let payload = view.payload();
    assert!(view.header_len() + payload.len() <= bytes.len());
    if view.protocol() == protocol::TCP {
        let (src, dst) = (view.src().into(), view.dst().into());
        segment(
            payload,
            checksum::pseudo_header(src, dst, protocol::TCP, payload.len() as u32),
        );
    }
}

fn ip_version_6(bytes: &[u8]) {
    let _ = black_box(ipv6::View::quoted(bytes).map(|view| (view.src(), view.dst(), view.payload().len())));
    let Ok(view) = ipv6::View::new(bytes, bytes.len()) else {
        return;
    };
    black_box((
        view.traffic_class(),
        view.ecn(),
        view.flow_label(),
        view.hop_limit(),
    ));
    let payload = view.payload();
    let Ok(upper) = view.upper() else { return };
    assert!(upper.offset <= payload.len());
    if upper.protocol == protocol::TCP && upper.fragment.is_none() {
        let (src, dst) = (view.src().into(), view.dst().into());
        let rest = &payload[upper.offset..];
        segment(
            rest,
            checksum::pseudo_header(src, dst, protocol::TCP, rest.len() as u32),
        );
    }
}

fn segment(bytes: &[u8], pseudo_header: u32) {
    let Ok(view) = tcp::View::new(bytes, bytes.len()) else {
        return;
    };
    assert!(view.header_len() <= bytes.len());
    black_box((
        view.src_port(),
        view.dst_port(),
        view.seq(),
        view.ack(),
        view.flags(),
        view.window(),
    ));
    black_box((view.urgent(), view.options_malformed()));
    let data = checksum::sum(&bytes[view.header_len()..]);

    // After its checksum is set, a header is valid.
    let mut copy = bytes.to_vec();
    tcp::set_checksum(&mut copy[..view.header_len()], pseudo_header, data);
    let view = tcp::View::new(&copy, copy.len()).expect("the checksum is not part of the checks");
    assert!(view.verify(pseudo_header, data));
}
