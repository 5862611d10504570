//! Listening and accepting.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket, sockopt};
use toehold_socket::{Node, SocketOption, TcpListener, TcpStream};

use crate::support::{driven, pair, within};

#[test]
fn connections_come_in_order() {
    within(20, || {
        let nodes = pair();
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::scope(|scope| {
            let names = scope.spawn(|| {
                let mut names = Vec::new();
                for stream in listener.incoming().take(10) {
                    let mut byte = [0];
                    stream.unwrap().read_exact(&mut byte).unwrap();
                    names.push(byte[0]);
                }
                names
            });
            let mut clients = Vec::new();
            for name in 0..10 {
                let mut stream = TcpStream::connect(&nodes[1], addr).unwrap();
                stream.write_all(&[name]).unwrap();
                clients.push(stream);
            }
            assert_eq!(names.join().unwrap(), (0..10).collect::<Vec<_>>());
        });
    });
}

#[test]
fn the_backlog_is_honoured() {
    within(20, || {
        let nodes = pair();
        let listener = TcpListener::bind_with_backlog(&nodes[0], "10.0.0.1:0", 2).unwrap();
        let addr = listener.local_addr().unwrap();
        let timeout = Duration::from_millis(100);
        driven(&nodes[0], || {
            let waiting: Vec<_> = (0..3)
                .map(|_| TcpStream::connect_timeout(&nodes[1], &addr, timeout).unwrap())
                .collect();
            assert!(TcpStream::connect_timeout(&nodes[1], &addr, timeout).is_err());
            // A place becomes free.
            listener.accept().unwrap();
            TcpStream::connect_timeout(&nodes[1], &addr, Duration::from_secs(5)).unwrap();
            drop(waiting);
        });
        assert!(nodes[0].counters().unwrap().tcp_listen_overflows > 0);
    });
}

#[test]
fn closing_a_listener_resets_who_waits() {
    within(20, || {
        let nodes = pair();
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let mut stream = std::thread::scope(|scope| {
            let driver = scope.spawn(|| {
                while nodes[0].counters().unwrap().tcp_passive_opens == 0 {
                    nodes[0].drive(Some(Duration::from_millis(1))).unwrap();
                }
            });
            let stream = TcpStream::connect(&nodes[1], addr).unwrap();
            driver.join().unwrap();
            stream
        });
        let handle = listener.try_clone().unwrap();
        drop(listener);
        assert_eq!(handle.local_addr().unwrap(), addr);
        drop(handle);
        assert!(stream.read(&mut [0; 1]).is_err());
        // The address is free again.
        TcpListener::bind(&nodes[0], addr).unwrap();
    });
}

/// Two listeners that share a port.
fn sharing(node: &Node) -> [TcpListener; 2] {
    let mut settings = node.default_settings().unwrap();
    settings.apply(SocketOption::ReusePort(true)).unwrap();
    let addr = "10.0.0.1:80".parse().unwrap();
    let bind = |()| TcpListener::bind_with_settings(node, addr, 4096, &settings).unwrap();
    [(); 2].map(bind)
}

#[test]
fn listeners_that_say_so_share_a_port() {
    const EACH: usize = 64;
    within(20, || {
        let nodes = pair();
        let listeners = sharing(&nodes[0]);
        let addr = listeners[0].local_addr().unwrap();
        assert!(TcpListener::bind(&nodes[0], addr).is_err(), "it does not say so");
        let connect = |count| {
            let connect = |_| TcpStream::connect(&nodes[1], addr).unwrap();
            driven(&nodes[0], || (0..count).map(connect).collect::<Vec<_>>())
        };
        let streams = connect(EACH);
        let accepted = |listener: &TcpListener| {
            listener.set_nonblocking(true).unwrap();
            std::iter::from_fn(|| listener.accept().ok()).count()
        };
        let [first, second] = listeners.each_ref().map(accepted);
        assert_eq!(first + second, EACH);
        assert!(first > EACH / 8 && second > EACH / 8, "{first} and {second}");
        drop(streams);
        // The listener that is left has them all.
        let [first, second] = listeners;
        drop(first);
        let streams = connect(EACH);
        assert_eq!(accepted(&second), EACH);
        drop(streams);
    });
}

