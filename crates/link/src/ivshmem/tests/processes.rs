//! Two real processes. One of them is killed and restarted.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::test_frames::PARTIAL;

const PATH: &str = "TOEHOLD_TEST_SEGMENT";
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that echoes frames until it is killed or its time ends.
struct Echo(Child);

impl Echo {
    fn start(segment: &TestSegment) -> Echo {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "ivshmem::tests::processes::process_echoes_frames",
                "--nocapture",
            ])
            .env(PATH, segment.path())
            .stdout(Stdio::null())
            .spawn();
        Echo(child.unwrap())
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs as the second process of the test in this file. It tests nothing by itself.
#[test]
fn process_echoes_frames() {
    let Ok(path) = std::env::var(PATH) else { return };
    let settings = IvshmemSettings {
        member: Some(1),
        ..IvshmemSettings::new(path, mac(2))
    };
    let (mut link, begun) = (IvshmemLink::open(&settings).unwrap(), Instant::now());
    while begun.elapsed() < 2 * PATIENCE {
        for frame in receive_all(&mut link, begun.elapsed().as_nanos() as u64) {
            let answer = frame_to(mac(1), mac(2), &frame[14..]);
            let _ = send(&mut link, &answer, PARTIAL);
        }
        link.flush();
        std::thread::sleep(link.longest_sleep().unwrap());
    }
}

/// Sends until an answer comes. Frames sent without a receiver are lost.
fn echoed(link: &mut IvshmemLink, begun: Instant, bytes: &[u8]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "no answer");
        let _ = send(link, &frame_to(mac(2), mac(1), bytes), PARTIAL);
        link.flush();
        std::thread::sleep(Duration::from_millis(1));
        let answers = receive_all(link, begun.elapsed().as_nanos() as u64);
        if answers.iter().any(|answer| answer[14..] == *bytes) {
            return;
        }
    }
}

#[test]
fn restarted_process_takes_its_number_again() {
    let segment = TestSegment::new();
    let (mut link, begun) = (segment.member(1), Instant::now());
    for life in [&b"first"[..], b"second"] {
        let mut echo = Echo::start(&segment);
        echoed(&mut link, begun, life);
        echo.0.kill().unwrap();
        echo.0.wait().unwrap();
    }
    assert_eq!(link.statistics().broken, 0);
    assert_eq!(link.peers().next().map(|peer| peer.member), Some(1));
}
