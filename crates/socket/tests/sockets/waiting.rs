//! How long calls wait.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use toehold_socket::{SocketOption, TcpListener, TcpStream};

use crate::support::{connect, driven, inline_pair, pair, pattern, stepwise_pair, within};

#[test]
fn reading_waits_no_longer_than_said() {
    within(20, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        assert_eq!(client.read_timeout().unwrap(), None);
        let timeout = Duration::from_millis(20);
        client.set_read_timeout(Some(timeout)).unwrap();
        assert_eq!(client.read_timeout().unwrap(), Some(timeout));
        let before = Instant::now();
        let error = client.read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(before.elapsed() >= timeout);
        assert_eq!(
            client.peek(&mut [0; 8]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        // A timeout loses nothing.
        server.write_all(b"late").unwrap();
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 4);
        assert_eq!(
            client.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        assert_eq!(client.read_timeout().unwrap(), Some(timeout));
    });
}

#[test]
fn writing_waits_no_longer_than_said() {
    within(20, || {
        let nodes = inline_pair();
        let (mut client, mut server) = connect(&nodes);
        client.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        // No thread drives the reader: queues and window fill up.
        let data = pattern(1 << 16);
        let mut written = 0;
        let error = loop {
            match client.write(&data) {
                Ok(len) => written += len,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(written >= 256 << 10, "{written}");
        std::thread::scope(|scope| {
            // What was taken arrives, and nothing else.
            scope.spawn(move || drop(client));
            let mut got = Vec::new();
            server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut buf = vec![0; 1 << 16];
            while got.len() < written {
                let len = server.read(&mut buf).unwrap();
                assert!(len > 0);
                got.extend_from_slice(&buf[..len]);
                nodes[1].drive(Some(Duration::ZERO)).unwrap();
            }
            let expected = data.iter().cycle();
            assert!(got.len() == written);
            assert!(got[..1 << 16].iter().eq(expected.take(1 << 16)));
        });
    });
}

/// Programs write much before any peer reads, and wait for no reader meanwhile.
#[test]
fn a_megabyte_is_written_before_anybody_reads() {
    within(20, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        let data = pattern(1 << 20);
        client.write_all(&data).unwrap();
        let mut got = vec![0; data.len()];
        server.read_exact(&mut got).unwrap();
        assert!(got == data);
    });
}

/// A program writes a megabyte to a node that no thread drives until the peer reads.
#[test]
fn a_megabyte_is_written_to_a_node_at_rest() {
    within(20, || {
        let nodes = inline_pair();
        let (mut client, mut server) = connect(&nodes);
        let data = pattern(1 << 20);
        client.write_all(&data).unwrap();
        let mut got = vec![0; data.len()];
        driven(&nodes[1], || server.read_exact(&mut got)).unwrap();
        assert!(got == data);
    });
}

#[test]
fn non_blocking_calls_never_wait() {
    within(20, || {
        // No other thread makes room meanwhile.
        let nodes = inline_pair();
        let (mut client, mut server) = connect(&nodes);
        client.set_nonblocking(true).unwrap();
        assert_eq!(
            client.read(&mut [0; 8]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        assert_eq!(
            client.peek(&mut [0; 8]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        server.write_all(b"now").unwrap();
        // One look at the link is part of the call.
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 3);
        let data = pattern(1 << 20);
        let mut written = 0;
        while let Ok(len) = client.write(&data) {
            written += len;
        }
        assert_eq!(client.write(&data).unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut got = vec![0; written];
        server.set_nonblocking(true).unwrap();
        let mut filled = 0;
        while filled < written {
            match server.read(&mut got[filled..]) {
                Ok(len) => filled += len,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            nodes[1].drive(Some(Duration::ZERO)).unwrap();
        }
        assert!(client.write(&data).is_ok());
        // The mode is the stream's, not the handle's.
        assert!(client.try_clone().unwrap().nonblocking().unwrap());
    });
}

#[test]
fn a_non_blocking_accept_and_connect() {
    within(20, || {
        let nodes = stepwise_pair();
        let listener = TcpListener::bind(&nodes[0], "10.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let addr = listener.local_addr().unwrap();
        let mut client = TcpStream::connect_nonblocking(&nodes[1], &addr).unwrap();
        assert_eq!(client.write(b"x").unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(
            client.read(&mut [0; 1]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        let mut accepted = None;
        while accepted.is_none() {
            accepted = listener.accept().ok();
            nodes[1].drive(Some(Duration::ZERO)).unwrap();
        }
        let (mut server, _) = accepted.unwrap();
        while client.write(b"x").is_err() {}
        assert_eq!(server.read(&mut [0; 4]).unwrap(), 1);
    });
}

#[test]
fn sleepers_are_woken() {
    within(60, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        let echo = std::thread::spawn(move || {
            let mut byte = [0];
            while server.read(&mut byte).unwrap() == 1 {
                server.write_all(&byte).unwrap();
            }
        });
        for round in 0..300_u32 {
            if round % 3 == 0 {
                // Longer than any thread spins: the other side sleeps.
                std::thread::sleep(Duration::from_micros(300));
            }
            client.write_all(&[round as u8]).unwrap();
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            assert_eq!(byte[0], round as u8);
        }
        drop(client);
        drop(nodes);
        echo.join().unwrap();
    });
}

#[test]
fn an_idle_node_uses_no_processor() {
    within(20, || {
        let nodes = pair();
        let (mut client, _server) = connect(&nodes);
        client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let before = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        assert_eq!(
            client.read(&mut [0; 1]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        let after = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let used_ns = (after.tv_sec - before.tv_sec) * 1_000_000_000 + after.tv_nsec - before.tv_nsec;
        assert!(used_ns < 5_000_000, "{used_ns} ns of 500 ms");
    });
}

#[test]
fn a_silent_peer_ends_the_connection_when_the_user_says() {
    within(30, || {
        let nodes = inline_pair();
        let (mut client, server) = connect(&nodes);
        client.set_user_timeout(Some(Duration::from_millis(100))).unwrap();
        assert_eq!(client.user_timeout().unwrap(), Some(Duration::from_millis(100)));
        client.write_all(b"anybody?").unwrap();
        // No thread drives the other node.
        let error = client.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(server);
    });
}

#[test]
fn lingering_waits_for_the_acknowledgement() {
    within(20, || {
        let nodes = pair();
        let (mut client, mut server) = connect(&nodes);
        client.set_linger(Some(Duration::from_secs(10))).unwrap();
        client.write_all(&pattern(300_000)).unwrap();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            server.read_to_end(&mut got).unwrap();
            (got.len(), server)
        });
        let before = Instant::now();
        drop(client);
        assert!(before.elapsed() < Duration::from_secs(5));
        let (len, server) = reader.join().unwrap();
        assert_eq!(len, 300_000);
        // The peer had acknowledged everything before the close returned.
        drop(nodes);
        drop(server);
    });
}

#[test]
fn lingering_waits_no_longer_than_said() {
    within(20, || {
        let nodes = inline_pair();
        let (mut client, server) = connect(&nodes);
        client.set_linger(Some(Duration::from_secs(1))).unwrap();
        assert_eq!(client.linger().unwrap(), Some(Duration::from_secs(1)));
        client.write_all(b"nobody reads this").unwrap();
        let before = Instant::now();
        drop(client);
        let took = before.elapsed();
        assert!(
            took >= Duration::from_secs(1) && took < Duration::from_secs(5),
            "{took:?}"
        );
        drop(server);
    });
}

#[test]
fn low_water_and_other_options_are_checked() {
    within(20, || {
        let nodes = pair();
        let (client, _server) = connect(&nodes);
        assert!(client.set_option(SocketOption::MaxSegment(1)).is_err());
        assert!(client.set_option(SocketOption::KeepaliveProbes(200)).is_err());
    });
}
