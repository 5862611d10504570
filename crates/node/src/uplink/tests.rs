use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::*;
use crate::config::NodeConfig;
use crate::control::{Connection, ControlError, NodeStatus};
use crate::engine::{Engine, Lifetime, Seat};
use crate::fabric::{Fabric, Role};
use crate::settings::NodeSettings;

const PATIENCE: Duration = Duration::from_secs(60);

/// A fabric of a test's own.
struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Site {
        Site(tempfile::tempdir().unwrap())
    }

    fn fabric(&self) -> Fabric {
        Fabric::open(self.0.path().to_str().unwrap()).unwrap()
    }

    fn start(&self, name: &str, config: &UplinkConfig) -> Result<Engine, String> {
        let seat = Seat {
            fabric: self.fabric(),
            node: name.to_owned(),
            settings: NodeSettings::default(),
            networks: Vec::new(),
            lifetime: Lifetime::UntilTold,
        };
        let host = |place: &_, settings: &_| UplinkHost::host(config, place, settings);
        Engine::start_as(config.role(), seat, host).map_err(|error| error.to_string())
    }

    fn status(&self, name: &str) -> NodeStatus {
        Connection::open(&self.fabric(), name).unwrap().status().unwrap()
    }

    fn counter(&self, uplink: &str, name: &str) -> u64 {
        let mut connection = Connection::open(&self.fabric(), uplink).unwrap();
        let counters = connection.counters().unwrap();
        let counter = counters.iter().find(|counter| counter.name == name);
        counter.unwrap_or_else(|| panic!("no counter {name}")).value
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what} does not come about");
        std::thread::yield_now();
    }
}

/// A port that no program has: held until it is needed.
fn port() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

fn hosts(bind: SocketAddr, peer: SocketAddr, key: Option<[u8; 32]>) -> UplinkConfig {
    UplinkConfig {
        tap: None,
        ethernet: None,
        udp: Some(UdpEnd {
            bind,
            peers: vec![peer],
            key,
        }),
        segment: None,
    }
}

#[test]
fn an_uplink_that_led_to_itself_started() {
    let (site, (held, bind)) = (Site::new(), port());
    drop(held);
    let refused = site.start("up", &hosts(bind, bind, None)).err().unwrap();
    assert!(refused.contains("leave out its own"), "{refused}");
    assert!(site.fabric().nodes().is_empty());
}

#[test]
fn an_uplink_is_a_member_without_addresses_that_forwards_and_nothing_else() {
    let (site, (held, bind), (_other, peer)) = (Site::new(), port(), port());
    drop(held);
    let uplink = site.start("wan", &hosts(bind, peer, None)).unwrap();
    let record = uplink.record();
    assert_eq!(record.role, Role::Uplink);
    assert!(record.ipv4.addr().is_unspecified() && record.ipv6.addr().is_unspecified());
    let status = site.status("wan");
    assert_eq!((status.stack.peers, status.stack.remotes.len()), (0, 1));
    assert!(!status.stack.remotes[0].connected);
    let refused = crate::AttachedNode::attach(&site.fabric(), "wan");
    assert!(refused.is_err_and(|error| error.to_string().contains("only forwards")));
    let mut connection = Connection::open(&site.fabric(), "wan").unwrap();
    let placed = connection.set_placement(crate::Placement::Inline);
    assert!(matches!(placed, Err(ControlError::Refused { .. })), "{placed:?}");

    // A node beside it sees it, and it the node.
    let node = crate::LocalNode::join(NodeConfig::new(site.0.path(), "a").ipv4([10, 77, 0, 1], 16)).unwrap();
    until("the node", || site.status("wan").stack.peers == 1);
    drop(node);
    let running = std::thread::spawn(move || uplink.run());
    connection.down(PATIENCE).unwrap();
    running.join().unwrap();
    assert_eq!(std::fs::read_dir(site.0.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_made_says_why_and_leaves_nothing() {
    let site = Site::new();
    let ((_held, bind), (_other, peer)) = (port(), port());
    let error = site.start("wan", &hosts(bind, peer, None)).err().unwrap();
    assert!(error.contains("is in use: choose another port"), "{error}");
    let error = site.start("wan", &UplinkConfig::default()).err().unwrap();
    assert!(error.contains("nothing is beyond the fabric"), "{error}");
    let elsewhere = "[::1]:7005".parse().unwrap();
    let (held, bind) = port();
    drop(held);
    let error = site.start("wan", &hosts(bind, elsewhere, None)).err().unwrap();
    assert!(error.contains("listen on [::]"), "{error}");
    assert_eq!(std::fs::read_dir(site.0.path()).unwrap().count(), 0);
}

/// A packet of a stranger, or of a host at a peer's address without the key, is counted and changes
/// nothing.
#[test]
fn strangers_are_not_heard() {
    let site = Site::new();
    let (stranger, _) = port();
    let (impostor, peer) = port();
    let (held, bind) = port();
    drop(held);
    let uplink = site.start("wan", &hosts(bind, peer, Some([7; 32]))).unwrap();
    // What the uplink says to its peer would do for one without a key.
    let mut hello = [0; 2048];
    impostor.set_read_timeout(Some(PATIENCE)).unwrap();
    let len = impostor.recv(&mut hello).unwrap();
    hello[len - 1] ^= 1;
    for _ in 0..3 {
        stranger.send_to(&hello[..len], bind).unwrap();
        impostor.send_to(&hello[..len], bind).unwrap();
        impostor.send_to(b"nonsense", bind).unwrap();
    }
    let counted = |name| site.counter("wan", name) == 3;
    until("the strangers", || counted("udp_strangers"));
    until("the impostors", || counted("udp_not_authentic"));
    until("the nonsense", || counted("udp_malformed"));
    assert!(!site.status("wan").stack.remotes[0].connected);
    drop(uplink);
}
