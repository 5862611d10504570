//! Looking at a node's stacks from outside, without ever waiting long for one.

use std::collections::HashMap;
use std::time::Duration;

use toehold_stack::Event;

use crate::clock;
use crate::control::peers;
use crate::control::{Counter, SocketStatus, StackStatus};
use crate::engine::host::direct::Banks;
use crate::shard::Shard;
use crate::shards::Shards;
use crate::wait::{Guard, ShardHandle};

/// How long to wait for a stack that another thread uses. Only a program that was stopped in the
/// middle of it uses it for so long.
const PATIENCE: Duration = Duration::from_millis(250);

fn look(shard: &ShardHandle) -> Option<Guard<'_>> {
    let until = clock::now() + PATIENCE;
    // A thread that spins with the lease gives way to threads that say that they want it.
    shard.lease.lock_until(until.0).ok().flatten()
}

/// The status of all stacks together; `None` if one cannot be looked at now.
pub(super) fn status(shards: &Shards) -> Option<StackStatus> {
    let mut together = StackStatus::default();
    for (index, handle) in shards.iter() {
        let one = status_of(handle)?;
        // A listener is in every shard, and a poll as well; every shard has all peers.
        if index == 0 {
            (together.peers, together.listeners, together.polls) = (one.peers, one.listeners, one.polls);
        }
        // Memory that a program has scribbled over may hold any number.
        let add = |sum: &mut u32, one: u32| *sum = sum.saturating_add(one);
        let add_long = |sum: &mut u64, one: u64| *sum = sum.saturating_add(one);
        add(&mut together.connections, one.connections);
        add(&mut together.connections_bound, one.connections_bound);
        add_long(&mut together.payload_used, one.payload_used);
        add_long(&mut together.payload_bound, one.payload_bound);
        add(&mut together.waiters, one.waiters);
        add(&mut together.interests, one.interests);
        add(&mut together.possessions, one.possessions);
        add(&mut together.relays, one.relays);
        add_long(&mut together.frames_received, one.frames_received);
        add_long(&mut together.frames_sent, one.frames_sent);
        // What one shard refuses, others commonly do, too.
        for conflict in one.conflicts {
            if together.conflicts.is_empty() {
                together.conflicts.push(conflict);
            }
        }
    }
    Some(together)
}

fn status_of(handle: &ShardHandle) -> Option<StackStatus> {
    let mut shard = look(handle)?;
    let [waiters, interests, polls, possessions] = shard.waiting.lengths();
    let port = shard.link.port();
    let conflict = port.as_ref().and_then(|port| port.conflict());
    let peers = port.map_or(0, |port| port.nodes() as u32);
    let stack = &shard.stack;
    let counters = stack.counters();
    let listeners = stack
        .sockets()
        .filter(|socket| matches!(socket, Event::Listener(_)))
        .count();
    Some(StackStatus {
        peers,
        conflicts: conflict.map(peers::sentence).into_iter().collect(),
        connections: stack.connections(),
        connections_bound: stack.connections_bound(),
        listeners: listeners as u32,
        payload_used: stack.payload_bytes_used(),
        payload_bound: stack.payload_bytes_bound(),
        waiters,
        interests,
        polls,
        possessions,
        relays: shard.waiting.holders.relays(),
        frames_received: counters.frames_received,
        frames_sent: counters.frames_sent,
        ..StackStatus::default()
    })
}

/// The sockets of all stacks, a listener in each of them, those that no program holds any more included.
pub(super) fn sockets(shards: &Shards, direct: Option<&Banks>) -> Option<Vec<SocketStatus>> {
    let mut sockets = Vec::new();
    for (index, handle) in shards.iter() {
        let mut own = sockets_of(handle, direct)?;
        own.iter_mut().for_each(|socket| socket.shard = index.into());
        sockets.append(&mut own);
    }
    Some(sockets)
}

fn sockets_of(handle: &ShardHandle, direct: Option<&Banks>) -> Option<Vec<SocketStatus>> {
    let shard = look(handle)?;
    // No other connection is to have the inodes that are told of here.
    handle.descriptions.look();
    let held = shard.waiting.holders.held();
    let owners: HashMap<Event, (u32, u16)> = held
        .map(|(number, source, process)| (source, (number, process)))
        .collect();
    let now = clock::now();
    let held = shard.stack.sockets().filter_map(|socket| {
        let mut status = socket_status(&shard, direct, socket, now)?;
        if let Some(&(number, process)) = owners.get(&socket) {
            status.process = Some(process);
            if let Some(description) = handle.descriptions.of(number) {
                (status.inode, status.cookie) = description.names();
                status.ipv6 |= description.is_ipv6();
            }
        }
        Some(status)
    });
    let released = shard.stack.released();
    let released = released.map(|(local, remote, info)| SocketStatus::connection(local, remote, &info, now));
    let time_waits = shard.stack.time_waits();
    let time_waits =
        time_waits.map(|(local, remote, timer)| SocketStatus::time_wait(local, remote, &timer, now));
    Some(held.chain(released).chain(time_waits).collect())
}

fn socket_status(
    shard: &Shard,
    direct: Option<&Banks>,
    socket: Event,
    now: toehold_stack::Instant,
) -> Option<SocketStatus> {
    let stack = &shard.stack;
    match socket {
        Event::Listener(id) => {
            let known = shard.published.as_ref().and_then(|published| published.known(id));
            let waits = direct.zip(known).map_or(0, |(direct, id)| direct.waiting(id));
            Some(SocketStatus::listener(
                stack.listener_addr(id).ok()?,
                stack.accept_queue_len(id).ok()?.saturating_add(waits),
                stack.backlog(id).ok()?,
            ))
        }
        Event::Connection(id) => Some(SocketStatus::connection(
            stack.local_addr(id).ok()?,
            stack.peer_addr(id).ok()?,
            &stack.info(id).ok()?,
            now,
        )),
    }
}

/// The counters of the stacks and their ports, each for itself if there are several.
pub(super) fn counters(shards: &Shards) -> Option<Vec<Counter>> {
    let mut counters: Vec<Counter> = Vec::new();
    for (index, handle) in shards.iter() {
        let shard = (shards.count() > 1).then_some(index.into());
        let mut held = look(handle)?;
        if let Some(port) = held.link.port() {
            counters.extend(peers::of_port(&port.statistics(), shard));
        }
        counters.extend(Counter::of_stack(held.stack.counters(), shard));
        if let Some(demux) = held.stack.demux_counters() {
            counters.extend(Counter::of_demux(demux, shard));
        }
    }
    Some(counters)
}
