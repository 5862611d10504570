//! Fabrics on an Ethernet. One end of a veth pair is in the namespace of the uplink's host, the
//! other in that of a peer without Toehold.

use std::io::{Read, Write};
use std::net::{self, IpAddr};

use rustix::process::{Signal, kill_process};
use toehold_link::interface::Namespace;
use toehold_node::fabric::Fabric;
use toehold_socket::{Node, TcpListener, TcpStream};

use crate::kernel::ip;
use crate::support::{Fabrics, eventually, wait_for_end};
use crate::uplinks::bytes;
use crate::uplinks::kernel::{namespace, talk};

/// A fabric of the nodes `a` and `b`, an uplink, and the two namespaces.
struct Lan {
    fabrics: Fabrics,
    host: Namespace,
    in_host: String,
    peer: Namespace,
    in_peer: String,
}

const OF_HOST: &str = "10.77.5.1";
const OF_PEER: [&str; 2] = ["10.77.5.2", "fd77::5:2"];
const OF_A: [&str; 2] = ["10.77.0.1", "fd77::1"];

impl Lan {
    fn new(options: &str) -> Lan {
        let [(host, in_host), (peer, in_peer)] = [namespace(), namespace()];
        let lan = Lan {
            fabrics: Fabrics::new(),
            host,
            in_host,
            peer,
            in_peer,
        };
        let in_peer = &lan.in_peer;
        let queues = "numrxqueues 4 numtxqueues 4";
        lan.in_host(&format!(
            "link add eth0 {queues} type veth peer name far netns {in_peer} {queues}"
        ));
        lan.in_host(&format!("addr add {OF_HOST}/16 dev eth0"));
        lan.in_host("link set eth0 up");
        for (address, len) in OF_PEER.iter().zip([16, 64]) {
            lan.in_peer(&format!("addr add {address}/{len} dev far nodad"));
        }
        lan.in_peer("link set far up");
        lan.fabrics.succeeds("up a b");
        lan.uplink(options, 2);
        lan
    }

    fn uplink(&self, options: &str, nodes: u64) {
        let netns = &self.in_host;
        self.fabrics
            .succeeds(&format!("uplink lan --interface eth0 --netns {netns} {options}"));
        self.wait(nodes);
    }

    /// Waits until the uplink knows this many nodes.
    fn wait(&self, nodes: u64) {
        eventually("the nodes", || self.status()["stack"]["peers"] == nodes);
    }

    fn status(&self) -> serde_json::Value {
        self.fabrics.json("stat lan --json")["status"].clone()
    }

    fn counter(&self, name: &str) -> u64 {
        let shown = self.fabrics.json("stat lan --json");
        let mut counters = shown["counters"].as_array().unwrap().iter();
        let counter = counters.find(|counter| counter["name"] == name);
        counter.unwrap_or_else(|| panic!("no {name}"))["value"]
            .as_u64()
            .unwrap()
    }

    fn attach(&self, node: &str) -> Node {
        let path = self.fabrics.0.path().join("default");
        Node::attach(&Fabric::existing(path.to_str().unwrap()).unwrap(), node).unwrap()
    }

    fn in_host(&self, line: &str) -> String {
        ip(&self.host, line)
    }

    fn in_peer(&self, line: &str) -> String {
        ip(&self.peer, line)
    }

    /// Runs a stream in each direction at the same time, between a node and the peer's kernel.
    fn streams(&self, node: &Node, own: &str, other: &str) {
        let listener = TcpListener::bind(node, (own.parse::<IpAddr>().unwrap(), 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let kernels = self.peer.run(|| net::TcpStream::connect(to)).unwrap().unwrap();
        let (nodes, _) = listener.accept().unwrap();
        exchange(&nodes, &kernels);

        let other: IpAddr = other.parse().unwrap();
        let listener = self
            .peer
            .run(|| net::TcpListener::bind((other, 0)))
            .unwrap()
            .unwrap();
        let nodes = TcpStream::connect(node, listener.local_addr().unwrap()).unwrap();
        let (kernels, _) = listener.accept().unwrap();
        exchange(&nodes, &kernels);
    }

    /// The kernel's description of the interface.
    fn shown(&self) -> String {
        self.in_host("-d link show eth0")
    }

    fn kill_uplink(&self) {
        let engine = self.fabrics.engine("lan");
        kill_process(engine, Signal::KILL).unwrap();
        wait_for_end(engine);
    }
}

fn exchange(nodes: &TcpStream, kernels: &net::TcpStream) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&*nodes).write_all(&bytes(1)).unwrap();
            nodes.shutdown(net::Shutdown::Write).unwrap();
        });
        scope.spawn(|| {
            (&*kernels).write_all(&bytes(2)).unwrap();
            kernels.shutdown(net::Shutdown::Write).unwrap();
        });
        scope.spawn(|| {
            let mut read = Vec::new();
            (&*kernels).read_to_end(&mut read).unwrap();
            assert!(read == bytes(1), "what the node has sent");
        });
        let mut read = Vec::new();
        (&*nodes).read_to_end(&mut read).unwrap();
        assert!(read == bytes(2), "what the kernel has sent");
    });
}

