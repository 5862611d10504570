//! What fails, fails with the kernel's kinds and numbers.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use rustix::io::Errno;
use toehold_link::loopback::{Loopback, LoopbackSettings};
use toehold_socket::{Node, NodeConfig, NodeError, TcpListener, TcpStream};

use crate::support::{config, connect, driven, inline_pair, pair, within};

#[test]
fn nobody_listens() {
    within(20, || {
        let nodes = pair();
        let error = driven(&nodes[0], || {
            TcpStream::connect(&nodes[1], "10.0.0.1:81").unwrap_err()
        });
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(error.raw_os_error(), Some(Errno::CONNREFUSED.raw_os_error()));
        // The attempt has left nothing behind.
        assert_eq!(nodes[1].stack_info().unwrap().connections, 0);
    });
}

#[test]
fn nobody_is_there() {
    within(20, || {
        let nodes = pair();
        let error = driven(&nodes[0], || {
            TcpStream::connect(&nodes[1], "10.0.0.77:80").unwrap_err()
        });
        assert_eq!(error.kind(), ErrorKind::HostUnreachable);
        assert_eq!(error.raw_os_error(), Some(Errno::HOSTUNREACH.raw_os_error()));
    });
}

#[test]
fn no_address_of_that_family() {
    within(20, || {
        let bare = |name, host| NodeConfig::alone(name).ipv4([10, 0, 0, host], 24).connections(64);
        let nodes = Node::in_process_pair([bare("a", 1), bare("b", 2)]).unwrap();
        let error = TcpStream::connect(&nodes[1], "192.168.7.1:80").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
    });
}

#[test]
fn connecting_takes_no_longer_than_said() {
    within(20, || {
        // No thread drives the other node, so there is no answer at all.
        let nodes = inline_pair();
        let timeout = Duration::from_millis(30);
        let before = std::time::Instant::now();
        let error =
            TcpStream::connect_timeout(&nodes[1], &"10.0.0.1:80".parse().unwrap(), timeout).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(before.elapsed() >= timeout);
        let zero = TcpStream::connect_timeout(&nodes[1], &"10.0.0.1:80".parse().unwrap(), Duration::ZERO);
        assert_eq!(zero.unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn addresses_of_others_and_taken_ones() {
    within(20, || {
        let nodes = pair();
        let other = TcpListener::bind(&nodes[0], "10.0.0.2:80").unwrap_err();
        assert_eq!(other.kind(), ErrorKind::AddrNotAvailable);
        let _first = TcpListener::bind(&nodes[0], "0.0.0.0:80").unwrap();
        let second = TcpListener::bind(&nodes[0], "10.0.0.1:80").unwrap_err();
        assert_eq!(second.kind(), ErrorKind::AddrInUse);
        assert_eq!(second.raw_os_error(), Some(Errno::ADDRINUSE.raw_os_error()));
        assert!(TcpListener::bind(&nodes[0], "10.0.0.1:81").is_ok());
        let unspecified = TcpStream::connect(&nodes[0], "0.0.0.0:0").unwrap_err();
        assert_eq!(unspecified.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_reset_reaches_reader_and_writer() {
    within(20, || {
        let nodes = pair();
        let (mut client, server) = connect(&nodes);
        server.set_linger(Some(Duration::ZERO)).unwrap();
        drop(server);
        let error = client.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(error.raw_os_error(), Some(Errno::CONNRESET.raw_os_error()));
        // Once told, the connection is only over.
        assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(client.write(&[0; 1]).unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert!(client.take_error().unwrap().is_none());
    });
}

#[test]
fn closing_with_unread_data_is_a_reset() {
    within(20, || {
        let nodes = pair();
        let (mut client, server) = connect(&nodes);
        client.write_all(b"never read").unwrap();
        assert_eq!(server.peek(&mut [0; 1]).unwrap(), 1);
        drop(server);
        assert_eq!(
            client.read(&mut [0; 1]).unwrap_err().kind(),
            ErrorKind::ConnectionReset
        );
    });
}

#[test]
fn a_full_node_says_so() {
    within(20, || {
        let node = Node::join(config("tiny", 1).connections(2)).unwrap();
        let listener = TcpListener::bind(&node, "127.0.0.1:80").unwrap();
        let _both = (
            TcpStream::connect(&node, "127.0.0.1:80").unwrap(),
            listener.accept().unwrap(),
        );
        let error = TcpStream::connect(&node, "127.0.0.1:80").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOBUFS.raw_os_error()));
    });
}

#[test]
fn names_and_directories_that_will_not_do() {
    let dir = tempfile::tempdir().unwrap();
    let name = Node::join(NodeConfig::new(dir.path(), "../x")).unwrap_err();
    assert!(matches!(name, NodeError::Name(_)), "{name}");
    let _first = Node::join(NodeConfig::new(dir.path(), "x")).unwrap();
    let taken = Node::join(NodeConfig::new(dir.path(), "x")).unwrap_err();
    assert!(taken.to_string().contains("choose another name"), "{taken}");
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let no_directory = Node::join(NodeConfig::new(&file, "y")).unwrap_err();
    assert!(no_directory.to_string().contains("directory"), "{no_directory}");
    let capture = Node::join(config("z", 1).capture("/nonexistent/z.pcapng")).unwrap_err();
    assert!(capture.to_string().contains("/nonexistent/z.pcapng"), "{capture}");
    let ring = Node::join(NodeConfig::new(dir.path(), "y").ring_capacity(77)).unwrap_err();
    assert!(ring.to_string().contains("power of two"), "{ring}");
}

#[test]
fn a_link_for_one_thread_only() {
    let mut settings = LoopbackSettings::default();
    settings.capabilities.any_thread = false;
    let link = Loopback::new([2, 0, 0, 0, 0, 1], settings);
    let error = Node::with_link(config("a", 1), Box::new(link)).unwrap_err();
    assert!(matches!(error, NodeError::SingleThread), "{error}");
    assert_eq!(std::io::Error::from(error).kind(), ErrorKind::Unsupported);
}
