//! Connection attempts to neighbours whose hardware address cannot be resolved.

use core::net::{Ipv4Addr, SocketAddr};
use std::collections::HashSet;

use toehold_link::{Transmit, TransmitError, Transmitter};
use toehold_shm::{Carver, Region};
use toehold_stack::{Config, ConnectionId, Event, Instant, SocketError, Stack};

const NOW: Instant = Instant(3_600_000_000_000);
const CONNECTIONS: u32 = 16;

/// A link without a node at the other end.
struct Silence;

impl Transmitter for Silence {
    fn transmit(&mut self, _: &Transmit<'_>) -> Result<(), TransmitError> {
        Ok(())
    }
}

fn stack() -> Stack {
    let config = Config {
        ipv4: Some((Ipv4Addr::new(10, 0, 0, 1), 8)),
        connections: CONNECTIONS,
        ..Config::default()
    };
    let mut carver = Carver::new(Region::private(Stack::region_len(&config)).unwrap()).unwrap();
    Stack::create(&mut carver, &config).unwrap()
}

/// Begins as many attempts as there is room for.
fn fill(stack: &mut Stack) -> Vec<ConnectionId> {
    let to = SocketAddr::from(([10, 0, 0, 2], 80));
    let settings = stack.default_settings();
    let attempts = (0..CONNECTIONS)
        .map(|_| stack.connect(NOW, None, to, &settings).unwrap())
        .collect();
    let full = stack.connect(NOW, None, to, &settings);
    assert_eq!(full, Err(SocketError::OutOfMemory));
    // They wait for the neighbour now.
    stack.poll_transmit(NOW, &mut Silence);
    attempts
}

#[test]
fn aborted_attempt_frees_its_slot_at_once() {
    let mut stack = stack();
    let mut attempts = fill(&mut stack);
    // From the ends and from the middle of the neighbour's list.
    for at in [15, 0, 7, 0] {
        let given_up = attempts.remove(at);
        let before = stack.connections();
        stack.close(NOW, given_up).unwrap();
        assert_eq!(stack.connections(), before - 1);
    }
    stack.abort(attempts.remove(3)).unwrap();
    assert_eq!(stack.connections(), CONNECTIONS - 5);
    for attempt in attempts {
        stack.close(NOW, attempt).unwrap();
    }
    assert_eq!(stack.connections(), 0);
    fill(&mut stack);
}

#[test]
fn waiting_attempts_fail_when_resolution_fails() {
    let mut stack = stack();
    let attempts = fill(&mut stack);
    let (given_up, waiting) = attempts.split_at(5);
    for attempt in given_up {
        stack.close(NOW, *attempt).unwrap();
    }
    while let Some(at) = stack.poll_timeout().filter(|at| at.since(NOW).as_secs() < 60) {
        stack.handle_timeout(at);
        stack.poll_transmit(at, &mut Silence);
    }
    for attempt in waiting {
        assert_eq!(stack.take_error(*attempt), Ok(Some(SocketError::HostUnreachable)));
        stack.close(NOW, *attempt).unwrap();
    }
    while stack.next_event().is_some() {}
    assert_eq!(stack.connections(), 0);
}

/// Any words: ids that were never given, and ids of connections that have ended.
#[test]
fn only_ids_of_existing_connections_resolve() {
    let mut stack = stack();
    let named = |stack: &Stack| {
        let words = (0..40_u64)
            .flat_map(|generation| (0..2 * u64::from(CONNECTIONS)).map(move |at| generation << 32 | at));
        let known = words.filter(|word| match Event::from_word(*word) {
            Event::Connection(id) => stack.state(id).is_ok(),
            Event::Listener(_) => false,
        });
        known.collect::<Vec<_>>()
    };
    assert!(named(&stack).is_empty());
    let mut attempts = fill(&mut stack);
    let words = |attempts: &[ConnectionId]| {
        attempts
            .iter()
            .map(|id| Event::Connection(*id).word())
            .collect::<HashSet<_>>()
    };
    assert_eq!(
        named(&stack).into_iter().collect::<HashSet<_>>(),
        words(&attempts)
    );
    for gone in attempts.drain(3..9) {
        stack.close(NOW, gone).unwrap();
    }
    assert_eq!(
        named(&stack).into_iter().collect::<HashSet<_>>(),
        words(&attempts)
    );
}
