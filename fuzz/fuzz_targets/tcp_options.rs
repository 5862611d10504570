//! Parses arbitrary TCP options within their bounds. Parsed options can be written
//! and parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toehold_wire::tcp::{Flags, Header, MAX_HEADER_LEN, MAX_WINDOW_SCALE, MIN_HEADER_LEN, Options, View};

fuzz_target!(|bytes: &[u8]| {
    let (options, _) = Options::parse(bytes);
    assert!(options.window_scale.is_none_or(|shift| shift <= MAX_WINDOW_SCALE));

    let mut header = Header {
        src_port: 1,
        dst_port: 2,
        flags: Flags::SYN | Flags::ACK,
        ..Header::default()
    };
    header.options = options;
    let mut buffer = [0; MAX_HEADER_LEN];
    let len = header.emit(&mut buffer);
    assert_eq!(len, header.len());
    assert!((MIN_HEADER_LEN..=MAX_HEADER_LEN).contains(&len) && len.is_multiple_of(4));

    let view = View::new(&buffer[..len], len).expect("written options can be read");
    let (again, malformed) = view.options_checked();
    assert!(!malformed);
    // SACK blocks without room beside the other options are left out.
    let kept = again.sack.len();
    assert!(kept <= options.sack.len());
    assert_eq!(again.sack.as_slice(), &options.sack.as_slice()[..kept]);
    assert_eq!(
        Options {
            sack: options.sack,
            ..again
        },
        options
    );
});
