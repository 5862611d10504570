mod too_long;

use std::collections::HashSet;

use proptest::prelude::*;
use toehold_shm::{Doorbell, Gather};

use super::*;
use crate::checksum::complete;
use crate::layout::Layout;
use crate::loopback::{Loopback, LoopbackSettings};
use crate::test_frames::{
    PARTIAL, destination_options, frame_to, receive_all, send, tcp_ipv4, tcp_ipv6_behind, tcp_ipv6_vlan,
    udp_ipv4, whole,
};
use crate::{Capabilities, Checksum, Offload, Received, Transmit, TransmitError, Transmitter};

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn cable(change: impl FnOnce(&mut LoopbackSettings)) -> (Loopback, Loopback) {
    let mut settings = LoopbackSettings::default();
    change(&mut settings);
    Loopback::pair([A, B], settings).unwrap()
}

/// Creates a bridge with the ends of its cables. `change` sets the right cable.
fn bridged(change: impl FnOnce(&mut LoopbackSettings)) -> (Loopback, Bridge<Loopback, Loopback>, Loopback) {
    let ((near, left), (right, far)) = (cable(|_| {}), cable(change));
    (near, Bridge::new(left, right), far)
}

fn plain(settings: &mut LoopbackSettings) {
    settings.capabilities.super_frame = settings.capabilities.mtu.into();
    settings.capabilities.checksum_offload = false;
}

fn settle(bridge: &mut Bridge<impl Link, impl Link>) {
    while bridge.round() != 0 {}
}

fn super_frame(segment_size: u16) -> Offload {
    Offload {
        segment_size,
        ..PARTIAL
    }
}

#[test]
fn frames_cross_unchanged_in_both_directions() {
    let (mut near, mut bridge, mut far) = bridged(|_| {});
    let long = tcp_ipv4(&[7; 20_000]);
    send(&mut near, &long, super_frame(1448)).unwrap();
    send(&mut near, &frame_to(B, A, b"short"), Offload::default()).unwrap();
    near.flush();
    send(&mut far, &frame_to(A, B, b"answer"), PARTIAL).unwrap();
    far.flush();
    settle(&mut bridge);
    let mut seen = Vec::new();
    far.receive(0, 64, &mut |frame| seen.push((whole(frame), frame.offload)));
    assert_eq!(
        seen,
        [
            (long, super_frame(1448)),
            (frame_to(B, A, b"short"), Offload::default())
        ]
    );
    assert_eq!(receive_all(&mut near, 0), [frame_to(A, B, b"answer")]);
    let [forth, back] = bridge.statistics();
    assert_eq!((forth.forwarded, forth.super_frames, forth.segmented), (2, 1, 0));
    assert_eq!((back.frames, back.forwarded, back.dropped()), (1, 1, 0));
}

/// A member's shards all get frames of no single shard. Its interface gets each
/// frame once.
#[test]
fn bridges_of_several_queues_pass_every_frame_once() {
    use crate::steering::Steering;

    let frames = [
        tcp_ipv4(&[1; 100]),
        tcp_ipv6_vlan(&[2; 100]),
        udp_ipv4(&[3; 100]),
        frame_to([0xff; 6], B, b"to all"),
    ];
    let mut passed = Vec::new();
    for index in 0..3 {
        let (mut near, bridge, mut far) = bridged(|_| {});
        let key = [7; 16];
        let mut bridge = bridge.only_share_of(Steering { index, count: 3, key });
        for frame in &frames {
            send(&mut far, frame, Offload::default()).unwrap();
        }
        far.flush();
        settle(&mut bridge);
        let came = receive_all(&mut near, 0);
        assert_eq!(bridge.statistics()[1].others, (frames.len() - came.len()) as u64);
        assert!(index == 0 || came.len() <= 1, "only a connection");
        passed.extend(came);
    }
    passed.sort();
    let mut all = frames.to_vec();
    all.sort();
    assert_eq!(passed, all);
}

/// Returns the payload of consecutive frames of a stream. Asserts that all are
/// valid and fit.
fn payload_of(frames: &[Vec<u8>], mtu: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    for frame in frames {
        let layout = Layout::of(frame).expect("a segment");
        assert!(layout.is_intact(frame));
        assert!(frame.len() - layout.network <= mtu, "{} bytes", frame.len());
        payload.extend(&frame[layout.payload..]);
    }
    payload
}

