//! Several queues of one interface, among which flows are distributed.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use toehold_link::interface::Namespace;
use toehold_socket::{Fabric, Node, TcpListener, TcpStream};

use crate::kernel::{NODE_A, NODE_B, Pair, at, exchange};
use crate::support::{Fabrics, eventually};
use crate::uplinks::kernel::{namespace, talk};

/// Retransmissions of a datagram, which may be lost; the next constant is their interval.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// The number of sleeps of each engine thread that carries the kernel's frames.
fn sleeps_of_inlets(engine: rustix::process::Pid) -> Vec<u64> {
    let tasks = format!("/proc/{}/task", engine.as_raw_nonzero());
    let tasks = std::fs::read_dir(tasks).unwrap().map(|task| task.unwrap().path());
    let inlets = tasks.filter(|task| {
        let name = std::fs::read_to_string(task.join("comm")).unwrap();
        name.trim() == "toehold-kernel"
    });
    let sleeps = inlets.map(|task| {
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    });
    sleeps.collect()
}

/// Sends a datagram from one socket to the other.
fn arrives(from: &UdpSocket, to: &UdpSocket) {
    let address = to.local_addr().unwrap();
    to.set_read_timeout(Some(PAUSE)).unwrap();
    let arrived = (0..TRIES).any(|_| {
        from.send_to(b"datagram", address).unwrap();
        let mut datagram = [0; 9];
        let received = to.recv_from(&mut datagram);
        received.is_ok_and(|received| received == (8, from.local_addr().unwrap()))
    });
    assert!(arrived, "{address}");
}

/// Sends enough flows that chance uses all queues but one at least. Flows of a shard use the
/// shard's queues.
fn queues_are_shared_out(settings: &str) {
    const CONNECTIONS: usize = 9;
    let pair = Pair::new(settings);
    let node = pair.attach("a");
    for _ in 0..CONNECTIONS {
        for (here, there) in NODE_A.into_iter().zip(NODE_B) {
            let listener = pair.kernel_listens(1, &at(there, 0).to_string());
            let address = listener.local_addr().unwrap();
            let client = pair.kernel_connects(0, address).unwrap();
            let (server, _) = listener.accept().unwrap();
            exchange(&client, &server);
            let ours = TcpStream::connect(&node, address).unwrap();
            let (theirs, _) = listener.accept().unwrap();
            exchange(&ours, &theirs);
            let [client, server] = [(0, here), (1, there)]
                .map(|(node, address)| pair.beside(node, || UdpSocket::bind(at(address, 0))).unwrap());
            for (from, to) in [(&client, &server), (&server, &client)] {
                arrives(from, to);
            }
        }
    }
    for name in ["a", "b"] {
        let sleeps = sleeps_of_inlets(pair.fabrics.engine(name));
        assert_eq!(sleeps.len(), 3, "a thread for each queue");
        let (busiest, all) = (sleeps.iter().max().unwrap(), sleeps.iter().sum::<u64>());
        // If one queue had all flows, the others would hardly wake.
        assert!(10 * busiest < 9 * all, "{sleeps:?}");
        assert_eq!(pair.counted(name, "drop_to_kernel_refused"), 0);
        assert_eq!(pair.counted(name, "drop_from_kernel_malformed"), 0);
    }
}

#[test]
#[ignore = "needs namespaces, tun"]
fn flows_are_distributed_among_queues_of_device() {
    queues_are_shared_out("--queues 3");
}

#[test]
#[ignore = "needs namespaces, tun"]
fn shards_have_separate_queues() {
    queues_are_shared_out("--queues 3 --shards 2");
}

/// Frames that each queue of a device passed to the kernel, and took from it.
fn by_queue(fabrics: &Fabrics, device: &str, name: &str) -> Vec<u64> {
    let shown = fabrics.json(&format!("stat {device} --json"));
    let counters = shown["counters"].as_array().unwrap().iter();
    let of_queues = counters.filter(|counter| counter["name"] == name);
    of_queues
        .map(|counter| counter["value"].as_u64().unwrap())
        .collect()
}

/// Most attempts with new connections until more than one queue carries them. Within them, the
/// traffic that every queue gets (address resolution, echoes) stays below the threshold of a
/// stream.
const ROUNDS: usize = 6;

/// Queues of devices, each with their number, that are expected to distribute streams in both
/// directions.
struct Shared<'a> {
    fabrics: &'a Fabrics,
    devices: &'a [(&'a str, usize)],
    beyond: &'a str,
}

