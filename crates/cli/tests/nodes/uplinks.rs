//! Fabrics joined over UDP, and kernel interfaces on fabrics, as users create them. Two hosts are
//! two fabrics of this host.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use toehold_node::fabric::Fabric;
use toehold_socket::{ImpairSettings, Impairments, Node, NodeConfig, TcpListener, TcpStream};

use crate::support::{Fabrics, PATIENCE, eventually, wait_for_end};

/// Bytes of a stream in each direction.
const LEN: usize = 3 << 20;

/// Two joined hosts: node `a` on the left one, node `b` on the right one.
struct Hosts {
    fabrics: Fabrics,
    ports: [u16; 2],
    key: PathBuf,
}

const SIDES: [&str; 2] = ["left", "right"];

impl Hosts {
    fn new() -> Hosts {
        let fabrics = Fabrics::new();
        let key = fabrics.0.path().join("key");
        fs::write(&key, "5a".repeat(32)).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let ports = ports();
        fabrics.succeeds("up --fabric left a");
        fabrics.succeeds("up --fabric right b --ipv4 10.77.0.2/16 --ipv6 fd77::2/64");
        let hosts = Hosts { fabrics, ports, key };
        hosts.uplink(0);
        hosts.uplink(1);
        hosts.wait();
        hosts
    }

    fn uplink(&self, side: usize) {
        self.uplink_of(side, "to", self.ports);
    }

    fn uplink_of(&self, side: usize, prefix: &str, ports: [u16; 2]) {
        let [own, other] = [ports[side], ports[1 - side]];
        let (name, key) = (SIDES[side], self.key.display());
        self.fabrics.succeeds(&format!(
            "uplink --fabric {name} {prefix}-{name} --udp 127.0.0.1:{own} --peer localhost:{other} --key-file {key}"
        ));
    }

    /// The status of an uplink.
    fn stack(&self, side: &str, prefix: &str) -> Value {
        let mut shown = self
            .fabrics
            .json(&format!("stat --fabric {side} {prefix}-{side} --json"));
        shown["status"]["stack"].take()
    }

