//! Two processes: this one, and itself once more as a child that plays a role.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use toehold_socket::{TcpListener, TcpStream};

use crate::fabric::join;
use crate::support::{connect, pair, pattern, within};

const ROLE: &str = "TOEHOLD_TEST_ROLE";
const FABRIC: &str = "TOEHOLD_TEST_FABRIC";
const TOTAL: usize = 64 << 20;

/// The child's part; passes at once when run as a test.
#[test]
fn child() {
    let (Ok(role), Ok(fabric)) = (std::env::var(ROLE), std::env::var(FABRIC)) else {
        return;
    };
    if role == "quiet" {
        return be_quiet();
    }
    let node = join(Path::new(&fabric), "child", 2);
    let listener = TcpListener::bind(&node, "10.0.0.2:80").unwrap();
    println!("ready");
    let (mut stream, _) = listener.accept().unwrap();
    match role.as_str() {
        "checksum" => {
            let (len, sum) = drain(&mut stream);
            stream.write_all(&len.to_le_bytes()).unwrap();
            stream.write_all(&sum.to_le_bytes()).unwrap();
            // Until the parent has read it and closed.
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        }
        "sink" => {
            drain(&mut stream);
        }
        "idle" => {
            stream.write_all(b"hello").unwrap();
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        }
        "source" => {
            let data = pattern(1 << 16);
            while stream.write_all(&data).is_ok() {}
        }
        other => panic!("no role {other}"),
    }
}

/// Two nodes, a connection, a thread that waits in `accept`, one in `read`, and
/// nothing happens.
fn be_quiet() {
    let nodes = pair();
    let (client, _server) = connect(&nodes);
    let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
    println!("ready");
    std::thread::spawn(move || listener.accept());
    std::thread::spawn(move || (&mut &client).read(&mut [0; 1]));
    // Time for the engines to find out that they are not needed.
    std::thread::sleep(Duration::from_millis(100));
    let before = used();
    std::thread::sleep(Duration::from_millis(500));
    let used = used() - before;
    assert!(
        used < Duration::from_millis(5),
        "{used:?} of processor time in 500 ms"
    );
    std::process::exit(0);
}

fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Reads to the end: length and Fletcher-like sum.
fn drain(stream: &mut TcpStream) -> (u64, u64) {
    let mut buf = vec![0; 1 << 17];
    let (mut len, mut sum) = (0, 0_u64);
    loop {
        match stream.read(&mut buf).unwrap() {
            0 => return (len, sum),
            got => {
                sum = checksum(sum, &buf[..got]);
                len += got as u64;
            }
        }
    }
}

fn checksum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, &byte| {
        sum.rotate_left(5).wrapping_add(byte.into()).wrapping_mul(3)
    })
}

/// A child that is listening.
struct Process {
    child: Child,
    /// Kept open, for the child prints to it.
    _output: BufReader<ChildStdout>,
}

impl Process {
    fn start(role: &str, fabric: &Path) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::child", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(FABRIC, fabric)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let ready = output
            .by_ref()
            .lines()
            .map_while(Result::ok)
            .any(|line| line.ends_with("ready"));
        assert!(ready, "the child ended early");
        Process {
            child,
            _output: output,
        }
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn succeeds(mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn sixty_four_megabytes_between_processes() {
    within(120, || {
        let fabric = tempfile::tempdir().unwrap();
        let node = join(fabric.path(), "parent", 1);
        let child = Process::start("checksum", fabric.path());
        let mut stream = TcpStream::connect(&node, "10.0.0.2:80").unwrap();
        let data = pattern(1 << 20);
        let mut sum = 0;
        for _ in 0..TOTAL / data.len() {
            stream.write_all(&data).unwrap();
            sum = checksum(sum, &data);
        }
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = [0; 16];
        stream.read_exact(&mut answer).unwrap();
        let [len, theirs] = [0, 8].map(|at| u64::from_le_bytes(answer[at..at + 8].try_into().unwrap()));
        assert_eq!(len, TOTAL as u64);
        assert_eq!(theirs, sum);
        drop(stream);
        drop(node);
        assert!(child.succeeds());
    });
}

/// ECONNRESET, or EPIPE where the reset had been told before.
fn is_reset(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::TimedOut
    )
}

#[test]
fn the_reader_is_killed() {
    within(120, || {
        let fabric = tempfile::tempdir().unwrap();
        let node = join(fabric.path(), "parent", 1);
        for _ in 0..3 {
            let child = Process::start("sink", fabric.path());
            let mut stream = TcpStream::connect(&node, "10.0.0.2:80").unwrap();
            let data = pattern(1 << 18);
            for _ in 0..40 {
                stream.write_all(&data).unwrap();
            }
            child.kill();
            let before = Instant::now();
            let error = std::iter::repeat_with(|| stream.write_all(&data))
                .find_map(Result::err)
                .unwrap();
            assert!(is_reset(error.kind()), "{error}");
            assert!(
                before.elapsed() < Duration::from_secs(10),
                "{:?}",
                before.elapsed()
            );
        }
    });
}

#[test]
fn the_writer_is_killed() {
    within(120, || {
        let fabric = tempfile::tempdir().unwrap();
        let node = join(fabric.path(), "parent", 1);
        for wait in [true, false, true] {
            let child = Process::start("source", fabric.path());
            let mut stream = TcpStream::connect(&node, "10.0.0.2:80").unwrap();
            let mut buf = vec![0; 1 << 16];
            let mut got = 0;
            while got < 10 << 20 {
                got += stream.read(&mut buf).unwrap();
            }
            if wait {
                // The reader is in a call, asleep most likely, when it happens.
                let reader = std::thread::spawn(move || {
                    loop {
                        match stream.read(&mut buf) {
                            Ok(0) => panic!("no orderly end"),
                            Ok(_) => {}
                            Err(error) => return error,
                        }
                    }
                });
                child.kill();
                let error = reader.join().unwrap();
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            } else {
                child.kill();
                let error = std::iter::repeat_with(|| stream.read(&mut buf))
                    .find_map(Result::err)
                    .unwrap();
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            }
        }
    });
}

#[test]
fn an_idle_peer_is_killed() {
    within(60, || {
        let fabric = tempfile::tempdir().unwrap();
        let node = join(fabric.path(), "parent", 1);
        let child = Process::start("idle", fabric.path());
        let mut stream = TcpStream::connect(&node, "10.0.0.2:80").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        let reader = std::thread::spawn(move || stream.read(&mut [0; 1]).unwrap_err().kind());
        std::thread::sleep(Duration::from_millis(50));
        child.kill();
        assert_eq!(reader.join().unwrap(), ErrorKind::ConnectionReset);
        // Another life of the node is another peer.
        let child = Process::start("idle", fabric.path());
        let mut stream = TcpStream::connect(&node, "10.0.0.2:80").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(child.succeeds());
    });
}

#[test]
fn nodes_nobody_uses_use_no_processor() {
    within(60, || {
        let fabric = tempfile::tempdir().unwrap();
        assert!(Process::start("quiet", fabric.path()).succeeds());
    });
}
