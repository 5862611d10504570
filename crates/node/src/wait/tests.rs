//! Threads that wait beside one another.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rustix::io::write;

use super::*;
use crate::{LocalNode, NodeConfig, Placement};

/// A node that only threads drive that wait.
fn node() -> LocalNode {
    let config = |name, host| {
        NodeConfig::alone(name)
            .ipv4([10, 0, 0, host], 24)
            .placement(Placement::Inline)
    };
    let [node, _] = LocalNode::pair([config("a", 1), config("b", 2)]).unwrap();
    node
}

/// Waits for what never comes, and counts how often it looks.
struct Never<'a>(&'a AtomicU32);

impl Operation for Never<'_> {
    type Output = ();

    fn attempt(&mut self, _: &mut Shard) -> Option<()> {
        self.0.fetch_add(1, Relaxed);
        None
    }

    fn subscription(&self) -> Subscription {
        Subscription::Nothing
    }
}

/// A ring of the bell reaches the thread at the link after the driver has taken back that the
/// thread was wanted. It is no reason to stay awake.
#[test]
fn a_ring_that_comes_late_wakes_once() {
    let node = node();
    let shards = node.shards().unwrap();
    let handle = shards.get(0);
    let looks = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut shard = handle.enter().unwrap();
            let deadline = clock::now().plus_nanos(300_000_000);
            let spin = SpinBudget::new();
            handle
                .block(&mut shard, &mut Never(&looks), &spin, Some(deadline))
                .unwrap();
        });
        loop {
            let mut shard = handle.enter().unwrap();
            if shard.waiting.seats.is_armed() {
                // Another call drives, so to say, and then the ring comes.
                handle.take_wheel(&mut shard, true);
                assert!(!shard.waiting.seats.is_armed());
                write(handle.descriptor.as_ref().unwrap(), &1_u64.to_ne_bytes()).unwrap();
                looks.store(0, Relaxed);
                break;
            }
            drop(shard);
            std::thread::yield_now();
        }
    });
    assert!(looks.load(Relaxed) < 10, "looked {looks:?} times");
}
