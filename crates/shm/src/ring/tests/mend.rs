//! Ends whose process was killed between two writes.

use super::*;

/// Takes all present records, which have to be the next ones.
fn take_from(consumer: &mut Receiver, next: &mut u64, again: u64) {
    let first = next.saturating_sub(again);
    let mut expected = first..;
    while let Some((_, bytes)) = take(consumer) {
        let number = expected.next().unwrap();
        assert_eq!(bytes, contents(number));
        *next = (*next).max(number + 1);
    }
}

#[test]
fn committed_records_arrive_once_after_sender_is_killed() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    let (mut sent, mut taken) = (0, 0);
    for round in 0..3000 {
        for _ in 0..round % 5 {
            if send(&mut producer, 1, &contents(sent)).is_ok() {
                sent += 1;
            }
        }
        // A record that was written, but not committed.
        if let Ok(mut record) = producer.end().reserve(1, 100) {
            record.fill(0xee);
        }
        let before = producer.state.published;
        match round % 4 {
            0 => {}
            1 => drop(producer.end().publish()),
            // The sender was killed before it recorded that the records are visible; they may be
            // taken by then.
            moment => {
                let _ = producer.end().publish();
                if moment == 2 {
                    take_from(&mut consumer, &mut taken, 0);
                    let _ = consumer.end().release();
                }
                producer.state.published = before;
            }
        }
        producer.end().mend();
        take_from(&mut consumer, &mut taken, 0);
        assert_eq!(taken, sent);
        let _ = consumer.end().release();
        assert_eq!(producer.end().consumed(), Ok(producer.end().position()));
    }
    assert!(sent > 3000, "only {sent} records");
}

#[test]
fn room_is_released_after_receiver_is_killed() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    let (mut sent, mut taken) = (0, 0);
    for round in 0..3000 {
        while send(&mut producer, 1, &contents(sent)).is_ok() {
            sent += 1;
        }
        let _ = producer.end().publish();
        let before = consumer.state;
        let first = taken;
        take_from(&mut consumer, &mut taken, 0);
        match round % 3 {
            // Recorded, but not published.
            0 => consumer.state.released = consumer.state.position,
            1 => drop(consumer.end().release()),
            // None of it was recorded: the records are taken again.
            _ => {
                consumer.state = before;
                consumer.end().mend();
                let again = taken - first;
                take_from(&mut consumer, &mut taken, again);
                continue;
            }
        }
        consumer.end().mend();
        assert_eq!(producer.end().consumed(), Ok(consumer.end().position()));
        assert_eq!(taken, sent);
    }
    assert!(sent > 30_000, "only {sent} records");
}

#[test]
fn sleep_after_that_of_killed_process_is_rung() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    // Often enough that the consumer asks the producer to fence itself.
    for round in 0..4 * OFTEN {
        let before = consumer.state;
        assert!(consumer.end().prepare_sleep());
        match round % 3 {
            // Announced, but not recorded.
            0 => consumer.state = before,
            // Recorded, but never withdrawn.
            1 => {}
            _ => consumer.end().finish_sleep(),
        }
        let was_asleep = round % 3 != 2;
        send(&mut producer, 1, &[]).unwrap();
        assert_eq!(producer.end().publish(), was_asleep);
        consumer.end().mend();
        send(&mut producer, 1, &[]).unwrap();
        assert!(!producer.end().publish(), "nobody sleeps");
        while take(&mut consumer).is_some() {}
        let _ = consumer.end().release();
        assert!(consumer.end().prepare_sleep());
        send(&mut producer, 1, &[]).unwrap();
        assert!(producer.end().publish(), "round {round}");
        consumer.end().finish_sleep();
        while take(&mut consumer).is_some() {}
        let _ = consumer.end().release();
    }
}

#[test]
fn wait_after_that_of_killed_process_is_rung() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    for round in 0..20 {
        while send(&mut producer, 1, &[7; 1000]).is_ok() {}
        let _ = producer.end().publish();
        let before = producer.state;
        assert!(producer.end().prepare_wait(1000));
        assert!(take(&mut consumer).is_some() && consumer.end().release());
        if round % 2 == 0 {
            producer.state = before;
        }
        producer.end().mend();
        while send(&mut producer, 1, &[7; 1000]).is_ok() {}
        let _ = producer.end().publish();
        assert!(producer.end().prepare_wait(1000));
        assert!(take(&mut consumer).is_some());
        assert!(consumer.end().release(), "round {round}");
        producer.end().finish_wait();
    }
}
