//! Frames between honest members.

use proptest::prelude::*;

use super::*;
use crate::Checksum;
use crate::test_frames::{PARTIAL, tcp_ipv4, whole};

const ALL: [u8; 6] = [0xff; 6];

/// Returns two members that know each other, and the time.
fn pair(segment: &TestSegment) -> (IvshmemLink, IvshmemLink, u64) {
    let (mut a, mut b, mut now) = (segment.member(1), segment.member(2), 0);
    settle(&mut [&mut a, &mut b], &mut now);
    assert_eq!((connected(&a), connected(&b)), (1, 1));
    (a, b, now)
}

#[test]
fn frames_cross_unchanged() {
    let segment = TestSegment::new();
    let (mut a, mut b, now) = pair(&segment);
    assert_eq!((a.member(), b.member()), (Some(0), Some(1)));
    let offload = Offload {
        segment_size: 1448,
        ..PARTIAL
    };
    let long = tcp_ipv4(&(0..30_000).map(|at| (at / 3) as u8).collect::<Vec<_>>());
    send(&mut a, &long, offload).unwrap();
    let short = frame_to(mac(2), mac(1), b"short");
    send(&mut a, &short, Offload::default()).unwrap();
    assert!(
        receive_all(&mut b, now).is_empty(),
        "no frame is visible before it is published"
    );
    a.flush();
    assert!(!b.prepare_sleep());
    let mut seen = Vec::new();
    assert_eq!(
        b.receive(now, 64, &mut |frame| seen.push((whole(frame), frame.offload))),
        2
    );
    assert_eq!(seen, [(long, offload), (short, Offload::default())]);
    assert!(b.prepare_sleep());
    assert_eq!(b.next_change(), Some(crate::NeighborChange::Joined(mac(1))));
    drop(a);
    let mut later = now;
    settle(&mut [&mut b], &mut later);
    assert_eq!(b.next_change(), Some(crate::NeighborChange::Left(mac(1))));
    assert_eq!(b.peers().count(), 0);
}

#[test]
fn frames_reach_their_destination_only() {
    let segment = TestSegment::new();
    let (mut a, mut b, mut now) = pair(&segment);
    let mut c = segment.member(3);
    settle(&mut [&mut a, &mut b, &mut c], &mut now);
    let sent = |from: &mut IvshmemLink, frame: &[u8]| {
        send(from, frame, PARTIAL).unwrap();
        from.flush();
    };
    sent(&mut a, &frame_to(ALL, mac(1), b"all"));
    assert_eq!(
        (receive_all(&mut b, now).len(), receive_all(&mut c, now).len()),
        (1, 1)
    );
    sent(&mut a, &frame_to(mac(3), mac(1), b"one"));
    assert_eq!(
        (receive_all(&mut b, now).len(), receive_all(&mut c, now).len()),
        (0, 1)
    );
    // A frame for an address behind a member goes to all until the address was
    // seen.
    let behind = mac(77);
    sent(&mut a, &frame_to(behind, mac(1), b"where?"));
    assert_eq!(
        (receive_all(&mut b, now).len(), receive_all(&mut c, now).len()),
        (1, 1)
    );
    sent(&mut b, &frame_to(mac(1), behind, b"here"));
    assert_eq!(receive_all(&mut a, now).len(), 1);
    sent(&mut a, &frame_to(behind, mac(1), b"there"));
    assert_eq!(
        (receive_all(&mut b, now).len(), receive_all(&mut c, now).len()),
        (1, 0)
    );
    assert_eq!((a.statistics().flooded, a.statistics().unreachable), (1, 0));
}

#[test]
fn full_member_misses_frames_without_delaying_others() {
    let segment = TestSegment::new();
    let (mut a, mut stuck, mut now) = pair(&segment);
    let mut c = segment.member(3);
    settle(&mut [&mut a, &mut stuck, &mut c], &mut now);
    let frame = frame_to(ALL, mac(1), &[0; 1400]);
    for _ in 0..200 {
        send(&mut a, &frame, PARTIAL).unwrap();
        a.flush();
        assert_eq!(receive_all(&mut c, now).len(), 1);
    }
    let dropped = a.statistics().group_frames_dropped;
    assert!((100..200).contains(&dropped), "{dropped} dropped");
    let own = frame_to(mac(2), mac(1), &[0; 1400]);
    assert_eq!(send(&mut a, &own, PARTIAL), Err(TransmitError::Full));
    assert_eq!(a.statistics().full, 1);
    assert_eq!(receive_all(&mut stuck, now).len() as u64, 200 - dropped);
    assert_eq!(send(&mut a, &own, PARTIAL), Ok(()), "there is room again");
}