/// Nodes and the peer exchange data, while the interface's own kernel does too.
fn talks(lan: &Lan) {
    let a = lan.attach("a");
    std::thread::scope(|scope| {
        scope.spawn(|| talk([&lan.host, &lan.peer], OF_HOST.parse().unwrap()));
        for (own, other) in OF_A.iter().zip(OF_PEER) {
            lan.streams(&a, own, other);
        }
    });
    // A node that joins later.
    lan.fabrics.succeeds("up c");
    lan.wait(3);
    lan.streams(&lan.attach("c"), "10.77.0.3", OF_PEER[0]);
    assert_eq!(lan.counter("mesh_forged"), 0);
    assert_eq!(lan.counter("packet_not_served"), 0);
}

/// After the end of its process, no trace remains at the interface, and another uplink can start.
fn leaves_nothing(lan: &Lan, options: &str) {
    lan.kill_uplink();
    let shown = lan.shown();
    for clean in ["promiscuity 0 ", "allmulti 0 "] {
        assert!(shown.contains(clean), "{shown}");
    }
    assert!(!shown.contains("xdp"), "{shown}");
    lan.uplink(options, 3);
}

#[test]
#[ignore = "needs namespaces, ip"]
fn nodes_reach_ethernet_through_packet_sockets() {
    let lan = Lan::new("--xdp off");
    talks(&lan);
    assert!(
        lan.counter("packet_super_frames_sent") > 0,
        "long frames stay long"
    );
    assert!(lan.counter("packet_super_frames_received") > 0);
    let shown = lan.fabrics.succeeds("stat lan");
    assert!(
        shown.contains("interface eth0: through a packet socket\n"),
        "{shown}"
    );
    leaves_nothing(&lan, "--xdp off");
    lan.streams(&lan.attach("b"), "10.77.0.2", OF_PEER[0]);
}

/// With either access, all queues are in use, and checksums and segmentation left undone by the
/// remote kernel cause no loss.
fn are_on_it_through_xdp(how: &str, says: &str) {
    let options = format!("--xdp {how}");
    let lan = Lan::new(&options);
    let shown = lan.fabrics.succeeds("stat lan");
    assert!(
        shown.contains(&format!("interface eth0: through {says}, 4 queues")),
        "{shown}"
    );
    talks(&lan);
    assert!(lan.counter("xdp_frames_sent") > 0 && lan.counter("xdp_frames_received") > 0);
    assert_eq!(lan.counter("packet_frames_sent"), 0);
    assert_eq!(lan.counter("xdp_bad_length"), 0);
    leaves_nothing(&lan, &options);
    lan.streams(&lan.attach("b"), "10.77.0.2", OF_PEER[0]);
}

#[test]
#[ignore = "needs namespaces, ip"]
fn nodes_reach_ethernet_through_xdp_of_driver() {
    are_on_it_through_xdp("copy", "AF_XDP with copies");
}

#[test]
#[ignore = "needs namespaces, ip"]
fn nodes_reach_ethernet_through_generic_xdp() {
    are_on_it_through_xdp("generic", "AF_XDP of the generic kind");
}

