use super::*;
use proptest::prelude::*;

/// Builds a packet with options, padded to a multiple of 4, and a payload.
fn packet(options: &[u8], payload: &[u8], change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    Header::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST).emit(&mut bytes);
    bytes.extend(options);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let header_len = bytes.len();
    bytes[0] = 0x40 | (header_len / 4) as u8;
    bytes.extend(payload);
    let total_len = (bytes.len() as u16).to_be_bytes();
    bytes[2..4].copy_from_slice(&total_len);
    change(&mut bytes);
    bytes[10..12].fill(0);
    let sum = checksum::finish(checksum::sum(&bytes[..header_len]));
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn check(bytes: &[u8]) -> Result<()> {
    View::new(bytes, bytes.len()).map(|_| ())
}

#[test]
fn padding_is_left_out_and_missing_bytes_are_noticed() {
    let mut bytes = packet(&[], &[1, 2, 3], |_| ());
    bytes.extend([9; 20]);
    assert_eq!(View::new(&bytes, bytes.len()).unwrap().payload(), [1, 2, 3]);
    assert_eq!(View::new(&bytes[..21], 23).unwrap().payload(), [1]);
    assert_eq!(View::new(&bytes[..22], 22).unwrap_err(), WireError::BadLength);
    assert_eq!(check(&bytes[..19]), Err(WireError::Truncated));
}

#[test]
fn contradictory_headers_return_errors() {
    //= RFC 1122 §3.2.1.1
    assert_eq!(
        check(&packet(&[], &[], |bytes| bytes[0] = 0x65)),
        Err(WireError::BadVersion)
    );
    assert_eq!(
        check(&packet(&[], &[], |bytes| bytes[0] = 0x44)),
        Err(WireError::BadLength)
    );
    assert_eq!(
        check(&packet(&[], &[], |bytes| bytes[0] = 0x46)),
        Err(WireError::Truncated)
    );
    assert_eq!(
        check(&packet(&[], &[], |bytes| bytes[3] = 19)),
        Err(WireError::BadLength)
    );
    //= RFC 1122 §3.2.1.2
    let mut bytes = packet(&[], &[], |_| ());
    bytes[8] ^= 1;
    assert_eq!(check(&bytes), Err(WireError::BadChecksum));
}

#[test]
fn malformed_options_return_errors() {
    for good in [
        &[1, 1, 1, 1][..],
        &[7, 3, 4, 0],
        &[148, 4, 0, 0],
        &[1, 0, 77, 77],
        &[1, 1, 130, 2],
    ] {
        assert_eq!(check(&packet(good, &[5], |_| ())), Ok(()), "{good:?}");
    }
    for bad in [
        &[7, 0, 0, 0][..],
        &[7, 1, 0, 0],
        &[7, 5, 0, 0],
        &[1, 1, 1, 7],
        &[7, 255, 0, 0],
    ] {
        assert_eq!(
            check(&packet(bad, &[5], |_| ())),
            Err(WireError::BadOption),
            "{bad:?}"
        );
    }
    let routed = packet(&[1, 131, 7, 4, 10, 0, 0, 1], &[], |_| ());
    assert!(View::new(&routed, routed.len()).unwrap().has_source_route());
    let plain = packet(&[148, 4, 131, 7], &[], |_| ());
    assert!(!View::new(&plain, plain.len()).unwrap().has_source_route());
}

#[test]
fn impossible_fragments_return_errors() {
    let fragment = |flags: u16, len: usize| {
        check(&packet(&[], &vec![0; len], |bytes| {
            bytes[6..8].copy_from_slice(&flags.to_be_bytes())
        }))
    };
    assert_eq!(fragment(MORE_FRAGMENTS, 16), Ok(()));
    assert_eq!(fragment(MORE_FRAGMENTS, 15), Err(WireError::BadLength));
    assert_eq!(fragment(MORE_FRAGMENTS, 0), Err(WireError::BadLength));
    assert_eq!(fragment(5, 15), Ok(()));
    assert_eq!(fragment(5, 0), Err(WireError::BadLength));
    // The largest packet ends at 65535: 65515 bytes behind its header.
    assert_eq!(fragment(8189, 3), Ok(()));
    assert_eq!(fragment(8189, 4), Err(WireError::BadLength));
}

#[test]
fn quotation_may_be_cut_short() {
    let bytes = packet(&[], &[0; 100], |_| ());
    let view = View::quoted(&bytes[..28]).unwrap();
    assert_eq!((view.payload().len(), view.payload_len()), (8, 100));
    assert_eq!(View::quoted(&bytes[..19]).unwrap_err(), WireError::Truncated);
}

prop_compose! {
    fn header()(
        tos: u8, id: u16, dont_fragment: bool, ttl: u8, protocol: u8, src: [u8; 4], dst: [u8; 4],
        payload_len in 1u16..1000, units in 0u16..8000, more_fragments: bool
    ) -> Header {
        Header {
            tos, id, dont_fragment, more_fragments, ttl, protocol,
            fragment_offset: units * 8,
            src: src.into(),
            dst: dst.into(),
            payload_len: if more_fragments { payload_len * 8 } else { payload_len },
        }
    }
}

proptest! {
    #[test]
    fn header_round_trips(header in header()) {
        prop_assume!(usize::from(header.fragment_offset) + usize::from(header.payload_len) <= 65515);
        let mut bytes = [0; HEADER_LEN + 3];
        prop_assert_eq!(header.emit(&mut bytes), HEADER_LEN);
        let view = View::new(&bytes, 70000).unwrap();
        let again = Header {
            tos: view.tos(), id: view.id(), dont_fragment: view.dont_fragment(),
            more_fragments: view.more_fragments(), fragment_offset: view.fragment_offset(), ttl: view.ttl(),
            protocol: view.protocol(), src: view.src(), dst: view.dst(), payload_len: view.payload_len(),
        };
        prop_assert_eq!(again, header);
        prop_assert_eq!(view.payload().len(), 3.min(usize::from(header.payload_len)));
        prop_assert_eq!(view.ecn(), header.tos & 3);
    }

    #[test]
    fn parse_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..90), repair: bool, extra in 0usize..70000) {
        if repair && bytes.len() >= HEADER_LEN {
            // Version and checksum are valid, so that the later checks run.
            bytes[0] = 0x40 | bytes[0] & 15;
            let header_len = (usize::from(bytes[0] & 15) * 4).min(bytes.len());
            bytes[10..12].fill(0);
            let sum = checksum::finish(checksum::sum(&bytes[..header_len]));
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        if let Ok(view) = View::new(&bytes, bytes.len() + extra) {
            prop_assert!(usize::from(view.total_len()) <= bytes.len() + extra);
            prop_assert!(view.payload().len() <= usize::from(view.payload_len()));
            let _ = view.has_source_route();
        }
        if let Ok(view) = View::quoted(&bytes) {
            let _ = (view.payload(), view.payload_len(), view.has_source_route());
        }
    }
}
