//! Scarce payload memory. A connection that waits for memory is told when some
//! is free, whatever happened to the connections that held it.

use core::net::SocketAddr;

use toehold_link::{Transmit, TransmitError, Transmitter};
use toehold_shm::{Carver, Region};
use toehold_stack::{
    Config, ConnectionId, Event, Instant, ReceiveFlags, SendFlags, SocketError, SocketOption, Stack,
};

const BLOCKS: u32 = 16;
const BLOCK: usize = 4096;
/// Bytes that senders may queue. Half of so little memory is kept for received
/// data.
const QUEUEABLE: usize = BLOCKS as usize / 2 * BLOCK;
const NOW: Instant = Instant(3_600_000_000_000);

/// A link that takes no frame: all connections are with the stack itself.
struct NullLink;

impl Transmitter for NullLink {
    fn transmit(&mut self, _: &Transmit<'_>) -> Result<(), TransmitError> {
        Ok(())
    }
}

/// Opens this many connections over loopback. Returns the stack, the connecting
/// ends and the accepting ends. A window holds one block.
fn connected(count: usize) -> (Stack, Vec<ConnectionId>, Vec<ConnectionId>) {
    connected_in(BLOCKS, count)
}

/// Opens connections as [`connected`] does, in a stack with this many blocks.
fn connected_in(blocks: u32, count: usize) -> (Stack, Vec<ConnectionId>, Vec<ConnectionId>) {
    let mut config = Config {
        ethernet: false,
        connections: 512,
        listeners: 4,
        time_wait_records: 16,
        payload_blocks: blocks,
        payload_block_len: BLOCK as u32,
        ..Config::default()
    };
    config.tcp.receive_buffer = BLOCK as u32;
    let region = Region::private(Stack::region_len(&config)).expect("memory");
    let mut carver = Carver::new(region).expect("fresh");
    let mut stack = Stack::create(&mut carver, &config).expect("room");
    let settings = stack.default_settings();
    let server: SocketAddr = "127.0.0.1:80".parse().expect("an address");
    let listener = stack.listen(NOW, server, 512, &settings).expect("a free port");
    let mut ends = (Vec::new(), Vec::new());
    for _ in 0..count {
        ends.0
            .push(stack.connect(NOW, None, server, &settings).expect("room"));
        let id = *ends.0.last().expect("just added");
        stack
            .set_option(NOW, id, SocketOption::NoDelay(true))
            .expect("the connection is there");
        told(&mut stack);
        ends.1
            .push(stack.accept(listener).expect("the connection is established"));
    }
    told(&mut stack);
    (stack, ends.0, ends.1)
}

/// Sends the stack's output and returns the connections with events.
fn told(stack: &mut Stack) -> Vec<ConnectionId> {
    stack.poll_transmit(NOW, &mut NullLink);
    core::iter::from_fn(|| stack.next_event())
        .filter_map(|event| match event {
            Event::Connection(id) => Some(id),
            Event::Listener(_) => None,
        })
        .collect()
}

/// Queues bytes until a connection gets no more memory. Returns their number.
fn fill_alone(stack: &mut Stack, id: ConnectionId) -> usize {
    let mut queued = 0;
    while let Ok(len) = stack.send(id, &[7; BLOCK], SendFlags::default()) {
        queued += len;
        told(stack);
    }
    queued
}

/// Number of connections that take all memory: the first ones hold several blocks,
/// the last ones the rest.
const GREEDY: usize = QUEUEABLE / BLOCK;

/// Queues bytes until no memory is left.
fn fill(stack: &mut Stack, ids: &[ConnectionId]) {
    let mut queued = 0;
    for &id in ids {
        queued += fill_alone(stack, id);
    }
    assert!(queued >= QUEUEABLE, "{queued} bytes");
}

fn try_send(stack: &mut Stack, id: ConnectionId) -> Result<usize, SocketError> {
    stack.send(id, &[7; 100], SendFlags::default())
}

#[test]
fn sender_waiting_for_memory_is_told_when_reader_frees_some() {
    let (mut stack, senders, readers) = connected(GREEDY + 1);
    fill(&mut stack, &senders[..GREEDY]);
    let late = senders[GREEDY];
    assert_eq!(try_send(&mut stack, late), Err(SocketError::WouldBlock));
    told(&mut stack);
    let mut buffer = vec![0; QUEUEABLE];
    let mut woken = false;
    for _ in 0..100 {
        let _ = stack.receive(readers[0], &mut buffer, ReceiveFlags::default());
        woken |= told(&mut stack).contains(&late);
    }
    assert!(woken);
    assert_eq!(try_send(&mut stack, late), Ok(100));
}