impl Shared<'_> {
    /// Makes connections until more than one queue of each device has carried streams in both
    /// directions. The number of frames of a stream depends on the load of the machine, since
    /// frames grow while they wait.
    fn talk(&self, spaces: [&Namespace; 2], addresses: [&str; 2]) {
        let mut lonely = Vec::new();
        for _ in 0..ROUNDS {
            talk_often(spaces, addresses);
            lonely = self.lonely();
            if lonely.is_empty() {
                return;
            }
        }
        panic!("one queue carries all streams: {lonely:?}");
    }

    /// The devices and directions in which one queue has carried all streams.
    fn lonely(&self) -> Vec<String> {
        let mut lonely = Vec::new();
        for (device, queues) in self.devices {
            for name in [
                format!("{}_to_tap_forwarded", self.beyond),
                format!("tap_to_{}_forwarded", self.beyond),
            ] {
                let frames = by_queue(self.fabrics, device, &name);
                assert_eq!(frames.len(), *queues);
                if frames.iter().filter(|&&frames| frames > 100).count() < 2 {
                    lonely.push(format!("{device} {name}: {frames:?}"));
                }
            }
        }
        lonely
    }
}

/// Regression: datagrams of many flows, in both directions, used the device's first queue alone.
/// The others received copies and dropped them.
#[test]
#[ignore = "needs namespaces, tun"]
fn datagrams_over_fabric_use_more_than_first_queue() {
    let fabrics = Fabrics::new();
    let [(a, in_a), (b, in_b)] = [namespace(), namespace()];
    fabrics.succeeds(&format!("device toe1 --netns {in_a} --queues 3"));
    fabrics.succeeds(&format!("device toe2 --netns {in_b} --queues 2"));
    for to in ["10.77.0.1", "fd77::1"] {
        talk([&a, &b], to.parse().unwrap());
        let here = a.run(|| UdpSocket::bind((to, 0))).unwrap().unwrap();
        for flow in 0..100 {
            let any = if to.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
            let there = b.run(|| UdpSocket::bind(any)).unwrap().unwrap();
            there.connect(here.local_addr().unwrap()).unwrap();
            for end in [&here, &there] {
                end.set_read_timeout(Some(PAUSE)).unwrap();
            }
            let answered = (0..TRIES).any(|_| {
                let mut datagram = [0; 2];
                there.send(&[flow]).unwrap();
                while let Ok((len, from)) = here.recv_from(&mut datagram) {
                    // A datagram of an earlier flow may have arrived twice.
                    if datagram[..len] == [flow] {
                        here.send_to(&[flow, 1], from).unwrap();
                        return there
                            .recv(&mut datagram)
                            .is_ok_and(|len| datagram[..len] == [flow, 1]);
                    }
                }
                false
            });
            assert!(answered, "{to}, {flow}");
        }
    }
    for (device, queues) in [("toe1", 3), ("toe2", 2)] {
        // Each queue also carries a little shared traffic: address resolution.
        let others = by_queue(&fabrics, device, "mesh_to_tap_others");
        assert!(others.iter().all(|&frames| frames < 100), "{device}: {others:?}");
        let frames = by_queue(&fabrics, device, "mesh_to_tap_forwarded");
        assert_eq!(frames.len(), queues);
        assert!(frames.iter().all(|&frames| frames > 25), "{device}: {frames:?}");
    }
}

#[test]
#[ignore = "needs namespaces, tun"]
fn queues_of_device_share_its_connections() {
    let fabrics = Fabrics::new();
    let [(a, in_a), (b, in_b)] = [namespace(), namespace()];
    fabrics.succeeds(&format!("device toe1 --netns {in_a} --queues 3"));
    fabrics.succeeds(&format!("device toe2 --netns {in_b} --queues 2"));
    fabrics.succeeds("up web");
    let fabric = Fabric::existing(fabrics.0.path().join("default").to_str().unwrap()).unwrap();
    let web = Node::attach(&fabric, "web").unwrap();
    for round in 0..6 {
        let listener = TcpListener::bind(&web, ("10.77.0.3", 9000 + round)).unwrap();
        let near = b.run(|| std::net::TcpStream::connect(("10.77.0.3", 9000 + round)));
        let mut near = near.unwrap().unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"to a node").unwrap();
        let mut read = [0; 9];
        far.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"to a node");
    }
    let devices = [("toe1", 3), ("toe2", 2)];
    let shared = Shared {
        fabrics: &fabrics,
        devices: &devices,
        beyond: "mesh",
    };
    shared.talk([&a, &b], ["10.77.0.1", "fd77::1"]);
}

/// Makes enough connections for all queues.
fn talk_often(spaces: [&Namespace; 2], addresses: [&str; 2]) {
    for _ in 0..9 {
        for to in addresses {
            talk(spaces, to.parse().unwrap());
        }
    }
}

