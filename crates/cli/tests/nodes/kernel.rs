//! Nodes with the kernel's stack beside theirs: two of them in one fabric. Each has its TAP device
//! in a network namespace of its own. The kernel's programs are threads of these tests.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{self, IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, sockopt};
use rustix::process::{Signal, kill_process};
use toehold_link::interface::{Interface, InterfaceError, Namespace, NamespaceName};
use toehold_socket::{Fabric, Node, TcpListener, TcpStream};

use crate::support::{Fabrics, PATIENCE, eventually, text, wait_for_end};

/// Bytes of a stream.
const BYTES: usize = 3 << 20;

/// A fabric with two nodes, `a` and `b`, and the kernel beside each.
pub(crate) struct Pair {
    pub(crate) fabrics: Fabrics,
    names: [NamespaceName; 2],
    namespaces: [Namespace; 2],
}

impl Pair {
    pub(crate) fn new(settings: &str) -> Pair {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let fabrics = Fabrics::new();
        let names = ["a", "b"].map(|node| {
            let name = format!("toehold-{}-{number}-{node}", std::process::id());
            fabrics.succeeds(&format!("up {node} --tap --netns {name} {settings}"));
            name.parse::<NamespaceName>().unwrap()
        });
        let namespaces = names.each_ref().map(|name| name.open().unwrap());
        let pair = Pair {
            fabrics,
            names,
            namespaces,
        };
        eventually("their meeting", || {
            let status = pair.fabrics.json("stat a --json");
            status["status"]["stack"]["peers"] == 1
        });
        pair
    }

    pub(crate) fn attach(&self, node: &str) -> Node {
        let path = self.fabrics.0.path().join("default");
        let fabric = Fabric::open(path.to_str().unwrap()).unwrap();
        Node::attach(&fabric, node).unwrap()
    }

    /// Runs a function as a program of the kernel's on a node.
    pub(crate) fn beside<T: Send>(&self, node: usize, act: impl FnOnce() -> T + Send) -> T {
        self.namespaces[node].run(act).unwrap()
    }

    pub(crate) fn kernel_listens(&self, node: usize, address: &str) -> net::TcpListener {
        self.beside(node, || net::TcpListener::bind(address)).unwrap()
    }

    fn kernel_is_refused(&self, node: usize, address: SocketAddr) {
        let listened = self.beside(node, || net::TcpListener::bind(address));
        assert_eq!(
            listened.unwrap_err().kind(),
            std::io::ErrorKind::AddrInUse,
            "{address}"
        );
    }

    pub(crate) fn kernel_connects(
        &self,
        node: usize,
        address: SocketAddr,
    ) -> std::io::Result<net::TcpStream> {
        self.beside(node, || net::TcpStream::connect(address))
    }

    /// A TCP counter of the kernel on a node.
    fn kernel_counted(&self, node: usize, name: &str) -> u64 {
        let text = self.beside(node, || {
            std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap()
        });
        let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let mut both = names.split(' ').zip(values.split(' '));
        both.find(|(known, _)| *known == name).unwrap().1.parse().unwrap()
    }

    /// A counter of a node, summed over its shards.
    pub(crate) fn counted(&self, node: &str, name: &str) -> u64 {
        let stat = self.fabrics.json(&format!("stat {node} --json"));
        let counters = stat["counters"].as_array().unwrap().iter();
        let counters = counters.filter(|counter| counter["name"] == name);
        counters.map(|counter| counter["value"].as_u64().unwrap()).sum()
    }

    fn interface(&self, node: usize) -> Interface {
        Interface::open(&self.namespaces[node], "toe0").unwrap()
    }

    fn ping(&self, from: usize, to: &str) -> bool {
        self.beside(from, || ping(to.parse().unwrap()))
    }
}

/// Runs a line of `ip` in a namespace.
pub(crate) fn ip(namespace: &Namespace, line: &str) -> String {
    let done = namespace.run(|| Command::new("ip").args(line.split_whitespace()).output());
    let done = done.unwrap().expect("ip");
    assert!(done.status.success(), "{line}: {}", text(&done.stderr));
    text(&done.stdout)
}

