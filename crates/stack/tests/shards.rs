//! Several stacks that form one node. Each takes its own connections, all of them learn neighbours,
//! and one of them answers.

use core::net::{Ipv4Addr, SocketAddr};

use toehold_link::steering::{Flow, Steering};
use toehold_link::{Offload, Received, Transmit, TransmitError, Transmitter};
use toehold_shm::{Carver, Gather, Region};
use toehold_stack::{Config, ConnectionId, Instant, ListenerId, SocketError, Stack, State};
use toehold_wire::ethernet::{self, EtherType};
use toehold_wire::{Mac, arp, icmpv4, ipv4, protocol, udp};

const NOW: Instant = Instant(3_600_000_000_000);

fn mac(node: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, node as u8 + 1]
}

fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, node as u8 + 1)
}

fn steering(node: usize, index: usize, count: usize) -> Steering {
    Steering {
        index: index as u8,
        count: count as u8,
        key: [node as u8 + 40; 16],
    }
}

fn stack(node: usize, index: usize, count: usize) -> Stack {
    let config = Config {
        mac: mac(node),
        ipv4: Some((address(node), 24)),
        steering: steering(node, index, count),
        seed: (node * 100 + index) as u64,
        secret: [node as u8; 16],
        connections: 256,
        listeners: 4,
        time_wait_records: 256,
        neighbors: 16,
        payload_blocks: 64,
        ..Config::default()
    };
    let mut carver = Carver::new(Region::private(Stack::region_len(&config)).unwrap()).unwrap();
    Stack::create(&mut carver, &config).unwrap()
}

#[derive(Default)]
struct Wire(Vec<Vec<u8>>);

impl Transmitter for Wire {
    fn transmit(&mut self, frame: &Transmit<'_>) -> Result<(), TransmitError> {
        let mut bytes = vec![0; frame.len()];
        let (headers, payload) = bytes.split_at_mut(frame.headers.len());
        headers.copy_from_slice(frame.headers);
        frame.payload.copy_to(0, payload);
        self.0.push(bytes);
        Ok(())
    }
}

/// Nodes on one link, each with its shards.
struct Network {
    nodes: Vec<Vec<Stack>>,
    /// Whether segments reach all shards of a node.
    careless: bool,
}

impl Network {
    fn new(counts: &[usize]) -> Network {
        let shards =
            |(node, &count): (usize, &usize)| (0..count).map(|index| stack(node, index, count)).collect();
        Network {
            nodes: counts.iter().enumerate().map(shards).collect(),
            careless: false,
        }
    }

    fn deliver(&mut self, from: usize, frame: &[u8]) {
        for (node, shards) in self.nodes.iter_mut().enumerate() {
            let count = shards.len();
            if node == from || (frame[0] & 1 == 0 && frame[..6] != mac(node)) {
                continue;
            }
            let flow = Flow::of_frame(frame).filter(|_| !self.careless && frame[0] & 1 == 0);
            let owner = flow.map(|flow| usize::from(steering(node, 0, count).shard_of(&flow)));
            for (index, shard) in shards.iter_mut().enumerate() {
                if owner.is_none_or(|owner| owner == index) {
                    receive(shard, frame);
                }
            }
        }
    }

    /// Runs until no stack has frames to send.
    fn run(&mut self) {
        loop {
            let mut silent = true;
            for node in 0..self.nodes.len() {
                for index in 0..self.nodes[node].len() {
                    for frame in sent(&mut self.nodes[node][index]) {
                        silent = false;
                        self.deliver(node, &frame);
                    }
                }
            }
            if silent {
                return;
            }
        }
    }

    fn listen(&mut self, node: usize) -> Vec<ListenerId> {
        let local = SocketAddr::from((address(node), 80));
        let listen = |shard: &mut Stack| {
            let settings = shard.default_settings();
            shard.listen(NOW, local, 200, &settings).unwrap()
        };
        self.nodes[node].iter_mut().map(listen).collect()
    }

    fn connect(&mut self, node: usize, shard: usize, to: usize) -> ConnectionId {
        let stack = &mut self.nodes[node][shard];
        let settings = stack.default_settings();
        let to = SocketAddr::from((address(to), 80));
        stack.connect(NOW, None, to, &settings).unwrap()
    }

