//! The state of the ends: used in turn by several mappings, read from outside, and overwritten.

use super::*;

/// Two mappings of each side take turns, as two processes of a node. Each continues where the other
/// stopped, even in the middle of a burst.
#[test]
fn any_mapping_continues_where_another_stopped() {
    let sections = [1, 2].map(|number| Section::create("toehold-test", CAPACITY, number).unwrap());
    let map = |own: &Section, peer: &Section| {
        let own = Section::attach(own.fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(own.capacity(), CAPACITY);
        connect(
            own,
            PeerSection::open(peer.read_only_fd().unwrap(), CAPACITY).unwrap(),
        )
    };
    let [here, there] = &sections;
    let senders = [(); 2].map(|()| map(here, there));
    let receivers = [(); 3].map(|()| map(there, here));
    let (mut sent, mut received) = (ProducerState::default(), ConsumerState::default());
    let (mut taken, mut number) = (0_u64, 0_u64);
    for turn in 0..5000 {
        let mut producer = senders[turn % 2].producer(&mut sent);
        let bytes = contents(number);
        if let Ok(mut record) = producer.reserve(1, bytes.len()) {
            record.copy_from_slice(&bytes);
            record.commit();
            number += 1;
        }
        if turn % 3 == 0 {
            assert!(!senders[turn % 2].producer(&mut sent).publish());
        }
        let mut consumer = receivers[turn % 3].consumer(&mut received);
        if let Some(record) = consumer.peek().unwrap() {
            let mut bytes = vec![0; record.len()];
            record.copy_to(0, &mut bytes);
            assert_eq!(bytes, contents(taken));
            consumer.advance();
            taken += 1;
        }
        if turn % 5 == 0 {
            let _ = consumer.release();
        }
    }
    assert!(taken > 1000, "only {taken} records");
    // Another mapping withdraws the announcement.
    let _ = senders[0].producer(&mut sent).publish();
    while receivers[0].consumer(&mut received).peek().unwrap().is_some() {
        let mut consumer = receivers[1].consumer(&mut received);
        let _ = consumer.peek();
        consumer.advance();
    }
    let _ = receivers[0].consumer(&mut received).release();
    assert!(receivers[0].consumer(&mut received).prepare_sleep());
    receivers[1].consumer(&mut received).finish_sleep();
    assert!(senders[1].producer(&mut sent).reserve(1, 0).is_ok_and(|record| {
        record.commit();
        true
    }));
    assert!(
        !senders[0].producer(&mut sent).publish(),
        "nobody sleeps any more"
    );
}

#[test]
fn place_reports_next_record() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    let mut place = Place::default();
    assert!(!place.is_filled(), "it is no place yet");
    for lap in 0..200_u64 {
        consumer.rings.watch(&consumer.state, &mut place);
        assert!(!place.is_filled());
        send(&mut producer, 1, &contents(lap)).unwrap();
        assert!(!place.is_filled(), "not published");
        let _ = producer.end().publish();
        assert!(place.is_filled());
        assert!(take(&mut consumer).is_some());
        let _ = consumer.end().release();
    }
    drop((producer, consumer));
    let _ = place.is_filled();
}

/// Other processes of the node may have overwritten the state of the two ends. No access leaves the
/// ring, panics, or repeats forever.
#[test]
fn no_state_leads_outside_ring() {
    use zerocopy::FromBytes;

    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Small and nearly aligned numbers, and arbitrary ones.
        match random % 4 {
            0 => random >> 40,
            1 => random >> 40 & !63,
            2 => u64::MAX - (random >> 56),
            _ => random,
        }
    };
    let (mut producer, mut consumer) = ring(CAPACITY);
    for _ in 0..20_000 {
        let words: [u64; 8] = std::array::from_fn(|_| next());
        producer.state = ProducerState::read_from_bytes(zerocopy::IntoBytes::as_bytes(&words)).unwrap();
        let words: [u64; 8] = std::array::from_fn(|_| next());
        consumer.state = ConsumerState::read_from_bytes(zerocopy::IntoBytes::as_bytes(&words)).unwrap();
        for len in [0, 100, 2040] {
            let _ = send(&mut producer, 1, &vec![7; len]);
        }
        let _ = (producer.end().publish(), producer.end().consumed());
        if producer.end().prepare_wait(100) {
            producer.end().finish_wait();
        }
        for _ in 0..3 {
            let mut end = consumer.end();
            if let Ok(Some(record)) = end.peek() {
                assert_eq!(record.copy_to(0, &mut [0; 4096]), record.len());
                end.advance();
            }
        }
        let _ = (consumer.end().release(), consumer.end().room_wanted());
        if consumer.end().prepare_sleep() {
            consumer.end().finish_sleep();
        }
        let mut place = Place::default();
        consumer.rings.watch(&consumer.state, &mut place);
        let _ = place.is_filled();
        producer.end().mend();
        consumer.end().mend();
        assert!(!producer.end().publish());
    }
}

#[test]
fn rules_survive_conversion_to_code() {
    assert_eq!(Corrupt::from_code(0), None);
    for code in 1..=8 {
        assert_eq!(Corrupt::from_code(code).map(Corrupt::code), Some(code));
    }
    assert!(Corrupt::from_code(9).is_some() && Corrupt::from_code(u64::MAX).is_some());
}
