//! Records that a liar writes into its ring.

use super::*;

/// A liar does `lie` once it is a peer; it must be cut off for `reason`.
fn assert_cut_off(reason: impl Fn(NodeName) -> Loss, lie: impl FnOnce(&mut Liar)) {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let mut liar = Liar::befriend(&fabric, &mut nodes, 9);
    lie(&mut liar);
    let deadline = Instant::now() + PATIENCE;
    while nodes[0].statistics().corrupt == 0 {
        assert!(Instant::now() < deadline, "not noticed: {:?}", describe(&nodes));
        let _ = send(&mut nodes[0], 9, &[0; 1000]);
        take(&mut nodes[0]);
    }
    assert_eq!(nodes[0].last_loss(), Some(reason(liar.name)));
    assert_eq!((nodes[0].connected(), nodes[0].statistics().corrupt), (1, 1));
    assert_eq!(send(&mut nodes[0], 9, b"?"), Err(TransmitError::Unreachable));
    assert_unharmed(&mut nodes);
    // A liar waits before it may try again, and then may.
    liar.socket = control::dial(&fabric.path().join("node-0.sock")).unwrap();
    liar.hello();
    assert_eq!(liar.refusal(&mut nodes), Some(Refusal::TryLater));
    drive(&mut nodes, |nodes| {
        if nodes[0].connected() < 2 && nodes[0].membership.handshakes.is_empty() {
            liar.socket = control::dial(&fabric.path().join("node-0.sock")).unwrap();
            liar.section = section(CAPACITY, INCARNATION);
            liar.hello();
        }
        nodes[0].connected() == 2
    });
    assert_unharmed(&mut nodes);
}

#[test]
fn false_record_header_cuts_peer_off() {
    let ring = |corrupt: Corrupt| move |name| Loss::Ring(name, corrupt);
    assert_cut_off(ring(Corrupt::RecordKind), |liar| {
        liar.word(RECORDS, liar.header(100, 0))
    });
    assert_cut_off(ring(Corrupt::RecordSequence), |liar| {
        liar.word(RECORDS, liar.header(100, 1) | 1 << 48)
    });
    assert_cut_off(ring(Corrupt::RecordLength), |liar| {
        liar.word(RECORDS, liar.header(u32::MAX, 1))
    });
    assert_cut_off(ring(Corrupt::RecordLength), |liar| {
        liar.word(RECORDS, liar.header(CAPACITY as u32 / 2, 1))
    });
    assert_cut_off(ring(Corrupt::Padding), |liar| {
        liar.word(RECORDS, liar.header(100, u16::MAX))
    });
    assert_cut_off(ring(Corrupt::RecordSequence), |liar| liar.word(RECORDS, u64::MAX));
    // Good records up to near the end, then one that crosses it.
    assert_cut_off(ring(Corrupt::RecordCrossesEnd), |liar| {
        for _ in 0..3 {
            liar.record(1, &body(0, 0, 0, &[0; 16_000]));
        }
        liar.word(RECORDS + liar.position, liar.header(30_000, 1));
    });
}

#[test]
fn false_consumer_position_cuts_peer_off() {
    let ring = |corrupt: Corrupt| move |name| Loss::Ring(name, corrupt);
    assert_cut_off(ring(Corrupt::ConsumedAhead), |liar| liar.word(CONSUMED, 1 << 40));
    assert_cut_off(ring(Corrupt::ConsumedAhead), |liar| {
        liar.word(CONSUMED, u64::MAX - 63)
    });
    assert_cut_off(ring(Corrupt::ConsumedUnaligned), |liar| liar.word(CONSUMED, 7));
}

#[test]
fn false_record_cuts_peer_off() {
    let bad = |bad: BadRecord| move |name| Loss::Record(name, bad);
    assert_cut_off(bad(BadRecord::TooShort), |liar| liar.record(1, &[]));
    assert_cut_off(bad(BadRecord::TooShort), |liar| {
        liar.record(1, &body(0, 0, 0, &[0; 13]))
    });
    assert_cut_off(bad(BadRecord::Unknown), |liar| {
        liar.record(1, &body(0, 3, 0, &[0; 60]))
    });
    assert_cut_off(bad(BadRecord::Unknown), |liar| {
        liar.record(3, &body(0, 0, 0, &[0; 60]))
    });
    // Kinds with the state of the checksum in them, of which there are three.
    assert_cut_off(bad(BadRecord::Unknown), |liar| liar.record(0x103, &[0; 60]));
    assert_cut_off(bad(BadRecord::Unknown), |liar| liar.record(0x108, &[0; 60]));
    assert_cut_off(bad(BadRecord::TooLong), |liar| liar.record(0x100, &[0; 499]));
    // No payload memory was handed over, whatever the references say.
    let referenced = [reference(0, 1000).to_vec(), vec![0; 60]].concat();
    assert_cut_off(bad(BadRecord::OutOfBounds), |liar| {
        liar.record(2, &body(0, 0, 1, &referenced))
    });
    assert_cut_off(bad(BadRecord::TooLong), |liar| {
        liar.record(2, &body(0, 0, 1, &[0; 5000]))
    });
}

