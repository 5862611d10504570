//! Peers that send anything: each field at its ends, changed and invented packets.

mod simulator;

use std::cell::RefCell;

use simulator::{Book, LENGTHS, Random, Weather, World, for_each_seed};
use toehold_msg::endpoint::{EndpointConfig, PacketOrigin};
use toehold_msg::matching::{Selector, SourceId};
use toehold_msg::{FlowPath, MessageCounters};
use toehold_wire::Mac;
use toehold_wire::rmpp::{
    Lives, MissingRange, OFFER_TOTAL_MAX, Packet, PacketBody, PacketFlags, RangeList, Seq,
};

fn small(config: &mut EndpointConfig) {
    config.flows = 8;
    config.units = 2048;
    config.spare_blocks = 16;
    config.tombstones = 4;
}

/// Two hosts in the middle of an exchange: eager, offered, waiting and unexpected messages.
fn busy_world(seed: u64, weather: Weather) -> World {
    let mut world = World::new(seed, 2, weather, small);
    let mut book = Book::default();
    let flows = [world.connect(0, 1), world.connect(1, 0)];
    for (number, len) in LENGTHS.into_iter().enumerate() {
        for from in 0..2 {
            if number % 3 > 0 {
                let selector = Selector::tagged(len).from(SourceId(flows[1 - from].to_bits()));
                book.post(&mut world, 1 - from, selector, len / (1 + number as u64 % 2));
            }
            book.send(&mut world, from, flows[from], len, len, number as u64);
        }
    }
    for _ in 0..world.random.below(120) {
        world.step();
    }
    world
}

fn give(world: &mut World, to: usize, mac: Mac, path: FlowPath, bytes: &[u8]) {
    let now = world.now;
    let host = &mut world.hosts[to];
    host.state
        .handle_frame(now, PacketOrigin { mac, path }, bytes, &mut host.memory);
}

/// A packet of any kind with each number at an end of its range, or near one that the
/// receiver knows.
fn invented<'a>(random: &mut Random, known: &Packet<'_>, lives: Lives, list: &'a RangeList) -> Packet<'a> {
    const ENDS: [u64; 10] = [
        0,
        1,
        2,
        63,
        1 << 16,
        u32::MAX as u64,
        1 << 32,
        1 << 33,
        OFFER_TOTAL_MAX,
        u64::MAX,
    ];
    static BYTES: [u8; 70_000] = [7; 70_000];
    let number =
        |random: &mut Random| ENDS[random.below(ENDS.len() as u64) as usize].wrapping_sub(random.below(2));
    let len = (number(random) as usize).min(BYTES.len() - 1);
    let bytes = &BYTES[..len];
    // Tokens of the receiver's are small indices with small generations.
    let token = if random.below(2) == 0 {
        random.below(40)
    } else {
        number(random)
    };
    let total = number(random) as u32;
    let offset = (number(random) as u32).min(total);
    let range_len = number(random).clamp(1, OFFER_TOTAL_MAX);
    let body = match random.below(12) {
        0 => PacketBody::Eager { tag: token, bytes },
        1 => PacketBody::Part {
            tag: token,
            offset,
            total,
            bytes: &bytes[..len.min((total - offset) as usize)],
        },
        2 => PacketBody::Offer {
            tag: token,
            token,
            len: number(random).min(OFFER_TOTAL_MAX),
            address: token,
            nonce: 0,
        },
        3 => PacketBody::Pull {
            token,
            sink: token,
            offset: number(random).min(OFFER_TOTAL_MAX - range_len),
            len: range_len,
        },
        4 => PacketBody::Piece {
            sink: token,
            offset: number(random).min(1 << 62),
            bytes: &BYTES[..len.max(1)],
        },
        5 => PacketBody::Done { token },
        6 => PacketBody::Nack(list.ranges().expect("a range")),
        7 => PacketBody::Hello {
            len: number(random) as u32 & 0xffff | 24,
            is_answer: random.below(2) == 0,
        },
        8 if random.below(8) == 0 => PacketBody::Reset,
        9 if random.below(8) == 0 => PacketBody::Bye,
        _ => PacketBody::Ack,
    };
    let mut packet = Packet::new(body);
    packet.check = known.check;
    packet.credit = number(random) as u16;
    packet.seq = [
        known.seq,
        known.seq + 1,
        known.seq + 2,
        Seq(number(random) as u32),
    ][random.below(4) as usize];
    packet.ack = [
        known.ack,
        Seq(known.ack.0.wrapping_sub(1)),
        known.ack + 1,
        Seq(number(random) as u32),
    ][random.below(4) as usize];
    if packet.kind().is_message() {
        packet.data = (random.below(2) == 0).then_some(token);
        if random.below(2) == 0 {
            packet.flags |= PacketFlags::DELIVERED;
        }
    }
    if random.below(3) == 0 && !matches!(body, PacketBody::Reset) {
        packet.flags |= PacketFlags::ACK_NOW;
        packet.lives = (random.below(2) == 0).then_some(lives);
    }
    packet
}