    fn sum(&self, node: usize, counter: &str) -> u64 {
        let of = |shard: &Stack| {
            shard
                .counters()
                .iter()
                .find(|(name, _)| *name == counter)
                .unwrap()
                .1
        };
        self.nodes[node].iter().map(of).sum()
    }
}

fn receive(stack: &mut Stack, frame: &[u8]) {
    let frame = Received {
        private: frame,
        rest: Gather::EMPTY,
        offload: Offload::default(),
    };
    stack.handle_frame(NOW, &frame);
}

fn sent(stack: &mut Stack) -> Vec<Vec<u8>> {
    let mut wire = Wire::default();
    stack.poll_transmit(NOW, &mut wire);
    wire.0
}

/// A frame from node 1 to node 0.
fn frame(ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ethernet::HEADER_LEN];
    ethernet::Header {
        dst: Mac(mac(0)),
        src: Mac(mac(1)),
        vlan: None,
        ethertype,
    }
    .emit(&mut frame);
    frame.extend(payload);
    frame
}

fn packet(header: ipv4::Header, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; ipv4::HEADER_LEN];
    ipv4::Header {
        payload_len: payload.len() as u16,
        ..header
    }
    .emit(&mut packet);
    packet.extend(payload);
    frame(EtherType::IPV4, &packet)
}

fn arp(operation: arp::Operation) -> Vec<u8> {
    let packet = arp::Packet {
        operation,
        sender_mac: Mac(mac(1)),
        sender_ip: address(1),
        target_mac: Mac(mac(0)),
        target_ip: address(0),
    };
    let mut bytes = [0; arp::PACKET_LEN];
    packet.emit(&mut bytes);
    frame(EtherType::ARP, &bytes)
}

/// Connects from every shard of node 1 to node 0, and accepts each connection in its shard.
fn connect_all(network: &mut Network, each: usize) {
    let listeners = network.listen(0);
    let clients = network.nodes[1].len();
    let mut opened = Vec::new();
    for shard in 0..clients {
        opened.extend((0..each).map(|_| (shard, network.connect(1, shard, 0))));
    }
    network.run();
    let mut ports = std::collections::BTreeSet::new();
    for (shard, id) in &opened {
        let stack = &network.nodes[1][*shard];
        assert_eq!(stack.state(*id), Ok(State::Established));
        let ends = [stack.local_addr(*id).unwrap(), stack.peer_addr(*id).unwrap()];
        let own = stack.shard_for(Some(ends[0]), ends[1]);
        assert_eq!(own, Some(*shard as u8));
        ports.insert(ends[0].port());
    }
    assert_eq!(ports.len(), opened.len(), "no port twice");
    let mut accepted = 0;
    let servers = network.nodes[0].len();
    for (index, listener) in listeners.into_iter().enumerate() {
        let shard = &mut network.nodes[0][index];
        let mut own = 0;
        while let Ok(id) = shard.accept(listener) {
            let ends = [shard.local_addr(id).unwrap(), shard.peer_addr(id).unwrap()];
            assert_eq!(shard.shard_for(Some(ends[0]), ends[1]), Some(index as u8));
            assert_eq!(shard.state(id), Ok(State::Established));
            own += 1;
        }
        assert!(own > 0, "shard {index} of {servers} has some of {}", opened.len());
        accepted += own;
    }
    assert_eq!(accepted, opened.len());
    for node in [0, 1] {
        assert_eq!(network.sum(node, "tcp_resets_sent"), 0);
        assert_eq!(network.sum(node, "tcp_no_connection"), 0);
    }
}

#[test]
fn shard_takes_only_its_own_connections() {
    for counts in [[1, 3], [3, 1], [4, 2], [2, 2]] {
        let mut network = Network::new(&counts);
        connect_all(&mut network, 40);
        assert_eq!(network.sum(0, "tcp_passive_opens"), 40 * counts[1] as u64);
        // All shards received the request for the node's address.
        assert_eq!(network.sum(0, "drop_other_shard"), 0);
        let questions = network.sum(0, "left_to_first_shard");
        assert_eq!(questions, ((counts[0] - 1) * counts[1]) as u64);
    }
}

#[test]
fn segment_of_other_shard_is_dropped_without_answer() {
    let mut network = Network::new(&[3, 2]);
    network.careless = true;
    connect_all(&mut network, 20);
    // SYN and acknowledgement of 40 connections, in the two shards that do not own each.
    assert!(network.sum(0, "drop_other_shard") >= 2 * 40 * 2);
    assert!(network.sum(1, "drop_other_shard") >= 40);
}

