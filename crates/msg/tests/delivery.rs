//! Each message arrives once, whole, and in order: over links of all kinds.

mod simulator;

use simulator::{Book, LENGTHS, Weather, World, for_each_seed};
use toehold_msg::endpoint::EndpointConfig;
use toehold_msg::matching::{MatchStrategy, Selector, SourceId};

/// Tags that senders draw from.
const TAGS: u64 = 3;

fn small(config: &mut EndpointConfig) {
    config.flows = 8;
    config.units = 2048;
    config.spare_blocks = 64;
}

/// Two or three hosts send each other messages at random while they post receives.
fn exchange(seed: u64, weather: Weather, adapt: impl Fn(&mut EndpointConfig)) {
    let mut world = World::new(seed, 2 + (seed % 2) as usize, weather, adapt);
    let mut book = Book::default();
    let hosts = world.hosts.len();
    let is_wild = seed.is_multiple_of(3);
    let rounds = 60;
    for _ in 0..rounds {
        let from = world.random.below(hosts as u64) as usize;
        let to = world.random.below(hosts as u64) as usize;
        let tag = world.random.below(TAGS);
        let len = LENGTHS[world.random.below(LENGTHS.len() as u64) as usize];
        let (flow, options) = (world.connect(from, to), world.random.next());
        let back = if from == to {
            world.hosts[to].state.own_flow()
        } else {
            world.connect(to, from)
        };
        let selector = if is_wild {
            Selector::tagged(0).ignoring(u64::MAX)
        } else {
            Selector::tagged(tag).from(SourceId(back.to_bits()))
        };
        // The receive may come first, and the message may be longer than it.
        let room = if options & 0x30 == 0 { len / 2 } else { len };
        let room = if is_wild { 300_000 } else { room };
        if options & 4 != 0 {
            book.post(&mut world, to, selector, room);
        }
        while !book.send(&mut world, from, flow, tag, len, options) {
            world.step();
        }
        for _ in 0..world.random.below(6) {
            world.step();
        }
        if options & 4 == 0 {
            book.post(&mut world, to, selector, room);
        }
        (0..hosts).for_each(|host| book.collect(&mut world, host));
    }
    world.run_until(400_000, |world| {
        (0..hosts).for_each(|host| book.collect(world, host));
        book.is_settled()
    });
    book.check_all();
    world.settle(200_000);
    for host in &world.hosts {
        let counters = host.state.counters();
        assert_eq!(
            (counters.offences, counters.flows_silent, counters.drop_malformed),
            (0, 0, 0)
        );
        assert_eq!((counters.drop_bad_ack, counters.drop_unknown_life), (0, 0));
    }
}

#[test]
fn messages_within_a_host_arrive_once_in_order() {
    for_each_seed(60, |seed| exchange(seed, Weather::HOST, small));
}

#[test]
fn messages_over_fair_network_arrive_once_in_order() {
    for_each_seed(40, |seed| exchange(seed, Weather::FAIR, small));
}

#[test]
fn messages_over_stormy_network_arrive_once_in_order() {
    for_each_seed(100, |seed| exchange(seed, Weather::STORM, small));
}

#[test]
fn messages_with_checksums_and_long_packets_arrive_once_in_order() {
    for_each_seed(40, |seed| {
        exchange(seed, Weather::STORM, |config| {
            small(config);
            config.has_checksum = true;
            config.hello_len = if seed.is_multiple_of(2) { 9000 } else { 0 };
            config.strategy = MatchStrategy::List;
        });
    });
}

#[test]
fn messages_over_refusing_host_link_arrive_once_in_order() {
    let weather = Weather {
        refusal: 300,
        ..Weather::HOST
    };
    for_each_seed(40, |seed| exchange(seed, weather, small));
}
