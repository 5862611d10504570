//! Clients of servers with several workers: threads with an event loop each, as in other
//! generators.
//!
//! Each client has a connection and one request at a time on it. It keeps the connection, or opens
//! a new one for each request; then the server closes first, as the request asks. The process uses
//! the kernel's sockets. Under `toehold run` they are a node's.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, UnixAddr, connect, setsockopt, socket, sockopt,
};
use serde::{Deserialize, Serialize};

use crate::programs::web::Response;
use crate::samples::{Recorder, Side};

/// The command that brings this program to [`main`].
pub const NAME: &str = "lab-workers-clients";

/// Bytes offered to each read.
const READ: usize = 256 << 10;

/// Connections handled in a row.
const EVENTS: usize = 64;

/// The order for the clients' process, in a file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// Number of clients, each with a connection of its own.
    pub(super) clients: u8,
    /// Number of threads that they share.
    pub(super) threads: usize,
    /// Their requests and the answers.
    pub(super) exchange: Exchange,
    /// Whether each request has a connection of its own.
    pub(super) is_short: bool,
    /// Duration before the measurement.
    pub(super) warm_up: Duration,
    /// Duration of the measurement.
    pub(super) span: Duration,
    /// Time without a byte before the server is given up.
    pub(super) patience: Duration,
}

/// A request and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Exchange {
    /// A file of a web server.
    Http {
        /// The path without its first slash.
        file: String,
        /// Bytes of the file.
        length: u64,
        /// Requests of each hundred for a name that was never requested before.
        misses: u8,
    },
    /// A constant request, and an answer of constant length.
    Plain {
        /// A first request, and its expected answer.
        first: Option<(String, String)>,
        /// The request.
        request: String,
        /// Length of the answer.
        answer: usize,
    },
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    /// An address of TCP.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for ServerAddress {
    type Err = String;

    /// A path begins with a slash.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.starts_with('/') {
            true => Ok(Self::Unix(text.into())),
            false => text.parse().map(Self::Tcp).map_err(|_| {
                format!("`{text}` is no address, such as 127.0.0.1:80, and no path, such as /tmp/a.sock")
            }),
        }
    }
}

impl ServerAddress {
    /// A socket that connects to it, or has connected.
    fn connect(&self) -> io::Result<File> {
        let new = |family| {
            let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
            socket(family, SockType::Stream, flags, None)
        };
        let (fd, connected): (OwnedFd, _) = match self {
            Self::Tcp(address) => {
                let family = match address {
                    SocketAddr::V4(_) => AddressFamily::Inet,
                    SocketAddr::V6(_) => AddressFamily::Inet6,
                };
                let fd = new(family)?;
                setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
                let connected = connect(fd.as_raw_fd(), &SockaddrStorage::from(*address));
                (fd, connected)
            }
            Self::Unix(path) => {
                let fd = new(AddressFamily::Unix)?;
                let connected = connect(fd.as_raw_fd(), &UnixAddr::new(path)?);
                (fd, connected)
            }
        };
        match connected {
            Ok(()) | Err(Errno::EINPROGRESS) => Ok(File::from(fd)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Runs the clients of an order, which is in a file, in a process of their own. The counts go to
/// standard output.
pub fn main(order: &std::path::Path, address: &ServerAddress) -> ExitCode {
    let read = || Ok(serde_json::from_slice(&std::fs::read(order)?)?);
    let counted = read().and_then(|order: Order| run(&order, address));
    match counted.and_then(|counted| Ok(serde_json::to_string(&counted)?)) {
        Ok(counted) => {
            println!("{counted}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The counts of all clients together.
fn run(order: &Order, address: &ServerAddress) -> io::Result<Side> {
    let threads = order.threads.clamp(1, usize::from(order.clients.max(1)));
    let all = usize::from(order.clients);
    // A thread that fails must not leave the others waiting.
    let begin = Barrier::new(threads);
    if let Exchange::Plain {
        first: Some((request, answer)),
        ..
    } = &order.exchange
    {
        say_first(address, request, answer)?;
    }
    let counted: Vec<_> = thread::scope(|scope| {
        let begun: Vec<_> = (0..threads)
            .map(|number| {
                let clients = all / threads + usize::from(number < all % threads);
                let begin = &begin;
                scope.spawn(move || {
                    let connected = Clients::connect(order, address, clients, number);
                    begin.wait();
                    connected?.measure()
                })
            })
            .collect();
        let ended = begun.into_iter().map(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err(io::Error::other("a thread of clients has panicked")))
        });
        ended.collect::<io::Result<_>>()
    })?;
    Ok(Side::together(counted))
}

/// Sends a request and checks its answer, on a connection of its own.
fn say_first(address: &ServerAddress, request: &str, answer: &str) -> io::Result<()> {
    let mut stream: Box<dyn EitherStream> = match address {
        ServerAddress::Tcp(address) => Box::new(TcpStream::connect(address)?),
        ServerAddress::Unix(path) => Box::new(UnixStream::connect(path)?),
    };
    stream.write_all(request.as_bytes())?;
    let mut said = vec![0; answer.len()];
    stream.read_exact(&mut said)?;
    match said == answer.as_bytes() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&said);
            Err(io::Error::other(format!("the server said `{said}`")))
        }
    }
}

/// A connection of either kind.
trait EitherStream: Read + Write {}

impl<T: Read + Write> EitherStream for T {}

/// The event that a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// Room for its request, or its connection.
    Room,
    /// The answer to the client's request.
    Answer,
    /// The end of the connection by the server.
    End,
}

/// One client and its connection.
#[derive(Debug)]
struct Client {
    stream: File,
    step: Awaited,
    response: Response,
    /// Received bytes of an answer of known length.
    have: usize,
    asked: Instant,
}

impl Client {
    /// A client whose connection has begun.
    fn connect(address: &ServerAddress) -> io::Result<Self> {
        Ok(Self {
            asked: Instant::now(),
            stream: address.connect()?,
            step: Awaited::Room,
            response: Response::default(),
            have: 0,
        })
    }
}

/// The clients of a thread.
struct Clients<'a> {
    order: &'a Order,
    address: &'a ServerAddress,
    all: Vec<Client>,
    epoll: Epoll,
    buffer: Vec<u8>,
    /// Distinguishes names of this thread from those of others.
    thread: usize,
    /// Requests so far.
    asked: u64,
    answered: u64,
    bytes: u64,
    durations: Recorder,
}

impl<'a> Clients<'a> {
    fn connect(
        order: &'a Order,
        address: &'a ServerAddress,
        clients: usize,
        thread: usize,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let all = (0..clients).map(|_| Client::connect(address));
        let all = all.collect::<io::Result<Vec<_>>>()?;
        for (number, client) in all.iter().enumerate() {
            epoll.add(
                &client.stream,
                EpollEvent::new(EpollFlags::EPOLLOUT, number as u64),
            )?;
        }
        Ok(Self {
            order,
            address,
            all,
            epoll,
            buffer: vec![0; READ],
            thread,
            asked: 0,
            answered: 0,
            bytes: 0,
            durations: Recorder::default(),
        })
    }