#[test]
#[ignore = "needs namespaces, ip"]
fn unavailable_xdp_is_reported_or_replaced() {
    let lan = Lan::new("--queues 2 --xdp copy");
    let shown = lan.fabrics.succeeds("stat lan");
    assert!(shown.contains(", 2 queues"), "{shown}");
    let start = format!("uplink x --fabric other --interface eth0 --netns {}", lan.in_host);
    let refused = lan.fabrics.fails(&format!("{start} --xdp copy"));
    assert!(
        refused.contains("another XDP program is attached to eth0"),
        "{refused}"
    );
    lan.fabrics.succeeds(&start);
    let shown = lan.fabrics.json("stat x --fabric other --json");
    let interface = &shown["status"]["stack"]["interface"];
    assert_eq!(interface["access"], "a packet socket");
    let reason = interface["reason"].as_str().unwrap();
    assert!(reason.contains("another XDP program"), "{reason}");
    lan.fabrics.succeeds("down --fabric other --all");
    let refused = lan.fabrics.fails(&format!("{start} --xdp zero-copy"));
    assert!(refused.contains("another XDP program"), "{refused}");
    lan.fabrics.succeeds("down lan");
    let refused = lan.fabrics.fails(&format!("{start} --xdp zero-copy"));
    assert!(
        refused.contains("AF_XDP without copies is not available"),
        "{refused}"
    );
    // The best access is then a packet socket, and the reason is reported.
    lan.uplink("", 2);
    let shown = lan.fabrics.succeeds("stat lan");
    assert!(
        shown.contains("through a packet socket (AF_XDP without copies is not available"),
        "{shown}"
    );
}

#[test]
#[ignore = "needs namespaces, ip"]
fn uplink_reports_state_of_its_interface() {
    let lan = Lan::new("");
    lan.in_host("link set eth0 down");
    assert_eq!(lan.status()["stack"]["interface"]["state"], "down");
    lan.in_host("link set eth0 up");
    lan.streams(&lan.attach("a"), OF_A[0], OF_PEER[0]);
    let state = || lan.status()["stack"]["interface"]["state"].clone();
    eventually("the interface", || state() == "up");
    lan.in_peer("link set far down");
    eventually("the loss of the carrier", || state() == "no carrier");
    lan.in_peer("link set far up");
    eventually("the carrier", || state() == "up");
    let both = lan
        .fabrics
        .fails("uplink x --interface eth0 --udp 127.0.0.1:0 --peer 127.0.0.1:9");
    assert!(both.contains("cannot be used with"), "{both}");
    let missing = lan.fabrics.fails("uplink x --interface no-such-one");
    assert!(missing.contains("there is no interface no-such-one"), "{missing}");
    lan.in_host("link del eth0");
    let shown = lan.fabrics.succeeds("ps");
    assert!(shown.contains("eth0 (gone)"), "{shown}");
}

/// `up --uplink` starts an uplink if there is none to that interface.
#[test]
#[ignore = "needs namespaces, ip"]
fn up_with_uplink_starts_node_on_network_of_interface() {
    let lan = Lan::new("");
    lan.fabrics.succeeds("down --all");
    let start = |line: &str| lan.host.run(|| lan.fabrics.run(line)).unwrap();
    assert!(start("up a --ipv4 10.77.0.1/16 --uplink eth0").status.success());
    let shown = || lan.fabrics.json("stat eth0 --json")["status"]["stack"].clone();
    assert_eq!(shown()["interface"]["name"], "eth0");
    let engine = lan.fabrics.engine("eth0");
    assert!(start("up b --uplink eth0").status.success());
    assert_eq!(lan.fabrics.engine("eth0"), engine);
    eventually("the nodes", || shown()["peers"] == 2);
    lan.streams(&lan.attach("a"), OF_A[0], OF_PEER[0]);
    let missing = start("up c --uplink no-such-one");
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        !missing.status.success() && said.contains("no-such-one"),
        "{said}"
    );
    // The name belongs to a node that is not an uplink to that interface.
    let taken = start("up d --uplink a");
    let said = String::from_utf8_lossy(&taken.stderr).into_owned();
    assert!(
        !taken.status.success() && said.contains("toehold uplink NAME"),
        "{said}"
    );
}

