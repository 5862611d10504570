//! Options do what they say.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::time::Duration;

use toehold_socket::{ConnectOptions, Keepalive, SendOptions, SocketOption, State, TcpListener, TcpStream};

use crate::support::{connect, connect_to, pair, pattern, stepwise_pair, within};

#[test]
fn what_is_set_can_be_asked() {
    within(20, || {
        let nodes = pair();
        let (client, _server) = connect(&nodes);
        assert!(!client.nodelay().unwrap());
        client.set_nodelay(true).unwrap();
        assert!(client.nodelay().unwrap());
        client.set_cork(true).unwrap();
        assert!(client.cork().unwrap());
        client.set_quickack(true).unwrap();
        client.set_send_buffer_size(100_000).unwrap();
        assert_eq!(client.send_buffer_size().unwrap(), 100_000);
        client.set_recv_buffer_size(1).unwrap();
        assert_eq!(client.recv_buffer_size().unwrap(), 1152);
        assert_eq!(client.linger().unwrap(), None);
        let keepalive = Keepalive {
            idle: Duration::from_secs(10),
            ..Keepalive::default()
        };
        client.set_keepalive(Some(keepalive)).unwrap();
        assert!(client.keepalive().unwrap());
        // A wrong value changes nothing.
        client.set_keepalive(None).unwrap();
        let wrong = Keepalive {
            idle: Duration::ZERO,
            ..keepalive
        };
        assert_eq!(
            client.set_keepalive(Some(wrong)).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        assert!(!client.keepalive().unwrap());
    });
}

#[test]
fn what_is_accepted_inherits() {
    within(20, || {
        let nodes = pair();
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        listener.set_option(SocketOption::NoDelay(true)).unwrap();
        let (client, server) = connect_to(&nodes[1], &listener);
        assert!(server.nodelay().unwrap());
        assert!(!client.nodelay().unwrap());
    });
}

#[test]
fn settings_before_the_handshake() {
    within(20, || {
        let nodes = pair();
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let mut settings = nodes[1].default_settings().unwrap();
        settings.apply(SocketOption::MaxSegment(500)).unwrap();
        let options = ConnectOptions {
            local: Some("10.0.0.2:5555".parse().unwrap()),
            timeout: Some(Duration::from_secs(10)),
            settings: Some(settings),
            ..ConnectOptions::default()
        };
        let (client, server) = std::thread::scope(|scope| {
            let accepted = scope.spawn(|| listener.accept().unwrap().0);
            (
                TcpStream::connect_with(&nodes[1], &addr, &options).unwrap(),
                accepted.join().unwrap(),
            )
        });
        assert_eq!(client.local_addr().unwrap(), options.local.unwrap());
        let segment = server.info().unwrap().segment_size;
        assert!((400..=500).contains(&segment), "{segment}");
    });
}

#[test]
fn first_bytes_travel_with_the_syn_once_the_cookie_is_known() {
    //= RFC 7413 §4.1.3
    within(20, || {
        let nodes = pair();
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        listener.set_option(SocketOption::FastOpen(4)).unwrap();
        let addr = listener.local_addr().unwrap();
        let options = ConnectOptions {
            with_data: true,
            ..ConnectOptions::default()
        };
        let bytes = pattern(50_000);
        for is_known in [false, true] {
            std::thread::scope(|scope| {
                let accepted = scope.spawn(|| {
                    let mut got = vec![0; bytes.len()];
                    listener.accept().unwrap().0.read_exact(&mut got).unwrap();
                    got
                });
                let client = TcpStream::connect_with(&nodes[1], &addr, &options).unwrap();
                assert!(client.is_deferred());
                let parts = [&bytes[..1], &[], &bytes[1..]].map(IoSlice::new);
                let sent = client.send_first(&parts, SendOptions::default()).unwrap();
                assert_eq!(sent, bytes.len());
                assert_eq!(client.details().unwrap().early_data.taken, is_known);
                assert_eq!(accepted.join().unwrap(), bytes);
            });
        }
    });
}

#[test]
fn a_cork_holds_back_what_is_no_full_segment() {
    within(20, || {
        let nodes = stepwise_pair();
        let (mut client, mut server) = connect(&nodes);
        client.set_nodelay(true).unwrap();
        client.set_cork(true).unwrap();
        for part in pattern(100).chunks(10) {
            client.write_all(part).unwrap();
        }
        server.set_nonblocking(true).unwrap();
        assert_eq!(
            server.read(&mut [0; 200]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        client.set_cork(false).unwrap();
        let mut got = [0; 200];
        assert_eq!(server.read(&mut got).unwrap(), 100);
        assert_eq!(got[..100], pattern(100));
    });
}

#[test]
fn little_waits_unsent_above_a_low_water_mark() {
    within(20, || {
        let nodes = stepwise_pair();
        let (mut client, mut server) = connect(&nodes);
        assert_eq!(client.unsent_low_water().unwrap(), None);
        client.set_unsent_low_water(Some(1000)).unwrap();
        assert_eq!(client.unsent_low_water().unwrap(), Some(1000));
        client.set_nonblocking(true).unwrap();
        let bytes = pattern(1 << 16);
        let mut sent = 0;
        let refused = loop {
            match client.write(&bytes) {
                Ok(count) => sent += count,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        let info = client.info().unwrap();
        assert!((1000..=1 << 16).contains(&info.unsent), "{info:?}");
        // A writer that waits goes on whenever what was queued has been sent.
        client.set_nonblocking(false).unwrap();
        let more = 1 << 22;
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&pattern(more)).unwrap());
            let mut got = vec![0; sent + more];
            server.read_exact(&mut got).unwrap();
            assert!(got[sent..] == pattern(more), "what arrived is not what was sent");
        });
    });
}

#[test]
fn out_of_band() {
    within(20, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        assert_eq!(
            server.recv_out_of_band(&mut [0; 1]).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        client.write_all(b"before").unwrap();
        assert_eq!(client.send_out_of_band(b"!").unwrap(), 1);
        client.write_all(b"after").unwrap();
        let mut byte = [0];
        assert_eq!(server.recv_out_of_band(&mut byte).unwrap(), 1);
        assert_eq!(byte, *b"!");
        assert_eq!(
            server.recv_out_of_band(&mut byte).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        // Reading stops at the mark, and goes on behind it.
        let mut buf = [0; 32];
        assert!(!server.at_mark().unwrap());
        assert_eq!(server.read(&mut buf).unwrap(), 6);
        assert!(server.at_mark().unwrap());
        assert_eq!(server.read(&mut buf).unwrap(), 5);
        assert_eq!(&buf[..5], b"after");
    });
}

#[test]
fn out_of_band_in_line() {
    within(20, || {
        let nodes = pair();
        let (client, mut server) = connect(&nodes);
        server.set_option(SocketOption::UrgentInline(true)).unwrap();
        client.send_out_of_band(b"ab").unwrap();
        let mut got = [0; 2];
        server.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"ab");
        assert_eq!(
            server.recv_out_of_band(&mut [0; 1]).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    });
}

#[test]
fn facts_about_a_connection() {
    within(20, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        client.write_all(&pattern(5000)).unwrap();
        server.peek(&mut [0; 1]).unwrap();
        assert_eq!(server.readable_bytes().unwrap(), 5000);
        let info = client.info().unwrap();
        assert_eq!(info.state, State::Established);
        assert!(info.timestamps && info.sack && info.window_scaling);
        assert_eq!(server.info().unwrap().bytes_received, 5000);
        server.read_exact(&mut [0; 5000]).unwrap();
        assert_eq!(server.readable_bytes().unwrap(), 0);
        assert!(format!("{client:?}").contains("10.0.0.1"), "{client:?}");
        let counted = nodes[0].counters().unwrap();
        assert!(counted.tcp_segments_received > 0);
        assert_eq!(nodes[0].stack_info().unwrap().connections, 1);
    });
}
