//! Connections whose bytes the engine carries: their descriptors are Unix sockets for any
//! program.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use toehold_node::Placement;
use toehold_socket::{Events, Interest, Node, Poll, TcpListener, TcpStream, Token};

use crate::support::{World, assert_empty, pattern, spawn, within};

/// A world with a connection: the client's end and the server's.
struct Pair {
    world: World,
    client: Node,
    near: TcpStream,
    far: TcpStream,
}

fn pair() -> Pair {
    pair_in(Placement::default())
}

fn pair_in(placement: Placement) -> Pair {
    let world = World::new(&["client", "server"], placement);
    let (client, server) = (world.attach("client"), world.attach("server"));
    let listener = TcpListener::bind(&server, (world.address(1), 7)).unwrap();
    let near = TcpStream::connect(&client, (world.address(1), 7)).unwrap();
    let (far, _) = listener.accept().unwrap();
    Pair {
        world,
        client,
        near,
        far,
    }
}

/// What a program has that knows nothing of the node.
fn relayed(stream: TcpStream) -> UnixStream {
    let descriptor: OwnedFd = stream.descriptor().unwrap().try_clone_to_owned().unwrap();
    stream.relay().unwrap();
    descriptor.into()
}

#[test]
fn bytes_cross_both_ways_in_order() {
    for placement in [Placement::Engine, Placement::Adaptive] {
        within(60, move || {
            const LEN: usize = 3_000_001;
            let Pair {
                world,
                mut near,
                mut far,
                ..
            } = pair_in(placement);
            // Some bytes were on the way before.
            far.write_all(&pattern(5000)).unwrap();
            near.read_exact(&mut [0; 1000]).unwrap();
            near.write_all(&pattern(300)).unwrap();
            let mut near = relayed(near);
            let mut reading = near.try_clone().unwrap();
            let reader = std::thread::spawn(move || {
                let mut got = vec![0; LEN - 1000];
                reading.read_exact(&mut got).unwrap();
                assert!(got == pattern(LEN)[1000..]);
            });
            let answering = far.try_clone().unwrap();
            let answerer = std::thread::spawn(move || {
                (&answering).write_all(&pattern(LEN)[5000..]).unwrap();
            });
            let sender = std::thread::spawn(move || near.write_all(&pattern(LEN)[300..]).unwrap());
            let mut got = vec![0; LEN];
            far.read_exact(&mut got).unwrap();
            assert!(got == pattern(LEN));
            [reader, answerer, sender]
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
            drop(far);
            assert_empty(world.path(), "client");
            assert_empty(world.path(), "server");
        });
    }
}

/// Urgent bytes were among the rest.
#[test]
fn urgent_bytes_are_urgent_to_who_knows_nothing_of_the_node() {
    let Pair {
        world, near, mut far, ..
    } = pair();
    let mut near = relayed(near);
    far.write_all(b"before").unwrap();
    far.send_out_of_band(b"so!").unwrap();
    far.write_all(b"after").unwrap();
    drop(far);
    let mut state = [PollFd::new(&near, PollFlags::PRI)];
    rustix::event::poll(&mut state, None).unwrap();
    let mut urgent = [0; 2];
    let taken = rustix::net::recv(&near, &mut urgent[..], RecvFlags::OOB).unwrap();
    assert_eq!((taken.0, urgent), (1, [b'!', 0]));
    let mut rest = String::new();
    near.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "beforesoafter");
    drop(near);
    assert_empty(world.path(), "client");
}

#[test]
fn the_end_of_one_direction_is_not_that_of_the_other() {
    let Pair {
        world, near, mut far, ..
    } = pair();
    let mut near = relayed(near);
    near.write_all(b"question").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    let mut question = String::new();
    far.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    far.write_all(b"answer").unwrap();
    drop(far);
    let mut answer = String::new();
    near.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "answer");
    drop(near);
    assert_empty(world.path(), "client");
}

#[test]
fn what_was_written_is_delivered_after_the_program_has_ended() {
    let Pair {
        world, near, mut far, ..
    } = pair();
    let mut near = relayed(near);
    near.set_nonblocking(true).unwrap();
    let bytes = pattern(100_000);
    let mut written = 0;
    while written < bytes.len()
        && let Ok(len) = near.write(&bytes[written..])
    {
        written += len;
    }
    drop(near);
    let mut got = Vec::new();
    far.read_to_end(&mut got).unwrap();
    assert!(written > 0 && got == bytes[..written]);
    drop(far);
    assert_empty(world.path(), "client");
}

#[test]
fn a_program_that_leaves_bytes_unread_resets_the_connection() {
    let Pair {
        world, near, mut far, ..
    } = pair();
    let near = relayed(near);
    far.write_all(b"to be read").unwrap();
    let mut first = [0];
    (&near).read_exact(&mut first).unwrap();
    drop(near);
    let error = far.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    drop(far);
    assert_empty(world.path(), "client");
}

