//! What the processes of tests do.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use toehold_socket::{Events, Interest, Node, Poll, TcpListener, TcpStream, Token};

use crate::processes::{FABRIC, NODE, PEER, ROLE, SEED};
use crate::support::{Random, World, attach, eventually, fabric, pattern, start_engine};

/// Ways to write nonsense to all of a node's memory.
pub(crate) const FULL_WAYS: u64 = 3;

/// All ways to write nonsense, with those that write only here and there.
pub(crate) const WAYS: u64 = FULL_WAYS + 4;

/// A file in a fabric's directory that says where to connect to.
pub(crate) const GO: &str = "go";

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
        "told" => program.connect_when_told(),
        "callers" => program.callers(),
        "holder" => program.hold_the_lease(),
        "steady" => program.echo_steadily(),
        "reader" => program.read(),
        "scribbler" => program.scribble(),
        "starved" => program.attach_without_descriptors(),
        "tidy" => program.leave_nothing(),
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
        let node = toehold_node::AttachedNode::attach(&fabric(&self.fabric), &self.node).unwrap();
        println!("ready");
        // The node may have begun anew meanwhile.
        let _guard = node.shards().unwrap().get(0).enter();
        println!("has the lease");
        loop {
            std::thread::park();
        }
    }

    /// Echoes without ever failing, and says so now and then.
    fn echo_steadily(mut self) {
        let node = self.attach();
        let mut stream = TcpStream::connect(&node, self.peer()).unwrap();
        println!("ready");
        let data = pattern(1 << 16);
        loop {
            let said = Instant::now();
            while said.elapsed() < Duration::from_millis(20) {
                let len = 1 + self.random.below(data.len() as u64) as usize;
                echo(&mut stream, &data[..len]).unwrap();
            }
            println!("goes on");
        }
    }

    /// Makes no call until a file in the fabric's directory tells it to. Then it connects to a node
    /// that it has not heard of before, however often it takes.
    fn connect_when_told(self) {
        let node = self.attach();
        // Afterwards it has something to connect with that it need not ask for.
        echo_once(&node, self.peer());
        println!("ready");
        let told = self.fabric.join(GO);
        let peer = eventually("it was not told", || {
            std::fs::read_to_string(&told)
                .map_err(|error| error.kind())
                .and_then(|peer| peer.parse().map_err(|_| ErrorKind::InvalidData))
        });
        while TcpStream::connect(&node, peer).is_err() {}
        println!("has connected");
        echo_once(&node, peer);
        println!("done");
    }

    /// Waits in a call, and in nothing else.
    fn read(self) {
        let node = self.attach();
        let mut stream = TcpStream::connect(&node, self.peer()).unwrap();
        println!("ready");
        while stream.read_exact(&mut [0; 1]).is_ok() {
            println!("was told");
        }
    }

    /// Writes nonsense all over its node's memory: zeroes, ones, or anything.
    fn scribble(mut self) {
        let _node = self.attach();
        let region = region_of(&self.node);
        let region = OpenOptions::new().read(true).write(true).open(region).unwrap();
        println!("ready");
        let len = region.metadata().unwrap().len();
        let kind = self.random.0 % WAYS;
        if kind >= FULL_WAYS {
            self.scribble_here_and_there(kind, &region, len);
            println!("has begun");
            std::thread::sleep(Duration::from_millis(self.random.below(500)));
        }
        let mut at = 0;
        while at < len {
            let words = (0..1 << 17).map(|_| match kind {
                0 => 0,
                1 => u64::MAX,
                _ => self.random.next(),
            });
            let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
            let bytes = &bytes[..bytes.len().min((len - at) as usize)];
            region.write_all_at(bytes, at).unwrap();
            at += bytes.len() as u64;
        }
        println!("has scribbled");
        loop {
            std::thread::park();
        }
    }

    /// Writes to some of what the node uses: most of its region it never touches.
    fn scribble_here_and_there(&mut self, kind: u64, region: &File, len: u64) {
        const PAGE: u64 = 4096;
        let used: Vec<u64> = (0..len / PAGE)
            .map(|page| page * PAGE)
            .filter(|&page| {
                let mut bytes = [0; PAGE as usize];
                region.read_exact_at(&mut bytes, page).unwrap();
                bytes.iter().any(|&byte| byte != 0)
            })
            .collect();
        for _ in 0..1 << self.random.below(10) {
            let page = |random: &mut Random| used[random.below(used.len() as u64) as usize];
            let (a, b) = (page(&mut self.random), page(&mut self.random));
            let mut bytes = [[0; PAGE as usize]; 2];
            region.read_exact_at(&mut bytes[0], a).unwrap();
            region.read_exact_at(&mut bytes[1], b).unwrap();
            let at = self.random.below(PAGE / 8) as usize * 8;
            match kind - FULL_WAYS {
                // Words.
                0 => bytes[0][at..at + 8].copy_from_slice(&self.random.next().to_ne_bytes()),
                // Bits.
                1 => bytes[0][at] ^= 1 << self.random.below(8),
                // Pages change places.
                2 => bytes.swap(0, 1),
                // A page of ones.
                _ => bytes[0].fill(0xff),
            }
            region.write_all_at(&bytes[0], a).unwrap();
            if kind - FULL_WAYS == 2 {
                region.write_all_at(&bytes[1], b).unwrap();
            }
        }
    }

    /// Attaches with ever more descriptors, until it can.
    fn attach_without_descriptors(self) {
        println!("ready");
        let fabric = fabric(&self.fabric);
        let limit = |current| {
            let maximum = getrlimit(Resource::Nofile).maximum;
            let current = Some(current);
            setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
        };
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1;
        let mut refused = 0;
        for more in 0..100 {
            limit(open + more);
            let attached = Node::attach(&fabric, &self.node);
            limit(open + 100);
            match attached {
                Ok(_) => break,
                Err(_) => refused += 1,
            }
            assert_eq!(descriptors() as u64, open, "a descriptor is left");
        }
        assert!((5..100).contains(&refused), "refused {refused} times");
        echo_once(&self.attach(), self.peer());
        println!("done");
    }

    /// Has a world of its own, and nothing is left of it.
    fn leave_nothing(self) {
        let before = (descriptors(), mapped(), threads());
        for placement in [toehold_node::Placement::Adaptive, toehold_node::Placement::Engine] {
            let mut world = World::new(&["server", "client"], placement);
            let listener = TcpListener::bind(&world.attach("server"), (world.address(0), 7)).unwrap();
            let serving = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(b"x").unwrap();
            });
            let mut stream = TcpStream::connect(&world.attach("client"), (world.address(0), 7)).unwrap();
            stream.read_exact(&mut [0; 1]).unwrap();
            serving.join().unwrap();
            drop(stream);
            world.end_engines();
            assert_eq!(
                std::fs::read_dir(world.path()).unwrap().count(),
                0,
                "files are left"
            );
        }
        eventually("something is left", || {
            let now = (descriptors(), mapped(), threads());
            (now == before).then_some(()).ok_or((now, before))
        });
        println!("ready");
    }

    /// Runs a thread for each kind of call, all of which wait when the process says that it is
    /// ready. Each says its name when its call fails because the node is gone.
    fn callers(self) {
        let node = self.attach();
        let peer = self.peer();
        let listener = TcpListener::bind(&node, ("0.0.0.0", 0)).unwrap();
        let connect = || TcpStream::connect(&node, peer).unwrap();
        let (mut reading, mut also_reading, mut looking, mut writing) =
            (connect(), connect(), connect(), connect());
        looking.set_nonblocking(true).unwrap();
        let mut poll = Poll::new(&node).unwrap();
        poll.registry()
            .register(&listener, Token(0), Interest::READABLE)
            .unwrap();
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
            scope.spawn(move || {
                let mut events = Events::with_capacity(8);
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

fn descriptors() -> usize {
    // One is the directory.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Mappings of memory files.
fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("/memfd:")).count()
}

/// The memory of a node that this process has attached to.
fn region_of(node: &str) -> PathBuf {
    let name = format!("/memfd:toehold-{node} (deleted)");
    let mut descriptors = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let region =
        descriptors.find(|path| std::fs::read_link(path).is_ok_and(|target| target == Path::new(&name)));
    region.unwrap()
}

pub(crate) fn echo_once(node: &Node, peer: SocketAddr) {
    echo(&mut TcpStream::connect(node, peer).unwrap(), &pattern(5000)).unwrap();
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