#[test]
fn aborted_connection_waiting_for_memory_frees_its_own() {
    let (mut stack, senders, readers) = connected(GREEDY + 1);
    fill(&mut stack, &senders[..GREEDY]);
    for &id in &senders {
        assert_eq!(try_send(&mut stack, id), Err(SocketError::WouldBlock));
    }
    let late = senders[GREEDY];
    for ends in [&senders, &readers] {
        for &id in &ends[..GREEDY] {
            stack.abort(id).expect("the connection is there");
        }
    }
    let mut woken = told(&mut stack);
    woken.extend(told(&mut stack));
    assert!(woken.contains(&late));
    assert_eq!(try_send(&mut stack, late), Ok(100));
    told(&mut stack);
    assert_eq!(stack.connections(), 2, "the other pairs are freed");
}

#[test]
fn waiting_senders_are_told_in_order_and_within_free_memory() {
    let (mut stack, senders, readers) = connected(100 + GREEDY);
    fill(&mut stack, &senders[100..]);
    for &id in &senders[..100] {
        assert_eq!(try_send(&mut stack, id), Err(SocketError::WouldBlock));
    }
    told(&mut stack);
    let mut order = Vec::new();
    for at in 100..200 {
        if at < senders.len() {
            stack.abort(senders[at]).expect("the connection is there");
            stack.abort(readers[at]).expect("the connection is there");
        }
        let round: Vec<_> = told(&mut stack)
            .into_iter()
            .filter(|id| senders[..100].contains(id))
            .collect();
        // The stack's resets to itself split a round into several.
        assert!(round.len() <= 4 * BLOCKS as usize);
        order.extend(round);
    }
    assert_eq!(order, senders[..100], "each is told once, in order of waiting");
    assert!(!stack.has_output());
}

#[test]
fn unread_data_leave_memory_for_later_connections() {
    let (mut stack, senders, readers) = connected(2);
    fill_alone(&mut stack, senders[0]);
    assert_eq!(try_send(&mut stack, senders[0]), Err(SocketError::WouldBlock));
    for _ in 0..100 {
        assert_eq!(try_send(&mut stack, senders[1]), Ok(100));
        let mut read = 0;
        for _ in 0..10 {
            told(&mut stack);
            read += stack
                .receive(readers[1], &mut [0; 100], ReceiveFlags::default())
                .unwrap_or(0);
        }
        assert_eq!(read, 100);
    }
    assert!(
        !stack.has_output(),
        "a connection that holds its share is told of memory only once"
    );
}

#[test]
fn sender_at_its_share_is_told_when_others_free_memory() {
    let (mut stack, senders, readers) = connected_in(16 * BLOCKS, 2);
    let alone = fill_alone(&mut stack, senders[0]);
    stack.abort(senders[0]).expect("the connection is there");
    stack.abort(readers[0]).expect("the connection is there");
    told(&mut stack);
    told(&mut stack);
    let mut pairs = connected_in(16 * BLOCKS, 3);
    let (stack, senders, readers) = (&mut pairs.0, &pairs.1, &pairs.2);
    fill_alone(stack, senders[0]);
    let beside = fill_alone(stack, senders[1]);
    assert!(beside < alone, "{beside} bytes of {alone}");
    stack.abort(senders[0]).expect("the connection is there");
    stack.abort(readers[0]).expect("the connection is there");
    let mut woken = told(stack);
    woken.extend(told(stack));
    assert!(woken.contains(&senders[1]));
    assert!(try_send(stack, senders[1]).is_ok());
}

#[test]
fn closed_sender_above_its_share_leaves_no_memory() {
    let (mut stack, senders, readers) = connected(20);
    fill_alone(&mut stack, senders[0]);
    assert_eq!(try_send(&mut stack, senders[0]), Err(SocketError::WouldBlock));
    told(&mut stack);
    // Other connections take the freed memory before the waiting one is told.
    let mut bytes = [0; 4096];
    while stack
        .receive(readers[0], &mut bytes, ReceiveFlags::default())
        .is_ok()
    {}
    for &id in &senders[1..] {
        while try_send(&mut stack, id).is_ok() {}
    }
    stack.abort(senders[0]).expect("the connection is there");
    stack.abort(readers[0]).expect("the connection is there");
    for _ in 0..3 {
        told(&mut stack);
    }
    assert_eq!(stack.connections(), 38);
}
