//! Descriptors of sockets: what becomes of them when processes end, run another
//! program, and give them away.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use toehold_socket::{TcpListener, TcpStream};

use crate::roles::{Program, address, command, node, say, wait, world};

const WRITTEN: usize = 100_000;

/// What a test reads from a program that is killed once it is ready.
fn read_from_a_killed(role: &str) -> std::io::Result<usize> {
    let world = world();
    let server = world.attach("server");
    let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
    let mut program = Program::start(role, &world);
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"to be read").unwrap();
    assert_eq!(program.hear(), "ready");
    program.kill();
    stream.read_to_end(&mut Vec::new())
}

fn connect() -> TcpStream {
    TcpStream::connect(&node("client"), address(7)).unwrap()
}

pub(crate) fn write_and_wait() {
    let mut stream = connect();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream.write_all(&[7; WRITTEN]).unwrap();
    say("ready");
    wait();
}

#[test]
fn what_a_killed_program_has_written_is_delivered() {
    assert_eq!(read_from_a_killed("writer").unwrap(), WRITTEN);
}

pub(crate) fn wait_with_unread_bytes() {
    let stream = connect();
    stream.peek(&mut [0; 10]).unwrap();
    say("ready");
    wait();
}

#[test]
fn bytes_that_a_killed_program_has_not_read_reset_the_connection() {
    let error = read_from_a_killed("reader").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

pub(crate) fn write_with_hard_linger_and_wait() {
    let mut stream = connect();
    stream.read_exact(&mut [0; 10]).unwrap();
    stream.set_linger(Some(Duration::ZERO)).unwrap();
    say("ready");
    wait();
}

#[test]
fn a_killed_program_that_does_not_linger_resets_the_connection() {
    let error = read_from_a_killed("hard-writer").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

/// A role whose standard input is the connection when it runs the other program.
pub(crate) fn before_exec() {
    let mut stream = connect();
    stream.write_all(b"before ").unwrap();
    rustix::stdio::dup2_stdin(stream.descriptor().unwrap()).unwrap();
    panic!("{}", command("after-exec").exec());
}

pub(crate) fn after_exec() {
    let inherited = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut stream = TcpStream::from_fd(&node("client"), inherited).unwrap();
    stream.write_all(b"and after").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "yes");
}

#[test]
fn another_program_goes_on_with_a_stream() {
    let world = world();
    let server = world.attach("server");
    let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
    let program = Program::start("before-exec", &world);
    let (mut stream, _) = listener.accept().unwrap();
    let mut word = [0; 16];
    stream.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"before and after");
    stream.write_all(b"yes").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    program.finish();
}

pub(crate) fn give(socket: &UnixStream, descriptor: OwnedFd) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let given = [descriptor.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&given)));
    sendmsg(socket, &[IoSlice::new(b"!")], &mut ancillary, SendFlags::empty()).unwrap();
}

/// In a program: what the test gives it over its standard input.
pub(crate) fn given() -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(
        std::io::stdin(),
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        flags,
    )
    .unwrap();
    let message = ancillary.drain().next();
    let Some(RecvAncillaryMessage::ScmRights(mut rights)) = message else {
        panic!("no descriptor came along");
    };
    rights.next().unwrap()
}

pub(crate) fn receive_a_connection() {
    let mut stream = TcpStream::from_fd(&node("client"), given()).unwrap();
    stream.write_all(b"given").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_connection_is_given_to_another_program() {
    let world = world();
    let (server, client) = (world.attach("server"), world.attach("client"));
    let address = (world.address(0), 7);
    let listener = TcpListener::bind(&server, address).unwrap();
    let (socket, other) = UnixStream::pair().unwrap();
    let program = Program::start_with("receiver", &world, Stdio::from(OwnedFd::from(other)));
    let mut stream = TcpStream::connect(&client, address).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    stream.write_all(b"kept ").unwrap();
    give(&socket, stream.into_fd().unwrap());
    let mut word = [0; 10];
    accepted.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"kept given");
    drop(accepted);
    program.finish();
}

pub(crate) fn receive_a_listener() {
    let listener = TcpListener::from_fd(&node("server"), given()).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"accepted").unwrap();
}

#[test]
fn a_listener_is_given_to_another_program() {
    let world = world();
    let (server, client) = (world.attach("server"), world.attach("client"));
    let address = (world.address(0), 7);
    let listener = TcpListener::bind(&server, address).unwrap();
    let (socket, other) = UnixStream::pair().unwrap();
    let program = Program::start_with("listener-receiver", &world, Stdio::from(OwnedFd::from(other)));
    give(&socket, listener.into_fd().unwrap());
    let mut stream = TcpStream::connect(&client, address).unwrap();
    let mut word = String::new();
    stream.read_to_string(&mut word).unwrap();
    assert_eq!(word, "accepted");
    program.finish();
}

/// A descriptor keeps a connection open that no process has a stream of.
#[test]
fn a_stream_becomes_a_descriptor_and_a_stream_again() {
    let world = world();
    let (server, client) = (world.attach("server"), world.attach("client"));
    let address = (world.address(0), 7);
    let listener = TcpListener::bind(&server, address).unwrap();
    let stream = TcpStream::connect(&client, address).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let descriptor = stream.into_fd().unwrap();
    let copy = descriptor.try_clone().unwrap();
    let mut stream = TcpStream::from_fd(&client, descriptor).unwrap();
    stream.write_all(b"once").unwrap();
    drop(stream);
    let mut stream = TcpStream::from_fd(&client, copy).unwrap();
    stream.write_all(b"again").unwrap();
    drop(stream);
    let mut words = String::new();
    accepted.read_to_string(&mut words).unwrap();
    assert_eq!(words, "onceagain");
}

#[test]
fn what_is_no_socket_of_the_node_is_refused() {
    let world = world();
    let (server, client) = (world.attach("server"), world.attach("client"));
    let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
    let refused = |made: std::io::Result<TcpStream>| made.unwrap_err().kind();
    let (socket, _other) = UnixStream::pair().unwrap();
    assert_eq!(
        refused(TcpStream::from_fd(&client, socket.into())),
        ErrorKind::InvalidInput
    );
    let file = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(
        refused(TcpStream::from_fd(&client, file.into())),
        ErrorKind::InvalidInput
    );
    // A listener is no stream, and one of another node is none.
    let descriptor = || listener.descriptor().unwrap().try_clone_to_owned().unwrap();
    assert_eq!(
        refused(TcpStream::from_fd(&server, descriptor())),
        ErrorKind::InvalidInput
    );
    assert!(TcpListener::from_fd(&client, descriptor()).is_err());
    assert!(TcpListener::from_fd(&server, descriptor()).is_ok());
}
