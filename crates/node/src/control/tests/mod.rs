//! A server with a host that only notes what it is told.

mod door;
mod hostile;
mod keepers;
mod orders;
mod panics;
mod processes;
mod requests;

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use tempfile::TempDir;
use toehold_shm::Doorbell;

use super::message::{Answer, MAX_PACKET};
use super::packet::{self, Packet};
use super::session::Limits;
use super::*;
use crate::Placement;
use crate::fabric::{Fabric, Place};
use crate::settings::NodeSettings;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The calls that the host got, in order.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Attached(u32),
    Detached(u16),
    Placement(Placement),
    CaptureStarted(u32),
    CaptureStopped,
    BegunAnew,
}

#[derive(Debug)]
struct Fake {
    told: Mutex<Sender<Told>>,
    processes: AtomicU16,
    captures: AtomicBool,
    sockets: usize,
    /// Whether the host panics when it is asked for its counters.
    panics: bool,
    /// Rung: something is to be closed.
    closings: Doorbell,
}

impl Fake {
    fn tell(&self, told: Told) {
        self.told.lock().unwrap().send(told).unwrap();
    }
}

fn memory(contents: &[u8]) -> OwnedFd {
    packet::to_file(contents).unwrap()
}

fn contents(descriptor: &OwnedFd) -> String {
    let len = rustix::fs::fstat(descriptor).unwrap().st_size as u64;
    String::from_utf8(packet::from_file(descriptor, len).unwrap()).unwrap()
}

impl Host for Fake {
    fn attach(&self, client: Client) -> Result<Attachment, Refusal> {
        self.tell(Told::Attached(client.pid));
        let process = self.processes.fetch_add(1, Ordering::Relaxed);
        Ok(Attachment {
            process,
            description: serde_json::json!({ "shards": 1 }),
            descriptors: vec![memory(b"region"), memory(b"bell")],
        })
    }

    fn take_over(&self, client: Client, life: u64) -> Result<u16, Refusal> {
        if life != 7 {
            return Err(Refusal::new("it has begun anew"));
        }
        self.tell(Told::Attached(client.pid));
        Ok(self.processes.fetch_add(1, Ordering::Relaxed))
    }

    fn detached(&self, process: u16) {
        self.tell(Told::Detached(process));
    }

    fn begin_anew(&self) {
        self.tell(Told::BegunAnew);
    }

    fn peer(&self, _: u8, slot: u16, generation: u16) -> Option<Vec<OwnedFd>> {
        let section = format!("section {slot}.{generation}");
        (slot < 8).then(|| vec![memory(section.as_bytes()), memory(b"payload")])
    }

    fn holders(&self, _: u16, count: u16) -> Result<Vec<(u32, OwnedFd)>, Refusal> {
        let holder = |number: u16| (number.into(), memory(format!("holder {number}").as_bytes()));
        Ok((0..count).map(holder).collect())
    }

    fn identify(&self, _: u16, descriptor: OwnedFd) -> Result<u32, Refusal> {
        match contents(&descriptor).strip_prefix("holder ") {
            Some(number) => Ok(number.parse().unwrap()),
            None => Err(Refusal::new("that is none")),
        }
    }

    fn inherit(&self, process: u16, descriptor: OwnedFd) -> Result<Option<(u32, OwnedFd)>, Refusal> {
        let number = self.identify(process, descriptor)?;
        Ok((number < 3).then(|| (number, memory(b"inherited"))))
    }

    fn take_port(
        &self,
        _: u16,
        holder: u32,
        address: SocketAddr,
        _: bool,
    ) -> Result<Result<u16, Errno>, Refusal> {
        if holder > 3 {
            return Err(Refusal::new("that is none"));
        }
        Ok(match address.port() {
            0 => Ok(4242),
            9 => Err(Errno::ADDRINUSE),
            port => Ok(port),
        })
    }

    fn closings(&self) -> Result<OwnedFd, Refusal> {
        Ok(self.closings.as_fd().try_clone_to_owned().unwrap())
    }

    fn await_closing(&self, bell: Doorbell) {
        assert!(self.closings.clear(), "there is nothing to be closed");
        bell.ring();
    }

    fn status(&self) -> StackStatus {
        StackStatus {
            connections: 7,
            ..StackStatus::default()
        }
    }

    fn sockets(&self) -> Vec<SocketStatus> {
        let listener = SocketStatus::listener("10.77.0.1:80".parse().unwrap(), 3, 128);
        vec![listener; self.sockets]
    }

    fn counters(&self) -> Vec<Counter> {
        assert!(!self.panics, "a host that panics");
        Counter::of_stack(
            &toehold_stack::Counters {
                tcp_retransmits: 5,
                ..Default::default()
            },
            None,
        )
    }

    fn set_placement(&self, placement: Placement) -> Result<(), Refusal> {
        if placement == Placement::Inline {
            return Err(Refusal::new("not while it rains"));
        }
        self.tell(Told::Placement(placement));
        Ok(())
    }