/// Connections that wait at a listener that closes go to the others at the port. They were reset
/// before.
#[test]
fn who_waits_at_a_listener_that_closes_waits_at_another_that_shares_its_port() {
    const CLIENTS: usize = 32;
    within(20, || {
        let nodes = pair();
        let [first, second] = sharing(&nodes[0]);
        let addr = first.local_addr().unwrap();
        let mut streams: Vec<_> = driven(&nodes[0], || {
            let connect = |_| TcpStream::connect(&nodes[1], addr).unwrap();
            (0..CLIENTS).map(connect).collect()
        });
        drop(first);
        for _ in 0..CLIENTS {
            let (mut stream, _) = second.accept().unwrap();
            stream.write_all(b"served").unwrap();
        }
        for stream in &mut streams {
            let mut got = [0; 6];
            stream.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"served");
        }
    });
}

/// Where a listener may be: over the kernel and on the first node.
const PLACES: [(&str, &str, bool); 5] = [
    ("0.0.0.0:0", "0.0.0.0:0", false),
    ("[::]:0", "[::]:0", false),
    ("[::]:0", "[::]:0", true),
    ("127.0.0.1:0", "10.0.0.1:0", false),
    ("[::1]:0", "[fd00::1]:0", false),
];

#[derive(Debug, Clone, Copy)]
struct Place {
    kernels: &'static str,
    nodes: &'static str,
    v6_only: bool,
    shares: bool,
}

impl Place {
    fn all() -> impl Iterator<Item = Place> {
        PLACES.into_iter().flat_map(|(kernels, nodes, v6_only)| {
            [false, true].map(|shares| Place {
                kernels,
                nodes,
                v6_only,
                shares,
            })
        })
    }

    fn over_kernel(self, port: u16) -> rustix::io::Result<(OwnedFd, u16)> {
        let mut at: SocketAddr = self.kernels.parse().unwrap();
        at.set_port(port);
        let family = match at {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = socket(family, SocketType::STREAM, None)?;
        if at.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, self.v6_only)?;
        }
        sockopt::set_socket_reuseport(&socket, self.shares)?;
        bind(&socket, &at)?;
        listen(&socket, 8)?;
        let at = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok((socket, at.port()))
    }

    fn on_node(self, node: &Node, port: u16) -> std::io::Result<TcpListener> {
        let mut at: SocketAddr = self.nodes.parse().unwrap();
        at.set_port(port);
        let mut settings = node.default_settings()?;
        settings.apply(SocketOption::V6Only(self.v6_only)).unwrap();
        settings.apply(SocketOption::ReusePort(self.shares)).unwrap();
        TcpListener::bind_with_settings(node, at, 8, &settings)
    }
}

#[test]
fn a_port_has_room_for_those_listeners_that_it_has_over_the_kernel() {
    within(60, || {
        let nodes = pair();
        for first in Place::all() {
            for second in Place::all() {
                let (kernels, port) = first.over_kernel(0).unwrap();
                let over_kernel = second.over_kernel(port).map(drop);
                drop(kernels);
                let listener = first.on_node(&nodes[0], 0).unwrap();
                let port = listener.local_addr().unwrap().port();
                let on_node = second.on_node(&nodes[0], port).map(drop);
                assert_eq!(
                    on_node.as_ref().err().and_then(std::io::Error::raw_os_error),
                    over_kernel.as_ref().err().map(|error| error.raw_os_error()),
                    "{second:?} beside {first:?}"
                );
            }
        }
    });
}

#[test]
fn a_listener_for_ipv6_alone_leaves_ipv4_to_another() {
    within(20, || {
        let nodes = pair();
        let place = |(kernels, nodes, v6_only)| Place {
            kernels,
            nodes,
            v6_only,
            shares: false,
        };
        let [any, _, six, ..] = PLACES.map(place);
        for [first, second] in [[any, six], [six, any]] {
            let first = first.on_node(&nodes[0], 80).unwrap();
            let second = second.on_node(&nodes[0], 80).unwrap();
            for to in ["10.0.0.1:80", "[fd00::1]:80"] {
                let to: SocketAddr = to.parse().unwrap();
                let stream = driven(&nodes[0], || TcpStream::connect(&nodes[1], to).unwrap());
                let is_for =
                    |listener: &&TcpListener| listener.local_addr().unwrap().is_ipv4() == to.is_ipv4();
                let listener = [&first, &second].into_iter().find(is_for).unwrap();
                assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
            }
        }
    });
}
