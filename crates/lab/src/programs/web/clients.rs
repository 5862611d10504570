//! Clients in one thread: a number of connections, with one request at a time on each.
//!
//! They work like the event loops of other generators, such as wrk. A client handles the end of an
//! answer, and sends the next request when the kernel reports room for it. All available answers
//! are therefore handled before the next requests. Such a client sleeps less often than one that
//! sends a request after each answer (docs/performance.md has figures).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::response::Response;
use super::{Asked, Counted, Extent, Order, processes};
use crate::cgroup::ControlGroup;
use crate::samples::{Counts, Recorder, SIZE_CLASSES, Side, size_class};
use crate::workload::{Meter, Watched, processor_ns_of, watch};

/// Bytes offered to each read.
const READ: usize = 256 << 10;

/// Longest time for a number of answers.
const LONGEST: Duration = Duration::from_secs(1800);

/// Connections handled in a row.
const EVENTS: usize = 64;

/// Runs the measurement.
pub(super) fn run(order: &Order, address: SocketAddr, server: Option<u32>) -> io::Result<Counted> {
    if order.asked.files.is_empty() || order.asked.requests.is_empty() {
        return Err(io::Error::other("there is nothing to ask for"));
    }
    let [of_server, of_clients] = match order.engines[..] {
        [server, client] => [vec![server], vec![client]],
        _ => [Vec::new(), Vec::new()],
    };
    watch(Watched {
        engines: of_clients,
        machine: true,
    });
    let used = || {
        let groups: Vec<_> = order.groups.iter().map(ControlGroup::cpu).collect();
        let own = server.map(processes::used).unwrap_or_default();
        (own, processor_ns_of(&of_server), groups, processes::machine())
    };
    let mut clients = Clients::connect(order, address)?;
    clients.go_on(order.warm_up)?;
    clients.tally = Tally::default();
    let (cpu, engine_ns, groups, machine) = used();
    let meter = Meter::start();
    clients.go_on(order.span)?;
    let tally = std::mem::take(&mut clients.tally);
    let by_size = Box::new(tally.by_size.map(|recorder| recorder.counts()));
    let all = by_size.iter().fold(Counts::default(), |all, some| all.and(some));
    let client = Side {
        durations: Some(all),
        by_size: Some(by_size),
        ..meter.stop(tally.requests, tally.bytes)
    };
    let (cpu_then, engine_ns_then, groups_then, machine_then) = used();
    let server = Side {
        messages: client.messages,
        bytes: client.bytes,
        span_ns: client.span_ns,
        cpu: cpu_then.since(&cpu),
        engine_ns: engine_ns_then.saturating_sub(engine_ns),
        ..Side::default()
    };
    let groups = groups_then.iter().zip(&groups);
    Ok(Counted {
        client,
        server,
        hits: tally.hits,
        misses: tally.misses,
        next: clients.next,
        groups: groups.map(|(then, before)| then.since(before)).collect(),
        busy: machine_then.busy_since(machine),
    })
}

/// Completed requests.
#[derive(Debug, Default)]
struct Tally {
    requests: u64,
    bytes: u64,
    hits: u64,
    misses: u64,
    /// Durations by the class of the file's size.
    by_size: [Recorder; SIZE_CLASSES.len()],
}

/// One connection.
#[derive(Debug)]
struct Client {
    stream: TcpStream,
    response: Response,
    /// The requested file; the next field is the time of the request.
    file: usize,
    asked: Instant,
}

/// All connections of the process.
struct Clients<'a> {
    order: &'a Order,
    all: Vec<Client>,
    epoll: Epoll,
    buffer: Vec<u8>,
    /// Index of the next request.
    next: usize,
    tally: Tally,
}

impl<'a> Clients<'a> {
    /// Connects all, and sends the first request on each.
    fn connect(order: &'a Order, address: SocketAddr) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut all = Vec::new();
        for number in 0..u64::from(order.clients) {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, number))?;
            all.push(Client {
                stream,
                response: Response::default(),
                file: 0,
                asked: Instant::now(),
            });
        }
        let mut clients = Self {
            order,
            all,
            epoll,
            buffer: vec![0; READ],
            next: order.first,
            tally: Tally::default(),
        };
        (0..clients.all.len()).try_for_each(|number| clients.ask(number))?;
        Ok(clients)
    }

    /// Runs until the end, and until all available answers are handled.
    fn go_on(&mut self, extent: Extent) -> io::Result<()> {
        let (span, answers) = match extent {
            Extent::Span(span) => (span, u64::MAX),
            Extent::Answers(answers) => (LONGEST, answers),
        };
        let end = Instant::now() + span;
        let patience = u16::try_from(self.order.patience.as_millis()).unwrap_or(u16::MAX);
        let mut events = [EpollEvent::empty(); EVENTS];
        while self.tally.requests < answers {
            if Instant::now() >= end {
                return match extent {
                    Extent::Span(_) => Ok(()),
                    Extent::Answers(_) => Err(io::ErrorKind::TimedOut.into()),
                };
            }
            let count = match self.epoll.wait(&mut events, EpollTimeout::from(patience)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for event in &events[..count] {
                let number = usize::try_from(event.data()).map_err(io::Error::other)?;
                if event.events().contains(EpollFlags::EPOLLOUT) {
                    self.watch(number, EpollFlags::EPOLLIN)?;
                    self.ask(number)?;
                } else if self.receive(number)? {
                    self.watch(number, EpollFlags::EPOLLOUT)?;
                }
            }
        }
        Ok(())
    }

    /// Sets the events of a client's connection.
    fn watch(&self, number: usize, what: EpollFlags) -> io::Result<()> {
        let mut event = EpollEvent::new(what, number as u64);
        Ok(self.epoll.modify(&self.all[number].stream, &mut event)?)
    }

    /// Handles received bytes of a client. Returns whether an answer is complete.
    fn receive(&mut self, number: usize) -> io::Result<bool> {
        let client = &mut self.all[number];
        let length = self.order.asked.files[client.file].length;
        loop {
            let count = match client.stream.read(&mut self.buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if client.response.take(&self.buffer[..count], length)? {
                let took = client.asked.elapsed();
                self.tally.requests += 1;
                self.tally.bytes += length;
                self.tally.hits += u64::from(client.response.hit == Some(true));
                self.tally.misses += u64::from(client.response.hit == Some(false));
                let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                self.tally.by_size[size_class(length)].record(took_ns);
                return Ok(true);
            }
            if count < self.buffer.len() {
                return Ok(false);
            }
        }
    }

    /// Sends the next request of a client.
    fn ask(&mut self, number: usize) -> io::Result<()> {
        let Asked { files, requests } = &self.order.asked;
        let file = requests[self.next % requests.len()] as usize;
        self.next += 1;
        let served = files.get(file);
        let served = served.ok_or_else(|| io::Error::other(format!("there is no file {file}")))?;
        let client = &mut self.all[number];
        let request = format!("GET /{} HTTP/1.1\r\nHost: test\r\n\r\n", served.name);
        client.file = file;
        client.asked = Instant::now();
        // The server has read the last request, since it has answered.
        client.stream.write_all(request.as_bytes())
    }
}