#[test]
fn segment_in_wrong_shard_is_counted() {
    let mut network = Network::new(&[2, 1]);
    let listeners = network.listen(0);
    network.connect(1, 0, 0);
    let mut question = sent(&mut network.nodes[1][0]);
    network.deliver(1, &question.remove(0));
    for shard in [0, 1] {
        for frame in sent(&mut network.nodes[0][shard]) {
            network.deliver(0, &frame);
        }
    }
    let syn = sent(&mut network.nodes[1][0]).remove(0);
    let owner = usize::from(steering(0, 0, 2).shard_of(&Flow::of_frame(&syn).unwrap()));
    let wrong = &mut network.nodes[0][1 - owner];
    let before = wrong.counters().drop_other_shard;
    receive(wrong, &syn);
    assert_eq!(wrong.counters().drop_other_shard, before + 1);
    assert!(sent(wrong).is_empty(), "no reset, no SYN-ACK");
    assert_eq!(wrong.connections(), 0);
    assert_eq!(wrong.accept_queue_len(listeners[1 - owner]), Ok(0));
    let right = &mut network.nodes[0][owner];
    receive(right, &syn);
    assert_eq!(sent(right).len(), 1);
}

#[test]
fn all_shards_learn_and_first_one_answers() {
    let mut network = Network::new(&[3, 1]);
    let echo = icmpv4::Message::EchoRequest {
        id: 1,
        seq: 2,
        data: &[0x5a; 56],
    };
    let mut message = [0; 64];
    echo.emit(&mut message);
    let header = ipv4::Header {
        protocol: protocol::ICMPV4,
        ..ipv4::Header::new(address(1), address(0))
    };
    let questions = [arp(arp::Operation::Request), packet(header, &message)];
    for (kind, question) in questions.iter().enumerate() {
        network.deliver(1, question);
        for (index, shard) in network.nodes[0].iter_mut().enumerate() {
            let answers = sent(shard).len();
            assert_eq!(answers, usize::from(index == 0), "question {kind}, shard {index}");
        }
    }
    for shard in 0..3 {
        network.connect(0, shard, 1);
        let first = sent(&mut network.nodes[0][shard]).remove(0);
        assert!(
            Flow::of_frame(&first).is_some(),
            "shard {shard} asks for nothing it has heard"
        );
    }
    for shard in &mut network.nodes[0] {
        shard.announce();
    }
    let announced: Vec<usize> = network.nodes[0]
        .iter_mut()
        .map(|shard| sent(shard).len())
        .collect();
    assert_eq!(announced, [1, 0, 0]);
}

/// A datagram may reach any shard.
#[test]
fn datagram_is_refused_by_shard_of_its_flow() {
    let mut refused = [0; 3];
    for port in 1000..1030_u16 {
        // Reports are limited in rate.
        let mut network = Network::new(&[3, 1]);
        network.careless = port % 2 == 0;
        network.deliver(1, &arp(arp::Operation::Request));
        network.nodes[0].iter_mut().for_each(|shard| drop(sent(shard)));
        let mut datagram = [0; udp::HEADER_LEN];
        datagram[..2].copy_from_slice(&port.to_be_bytes());
        datagram[2..4].copy_from_slice(&1001_u16.to_be_bytes());
        datagram[4..6].copy_from_slice(&8_u16.to_be_bytes());
        let unknown = ipv4::Header {
            protocol: protocol::UDP,
            ..ipv4::Header::new(address(1), address(0))
        };
        let frame = packet(unknown, &datagram);
        let owner = steering(0, 0, 3).shard_of(&Flow::of_frame(&frame).unwrap());
        network.deliver(1, &frame);
        for (index, shard) in network.nodes[0].iter_mut().enumerate() {
            let answers = sent(shard).len();
            assert_eq!(
                answers,
                usize::from(index == usize::from(owner)),
                "port {port}, shard {index}"
            );
            refused[index] += answers;
        }
    }
    assert!(refused.iter().all(|&refused| refused > 0), "{refused:?}");
}

