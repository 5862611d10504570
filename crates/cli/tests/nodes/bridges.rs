//! Kernel bridges with devices on the fabric as ports.

use std::cell::RefCell;
use std::fs;
use std::os::fd::AsRawFd;

use serde_json::Value;
use toehold_link::interface::Namespace;
use toehold_link::tap::{Tap, TapSettings};
use toehold_link::{Link, Offload, Transmit, Transmitter};
use toehold_shm::Gather;

use crate::programs::{Host, check_stream, hardware_address, measure, read_back, tcpdump};
use crate::support::{Fabrics, eventually};

/// A kernel bridge with a device as a port. A veth pair leads from the bridge to a third namespace,
/// whose programs reach the fabric.
#[test]
#[ignore = "needs root, namespaces, tun, ip, iperf3"]
fn program_behind_bridge_reaches_fabric() {
    const LEN: u64 = 20 << 20;
    let fabrics = Fabrics::new();
    let bridge = Host::new(&fabrics, "port", 1500, "--bridged");
    let member = Host::new(&fabrics, "toe1", 1500, "");
    let behind = Host {
        namespace: Namespace::create().unwrap(),
        interface: "inner",
    };
    // `ip` needs a process in a namespace without a name.
    let mut waiting = behind.start("sleep 1000");
    let process = waiting.0.as_mut().expect("it runs").id();
    for line in [
        "ip link add br0 type bridge",
        "ip link set port master br0",
        &format!("ip link add outer type veth peer name inner netns {process}"),
        "ip link set outer master br0 up",
        "ip link set br0 up",
    ] {
        bridge.succeeds(line);
    }
    behind.succeeds("ip addr add 10.77.9.9/16 dev inner");
    behind.succeeds("ip link set inner up");
    let address = member.succeeds("ip -o -4 addr show dev toe1");
    let address = address.split_whitespace().nth(3).expect("an address");
    let address = address.split('/').next().expect("an address");
    for more in ["", "-R"] {
        let line = format!("iperf3 -c {address} -p 5201 -J -n {LEN} {more}");
        let report = measure(&behind, &member, &line);
        check_stream(&line, &report, LEN);
    }
}

/// A frame with a VLAN tag, from another port of such a bridge, is forwarded unchanged.
#[test]
#[ignore = "needs root, namespaces, tun, ip, tcpdump"]
fn vlan_tag_is_forwarded_unchanged() {
    let fabrics = Fabrics::new();
    let bridge = Host::new(&fabrics, "port", 1500, "--bridged");
    let member = Host::new(&fabrics, "toe1", 1500, "");
    let settings = TapSettings::new("source", [2, 0, 0, 0, 0, 7]);
    let (source, mut interface) = Tap::create(&settings, &bridge.namespace).unwrap();
    for line in [
        "ip link add br0 type bridge",
        "ip link set port master br0",
        "ip link set source master br0",
        "ip link set br0 up",
    ] {
        bridge.succeeds(line);
    }
    interface.set_up(true).unwrap();
    let file = fabrics.0.path().join("tagged.pcap");
    let recording = tcpdump(&member, &file, "");
    let mut frame = hardware_address(&member).to_vec();
    frame.extend(source.address());
    // 802.1Q, priority 3, network 42; then an unused type, and payload.
    frame.extend([0x81, 0x00, 0x60, 42, 0x88, 0xb5]);
    frame.extend((0..1400).map(|at| at as u8));
    let source = RefCell::new(source);
    eventually("the tagged frame", || {
        // The bridge takes some time before it forwards.
        let sent = source.borrow_mut().transmit(&Transmit {
            headers: &frame,
            payload: &Gather::EMPTY,
            offload: Offload::default(),
        });
        sent.unwrap();
        fs::read(&file)
            .unwrap()
            .windows(frame.len())
            .any(|window| window == frame)
    });
    recording.end();
    let shown = read_back(&member, &file, "vlan 42");
    assert!(shown.contains("vlan 42, p 3"), "{shown}");
}

/// Two bridges with two paths between them, over the fabric and over a veth pair. By the spanning
/// tree protocol they use one path, and the other when the first is gone.
#[test]
#[ignore = "needs root, namespaces, tun, ip, ping"]
fn bridges_over_fabric_agree_on_spanning_tree() {
    const ADDRESSES: [&str; 2] = ["10.78.0.1", "10.78.0.2"];
    let fabrics = Fabrics::new();
    let hosts = ["port0", "port1"].map(|port| Host::new(&fabrics, port, 1500, "--bridged"));
    let [root, other] = &hosts;
    let Namespace::Open(descriptor) = &other.namespace else {
        unreachable!("it was made");
    };
    let there = format!("/proc/{}/fd/{}", std::process::id(), descriptor.as_raw_fd());
    for (host, priority) in [(root, 4096), (other, 8192)] {
        // The shortest times that the protocol allows, in hundredths of a second.
        host.succeeds(&format!(
            "ip link add br0 type bridge stp_state 1 priority {priority} forward_delay 200 hello_time 100 max_age 600"
        ));
    }
    root.succeeds(&format!(
        "ip link add cable type veth peer name cable netns {there}"
    ));
    for (host, address) in hosts.iter().zip(ADDRESSES) {
        let port = host.interface;
        for line in [
            &format!("ip addr add {address}/24 dev br0"),
            "ip link set br0 up",
            &format!("ip link set {port} master br0"),
            "ip link set cable master br0 up",
            // The path over the fabric is preferred.
            &format!("ip link set {port} type bridge_slave cost 10"),
            "ip link set cable type bridge_slave cost 1000",
        ] {
            host.succeeds(line);
        }
    }
    let state = |port: &str| {
        let shown = other.succeeds(&format!("ip -d -j link show {port}"));
        let shown: Value = serde_json::from_str(&shown).unwrap();
        shown[0]["linkinfo"]["info_slave_data"]["state"].clone()
    };
    let is_reached = || {
        let line = format!("ping -c 1 -W 1 {}", ADDRESSES[1]);
        root.run(&line).status.success()
    };
    eventually("a tree", || {
        state("port1") == "forwarding" && state("cable") == "blocking"
    });
    eventually("an answer over the fabric", is_reached);
    fabrics.succeeds("down port0");
    eventually("another tree", || state("cable") == "forwarding");
    eventually("an answer over the pair", is_reached);
}
