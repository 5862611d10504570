//! What the soak's own programs do, each a process of its own under `toehold run`.
//!
//! They use the standard library's sockets and know nothing of nodes. What fails, they do again:
//! their neighbours are killed on purpose. A wrong byte, or no answer for a minute, ends them
//! with an exit status that the soak reports.

use anyhow::{Context, Result, bail};
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest message of a conversation. It fits the buffers of a connection, so that an end
/// that writes all of it before it reads is never stuck.
const LONGEST: usize = 128 << 10;

/// How long an answer may take. No program is stopped for so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two attempts at what failed.
const AGAIN: Duration = Duration::from_millis(5);

/// The bytes of a probe.
const PROBE: usize = 64;

/// The time between a probe's answer and the next probe.
const PROBE_PAUSE: Duration = Duration::from_millis(2);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(clap::Subcommand)]
enum Role {
    /// Answers each connection with what it gets.
    Echo { port: u16 },
    /// Has conversations with an echo of every length, and counts them in a file.
    Talk {
        address: String,
        seed: u64,
        counts: PathBuf,
    },
    /// Asks an HTTP server for a file, and counts the answers in a file.
    Fetch {
        address: String,
        length: usize,
        counts: PathBuf,
    },
    /// Asks a Redis server to keep values and give them back, and counts the answers in a file.
    Keep { address: String, counts: PathBuf },
    /// Exchanges small messages with an echo, and writes each one's time to a file.
    Probe { address: String, times: PathBuf },
}

/// Runs one of the soak's programs, which ends when it is killed.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.role {
        Role::Echo { port } => loop {
            let Err(error) = echo(*port);
            eprintln!("{error}");
            std::thread::sleep(AGAIN);
        },
        Role::Talk {
            address,
            seed,
            counts,
        } => {
            let mut random = fastrand::Rng::with_seed(*seed);
            again_and_again(counts, |count| talk(address, &mut random, count))
        }
        Role::Fetch {
            address,
            length,
            counts,
        } => again_and_again(counts, |count| fetch(address, *length, count)),
        Role::Keep { address, counts } => again_and_again(counts, |count| keep(address, count)),
        Role::Probe { address, times } => probe(address, times),
    }
}

/// Serves connections until the listener fails.
fn echo(port: u16) -> io::Result<Infallible> {
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    loop {
        let (mut peer, _) = listener.accept()?;
        std::thread::spawn(move || io::copy(&mut peer.try_clone()?, &mut peer));
    }
}

/// Counts what succeeded where the soak can read it, whatever becomes of this process.
struct Count {
    file: File,
    number: u64,
}

impl Count {
    fn add(&mut self) -> io::Result<()> {
        self.number += 1;
        self.file.write_all_at(&self.number.to_le_bytes(), 0)
    }
}

/// Why a conversation ended early.
enum End {
    /// The connection was lost, or could not be had.
    Lost,
    /// No other program may cause this.
    Wrong(String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                End::Wrong(format!("no answer in {} s: {error}", PATIENCE.as_secs()))
            }
            _ => End::Lost,
        }
    }
}

/// Repeats conversations, which may be lost, until one goes wrong.
fn again_and_again(counts: &PathBuf, mut act: impl FnMut(&mut Count) -> Result<(), End>) -> Result<()> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(counts)?;
    let mut before = [0; 8];
    let _ = file.read_exact_at(&mut before, 0);
    let mut count = Count {
        file,
        number: u64::from_le_bytes(before),
    };
    loop {
        match act(&mut count) {
            Ok(()) => {}
            Err(End::Lost) => std::thread::sleep(AGAIN),
            Err(End::Wrong(what)) => bail!("{what}"),
        }
    }
}

/// Connects, with a bound for every answer.
fn connect(address: &str) -> Result<TcpStream, End> {
    // An address without answer is a node that is away: the next attempt comes soon.
    let Ok(peer) = TcpStream::connect(address) else {
        return Err(End::Lost);
    };
    peer.set_read_timeout(Some(PATIENCE))?;
    peer.set_write_timeout(Some(PATIENCE))?;
    peer.set_nodelay(true)?;
    Ok(peer)
}

