//! Two real processes, of which one is killed.

use std::process::{Child, Stdio};

use super::*;

const FABRIC: &str = "TOEHOLD_TEST_FABRIC";

/// A process that echoes frames until it is killed, or until the node that
/// started it goes away.
struct Echo(Child);

impl Echo {
    fn start(fabric: &Fabric) -> Echo {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "mq::tests::processes::process_echoes_frames",
                "--nocapture",
            ])
            .env(FABRIC, fabric.path())
            .stdout(Stdio::null())
            .spawn();
        Echo(child.unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test of its own: the other process of the tests below.
#[test]
fn process_echoes_frames() {
    let Ok(directory) = std::env::var(FABRIC) else {
        return;
    };
    let payload = shared_payload(64);
    let mut settings = MeshSettings::new(directory, "echo".parse().unwrap(), mac(1));
    settings.payload = Some(payload.arenas().clone());
    let mut node = Mesh::join(&settings).unwrap();
    let deadline = Instant::now() + 2 * PATIENCE;
    let mut met = false;
    while Instant::now() < deadline && !(met && node.connected() == 0) {
        met |= node.connected() != 0;
        let frames = take(&mut node);
        for payload in &frames {
            while send(&mut node, 0, payload) == Err(TransmitError::Full) {
                turn(&mut node);
            }
        }
        if frames.is_empty() && node.prepare_sleep() {
            let timeout = rustix::event::Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            let descriptor = node.descriptor().unwrap();
            let mut state = [rustix::event::PollFd::from_borrowed_fd(
                descriptor,
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut state, Some(&timeout)).unwrap();
            node.finish_sleep(next_ms());
        }
    }
}

fn echoed(nodes: &mut [Mesh], payload: &[u8]) {
    send(&mut nodes[0], 1, payload).unwrap();
    let mut answer = Vec::new();
    drive(nodes, |nodes| {
        answer.extend(take(&mut nodes[0]));
        !answer.is_empty()
    });
    assert_eq!(answer, [payload]);
}

#[test]
fn frames_cross_between_processes_and_a_killed_one_comes_back() {
    let fabric = Fabric::new();
    let mut nodes = [fabric.join("here", 0)];
    let mut lives = Vec::new();
    for life in 0..5 {
        let mut echo = Echo::start(&fabric);
        drive(&mut nodes, |nodes| nodes[0].connected() == 1);
        let crate::mq::PeerState::Connected { incarnation, .. } = nodes[0].peers()[0].state else {
            panic!()
        };
        assert!(!lives.contains(&incarnation));
        lives.push(incarnation);
        for len in [0, 1, 64, 1000, 1460, 20_000, 65_000] {
            echoed(&mut nodes, &vec![life; len]);
        }
        for round in 0..500u32 {
            echoed(&mut nodes, &round.to_be_bytes());
        }
        // Killed with frames on the way.
        for _ in 0..20 {
            send(&mut nodes[0], 1, &[life; 1400]).unwrap();
        }
        echo.kill();
        drive(&mut nodes, |nodes| nodes[0].connected() == 0);
        take(&mut nodes[0]);
        assert_eq!(send(&mut nodes[0], 1, b"?"), Err(TransmitError::Unreachable));
        assert!(
            fabric.path().join("echo.sock").exists(),
            "a killed node leaves its socket"
        );
    }
    let statistics = nodes[0].statistics();
    assert_eq!(
        (statistics.connected, statistics.lost, statistics.corrupt),
        (5, 5, 0)
    );
}

#[test]
fn stopped_process_blocks_no_peer() {
    let fabric = Fabric::new();
    let mut nodes = Vec::from([fabric.join("here", 0)]);
    let echo = Echo::start(&fabric);
    drive(&mut nodes, |nodes| nodes[0].connected() == 1);
    let pid = rustix::process::Pid::from_child(&echo.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    while send(&mut nodes[0], 1, &[7; 1400]).is_ok() {}
    nodes.push(fabric.join("third", 3));
    drive(&mut nodes, |nodes| nodes[0].connected() == 2);
    send(&mut nodes[0], 3, b"past the stopped one").unwrap();
    assert_eq!(take(&mut nodes[1]), [b"past the stopped one"]);
    let fence = nodes[0].fence(mac(1), &flow());
    assert!(nodes[0].passed(fence), "no payload of this node is shared");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    // The stopped process goes on and empties its ring.
    drive(&mut nodes, |nodes| {
        take(&mut nodes[0]);
        send(&mut nodes[0], 1, b"on").is_ok()
    });
    drive(&mut nodes, |nodes| {
        take(&mut nodes[0]).iter().any(|payload| payload == b"on")
    });
}
