//! A host with smoltcp's stack, and a program that follows a [`Plan`].

use std::collections::VecDeque;
use std::net::IpAddr;

use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{RecvError, Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use toehold_link::loopback::Loopback;
use toehold_link::{Link, Offload, Transmit, Transmitter};
use toehold_shm::Gather;
use toehold_sim::endpoint::Plan;
use toehold_sim::stream::Stream;

/// The host's end of the cable.
struct Port {
    link: Loopback,
    arrived: VecDeque<Vec<u8>>,
    mtu: u16,
}

pub(crate) struct Arrived(Vec<u8>);

pub(crate) struct Outgoing<'a>(&'a mut Loopback);

impl Device for Port {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, now: Instant) -> Option<(Arrived, Outgoing<'_>)> {
        let Self { link, arrived, .. } = self;
        link.receive(now.total_micros() as u64 * 1000, 64, &mut |frame| {
            let mut bytes = frame.private.to_vec();
            bytes.resize(frame.len(), 0);
            frame.rest.copy_to(0, &mut bytes[frame.private.len()..]);
            arrived.push_back(bytes);
        });
        Some((Arrived(arrived.pop_front()?), Outgoing(link)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        Some(Outgoing(&mut self.link))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = usize::from(self.mtu) + 14;
        capabilities
    }
}

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut bytes = vec![0; len];
        let written = write(&mut bytes);
        let sent = self.0.transmit(&Transmit {
            headers: &bytes,
            payload: &Gather::EMPTY,
            offload: Offload::default(),
        });
        sent.expect("the cable has room");
        written
    }
}

/// Settings of the host.
pub(crate) struct Settings {
    pub(crate) address: [u8; 6],
    pub(crate) ips: [(IpAddr, u8); 2],
    pub(crate) mtu: u16,
    /// Bytes of the send and receive buffers.
    pub(crate) buffers: [usize; 2],
    pub(crate) seed: u64,
}

/// The host, with one socket.
pub(crate) struct Theirs {
    port: Port,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    plan: Plan,
    sent: u64,
    received: u64,
    /// Whether the program has closed its sending direction; `ended` is the
    /// peer's.
    shut: bool,
    ended: bool,
    next_read: u64,
    buffer: Vec<u8>,
}

fn at(now_ns: u64) -> Instant {
    Instant::from_micros((now_ns / 1000) as i64)
}

impl Theirs {
    pub(crate) fn new(now_ns: u64, link: Loopback, settings: &Settings, plan: Plan) -> Self {
        let mut port = Port {
            link,
            arrived: VecDeque::new(),
            mtu: settings.mtu,
        };
        let mut config = Config::new(EthernetAddress(settings.address).into());
        config.random_seed = settings.seed;
        let mut interface = Interface::new(config, &mut port, at(now_ns));
        interface.update_ip_addrs(|addresses| {
            for (ip, prefix) in settings.ips {
                let address = IpCidr::new(IpAddress::from(ip), prefix);
                addresses.push(address).expect("room for two addresses");
            }
        });
        let [send, receive] = settings.buffers.map(|len| SocketBuffer::new(vec![0; len]));
        let mut socket = Socket::new(receive, send);
        socket.set_nagle_enabled(!plan.no_delay);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        Self {
            port,
            interface,
            sockets,
            socket,
            sent: 0,
            received: 0,
            shut: false,
            ended: false,
            next_read: now_ns,
            buffer: vec![0; plan.read_len.max(plan.write_len)],
            plan,
        }
    }

    pub(crate) fn listen(&mut self, port: u16) {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        socket.listen(port).expect("a free port");
    }

    pub(crate) fn connect(&mut self, to: (IpAddr, u16), from_port: u16) {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        let remote = (IpAddress::from(to.0), to.1);
        socket
            .connect(self.interface.context(), remote, from_port)
            .expect("an attempt");
    }

    /// Returns whether both streams have ended, as far as this host knows.
    pub(crate) fn is_done(&self) -> bool {
        self.shut && self.ended
    }

    /// Returns whether the socket is closed, TIME-WAIT included.
    pub(crate) fn is_closed(&self) -> bool {
        !self.sockets.get::<Socket<'_>>(self.socket).is_open()
    }

    /// Lets the host act. Returns whether anything changed.
    pub(crate) fn run(&mut self, now_ns: u64) -> bool {
        let mut busy = self.poll(now_ns);
        busy |= self.program(now_ns);
        busy | self.poll(now_ns)
    }

    /// Returns the time at which the host acts without a received frame.
    pub(crate) fn next_due(&mut self, now_ns: u64) -> Option<u64> {
        let timer = self.interface.poll_at(at(now_ns), &self.sockets);
        let timer = timer.map(|timer| timer.total_micros() as u64 * 1000);
        let read = (!self.ended && self.next_read > now_ns).then_some(self.next_read);
        timer.into_iter().chain(read).min()
    }

    fn poll(&mut self, now_ns: u64) -> bool {
        let polled = self.interface.poll(at(now_ns), &mut self.port, &mut self.sockets);
        self.port.link.flush();
        polled == PollResult::SocketStateChanged
    }

    fn program(&mut self, now_ns: u64) -> bool {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        let before = (self.sent, self.received, self.shut, self.ended);
        while socket.can_send() && self.sent < self.plan.send {
            let left = usize::try_from(self.plan.send - self.sent).unwrap_or(usize::MAX);
            let len = self.plan.write_len.min(left);
            let bytes = &mut self.buffer[..len];
            Stream::new(self.plan.send_seed).fill(self.sent, bytes);
            self.sent += socket.send_slice(bytes).expect("it may send") as u64;
        }
        while socket.can_recv() && now_ns >= self.next_read {
            let bytes = &mut self.buffer[..self.plan.read_len];
            let len = socket.recv_slice(bytes).expect("it may receive");
            let checked = Stream::new(self.plan.receive_seed).check(self.received, &bytes[..len]);
            checked.expect("smoltcp gets what was sent");
            self.received += len as u64;
            self.next_read = now_ns + self.plan.read_pause.as_nanos() as u64;
        }
        let over = !socket.can_recv() && socket.recv_slice(&mut []) == Err(RecvError::Finished);
        if over && !self.ended {
            assert_eq!(self.received, self.plan.receive, "smoltcp sees an early end");
            self.ended = true;
        }
        let may_shut = !self.plan.close_second || self.ended;
        if self.sent == self.plan.send && socket.may_send() && may_shut && !self.shut {
            socket.close();
            self.shut = true;
        }
        before != (self.sent, self.received, self.shut, self.ended)
    }

    /// Describes the state of the host, for failures.
    pub(crate) fn describe(&self) -> String {
        let socket = self.sockets.get::<Socket<'_>>(self.socket);
        format!(
            "smoltcp is {} (shut {}, ended {}), has sent {} and received {} of {:?}",
            socket.state(),
            self.shut,
            self.ended,
            self.sent,
            self.received,
            self.plan
        )
    }
}