/// Sends an echo request and waits for its answer.
fn ping(to: IpAddr) -> bool {
    let (family, protocol, request, reply) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8, 0),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128, 129),
    };
    let socket = rustix::net::socket(family, SocketType::RAW, Some(protocol)).unwrap();
    sockopt::set_socket_timeout(
        &socket,
        sockopt::Timeout::Recv,
        Some(std::time::Duration::from_secs(1)),
    )
    .unwrap();
    rustix::net::connect(&socket, &SocketAddr::new(to, 0)).unwrap();
    let mut message = [0; 64];
    message[0] = request;
    message[4..8].copy_from_slice(&[0x12, 0x34, 0, 1]);
    if to.is_ipv4() {
        // The sum of the fields that are not zero; for IPv6, the kernel fills it in.
        let sum = !(0x0800_u16 + 0x1234 + 1);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    if rustix::net::send(&socket, &message, SendFlags::empty()).is_err() {
        return false;
    }
    let mut answer = [0; 256];
    // Other messages may arrive in between.
    for _ in 0..20 {
        let Ok((len, _)) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty()) else {
            return false;
        };
        let start = if to.is_ipv4() { 20 } else { 0 };
        if answer[..len].get(start) == Some(&reply) && answer[start + 4..start + 8] == [0x12, 0x34, 0, 1] {
            return true;
        }
    }
    false
}

fn byte(seed: usize, at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)).wrapping_add(seed) as u8
}

fn write_all(mut stream: impl Write, seed: usize) {
    let bytes: Vec<u8> = (0..BYTES).map(|at| byte(seed, at)).collect();
    stream.write_all(&bytes).unwrap();
}

fn read_all(mut stream: impl Read, seed: usize) {
    let mut bytes = vec![0; BYTES];
    stream.read_exact(&mut bytes).unwrap();
    let wrong = (0..BYTES).find(|&at| bytes[at] != byte(seed, at));
    assert_eq!(wrong, None);
}

/// Streams in both directions at the same time.
pub(crate) fn exchange<A, B>(a: &A, b: &B)
where
    A: Sync,
    B: Sync,
    for<'a> &'a A: Read + Write,
    for<'b> &'b B: Read + Write,
{
    std::thread::scope(|scope| {
        scope.spawn(|| write_all(a, 1));
        scope.spawn(|| write_all(b, 2));
        scope.spawn(|| read_all(a, 2));
        read_all(b, 1);
    });
}

pub(crate) const NODE_A: [&str; 2] = ["10.77.0.1", "fd77::1"];
pub(crate) const NODE_B: [&str; 2] = ["10.77.0.2", "fd77::2"];

pub(crate) fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