#[test]
fn frame_of_wrong_length_is_refused() {
    let segment = TestSegment::new();
    let (mut a, mut b, now) = pair(&segment);
    let mut refused = |frame: &[u8], offload| {
        assert_eq!(send(&mut a, frame, offload), Err(TransmitError::TooLong));
    };
    refused(&[2; 13], PARTIAL);
    refused(&frame_to(mac(2), mac(1), &[0; 1600]), PARTIAL);
    refused(
        &frame_to(mac(2), mac(1), &[0; 65_000]),
        Offload {
            segment_size: 1448,
            ..PARTIAL
        },
    );
    assert_eq!(a.statistics().bad_length, 3);
    let longest = a.capabilities().super_frame as usize;
    assert!((16_000..32_768).contains(&longest), "half a ring: {longest}");
    let offload = Offload {
        segment_size: 1448,
        checksum: Checksum::Verified,
    };
    send(&mut a, &frame_to(mac(2), mac(1), &vec![5; longest]), offload).unwrap();
    a.flush();
    assert_eq!(receive_all(&mut b, now)[0].len(), longest + 14);
    let too_small = IvshmemSettings {
        mtu: 40_000,
        ..segment.settings(4)
    };
    assert!(matches!(
        IvshmemLink::open(&too_small),
        Err(IvshmemError::TooSmall { .. })
    ));
    let beyond = IvshmemSettings {
        member: Some(4),
        ..segment.settings(4)
    };
    assert!(matches!(
        IvshmemLink::open(&beyond),
        Err(IvshmemError::NoSuchMember { .. })
    ));
}

#[test]
fn number_of_living_member_is_refused() {
    let segment = TestSegment::new();
    let mut a = segment.member(1);
    let asked = IvshmemSettings {
        member: Some(0),
        ..segment.settings(2)
    };
    let asking = std::thread::spawn(move || IvshmemLink::open(&asked));
    let mut now = 0;
    while !asking.is_finished() {
        now += 60 * MS;
        a.receive(now, 1, &mut |_| ());
        std::thread::yield_now();
    }
    assert!(matches!(asking.join().unwrap(), Err(IvshmemError::Taken(0))));
    assert_eq!((a.member(), a.statistics().evicted), (Some(0), 0));
}

/// A member that was stopped for long continues under another number, without harm
/// to others.
#[test]
fn member_without_number_takes_another_one() {
    let segment = TestSegment::new();
    let (mut a, mut b, mut now) = pair(&segment);
    let asked = IvshmemSettings {
        member: Some(0),
        ..segment.settings(3)
    };
    let mut c = IvshmemLink::open(&asked).unwrap(); // takes as long as that takes
    settle(&mut [&mut b, &mut c], &mut now);
    assert_eq!((c.member(), connected(&b)), (Some(0), 1));
    let frame = frame_to(mac(2), mac(1), b"too late");
    send(&mut a, &frame, PARTIAL).unwrap();
    a.flush();
    assert!(receive_all(&mut b, now).is_empty());
    settle(&mut [&mut a, &mut b, &mut c], &mut now);
    assert_eq!(a.statistics().evicted, 1);
    assert_eq!([&a, &b, &c].map(connected), [2; 3]);
    assert!(![Some(0), Some(1), None].contains(&a.member()));
    assert_eq!((b.statistics().broken, c.statistics().broken), (0, 0));
    send(&mut a, &frame, PARTIAL).unwrap();
    a.flush();
    assert_eq!(receive_all(&mut b, now).len(), 1);
}

#[test]
fn pauses_grow_while_idle() {
    let segment = TestSegment::new();
    let (mut a, mut b, mut now) = pair(&segment);
    send(&mut a, &frame_to(mac(2), mac(1), b""), PARTIAL).unwrap();
    a.flush();
    let pause = |link: &IvshmemLink| link.longest_sleep().unwrap().as_micros();
    assert_eq!(b.receive(now, 1, &mut |_| ()), 1);
    assert_eq!((pause(&a), pause(&b)), (20, 20));
    for expected in [250, 500] {
        now += MS;
        b.receive(now, 1, &mut |_| ());
        assert_eq!(pause(&b), expected);
    }
    b.receive(now + 1000 * MS, 1, &mut |_| ());
    assert_eq!(pause(&b), 4000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Frames between two members arrive once and in order, however the rings are
    /// filled and drained.
    #[test]
    fn streams_arrive_in_order(
        steps in proptest::collection::vec((any::<bool>(), 0_usize..1500, 0_usize..8), 1..200),
    ) {
        let segment = TestSegment::new();
        let (mut a, mut b, now) = pair(&segment);
        let mut queues = [std::collections::VecDeque::new(), std::collections::VecDeque::new()];
        for (number, (forth, len, taken)) in steps.into_iter().enumerate() {
            let (from, to, queue) = match forth {
                true => (&mut a, &mut b, &mut queues[0]),
                false => (&mut b, &mut a, &mut queues[1]),
            };
            let (source, destination) = (from.address(), to.address());
            let frame = frame_to(destination, source, &vec![number as u8; len]);
            if send(from, &frame, PARTIAL).is_ok() {
                queue.push_back(frame);
            }
            from.flush();
            let mut seen = Vec::new();
            to.receive(now, taken, &mut |frame| seen.push(whole(frame)));
            for frame in seen {
                prop_assert_eq!(Some(frame), queue.pop_front());
            }
        }
        for (link, queue) in [(&mut b, &queues[0]), (&mut a, &queues[1])] {
            prop_assert_eq!(queue, &receive_all(link, now));
        }
    }
}