/// The next packet under way from host 0, without its body.
fn next_packet(world: &World) -> Option<Packet<'static>> {
    let packet = Packet::parse(world.next_packet(0)?).ok()?;
    Some(Packet {
        check: packet.check,
        seq: packet.seq,
        ack: packet.ack,
        ..Packet::new(PacketBody::Ack)
    })
}

/// Gives invented packets to host 1 until it has ended their flow. Returns what it counted.
fn invade(seed: u64, weather: Weather) -> MessageCounters {
    let mut world = busy_world(seed, weather);
    let mut random = Random::new(seed);
    let (mac, receiver) = (world.hosts[0].mac, world.hosts[1].incarnation);
    let lives = Lives {
        sender: world.hosts[0].incarnation,
        receiver,
    };
    let flow = world.connect(1, 0);
    for _ in 0..200 {
        if world.hosts[1].state.peer(flow).is_none() {
            break;
        }
        let known = next_packet(&world).unwrap_or(Packet {
            check: lives.check(),
            ..Packet::new(PacketBody::Ack)
        });
        let mut list = RangeList::new();
        let start = Seq(random.next() as u32 >> random.below(32));
        let len = random.next() as u32 >> (1 + random.below(31));
        list.push(MissingRange {
            start,
            end: start + 1 + len,
        });
        let packet = invented(&mut random, &known, lives, &list);
        let mut bytes = vec![0; packet.len()];
        packet.emit(&mut bytes);
        give(&mut world, 1, mac, weather.path, &bytes);
        world.step();
    }
    world.hosts[1].state.counters()
}

#[test]
fn invented_packets_cause_no_panic_and_no_access_outside_of_buffers() {
    let sum = RefCell::new([0; 5]);
    for_each_seed(60, |seed| {
        let weather = if seed.is_multiple_of(2) {
            Weather::HOST
        } else {
            Weather::FAIR
        };
        let counters = invade(seed, weather);
        let counts = [
            counters.offences,
            counters.drop_unasked,
            counters.drop_bad_ack,
            counters.drop_repeated,
            counters.resets_received,
        ];
        sum.borrow_mut()
            .iter_mut()
            .zip(counts)
            .for_each(|(sum, count)| *sum += count);
    });
    // The packets went deep enough to be refused for each of these reasons.
    if std::env::var_os("TOEHOLD_SEED").is_none() {
        assert!(sum.borrow().iter().all(|count| *count > 0), "{sum:?}");
    }
}

#[test]
fn changed_packets_cause_no_panic_and_no_access_outside_of_buffers() {
    for_each_seed(60, |seed| {
        let weather = if seed.is_multiple_of(2) {
            Weather::HOST
        } else {
            Weather::STORM
        };
        let mut world = busy_world(seed, weather);
        for _ in 0..200 {
            world.step();
            let flights = world.packets();
            if flights.is_empty() {
                continue;
            }
            let (from, _, mut packet) = flights[world.random.below(flights.len() as u64) as usize].clone();
            for _ in 0..=world.random.below(3) {
                let at = world.random.below(packet.len() as u64) as usize;
                packet[at] =
                    [0, 1, 0xff, packet[at] ^ 1, packet[at].wrapping_add(1)][world.random.below(5) as usize];
            }
            packet.truncate(packet.len() - world.random.below(9) as usize % packet.len());
            let mac = world.hosts[from].mac;
            give(&mut world, 1 - from, mac, weather.path, &packet);
        }
    });
}

#[test]
fn flood_of_new_lives_leaves_room_for_named_peers() {
    let mut world = World::new(1, 2, Weather::FAIR, small);
    let receiver = world.hosts[1].incarnation;
    for life in 0..1000u64 {
        let mac = Mac([2, 1, 0, 0, (life >> 8) as u8, life as u8]);
        let lives = Lives {
            sender: life,
            receiver,
        };
        let packet = Packet {
            check: lives.check(),
            lives: Some(lives),
            ..Packet::new(PacketBody::Eager {
                tag: 1,
                bytes: &[0; 100],
            })
        };
        let mut bytes = vec![0; packet.len()];
        packet.emit(&mut bytes);
        give(&mut world, 1, mac, FlowPath::Lossy, &bytes);
    }
    let counters = world.hosts[1].state.counters();
    assert_eq!((counters.messages_received, counters.refused_flows), (4, 996));
    for life in 0..3 {
        let named = world.hosts[1]
            .state
            .connect(world.now, Mac([2, 2, 0, 0, 0, life]), 1, FlowPath::Lossy);
        assert!(named.is_ok());
    }
}

