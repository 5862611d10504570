//! Listening and accepting.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use toehold_socket::{SocketOption, TcpListener, TcpStream};

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

#[test]
fn listeners_that_say_so_share_a_port() {
    const EACH: usize = 64;
    within(20, || {
        let nodes = pair();
        let mut settings = nodes[0].default_settings().unwrap();
        settings.apply(SocketOption::ReusePort(true)).unwrap();
        let addr: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let bind = || TcpListener::bind_with_settings(&nodes[0], addr, 4096, &settings);
        let listeners = [bind().unwrap(), bind().unwrap()];
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
        // Who is left has them all.
        let [first, second] = listeners;
        drop(first);
        let streams = connect(EACH);
        assert_eq!(accepted(&second), EACH);
        drop(streams);
    });
}
