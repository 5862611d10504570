//! Programs of one node and of others talk to each other.

use std::io::{Read, Write};

use toehold_node::Placement;
use toehold_node::control::Connection;
use toehold_socket::{TcpListener, TcpStream};

use crate::support::{World, assert_nothing_dropped, eventually, fabric, give_back, status, within};

fn echo(placement: Placement) {
    let world = World::new(&["server", "client"], placement);
    let (server, client) = (world.attach("server"), world.attach("client"));
    let address = (world.address(0), 7);
    let listener = TcpListener::bind(&server, address).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            give_back(&mut stream);
        });
        let mut stream = TcpStream::connect(&client, address).unwrap();
        for round in 0..1000_u32 {
            stream.write_all(&round.to_le_bytes()).unwrap();
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(u32::from_le_bytes(answer), round);
        }
    });
    assert_nothing_dropped(world.path(), &["server", "client"]);
}

#[test]
fn attached_programs_talk_inline() {
    echo(Placement::Inline);
}

#[test]
fn attached_programs_talk_through_their_engines() {
    echo(Placement::Engine);
}

#[test]
fn attached_programs_talk_adaptively() {
    echo(Placement::Adaptive);
}

/// The engine's driver parked behind the program's thread, which no longer drove when it woke up.
/// So no thread drove.
#[test]
fn an_engine_gets_the_seat_of_a_program_that_slept_at_the_link() {
    let world = World::new(&["server", "client"], Placement::Adaptive);
    let (server, client) = (world.attach("server"), world.attach("client"));
    let address = (world.address(0), 7);
    let listener = TcpListener::bind(&server, address).unwrap();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        eventually("the thread does not rest", || {
            let resting = status(world.path(), "server").stack.waiters;
            (resting == 1).then_some(()).ok_or(resting)
        });
        let mut engine = Connection::open(&fabric(world.path()), "server").unwrap();
        engine.set_placement(Placement::Engine).unwrap();
        let mut stream = TcpStream::connect(&client, address).unwrap();
        let (mut served, _) = accepted.join().unwrap();
        stream.write_all(b"after").unwrap();
        served.read_exact(&mut [0; 5]).unwrap();
    });
}

/// While a program calls, the engine's driver leaves the link to it. So every call has to make sure
/// that a thread looks there. Here the driver never does.
#[test]
fn calls_that_never_wait_see_what_comes() {
    let world = World::new(&["client", "server"], Placement::Adaptive);
    let (client, server) = (world.attach("client"), world.attach("server"));
    let listener = TcpListener::bind(&server, (world.address(1), 7)).unwrap();
    let stream = TcpStream::connect(&client, (world.address(1), 7)).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let place = |node, placement| {
        let mut control = Connection::open(&fabric(world.path()), node).unwrap();
        control.set_placement(placement).unwrap();
    };
    place("client", Placement::Inline);
    let mut write = move |what: &[u8]| peer.write_all(what).unwrap();
    let client = within(30, move || {
        write(b"1");
        while !stream.readiness().unwrap().readable {}
        write(b"2");
        while stream.readable_bytes().unwrap() < 2 {}
        write(b"3");
        while stream.info().unwrap().bytes_received < 3 {}
        client
    });
    place("client", Placement::Adaptive);
    place("server", Placement::Inline);
    let address = (world.address(1), 7).into();
    within(30, move || {
        let _waiting = TcpStream::connect_nonblocking(&client, &address).unwrap();
        while !listener.readiness().unwrap().readable {}
    });
}
