//! An honest side against one that writes arbitrary bytes.

use super::*;

/// A side that writes arbitrary bytes into its section.
struct Liar {
    bytes: Table<u8>,
    peer: Option<PeerSection>,
}

impl Liar {
    /// A valid section.
    fn new() -> Self {
        let mut liar = Self::with_len(RECORDS + CAPACITY as usize);
        liar.poke(0, MAGIC);
        liar.poke(8, u64::from(VERSION) | (RECORDS as u64) << 32);
        liar.poke(24, CAPACITY);
        liar
    }

    fn with_len(len: usize) -> Self {
        let region = Region::create("toehold-liar", len).unwrap();
        let fd = region.fd().unwrap().try_clone_to_owned().unwrap();
        let bytes = Carver::new(region).unwrap().table(len).unwrap();
        Self {
            bytes,
            peer: PeerSection::open(fd, CAPACITY).ok(),
        }
    }

    /// Opens the section again in its present state.
    fn open(&self, most: u64) -> Result<PeerSection, SectionError> {
        PeerSection::open(
            self.bytes.region().fd().unwrap().try_clone_to_owned().unwrap(),
            most,
        )
    }

    fn poke(&mut self, offset: usize, word: u64) {
        self.bytes[offset..offset + 8].copy_from_slice(&word.to_ne_bytes());
    }

    /// Writes a header at a position.
    fn header(&mut self, position: u64, header: RecordHeader) {
        self.poke(RECORDS + (position % CAPACITY) as usize, header.to_word());
    }

    /// The honest other side.
    fn victim(&mut self) -> (Sender, Receiver) {
        let own = Section::create("toehold-test", CAPACITY, 1).unwrap();
        let own_again = Section::attach(own.fd().try_clone_to_owned().unwrap()).unwrap();
        let peer = self.peer.take().unwrap_or_else(|| self.open(CAPACITY).unwrap());
        let peer_again = self.open(CAPACITY).unwrap();
        (
            Sender::new(connect(own, peer)),
            Receiver::new(connect(own_again, peer_again)),
        )
    }

    /// The other side's result for `header` at the place of the first record.
    fn verdict(header: RecordHeader) -> Result<usize, Corrupt> {
        let mut liar = Self::new();
        let (_, mut consumer) = liar.victim();
        liar.header(0, header);
        consumer.end().peek().map(|record| record.unwrap().len())
    }
}

#[test]
fn invalid_sections_are_refused() {
    let lie = |offset, word| {
        let mut liar = Liar::new();
        liar.poke(offset, word);
        liar.open(CAPACITY).unwrap_err()
    };
    assert_eq!(lie(0, MAGIC + 1), SectionError::NotASection);
    assert_eq!(
        lie(8, u64::from(VERSION + 1) | (RECORDS as u64) << 32),
        SectionError::Version(VERSION + 1)
    );
    assert_eq!(
        lie(8, u64::from(VERSION) | 64 << 32),
        SectionError::Version(VERSION)
    );
    for capacity in [0, 1, 64, CAPACITY - 64, CAPACITY * 2, 1 << 40, u64::MAX] {
        assert_eq!(lie(24, capacity), SectionError::Capacity(capacity));
    }
    let mut liar = Liar::new();
    liar.poke(24, CAPACITY * 2);
    let len = RECORDS + CAPACITY as usize;
    let truncated = SectionError::Truncated {
        len,
        capacity: CAPACITY * 2,
    };
    assert_eq!(liar.open(CAPACITY * 4).unwrap_err(), truncated);
    assert!(matches!(
        Liar::with_len(RECORDS).open(CAPACITY),
        Err(SectionError::NotASection)
    ));
    assert!(matches!(
        Liar::with_len(1).open(CAPACITY),
        Err(SectionError::NotASection | SectionError::Truncated { .. })
    ));
}

#[test]
fn false_headers_are_found() {
    let good = RecordHeader::new(0, 1, 100);
    assert_eq!(Liar::verdict(good), Ok(100));
    assert_eq!(
        Liar::verdict(RecordHeader { kind: 0, ..good }),
        Err(Corrupt::RecordKind)
    );
    assert_eq!(
        Liar::verdict(RecordHeader { sequence: 1, ..good }),
        Err(Corrupt::RecordSequence)
    );
    assert_eq!(Liar::verdict(RecordHeader { len: 2040, ..good }), Ok(2040));
    for len in [2041, 4096, 4096 - 8, 1 << 31, u32::MAX - 8, u32::MAX] {
        assert_eq!(
            Liar::verdict(RecordHeader { len, ..good }),
            Err(Corrupt::RecordLength),
            "{len}"
        );
    }
    for len in [0, 100, 2040] {
        assert_eq!(
            Liar::verdict(RecordHeader {
                kind: PADDING,
                len,
                ..good
            }),
            Err(Corrupt::Padding),
            "{len}"
        );
    }
}

#[test]
fn false_headers_near_end_are_found() {
    let mut liar = Liar::new();
    let (_, mut consumer) = liar.victim();
    // Up to 64 bytes before the end.
    for (position, len) in [(0, 2040), (2048, 1976)] {
        liar.header(position, RecordHeader::new(position, 1, len));
        assert!(take(&mut consumer).is_some());
    }
    assert_eq!(consumer.end().position(), CAPACITY - 64);
    let mut verdict = |kind, len| {
        liar.header(CAPACITY - 64, RecordHeader::new(CAPACITY - 64, kind, len));
        consumer
            .end()
            .peek()
            .map(|record| record.map(|record| record.len()))
    };
    assert_eq!(verdict(1, 57), Err(Corrupt::RecordCrossesEnd));
    assert_eq!(verdict(1, 2040), Err(Corrupt::RecordCrossesEnd));
    assert_eq!(verdict(PADDING, 57), Err(Corrupt::RecordCrossesEnd));
    // A stale header of the first lap, behind valid padding.
    assert_eq!(verdict(PADDING, 56), Err(Corrupt::RecordSequence));
}