/// One connection: up to fifty messages there and back, or more than the peer ever reads.
fn talk(address: &str, random: &mut fastrand::Rng, count: &mut Count) -> Result<(), End> {
    let mut peer = connect(address)?;
    if random.u8(..20) == 0 {
        return leave_unread(peer, random);
    }
    for _ in 0..random.u8(1..50) {
        let longest = 1 << random.u32(0..=LONGEST.ilog2());
        let length = random.usize(1..=longest);
        let first = random.u8(..);
        let sent: Vec<u8> = (0..length).map(|at| byte_at(first, at)).collect();
        peer.write_all(&sent)?;
        let mut got = vec![0; length];
        peer.read_exact(&mut got)?;
        if got != sent {
            let at = got.iter().zip(&sent).position(|(got, sent)| got != sent);
            return Err(End::Wrong(format!(
                "byte {at:?} of {length} is not what was sent"
            )));
        }
        count.add()?;
        std::thread::sleep(Duration::from_micros(random.u64(..4000)));
    }
    Ok(())
}

/// Bytes in which a piece that is missing, twice or elsewhere is seen.
fn byte_at(first: u8, at: usize) -> u8 {
    first
        .wrapping_add((at as u8).wrapping_mul(31))
        .wrapping_add((at >> 8) as u8)
}

/// Writes until there is no room, reads nothing, and leaves.
fn leave_unread(mut peer: TcpStream, random: &mut fastrand::Rng) -> Result<(), End> {
    peer.set_nonblocking(true)?;
    let bytes = [0; 16 << 10];
    // As many as all buffers on the way, if they can grow, would not hold.
    for _ in 0..1024 {
        if peer.write(&bytes).is_err() {
            break;
        }
    }
    std::thread::sleep(Duration::from_millis(random.u64(..20)));
    Ok(())
}

/// One connection: a request, and an answer whose body has the right length.
fn fetch(address: &str, length: usize, count: &mut Count) -> Result<(), End> {
    let mut peer = connect(address)?;
    peer.write_all(b"GET /file HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n");
    // A worker that is killed in the middle of its answer leaves it short.
    if answer.starts_with(b"HTTP/1.1 200 ") && head.is_some_and(|head| answer.len() == head + 4 + length) {
        count.add()?;
    }
    std::thread::sleep(Duration::from_millis(3));
    Ok(())
}

/// One connection: values of every length, each kept and asked for.
fn keep(address: &str, count: &mut Count) -> Result<(), End> {
    let mut peer = connect(address)?;
    for length in (0..16).map(|power| 1_usize << power) {
        let value = vec![b'a' + (length.ilog2() as u8); length];
        let mut request = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${length}\r\n").into_bytes();
        request.extend_from_slice(&value);
        request.extend_from_slice(b"\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
        peer.write_all(&request)?;
        let mut expected = format!("+OK\r\n${length}\r\n").into_bytes();
        expected.extend_from_slice(&value);
        expected.extend_from_slice(b"\r\n");
        let mut answer = vec![0; expected.len()];
        peer.read_exact(&mut answer)?;
        if answer != expected {
            return Err(End::Wrong(format!(
                "a value of {length} bytes is not what was kept"
            )));
        }
        count.add()?;
        std::thread::sleep(Duration::from_millis(3));
    }
    Ok(())
}

/// Writes pairs of 64-bit numbers: nanoseconds since it began, and a probe's time in nanoseconds.
fn probe(address: &str, times: &PathBuf) -> Result<()> {
    let file = File::create(times).with_context(|| format!("cannot write {}", times.display()))?;
    let mut file = io::BufWriter::new(file);
    let begun = Instant::now();
    loop {
        let Ok(mut peer) = connect(address) else {
            std::thread::sleep(AGAIN);
            continue;
        };
        loop {
            let sent = Instant::now();
            let mut answer = [0; PROBE];
            if peer
                .write_all(&[7; PROBE])
                .and_then(|()| peer.read_exact(&mut answer))
                .is_err()
            {
                break;
            }
            let taken = sent.elapsed().as_nanos() as u64;
            file.write_all(&(sent.duration_since(begun).as_nanos() as u64).to_le_bytes())?;
            file.write_all(&taken.to_le_bytes())?;
            std::thread::sleep(PROBE_PAUSE);
        }
    }
}
