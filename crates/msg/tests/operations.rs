//! What a program can do: peek, claim, cancel, inject, send to itself, run out of room.

mod simulator;

use simulator::{Book, Weather, World, for_each_seed};
use toehold_msg::FlowId;
use toehold_msg::endpoint::{
    CompletionError, EndpointConfig, OutgoingMessage, PostError, ProgramBuffer, SubmitError,
};
use toehold_msg::matching::{Selector, SourceId};
use toehold_msg::{FlowPath, Moment};

fn small(config: &mut EndpointConfig) {
    config.flows = 4;
    config.sends = 8;
    config.receives = 8;
    config.units = 1024;
    config.spare_blocks = 2;
}

fn send(world: &mut World, from: usize, flow: FlowId, tag: u64, content: Vec<u8>) -> ProgramBuffer {
    let host = &mut world.hosts[from];
    let buffer = host.memory.buffer(content);
    let message = OutgoingMessage::tagged(tag, buffer, tag);
    host.state
        .send(world.now, flow, &message, &mut host.memory)
        .expect("room");
    buffer
}

fn post(
    world: &mut World,
    at: usize,
    selector: Selector,
    len: usize,
    context: u64,
) -> Result<ProgramBuffer, PostError> {
    let host = &mut world.hosts[at];
    let buffer = host.memory.buffer(vec![0; len]);
    let posted = host
        .state
        .post(world.now, selector, buffer, context, &mut host.memory);
    posted.map(|_| buffer)
}

fn run_dry(world: &mut World) {
    while world.step() {}
}

/// Thousands of messages, of which the receiver wants the last one first. With fixed grants
/// both sides would wait for ever.
fn last_one_first(weather: Weather, count: u64) {
    let mut world = World::new(1, 2, weather, |config| config.flows = 8);
    let mut book = Book::default();
    let flow = world.connect(0, 1);
    for tag in 0..count {
        while !book.send(&mut world, 0, flow, tag, 8 + tag % 200, 0) {
            world.step();
        }
    }
    for tag in (0..count).rev() {
        book.post(&mut world, 1, Selector::tagged(tag), 300);
        let left = count - tag;
        world.run_until(400_000, |world| {
            book.collect(world, 0);
            book.collect(world, 1);
            book.received() == left
        });
    }
    world.run_until(400_000, |world| {
        book.collect(world, 0);
        book.is_settled()
    });
    book.check_all();
    world.settle(10_000);
}

#[test]
fn last_of_6000_messages_within_a_host_is_received_first() {
    last_one_first(Weather::HOST, 6000);
}

#[test]
fn last_of_6000_messages_over_network_is_received_first() {
    last_one_first(Weather::FAIR, 6000);
}

#[test]
fn late_grants_after_many_laps_of_the_field_are_harmless() {
    // 3 MiB are 49152 units: a lap of the 16 bits is 65536.
    for_each_seed(3, |seed| {
        let weather = Weather {
            detour: 300,
            ..Weather::STORM
        };
        let mut world = World::new(seed, 2, weather, |config| config.flows = 8);
        let mut book = Book::default();
        let (flow, back) = (world.connect(0, 1), world.connect(1, 0));
        for _ in 0..300 {
            let selector = Selector::tagged(1).from(SourceId(back.to_bits()));
            book.post(&mut world, 1, selector, 30_000);
            while !book.send(&mut world, 0, flow, 1, 30_000, 0) {
                world.step();
            }
            world.step();
        }
        world.run_until(400_000, |world| {
            book.collect(world, 0);
            book.collect(world, 1);
            book.is_settled()
        });
        book.check_all();
        assert_eq!(world.hosts[1].state.counters().offences, 0);
    });
}

