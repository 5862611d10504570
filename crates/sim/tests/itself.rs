//! A stack that talks to itself. Answers without a connection also return to it
//! at once.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use toehold_sim::host::{BEGINNING, Host};
use toehold_stack::{Config, SendFlags, SocketError, State};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

/// Every kind of address that a host has for itself.
const NAMES: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
    IpAddr::V4(OWN),
    IpAddr::V6(OWN6),
];

fn host() -> Host {
    let mut config = Config {
        ipv4: Some((OWN, 8)),
        ipv6: Some((OWN6, 64)),
        ethernet: false,
        ..Config::default()
    };
    config.link.mtu = 1500;
    config.link.super_frame = 1500;
    Host::new(&config, BEGINNING).expect("room")
}

#[test]
fn connect_to_own_closed_port_is_refused_at_once() {
    //= RFC 9293 §3.10.7.1
    for name in NAMES {
        let mut host = host();
        let settings = host.stack.default_settings();
        let id = host
            .stack
            .connect(BEGINNING, None, SocketAddr::new(name, 81), &settings)
            .expect("begins");
        host.settle().expect("sound");
        assert_eq!(
            host.stack.take_error(id),
            Ok(Some(SocketError::ConnectionRefused)),
            "{name}"
        );
        assert_eq!(host.stack.state(id), Ok(State::Closed));
        assert!(host.sent.is_empty(), "{name}: no packet leaves by the link");
    }
}

#[test]
fn both_ends_of_connection_to_itself_close_at_once() {
    //= RFC 9293 §3.6
    for name in NAMES {
        let mut host = host();
        let settings = host.stack.default_settings();
        let at = SocketAddr::new(name, 80);
        let listener = host.stack.listen(BEGINNING, at, 8, &settings).expect("free");
        let client = host
            .stack
            .connect(BEGINNING, None, at, &settings)
            .expect("begins");
        host.settle().expect("sound");
        let server = host.stack.accept(listener).expect("established");
        for end in [client, server] {
            host.stack.close(BEGINNING, end).expect("open");
            host.settle().expect("sound");
        }
        // The last acknowledgement comes from a TIME-WAIT record.
        assert_eq!(
            (host.stack.undelivered(), host.stack.connections()),
            (0, 0),
            "{name}"
        );
        assert!(host.sent.is_empty(), "{name}");
    }
}

#[test]
fn stack_accepts_its_own_cookies() {
    //= RFC 4987 §3.6
    let mut host = host();
    let settings = host.stack.default_settings();
    let at = SocketAddr::new(NAMES[0], 80);
    let listener = host.stack.listen(BEGINNING, at, 1, &settings).expect("free");
    let clients: Vec<_> = (0..8)
        .map(|_| {
            host.stack
                .connect(BEGINNING, None, at, &settings)
                .expect("begins")
        })
        .collect();
    host.settle().expect("sound");
    assert!(host.stack.counters().tcp_syn_cookies_sent > 0);
    // The backlog has room for the other clients now. Their data bring the
    // cookies back.
    host.stack.set_backlog(listener, 8).expect("open");
    for client in &clients {
        assert_eq!(host.stack.send(*client, b"x", SendFlags::default()), Ok(1));
    }
    host.settle().expect("sound");
    assert_eq!(host.stack.accept_queue_len(listener), Ok(8));
    assert!(host.stack.counters().tcp_syn_cookies_accepted > 0);
    assert!(host.sent.is_empty());
}