#[test]
fn fragmented_segment_is_taken_by_its_shard() {
    let mut network = Network::new(&[3, 1]);
    network.listen(0);
    network.deliver(1, &arp(arp::Operation::Reply));
    network.nodes[0].iter_mut().for_each(|shard| drop(sent(shard)));
    receive(&mut network.nodes[1][0], &{
        let packet = arp::Packet {
            operation: arp::Operation::Request,
            sender_mac: Mac(mac(0)),
            sender_ip: address(0),
            target_mac: Mac(mac(1)),
            target_ip: address(1),
        };
        let mut bytes = [0; arp::PACKET_LEN];
        packet.emit(&mut bytes);
        let mut question = frame(EtherType::ARP, &bytes);
        question[..6].copy_from_slice(&mac(1));
        question[6..12].copy_from_slice(&mac(0));
        question
    });
    drop(sent(&mut network.nodes[1][0]));
    network.connect(1, 0, 0);
    let syn = sent(&mut network.nodes[1][0]).remove(0);
    let owner = usize::from(steering(0, 0, 3).shard_of(&Flow::of_frame(&syn).unwrap()));
    let segment = &syn[ethernet::HEADER_LEN + ipv4::HEADER_LEN..];
    for (range, offset) in [(0..24, 0), (24..segment.len(), 24)] {
        let header = ipv4::Header {
            protocol: protocol::TCP,
            id: 77,
            dont_fragment: false,
            more_fragments: offset == 0,
            fragment_offset: offset,
            ..ipv4::Header::new(address(1), address(0))
        };
        network.deliver(1, &packet(header, &segment[range]));
    }
    for (index, shard) in network.nodes[0].iter_mut().enumerate() {
        assert_eq!(shard.connections(), u32::from(index == owner));
        assert_eq!(shard.counters().drop_other_shard, u64::from(index != owner));
        assert_eq!(sent(shard).len(), usize::from(index == owner));
    }
}

#[test]
fn given_port_determines_shard() {
    let mut network = Network::new(&[4, 1]);
    let to = SocketAddr::from((address(1), 80));
    let open = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    for port in 2000..2040 {
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let owner = network.nodes[0][0].shard_for(Some(local), to).unwrap();
        for (index, shard) in network.nodes[0].iter_mut().enumerate() {
            assert_eq!(shard.shard_for(Some(local), to), Some(owner));
            assert_eq!(shard.shard_for(Some(open), to), None);
            assert_eq!(shard.shard_for(None, to), None);
            let settings = shard.default_settings();
            let begun = shard.connect(NOW, Some(local), to, &settings).map(drop);
            if index == usize::from(owner) {
                assert_eq!(begun, Ok(()));
            } else {
                assert_eq!(begun, Err(SocketError::AddressNotAvailable));
            }
        }
    }
}

#[test]
fn connection_of_node_with_itself_has_both_ends_in_one_shard() {
    let mut network = Network::new(&[3]);
    let listeners = network.listen(0);
    for (shard, listener) in listeners.iter().enumerate() {
        let opened: Vec<ConnectionId> = (0..10).map(|_| network.connect(0, shard, 0)).collect();
        network.run();
        let stack = &mut network.nodes[0][shard];
        for id in opened {
            assert_eq!(stack.state(id), Ok(State::Established));
        }
        assert_eq!(stack.accept_queue_len(*listener), Ok(10));
    }
    assert_eq!(network.sum(0, "drop_other_shard"), 0);
}

#[test]
fn error_about_connection_reaches_its_shard() {
    let mut network = Network::new(&[3, 1]);
    network.deliver(1, &arp(arp::Operation::Request));
    network.nodes[0].iter_mut().for_each(|shard| drop(sent(shard)));
    let before = network.sum(0, "drop_other_shard");
    let attempt = network.connect(0, 2, 1);
    let syn = sent(&mut network.nodes[0][2]).remove(0);
    let error = icmpv4::Message::DestinationUnreachable {
        code: icmpv4::unreachable::PORT,
        mtu: 0,
        original: &syn[ethernet::HEADER_LEN..],
    };
    let mut message = [0; 128];
    let len = error.emit(&mut message);
    let header = ipv4::Header {
        protocol: protocol::ICMPV4,
        ..ipv4::Header::new(address(1), address(0))
    };
    network.deliver(1, &packet(header, &message[..len]));
    let shard = &mut network.nodes[0][2];
    assert_eq!(
        shard.take_error(attempt),
        Ok(Some(SocketError::ConnectionRefused))
    );
    assert_eq!(network.sum(0, "drop_other_shard"), before + 2);
    assert_eq!(network.sum(0, "drop_icmp"), 0);
}