    fn start_capture(&self, _: File, settings: CaptureRequest) -> Result<(), Refusal> {
        if self.captures.swap(true, Ordering::Relaxed) {
            return Err(Refusal::new("one at a time"));
        }
        self.tell(Told::CaptureStarted(settings.snap_len));
        Ok(())
    }

    fn stop_capture(&self) -> CaptureSummary {
        assert!(self.captures.swap(false, Ordering::Relaxed));
        self.tell(Told::CaptureStopped);
        CaptureSummary {
            frames: 9,
            complete: true,
            ..CaptureSummary::default()
        }
    }

    fn leave_capture(&self) {
        self.stop_capture();
    }

    fn stop(&self) {}
}

/// A fabric with a node whose server runs in a thread.
struct Served {
    directory: TempDir,
    told: Receiver<Told>,
    /// The host's.
    closings: Doorbell,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<Server>>,
    _place: Place,
}

impl Served {
    fn new() -> Served {
        Self::with(1, Limits::default())
    }

    fn with(sockets: usize, limits: Limits) -> Served {
        Self::lasting(Lifetime::UntilTold, sockets, limits)
    }

    fn lasting(lifetime: Lifetime, sockets: usize, limits: Limits) -> Served {
        Self::beside(lifetime, limits, |host| host.sockets = sockets)
    }

    /// A server of a host with something that is not as usual.
    fn beside(lifetime: Lifetime, limits: Limits, change: impl FnOnce(&mut Fake)) -> Served {
        let directory = tempfile::Builder::new()
            .prefix("toehold-control-")
            .tempdir()
            .unwrap();
        let fabric = Fabric::open(directory.path().to_str().unwrap()).unwrap();
        let place = fabric.take("web", &NodeSettings::default(), &[]).unwrap();
        let (sender, told) = channel();
        let mut host = Fake {
            told: Mutex::new(sender),
            processes: AtomicU16::new(1),
            captures: AtomicBool::new(false),
            sockets: 1,
            panics: false,
            closings: Doorbell::new().unwrap(),
        };
        change(&mut host);
        let closings = host.closings.try_clone().unwrap();
        let (stop, end) = UnixStream::pair().unwrap();
        let listener = place.listener().try_clone_to_owned().unwrap();
        let server = Server::new(listener, end.into(), place.record().clone(), Arc::new(host));
        let mut server = server.unwrap().limits(limits).lifetime(lifetime).at(&place);
        Served {
            directory,
            told,
            closings,
            stop: Some(stop),
            thread: Some(std::thread::spawn(move || {
                server.run();
                server
            })),
            _place: place,
        }
    }

    fn fabric(&self) -> Fabric {
        Fabric::open(self.directory.path().to_str().unwrap()).unwrap()
    }

    fn connect(&self) -> Connection {
        Connection::open(&self.fabric(), "web").unwrap().timeout(PATIENCE)
    }

    /// A connection on which anything can be said.
    fn raw(&self) -> Raw {
        let socket = self.fabric().dial_control(&"web".parse().unwrap()).unwrap();
        rustix::io::ioctl_fionbio(&socket, false).unwrap();
        Raw(socket)
    }

    fn told(&self) -> Told {
        self.told.recv_timeout(PATIENCE).unwrap()
    }

    /// Ends the server. What it has left, and what the host was told that no test
    /// has asked about.
    fn finish(mut self) -> (Server, Vec<Told>) {
        self.stop.take();
        let server = self.thread.take().unwrap().join().unwrap();
        (server, self.told.try_iter().collect())
    }

    /// Fails if the host has been told anything that no test has asked about.
    fn end(self) {
        assert_eq!(self.finish().1, []);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The first request of a process of this version.
fn attach_request() -> String {
    format!(r#"{{"attach":{{"version":{VERSION},"build":"{BUILD}"}}}}"#)
}

/// The socket of a client that keeps no rule.
struct Raw(OwnedFd);

impl Raw {
    fn send(&self, bytes: &[u8]) {
        self.send_with(bytes, &[]);
    }

    fn send_with(&self, bytes: &[u8], descriptors: &[OwnedFd]) {
        packet::send(self.0.as_fd(), bytes, descriptors, SendFlags::empty()).unwrap();
    }

    fn attach(&self, served: &Served) {
        self.send(attach_request().as_bytes());
        assert!(matches!(self.answer(), Some(Answer::Attached { .. })));
        assert_eq!(served.told(), Told::Attached(std::process::id()));
    }

    /// The next answer, `None` if the server has hung up.
    fn answer(&self) -> Option<Answer> {
        let mut buffer = vec![0; MAX_PACKET];
        match packet::receive(self.0.as_fd(), &mut buffer, RecvFlags::empty()) {
            Ok(Packet::Message(len, _)) => Some(serde_json::from_slice(&buffer[..len]).unwrap()),
            _ => None,
        }
    }
}
