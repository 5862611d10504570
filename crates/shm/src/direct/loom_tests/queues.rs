//! Accept queues.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::thread;

use super::{check, check_within};
use crate::direct::accept_queue::{AcceptQueue, ConnectionId, claim};
use crate::direct::lock::full_fence;
use crate::futex::AtomicU64;

struct Queue {
    slots: [AtomicU64; 2],
    head: AtomicU64,
    tail: AtomicU64,
    takers: [AtomicU64; 2],
}

impl Queue {
    fn new() -> Arc<Queue> {
        Arc::new(Queue {
            slots: [AtomicU64::new(0), AtomicU64::new(0)],
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            takers: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    fn queue(&self) -> AcceptQueue<'_> {
        AcceptQueue {
            slots: &self.slots,
            head: &self.head,
            tail: &self.tail,
        }
    }

    fn take(&self, process: u16) -> Option<ConnectionId> {
        self.queue().take(|connection| {
            let taker = &self.takers[usize::from(connection.number)];
            claim(taker, connection.generation, process)
        })
    }
}

fn connection(number: u16, generation: u32) -> ConnectionId {
    ConnectionId { number, generation }
}

#[test]
fn connection_offered_by_two_is_taken_by_one_of_two() {
    check_within(2, || {
        let queue = Queue::new();
        let offerer = |number: u16| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.queue().offer(connection(number, 1), 2).unwrap())
        };
        let taker = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.take(2)
        });
        let offerers = [offerer(0), offerer(1)];
        let here = queue.take(1);
        for offerer in offerers {
            offerer.join().unwrap();
        }
        let there = taker.join().unwrap();
        let rest = [queue.take(1), queue.take(1), queue.take(1)];
        let mut all: Vec<_> = rest.into_iter().chain([here, there]).flatten().collect();
        all.sort_by_key(|connection| connection.number);
        assert_eq!(all, [connection(0, 1), connection(1, 1)]);
    });
}

/// An offerer has died before it moved the tail, a taker before it emptied the slot; the number
/// is used again meanwhile.
#[test]
fn queue_goes_on_after_deaths_and_reused_numbers() {
    check(|| {
        let queue = Queue::new();
        queue.queue().offer(connection(0, 1), 2).unwrap();
        queue.tail.store(0, Relaxed);
        assert!(claim(&queue.takers[0], 1, 9));
        let offerer = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.queue().offer(connection(0, 2), 2).is_ok()
        });
        let taker = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.take(2)
        });
        let here = queue.take(1);
        assert!(offerer.join().unwrap());
        let there = taker.join().unwrap();
        let all = [here, there, queue.take(1)];
        let taken: Vec<_> = all.into_iter().flatten().collect();
        assert_eq!(taken, [connection(0, 2)], "the dead taker's is not given again");
    });
}

/// The closing side changes the generation, fences, and empties the queue; the offering side
/// offers, fences, and looks at the generation.
#[test]
fn offer_to_a_closing_listener_is_refused_or_noticed() {
    check(|| {
        let queue = Queue::new();
        let generation = Arc::new(AtomicU64::new(1));
        let offerer = thread::spawn({
            let (queue, generation) = (Arc::clone(&queue), Arc::clone(&generation));
            move || {
                queue.queue().offer(connection(0, 1), 2).unwrap();
                full_fence();
                generation.load(Acquire) == 1
            }
        });
        generation.store(0, Release);
        full_fence();
        let refused = queue.take(1).is_some();
        let is_open = offerer.join().unwrap();
        assert!(
            refused || !is_open,
            "the offerer believes in a queue that nobody empties"
        );
    });
}
