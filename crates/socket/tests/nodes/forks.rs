//! Processes that fork, and what they share then.

use std::collections::HashSet;
use std::io::{Read, Write};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use toehold_socket::{Events, Interest, Node, NodeConfig, Poll, TcpListener, TcpStream, Token};

use crate::programs::echo;
use crate::roles::{Program, address, forked, node, reap, say, wait, world};
use crate::support::give_back;

const CHILDREN: usize = 3;
const ROUNDS: usize = 5;

fn pid(stream: &mut TcpStream) -> u32 {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).unwrap();
    u32::from_le_bytes(bytes)
}

/// The parent closes its listener, which the children go on accepting from.
pub(crate) fn children_accept() {
    let listener = TcpListener::bind(&node("server"), address(7)).unwrap();
    let children: Vec<Pid> = (0..CHILDREN)
        .map(|_| {
            forked(|| {
                for _ in 0..ROUNDS {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.write_all(&std::process::id().to_le_bytes()).unwrap();
                    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
                }
            })
        })
        .collect();
    drop(listener);
    say("ready");
    children.into_iter().for_each(reap);
}

#[test]
fn several_children_accept_from_one_listener() {
    let world = world();
    let mut server = Program::start("children-accept", &world);
    server.hear();
    let client = world.attach("client");
    let address = (world.address(0), 7);
    let mut all = HashSet::new();
    for _ in 0..ROUNDS {
        // Each child has one at a time.
        let mut streams: Vec<_> = (0..CHILDREN)
            .map(|_| TcpStream::connect(&client, address).unwrap())
            .collect();
        let pids: HashSet<u32> = streams.iter_mut().map(pid).collect();
        assert_eq!(pids.len(), CHILDREN);
        assert!(!pids.contains(&server.child.id()));
        all.extend(pids);
    }
    assert_eq!(all.len(), CHILDREN);
    server.finish();
    // The last of them has taken the listener along.
    while TcpStream::connect(&client, address).is_ok() {}
}

/// Parent and child write to one connection; the child first.
pub(crate) fn parent_goes_on() {
    let mut stream = TcpStream::connect(&node("client"), address(7)).unwrap();
    echo(&mut stream, b"before").unwrap();
    let child = forked(|| echo(&mut stream, b"the child").unwrap());
    reap(child);
    echo(&mut stream, b"the parent").unwrap();
}

#[test]
fn a_connection_outlives_a_child_that_shares_it() {
    let world = world();
    let server = world.attach("server");
    let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
    let program = Program::start("parent-goes-on", &world);
    let (mut stream, _) = listener.accept().unwrap();
    give_back(&mut stream);
    program.finish();
}

/// A child answers twice, and its parent and it wait to be killed, neither of them in a call. A
/// process that dies while it runs the stack resets the node.
pub(crate) fn child_echoes() {
    let mut stream = TcpStream::connect(&node("client"), address(7)).unwrap();
    echo(&mut stream, b"the parent").unwrap();
    let child = forked(|| {
        for _ in 0..2 {
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        }
        say("answered");
        wait();
    });
    say(child);
    wait();
}

#[test]
fn a_connection_ends_with_the_last_of_two_that_are_killed() {
    let world = world();
    let server = world.attach("server");
    let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
    let mut program = Program::start("child-echoes", &world);
    let (mut stream, _) = listener.accept().unwrap();
    let mut word = [0; 10];
    stream.read_exact(&mut word).unwrap();
    stream.write_all(&word).unwrap();
    let child = Pid::from_raw(program.hear().parse().unwrap());
    echo(&mut stream, b"both ").unwrap();
    program.kill();
    echo(&mut stream, b"child").unwrap();
    assert_eq!(program.hear(), "answered");
    kill(child, Signal::SIGKILL).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

/// One thread is always in a socket call, another one forks.
pub(crate) fn fork_while_busy() {
    let client = node("client");
    let mut stream = TcpStream::connect(&client, address(7)).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                echo(&mut stream, b"the busy thread").unwrap();
            }
        });
        for _ in 0..20 {
            let child = forked(|| {
                let mut stream = TcpStream::connect(&client, address(7)).unwrap();
                echo(&mut stream, b"a child").unwrap();
            });
            reap(child);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_thread_in_a_call_does_not_disturb_a_fork() {
    let world = world();
    let server = world.attach("server");
    let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
    let program = Program::start("busy-forker", &world);
    let threads: Vec<_> = (0..21)
        .map(|_| {
            let (mut stream, _) = listener.accept().unwrap();
            std::thread::spawn(move || give_back(&mut stream))
        })
        .collect();
    program.finish();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The child has copies of all descriptors that its parent had, spare ones included,
/// and never closes one.
pub(crate) fn fork_a_silent_child() {
    let client = node("client");
    drop(TcpStream::connect(&client, address(7)).unwrap());
    let child = forked(wait);
    let stream = TcpStream::connect(&client, address(7)).unwrap();
    say(child);
    wait();
    drop(stream);
}

#[test]
fn a_silent_child_does_not_keep_later_connections_of_its_parent_open() {
    let world = world();
    let server = world.attach("server");
    let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
    let mut program = Program::start("silent-child", &world);
    drop(listener.accept().unwrap());
    let (mut later, _) = listener.accept().unwrap();
    let child = Pid::from_raw(program.hear().parse().unwrap());
    program.kill();
    assert_eq!(later.read(&mut [0]).unwrap(), 0);
    // It has lived until now.
    kill(child, Signal::SIGKILL).unwrap();
}

/// How much shared memory this process maps.
fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("memfd:toehold-"))
        .count()
}

