//! Callers that are no nodes, or not those they say they are.

use super::*;

/// Sends a hello with these descriptors. Returns the node's refusal, if it refuses.
fn hello_with(change: impl FnOnce(&mut Introduction), descriptors: &[BorrowedFd<'_>]) -> Option<Refusal> {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let liar = Liar::dial(&fabric, "node-0", 9);
    let mut introduction = liar.introduction();
    change(&mut introduction);
    liar.say(&Message::Hello(introduction), descriptors);
    let refusal = liar.refusal(&mut nodes);
    assert_eq!((nodes[0].connected(), nodes[0].statistics().refused), (1, 1));
    assert_unharmed(&mut nodes);
    refusal
}

#[test]
fn wrong_descriptors_for_sections_are_refused() {
    let unchanged = |_: &mut Introduction| {};
    let (bell, _other) = UnixDatagram::pair().unwrap();
    let none = hello_with(unchanged, &[]);
    assert_eq!(none, Some(Refusal::Malformed));
    let good = section(CAPACITY, INCARNATION);
    assert_eq!(
        hello_with(unchanged, &[good.as_fd(), bell.as_fd(), good.as_fd()]),
        Some(Refusal::Malformed)
    );

    let mut bad: Vec<(&str, OwnedFd)> = Vec::new();
    let (reader, _writer) = std::io::pipe().unwrap();
    bad.push(("a pipe", reader.into()));
    bad.push(("a device", std::fs::File::open("/dev/zero").unwrap().into()));
    bad.push(("a directory", std::fs::File::open("/").unwrap().into()));
    let file = std::env::temp_dir().join(format!("toehold-liar-{}", std::process::id()));
    std::fs::write(&file, vec![0; 1 << 20]).unwrap();
    bad.push(("a file", std::fs::File::open(&file).unwrap().into()));
    std::fs::remove_file(&file).unwrap();
    bad.push(("memory of zeros", memory(RECORDS + CAPACITY, SealFlags::SHRINK)));
    bad.push(("empty memory", memory(0, SealFlags::SHRINK)));
    bad.push(("a page of memory", memory(4096, SealFlags::SHRINK)));
    bad.push(("another node's", section(CAPACITY, INCARNATION + 1)));
    bad.push(("too large a ring", section(32 << 20, INCARNATION)));
    bad.push(("an odd ring", section(CAPACITY + 4096, INCARNATION)));
    for len in [RECORDS + 2 * CAPACITY, 32 << 20, 1 << 40, 1 << 44] {
        // A sparse file of any length costs nothing.
        let long = section(CAPACITY, INCARNATION);
        ftruncate(&long, len).unwrap();
        bad.push(("memory longer than it says", long));
    }
    let unsealed = memory(RECORDS + CAPACITY, SealFlags::GROW);
    pwrite(&unsealed, b"toehold\n", 0).unwrap();
    bad.push(("unsealed memory", unsealed));
    let short = section(CAPACITY, INCARNATION);
    pwrite(&short, &(CAPACITY * 2).to_ne_bytes(), 24).unwrap();
    bad.push(("memory shorter than it says", short));
    for (what, descriptor) in &bad {
        assert_eq!(
            hello_with(unchanged, &[descriptor.as_fd(), bell.as_fd()]),
            Some(Refusal::BadMemory),
            "{what}"
        );
    }
    let newer = section(CAPACITY, INCARNATION);
    pwrite(&newer, &99u16.to_ne_bytes(), 8).unwrap();
    assert_eq!(
        hello_with(unchanged, &[newer.as_fd(), bell.as_fd()]),
        Some(Refusal::Version)
    );

    // What is to be rung has to be a Unix datagram socket.
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let event = toehold_shm::Doorbell::new().unwrap();
    for doorbell in [good.as_fd(), stream.as_fd(), udp.as_fd(), event.as_fd()] {
        let refused = hello_with(unchanged, &[good.as_fd(), doorbell]);
        assert_eq!(refused, Some(Refusal::BadDoorbell));
    }

    // Payload memory has to be what it is said to be, too.
    let payload =
        |offset, len| move |introduction: &mut Introduction| introduction.payload = Some((offset, len));
    let good_payload = memory(1 << 20, SealFlags::SHRINK);
    let unsealed = memory(1 << 20, SealFlags::GROW);
    assert_eq!(
        hello_with(payload(0, 1 << 20), &[good.as_fd(), bell.as_fd()]),
        Some(Refusal::Malformed)
    );
    assert_eq!(
        hello_with(
            payload(0, 1 << 20),
            &[good.as_fd(), bell.as_fd(), unsealed.as_fd()]
        ),
        Some(Refusal::BadMemory)
    );
    let endless = memory(1 << 44, SealFlags::SHRINK);
    for len in [1 << 20, 1 << 44] {
        let refused = hello_with(payload(0, len), &[good.as_fd(), bell.as_fd(), endless.as_fd()]);
        assert_eq!(refused, Some(Refusal::BadMemory), "{len}");
    }
    for (offset, len) in [(0, (1 << 20) + 1), (1, 1 << 20), (u64::MAX, 2), (2, u64::MAX)] {
        let refused = hello_with(
            payload(offset, len),
            &[good.as_fd(), bell.as_fd(), good_payload.as_fd()],
        );
        assert_eq!(refused, Some(Refusal::BadMemory), "{offset} {len}");
    }
}

#[test]
fn false_names_and_addresses_are_refused() {
    let good = section(CAPACITY, INCARNATION);
    let (bell, _other) = UnixDatagram::pair().unwrap();
    let own = |introduction: &mut Introduction| introduction.name = name("node-0").into();
    assert_eq!(
        hello_with(own, &[good.as_fd(), bell.as_fd()]),
        Some(Refusal::Malformed)
    );
    let nobodys = |introduction: &mut Introduction| introduction.name = name("nobody").into();
    assert_eq!(
        hello_with(nobodys, &[good.as_fd(), bell.as_fd()]),
        Some(Refusal::NotOwner)
    );
    for taken in [0, 1] {
        let address = |introduction: &mut Introduction| introduction.mac = mac(taken);
        assert_eq!(
            hello_with(address, &[good.as_fd(), bell.as_fd()]),
            Some(Refusal::DuplicateAddress)
        );
    }
    let group = |introduction: &mut Introduction| introduction.mac = [0xff; 6];
    assert_eq!(
        hello_with(group, &[good.as_fd(), bell.as_fd()]),
        Some(Refusal::BadAddress)
    );
}

/// One process claims more names than it may have. A node that joins later is served.
#[test]
fn process_over_its_quota_is_refused_and_a_later_node_is_not() {
    let fabric = Fabric::new();
    let quotas = crate::mq::Quotas {
        process: 4,
        user: None,
    };
    let mut settings = fabric.settings("node-0", 0);
    (settings.max_peers, settings.quotas) = (32, quotas);
    // All of these have this process, that of the test.
    let mut nodes = vec![Mesh::join(&settings).unwrap(), fabric.join("node-1", 1)];
    drive(&mut nodes, |nodes| nodes[0].connected() == 1);
    let crowd: Vec<Liar> = (10..13)
        .map(|number| Liar::befriend(&fabric, &mut nodes, number))
        .collect();
    let late = Liar::dial(&fabric, "node-0", 20);
    late.hello();
    assert_eq!(late.refusal(&mut nodes), Some(Refusal::Quota));
    assert_eq!(nodes[0].statistics().over_quota, 1);
    drop(crowd);
    drive(&mut nodes, |nodes| nodes[0].connected() == 1);
    let _later = Liar::befriend(&fabric, &mut nodes, 21);
    assert_unharmed(&mut nodes);
}

/// A node calls what it finds in the directory. A process that answers nothing has some calls, and
/// others are called meanwhile.
#[test]
fn unanswered_calls_of_process_are_bounded() {
    let fabric = Fabric::new();
    std::fs::create_dir(fabric.path()).unwrap();
    let silent: Vec<OwnedFd> = (0..100)
        .map(|number| control::listen(&fabric.path().join(format!("a-{number}.sock"))).unwrap())
        .collect();
    let mut settings = fabric.settings("node-0", 0);
    settings.quotas = crate::mq::Quotas {
        process: 32,
        user: None,
    };
    let mut nodes = [Mesh::join(&settings).unwrap()];
    drive(&mut nodes, |nodes| !nodes[0].membership.handshakes.is_empty());
    for _ in 0..100 {
        nodes.iter_mut().for_each(turn);
        assert!(nodes[0].membership.handshakes.len() <= crate::mq::handshake::MAX_HANDSHAKES / 4);
    }
    drop(silent);
}

/// Files that are no sockets hide none.
#[test]
fn directory_with_many_other_files_shows_all_nodes() {
    let fabric = Fabric::new();
    std::fs::create_dir(fabric.path()).unwrap();
    for number in 0..5000 {
        std::fs::write(fabric.path().join(format!("{number}.txt")), "").unwrap();
    }
    let mut nodes = fabric.pair();
    assert_unharmed(&mut nodes);
}

#[test]
fn nonsense_instead_of_a_hello_is_refused() {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let good = section(CAPACITY, INCARNATION);
    let hello = Message::Hello(Introduction {
        incarnation: INCARNATION,
        name: name("liar-9").into(),
        mac: mac(9),
        steering: Steering::SOLE,
        payload: None,
        gateway: Gateway::None,
        direct: false,
    });
    let (bell, _other) = UnixDatagram::pair().unwrap();
    let many = [good.as_fd(); 2];
    let long = [hello.emit().to_vec(), vec![0]].concat();
    let says: [(&[u8], &[BorrowedFd<'_>]); 6] = [
        (b"GET / HTTP/1.1\r\n\r\n", &[]),
        (&hello.emit()[..50], &[good.as_fd(), bell.as_fd()]),
        (&long, &[good.as_fd(), bell.as_fd()]),
        (&[0; MESSAGE_LEN], &many),
        (&Message::Refusal(Refusal::Version).emit(), &[]),
        (
            &Message::Welcome(Introduction {
                name: name("x").into(),
                incarnation: 1,
                mac: mac(7),
                steering: Steering::SOLE,
                payload: None,
                gateway: Gateway::None,
                direct: false,
            })
            .emit(),
            &many,
        ),
    ];
    for (bytes, descriptors) in says {
        let liar = Liar::dial(&fabric, "node-0", 9);
        control::send(liar.socket.as_fd(), bytes, descriptors).unwrap();
        let refusal = liar.refusal(&mut nodes);
        assert!(matches!(refusal, None | Some(Refusal::Malformed)), "{refusal:?}");
        assert!(nodes[0].membership.handshakes.is_empty());
    }
    assert_unharmed(&mut nodes);
}

#[test]
fn silent_callers_are_hung_up_on_and_do_not_keep_others_out() {
    let fabric = Fabric::new();
    let mut nodes = Vec::from(fabric.pair());
    let silent: Vec<OwnedFd> = (0..200)
        .map(|_| {
            nodes.iter_mut().for_each(turn);
            control::dial(&fabric.path().join("node-0.sock")).unwrap()
        })
        .collect();
    nodes.push(fabric.join("node-2", 2));
    drive(&mut nodes, |nodes| nodes.iter().all(|node| node.connected() == 2));
    assert!(nodes[0].membership.handshakes.len() <= crate::mq::handshake::MAX_HANDSHAKES);
    drive(&mut nodes, |nodes| nodes[0].membership.handshakes.is_empty());
    assert_eq!(nodes[0].statistics().timed_out, 200);
    drop(silent);
    assert_unharmed(&mut nodes);
}

#[test]
fn call_cut_off_anywhere_leaves_nothing() {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    for stage in 0..30 {
        let liar = Liar::dial(&fabric, "node-0", 9);
        if stage % 3 > 0 {
            nodes.iter_mut().for_each(turn);
        }
        if stage % 3 > 1 {
            liar.hello();
        }
        drop(liar);
        drive(&mut nodes, |nodes| {
            nodes[0].connected() == 1 && nodes[0].membership.handshakes.is_empty()
        });
    }
    assert_unharmed(&mut nodes);
}

#[test]
fn refused_welcome_adds_no_peer() {
    // A node dials every socket in the directory; this one answers nonsense.
    let fabric = Fabric::new();
    std::fs::create_dir(fabric.path()).unwrap();
    let listener = control::listen(&fabric.path().join("liar-9.sock")).unwrap();
    let mut nodes = Vec::from(fabric.pair());
    let section = section(CAPACITY, INCARNATION);
    let welcome = |name: &str| {
        let name = name.parse().unwrap();
        Message::Welcome(Introduction {
            incarnation: INCARNATION,
            name,
            mac: mac(9),
            steering: Steering::SOLE,
            payload: None,
            gateway: Gateway::None,
            direct: false,
        })
        .emit()
    };
    let answers: [(&[u8], &[BorrowedFd<'_>]); 4] = [
        (b"hello yourself", &[]),
        (&welcome("liar-9"), &[]),
        (&welcome("liar-8"), &[section.as_fd()]),
        (&[], &[]),
    ];
    for (bytes, descriptors) in answers {
        let mut calls = Vec::new();
        drive(&mut nodes, |_| {
            calls.extend(control::accept(listener.as_fd()).unwrap());
            calls.len() == 2
        });
        for call in calls {
            if !bytes.is_empty() {
                control::send(call.as_fd(), bytes, descriptors).unwrap();
            }
        }
    }
    drive(&mut nodes, |nodes| {
        nodes.iter().all(|node| node.membership.handshakes.is_empty())
    });
    assert_eq!((nodes[0].connected(), nodes[1].connected()), (1, 1));
    assert_unharmed(&mut nodes);
}