#[test]
fn a_reset_ends_what_the_program_reads() {
    let Pair {
        world, near, mut far, ..
    } = pair();
    let mut near = relayed(near);
    near.write_all(b"unread").unwrap();
    far.peek(&mut [0]).unwrap();
    far.write_all(b"x").unwrap();
    drop(far);
    let mut got = Vec::new();
    // How it ends, a Unix socket cannot always tell.
    let _ = near.read_to_end(&mut got);
    assert!(got.is_empty() || got == b"x");
    drop(near);
    assert_empty(world.path(), "client");
}

#[test]
fn other_handles_have_nothing_any_more_and_are_told() {
    let Pair {
        client,
        near,
        mut far,
        world,
    } = pair();
    let waiting = near.try_clone().unwrap();
    let waiter = std::thread::spawn(move || (&waiting).read(&mut [0]).unwrap_err());
    let mut poll = Poll::new(&client).unwrap();
    poll.registry()
        .register(&near, Token(3), Interest::READABLE)
        .unwrap();
    let addresses = (near.local_addr().unwrap(), near.peer_addr().unwrap());
    assert_eq!(near.relayed().unwrap(), None);
    let copy = near.try_clone().unwrap();
    let near = relayed(near);
    let badf = Some(Errno::BADF.raw_os_error());
    assert_eq!(waiter.join().unwrap().raw_os_error(), badf);
    let mut events = Events::with_capacity(4);
    poll.poll(&mut events, None).unwrap();
    assert!(events.iter().next().unwrap().is_error());
    assert_eq!((&copy).write(b"x").unwrap_err().raw_os_error(), badf);
    let told = copy.relayed().unwrap().unwrap();
    assert_eq!((told.local, told.peer), (Some(addresses.0), Some(addresses.1)));
    let descriptor: OwnedFd = near.try_clone().unwrap().into();
    assert_eq!(
        client.relayed(descriptor.try_clone().unwrap()).unwrap(),
        Some(told)
    );
    let error = TcpStream::from_fd(&client, descriptor).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    copy.relay().unwrap();
    drop(copy);
    far.write_all(b"on it goes").unwrap();
    let mut got = [0; 10];
    (&near).read_exact(&mut got).unwrap();
    assert_eq!(&got, b"on it goes");
    drop((near, far, poll));
    assert_empty(world.path(), "client");
}

#[test]
fn a_program_that_reads_nothing_holds_its_peer_up() {
    let Pair {
        world: _world,
        near,
        mut far,
        ..
    } = pair();
    let near = relayed(near);
    far.set_nonblocking(true).unwrap();
    let bytes = pattern(1 << 20);
    let mut written = 0_usize;
    let mut refused = 0;
    // Both queues of the connection and the kernel's hold a few MiB.
    while refused < 50 {
        match far.write(&bytes[written % bytes.len()..]) {
            Ok(len) => (written, refused) = (written + len, 0),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                refused += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        assert!(written < 64 << 20, "somebody keeps it all");
    }
    far.set_nonblocking(false).unwrap();
    far.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    (&near).read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), written);
    assert!(
        got.chunks(bytes.len())
            .all(|chunk| chunk == &bytes[..chunk.len()])
    );
}

#[test]
fn any_program_can_use_it() {
    let Pair {
        world, near, mut far, ..
    } = pair();
    let near: OwnedFd = relayed(near).into();
    let mut cat = Command::new("cat");
    cat.stdin(Stdio::from(near.try_clone().unwrap()));
    cat.stdout(Stdio::from(near));
    let mut child = spawn(&mut cat);
    drop(cat);
    far.write_all(b"echo").unwrap();
    let mut got = [0; 4];
    far.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"echo");
    far.shutdown(Shutdown::Write).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
    drop(far);
    assert_empty(world.path(), "client");
}

#[test]
fn an_orderly_end_of_the_node_delivers_what_was_written() {
    let Pair {
        mut world,
        client,
        near,
        far,
    } = pair();
    let mut near = relayed(near);
    near.write_all(&pattern(50_000)).unwrap();
    drop((near, client));
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 50_000];
        (&far).read_exact(&mut got).unwrap();
        assert!(got == pattern(50_000));
        drop(far);
    });
    reader.join().unwrap();
    world.end_engines();
}

#[test]
fn many_relays_at_once() {
    const COUNT: usize = 100;
    let world = World::new(&["client", "server"], Placement::default());
    let (client, server) = (world.attach("client"), world.attach("server"));
    let listener = TcpListener::bind(&server, (world.address(1), 7)).unwrap();
    let mut pairs: Vec<(UnixStream, TcpStream)> = (0..COUNT)
        .map(|_| {
            let near = TcpStream::connect(&client, (world.address(1), 7)).unwrap();
            (relayed(near), listener.accept().unwrap().0)
        })
        .collect();
    for round in 0..3 {
        for (number, (near, _)) in pairs.iter_mut().enumerate() {
            near.write_all(&[number as u8, round]).unwrap();
        }
        for (number, (near, far)) in pairs.iter_mut().enumerate() {
            let mut got = [0; 2];
            far.read_exact(&mut got).unwrap();
            assert_eq!(got, [number as u8, round]);
            far.write_all(&got).unwrap();
            near.read_exact(&mut got).unwrap();
            assert_eq!(got, [number as u8, round]);
        }
    }
    drop((pairs, listener));
    assert_empty(world.path(), "client");
}