#[test]
fn peeked_message_stays_and_claimed_message_goes_to_its_claimer_only() {
    for len in [10, 5000, 100_000] {
        let mut world = World::new(1, 2, Weather::HOST, small);
        let flow = world.connect(0, 1);
        let content: Vec<u8> = (0..len).map(|at| at as u8).collect();
        send(&mut world, 0, flow, 1, content.clone());
        run_dry(&mut world);
        let selector = Selector::tagged(1);
        let peeked = world.hosts[1].state.peek(&selector).unwrap();
        assert_eq!((peeked.tag, peeked.len), (1, len as u64));
        assert!(world.hosts[1].state.peek(&Selector::tagged(2)).is_none());
        let claimed = world.hosts[1].state.claim(&selector).unwrap();
        assert!(world.hosts[1].state.peek(&selector).is_none());
        post(&mut world, 1, selector, 10, 5).unwrap();
        let now = world.now;
        let host = &mut world.hosts[1];
        let buffer = host.memory.buffer(vec![0; len]);
        let received = host
            .state
            .receive_claimed(now, claimed, buffer, 6, &mut host.memory);
        received.unwrap();
        let again = host
            .state
            .receive_claimed(now, claimed, buffer, 7, &mut host.memory);
        assert_eq!(again, Err(PostError::NoMessage));
        run_dry(&mut world);
        let ended = world.completions(1);
        assert_eq!((ended.len(), ended[0].context, ended[0].result), (1, 6, Ok(())));
        assert!(world.hosts[1].memory.take(buffer) == content);
        assert_eq!(world.completions(0).len(), 1);
    }
}

#[test]
fn discarded_message_completes_its_send_and_gives_its_memory_back() {
    for len in [10, 5000, 100_000] {
        for weather in [Weather::HOST, Weather::FAIR] {
            let mut world = World::new(1, 2, weather, small);
            let flow = world.connect(0, 1);
            send(&mut world, 0, flow, 1, vec![3; len]);
            let mut claimed = None;
            world.run_until(1000, |world| {
                claimed = world.hosts[1].state.claim(&Selector::tagged(1));
                claimed.is_some()
            });
            let now = world.now;
            assert!(world.hosts[1].state.discard(now, claimed.unwrap()));
            assert!(!world.hosts[1].state.discard(now, claimed.unwrap()));
            world.run_until(1000, |world| !world.completions(0).is_empty());
            world.settle(1000);
        }
    }
}

#[test]
fn cancelled_receive_ends_once_and_gets_no_message() {
    let mut world = World::new(1, 2, Weather::HOST, small);
    let flow = world.connect(0, 1);
    let host = &mut world.hosts[1];
    let buffer = host.memory.buffer(vec![0; 10]);
    let receive = host
        .state
        .post(Moment(1), Selector::tagged(1), buffer, 1, &mut host.memory)
        .unwrap();
    assert!(host.state.cancel(Moment(1), receive) && !host.state.cancel(Moment(1), receive));
    send(&mut world, 0, flow, 1, vec![3; 10]);
    run_dry(&mut world);
    let ended = world.completions(1);
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].result, Err(CompletionError::Cancelled));
    assert_eq!(world.hosts[1].state.queue_depths(), (1, 0));
    let host = &mut world.hosts[1];
    let receive = host
        .state
        .post(Moment(1), Selector::tagged(1), buffer, 1, &mut host.memory)
        .unwrap();
    assert!(!host.state.cancel(Moment(1), receive), "it has its message");
}

#[test]
fn messages_to_oneself_are_matched_in_order() {
    let mut world = World::new(1, 1, Weather::HOST, small);
    let own = world.hosts[0].state.own_flow();
    let from_own = Selector::tagged(1).from(SourceId(own.to_bits()));
    let first = post(&mut world, 0, from_own, 20_000, 7).unwrap();
    send(&mut world, 0, own, 1, vec![1; 20_000]);
    send(&mut world, 0, own, 1, vec![2; 10]);
    send(&mut world, 0, own, 1, vec![3; 20_000]);
    assert_eq!(world.hosts[0].state.peek(&from_own).unwrap().len, 10);
    let second = post(&mut world, 0, Selector::tagged(1), 10, 8).unwrap();
    let third = post(&mut world, 0, Selector::tagged(1), 10, 9).unwrap();
    for (buffer, content) in [
        (first, vec![1; 20_000]),
        (second, vec![2; 10]),
        (third, vec![3; 10]),
    ] {
        assert!(world.hosts[0].memory.take(buffer) == content);
    }
    let failed: Vec<_> = world
        .completions(0)
        .into_iter()
        .filter(|end| end.result.is_err())
        .collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(
        (failed[0].context, failed[0].result),
        (9, Err(CompletionError::Truncated))
    );
    assert!(world.hosts[0].state.is_idle());
}

