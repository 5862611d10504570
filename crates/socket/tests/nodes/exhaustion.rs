//! Many connections, and more than there are descriptors for.

use std::io::{Read, Write};
use std::net::Ipv4Addr;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use toehold_socket::{Node, TcpListener, TcpStream};

use crate::roles::{Program, address, node, say, world};

/// Descriptors of this process, the one that lists them included.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Lets this process have so many descriptors more.
fn limit(more: usize) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = Some((descriptors() + more) as u64);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

/// With both engines in this very process: it is their descriptors that are counted.
pub(crate) fn connect_ten_thousand_times() {
    let world = world();
    let (server, client) = (world.attach("server"), world.attach("client"));
    let address = (world.address(0), 7);
    let listener = TcpListener::bind(&server, address).unwrap();
    let (before, after) = std::thread::scope(|scope| {
        scope.spawn(|| answer(&listener));
        ask(&client, address, b"first");
        let before = descriptors();
        for _ in 0..10_000 {
            ask(&client, address, b"next");
        }
        let after = descriptors();
        ask(&client, address, END);
        (before, after)
    });
    // The pools may have grown, with both ends of what is in them.
    assert!(after <= before + 4 * 64, "{before} descriptors became {after}");
    connect_many_at_once(&listener, &client);
    say("done");
}

/// More at once than a pool keeps: those beyond are closed, once the engines have noticed.
fn connect_many_at_once(listener: &TcpListener, client: &Node) {
    let before = descriptors();
    let address = listener.local_addr().unwrap();
    let many: Vec<_> = (0..500)
        .map(|_| {
            (
                TcpStream::connect(client, address).unwrap(),
                listener.accept().unwrap(),
            )
        })
        .collect();
    assert!(descriptors() >= before + 4 * (500 - 64));
    drop(many);
    while descriptors() > before + 4 * 64 {
        std::thread::yield_now();
    }
}

const END: &[u8] = b"end";

fn ask(client: &Node, address: (Ipv4Addr, u16), word: &[u8]) {
    let mut stream = TcpStream::connect(client, address).unwrap();
    stream.write_all(word).unwrap();
    // The other side has closed by then.
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

fn answer(listener: &TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        let mut word = [0; 16];
        let len = stream.read(&mut word).unwrap();
        if &word[..len] == END {
            return;
        }
    }
}

#[test]
fn ten_thousand_connections_leave_no_descriptor_behind() {
    let world = world();
    let mut program = Program::start("many", &world);
    assert_eq!(program.hear(), "done");
    program.finish();
}

/// Connects until it fails; the error's number, and how many there were.
fn connect_until_refused(client: &Node, port: u16) -> (i32, usize) {
    let mut streams = Vec::new();
    loop {
        match TcpStream::connect(client, address(port)) {
            Ok(stream) => streams.push(stream),
            Err(error) => return (error.raw_os_error().unwrap(), streams.len()),
        }
    }
}

/// The engine has descriptors, and the program has none.
pub(crate) fn run_out_of_descriptors() {
    let client = node("client");
    drop(TcpStream::connect(&client, address(7)).unwrap());
    limit(20);
    for _ in 0..5 {
        let (error, connected) = connect_until_refused(&client, 7);
        assert_eq!(error, nix::libc::EMFILE);
        assert!((20..40).contains(&connected), "{connected}");
    }
    drop(TcpStream::connect(&client, address(7)).unwrap());
}

#[test]
fn a_program_without_descriptors_is_told_so_and_goes_on() {
    let world = world();
    let server = world.attach("server");
    let _listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
    Program::start("limited", &world).finish();
}

/// The engines have none either: they are in this very process.
pub(crate) fn run_out_of_descriptors_with_the_engine() {
    let world = world();
    let (server, client) = (world.attach("server"), world.attach("client"));
    let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
    drop(TcpStream::connect(&client, listener.local_addr().unwrap()).unwrap());
    limit(100);
    for _ in 0..5 {
        let mut streams = Vec::new();
        let error = loop {
            match TcpStream::connect(&client, listener.local_addr().unwrap()) {
                Ok(stream) => streams.push(stream),
                Err(error) => break error.raw_os_error(),
            }
        };
        assert!(
            [Some(nix::libc::EMFILE), Some(nix::libc::ENFILE)].contains(&error),
            "{error:?}"
        );
        assert!(streams.len() >= 20, "{}", streams.len());
        drop(streams);
    }
    say("done");
}

#[test]
fn an_engine_without_descriptors_says_so_and_goes_on() {
    let world = world();
    let mut program = Program::start("limited-engine", &world);
    assert_eq!(program.hear(), "done");
    program.finish();
}