    /// The members of the other fabric that an uplink knows of.
    fn beyond(&self, side: &str) -> Vec<String> {
        let stack = self.stack(side, "to");
        let fabrics = stack["beyond"].as_array().cloned().unwrap_or_default();
        let members = fabrics
            .iter()
            .flat_map(|fabric| fabric["members"].as_array().unwrap());
        members
            .map(|member| member["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Waits until the uplinks know each other and their nodes.
    fn wait(&self) {
        eventually("the fabrics' union", || {
            SIDES.iter().all(|side| self.is_joined(side))
        });
    }

    fn is_joined(&self, side: &str) -> bool {
        let shown = self
            .fabrics
            .json(&format!("stat --fabric {side} to-{side} --json"));
        let stack = &shown["status"]["stack"];
        stack["remotes"][0]["connected"] == true && stack["peers"].as_u64() >= Some(1)
    }

    fn counter(&self, side: &str, name: &str) -> u64 {
        let shown = self
            .fabrics
            .json(&format!("stat --fabric {side} to-{side} --json"));
        let mut counters = shown["counters"].as_array().unwrap().iter();
        let counter = counters.find(|counter| counter["name"] == name);
        counter.unwrap_or_else(|| panic!("no {name}"))["value"]
            .as_u64()
            .unwrap()
    }

    fn path(&self, side: &str) -> PathBuf {
        self.fabrics.0.path().join(side)
    }

    fn attach(&self, side: &str, node: &str) -> Node {
        let fabric = Fabric::existing(self.path(side).to_str().unwrap()).unwrap();
        Node::attach(&fabric, node).unwrap()
    }

    fn kill_uplink(&self, side: &str) {
        let record = fs::read(self.path(side).join(format!("to-{side}.json"))).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        let process = rustix::process::Pid::from_raw(record["pid"].as_i64().unwrap() as i32).unwrap();
        kill_process(process, Signal::KILL).unwrap();
        wait_for_end(process);
    }
}

/// Two free ports.
fn ports() -> [u16; 2] {
    let held = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    held.each_ref().map(|socket| socket.local_addr().unwrap().port())
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for side in SIDES {
            let _ = self.fabrics.run(&format!("down --fabric {side} --all"));
        }
    }
}

pub(crate) fn bytes(seed: usize) -> Vec<u8> {
    (0..LEN)
        .map(|at| ((at + seed) ^ (at >> 8) ^ (at >> 15)) as u8)
        .collect()
}

/// Connects, and sends a stream in each direction at the same time; they arrive intact.
pub(crate) fn both_ways(server: &Node, client: &Node, to: &str) {
    let listener = TcpListener::bind(server, to).unwrap();
    let address = listener.local_addr().unwrap();
    let near = TcpStream::connect(client, address).unwrap();
    let (far, _) = listener.accept().unwrap();
    exchange(near, far, || {});
}

/// Sends a stream in each direction; `meanwhile` runs in the middle of them.
fn exchange(near: TcpStream, far: TcpStream, meanwhile: impl FnOnce()) {
    let streams = [near, far].map(std::sync::Arc::new);
    std::thread::scope(|scope| {
        for (side, stream) in streams.iter().enumerate() {
            scope.spawn(move || {
                (&**stream).write_all(&bytes(side)).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
            });
        }
        let (mut first, rest) = (vec![0; LEN / 8], &streams[1]);
        (&**rest).read_exact(&mut first).unwrap();
        meanwhile();
        let back = scope.spawn(|| {
            let mut read = Vec::new();
            (&*streams[0]).read_to_end(&mut read).unwrap();
            read
        });
        (&**rest).read_to_end(&mut first).unwrap();
        assert!(first == bytes(0), "what the client has sent");
        assert!(back.join().unwrap() == bytes(1), "what the server has sent");
    });
}

/// Regression: it counted each shard as a node.
#[test]
fn uplink_counts_nodes_and_not_shards() {
    let hosts = Hosts::new();
    hosts
        .fabrics
        .succeeds("up --fabric left --shards 3 c --ipv4 10.77.0.12/16 --ipv6 fd77::c/64");
    let c = hosts.attach("left", "c");
    let b = hosts.attach("right", "b");
    // Then the uplink has met all shards with these connections.
    (0..8).for_each(|_| both_ways(&c, &b, "[fd77::c]:80"));
    eventually("two nodes", || hosts.stack("left", "to")["peers"] == 2);
}

#[test]
fn two_hosts_form_one_network() {
    let hosts = Hosts::new();
    let (a, b) = (hosts.attach("left", "a"), hosts.attach("right", "b"));
    both_ways(&a, &b, "10.77.0.1:80");
    both_ways(&b, &a, "[fd77::2]:80");
    assert_eq!(hosts.counter("left", "udp_not_authentic"), 0);
    assert!(
        hosts.counter("left", "mesh_to_udp_super_frames") > 0,
        "long frames stay long"
    );
    let shown = hosts.fabrics.succeeds("ps --fabric left");
    assert!(
        shown.contains("(uplink)") && shown.contains("1 and 1 of 1 hosts"),
        "{shown}"
    );
    let shown = hosts.fabrics.succeeds("stat --fabric left to-left");
    assert!(shown.contains(": reached, datagrams of"), "{shown}");
    hosts.fabrics.succeeds("down --fabric left to-left");
    eventually("the loss", || {
        let shown = hosts.fabrics.json("stat --fabric right to-right --json");
        shown["status"]["stack"]["remotes"][0]["connected"] == false
    });
}

#[test]
fn name_or_address_of_other_host_is_refused() {
    let hosts = Hosts::new();
    eventually("the roster", || hosts.beyond("right").contains(&"a".to_owned()));
    let says = |line: &str, why: &str| {
        let said = hosts.fabrics.fails(line);
        assert!(said.contains(why), "{line}: {said}");
    };
    says("up --fabric right a", "a node named a is running on host ");
    says(
        "up --fabric right c --ipv4 10.77.0.1/16",
        " has the address 10.77.0.1 already",
    );
    says(
        "up --fabric right c --ipv6 fd77::1/64",
        " has the address fd77::1 already",
    );
    // An automatic address is free on both hosts.
    let c = hosts.fabrics.list("up --fabric right c --json");
    assert_eq!(c[0]["ipv4"], "10.77.0.3/16");
    eventually("the newcomer", || hosts.beyond("left").contains(&"c".to_owned()));
    let shown = hosts.fabrics.succeeds("stat --fabric left to-left");
    assert!(shown.contains(": to-right, b, c\n"), "{shown}");
    hosts.fabrics.succeeds("down --fabric right c");
    eventually("its end", || !hosts.beyond("left").contains(&"c".to_owned()));
    assert_eq!(hosts.stack("left", "to")["conflicts"], Value::Null);
}

#[test]
fn older_name_conflict_between_hosts_is_reported() {
    let hosts = Hosts::new();
    hosts.fabrics.succeeds("down --fabric right to-right");
    hosts
        .fabrics
        .succeeds("up --fabric right a --ipv4 10.77.0.9/16 --ipv6 fd77::9/64");
    hosts.uplink(1);
    let told = |side| {
        hosts.stack(side, "to")["conflicts"][0]
            .as_str()
            .map(str::to_owned)
    };
    for side in SIDES {
        eventually("the conflict", || {
            told(side).is_some_and(|told| told.contains("a node named a is running here and on host "))
        });
        let said = hosts.fabrics.run(&format!("ps --fabric {side}"));
        let said = String::from_utf8(said.stderr).unwrap();
        assert!(
            said.contains(&format!("to-{side}: a node named a is running here and on")),
            "{said}"
        );
    }
    hosts.fabrics.succeeds("down --fabric right a");
    for side in SIDES {
        eventually("peace", || told(side).is_none());
    }
}

/// Without this, every frame would arrive twice.
#[test]
fn second_uplink_to_same_host_stands_by_until_first_ends() {
    let hosts = Hosts::new();
    let ports = ports();
    for side in [0, 1] {
        hosts.uplink_of(side, "with", ports);
    }
    let stands_by = |prefix| {
        SIDES.iter().any(|side| {
            let standby = hosts.stack(side, prefix)["standby"].clone();
            standby
                .as_str()
                .is_some_and(|why| why.contains(" already, so this one forwards nothing"))
        })
    };
    eventually("the second one to stand by", || stands_by("with"));
    assert!(!stands_by("to"));
    let (a, b) = (hosts.attach("left", "a"), hosts.attach("right", "b"));
    both_ways(&a, &b, "10.77.0.1:80");
    assert!(!stands_by("to"));
    hosts.fabrics.succeeds("down --fabric left to-left");
    hosts.fabrics.succeeds("down --fabric right to-right");
    eventually("the second one to forward", || !stands_by("with"));
    both_ways(&a, &b, "10.77.0.1:81");
}

#[test]
fn uplink_to_own_fabric_stands_by() {
    let fabrics = Fabrics::new();
    let [near, far] = ports();
    fabrics.succeeds(&format!("uplink x --udp 127.0.0.1:{near} --peer 127.0.0.1:{far}"));
    fabrics.succeeds(&format!("uplink y --udp 127.0.0.1:{far} --peer 127.0.0.1:{near}"));
    for uplink in ["x", "y"] {
        eventually("the loop", || {
            let shown = fabrics.succeeds(&format!("stat {uplink}"));
            shown.contains("it leads back to its own fabric")
        });
    }
}

#[test]
fn streams_over_bad_link_stay_intact() {
    let hosts = Hosts::new();
    let bad = Impairments {
        loss: 0.02,
        duplicate: 0.02,
        reorder: 0.05,
        ..Impairments::default()
    };
    let impair = ImpairSettings {
        seed: 9,
        transmit: bad,
        receive: bad,
        ..ImpairSettings::default()
    };
    let config = NodeConfig::new(hosts.path("left"), "c")
        .ipv4([10, 77, 0, 3], 16)
        .impair(impair);
    let c = Node::join(config.tcp(|tcp| tcp.syn_retries = 10)).unwrap();
    both_ways(&hosts.attach("right", "b"), &c, "10.77.0.2:80");
}

#[test]
fn connections_survive_kill_of_uplink() {
    let hosts = Hosts::new();
    let (a, b) = (hosts.attach("left", "a"), hosts.attach("right", "b"));
    let listener = TcpListener::bind(&a, "10.77.0.1:80").unwrap();
    let near = TcpStream::connect(&b, "10.77.0.1:80").unwrap();
    let (far, _) = listener.accept().unwrap();
    exchange(near, far, || {
        hosts.kill_uplink("right");
        hosts.uplink(1);
        hosts.wait();
    });
    both_ways(&a, &b, "10.77.0.1:81");
}

#[test]
fn impossible_uplink_is_explained() {
    let hosts = Hosts::new();
    let fabrics = &hosts.fabrics;
    let says = |line: &str, why: &str| {
        let said = fabrics.fails(line);
        assert!(said.contains(why), "{line}: {said}");
    };
    says("uplink x", "give --udp");
    for about_an_interface in ["--xdp off", "--queues 2", "--netns x"] {
        let line = format!("uplink x --udp 127.0.0.1:0 {about_an_interface}");
        says(&line, "cannot be used with");
    }
    says(
        "uplink x --udp 127.0.0.1:0",
        "give --peer HOST:PORT or --peers-file FILE",
    );
    let taken = hosts.ports[0];
    says(
        &format!("uplink x --udp 127.0.0.1:{taken} --peer 127.0.0.1:9"),
        "is in use",
    );
    says("uplink x --udp 127.0.0.1:0 --peer nowhere", "as HOST:PORT");
    says("uplink x --udp 127.0.0.1:0 --peer [::1]:9", "listen on [::]");
    let key = hosts.key.display();
    fs::set_permissions(&hosts.key, fs::Permissions::from_mode(0o644)).unwrap();
    let with_key = format!("uplink x --udp 127.0.0.1:0 --peer 127.0.0.1:9 --key-file {key}");
    says(&with_key, "other users can read the key");
    fs::set_permissions(&hosts.key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&hosts.key, "secret").unwrap();
    says(&with_key, "no key of 64 hexadecimal digits");
    says("device no/name", "a node's name has");
    says("device toe7 --queues 17", "17 is not in 1..=16");
    says(
        "device toe7 --queues 2 --udp 0.0.0.0:0 --peer 127.0.0.1:9",
        "has no ports behind it for the other",
    );
    let left = fabrics.0.path().join("default");
    assert!(!left.exists(), "nothing stays behind");
}

/// The kernel's TCP between namespaces, or with a Toehold node.
pub(crate) mod kernel {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::os::fd::AsRawFd;
    use std::process::Command;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
    };
    use toehold_link::interface::{Interface, Namespace};

    use super::*;

    pub(crate) fn namespace() -> (Namespace, String) {
        let namespace = Namespace::create().expect("a network namespace");
        let Namespace::Open(descriptor) = &namespace else {
            unreachable!("it was made");
        };
        let path = format!("/proc/{}/fd/{}", std::process::id(), descriptor.as_raw_fd());
        (namespace, path)
    }

    /// Streams of the kernel between two namespaces, and its ping.
    pub(crate) fn talk([a, b]: [&Namespace; 2], to: IpAddr) {
        let listener = a.run(|| std::net::TcpListener::bind((to, 0))).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let near = b.run(|| std::net::TcpStream::connect(address)).unwrap().unwrap();
        let (far, _) = listener.accept().unwrap();
        std::thread::scope(|scope| {
            for (side, mut stream) in [(0, &near), (1, &far)] {
                scope.spawn(move || {
                    stream.write_all(&bytes(side)).unwrap();
                    stream.shutdown(std::net::Shutdown::Write).unwrap();
                });
                scope.spawn(move || {
                    let mut read = Vec::new();
                    stream.read_to_end(&mut read).unwrap();
                    assert!(read == bytes(1 - side));
                });
            }
        });
        if let IpAddr::V4(to) = to {
            b.run(|| ping(to)).unwrap();
        }
    }

    /// Sends an echo request and waits for the answer.
    fn ping(to: Ipv4Addr) {
        let icmp = Some(rustix::net::ipproto::ICMP);
        let socket = socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, icmp).unwrap();
        // Type 8, its checksum, identifier 0x1234, number 1.
        let echo = [8, 0, 0xe5, 0xca, 0x12, 0x34, 0, 1];
        let address = SocketAddr::from((to, 0));
        sendto(&socket, &echo, SendFlags::empty(), &address).unwrap();
        let timeout = Timespec {
            tv_sec: PATIENCE.as_secs() as i64,
            tv_nsec: 0,
        };
        loop {
            let came = poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout));
            assert_eq!(came, Ok(1), "no echo");
            let mut reply = [0; 128];
            let (len, _) = recv(&socket, &mut reply[..], RecvFlags::empty()).unwrap();
            // Behind the IP header: type 0, and the echoed bytes.
            if reply[..len].get(20) == Some(&0) && reply[24..28] == echo[4..] {
                return;
            }
        }
    }

    #[test]
    #[ignore = "needs namespaces, tun"]
    fn kernels_exchange_data_over_queues_and_with_nodes() {
        let fabrics = Fabrics::new();
        let [(a, in_a), (b, in_b)] = [namespace(), namespace()];
        let made = fabrics.list(&format!("device toe1 --netns {in_a} --json"));
        assert_eq!(
            (&made[0]["ipv4"], &made[0]["role"]),
            (&"10.77.0.1/16".into(), &"device".into())
        );
        fabrics.succeeds(&format!("device toe2 --netns {in_b}"));
        for to in ["10.77.0.1", "fd77::1"] {
            talk([&a, &b], to.parse().unwrap());
        }

        fabrics.succeeds("up web");
        let fabric = Fabric::existing(fabrics.0.path().join("default").to_str().unwrap()).unwrap();
        let web = Node::attach(&fabric, "web").unwrap();
        let listener = TcpListener::bind(&web, "10.77.0.3:80").unwrap();
        let mut near = b
            .run(|| std::net::TcpStream::connect("10.77.0.3:80"))
            .unwrap()
            .unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let sender = std::thread::spawn(move || far.write_all(&bytes(5)).unwrap());
        let mut read = Vec::new();
        near.read_to_end(&mut read).unwrap();
        assert!(read == bytes(5));
        sender.join().unwrap();
        let refused = fabrics.fails(&format!("device toe1 --netns {in_a} --fabric other"));
        assert!(
            refused.contains("there is a network interface toe1 already"),
            "{refused}"
        );
        // Regression: a device did not report the state of its interface.
        let interface = || Interface::open(&a, "toe1").unwrap();
        assert!(!fabrics.succeeds("stat toe1").contains('`'));
        for (up, says) in [(false, "(down)"), (true, "interface toe1")] {
            interface().set_up(up).unwrap();
            let shown = fabrics.succeeds("stat toe1");
            assert!(shown.contains(says), "{shown}");
        }
        interface().set_address([2, 0, 0, 0, 9, 9]).unwrap();
        let shown = fabrics.succeeds("stat toe1");
        assert!(
            shown.contains("(readdressed)") && shown.contains("`ip link set toe1 address "),
            "{shown}"
        );
        fabrics.succeeds("down toe1");
        let gone = a.run(|| Command::new("ip").args(["link", "show", "toe1"]).output());
        assert!(
            !gone.unwrap().unwrap().status.success(),
            "it went with its process"
        );
    }

    #[test]
    #[ignore = "needs namespaces, tun"]
    fn kernels_exchange_data_over_datagrams() {
        let fabrics = Fabrics::new();
        let held = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let ports = held.each_ref().map(|socket| socket.local_addr().unwrap().port());
        drop(held);
        let spaces = [namespace(), namespace()];
        for (number, (_, path)) in spaces.iter().enumerate() {
            let (own, other) = (ports[number], ports[1 - number]);
            fabrics.succeeds(&format!(
                "device toe{number} --netns {path} --udp 127.0.0.1:{own} --peer 127.0.0.1:{other}"
            ));
        }
        let [(a, _), (b, _)] = &spaces;
        for to in ["10.77.0.1", "fd77::1"] {
            talk([a, b], to.parse().unwrap());
        }
    }

    /// Bridged frames have source addresses other than the interface's.
    #[test]
    #[ignore = "needs namespaces, tun, ip"]
    fn kernel_bridge_behind_gateway_is_reached() {
        let fabrics = Fabrics::new();
        let [(a, in_a), (b, in_b)] = [namespace(), namespace()];
        fabrics.succeeds(&format!("device port --netns {in_a} --bridged"));
        let ip = |line: &str| {
            let done = a.run(|| Command::new("ip").args(line.split(' ')).output());
            let done = done.unwrap().expect("ip");
            assert!(
                done.status.success(),
                "{line}: {}",
                String::from_utf8_lossy(&done.stderr)
            );
        };
        ip("link add br0 type bridge");
        ip("link set port master br0");
        ip("addr add 10.77.8.1/16 dev br0");
        ip("link set br0 up");
        fabrics.succeeds(&format!("device toe2 --netns {in_b}"));
        talk([&a, &b], "10.77.8.1".parse().unwrap());
    }
}
