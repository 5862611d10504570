//! Sockets of the kernel, and its epoll.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::sockopt;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use toehold_socket::Interest;

use super::{Bits, CONNECTIONS, End, LISTENER, Told, World};

pub(super) struct Kernel {
    epoll: OwnedFd,
    listener: TcpListener,
    /// The ends of connections; those of clients are even.
    ends: [Option<TcpStream>; 2 * CONNECTIONS],
    connections: usize,
    accepted: usize,
    /// An end was closed since everything was settled.
    fin_sent: bool,
    /// A connection beside those, to find out when the kernel is done.
    probe: [TcpStream; 2],
}

impl Kernel {
    pub(super) fn new() -> Kernel {
        // A processor hands on what is sent over the loopback in the order in which it was.
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        sched_setaffinity(None, &here).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let probe = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let probe = [probe, listener.accept().unwrap().0];
        listener.set_nonblocking(true).unwrap();
        Kernel {
            probe,
            fin_sent: false,
            epoll: epoll::create(CreateFlags::CLOEXEC).unwrap(),
            listener,
            ends: Default::default(),
            connections: 0,
            accepted: 0,
        }
    }

    fn descriptor(&self, token: u64) -> BorrowedFd<'_> {
        if token == LISTENER {
            self.listener.as_fd()
        } else {
            self.ends[token as End].as_ref().unwrap().as_fd()
        }
    }

    /// Whether an end of any connection has sent a FIN that is not acknowledged.
    fn waits_for_acknowledgement(&self) -> bool {
        const FIN_WAIT_1: &str = "04";
        const LAST_ACK: &str = "09";
        const CLOSING: &str = "0B";
        let port = format!(":{:04X}", self.listener.local_addr().unwrap().port());
        let list = std::fs::read_to_string("/proc/net/tcp").unwrap();
        list.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().take(4).collect();
            let [_, local, remote, state] = fields[..] else {
                return false;
            };
            (local.ends_with(&port) || remote.ends_with(&port))
                && [FIN_WAIT_1, LAST_ACK, CLOSING].contains(&state)
        })
    }

    /// With buffers that are soon full, and sends at once what is written.
    fn keep(&mut self, end: End, stream: TcpStream) {
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        sockopt::set_socket_send_buffer_size(&stream, 1 << 16).unwrap();
        self.ends[end] = Some(stream);
    }
}

impl World for Kernel {
    fn connect(&mut self) {
        let stream = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        self.keep(2 * self.connections, stream);
        self.connections += 1;
    }

    fn accept(&mut self) -> bool {
        let Ok((stream, _)) = self.listener.accept() else {
            return false;
        };
        self.keep(2 * self.accepted + 1, stream);
        self.accepted += 1;
        true
    }

    fn write(&mut self, end: End, len: usize) -> usize {
        self.ends[end].as_mut().unwrap().write(&vec![7; len]).unwrap_or(0)
    }

    fn read(&mut self, end: End, len: usize) -> usize {
        self.ends[end]
            .as_mut()
            .unwrap()
            .read(&mut vec![0; len])
            .unwrap_or(0)
    }

    fn shutdown(&mut self, end: End) {
        let _ = self.ends[end].as_ref().unwrap().shutdown(Shutdown::Write);
        self.fin_sent = true;
    }

    fn close(&mut self, end: End) {
        self.ends[end] = None;
        self.fin_sent = true;
    }

    fn watch(&mut self, token: u64, interest: Interest) {
        let chosen = [
            (interest.is_readable(), EventFlags::IN),
            (interest.is_writable(), EventFlags::OUT),
            (interest.is_read_closed(), EventFlags::RDHUP),
            (interest.is_edge(), EventFlags::ET),
            (interest.is_one_shot(), EventFlags::ONESHOT),
        ];
        let flags = chosen.iter().filter(|(chosen, _)| *chosen);
        let flags = flags.fold(EventFlags::empty(), |sum, (_, flag)| sum | *flag);
        let (descriptor, data) = (self.descriptor(token), EventData::new_u64(token));
        if epoll::add(&self.epoll, descriptor, data, flags).is_err() {
            epoll::modify(&self.epoll, descriptor, data, flags).unwrap();
        }
    }

    fn unwatch(&mut self, token: u64) {
        epoll::delete(&self.epoll, self.descriptor(token)).unwrap();
    }

    fn wait(&mut self, told: &mut Told) {
        let mut events = Vec::with_capacity(64);
        let now = rustix::event::Timespec::default();
        epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&now),
        )
        .unwrap();
        for event in events {
            let flags = event.flags;
            let bits: &mut Bits = told.entry(event.data.u64()).or_default();
            let names = [
                EventFlags::IN,
                EventFlags::OUT,
                EventFlags::RDHUP,
                EventFlags::HUP,
                EventFlags::ERR,
            ];
            for (bit, name) in bits.0.iter_mut().zip(names) {
                *bit |= flags.contains(name);
            }
        }
    }

    /// What is under way, and the answers to it, come before what is sent now. Only the
    /// acknowledgement of a FIN may be delayed, and is a change of its own.
    fn settle(&mut self) {
        loop {
            for _ in 0..3 {
                self.probe[0].write_all(&[1]).unwrap();
                self.probe[1].read_exact(&mut [0]).unwrap();
            }
            if !std::mem::take(&mut self.fin_sent) {
                return;
            }
            self.fin_sent = self.waits_for_acknowledgement();
        }
    }
}