#[test]
fn endless_padding_ends() {
    let mut liar = Liar::new();
    let (_, mut consumer) = liar.victim();
    for position in (0..CAPACITY).step_by(64) {
        liar.header(position, RecordHeader::new(position, PADDING, 56));
    }
    assert_eq!(consumer.end().peek().unwrap_err(), Corrupt::Padding);
}

#[test]
fn header_changed_after_peek_has_no_effect() {
    let mut liar = Liar::new();
    let (_, mut consumer) = liar.victim();
    let mut consumer = consumer.end();
    liar.header(0, RecordHeader::new(0, 1, 100));
    assert_eq!(consumer.peek().unwrap().unwrap().len(), 100);
    liar.header(0, RecordHeader::new(0, 7, 2000));
    let record = consumer.peek().unwrap().unwrap();
    assert_eq!((record.kind(), record.len()), (1, 100));
    consumer.advance();
    assert_eq!(consumer.position(), 128);
}

#[test]
fn false_consumer_positions_are_found() {
    let mut liar = Liar::new();
    let mut verdict = |second: u64| {
        let (mut producer, _) = liar.victim();
        liar.poke(CONSUMED, 0);
        for _ in 0..3 {
            send(&mut producer, 1, &[0; 100]).unwrap();
        }
        let _ = producer.end().publish();
        send(&mut producer, 1, &[0; 100]).unwrap();
        liar.poke(CONSUMED, 128);
        assert_eq!(producer.end().consumed(), Ok(128));
        liar.poke(CONSUMED, second);
        let verdict = producer.end().consumed();
        if let Err(fault) = verdict {
            // An error is final, and a reservation reports it as well.
            liar.poke(CONSUMED, 256);
            assert_eq!(producer.end().consumed(), verdict);
            while send(&mut producer, 1, &[0; 1000]).is_ok() {}
            let refused = send(&mut producer, 1, &[0; 2040]).unwrap_err();
            assert_eq!(refused, ReserveError::Corrupt(fault));
            assert!(!producer.end().prepare_wait(2040));
        }
        verdict
    };
    assert_eq!(verdict(384), Ok(384));
    assert_eq!(verdict(64), Err(Corrupt::ConsumedBackwards));
    assert_eq!(verdict(0), Err(Corrupt::ConsumedBackwards));
    assert_eq!(verdict(129), Err(Corrupt::ConsumedUnaligned));
    // Committed, but not published.
    assert_eq!(verdict(512), Err(Corrupt::ConsumedAhead));
    assert_eq!(verdict(u64::MAX - 63), Err(Corrupt::ConsumedAhead));
    assert_eq!(verdict(u64::MAX), Err(Corrupt::ConsumedUnaligned));
}

#[test]
fn permanent_sleeper_is_rung_once_per_sleep() {
    let mut liar = Liar::new();
    let (mut producer, mut consumer) = liar.victim();
    let mut rings = 0;
    for sleep in [1, 1, 1, 3, 3, u64::MAX, u64::MAX, 2, 4] {
        liar.poke(SLEEPING, sleep);
        send(&mut producer, 1, &[]).unwrap();
        rings += u32::from(producer.end().publish());
    }
    assert_eq!(rings, 3);
    // A writer that always starves is treated alike.
    liar.poke(STARVING, 1);
    assert!(!consumer.end().room_wanted() && !consumer.end().release());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn false_words_never_lead_outside_ring(
        lies in prop::collection::vec((0..130_usize, any::<u64>(), any::<u8>()), 0..60),
    ) {
        let mut liar = Liar::new();
        let (mut producer, mut consumer) = liar.victim();
        for (at, word, how) in lies {
            match at {
                0..64 => liar.poke(RECORDS + at * 64, word),
                // Nearly right: the next header with a few bits changed.
                64..120 => {
                    let position = consumer.end().position();
                    let right = RecordHeader::new(position, 1 + u16::from(how % 4), (word % 2048) as u32).to_word();
                    let wrong = if how < 40 { 1 << (word % 64) } else { 0 };
                    liar.poke(RECORDS + (position % CAPACITY) as usize, right ^ wrong);
                }
                120..123 => liar.poke(CONSUMED, word),
                123..126 => liar.poke(CONSUMED, producer.end().position() & !63),
                126..128 => liar.poke(SLEEPING, word),
                _ => liar.poke(STARVING, word),
            }
            let before = consumer.end().position();
            let mut end = consumer.end();
            if let Ok(Some(record)) = end.peek() {
                prop_assert!(record.kind() != 0 && record.len() <= 2040);
                let (len, slice) = (record.len(), record.slice(0, usize::MAX));
                prop_assert_eq!(slice.len(), len);
                let mut copy = vec![0; len];
                prop_assert_eq!(slice.copy_to(0, &mut copy), len);
                end.advance();
                let after = end.position();
                let start = after - record_size(len as u64);
                prop_assert!(start >= before && start / CAPACITY == (after - 1) / CAPACITY);
                prop_assert!(start % CAPACITY + HEADER_LEN + len as u64 <= CAPACITY);
            }
            let _ = consumer.end().release();
            let _ = consumer.end().prepare_sleep();
            consumer.end().finish_sleep();
            let _ = send(&mut producer, 1, &vec![0; usize::from(how) * 8]);
            let _ = producer.end().publish();
            if let Ok(consumed) = producer.end().consumed() {
                prop_assert!(consumed <= producer.end().position());
            }
        }
    }
}
