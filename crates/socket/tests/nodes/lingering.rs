//! Streams that linger: the last process to let go of one waits until everything is acknowledged.
//! No other process does.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use toehold_socket::{TcpListener, TcpStream};

use crate::descriptors::{give, given};
use crate::roles::{Program, address, forked, node, reap, say, wait, world};
use crate::support::{within, without_copies};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

const SHORT: Duration = Duration::from_secs(1);

/// For how long the peer reads nothing.
const SILENCE: Duration = Duration::from_millis(300);

/// Writes until nothing more is taken, and says how much that was. It is more than the peer has
/// room for, so that it is not acknowledged before it is read.
fn fill(stream: &mut TcpStream) {
    stream
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut written = 0;
    let full = loop {
        match stream.write(&[7; 1 << 16]) {
            Ok(len) => written += len,
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    say(written);
}

/// Lets go of a stream, and says how long that took, in milliseconds.
fn close(stream: TcpStream) {
    let before = Instant::now();
    say("closing");
    drop(stream);
    say(before.elapsed().as_millis());
}

fn connect(linger: Duration) -> TcpStream {
    let mut stream = TcpStream::connect(&node("client"), address(7)).unwrap();
    stream.set_linger(Some(linger)).unwrap();
    fill(&mut stream);
    stream
}

/// Reads everything, after a while, from a program that closes what it has written, and
/// has to take its time for that.
fn read_late(mut program: Program, mut stream: TcpStream) {
    let _last = without_copies();
    let written: usize = program.hear().parse().unwrap();
    assert_eq!(program.hear(), "closing");
    sleep(SILENCE);
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), written);
    let took = Duration::from_millis(program.hear().parse().unwrap());
    // What the program says is rounded down.
    assert!(took + Duration::from_millis(1) >= SILENCE, "{took:?}");
    program.finish();
}

/// The child closes the connection first, and has made calls on it before.
pub(crate) fn close_after_a_child() {
    let mut stream = Some(connect(LONG));
    let child = forked(|| {
        let stream = stream.take();
        assert_eq!(stream.as_ref().unwrap().linger().unwrap(), Some(LONG));
    });
    reap(child);
    close(stream.unwrap());
}

#[test]
fn the_last_of_two_processes_lingers_and_the_first_does_not() {
    within(60, || {
        let world = world();
        let server = world.attach("server");
        let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
        let program = Program::start("closes-after-a-child", &world);
        read_late(program, listener.accept().unwrap().0);
    });
}

/// The child closes the connection last.
pub(crate) fn close_in_a_child() {
    let mut stream = Some(connect(LONG));
    let (parent, mut child) = UnixStream::pair().unwrap();
    let pid = forked(|| {
        let stream = stream.take().unwrap();
        assert_eq!(stream.linger().unwrap(), Some(LONG));
        child.read_exact(&mut [0]).unwrap();
        close(stream);
    });
    drop(stream);
    (&parent).write_all(&[0]).unwrap();
    reap(pid);
}

#[test]
fn a_child_lingers_if_it_is_the_last() {
    within(60, || {
        let world = world();
        let server = world.attach("server");
        let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
        let program = Program::start("closes-in-a-child", &world);
        read_late(program, listener.accept().unwrap().0);
    });
}

pub(crate) fn close_what_was_given() {
    let mut stream = TcpStream::from_fd(&node("client"), given()).unwrap();
    fill(&mut stream);
    close(stream);
}

#[test]
fn a_program_lingers_for_what_it_was_given() {
    within(60, || {
        let world = world();
        let (server, client) = (world.attach("server"), world.attach("client"));
        let address = (world.address(0), 7);
        let listener = TcpListener::bind(&server, address).unwrap();
        let (socket, other) = UnixStream::pair().unwrap();
        let program = Program::start_with("closes-what-was-given", &world, Stdio::from(OwnedFd::from(other)));
        let stream = TcpStream::connect(&client, address).unwrap();
        stream.set_linger(Some(LONG)).unwrap();
        give(&socket, stream.into_fd().unwrap());
        read_late(program, listener.accept().unwrap().0);
    });
}

/// One descriptor stays behind, of which there is no stream.
pub(crate) fn close_with_a_copy() {
    let stream = connect(LONG);
    let copy = stream.descriptor().unwrap().try_clone_to_owned().unwrap();
    close(stream);
    wait();
    drop(copy);
}

#[test]
fn nobody_lingers_while_there_is_a_copy() {
    within(60, || {
        let world = world();
        let server = world.attach("server");
        let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
        let mut program = Program::start("closes-with-a-copy", &world);
        let (mut stream, _) = listener.accept().unwrap();
        let written: usize = program.hear().parse().unwrap();
        // It would not say how long it took as long as nothing is read.
        assert_eq!(program.hear(), "closing");
        program.hear();
        drop(program.stdin.take());
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), written);
        program.finish();
    });
}

pub(crate) fn close_in_vain() {
    let stream = connect(SHORT);
    // Others could have it now, as far as this process knows.
    stream.descriptor().unwrap();
    close(stream);
}

#[test]
fn the_last_process_lingers_no_longer_than_said() {
    within(60, || {
        let world = world();
        let server = world.attach("server");
        let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
        let mut program = Program::start("closes-in-vain", &world);
        let _last = without_copies();
        let (mut stream, _) = listener.accept().unwrap();
        let written: usize = program.hear().parse().unwrap();
        assert_eq!(program.hear(), "closing");
        let took = Duration::from_millis(program.hear().parse().unwrap());
        assert!(took >= SHORT, "{took:?}");
        program.finish();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), written);
    });
}

pub(crate) fn fill_and_wait() {
    let _stream = connect(SHORT);
    wait();
}

/// Lingering decides which process waits, as with the kernel's sockets. It does not decide what
/// arrives.
#[test]
fn what_a_killed_program_wrote_is_delivered_however_short_it_would_have_lingered() {
    within(60, || {
        let world = world();
        let server = world.attach("server");
        let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
        let mut program = Program::start("fills", &world);
        let (mut stream, _) = listener.accept().unwrap();
        let written: usize = program.hear().parse().unwrap();
        program.kill();
        sleep(SHORT + SILENCE);
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), written);
    });
}
