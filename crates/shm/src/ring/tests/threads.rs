//! Two sides that run independently, and ring each other awake.

use super::*;

/// Waits for a ring. Returns `false` if none came in time.
fn wait(doorbell: &Doorbell) -> bool {
    let mut fds = [PollFd::new(doorbell, PollFlags::IN)];
    let rung = poll(
        &mut fds,
        Some(&Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        }),
    )
    .unwrap()
        == 1;
    doorbell.clear();
    rung
}

/// Enough that each side overtakes the other again and again.
const RECORDS: u64 = 20_000;

#[test]
fn records_arrive_intact_from_another_thread() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let sender = scope.spawn(move || {
            let mut number = 0;
            while !stop.load(Relaxed) {
                match send(&mut producer, 1 + (number % 100) as u16, &contents(number)) {
                    Ok(()) => number += 1,
                    Err(error) => {
                        assert_eq!(error, ReserveError::Full);
                        std::thread::yield_now();
                    }
                }
                if number % 3 == 0 {
                    let _ = producer.end().publish();
                }
            }
            let _ = producer.end().publish();
            number
        });
        let mut number = 0;
        let sent = loop {
            while let Some((kind, bytes)) = take(&mut consumer) {
                assert_eq!((kind, &bytes), (1 + (number % 100) as u16, &contents(number)));
                number += 1;
                if number % 5 == 0 {
                    let _ = consumer.end().release();
                }
            }
            let _ = consumer.end().release();
            if stop.swap(number >= RECORDS, Relaxed) {
                break sender.join().unwrap();
            }
            std::thread::yield_now();
        };
        while take(&mut consumer).is_some() {
            number += 1;
        }
        assert_eq!(number, sent);
    });
}

#[test]
fn no_side_misses_wake_up() {
    let (mut producer, mut consumer) = ring(CAPACITY);
    let doorbells = [Doorbell::new().unwrap(), Doorbell::new().unwrap()];
    let [records, room] = &doorbells;
    let end = Instant::now() + Duration::from_millis(1000);
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let mut number = 0_u64;
            while Instant::now() < end {
                // Bursts of changing length, so that sometimes one side waits, sometimes the other.
                for _ in 0..number % 23 + 1 {
                    let bytes = contents(number);
                    while send(&mut producer, 1, &bytes).is_err() {
                        if producer.end().publish() {
                            records.ring();
                        }
                        if producer.end().prepare_wait(bytes.len()) {
                            assert!(wait(room), "the producer was not woken");
                            producer.end().finish_wait();
                        }
                    }
                    number += 1;
                }
                if producer.end().publish() {
                    records.ring();
                }
            }
            send_last(&mut producer, records);
            number
        });
        let mut number = 0;
        let mut sleeps = 0;
        'all: loop {
            while let Some((kind, bytes)) = take(&mut consumer) {
                if kind == LAST {
                    break 'all;
                }
                assert_eq!(bytes, contents(number));
                number += 1;
                if number % 11 == 0 && consumer.end().release() {
                    room.ring();
                }
            }
            if consumer.end().release() {
                room.ring();
            }
            if consumer.end().prepare_sleep() {
                if consumer.end().room_wanted() {
                    room.ring();
                }
                sleeps += 1;
                assert!(wait(records), "the consumer was not woken");
                consumer.end().finish_sleep();
            }
        }
        assert_eq!(number, sender.join().unwrap());
        assert!(sleeps > 10, "only {sleeps} sleeps in {number} records");
    });
}

/// Kind of a stream's last record.
const LAST: u16 = 9;

fn send_last(producer: &mut Sender, records: &Doorbell) {
    while send(producer, LAST, &[]).is_err() {
        std::thread::yield_now();
    }
    if producer.end().publish() {
        records.ring();
    }
}
