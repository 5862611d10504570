//! Flows that end: restarts in every phase, silence, orderly ends, late packets.

mod simulator;

use simulator::{Book, LENGTHS, Weather, World, for_each_seed};
use toehold_msg::FlowId;
use toehold_msg::endpoint::{
    CompletionError, EndpointConfig, OutgoingMessage, PacketOrigin, PeerError, ProgramBuffer, SubmitError,
};
use toehold_msg::matching::{Selector, SourceId};
use toehold_msg::{FlowPath, Moment};

fn small(config: &mut EndpointConfig) {
    config.flows = 8;
    config.units = 2048;
    config.spare_blocks = 64;
}

/// Sends one message of each length from host 0 to host 1, and back. Half of the receives
/// are posted at first, half are posted late.
fn begin(world: &mut World, book: &mut Book) -> [FlowId; 2] {
    let flows = [world.connect(0, 1), world.connect(1, 0)];
    for (number, len) in LENGTHS.into_iter().enumerate() {
        for from in 0..2 {
            let selector = Selector::tagged(len).from(SourceId(flows[1 - from].to_bits()));
            if number % 2 == from {
                book.post(world, 1 - from, selector, len);
            }
            assert!(book.send(world, from, flows[from], len, len, number as u64));
        }
    }
    flows
}

/// The number of steps of an undisturbed run.
fn steps(seed: u64, weather: Weather) -> u64 {
    let (mut world, mut book) = (World::new(seed, 2, weather, small), Book::default());
    begin(&mut world, &mut book);
    // Over a network a waiting message is probed for without end.
    (0..600).find(|_| !world.step()).unwrap_or(600)
}

/// Restarts host 1 after some steps. All operations of host 0 end once, and a new flow
/// works.
fn restart_after(seed: u64, weather: Weather, steps: u64) {
    let mut world = World::new(seed, 2, weather, small);
    let mut book = Book::default();
    let flows = begin(&mut world, &mut book);
    for _ in 0..steps {
        world.step();
        book.collect(&mut world, 0);
        book.collect(&mut world, 1);
    }
    book.abandon(1);
    world.restart(1, small);
    if weather.path == FlowPath::Lossless {
        // The fabric tells of a death after what the dead life had sent.
        world.drop_flights();
        let (now, mac) = (world.now, world.hosts[1].mac);
        world.hosts[0].state.peer_left(now, mac);
    }
    // What host 0 still does for the old life ends; what it had received stays.
    let selector = Selector::tagged(7).from(SourceId(flows[0].to_bits()));
    let is_known = world.hosts[0].state.peer(flows[0]).is_some();
    if is_known && weather.path == FlowPath::Lossy {
        book.try_post(&mut world, 0, selector, 64);
    }
    world.run_until(200_000, |world| {
        book.collect(world, 0);
        book.is_settled()
    });
    // Of the new life, each message arrives.
    let mut book = Book::default();
    let ends = begin(&mut world, &mut book);
    for from in 0..2 {
        for (number, len) in LENGTHS.into_iter().enumerate() {
            if number % 2 != from {
                let selector = Selector::tagged(len).from(SourceId(ends[1 - from].to_bits()));
                book.post(&mut world, 1 - from, selector, len);
            }
        }
    }
    world.run_until(200_000, |world| {
        book.collect(world, 0);
        book.collect(world, 1);
        book.is_settled()
    });
    book.check_all();
}

#[test]
fn restart_in_each_phase_within_a_host_ends_each_operation_once() {
    for after in 0..steps(1, Weather::HOST) {
        restart_after(1, Weather::HOST, after);
    }
}

#[test]
fn restart_in_each_phase_over_network_ends_each_operation_once() {
    for after in (0..steps(2, Weather::FAIR)).step_by(5) {
        restart_after(2, Weather::FAIR, after);
    }
}

#[test]
fn restart_at_random_in_storm_ends_each_operation_once() {
    for_each_seed(60, |seed| restart_after(seed, Weather::STORM, seed * 7));
}

fn send_short(world: &mut World, from: usize, flow: FlowId, context: u64) -> Result<(), SubmitError> {
    let host = &mut world.hosts[from];
    let buffer = host.memory.buffer(vec![9; 40]);
    let message = OutgoingMessage::tagged(1, buffer, context);
    let sent = host.state.send(world.now, flow, &message, &mut host.memory);
    sent.map(|_| ())
}

fn post(world: &mut World, at: usize, selector: Selector, context: u64) -> ProgramBuffer {
    let host = &mut world.hosts[at];
    let buffer = host.memory.buffer(vec![0; 40]);
    host.state
        .post(world.now, selector, buffer, context, &mut host.memory)
        .expect("room");
    buffer
}

#[test]
fn silent_peer_ends_waiting_operations_after_ten_seconds() {
    let mut world = World::new(3, 2, Weather::FAIR, small);
    let flow = world.connect(0, 1);
    send_short(&mut world, 0, flow, 1).unwrap();
    world.run_until(100, |world| !world.completions(0).is_empty());
    world.is_cut = true;
    let start = world.now;
    post(
        &mut world,
        0,
        Selector::tagged(5).from(SourceId(flow.to_bits())),
        2,
    );
    send_short(&mut world, 0, flow, 3).unwrap();
    let mut ended = Vec::new();
    world.run_until(10_000, |world| {
        ended.extend(world.completions(0));
        ended.len() == 2
    });
    assert!(
        ended
            .iter()
            .all(|end| end.result == Err(CompletionError::PeerSilent))
    );
    assert!(world.now.ns_since(start) >= 10_000_000_000, "{:?}", world.now);
    assert!(world.now.ns_since(start) < 11_000_000_000, "{:?}", world.now);
    assert_eq!(send_short(&mut world, 0, flow, 4), Err(SubmitError::PeerGone));
    let (mac, incarnation) = (world.hosts[1].mac, world.hosts[1].incarnation);
    let again = world.hosts[0]
        .state
        .connect(world.now, mac, incarnation, FlowPath::Lossy);
    assert_eq!(again, Err(PeerError::Ended));
}