#[test]
#[ignore = "needs namespaces, tun"]
fn kernels_reach_each_other_over_fabric() {
    let pair = Pair::new("");
    for address in NODE_B {
        eventually("an answer", || pair.ping(0, address));
    }
    for (here, there) in NODE_A.into_iter().zip(NODE_B) {
        let server = pair.beside(1, || UdpSocket::bind(at(there, 53))).unwrap();
        let client = pair.beside(0, || UdpSocket::bind(at(here, 0))).unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        // The second one is sent in fragments.
        for len in [100, 20_000] {
            client.send_to(&vec![len as u8; len], at(there, 53)).unwrap();
            let mut datagram = vec![0; 30_000];
            let (received, from) = server.recv_from(&mut datagram).unwrap();
            assert_eq!((received, from), (len, client.local_addr().unwrap()));
        }
        let listener = pair.kernel_listens(1, &at(there, 0).to_string());
        let client = pair.kernel_connects(0, listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        exchange(&client, &server);
    }
    for node in ["a", "b"] {
        let (frames, bytes) = (
            pair.counted(node, "from_kernel_frames"),
            pair.counted(node, "from_kernel_bytes"),
        );
        assert!(bytes > 2 * BYTES as u64, "{bytes}");
        assert!(
            frames < bytes / 1448,
            "super-frames cross whole: {frames} for {bytes}"
        );
        assert_eq!(pair.counted(node, "drop_from_kernel_malformed"), 0);
        assert_eq!(pair.counted(node, "drop_to_kernel_refused"), 0);
        assert_eq!(pair.counted(node, "drop_checksum"), 0);
    }
}

/// One end is this stack's, the other the kernel's on another node; either opens the connection.
fn stacks_and_kernels_talk(settings: &str) {
    let pair = Pair::new(settings);
    let node = pair.attach("a");
    for (here, there) in NODE_A.into_iter().zip(NODE_B) {
        let listener = TcpListener::bind(&node, at(here, 80)).unwrap();
        let theirs = pair.kernel_connects(1, at(here, 80)).unwrap();
        let (ours, peer) = listener.accept().unwrap();
        assert_eq!(peer, theirs.local_addr().unwrap());
        exchange(&ours, &theirs);
        let listener = pair.kernel_listens(1, &at(there, 0).to_string());
        let ours = TcpStream::connect(&node, listener.local_addr().unwrap()).unwrap();
        let (theirs, peer) = listener.accept().unwrap();
        assert_eq!(peer, ours.local_addr().unwrap());
        assert!(
            peer.port() > 49151,
            "the kernel chooses from the ports below: {peer}"
        );
        exchange(&ours, &theirs);
        exchange(&theirs, &ours);
    }
    for node in [0, 1] {
        assert_eq!(
            pair.kernel_counted(node, "OutRsts"),
            0,
            "the kernel of node {node} has reset one"
        );
    }
    assert_eq!(pair.kernel_counted(0, "InSegs"), 0, "the kernel has seen one");
    assert_eq!(pair.counted("a", "tcp_resets_received"), 0);
    assert_eq!(pair.counted("a", "tcp_resets_sent"), 0);
}

#[test]
#[ignore = "needs namespaces, tun"]
fn stack_and_kernel_exchange_data() {
    stacks_and_kernels_talk("");
}

#[test]
#[ignore = "needs namespaces, tun"]
fn engine_and_kernel_exchange_data() {
    stacks_and_kernels_talk("--placement engine");
}

#[test]
#[ignore = "needs namespaces, tun"]
fn shards_and_kernel_exchange_data() {
    stacks_and_kernels_talk("--shards 3");
}

/// Listens at a port that a socket of the kernel has just left. A process that another test is
/// about to start may have had a copy of that socket for a moment.
fn listens_soon(node: &Node, address: SocketAddr) -> TcpListener {
    let listener = RefCell::new(None);
    eventually("the port is free", || {
        *listener.borrow_mut() = TcpListener::bind(node, address).ok();
        listener.borrow().is_some()
    });
    listener.into_inner().unwrap()
}

/// The second to bind is refused, and finds the port free when the first has closed.
fn a_port_belongs_to_one_of_the_two(settings: &str) {
    let pair = Pair::new(settings);
    let (node, other) = (pair.attach("a"), pair.attach("b"));
    let (here, refused) = (NODE_A[0], std::io::ErrorKind::ConnectionRefused);
    let in_use = std::io::ErrorKind::AddrInUse;
    // A port of neither stack: the kernel refuses, once.
    let error = pair.kernel_connects(1, at(here, 9)).unwrap_err();
    assert_eq!(error.kind(), refused);
    let error = TcpStream::connect(&other, at(here, 9)).unwrap_err();
    assert_eq!(error.kind(), refused);
    assert_eq!(pair.kernel_counted(0, "OutRsts"), 2);
    assert_eq!(pair.counted("a", "tcp_resets_sent"), 0);
    // The kernel's port.
    let theirs = pair.kernel_listens(0, &at(here, 80).to_string());
    let before = TcpStream::connect(&other, at(here, 80)).unwrap();
    let (accepted, _) = theirs.accept().unwrap();
    for address in [at(here, 80), at("0.0.0.0", 80), at("::", 80)] {
        let error = TcpListener::bind(&node, address).unwrap_err();
        assert_eq!(error.kind(), in_use, "{address}");
    }
    TcpListener::bind(&node, at(NODE_A[1], 80)).unwrap();
    // This stack's port; the kernel's connection continues.
    drop(theirs);
    let ours = listens_soon(&node, at(here, 80));
    pair.kernel_is_refused(0, at(here, 80));
    pair.kernel_is_refused(0, at("0.0.0.0", 80));
    pair.kernel_is_refused(0, at("::", 80));
    // The stack's refusal has not changed that.
    let error = TcpListener::bind(&node, at(here, 80)).unwrap_err();
    assert_eq!(error.kind(), in_use);
    pair.kernel_is_refused(0, at(here, 80));
    // Addresses that the node does not have stay with the kernel.
    pair.kernel_listens(0, "127.0.0.1:80");
    let from_kernel = pair.kernel_connects(1, at(here, 80)).unwrap();
    let (server, peer) = ours.accept().unwrap();
    assert_eq!(peer, from_kernel.local_addr().unwrap());
    exchange(&before, &accepted);
    exchange(&server, &from_kernel);
    // The kernel's port again; this stack's connection continues.
    drop(ours);
    let theirs = pair.kernel_listens(0, &at(here, 80).to_string());
    let after = TcpStream::connect(&other, at(here, 80)).unwrap();
    let (accepted, _) = theirs.accept().unwrap();
    exchange(&after, &accepted);
    exchange(&from_kernel, &server);
    assert_eq!(pair.kernel_counted(0, "OutRsts"), 2);
    assert_eq!(pair.counted("a", "tcp_resets_sent"), 0);
}

#[test]
#[ignore = "needs namespaces, tun"]
fn port_belongs_to_one_of_two_stacks() {
    a_port_belongs_to_one_of_the_two("");
}

#[test]
#[ignore = "needs namespaces, tun"]
fn port_belongs_to_kernel_or_to_all_shards() {
    a_port_belongs_to_one_of_the_two("--shards 3");
}

#[test]
#[ignore = "needs namespaces, tun"]
fn listener_holds_port_in_both_families_until_its_end() {
    let pair = Pair::new("");
    let node = pair.attach("a");
    // All addresses, and any port that is free in the kernel too.
    let both = TcpListener::bind(&node, at("::", 0)).unwrap();
    let port = both.local_addr().unwrap().port();
    assert_ne!(port, 0);
    for address in NODE_A {
        pair.kernel_is_refused(0, at(address, port));
    }
    pair.kernel_is_refused(0, at("0.0.0.0", port));
    // A listener that shares the port, as the stack allows, keeps it.
    let ipv4 = TcpListener::bind(&node, at("0.0.0.0", 81)).unwrap();
    let ipv6 = TcpListener::bind(&node, at(NODE_A[1], 81)).unwrap();
    drop(ipv4);
    pair.kernel_listens(0, &at(NODE_A[0], 81).to_string());
    pair.kernel_is_refused(0, at(NODE_A[1], 81));
    drop(ipv6);
    pair.kernel_listens(0, &at(NODE_A[1], 81).to_string());
    // The listener is not closed: it keeps its port while a process has the descriptor.
    let descriptor = both.into_fd().unwrap();
    pair.kernel_is_refused(0, at(NODE_A[0], port));
    drop(descriptor);
    for address in NODE_A {
        eventually("the listener's end", || {
            let listener = pair.beside(0, || net::TcpListener::bind(at(address, port)));
            listener.is_ok()
        });
    }
    // Ends with the program, and with the engine.
    std::mem::forget(TcpListener::bind(&node, at("::", 82)).unwrap());
    pair.kernel_is_refused(0, at("::", 82));
    let engine = pair.fabrics.engine("a");
    kill_process(engine, Signal::KILL).unwrap();
    wait_for_end(engine);
    pair.kernel_listens(0, &at("::", 82).to_string());
}

#[test]
#[ignore = "needs namespaces, tun, ip"]
fn device_may_go_down_up_and_away() {
    let pair = Pair::new("");
    let (node, other) = (pair.attach("a"), pair.attach("b"));
    let listener = TcpListener::bind(&node, at(NODE_A[0], 80)).unwrap();
    let client = TcpStream::connect(&other, at(NODE_A[0], 80)).unwrap();
    let (server, _) = listener.accept().unwrap();
    eventually("an answer", || pair.ping(1, NODE_A[0]));
    pair.interface(0).set_up(false).unwrap();
    assert!(pair.fabrics.succeeds("stat a").contains("(down)"));
    assert!(!pair.ping(1, NODE_A[0]));
    assert_ne!(pair.counted("a", "drop_to_kernel_down"), 0);
    exchange(&client, &server);
    pair.interface(0).set_up(true).unwrap();
    for address in NODE_A {
        eventually("an answer again", || pair.ping(1, address));
    }
    let shows = |what: &str| {
        let shown = pair.fabrics.succeeds("ps");
        assert!(shown.contains(&format!("{what} ")), "{what}: {shown}");
    };
    let named = format!("toe0@{}", pair.names[0]);
    shows(&named);
    let in_a = |line: &str| ip(&pair.namespaces[0], line);
    in_a("link set toe0 carrier off");
    shows(&format!("{named} (no carrier)"));
    let advice = pair.fabrics.succeeds("stat a");
    assert!(advice.contains("`ip link set toe0 carrier on`"), "{advice}");
    exchange(&client, &server);
    in_a("link set toe0 carrier on");
    eventually("an answer over a new carrier", || pair.ping(1, NODE_A[0]));
    shows(&named);
    for (from, to) in [("toe0", "web0"), ("web0", "toe0")] {
        in_a(&format!("link set {from} down"));
        in_a(&format!("link set {from} name {to}"));
        in_a(&format!("link set {to} up"));
        shows(&format!("{to}@{}", pair.names[0]));
        eventually("an answer under another name", || pair.ping(1, NODE_A[0]));
    }
    let address = pair.interface(0).state().unwrap().address;
    pair.interface(0).set_address([2, 0, 0, 0, 9, 9]).unwrap();
    let shown = pair.fabrics.succeeds("stat a");
    assert!(
        shown.contains("(readdressed)") && shown.contains("`ip link set toe0 address "),
        "{shown}"
    );
    pair.interface(0).set_address(address).unwrap();
    eventually("an answer once more", || pair.ping(1, NODE_A[0]));
    pair.interface(0).delete().unwrap();
    assert!(pair.fabrics.succeeds("ps").contains("(gone)"));
    assert!(!pair.ping(1, NODE_A[0]));
    assert_ne!(pair.counted("a", "drop_to_kernel_gone"), 0);
    exchange(&client, &server);
    // A namespace whose name was removed still belongs to the node.
    pair.names[1].remove(pair.namespaces[1].id().unwrap()).unwrap();
    assert!(pair.fabrics.succeeds("stat b").contains("over toe0@"));
    exchange(&client, &server);
    pair.fabrics.succeeds("down b");
    let gone = Interface::open(&pair.namespaces[1], "toe0");
    assert!(matches!(gone, Err(InterfaceError::Missing(_))));
}

#[test]
#[ignore = "needs namespaces, tun"]
fn killed_engine_leaves_no_device() {
    let pair = Pair::new("");
    // A program that still holds the device.
    let node = pair.attach("a");
    let engine = pair.fabrics.engine("a");
    kill_process(engine, Signal::KILL).unwrap();
    wait_for_end(engine);
    let missing = || Interface::open(&pair.namespaces[0], "toe0").err();
    assert!(missing().is_none(), "the program has it");
    assert!(pair.names[0].path().exists());
    pair.fabrics.succeeds("ps");
    assert!(matches!(missing(), Some(InterfaceError::Missing(_))));
    assert!(!pair.names[0].path().exists());
    assert!(!pair.fabrics.files().iter().any(|file| file.starts_with("a.")));
    drop(node);
    // The name is free again.
    let name = &pair.names[0];
    pair.fabrics.succeeds(&format!("up a --tap --netns {name}"));
    pair.fabrics.succeeds("down a b");
    assert!(!pair.names[0].path().exists() && !pair.names[1].path().exists());
    assert_eq!(pair.fabrics.files(), [""; 0]);
}

#[test]
#[ignore = "needs namespaces, tun"]
fn failed_start_is_explained_and_leaves_nothing() {
    let fabrics = Fabrics::new();
    assert!(fabrics.fails("up a --netns x").contains("give --tap as well"));
    assert!(fabrics.fails("up a --queues 2").contains("give --tap as well"));
    assert!(fabrics.fails("up a b --tap").contains("one by one"));
    let mounts = format!("/proc/{}/ns/mnt", std::process::id());
    let said = fabrics.fails(&format!("up a --tap --netns {mounts}"));
    assert!(
        said.contains(&format!("{mounts} is no network namespace")),
        "{said}"
    );
    let said = fabrics.fails("up a --tap --netns /proc/self/fd/3");
    assert!(said.contains("a path as other processes see it"), "{said}");
    let name: NamespaceName = format!("toehold-{}-taken", std::process::id()).parse().unwrap();
    // The namespace of another node stays, with its contents.
    let (namespace, _) = name.open_or_create().unwrap();
    fabrics.succeeds(&format!("up a --tap --netns {name}"));
    let said = fabrics.fails(&format!("up b --tap --netns {name}"));
    assert!(
        said.contains("there is a network interface toe0 already"),
        "{said}"
    );
    assert!(fabrics.files().iter().all(|file| !file.starts_with("b.")));
    fabrics.succeeds(&format!("up b --tap=toe1 --netns {name}"));
    fabrics.succeeds("down --all");
    for device in ["toe0", "toe1"] {
        let gone = Interface::open(&namespace, device);
        assert!(matches!(gone, Err(InterfaceError::Missing(_))));
    }
    assert!(name.path().exists());
    name.remove(namespace.id().unwrap()).unwrap();
    assert_eq!(fabrics.files(), [""; 0]);
}

#[test]
#[ignore = "needs namespaces, tun"]
fn device_is_created_in_namespace_of_path() {
    let fabrics = Fabrics::new();
    let namespace = Namespace::create().unwrap();
    let Namespace::Open(descriptor) = &namespace else {
        unreachable!("it was made");
    };
    let (process, number) = (std::process::id(), std::os::fd::AsRawFd::as_raw_fd(descriptor));
    let path = format!("/proc/{process}/fd/{number}");
    fabrics.succeeds(&format!("up a --tap --netns {path}"));
    assert!(Interface::open(&namespace, "toe0").unwrap().state().unwrap().up);
    let status = fabrics.json("stat a --json");
    assert_eq!(status["status"]["stack"]["kernel"]["netns"], *path, "{status}");
    fabrics.succeeds("down --all");
    let gone = Interface::open(&namespace, "toe0");
    assert!(matches!(gone, Err(InterfaceError::Missing(_))));
    assert_eq!(fabrics.files(), [""; 0]);
}
