//! Meshes against each other, against liars, and against death.

mod ahead;
mod bounds;
mod direct;
mod frames;
mod gateways;
mod hostile;
mod identity;
mod many;
mod membership;
mod mend;
mod port;
mod processes;
mod programs;
mod restarts;
mod shards;
mod sleep;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use toehold_shm::{ArenaId, Carver, Gather, Payload, Region};

use super::port::Port;
use super::{Gateway, Mesh, MeshSettings, NodeName};
use crate::steering::Flow;
use crate::test_frames::{PARTIAL, frame_to, whole};
use crate::{Checksum, Link, Offload, Received, Transmit, TransmitError, Transmitter};

/// Everything in these tests happens within this time, or never.
const PATIENCE: Duration = Duration::from_secs(20);

/// A fabric's directory, removed with all that is in it.
struct Fabric(PathBuf);

impl Fabric {
    fn new() -> Fabric {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Fabric(std::env::temp_dir().join(format!("toehold-mq-{}-{number}", std::process::id())))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn settings(&self, name: &str, number: u8) -> MeshSettings {
        MeshSettings::new(&self.0, name.parse().unwrap(), mac(number))
    }

    fn join(&self, name: &str, number: u8) -> Mesh {
        Mesh::join(&self.settings(name, number)).unwrap()
    }

    /// `count` nodes, each connected with all others; node `n` has `mac(n)`.
    fn nodes(&self, count: u8) -> Vec<Mesh> {
        let mut nodes: Vec<Mesh> = (0..count)
            .map(|number| self.join(&format!("node-{number}"), number))
            .collect();
        let peers = usize::from(count) - 1;
        drive(&mut nodes, |nodes| {
            nodes.iter().all(|node| node.connected() == peers)
        });
        nodes
    }

    fn pair(&self) -> [Mesh; 2] {
        self.nodes(2).try_into().unwrap()
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// Any connection: nodes with one shard need not know which.
fn flow() -> Flow {
    Flow::between(([1; 16], 1), ([2; 16], 2))
}

fn name(name: &str) -> NodeName {
    name.parse().unwrap()
}

/// Gives every node a turn, with housekeeping, until something is true.
fn drive<T: AsMut<[Mesh]> + ?Sized>(nodes: &mut T, mut until: impl FnMut(&mut [Mesh]) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !until(nodes.as_mut()) {
        assert!(
            Instant::now() < deadline,
            "did not happen: {:#?}",
            describe(nodes.as_mut())
        );
        nodes.as_mut().iter_mut().for_each(turn);
    }
}

fn describe(nodes: &[Mesh]) -> Vec<String> {
    let one = |node: &Mesh| {
        format!(
            "{} {:?} {:?} {:?}",
            node.name(),
            node.peers(),
            node.statistics(),
            node.last_loss()
        )
    };
    nodes.iter().map(one).collect()
}

/// Housekeeping, and no frames.
fn turn(node: &mut Mesh) {
    node.receive(next_ms(), 0, &mut |_| {});
    node.flush();
}

/// A clock on which housekeeping is due at every call. Each thread has a clock of its own, which
/// begins at the latest time of all. Tests that run beside this one, many on a busy machine, do not
/// move this test's clock.
fn next_ms() -> u64 {
    static LATEST: AtomicU32 = AtomicU32::new(1);
    thread_local!(static NOW: Cell<u32> = Cell::new(LATEST.load(Ordering::Relaxed)));
    let now = NOW.get();
    NOW.set(now + 1);
    LATEST.fetch_max(now + 1, Ordering::Relaxed);
    u64::from(now) * 20_000_000
}

/// Sends one frame and makes it visible.
fn send(node: &mut Mesh, to: u8, payload: &[u8]) -> Result<(), TransmitError> {
    let frame = frame_to(mac(to), node.address(), payload);
    let super_frame = frame.len() > 1514;
    let offload = Offload {
        segment_size: if super_frame { 1460 } else { 0 },
        ..PARTIAL
    };
    let sent = node.transmit(&Transmit {
        headers: &frame,
        payload: &Gather::EMPTY,
        offload,
    });
    node.flush();
    sent
}

/// Payloads of the frames that are there.
fn take(node: &mut Mesh) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let mut handler = |frame: &Received<'_>| payloads.push(whole(frame)[14..].to_vec());
    while node.receive(0, 64, &mut handler) != 0 {}
    payloads
}

/// Payload memory with arenas of `blocks` blocks of 4096 bytes, for four peers.
fn shared_payload(blocks: u32) -> Payload {
    let len = Payload::bytes_needed_with(4 * blocks, 4096, 4);
    let region = Region::create("test-payload", len).unwrap();
    let mut carver = Carver::new(region).unwrap();
    carver.payload_with(4 * blocks, 4096, 4).unwrap()
}

/// Runs a test alone in a process of its own, so that what it counts is its own. `test`: the test's
/// path in this crate. Returns `false` in that process.
fn elsewhere(test: &str) -> bool {
    const MARK: &str = "TOEHOLD_TEST_ALONE";
    if std::env::var(MARK).as_deref() == Ok(test) {
        return false;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command
        .args(["--exact", test, "--nocapture"])
        .env(MARK, test)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    true
}

/// The arena of the only peer that has one.
fn arena_of(port: &Port) -> ArenaId {
    let arenas = port.state.iter().map(|(_, record)| record.arena);
    let arenas: Vec<_> = arenas.filter(|arena| *arena != ArenaId::PRIVATE).collect();
    assert_eq!(arenas.len(), 1, "{:?}", port.peers());
    arenas[0]
}

/// A block that this only peer may read.
fn block_for(payload: &mut Payload, port: &Port) -> u32 {
    payload.allocate_in(arena_of(port)).unwrap()
}