#[test]
fn full_tables_ask_the_program_to_try_again() {
    let mut world = World::new(1, 2, Weather::HOST, small);
    let flow = world.connect(0, 1);
    let host = &mut world.hosts[0];
    let buffer = host.memory.buffer(vec![0; 5000]);
    let mut inject = OutgoingMessage::tagged(1, buffer, 1);
    inject.is_injected = true;
    let mut submit =
        |message: &OutgoingMessage| host.state.send(Moment(1), flow, message, &mut host.memory).err();
    assert_eq!(submit(&inject), Some(SubmitError::TooLong));
    inject.buffer.len = 4096;
    assert_eq!([submit(&inject), submit(&inject)], [None, None]);
    assert_eq!(submit(&inject), Some(SubmitError::TryAgain));
    let message = OutgoingMessage::tagged(1, buffer, 1);
    for _ in 0..6 {
        assert_eq!(submit(&message), None);
    }
    assert_eq!(submit(&message), Some(SubmitError::TryAgain));
    let counters = world.hosts[0].state.counters();
    assert_eq!((counters.refused_injects, counters.refused_sends), (1, 1));
    for context in 0..8 {
        post(&mut world, 1, Selector::tagged(1), 5000, context).unwrap();
    }
    assert_eq!(
        post(&mut world, 1, Selector::tagged(1), 5000, 9),
        Err(PostError::TryAgain)
    );
    run_dry(&mut world);
    // Completions that are not taken keep their places.
    assert_eq!(
        post(&mut world, 1, Selector::tagged(1), 5000, 9),
        Err(PostError::TryAgain)
    );
    assert_eq!((world.completions(0).len(), world.completions(1).len()), (6, 8));
    assert!(post(&mut world, 1, Selector::tagged(1), 5000, 9).is_ok());
    for number in 2..10 {
        let host = &mut world.hosts[0];
        let peer = toehold_wire::Mac([2, 0, 0, 0, 0, number]);
        let connected = host.state.connect(Moment(1), peer, 1, FlowPath::Lossless);
        assert_eq!(connected.is_ok(), number < 4, "{number}");
    }
}

#[test]
fn hello_finds_longer_packets() {
    let mut world = World::new(1, 2, Weather::FAIR, |_| {});
    let flow = world.connect(0, 1);
    send(&mut world, 0, flow, 1, vec![1; 10]);
    world.run_until(1000, |world| !world.completions(0).is_empty());
    send(&mut world, 0, flow, 2, vec![1; 60_000]);
    let mut longest = 0;
    world.run_until(1000, |world| {
        let packets = world.packets();
        longest = packets
            .iter()
            .map(|(_, _, packet)| packet.len())
            .fold(longest, usize::max);
        !world.completions(0).is_empty()
    });
    assert!((8900..=9000).contains(&longest), "{longest}");
}

#[test]
fn untagged_receive_takes_untagged_messages_only() {
    let mut world = World::new(1, 2, Weather::HOST, small);
    let flow = world.connect(0, 1);
    send(&mut world, 0, flow, 0, vec![1; 10]);
    let host = &mut world.hosts[0];
    let buffer = host.memory.buffer(vec![2; 100]);
    let message = OutgoingMessage {
        tag: None,
        ..OutgoingMessage::tagged(0, buffer, 1)
    };
    host.state
        .send(Moment(1), flow, &message, &mut host.memory)
        .unwrap();
    run_dry(&mut world);
    let untagged = post(&mut world, 1, Selector::untagged(), 100, 1).unwrap();
    let tagged = post(&mut world, 1, Selector::tagged(0).ignoring(u64::MAX), 10, 1).unwrap();
    assert_eq!(world.hosts[1].memory.take(untagged), vec![2; 100]);
    assert_eq!(world.hosts[1].memory.take(tagged), vec![1; 10]);
}
