use super::*;
use crate::protocol::{ICMPV6, NO_NEXT_HEADER, TCP};
use proptest::prelude::*;

fn walk_all(first: u8, bytes: &[u8]) -> Result<Upper> {
    walk(first, bytes, bytes.len())
}

fn code_and_pointer(result: Result<Upper>) -> (u8, u32, bool) {
    match result {
        Err(ExtensionError::Problem(problem)) => (problem.code, problem.pointer, problem.despite_multicast),
        other => panic!("{other:?}"),
    }
}

/// Builds a header of hop-by-hop or destination options with one option,
/// padded.
fn options(next: u8, kind: u8) -> [u8; 8] {
    [next, 0, kind, 2, 0, 0, OPTION_PADN, 0]
}

#[test]
fn known_headers_are_skipped() {
    let bytes = [
        &[DESTINATION_OPTIONS, 0, OPTION_PADN, 4, 0, 0, 0, 0][..],
        &[
            ROUTING,
            1,
            OPTION_PAD1,
            OPTION_PADN,
            11,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ],
        &[TCP, 0, 0, 0, 0, 0, 0, 0],
        &[0xff; 20],
    ]
    .concat();
    let upper = walk_all(HOP_BY_HOP, &bytes).unwrap();
    assert_eq!(
        upper,
        Upper {
            protocol: TCP,
            offset: 32,
            named_at: HEADER_LEN + 24,
            fragment: None
        }
    );
    let none = Upper {
        protocol: NO_NEXT_HEADER,
        offset: 0,
        named_at: 6,
        fragment: None,
    };
    assert_eq!(walk_all(NO_NEXT_HEADER, &[]), Ok(none));
}

#[test]
fn hop_by_hop_options_must_be_first() {
    //= RFC 8200 §4.1
    let bytes = [options(HOP_BY_HOP, OPTION_PADN), options(TCP, OPTION_PADN)].concat();
    assert_eq!(
        code_and_pointer(walk_all(DESTINATION_OPTIONS, &bytes)),
        (1, 40, false)
    );
}

#[test]
fn unknown_option_is_treated_as_its_kind_tells() {
    //= RFC 8200 §4.2
    assert_eq!(walk_all(HOP_BY_HOP, &options(TCP, 0x05)).unwrap().protocol, TCP);
    assert_eq!(
        walk_all(HOP_BY_HOP, &options(TCP, 0x45)),
        Err(ExtensionError::Discard)
    );
    assert_eq!(
        code_and_pointer(walk_all(DESTINATION_OPTIONS, &options(TCP, 0x85))),
        (2, 42, true)
    );
    assert_eq!(
        code_and_pointer(walk_all(DESTINATION_OPTIONS, &options(TCP, 0xc5))),
        (2, 42, false)
    );
}

#[test]
fn routing_header_with_segments_left_returns_problem() {
    //= RFC 8200 §4.4
    //= RFC 5095 §3
    assert_eq!(walk_all(ROUTING, &[TCP, 0, 0, 0, 0, 0, 0, 0]).unwrap().offset, 8);
    assert_eq!(
        code_and_pointer(walk_all(ROUTING, &[TCP, 0, 0, 1, 0, 0, 0, 0])),
        (0, 42, false)
    );
}

#[test]
fn fragment_ends_walk_unless_atomic() {
    let mut bytes = [0; 24];
    let fragment = Fragment {
        offset: 16,
        more: true,
        id: 7,
    };
    FragmentHeader {
        next_header: DESTINATION_OPTIONS,
        fragment,
    }
    .emit(&mut bytes);
    let upper = walk_all(FRAGMENT, &bytes).unwrap();
    assert_eq!(
        (upper.protocol, upper.offset, upper.fragment),
        (DESTINATION_OPTIONS, 8, Some(fragment))
    );

    //= RFC 6946 §4
    let atomic = Fragment {
        offset: 0,
        more: false,
        id: 7,
    };
    FragmentHeader {
        next_header: ICMPV6,
        fragment: atomic,
    }
    .emit(&mut bytes);
    let upper = walk_all(FRAGMENT, &bytes).unwrap();
    assert_eq!((upper.protocol, upper.offset, upper.fragment), (ICMPV6, 8, None));
}

#[test]
fn impossible_fragments_return_problems() {
    //= RFC 8200 §4.5
    let bytes = |offset, more| {
        let mut bytes = [0; FRAGMENT_HEADER_LEN];
        FragmentHeader {
            next_header: TCP,
            fragment: Fragment { offset, more, id: 1 },
        }
        .emit(&mut bytes);
        bytes
    };
    assert_eq!(
        code_and_pointer(walk(FRAGMENT, &bytes(0, true), 8 + 15)),
        (0, 4, false)
    );
    assert_eq!(
        code_and_pointer(walk(FRAGMENT, &bytes(65528, false), 8 + 8)),
        (0, 42, false)
    );
    assert!(walk(FRAGMENT, &bytes(65528, false), 8 + 7).is_ok());
    assert_eq!(
        walk(FRAGMENT, &bytes(8, false), 8),
        Err(ExtensionError::Truncated)
    );
}

#[test]
fn walk_is_bounded() {
    let many = options(DESTINATION_OPTIONS, OPTION_PADN).repeat(20);
    assert_eq!(walk_all(DESTINATION_OPTIONS, &many), Err(ExtensionError::TooMany));
    let mut most = options(DESTINATION_OPTIONS, OPTION_PADN).repeat(MAX_EXTENSION_HEADERS);
    most[(MAX_EXTENSION_HEADERS - 1) * 8] = TCP;
    assert_eq!(walk_all(DESTINATION_OPTIONS, &most).unwrap().protocol, TCP);
    let mut pads = vec![0; 48];
    pads[..2].copy_from_slice(&[TCP, 5]);
    assert_eq!(walk_all(DESTINATION_OPTIONS, &pads), Err(ExtensionError::TooMany));
}

#[test]
fn truncated_headers_return_truncated() {
    let bytes = options(TCP, OPTION_PADN);
    for len in 0..bytes.len() {
        for first in [HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION_OPTIONS] {
            assert_eq!(
                walk(first, &bytes[..len], 100),
                Err(ExtensionError::Truncated),
                "{first} {len}"
            );
        }
    }
    assert_eq!(
        walk_all(HOP_BY_HOP, &[TCP, 0, OPTION_PADN, 5, 0, 0, 0, 0]),
        Err(ExtensionError::Truncated)
    );
    assert_eq!(
        walk_all(HOP_BY_HOP, &[TCP, 0, OPTION_PADN, 3, 0, 0, 0, 5]),
        Err(ExtensionError::Truncated)
    );
}

proptest! {
    #[test]
    fn walk_never_panics(
        first in prop_oneof![Just(HOP_BY_HOP), Just(ROUTING), Just(FRAGMENT), Just(DESTINATION_OPTIONS)],
        bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..4, Just(FRAGMENT), Just(DESTINATION_OPTIONS)], 0..200),
        payload_len in 0usize..70000
    ) {
        if let Ok(upper) = walk(first, &bytes, payload_len) {
            prop_assert!(upper.offset <= bytes.len());
        }
    }
}
