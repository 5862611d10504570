use super::*;

/// The server still serves others.
fn is_well(served: &Served) {
    assert_eq!(served.connect().status().unwrap().stack.connections, 7);
}

#[test]
fn nonsense_is_hung_up_on() {
    let served = Served::new();
    let long = "x".repeat(MAX_PACKET + 1);
    let deep = "[".repeat(MAX_PACKET);
    for said in [
        "x",
        "\0",
        "{}",
        "null",
        r#""Status""#,
        r#""status" "status""#,
        r#"{"status"#,
        r#"{"peer":{"shard":0,"slot":65536,"generation":0}}"#,
        r#"{"peer":{"shard":0,"slot":1,"generation":0,"more":0}}"#,
        r#"{"set_placement":{"placement":"nowhere"}}"#,
        r#"{"holders":{"count":-1}}"#,
        &long,
        &deep,
    ] {
        let client = served.raw();
        client.send(said.as_bytes());
        assert!(
            client.answer().is_none(),
            "{:?} was answered",
            &said[..said.len().min(40)]
        );
    }
    let client = served.raw();
    client.send(&[0xff; 100]);
    assert!(client.answer().is_none());
    is_well(&served);
    served.end();
}

#[test]
fn a_request_about_a_descriptor_comes_with_one() {
    let served = Served::new();
    let client = served.raw();
    client.attach(&served);
    let start = br#"{"start_capture":{"settings":{"snap_len":1}}}"#.as_slice();
    for request in [start, br#""identify""#, br#""entrust""#] {
        for files in [0, 2] {
            let files: Vec<_> = (0..files).map(|_| memory(b"holder 1")).collect();
            client.send_with(request, &files);
            assert!(matches!(client.answer(), Some(Answer::Refused(_))));
        }
    }
    served.end();
}

#[test]
fn what_is_entrusted_is_kept_until_the_next_request() {
    let served = Served::new();
    let client = served.raw();
    client.attach(&served);
    client.send_with(br#""entrust""#, &[memory(b"holder 1")]);
    assert_eq!(client.answer(), Some(Answer::Done));
    client.send(br#""inherit""#);
    assert_eq!(client.answer(), Some(Answer::Holders(vec![1])));
    client.send(br#""inherit""#);
    assert!(matches!(client.answer(), Some(Answer::Refused(_))));
    client.send_with(br#""entrust""#, &[memory(b"holder 1")]);
    assert_eq!(client.answer(), Some(Answer::Done));
    client.send(br#"{"holders":{"count":1}}"#);
    assert_eq!(client.answer(), Some(Answer::Holders(vec![0])));
    client.send(br#""inherit""#);
    assert!(matches!(client.answer(), Some(Answer::Refused(_))));
    served.end();
}

#[test]
fn a_client_that_does_not_read_holds_nobody_up_and_is_dropped() {
    let limits = Limits {
        slow: Duration::from_millis(50),
        ..Limits::default()
    };
    let served = Served::with(25, limits);
    let mut attached = served.connect();
    attached.attach().unwrap();
    assert_eq!(served.told(), Told::Attached(std::process::id()));
    let client = served.raw();
    // Each answer fills a good part of the socket.
    let mut asked = 0;
    while packet::send(client.0.as_fd(), br#""sockets""#, &[], SendFlags::empty()).is_ok() {
        asked += 1;
        is_well(&served);
    }
    assert!(asked > 1);
    // A client that is slow to ask is no slow client.
    attached.status().unwrap();
    drop(attached);
    assert_eq!(served.told(), Told::Detached(1));
    served.end();
}

/// A client asks much at once, and takes the answers later: none is lost, and none comes twice.
#[test]
fn a_client_that_asks_ahead_gets_every_answer() {
    let served = Served::with(25, Limits::default());
    let client = served.raw();
    let asked = 50;
    for _ in 0..asked {
        client.send(br#""sockets""#);
    }
    client.send(br#""status""#);
    for _ in 0..asked {
        assert!(matches!(client.answer(), Some(Answer::Sockets(_))));
    }
    assert!(matches!(client.answer(), Some(Answer::Status(_))));
    served.end();
}

#[test]
fn those_who_only_connect_are_dropped_in_the_end() {
    let limits = Limits {
        idle: Duration::from_millis(20),
        ..Limits::default()
    };
    let served = Served::with(1, limits);
    let silent: Vec<_> = (0..20).map(|_| served.raw()).collect();
    for client in silent {
        assert!(client.answer().is_none());
    }
    is_well(&served);
    served.end();
}

#[test]
fn a_thousand_connections_are_survived() {
    let limits = Limits {
        sessions: 16,
        ..Limits::default()
    };
    let served = Served::with(1, limits);
    let is_admitted = |client: &Raw| {
        // One that was refused has been hung up on.
        let sent = packet::send(client.0.as_fd(), br#""status""#, &[], SendFlags::empty());
        sent.is_ok() && matches!(client.answer(), Some(Answer::Status(_)))
    };
    for _ in 0..20 {
        // The places of clients that left are free again, once that is noticed.
        let admitted = loop {
            let first: Vec<_> = (0..16).map(|_| served.raw()).collect();
            if first.iter().all(is_admitted) {
                break first;
            }
        };
        let crowd: Vec<_> = (16..50).map(|_| served.raw()).collect();
        for refused in &crowd {
            let answer = refused.answer();
            assert!(matches!(answer, Some(Answer::Refused(_))), "{answer:?}");
        }
        assert!(admitted.iter().all(is_admitted));
    }
    served.end();
}

/// A server may send its clients anything: any process that can write to a fabric's directory can
/// be one.
#[test]
fn a_client_survives_a_false_server() {
    let directory = tempfile::tempdir().unwrap();
    let fabric = || Fabric::open(directory.path().to_str().unwrap()).unwrap();
    let place = fabric().take("web", &NodeSettings::default(), &[]).unwrap();
    let answer = |bytes: &[u8], descriptors: Vec<OwnedFd>| {
        let node = Connection::open(&fabric(), "web").unwrap();
        let accepted = rustix::net::accept(place.listener()).unwrap();
        packet::send(accepted.as_fd(), bytes, &descriptors, SendFlags::empty()).unwrap();
        let error = node.timeout(PATIENCE).counters().unwrap_err();
        assert!(matches!(error, ControlError::Nonsense(_)), "{error}");
    };
    answer(b"nonsense", Vec::new());
    answer(br#""done""#, Vec::new());
    answer(&[b' '; MAX_PACKET + 1], Vec::new());
    let in_memory = |bytes: u64| format!(r#"{{"in_memory":{{"bytes":{bytes}}}}}"#).into_bytes();
    answer(&in_memory(9), Vec::new());
    answer(&in_memory(9), vec![memory(b"nonsense")]);
    answer(&in_memory(u64::MAX), vec![memory(b"{}")]);
    // It would wait for ever, or grow without end, or change while it is read.
    let (reader, _writer) = std::io::pipe().unwrap();
    answer(&in_memory(9), vec![reader.into()]);
    answer(&in_memory(1 << 30), vec![File::open("/dev/zero").unwrap().into()]);
    answer(&in_memory(2), vec![tempfile::tempfile().unwrap().into()]);
    // An answer that points at another one.
    answer(&in_memory(40), vec![memory(&in_memory(40))]);
}
