//! Sleeping costs nothing and misses nothing.

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

/// Waits until a node prepared for sleep is woken. Returns `false` if no peer woke it in time.
pub(super) fn wait(node: &Mesh, timeout: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    let mut state = [PollFd::from_borrowed_fd(
        node.descriptor().unwrap(),
        PollFlags::IN,
    )];
    poll(&mut state, Some(&timeout)).unwrap() == 1
}

/// Sleeps, if there is nothing to do.
fn sleep(node: &mut Mesh) {
    if node.prepare_sleep() {
        sleep_on(node);
    }
}

/// Sleeps, having been prepared for it.
pub(super) fn sleep_on(node: &mut Mesh) {
    assert!(
        wait(node, PATIENCE),
        "a wake-up was lost: {:?}",
        describe(std::slice::from_ref(node))
    );
    node.finish_sleep(next_ms());
}

#[test]
fn idle_node_stays_asleep_until_a_frame_wakes_it() {
    let fabric = Fabric::new();
    let mut nodes = fabric.pair();
    nodes.iter_mut().for_each(turn);
    let [a, b] = &mut nodes;
    assert!(b.prepare_sleep());
    assert!(!wait(b, Duration::from_millis(30)), "nothing happened");
    send(a, 1, b"wake up").unwrap();
    assert!(wait(b, PATIENCE));
    b.finish_sleep(next_ms());
    assert_eq!(take(b), [b"wake up"]);
    // One sleep is rung for once, whatever the number of frames.
    assert!(b.prepare_sleep());
    for _ in 0..10 {
        send(a, 1, b"again").unwrap();
    }
    let PeerStateRings(rings) = rings(a);
    assert_eq!(rings, 2);
    b.finish_sleep(next_ms());
    assert!(!b.prepare_sleep(), "frames are there");
    assert_eq!(take(b).len(), 10);
    assert!(b.prepare_sleep());
    assert!(!wait(b, Duration::from_millis(30)));
}

struct PeerStateRings(u64);

fn rings(node: &Mesh) -> PeerStateRings {
    match node.peers()[0].state {
        crate::mq::PeerState::Connected { statistics, .. } => PeerStateRings(statistics.rings),
        _ => panic!("not connected"),
    }
}

#[test]
fn death_and_call_wake_sleeping_node() {
    let fabric = Fabric::new();
    let mut nodes = Vec::from(fabric.pair());
    nodes.iter_mut().for_each(turn);
    let dying = nodes.pop().unwrap();
    let mut a = nodes.pop().unwrap();
    assert!(a.prepare_sleep());
    drop(dying);
    assert!(wait(&a, PATIENCE));
    a.finish_sleep(next_ms());
    assert_eq!(a.connected(), 0);

    let mut b = fabric.join("node-1", 1);
    turn(&mut b); // dials
    let deadline = Instant::now() + PATIENCE;
    while a.connected() == 0 {
        assert!(Instant::now() < deadline);
        sleep(&mut a);
    }
    // The timer of the retries for the lost node may go off, and then no more.
    turn(&mut b);
    assert_eq!(b.connected(), 1);
}

/// Each side answers what it gets, sleeping in between: a lost wake-up would
/// make both sleep for good.
#[test]
fn no_wake_up_is_lost_in_a_ping_pong() {
    const ROUNDS: u32 = 3000;
    let fabric = Fabric::new();
    let [mut a, mut b] = fabric.pair();
    let echo = std::thread::spawn(move || {
        let mut seen = 0;
        while seen < ROUNDS {
            let frames = take(&mut b);
            seen += frames.len() as u32;
            frames
                .iter()
                .for_each(|payload| send(&mut b, 0, payload).unwrap());
            if seen < ROUNDS && frames.is_empty() {
                sleep(&mut b);
            }
        }
        b
    });
    for round in 0..ROUNDS {
        send(&mut a, 1, &round.to_be_bytes()).unwrap();
        loop {
            let frames = take(&mut a);
            if frames.is_empty() {
                sleep(&mut a);
            } else {
                assert_eq!(frames, [round.to_be_bytes()]);
                break;
            }
        }
    }
    echo.join().unwrap();
}

/// The sender fills the ring and sleeps until there is room; the receiver
/// sleeps until there are frames.
#[test]
fn no_wake_up_is_lost_at_a_full_ring() {
    const FRAMES: u32 = 20_000;
    let fabric = Fabric::new();
    let settings = |name, number| MeshSettings {
        ring_capacity: 64 << 10,
        ..fabric.settings(name, number)
    };
    let mut nodes = [("a", 0), ("b", 1)].map(|(name, number)| Mesh::join(&settings(name, number)).unwrap());
    drive(&mut nodes, |nodes| nodes.iter().all(|node| node.connected() == 1));
    let [mut a, mut b] = nodes;
    let receiver = std::thread::spawn(move || {
        let mut expected = 0u32;
        while expected < FRAMES {
            let frames = b.receive(0, 7, &mut |frame| {
                assert_eq!(whole(frame)[14..18], expected.to_be_bytes());
                expected += 1;
            });
            b.flush();
            if frames == 0 {
                sleep(&mut b);
            }
        }
        b
    });
    let mut full = 0;
    for number in 0..FRAMES {
        let payload = number.to_be_bytes().repeat(1 + number as usize % 300);
        while let Err(error) = send(&mut a, 1, &payload) {
            assert_eq!(error, TransmitError::Full);
            full += 1;
            sleep(&mut a);
        }
    }
    assert!(full > 0, "the ring was never full");
    receiver.join().unwrap();
}