#[test]
#[ignore = "needs namespaces, tun, ip"]
fn queues_of_bridge_port_share_its_connections() {
    let fabrics = Fabrics::new();
    let [(a, in_a), (b, in_b)] = [namespace(), namespace()];
    fabrics.succeeds(&format!("device port --netns {in_a} --bridged --queues 3"));
    fabrics.succeeds(&format!("device toe2 --netns {in_b} --queues 2"));
    for line in [
        "link add br0 type bridge",
        "link set port master br0",
        "addr add 10.77.8.1/16 dev br0",
        "addr add fd77::8:1/64 dev br0 nodad",
        "link set br0 up",
    ] {
        let done = a.run(|| Command::new("ip").args(line.split(' ')).status());
        assert!(done.unwrap().expect("ip").success(), "{line}");
    }
    let devices = [("port", 3), ("toe2", 2)];
    let shared = Shared {
        fabrics: &fabrics,
        devices: &devices,
        beyond: "mesh",
    };
    shared.talk([&a, &b], ["10.77.8.1", "fd77::8:1"]);
}

/// The first of `count` consecutive free ports.
fn ports(count: u16) -> u16 {
    loop {
        let first = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let free = |port: u16| UdpSocket::bind(("127.0.0.1", port)).is_ok();
        if first.checked_add(count).is_some_and(|end| (first..end).all(free)) {
            return first;
        }
    }
}

/// A device's status of the hosts that it leads to.
fn remotes(fabrics: &Fabrics, device: &str) -> Vec<serde_json::Value> {
    let shown = fabrics.json(&format!("stat {device} --json"));
    shown["status"]["stack"]["remotes"].as_array().unwrap().clone()
}

#[test]
#[ignore = "needs namespaces, tun"]
fn queues_of_device_over_udp_have_separate_ports() {
    let fabrics = Fabrics::new();
    let [(a, in_a), (b, in_b)] = [namespace(), namespace()];
    let ports = [ports(3), ports(3)];
    let ends = |own: usize| {
        format!(
            "--udp 127.0.0.1:{} --peer 127.0.0.1:{}",
            ports[own],
            ports[1 - own]
        )
    };
    fabrics.succeeds(&format!("device toe1 --netns {in_a} --queues 3 {}", ends(0)));
    // A device with another number of queues is ignored and told why.
    fabrics.succeeds(&format!("device toe2 --netns {in_b} --queues 2 {}", ends(1)));
    eventually("the reason", || {
        let errors = [
            ("toe1", "has 2 queues, and this one 3"),
            ("toe2", "has 3 queues, and this one 2"),
        ];
        errors.iter().all(|(device, error)| {
            let said = remotes(&fabrics, device)[0]["error"].to_string();
            said.contains(error)
        })
    });
    assert!(
        !remotes(&fabrics, "toe1")
            .iter()
            .any(|remote| remote["connected"] == true)
    );
    fabrics.succeeds("down toe2");
    fabrics.succeeds(&format!("device toe2 --netns {in_b} --queues 3 {}", ends(1)));
    eventually("their meeting", || {
        let reached = |device| {
            remotes(&fabrics, device)
                .iter()
                .all(|remote| remote["connected"] == true)
        };
        reached("toe1") && reached("toe2")
    });
    let shared = Shared {
        fabrics: &fabrics,
        devices: &[("toe1", 3), ("toe2", 3)],
        beyond: "udp",
    };
    shared.talk([&a, &b], ["10.77.0.1", "fd77::1"]);
}

#[test]
#[ignore = "needs namespaces, tun"]
fn queues_of_device_through_memory_have_separate_parts() {
    let fabrics = Fabrics::new();
    let [(a, in_a), (b, in_b)] = [namespace(), namespace()];
    let segment = fabrics.0.path().join("segment").display().to_string();
    let segment = format!("--segment {segment} --segment-size 8M --segment-members 3");
    fabrics.succeeds(&format!("device toe1 --netns {in_a} --queues 3 {segment}"));
    let refused = fabrics.fails(&format!("device toe2 --netns {in_b} --queues 2 {segment}"));
    assert!(refused.contains("divided into 3 segments"), "{refused}");
    fabrics.succeeds(&format!("device toe2 --netns {in_b} --queues 3 {segment}"));
    eventually("their meeting", || {
        let connected = |device| by_queue(&fabrics, device, "segment_members_connected");
        connected("toe1") == [1; 3] && connected("toe2") == [1; 3]
    });
    let shared = Shared {
        fabrics: &fabrics,
        devices: &[("toe1", 3), ("toe2", 3)],
        beyond: "segment",
    };
    shared.talk([&a, &b], ["10.77.0.1", "fd77::1"]);
}