#[test]
fn super_frame_for_plain_link_is_cut_and_completed() {
    let (mut near, mut bridge, mut far) = bridged(plain);
    let bytes: Vec<u8> = (0..10_000).map(|at| (at / 7) as u8).collect();
    for (frame, size) in [(tcp_ipv4(&bytes), 1448), (tcp_ipv6_vlan(&bytes), 9000)] {
        send(&mut near, &frame, super_frame(size)).unwrap();
        near.flush();
        settle(&mut bridge);
        assert_eq!(payload_of(&receive_all(&mut far, 0), 1500), bytes);
    }
    send(&mut near, &tcp_ipv4(b"unfinished"), PARTIAL).unwrap();
    near.flush();
    settle(&mut bridge);
    assert_eq!(payload_of(&receive_all(&mut far, 0), 1500), b"unfinished");
    let [forth, _] = bridge.statistics();
    assert_eq!((forth.segmented, forth.dropped()), (2, 0));
}

/// A link passes only the beginning of a long frame in private memory. Its
/// headers may be longer.
#[test]
fn super_frame_with_long_headers_is_cut_and_completed() {
    //= RFC 8200 §4
    let (mut near, mut bridge, mut far) = bridged(plain);
    let bytes: Vec<u8> = (0..10_000).map(|at| (at / 7) as u8).collect();
    for options in [64, 128, 136, 512, 1024] {
        let frame = tcp_ipv6_behind(60, &destination_options(options), &bytes);
        send(&mut near, &frame, super_frame(1448)).unwrap();
        near.flush();
        settle(&mut bridge);
        let came = receive_all(&mut far, 0);
        assert_eq!(payload_of(&came, 1500), bytes, "{options} bytes of options");
    }
    let [forth, _] = bridge.statistics();
    assert_eq!((forth.segmented, forth.dropped()), (5, 0));
}

#[test]
fn uncuttable_long_frame_is_counted_as_too_long() {
    let (mut near, left) = cable(|settings| settings.capabilities.mtu = 9000);
    let (right, mut far) = cable(|_| {});
    let mut bridge = Bridge::new(left, right);
    let mut wrong = tcp_ipv4(&[1; 3000]);
    wrong[50] = 0x55; // the checksum that is in the frame
    let frames = [
        (udp_ipv4(&[1; 3000]), PARTIAL),
        (frame_to(B, A, &[1; 3000]), Offload::default()),
        (wrong, Offload::default()),
    ];
    for (frame, offload) in frames {
        send(&mut near, &frame, offload).unwrap();
    }
    near.flush();
    settle(&mut bridge);
    let [forth, _] = bridge.statistics();
    assert_eq!((forth.too_long, forth.bad_checksums, forth.forwarded), (2, 1, 0));

    // A stream's long frame can be cut if its checksum is right.
    let mut right = tcp_ipv4(&[1; 3000]);
    complete(&mut right, true, &mut PARTIAL.clone());
    send(&mut near, &right, Offload::default()).unwrap();
    near.flush();
    settle(&mut bridge);
    assert_eq!(receive_all(&mut far, 0).len(), 3);
}

#[test]
fn super_frame_of_tiny_segments_is_dropped() {
    let (mut near, mut bridge, mut far) = bridged(plain);
    send(&mut near, &tcp_ipv4(&[1; 60_000]), super_frame(1)).unwrap();
    near.flush();
    settle(&mut bridge);
    assert_eq!(bridge.statistics()[0].bad_super_frames, 1);
    assert!(receive_all(&mut far, 0).is_empty());
}

#[test]
fn only_permitted_source_passes() {
    let ((mut near, left), (right, mut far)) = (cable(|_| {}), cable(|_| {}));
    let mut bridge = Bridge::new(left, right).only_from(A);
    send(&mut near, &frame_to(B, A, b"own"), PARTIAL).unwrap();
    send(&mut near, &frame_to(B, [2; 6], b"other one"), PARTIAL).unwrap();
    near.flush();
    send(&mut far, &frame_to(A, [2; 6], b"back"), PARTIAL).unwrap();
    far.flush();
    settle(&mut bridge);
    assert_eq!(receive_all(&mut far, 0), [frame_to(B, A, b"own")]);
    assert_eq!(receive_all(&mut near, 0).len(), 1, "the way back is open");
    assert_eq!(bridge.statistics()[0].foreign, 1);
}