#[test]
fn cut_of_three_seconds_ends_nothing() {
    let mut world = World::new(4, 2, Weather::FAIR, small);
    let mut book = Book::default();
    begin(&mut world, &mut book);
    for _ in 0..40 {
        world.step();
    }
    world.is_cut = true;
    let end = world.now.plus_ns(3_000_000_000);
    world.run_until(100_000, |world| world.now >= end);
    world.is_cut = false;
    let ends = [world.connect(0, 1), world.connect(1, 0)];
    for from in 0..2 {
        for (number, len) in LENGTHS.into_iter().enumerate() {
            if number % 2 != from {
                let selector = Selector::tagged(len).from(SourceId(ends[1 - from].to_bits()));
                book.post(&mut world, 1 - from, selector, len);
            }
        }
    }
    world.run_until(200_000, |world| {
        book.collect(world, 0);
        book.collect(world, 1);
        book.is_settled()
    });
    book.check_all();
}

#[test]
fn directed_receive_from_dead_peer_fails_although_its_reset_was_lost() {
    let mut world = World::new(5, 2, Weather::FAIR, small);
    let flow = world.connect(0, 1);
    send_short(&mut world, 0, flow, 1).unwrap();
    world.run_until(100, |world| !world.completions(0).is_empty());
    world.restart(1, small);
    let start = world.now;
    post(
        &mut world,
        0,
        Selector::tagged(5).from(SourceId(flow.to_bits())),
        2,
    );
    let mut ended = Vec::new();
    world.run_until(10_000, |world| {
        ended.extend(world.completions(0));
        !ended.is_empty()
    });
    assert_eq!(ended[0].result, Err(CompletionError::PeerGone));
    assert!(world.now.ns_since(start) < 2_000_000_000, "{:?}", world.now);
}

#[test]
fn closed_flow_delivers_what_was_sent_and_late_first_gets_reset() {
    for_each_seed(40, |seed| {
        let weather = if seed.is_multiple_of(2) {
            Weather::STORM
        } else {
            Weather::HOST
        };
        let mut world = World::new(seed, 2, weather, small);
        let flow = world.connect(0, 1);
        for context in 0..20 {
            send_short(&mut world, 0, flow, context).unwrap();
        }
        world.flush();
        let first = world.packets().into_iter().find(|(from, ..)| *from == 0);
        let now = world.now;
        world.hosts[0].state.close_flow(now, flow);
        assert_eq!(send_short(&mut world, 0, flow, 99), Err(SubmitError::PeerGone));
        let mut buffers = Vec::new();
        for context in 0..20 {
            buffers.push(post(&mut world, 1, Selector::tagged(1), context));
        }
        let mut ended = [Vec::new(), Vec::new()];
        world.run_until(100_000, |world| {
            for (number, ended) in ended.iter_mut().enumerate() {
                ended.extend(world.completions(number));
            }
            ended.iter().all(|ended| ended.len() == 20) && world.hosts[0].state.peer(flow).is_none()
        });
        assert!(ended.iter().flatten().all(|end| end.result == Ok(())));
        // The flow is over at both ends; a packet of its beginning begins nothing.
        world.run_until(100_000, |world| !world.step() || world.hosts[1].state.is_idle());
        let Some((_, _, packet)) = first else { return };
        let messages = world.hosts[1].state.counters().messages_received;
        let origin = PacketOrigin {
            mac: world.hosts[0].mac,
            path: weather.path,
        };
        let (now, receiver) = (world.now, &mut world.hosts[1]);
        receiver
            .state
            .handle_frame(now, origin, &packet, &mut receiver.memory);
        assert_eq!(receiver.state.counters().messages_received, messages);
    });
}

#[test]
fn unexpected_messages_of_dead_peer_can_still_be_received() {
    let mut world = World::new(6, 2, Weather::HOST, small);
    let flow = world.connect(0, 1);
    send_short(&mut world, 0, flow, 1).unwrap();
    while world.step() {}
    let (now, mac) = (world.now, world.hosts[0].mac);
    world.hosts[1].state.peer_left(now, mac);
    let buffer = post(&mut world, 1, Selector::tagged(1), 2);
    let ended = world.completions(1);
    assert_eq!((ended[0].result, ended[0].placed), (Ok(()), 40));
    assert_eq!(world.hosts[1].memory.take(buffer), vec![9; 40]);
    assert!(world.hosts[1].state.is_idle());
}

#[test]
fn unreadable_send_fails_alone() {
    let mut world = World::new(7, 2, Weather::FAIR, small);
    let flow = world.connect(0, 1);
    let host = &mut world.hosts[0];
    let buffer = host.memory.buffer(vec![1; 1000]);
    host.memory.broken.push(buffer.address);
    let message = OutgoingMessage::tagged(1, buffer, 1);
    host.state
        .send(Moment(1), flow, &message, &mut host.memory)
        .expect("room");
    send_short(&mut world, 0, flow, 2).unwrap();
    post(&mut world, 1, Selector::tagged(1), 3);
    world.run_until(1000, |world| {
        world.hosts[1].state.queue_depths() == (0, 0) && !world.step()
    });
    let results: Vec<_> = world
        .completions(0)
        .iter()
        .map(|end| (end.context, end.result))
        .collect();
    assert_eq!(results, [(1, Err(CompletionError::MemoryFault)), (2, Ok(()))]);
}