#[test]
fn packets_of_other_lives_get_one_reset_each_and_resets_get_none() {
    let mut world = World::new(1, 2, Weather::FAIR, small);
    let mac = world.hosts[0].mac;
    for (body, expected) in [(PacketBody::Ack, 1), (PacketBody::Bye, 1), (PacketBody::Reset, 0)] {
        let packet = Packet {
            check: 77,
            ..Packet::new(body)
        };
        let mut bytes = vec![0; packet.len()];
        packet.emit(&mut bytes);
        (0..3).for_each(|_| give(&mut world, 1, mac, FlowPath::Lossy, &bytes));
        world.drop_flights();
        world.flush();
        let resets = world.packets();
        assert_eq!(resets.len(), expected);
        for (_, to, bytes) in resets {
            let reset = Packet::parse(&bytes).unwrap();
            assert_eq!((to, reset.body, reset.check), (mac, PacketBody::Reset, 77));
        }
    }
}

#[test]
fn message_beyond_grant_ends_the_flow() {
    let mut world = World::new(1, 2, Weather::HOST, small);
    let (mac, sender, receiver) = (
        world.hosts[0].mac,
        world.hosts[0].incarnation,
        world.hosts[1].incarnation,
    );
    let lives = Lives { sender, receiver };
    let packet = Packet {
        check: lives.check(),
        lives: Some(lives),
        ..Packet::new(PacketBody::Eager {
            tag: 1,
            bytes: &[0; 65 * 64],
        })
    };
    let mut bytes = vec![0; packet.len()];
    packet.emit(&mut bytes);
    give(&mut world, 1, mac, FlowPath::Lossless, &bytes);
    let counters = world.hosts[1].state.counters();
    assert_eq!((counters.offences, counters.messages_received), (1, 0));
    assert!(world.hosts[1].state.is_idle());
}

/// Emits a packet and gives it to host 0 as host 1's.
fn answer(world: &mut World, packet: &Packet<'_>) {
    let mut bytes = vec![0; packet.len()];
    packet.emit(&mut bytes);
    let mac = world.hosts[1].mac;
    give(world, 0, mac, FlowPath::Lossy, &bytes);
}

#[test]
fn pull_after_done_is_not_served() {
    let mut world = World::new(1, 2, Weather::FAIR, small);
    let mut book = Book::default();
    let flow = world.connect(0, 1);
    assert!(book.send(&mut world, 0, flow, 1, 100_000, 0));
    world.flush();
    let offer = Packet::parse(world.next_packet(0).unwrap()).unwrap();
    let PacketBody::Offer { token, .. } = offer.body else {
        panic!("{offer:?}");
    };
    let check = offer.check;
    let pull = PacketBody::Pull {
        token,
        sink: 0,
        offset: 0,
        len: 1000,
    };
    for (seq, body) in [pull, PacketBody::Done { token }, pull].into_iter().enumerate() {
        answer(
            &mut world,
            &Packet {
                check,
                seq: Seq(seq as u32),
                ..Packet::new(body)
            },
        );
    }
    assert_eq!(world.hosts[0].state.counters().drop_unasked, 1);
    // With its packets acknowledged the send is complete, and no list holds it.
    answer(
        &mut world,
        &Packet {
            check,
            ack: Seq(1),
            ..Packet::new(PacketBody::Ack)
        },
    );
    book.collect(&mut world, 0);
    assert!(book.is_settled());
    assert!(book.send(&mut world, 0, flow, 1, 10, 0));
    world.drop_flights();
    world.flush();
    let parts = world.packets().into_iter();
    let mut parts =
        parts.filter(|(_, _, bytes)| matches!(Packet::parse(bytes).unwrap().body, PacketBody::Part { .. }));
    assert!(parts.next().is_some());
}

#[test]
fn ended_lives_with_messages_leave_room_for_named_peers() {
    let mut world = World::new(1, 2, Weather::FAIR, small);
    let receiver = world.hosts[1].incarnation;
    let mac = Mac([2, 1, 0, 0, 0, 1]);
    for life in 0..20 {
        let lives = Lives {
            sender: life,
            receiver,
        };
        for body in [
            PacketBody::Eager {
                tag: 1,
                bytes: &[0; 100],
            },
            PacketBody::Reset,
        ] {
            let mut packet = Packet {
                check: lives.check(),
                ..Packet::new(body)
            };
            packet.lives = (body != PacketBody::Reset).then_some(lives);
            let mut bytes = vec![0; packet.len()];
            packet.emit(&mut bytes);
            give(&mut world, 1, mac, FlowPath::Lossy, &bytes);
        }
    }
    assert_eq!(world.hosts[1].state.queue_depths(), (4, 0));
    let named = world.hosts[1]
        .state
        .connect(world.now, Mac([2, 2, 0, 0, 0, 1]), 99, FlowPath::Lossy);
    assert!(named.is_ok());
}