/// A link that refuses frames for some destinations and keeps the others.
#[derive(Debug, Default)]
struct Choosy {
    full: HashSet<[u8; 6]>,
    taken: Vec<Vec<u8>>,
}

impl Transmitter for Choosy {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let mut bytes = Vec::new();
        crate::loopback::copy_frame(frame, &mut bytes);
        if self.full.iter().any(|full| bytes.starts_with(full)) {
            return Err(TransmitError::Full);
        }
        self.taken.push(bytes);
        Ok(())
    }
}

impl Link for Choosy {
    fn capabilities(&self) -> Capabilities {
        LoopbackSettings::default().capabilities
    }

    fn address(&self) -> [u8; 6] {
        B
    }

    fn receive(&mut self, _: u64, _: usize, _: &mut dyn FnMut(&Received<'_>)) -> usize {
        0
    }

    fn flush(&mut self) {}

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn prepare_sleep(&mut self) -> bool {
        true
    }

    fn finish_sleep(&mut self, _: u64) {}
}

fn choosy() -> (Loopback, Bridge<Loopback, Choosy>) {
    let (near, left) = cable(|settings| settings.frames = 4096);
    let right = Choosy {
        full: HashSet::from([B]),
        taken: Vec::new(),
    };
    (near, Bridge::new(left, right))
}

#[test]
fn frames_without_room_wait_in_order_without_delaying_others() {
    let (mut near, mut bridge) = choosy();
    let other = [2, 0, 0, 0, 0, 3];
    for number in 0..3 {
        send(&mut near, &frame_to(B, A, &[number]), PARTIAL).unwrap();
        send(&mut near, &frame_to(other, A, &[number]), PARTIAL).unwrap();
    }
    near.flush();
    bridge.round_at(0);
    let others: Vec<_> = (0..3).map(|number| frame_to(other, A, &[number])).collect();
    assert_eq!(bridge.b.taken, others);
    bridge.b.full.clear();
    // A new frame must not overtake the waiting ones.
    send(&mut near, &frame_to(B, A, &[3]), PARTIAL).unwrap();
    near.flush();
    bridge.round_at(1);
    let late: Vec<_> = (0..4).map(|number| frame_to(B, A, &[number])).collect();
    assert_eq!(bridge.b.taken[3..], late);
    let [forth, _] = bridge.statistics();
    assert_eq!((forth.held, forth.forwarded, forth.dropped()), (3, 7, 0));
}

#[test]
fn waiting_frames_are_bounded_in_number() {
    let (mut near, mut bridge) = choosy();
    for _ in 0..2000 {
        send(&mut near, &frame_to(B, A, b""), PARTIAL).unwrap();
    }
    near.flush();
    while bridge.round_at(0) != 0 {}
    let [forth, _] = bridge.statistics();
    assert_eq!((forth.held, forth.crowded), (1024, 2000 - 1024));
}

#[test]
fn many_waiting_bytes_stop_receiving() {
    let (mut near, mut bridge) = choosy();
    let long = tcp_ipv4(&[0; 30_000]);
    for _ in 0..100 {
        send(&mut near, &long, super_frame(1448)).unwrap();
    }
    near.flush();
    while bridge.round_at(0) != 0 {}
    let taken = bridge.statistics()[0].frames;
    assert_eq!(taken, 64, "the other frames stay with the sender");
    bridge.b.full.clear();
    while bridge.round_at(1) != 0 {}
    let [forth, _] = bridge.statistics();
    assert_eq!((forth.forwarded, forth.dropped()), (100, 0));
}

/// A stopped receiver delays frames for others once, not again and again.
#[test]
fn no_frame_waits_for_stuck_destination() {
    let (mut near, mut bridge) = choosy();
    let other = [2, 0, 0, 0, 0, 3];
    let mut send = |to, len| {
        send(&mut near, &frame_to(to, A, &vec![0; len]), PARTIAL).unwrap();
        near.flush();
    };
    (0..300).for_each(|_| send(B, 1000));
    while bridge.round_at(0) != 0 {}
    send(other, 10);
    assert_eq!(bridge.round_at(1), 0, "no frame is taken");
    bridge.round_at(held::LONGEST_NS);
    let late = bridge.statistics()[0].late;
    assert!(late >= 256, "{late} frames were late");
    send(B, 1000);
    send(other, 20);
    while bridge.round_at(held::LONGEST_NS + 1) != 0 {}
    assert_eq!(bridge.b.taken.len(), 2);
    assert!(
        bridge.forth.is_empty(),
        "no frame waits for the destination again"
    );
    // The destination takes frames again, and frames may wait for it.
    bridge.b.full.clear();
    send(B, 30);
    while bridge.round_at(held::LONGEST_NS + 2) != 0 {}
    assert_eq!(bridge.b.taken.len(), 3);
    bridge.b.full.insert(B);
    send(B, 40);
    while bridge.round_at(held::LONGEST_NS + 3) != 0 {}
    assert!(!bridge.forth.is_empty());
}

#[test]
fn sleeping_bridge_wakes_for_frames_and_bell() {
    let (mut near, mut bridge, mut far) = bridged(|_| {});
    let bell = Doorbell::new().unwrap();
    let ring = bell.try_clone().unwrap();
    let driver = std::thread::spawn(move || {
        use std::os::fd::AsFd;
        bridge.drive(bell.as_fd());
        bridge.statistics()
    });
    for number in 0..500u16 {
        let frame = frame_to(B, A, &number.to_be_bytes());
        let (from, to) = match number % 2 {
            0 => (&mut near, &mut far),
            _ => (&mut far, &mut near),
        };
        send(from, &frame, PARTIAL).unwrap();
        from.flush();
        loop {
            if let [arrived] = &receive_all(to, 0)[..] {
                assert_eq!(*arrived, frame);
                break;
            }
            if to.prepare_sleep() {
                let source = [to.descriptor()];
                assert!(wait(&source, Some(Duration::from_secs(20))), "no wake-up");
                to.finish_sleep(0);
            }
        }
    }
    ring.ring();
    let [forth, back] = driver.join().unwrap();
    assert_eq!((forth.forwarded, back.forwarded), (250, 250));
}

proptest! {
    #[test]
    fn arbitrary_frame_passes_or_is_counted(
        frames in proptest::collection::vec((0usize..5, proptest::collection::vec(any::<u8>(), 0..200), 0usize..4000, 0u16..3000, 0u8..3), 1..20),
        bare in any::<bool>(),
    ) {
        let (mut near, left) = cable(|settings| settings.capabilities.mtu = 9000);
        let (right, mut far) = cable(|settings| if bare { plain(settings) });
        let mut bridge = Bridge::new(left, right);
        for (kind, noise, len, segment_size, checksum) in frames {
            let mut frame = match kind {
                0 => noise.clone(),
                1 => udp_ipv4(&vec![1; len]),
                2 => tcp_ipv6_vlan(&vec![2; len]),
                _ => tcp_ipv4(&vec![3; len]),
            };
            if kind == 4 {
                // Some headers are nearly right.
                for (at, byte) in noise.iter().enumerate().filter(|(_, byte)| **byte > 200) {
                    if let Some(place) = frame.get_mut(12 + at % 60) {
                        *place = *byte;
                    }
                }
            }
            let checksum = [Checksum::Complete, Checksum::Partial, Checksum::Verified][usize::from(checksum)];
            send(&mut near, &frame, Offload { checksum, segment_size }).unwrap();
        }
        near.flush();
        settle(&mut bridge);
        let arrived = receive_all(&mut far, 0);
        let [forth, _] = bridge.statistics();
        prop_assert_eq!(arrived.len() as u64, forth.forwarded);
        prop_assert!(forth.forwarded + forth.dropped() >= forth.frames);
        if bare {
            prop_assert!(arrived.iter().all(|frame| frame.len() <= 1522));
        }
        let whole = forth.frames - forth.segmented - forth.dropped();
        prop_assert!(forth.forwarded >= whole);
    }
}

/// A trait object is also a link: a bridge need not know the types of its
/// links.
#[test]
fn links_of_any_kind_are_joined() {
    let ((mut near, left), (right, mut far)) = (cable(|_| {}), cable(|_| {}));
    let mut bridge: Bridge<Box<dyn Link>, Box<dyn Link>> = Bridge::new(Box::new(left), Box::new(right));
    let frame = Transmit {
        headers: &frame_to(B, A, b"any"),
        payload: &Gather::EMPTY,
        offload: PARTIAL,
    };
    near.transmit(&frame).unwrap();
    near.flush();
    settle(&mut bridge);
    assert_eq!(receive_all(&mut far, 0).len(), 1);
}