/// A child, its child, and a thread of another child, which did not fork and cannot know
/// whether what it has copies of is whole.
pub(crate) fn fork_and_count_mappings() {
    let mut stream = TcpStream::connect(&node("client"), address(7)).unwrap();
    echo(&mut stream, b"the parent").unwrap();
    let parents = mapped();
    let taken_over = |stream: &mut TcpStream, word: &[u8]| {
        assert_eq!(mapped(), parents);
        echo(stream, word).unwrap();
        assert_eq!(mapped(), parents);
    };
    reap(forked(|| {
        taken_over(&mut stream, b"the child");
        reap(forked(|| taken_over(&mut stream, b"its child")));
    }));
    reap(forked(|| {
        reap(forked(|| {
            taken_over(&mut stream, b"the child of one that did nothing")
        }));
        std::thread::scope(|scope| {
            scope.spawn(|| echo(&mut stream, b"a thread").unwrap());
        });
        assert!(mapped() > parents);
    }));
    echo(&mut stream, b"the parent again").unwrap();
}

#[test]
fn a_child_goes_on_with_what_its_parent_has_mapped() {
    let world = world();
    let server = world.attach("server");
    let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
    let program = Program::start("counts-mappings", &world);
    let (mut stream, _) = listener.accept().unwrap();
    give_back(&mut stream);
    program.finish();
}

/// The parent's poll is none of the child's; what the child does to its copy is lost.
pub(crate) fn fork_with_a_poll() {
    let client = node("client");
    let mut copied = Some((
        TcpStream::connect(&client, address(7)).unwrap(),
        Poll::new(&client).unwrap(),
    ));
    let (stream, poll) = copied.as_mut().unwrap();
    poll.registry()
        .register(stream, Token(1), Interest::READABLE)
        .unwrap();
    let child = forked(|| {
        use_a_poll_in_a_child(&client, copied.as_mut().unwrap());
        drop(copied.take());
    });
    reap(child);
    let (mut stream, mut poll) = copied.unwrap();
    stream.write_all(b"the parent").unwrap();
    let mut events = Events::with_capacity(4);
    poll.poll(&mut events, None).unwrap();
    assert_eq!(events.iter().next().unwrap().token(), Token(1));
}

fn use_a_poll_in_a_child(client: &Node, (stream, poll): &mut (TcpStream, Poll)) {
    let mut events = Events::with_capacity(4);
    let refused = poll.poll(&mut events, None).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(nix::libc::EBADF));
    let mut own = Poll::new(client).unwrap();
    own.registry()
        .register(stream, Token(2), Interest::READABLE)
        .unwrap();
    stream.write_all(b"the child").unwrap();
    own.poll(&mut events, None).unwrap();
    assert_eq!(events.iter().next().unwrap().token(), Token(2));
    stream.read_exact(&mut [0; 9]).unwrap();
}

#[test]
fn a_child_has_polls_of_its_own() {
    let world = world();
    let server = world.attach("server");
    let listener = TcpListener::bind(&server, (world.address(0), 7)).unwrap();
    let program = Program::start("polls", &world);
    let (mut stream, _) = listener.accept().unwrap();
    give_back(&mut stream);
    program.finish();
}

/// A child that lets go of its copy of a node that only its parent can use.
pub(crate) fn fork_with_a_private_node() {
    let config = NodeConfig::alone("alone").ipv4([10, 0, 0, 1], 24);
    let mut copied = Some(Node::join(config).unwrap());
    reap(forked(|| drop(copied.take())));
    let node = copied.unwrap();
    let listener = TcpListener::bind(&node, "10.0.0.1:7").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| give_back(&mut listener.accept().unwrap().0));
        echo(
            &mut TcpStream::connect(&node, "10.0.0.1:7").unwrap(),
            b"as before",
        )
        .unwrap();
    });
}

/// A child that uses what only its parent can use, while that uses it as well.
pub(crate) fn use_a_private_node_in_a_child() {
    let config = NodeConfig::alone("alone").ipv4([10, 0, 0, 1], 24);
    let node = Node::join(config).unwrap();
    let listener = TcpListener::bind(&node, "10.0.0.1:7").unwrap();
    let mut poll = Poll::new(&node).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| give_back(&mut listener.accept().unwrap().0));
        let mut stream = TcpStream::connect(&node, "10.0.0.1:7").unwrap();
        echo(&mut stream, b"before").unwrap();
        reap(forked(|| {
            let refused = |result: std::io::Result<()>| {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::NetworkDown);
                assert!(error.to_string().contains("belongs to the parent process"));
            };
            refused(stream.write_all(b"the child"));
            refused(stream.read(&mut [0; 9]).map(drop));
            refused(stream.set_nodelay(true));
            refused(stream.shutdown(std::net::Shutdown::Both));
            refused(TcpStream::connect(&node, "10.0.0.1:7").map(drop));
            refused(TcpListener::bind(&node, "10.0.0.1:8").map(drop));
            refused(listener.accept().map(drop));
            refused(Poll::new(&node).map(drop));
            refused(node.counters().map(drop));
            refused(node.drive(None).map(drop));
            let polled = poll.poll(&mut Events::with_capacity(4), None).unwrap_err();
            assert_eq!(polled.raw_os_error(), Some(nix::libc::EBADF));
        }));
        echo(&mut stream, b"after").unwrap();
    });
}

#[test]
fn a_child_cannot_use_the_private_node_of_its_parent() {
    Program::start("private-calls", &world()).finish();
}

#[test]
fn a_child_leaves_the_private_node_of_its_parent_alone() {
    Program::start("private", &world()).finish();
}