    fn measure(mut self) -> io::Result<Side> {
        self.go_on(self.order.warm_up)?;
        (self.answered, self.bytes, self.durations) = (0, 0, Recorder::default());
        let began = Instant::now();
        self.go_on(self.order.span)?;
        Ok(Side {
            messages: self.answered,
            bytes: self.bytes,
            span_ns: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            durations: Some(self.durations.counts()),
            ..Side::default()
        })
    }

    /// Runs for this long.
    fn go_on(&mut self, span: Duration) -> io::Result<()> {
        let end = Instant::now() + span;
        let patience = u16::try_from(self.order.patience.as_millis()).unwrap_or(u16::MAX);
        let mut events = [EpollEvent::empty(); EVENTS];
        while Instant::now() < end {
            let count = match self.epoll.wait(&mut events, EpollTimeout::from(patience)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for event in &events[..count] {
                let number = usize::try_from(event.data()).map_err(io::Error::other)?;
                self.step(number)?;
            }
        }
        Ok(())
    }

    /// Handles the event that a client has waited for.
    fn step(&mut self, number: usize) -> io::Result<()> {
        let step = self.all[number].step;
        match step {
            Awaited::Room => {
                self.ask(number)?;
                self.watch(number, Awaited::Answer, EpollFlags::EPOLLIN)
            }
            Awaited::Answer => match (self.receive(number)?, self.order.is_short) {
                (false, _) => Ok(()),
                (true, false) => self.watch(number, Awaited::Room, EpollFlags::EPOLLOUT),
                (true, true) => {
                    self.all[number].step = Awaited::End;
                    self.await_end(number)
                }
            },
            Awaited::End => self.await_end(number),
        }
    }

    fn watch(&mut self, number: usize, step: Awaited, events: EpollFlags) -> io::Result<()> {
        self.all[number].step = step;
        let mut event = EpollEvent::new(events, number as u64);
        Ok(self.epoll.modify(&self.all[number].stream, &mut event)?)
    }

    fn ask(&mut self, number: usize) -> io::Result<()> {
        let request = self
            .order
            .exchange
            .request(self.asked, self.thread, self.order.is_short);
        self.asked += 1;
        let client = &mut self.all[number];
        if !self.order.is_short {
            client.asked = Instant::now();
        }
        // The server has read the last request, since it has answered: there is room.
        client.stream.write_all(request.as_bytes())
    }

    /// Handles received bytes of a client. Returns whether an answer is complete.
    fn receive(&mut self, number: usize) -> io::Result<bool> {
        let client = &mut self.all[number];
        loop {
            let count = match client.stream.read(&mut self.buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let piece = &self.buffer[..count];
            let (is_whole, length) = match &self.order.exchange {
                Exchange::Http { length, .. } => (client.response.take(piece, *length)?, *length),
                Exchange::Plain { answer, .. } => {
                    client.have += count;
                    if client.have > *answer {
                        let reason = "the server sent more than was asked for";
                        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
                    }
                    (client.have == *answer, *answer as u64)
                }
            };
            if is_whole {
                client.have = 0;
                let took_ns = u64::try_from(client.asked.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.answered += 1;
                self.bytes += length;
                self.durations.record(took_ns);
                return Ok(true);
            }
            if count < self.buffer.len() {
                return Ok(false);
            }
        }
    }

    /// Opens a new connection when the server has closed the last one.
    fn await_end(&mut self, number: usize) -> io::Result<()> {
        let client = &mut self.all[number];
        match client.stream.read(&mut self.buffer) {
            Ok(0) => {}
            Ok(_) => {
                let reason = "the server sent more than was asked for";
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        // Closing the old one removes it from the set.
        *client = Client::connect(self.address)?;
        let event = EpollEvent::new(EpollFlags::EPOLLOUT, number as u64);
        Ok(self.epoll.add(&client.stream, event)?)
    }
}

impl Exchange {
    /// The text of a thread's request number `number`.
    fn request(&self, number: u64, thread: usize, is_short: bool) -> String {
        match self {
            Self::Http { file, misses, .. } => {
                let misses = u64::from(*misses);
                // Spread evenly: the same number in any hundred requests.
                let is_miss = (number + 1) * misses / 100 > number * misses / 100;
                let name = match is_miss {
                    true => format!("{file}?{}-{thread}-{number}", std::process::id()),
                    false => file.clone(),
                };
                let close = if is_short { "Connection: close\r\n" } else { "" };
                format!("GET /{name} HTTP/1.1\r\nHost: test\r\n{close}\r\n")
            }
            Self::Plain { request, .. } => request.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn order(exchange: Exchange, is_short: bool) -> Order {
        Order {
            clients: 3,
            threads: 2,
            exchange,
            is_short,
            warm_up: Duration::from_millis(1),
            span: Duration::from_millis(30),
            patience: Duration::from_secs(10),
        }
    }

    fn plain() -> Exchange {
        Exchange::Plain {
            first: Some(("set\n".into(), "answer\n".into())),
            request: "ask\n".into(),
            answer: 7,
        }
    }

    /// Answers on each connection, once or repeatedly, until the test ends.
    fn serve(listener: UnixListener, answer: &'static [u8], is_short: bool) {
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut request = [0; 4];
                    while stream.read_exact(&mut request).is_ok() {
                        if stream.write_all(answer).is_err() || is_short {
                            break;
                        }
                    }
                });
            }
        });
    }

    fn counted(answer: &'static [u8], is_short: bool) -> io::Result<Side> {
        of_exchange(plain(), answer, is_short)
    }

    fn of_exchange(exchange: Exchange, answer: &'static [u8], is_short: bool) -> io::Result<Side> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("socket");
        serve(UnixListener::bind(&path).unwrap(), answer, is_short);
        run(&order(exchange, is_short), &ServerAddress::Unix(path))
    }

    #[test]
    fn answers_on_kept_connections_are_counted() {
        let side = counted(b"answer\n", false).unwrap();
        assert!(side.messages > 0);
        assert_eq!(side.bytes, side.messages * 7);
        assert_eq!(side.durations.unwrap().total(), side.messages);
    }

    #[test]
    fn answers_on_short_connections_are_counted() {
        assert!(counted(b"answer\n", true).unwrap().messages > 0);
    }

    #[test]
    fn longer_answer_is_an_error() {
        let exchange = Exchange::Plain {
            first: None,
            request: "ask\n".into(),
            answer: 7,
        };
        let error = of_exchange(exchange, b"answers\n", false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn wrong_first_answer_is_an_error() {
        let error = counted(b"refused", false).unwrap_err().to_string();
        assert_eq!(error, "the server said `refused`");
    }

    #[test]
    fn connection_without_answer_is_an_error() {
        let error = counted(b"", true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn misses_are_evenly_spread_with_unique_names() {
        let exchange = |misses| Exchange::Http {
            file: "1k".into(),
            length: 1024,
            misses,
        };
        for misses in [0, 40, 100] {
            let requests: Vec<_> = (0..200)
                .map(|number| exchange(misses).request(number, 0, false))
                .collect();
            let mut missed: Vec<_> = requests.iter().filter(|text| text.contains('?')).collect();
            assert_eq!(missed.len(), 2 * usize::from(misses));
            missed.dedup();
            assert_eq!(missed.len(), 2 * usize::from(misses));
        }
        let short = exchange(0).request(0, 0, true);
        assert!(short.contains("\r\nConnection: close\r\n"), "{short}");
    }

    #[test]
    fn addresses_are_tcp_addresses_or_paths() {
        assert_eq!("/a/b".parse(), Ok(ServerAddress::Unix("/a/b".into())));
        assert!(matches!("127.0.0.1:80".parse(), Ok(ServerAddress::Tcp(_))));
        assert!("nowhere".parse::<ServerAddress>().is_err());
    }
}
