//! Looking at a stack from outside, without ever waiting long for it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use toehold_shm::LeaseGuard;
use toehold_stack::Event;

use crate::clock;
use crate::control::{Counter, SocketStatus, StackStatus};
use crate::shard::Shard;
use crate::wait::ShardHandle;

/// How long to wait for a stack that somebody else uses. Only a program that was
/// stopped in the middle of it uses it for so long.
const PATIENCE: Duration = Duration::from_millis(250);

fn look(shard: &ShardHandle) -> Option<LeaseGuard<'_, Shard>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(guard) = shard.lease.try_lock() {
            return Some(guard);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// How the stack is; `None` if it cannot be looked at now.
pub(super) fn status(handle: &ShardHandle) -> Option<StackStatus> {
    let mut shard = look(handle)?;
    let [waiters, interests, polls, possessions] = shard.waiting.lengths();
    let peers = shard.link.port().map_or(0, |port| port.connected() as u32);
    let stack = &shard.stack;
    let counters = stack.counters();
    let listeners = stack
        .sockets()
        .filter(|socket| matches!(socket, Event::Listener(_)))
        .count();
    Some(StackStatus {
        peers,
        connections: stack.connections(),
        connections_bound: stack.connections_bound(),
        listeners: listeners as u32,
        payload_used: stack.payload_bytes_used(),
        payload_bound: stack.payload_bytes_bound(),
        waiters,
        interests,
        polls,
        possessions,
        frames_received: counters.frames_received,
        frames_sent: counters.frames_sent,
        ..StackStatus::default()
    })
}

/// The stack's sockets, those that no program holds any more included.
pub(super) fn sockets(handle: &ShardHandle) -> Option<Vec<SocketStatus>> {
    let shard = look(handle)?;
    let owners: HashMap<Event, u16> = shard.waiting.holders.owners().collect();
    let now = clock::now();
    let held = shard.stack.sockets().filter_map(|socket| {
        let mut status = socket_status(&shard, socket, now)?;
        status.process = owners.get(&socket).copied();
        Some(status)
    });
    let released = shard.stack.released();
    let released = released.map(|(local, remote, info)| SocketStatus::connection(local, remote, &info, now));
    let time_waits = shard.stack.time_waits();
    let time_waits =
        time_waits.map(|(local, remote, timer)| SocketStatus::time_wait(local, remote, &timer, now));
    Some(held.chain(released).chain(time_waits).collect())
}

fn socket_status(shard: &Shard, socket: Event, now: toehold_stack::Instant) -> Option<SocketStatus> {
    let stack = &shard.stack;
    match socket {
        Event::Listener(id) => Some(SocketStatus::listener(
            stack.listener_addr(id).ok()?,
            stack.accept_queue_len(id).ok()?,
            stack.backlog(id).ok()?,
        )),
        Event::Connection(id) => Some(SocketStatus::connection(
            stack.local_addr(id).ok()?,
            stack.peer_addr(id).ok()?,
            &stack.info(id).ok()?,
            now,
        )),
    }
}

/// What the stack counts.
pub(super) fn counters(handle: &ShardHandle) -> Option<Vec<Counter>> {
    Some(Counter::of_stack(look(handle)?.stack.counters()))
}