/// A host on the interface's network has the address. A newcomer is refused, whether a node, a
/// kernel interface, or the uplink.
#[test]
#[ignore = "needs namespaces, ip"]
fn address_in_use_on_network_is_refused() {
    let lan = Lan::new("");
    let fabrics = &lan.fabrics;
    let [ipv4, ipv6] = OF_PEER;
    let wants = [format!("--ipv4 {ipv4}/16"), format!("--ipv6 {ipv6}/64")];
    for (wants, address) in wants.iter().zip(OF_PEER) {
        let says = format!("{address} is in use on the network that an uplink of this fabric leads to, by ");
        let said = fabrics.fails(&format!("up c {wants}"));
        assert!(said.contains(&says), "{said}");
        let said = fabrics.fails(&format!("device toe0 --netns {} {wants}", lan.in_host));
        assert!(said.contains(&says), "{said}");
    }
    fabrics.succeeds("up c");
    fabrics.succeeds("down c lan");
    fabrics.succeeds(&format!("up c {}", wants[1]));
    let said = fabrics.fails(&format!("uplink lan --interface eth0 --netns {}", lan.in_host));
    let says = format!("the address {ipv6} of c is in use on the network of eth0, by ");
    assert!(said.contains(&says), "{said}");
    fabrics.succeeds("down c");
    lan.uplink("", 2);
}

/// Two machines with a fabric each on one Ethernet.
#[test]
#[ignore = "needs namespaces, ip"]
fn address_of_node_on_other_machine_is_refused() {
    let lan = Lan::new("");
    let in_peer = &lan.in_peer;
    lan.fabrics.succeeds(&format!(
        "uplink far --fabric far --interface far --netns {in_peer}"
    ));
    for wants in [
        format!("--ipv4 {}/16", OF_A[0]),
        format!("--ipv4 10.77.7.7/16 --ipv6 {}/64", OF_A[1]),
    ] {
        let said = lan.fabrics.fails(&format!("up other --fabric far {wants}"));
        assert!(said.contains("is in use on the network"), "{said}");
    }
    lan.fabrics
        .succeeds("up other --fabric far --ipv4 10.77.7.7/16 --ipv6 fd77::7:7/64");
    lan.fabrics.succeeds("down --fabric far --all");
}

fn unspecified(like: IpAddr) -> net::SocketAddr {
    match like {
        IpAddr::V4(_) => "0.0.0.0:0".parse().unwrap(),
        IpAddr::V6(_) => "[::]:0".parse().unwrap(),
    }
}

/// A fabric with long packets on a network of short ones. Packets that may be fragmented are; the
/// senders of others are told the MTU.
#[test]
#[ignore = "needs namespaces, tun, ip"]
fn packets_too_long_for_network_arrive() {
    let lan = Lan::new("");
    let (near, in_near) = namespace();
    let fabrics = &lan.fabrics;
    let addresses = "--ipv4 10.77.6.1/16 --ipv6 fd77::6:1/64";
    fabrics.succeeds(&format!(
        "uplink wide --fabric long --mtu 9000 --interface eth0 --netns {}",
        lan.in_host
    ));
    fabrics.succeeds(&format!(
        "device toe0 --fabric long --mtu 9000 --netns {in_near} {addresses}"
    ));
    let counted = |name: &str| {
        let shown = fabrics.json("stat wide --fabric long --json");
        let mut counters = shown["counters"].as_array().unwrap().iter();
        let counter = counters.find(|counter| counter["name"] == format!("mesh_to_ethernet_{name}"));
        counter.unwrap()["value"].as_u64().unwrap()
    };
    for to in OF_PEER {
        let to: IpAddr = to.parse().unwrap();
        let far = lan.peer.run(|| net::UdpSocket::bind((to, 0))).unwrap().unwrap();
        far.set_read_timeout(Some(std::time::Duration::from_millis(200)))
            .unwrap();
        let address = far.local_addr().unwrap();
        let near = near
            .run(|| net::UdpSocket::bind(unspecified(to)))
            .unwrap()
            .unwrap();
        near.connect(address).unwrap();
        let (fragmented, reported) = (counted("fragmented"), counted("reported"));
        // Longer than any frame, so that it arrives in long fragments, which IPv4 fragments again.
        for len in [20_000, 5000] {
            eventually("a long datagram", || {
                let mut datagram = vec![0; 30_000];
                let sent = near.send(&vec![7; len]);
                sent.is_ok() && far.recv(&mut datagram).is_ok_and(|received| received == len)
            });
        }
        assert_eq!(counted("fragmented") > fragmented, to.is_ipv4());
        assert!(counted("reported") > reported);
    }
    talk([&near, &lan.peer], "10.77.6.1".parse().unwrap());
    fabrics.succeeds("down --fabric long --all");
}
