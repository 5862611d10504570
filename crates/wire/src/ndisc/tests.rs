use super::*;
use proptest::prelude::*;

const SRC: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const DST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const TARGET: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12, 0x3456);
const LINK: Mac = Mac([2, 0, 0, 0, 0, 7]);
const USUAL: Delivery = Delivery {
    src: SRC,
    dst: DST,
    hop_limit: HOP_LIMIT,
};

fn parse(bytes: &[u8], delivery: &Delivery) -> Result<Message> {
    Message::parse(&View::new(bytes)?, delivery)
}

fn emitted(message: &Message) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    assert_eq!(message.emit(SRC, DST, &mut bytes), bytes.len());
    bytes
}

fn solicitation() -> Vec<u8> {
    emitted(&Message::NeighborSolicitation {
        target: TARGET,
        source_link: Some(LINK),
    })
}

fn advertisement() -> Vec<u8> {
    let message = Message::NeighborAdvertisement {
        router: false,
        solicited: true,
        overrides: true,
        target: TARGET,
        target_link: Some(LINK),
    };
    emitted(&message)
}

#[test]
fn known_solicitation_is_read_and_written() {
    let bytes = solicitation();
    assert_eq!(bytes[..2], [135, 0]);
    assert_eq!(bytes[8..24], TARGET.octets());
    assert_eq!(bytes[24..], [1, 1, 2, 0, 0, 0, 0, 7]);
}

#[test]
fn message_over_router_returns_bad_field() {
    //= RFC 4861 §7.1.1
    //= RFC 4861 §7.1.2
    let delivery = Delivery {
        hop_limit: 254,
        ..USUAL
    };
    assert_eq!(parse(&solicitation(), &delivery), Err(WireError::BadField));
    assert_eq!(parse(&advertisement(), &delivery), Err(WireError::BadField));
}

#[test]
fn wrong_codes_targets_and_lengths_return_errors() {
    //= RFC 4861 §7.1.1
    let mut bytes = solicitation();
    bytes[1] = 1;
    assert_eq!(parse(&bytes, &USUAL), Err(WireError::BadField));
    let mut bytes = solicitation();
    bytes[8] = 0xff;
    assert_eq!(parse(&bytes, &USUAL), Err(WireError::BadField));
    assert_eq!(parse(&solicitation()[..23], &USUAL), Err(WireError::Truncated));
    for len in 25..32 {
        assert_eq!(
            parse(&solicitation()[..len], &USUAL),
            Err(WireError::BadOption),
            "{len}"
        );
    }
    assert!(parse(&solicitation()[..24], &USUAL).is_ok());
}

#[test]
fn option_without_length_is_fatal_and_unknown_one_is_skipped() {
    //= RFC 4861 §4.6
    let mut bytes = solicitation();
    bytes[25] = 0;
    assert_eq!(parse(&bytes, &USUAL), Err(WireError::BadOption));
    let mut bytes = solicitation();
    bytes[24] = 99;
    assert_eq!(
        parse(&bytes, &USUAL),
        Ok(Message::NeighborSolicitation {
            target: TARGET,
            source_link: None
        })
    );
    let mut bytes = solicitation();
    bytes[25] = 2;
    bytes.extend([0; 8]);
    assert_eq!(parse(&bytes, &USUAL), Err(WireError::BadOption));
    let mut bytes = solicitation();
    bytes[26] |= 1;
    assert_eq!(parse(&bytes, &USUAL), Err(WireError::BadField));
}

#[test]
fn probe_without_source_must_go_to_group_without_link_address() {
    //= RFC 4861 §7.1.1
    let nameless = Delivery {
        src: Ipv6Addr::UNSPECIFIED,
        dst: solicited_node(TARGET),
        hop_limit: HOP_LIMIT,
    };
    assert_eq!(parse(&solicitation(), &nameless), Err(WireError::BadField));
    assert!(parse(&solicitation()[..24], &nameless).is_ok());
    let elsewhere = Delivery {
        dst: ALL_NODES,
        ..nameless
    };
    assert_eq!(parse(&solicitation()[..24], &elsewhere), Err(WireError::BadField));
}

#[test]
fn solicited_advertisement_to_group_returns_bad_field() {
    //= RFC 4861 §7.1.2
    let to_all = Delivery {
        dst: ALL_NODES,
        ..USUAL
    };
    assert_eq!(parse(&advertisement(), &to_all), Err(WireError::BadField));
    let mut bytes = advertisement();
    bytes[4] &= !SOLICITED_FLAG;
    assert!(parse(&bytes, &to_all).is_ok());
}

#[test]
fn router_without_link_local_address_returns_bad_field() {
    //= RFC 4861 §6.1.2
    let message = Message::RouterAdvertisement {
        hop_limit: 64,
        lifetime_s: 1800,
        reachable_ms: 30000,
        retransmit_ms: 1000,
        source_link: Some(LINK),
        mtu: Some(1500),
    };
    assert_eq!(parse(&emitted(&message), &USUAL), Ok(message));
    assert_eq!(
        parse(&emitted(&message), &Delivery { src: TARGET, ..USUAL }),
        Err(WireError::BadField)
    );
}

#[test]
fn redirect_returns_unsupported() {
    assert_eq!(
        parse(&[137, 0, 0, 0, 0, 0, 0, 0], &USUAL),
        Err(WireError::Unsupported)
    );
}

prop_compose! {
    fn message()(
        pick in 0..4, flags: [bool; 3], target: [u8; 16], octets: [u8; 6], has_link: bool, mtu: Option<u32>,
        hop_limit: u8, lifetime_s: u16, reachable_ms: u32, retransmit_ms: u32
    ) -> Message {
        let target = Ipv6Addr::from([target[0] & 0x7f, target[1], target[2], target[3], target[4], target[5],
            target[6], target[7], target[8], target[9], target[10], target[11], target[12], target[13], target[14], target[15]]);
        let link = has_link.then_some(Mac([octets[0] & !1 | 2, octets[1], octets[2], octets[3], octets[4], octets[5]]));
        match pick {
            0 => Message::RouterSolicitation { source_link: link },
            1 => Message::RouterAdvertisement { hop_limit, lifetime_s, reachable_ms, retransmit_ms, source_link: link, mtu },
            2 => Message::NeighborSolicitation { target, source_link: link },
            _ => Message::NeighborAdvertisement {
                router: flags[0], solicited: flags[1], overrides: flags[2], target, target_link: link,
            },
        }
    }
}

proptest! {
    #[test]
    fn message_round_trips(message in message()) {
        let bytes = emitted(&message);
        prop_assert!(bytes.len() <= MAX_LEN);
        prop_assert!(View::new(&bytes).unwrap().verify(pseudo_header(SRC, DST, bytes.len()), 0));
        prop_assert_eq!(parse(&bytes, &USUAL), Ok(message));
    }

    #[test]
    fn parse_never_panics(
        kind in 130u8..140, bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..6], 7..90), nameless: bool
    ) {
        let mut bytes = [&[kind], &bytes[..]].concat();
        bytes[1] = 0;
        let src = if nameless { Ipv6Addr::UNSPECIFIED } else { SRC };
        let _ = parse(&bytes, &Delivery { src, ..USUAL });
    }
}