/// A liar that hands over payload memory and sends records with references.
fn refer(references: u8, places: &[[u8; 16]], headers: usize) -> Result<usize, BadRecord> {
    const PAYLOAD: u64 = 1 << 20;
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let mut liar = Liar::dial(&fabric, "node-0", 9);
    let payload = memory(PAYLOAD + 4096, SealFlags::SHRINK);
    let introduction = Introduction {
        payload: Some((4096, PAYLOAD)),
        ..liar.introduction()
    };
    liar.say(
        &Message::Hello(introduction),
        &[liar.section.as_fd(), liar.doorbell.as_fd(), payload.as_fd()],
    );
    drive(&mut nodes, |nodes| nodes[0].connected() == 2);
    assert_eq!(ftruncate(&payload, 4096), Err(Errno::PERM), "sealed");

    let mut ethernet = vec![0; headers];
    if let Some(source) = ethernet.get_mut(6..12) {
        source.copy_from_slice(&mac(9));
    }
    let rest = [places.concat(), ethernet].concat();
    liar.record(2, &body(1448, 1, references, &rest));
    let mut arrived = None;
    let deadline = Instant::now() + PATIENCE;
    while arrived.is_none() && nodes[0].statistics().corrupt == 0 {
        assert!(Instant::now() < deadline);
        nodes[0].receive(0, 8, &mut |frame| arrived = Some(whole(frame).len()));
    }
    assert_unharmed(&mut nodes);
    match (arrived, nodes[0].last_loss()) {
        (Some(len), None) => Ok(len),
        (None, Some(Loss::Record(_, bad))) => Err(bad),
        other => panic!("{other:?}"),
    }
}

#[test]
fn false_reference_cuts_peer_off() {
    const END: u64 = (1 << 20) + 4096;
    assert_eq!(refer(1, &[reference(4096, 1000)], 66), Ok(1066));
    assert_eq!(refer(2, &[reference(END - 1, 1), reference(4096, 5)], 66), Ok(72));
    assert_eq!(refer(8, &[reference(5000, 8000); 8], 66), Ok(64_066));
    let out_of_bounds = Err(BadRecord::OutOfBounds);
    assert_eq!(refer(1, &[reference(4095, 1000)], 66), out_of_bounds);
    assert_eq!(refer(1, &[reference(0, 10)], 66), out_of_bounds);
    assert_eq!(refer(1, &[reference(END - 9, 10)], 66), out_of_bounds);
    assert_eq!(refer(1, &[reference(END, 1)], 66), out_of_bounds);
    assert_eq!(refer(1, &[reference(u64::MAX, 1)], 66), out_of_bounds);
    assert_eq!(refer(1, &[reference(u64::MAX - 3, u32::MAX)], 66), out_of_bounds);
    assert_eq!(refer(1, &[reference(4096, u32::MAX)], 66), out_of_bounds);
    assert_eq!(refer(0, &[reference(4096, 10)], 66), Err(BadRecord::References));
    assert_eq!(
        refer(9, &[reference(4096, 10); 9], 66),
        Err(BadRecord::References)
    );
    assert_eq!(
        refer(255, &[reference(4096, 10); 20], 66),
        Err(BadRecord::References)
    );
    assert_eq!(refer(1, &[reference(4096, 0)], 66), Err(BadRecord::References));
    assert_eq!(refer(8, &[reference(4096, 10); 2], 20), Err(BadRecord::TooShort));
    assert_eq!(refer(2, &[reference(4096, 10); 2], 13), Err(BadRecord::TooShort));
    assert_eq!(refer(8, &[reference(4096, 9000); 8], 66), Err(BadRecord::TooLong));
    let longest = (MAX_FRAME - 66) as u32;
    assert_eq!(refer(1, &[reference(4096, longest)], 66), Ok(MAX_FRAME));
    assert_eq!(
        refer(1, &[reference(4096, longest + 1)], 66),
        Err(BadRecord::TooLong)
    );
}

#[test]
fn overlong_frame_cuts_peer_off() {
    // A ring that is large enough for such a record.
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    let mut liar = Liar::dial(&fabric, "node-0", 9);
    liar.section = section(16 << 20, INCARNATION);
    liar.hello();
    drive(&mut nodes, |nodes| nodes[0].connected() == 2);
    let frame = vec![0; MAX_FRAME + 1];
    liar.write(RECORDS + 8, &body(1448, 1, 0, &frame));
    liar.word(RECORDS, liar.header((HEADER_LEN + frame.len()) as u32, 1));
    drive(&mut nodes, |nodes| {
        take(&mut nodes[0]);
        nodes[0].last_loss() == Some(Loss::Record(liar.name, BadRecord::TooLong))
    });
}

#[test]
fn any_record_is_frame_or_cuts_peer_off() {
    let mut random = crate::random::Random::new(42);
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    for round in 0..200 {
        let mut liar = Liar::befriend(&fabric, &mut nodes, 9);
        for _ in 0..1 + random.below(4) {
            let len = random.below(300) as usize;
            let noise: Vec<u8> = (0..len)
                .map(|_| (random.next() as u8) & if round % 2 == 0 { 3 } else { 255 })
                .collect();
            liar.record(1 + random.below(3) as u16, &noise);
        }
        for word in [CONSUMED, SLEEPING, STARVING] {
            liar.word(word, random.below(1 << 20) * random.below(2));
        }
        send(&mut nodes[0], 9, b"to a liar").unwrap();
        let deadline = Instant::now() + PATIENCE;
        drop(liar);
        while nodes[0].connected() == 2 {
            assert!(Instant::now() < deadline);
            take(&mut nodes[0]);
            let _ = send(&mut nodes[0], 9, b"to a liar");
            turn(&mut nodes[0]);
        }
        // Forget the offence: every round has its chance.
        nodes[0].membership.acquaintances = crate::mq::acquaintance::Acquaintances::new(1);
    }
    assert_unharmed(&mut nodes);
}
