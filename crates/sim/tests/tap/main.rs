//! Toehold's stack and Linux's TCP as peers, over a TAP device, in real time.

mod harness;
mod impaired;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use harness::{Cable, Machine};
use toehold_link::interface::Namespace;
use toehold_link::tap::{Offloads, TapSettings};
use toehold_sim::endpoint::{Outcome, Plan};
use toehold_sim::stream::Stream;

const SEEDS: [u64; 2] = [1, 2];

/// Returns the plan of Toehold's end: equal bytes both ways, in pieces of odd
/// lengths.
fn plan(bytes: u64) -> Plan {
    Plan {
        send: bytes,
        receive: bytes,
        send_seed: SEEDS[0],
        receive_seed: SEEDS[1],
        write_len: 70_001,
        read_len: 50_003,
        read_pause: Duration::ZERO,
        write_pause: Duration::ZERO,
        no_delay: false,
        close_second: false,
    }
}

/// Runs the kernel's end in two threads.
fn exchange(stream: &TcpStream, bytes: u64) {
    // Longer than the patience of Toehold's end, which reports failures in more
    // detail.
    let patience = Some(harness::PATIENCE + Duration::from_secs(5));
    stream.set_read_timeout(patience).expect("a timeout");
    stream.set_write_timeout(patience).expect("a timeout");
    std::thread::scope(|scope| {
        scope.spawn(|| send(stream, bytes));
        receive(stream, bytes);
    });
}

fn send(mut stream: &TcpStream, bytes: u64) {
    let mut chunk = vec![0; 60_000];
    let mut sent = 0;
    while sent < bytes {
        let len = chunk.len().min((bytes - sent) as usize);
        Stream::new(SEEDS[1]).fill(sent, &mut chunk[..len]);
        stream.write_all(&chunk[..len]).expect("the kernel sends");
        sent += len as u64;
    }
    stream
        .shutdown(std::net::Shutdown::Write)
        .expect("the kernel closes");
}

fn receive(mut stream: &TcpStream, bytes: u64) {
    let mut chunk = vec![0; 60_000];
    let mut received = 0;
    loop {
        let len = stream.read(&mut chunk).expect("the kernel receives");
        if len == 0 {
            break;
        }
        Stream::new(SEEDS[0])
            .check(received, &chunk[..len])
            .expect("the stream is intact");
        received += len as u64;
    }
    assert_eq!(received, bytes);
}

/// Runs a connection opened by each side, over each family.
fn converse(cable: Cable, bytes: u64) -> Machine {
    let (namespace, mut machine) = (cable.namespace, cable.machine);
    for address in [Cable::OURS, Cable::OURS_V6] {
        let here = machine.listen(address, 80, plan(bytes));
        let there: SocketAddr = (address, 80).into();
        let outcome = std::thread::scope(|scope| {
            let kernel = scope.spawn(|| {
                let stream = connect(&namespace, there);
                exchange(&stream, bytes);
            });
            machine.run_until_served(here, &kernel)
        });
        assert_eq!(outcome, Outcome::Complete, "{address} from the kernel");
    }
    for address in [Cable::THEIRS, Cable::THEIRS_V6] {
        let listener = listen(&namespace, address);
        let there = listener.local_addr().expect("it has an address");
        let outcome = std::thread::scope(|scope| {
            let kernel = scope.spawn(|| {
                let (stream, _) = listener.accept().expect("our stack connects");
                exchange(&stream, bytes);
            });
            let here = machine.connect(there, plan(bytes));
            machine.run_until_served(here, &kernel)
        });
        assert_eq!(outcome, Outcome::Complete, "{address} from our stack");
    }
    machine
}

fn connect(namespace: &Namespace, to: SocketAddr) -> TcpStream {
    let connected = namespace
        .run(|| TcpStream::connect(to))
        .expect("the namespace is there");
    connected.expect("the kernel connects")
}

fn listen(namespace: &Namespace, at: IpAddr) -> TcpListener {
    let listening = namespace
        .run(|| TcpListener::bind((at, 0)))
        .expect("the namespace is there");
    listening.expect("the kernel listens")
}

#[test]
#[ignore = "needs namespaces, tun"]
fn streams_with_super_frames_are_intact() {
    for mtu in [1500, 9000] {
        let settings = TapSettings {
            mtu,
            ..TapSettings::new("toe0", Cable::ADDRESS)
        };
        let machine = converse(Cable::new(&settings), 20 << 20);
        let link = machine.tap().statistics();
        assert!(
            link.super_frames_received > 0 && link.super_frames_sent > 0,
            "{link:?}"
        );
        assert_eq!(
            (link.bad_headers, link.refused, link.bad_length),
            (0, 0, 0),
            "{link:?}"
        );
        assert_eq!(machine.stack.counters().drop_checksum, 0);
    }
}

#[test]
#[ignore = "needs namespaces, tun"]
fn streams_without_offloads_are_intact() {
    for mtu in [1500, 9000] {
        for vnet_header in [true, false] {
            let settings = TapSettings {
                mtu,
                vnet_header,
                super_frames: false,
                offloads: Offloads::NONE,
                ..TapSettings::new("toe0", Cable::ADDRESS)
            };
            let machine = converse(Cable::new(&settings), 4 << 20);
            let link = machine.tap().statistics();
            assert_eq!(
                (link.super_frames_received, link.super_frames_sent),
                (0, 0),
                "{link:?}"
            );
            assert_eq!((link.refused, link.bad_length), (0, 0), "{link:?}");
            assert_eq!(machine.stack.counters().drop_checksum, 0);
        }
    }
}

/// The interface goes down in the middle of a stream, and up again. Both sides
/// retransmit, and no byte is missing.
#[test]
#[ignore = "needs namespaces, tun"]
fn stream_survives_interface_down_and_up() {
    let cable = Cable::new(&TapSettings::new("toe0", Cable::ADDRESS));
    let (namespace, mut machine, mut interface) = (cable.namespace, cable.machine, cable.interface);
    let bytes = 8 << 20;
    let here = machine.listen(Cable::OURS, 80, plan(bytes));
    let there: SocketAddr = (Cable::OURS, 80).into();
    let outcome = std::thread::scope(|scope| {
        let kernel = scope.spawn(|| {
            let stream = connect(&namespace, there);
            exchange(&stream, bytes);
        });
        machine.run_until_received(here, bytes / 4);
        interface.set_up(false).expect("down");
        while machine.tap().statistics().down == 0 {
            machine.round();
        }
        interface.set_up(true).expect("up");
        machine.run_until_served(here, &kernel)
    });
    assert_eq!(outcome, Outcome::Complete);
}
