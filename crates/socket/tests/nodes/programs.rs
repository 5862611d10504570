//! What the processes of tests do.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use toehold_socket::{Events, Interest, Node, Poll, TcpListener, TcpStream, Token};

use crate::processes::{FABRIC, NODE, PEER, ROLE, SEED};
use crate::support::{Random, attach, pattern, start_engine};

/// A process's part; passes at once when run as a test.
#[test]
fn program() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let var = |name| std::env::var(name).unwrap();
    let program = Program {
        fabric: PathBuf::from(var(FABRIC)),
        node: var(NODE),
        peer: std::env::var(PEER).ok().map(|peer| peer.parse().unwrap()),
        random: Random::new(var(SEED).parse().unwrap()),
    };
    match role.as_str() {
        "engine" => {
            let engine = start_engine(&program.fabric, &program.node, program.placement());
            println!("ready");
            engine.run();
        }
        "load" => program.load(),
        "callers" => program.callers(),
        "holder" => program.hold_the_lease(),
        other => panic!("no role {other}"),
    }
}

struct Program {
    fabric: PathBuf,
    node: String,
    peer: Option<SocketAddr>,
    random: Random,
}

impl Program {
    fn attach(&self) -> Node {
        attach(&self.fabric, &self.node)
    }

    fn peer(&self) -> SocketAddr {
        self.peer.unwrap()
    }

    /// Engines of tests take turns.
    fn placement(&self) -> toehold_node::Placement {
        use toehold_node::Placement::{Adaptive, Engine};
        if self.random.clone().below(4) == 0 {
            Engine
        } else {
            Adaptive
        }
    }

    /// Uses everything there is, in several threads, until the process is killed.
    fn load(self) {
        let node = self.attach();
        println!("ready");
        let mut random = self.random.clone();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (node, peer, random) = (node.clone(), self.peer(), Random::new(random.next()));
                scope.spawn(move || echo_for_ever(&node, peer, random));
            }
            scope.spawn(|| poll_for_ever(&node, self.peer()));
            scope.spawn(|| accept_for_ever(&node));
        });
    }

    /// Has the lease and does not give it back.
    fn hold_the_lease(self) {
        let fabric = toehold_socket::Fabric::open(self.fabric.to_str().unwrap()).unwrap();
        let node = toehold_node::AttachedNode::attach(&fabric, &self.node).unwrap();
        let _guard = node.shard().unwrap().enter().unwrap();
        println!("ready");
        loop {
            std::thread::park();
        }
    }

    /// A thread for each kind of call, all of which wait when the process says that it
    /// is ready; each says its name when its call fails because the node is gone.
    fn callers(self) {
        let node = self.attach();
        let peer = self.peer();
        let listener = TcpListener::bind(&node, ("0.0.0.0", 0)).unwrap();
        let connect = || TcpStream::connect(&node, peer).unwrap();
        let (mut reading, mut also_reading, mut looking, mut writing) =
            (connect(), connect(), connect(), connect());
        looking.set_nonblocking(true).unwrap();
        println!("ready");
        let fails = |name: &str, mut call: Box<dyn FnMut() -> io::Result<()> + Send>| {
            let error = std::iter::repeat_with(&mut call).find_map(Result::err);
            let error = error.unwrap();
            assert!(is_gone(&error), "{name}: {error}");
            println!("{name} failed");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| fails("accept", Box::new(|| listener.accept().map(drop))));
            scope.spawn(move || fails("read", Box::new(move || reading.read(&mut [0; 1]).map(drop))));
            scope.spawn(move || fails("read", Box::new(move || also_reading.read(&mut [0; 1]).map(drop))));
            scope.spawn(move || {
                let data = pattern(1 << 16);
                fails("write", Box::new(move || writing.write_all(&data)));
            });
            scope.spawn(move || fails("look", Box::new(move || look(&mut looking))));
            scope.spawn(|| {
                let mut poll = Poll::new(&node).unwrap();
                let mut events = Events::with_capacity(8);
                poll.registry()
                    .register(&listener, Token(0), Interest::READABLE)
                    .unwrap();
                fails("poll", Box::new(move || poll.poll(&mut events, None)));
            });
            scope.spawn(|| {
                fails(
                    "ask",
                    Box::new(|| {
                        std::thread::sleep(Duration::from_millis(5));
                        node.stack_info().map(drop)
                    }),
                );
            });
        });
        println!("done");
    }
}

/// A call that does not wait, now and then.
fn look(stream: &mut TcpStream) -> io::Result<()> {
    match stream.read(&mut [0; 1]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        }
        other => other.map(drop),
    }
}

/// The node is gone, or began anew.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NETDOWN.raw_os_error()) || is_reset(error)
}

pub(crate) fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
    )
}

/// Connections of any length, one after the other, as long as the node lives.
fn echo_for_ever(node: &Node, peer: SocketAddr, mut random: Random) {
    let data = pattern(1 << 18);
    loop {
        let Ok(mut stream) = TcpStream::connect(node, peer) else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        for _ in 0..random.below(50) {
            let longest = if random.below(8) == 0 { 1 << 17 } else { 1 << 10 };
            let len = 1 + random.below(longest) as usize;
            if echo(&mut stream, &data[..len]).is_err() {
                break;
            }
        }
    }
}

/// What was sent comes back.
pub(crate) fn echo(stream: &mut TcpStream, data: &[u8]) -> io::Result<()> {
    // More at once could fill all buffers on the way there and back.
    for piece in data.chunks(1 << 14) {
        stream.write_all(piece)?;
        let mut answer = vec![0; piece.len()];
        stream.read_exact(&mut answer)?;
        assert!(answer == piece, "other bytes came back than were sent");
    }
    Ok(())
}

/// Threads and polls that wait for something that does not come.
fn poll_for_ever(node: &Node, peer: SocketAddr) {
    loop {
        let mut streams: Vec<TcpStream> = (0..4)
            .filter_map(|_| TcpStream::connect(node, peer).ok())
            .collect();
        let Ok(mut poll) = Poll::new(node) else { continue };
        for (token, stream) in streams.iter_mut().enumerate() {
            let _ = poll.registry().register(stream, Token(token), Interest::READABLE);
        }
        let mut events = Events::with_capacity(8);
        let _ = poll.poll(&mut events, Some(Duration::from_millis(20)));
    }
}

fn accept_for_ever(node: &Node) {
    loop {
        if let Ok(listener) = TcpListener::bind(node, ("0.0.0.0", 0)) {
            let _ = listener.accept();
        }
    }
}
