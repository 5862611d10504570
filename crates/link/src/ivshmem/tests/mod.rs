//! Members of a segment in one process, under the test's clock.

mod frames;
mod hostile;
mod processes;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::test_frames::{frame_to, receive_all, send};
use crate::{Link, Offload, TransmitError};

/// A segment of one test.
struct TestSegment(PathBuf);

impl TestSegment {
    fn new() -> TestSegment {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("toehold-shared-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        TestSegment(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.join("segment")
    }

    /// Returns settings for 1 MiB and four members, which gives rings of 64 KiB.
    fn settings(&self, number: u8) -> IvshmemSettings {
        IvshmemSettings {
            size: Some(1 << 20),
            members: 4,
            ..IvshmemSettings::new(self.path(), mac(number))
        }
    }

    fn member(&self, number: u8) -> IvshmemLink {
        IvshmemLink::open(&self.settings(number)).unwrap()
    }
}

impl Drop for TestSegment {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

const MS: u64 = 1_000_000;

/// Drives all members until they have seen each other and no frame has come for
/// long enough. Received frames are dropped.
fn settle(links: &mut [&mut IvshmemLink], now_ns: &mut u64) {
    for _ in 0..200 {
        *now_ns += MS;
        for link in links.iter_mut() {
            link.receive(*now_ns, 64, &mut |_| ());
            link.flush();
        }
    }
}

fn connected(link: &IvshmemLink) -> usize {
    link.peers().filter(|peer| peer.is_connected).count()
}
