//! Unmodified programs, over kernel interfaces on a fabric.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use toehold_link::interface::{Interface, Namespace};

use crate::support::{Fabrics, PATIENCE, eventually, text};

/// An interface on the fabric in a namespace of its own.
pub(crate) struct Host {
    pub(crate) namespace: Namespace,
    pub(crate) interface: &'static str,
}

/// Two hosts, with addresses ending in 1 and 2.
struct Hosts {
    fabrics: Fabrics,
    hosts: [Host; 2],
}

const V4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const V6: [&str; 2] = ["fd77::1", "fd77::2"];

impl Hosts {
    fn new(mtu: u16) -> Hosts {
        let fabrics = Fabrics::new();
        let hosts = ["toe0", "toe1"].map(|interface| Host::new(&fabrics, interface, mtu, ""));
        Hosts { fabrics, hosts }
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.fabrics.0.path().join(name)
    }
}

impl Host {
    pub(crate) fn new(fabrics: &Fabrics, interface: &'static str, mtu: u16, more: &str) -> Host {
        use std::os::fd::AsRawFd as _;
        let namespace = Namespace::create().expect("a network namespace");
        let Namespace::Open(descriptor) = &namespace else {
            unreachable!("it was made");
        };
        let path = format!("/proc/{}/fd/{}", std::process::id(), descriptor.as_raw_fd());
        fabrics.succeeds(&format!("device {interface} --netns {path} --mtu {mtu} {more}"));
        let host = Host { namespace, interface };
        host.succeeds("ip link set lo up");
        host
    }

    fn command(line: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, line: &str) -> Output {
        let done = self.namespace.run(|| Host::command(line).output());
        done.unwrap().unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    pub(crate) fn succeeds(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(
            output.status.success(),
            "{line}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// A program that runs until it is told to end.
    pub(crate) fn start(&self, line: &str) -> Running {
        let spawned = self.namespace.run(|| {
            Host::command(line)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
        });
        Running(Some(
            spawned.unwrap().unwrap_or_else(|error| panic!("{line}: {error}")),
        ))
    }

    pub(crate) fn is_listened_at(&self, port: u16) -> bool {
        let table = self.namespace.run(|| {
            ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/thread-self/net/{table}")))
        });
        let wanted = format!(":{port:04X}");
        let tables = table.unwrap().map(|table| table.unwrap_or_default());
        tables.iter().flat_map(|table| table.lines()).any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().is_some_and(|local| local.ends_with(&wanted));
            local && fields.nth(1) == Some("0A")
        })
    }
}

/// A running program; it ends with this value.
pub(crate) struct Running(pub(crate) Option<Child>);

impl Running {
    /// Waits until the program ends by itself.
    fn wait(mut self) {
        let mut child = self.0.take().expect("it runs until now");
        assert!(child.wait().unwrap().success());
    }

    /// Tells the program to end, as Ctrl-C does.
    pub(crate) fn end(mut self) -> Output {
        let child = self.0.take().expect("it runs until now");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        child.wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Checks a stream; iperf3 does not wait for data in flight at the end.
pub(crate) fn check_stream(line: &str, report: &Value, len: u64) {
    let bytes = |sum: &str| report["end"][sum]["bytes"].as_u64();
    assert!(bytes("sum_sent") >= Some(len), "{line}: {report}");
    assert!(bytes("sum_received") >= Some(len / 2), "{line}: {report}");
}

/// The report of iperf3. Each measurement has a new server: a server closes its port after a
/// client, and resets clients that connect meanwhile.
pub(crate) fn measure(client: &Host, server: &Host, line: &str) -> Value {
    let serving = server.start("iperf3 -s -1 -p 5201");
    eventually("iperf3's server", || server.is_listened_at(5201));
    let report = serde_json::from_str(&client.succeeds(line)).unwrap();
    serving.wait();
    report
}

#[test]
#[ignore = "needs namespaces, tun, ip, iperf3"]
fn iperf3_measures_streams_and_datagrams() {
    const LEN: u64 = 20 << 20;
    for mtu in [1500, 9000] {
        let hosts = Hosts::new(mtu);
        let [client, server] = &hosts.hosts;
        for to in [V4[1], V6[1]] {
            for more in ["", "-R"] {
                let line = format!("iperf3 -c {to} -p 5201 -J -n {LEN} {more}");
                let report = measure(client, server, &line);
                check_stream(&line, &report, LEN);
                let size = report["start"]["tcp_mss_default"].as_u64().unwrap();
                assert_eq!(size > 8000, mtu == 9000, "{line}: segments of {size}");
            }
            let line = format!("iperf3 -c {to} -p 5201 -J -u -b 20M -n 2M");
            let report = measure(client, server, &line);
            let count = |name: &str| report["end"]["sum"][name].as_u64().unwrap();
            assert!(count("packets") > 100, "{line}: {report}");
            // A server without processor time for a while has no room for datagrams in that time.
            assert!(count("lost_packets") < count("packets") / 5, "{line}: {report}");
        }
    }
}

#[test]
#[ignore = "needs root, namespaces, tun, ip, nginx, curl"]
fn curl_fetches_from_nginx() {
    let hosts = Hosts::new(1500);
    let [client, server] = &hosts.hosts;
    let page: Vec<u8> = (0..5_000_000_u32).map(|at| (at ^ (at >> 9)) as u8).collect();
    fs::write(hosts.file("page"), &page).unwrap();
    let root = hosts.fabrics.0.path().display().to_string();
    let settings = format!(
        "daemon off; master_process off; pid {root}/nginx.pid; error_log {root}/nginx.log;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {root}/b; proxy_temp_path {root}/p;\n\
         fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
         server {{ listen 0.0.0.0:8080; listen [::]:8080; root {root}; }} }}\n"
    );
    fs::write(hosts.file("nginx.conf"), settings).unwrap();
    let _serving = server.start(&format!("nginx -p {root} -c {root}/nginx.conf"));
    eventually("nginx", || server.is_listened_at(8080));
    for to in [V4[1].to_owned(), format!("[{}]", V6[1])] {
        let got = hosts.file("got");
        client.succeeds(&format!(
            "curl -g -sS --fail --max-time 60 -o {} http://{to}:8080/page",
            got.display()
        ));
        assert!(fs::read(&got).unwrap() == page, "{to}");
    }
}

#[test]
#[ignore = "needs namespaces, tun, ip, ping"]
fn pings_of_any_length_and_to_group_are_answered() {
    for mtu in [1500, 9000] {
        let hosts = Hosts::new(mtu);
        let [client, other] = &hosts.hosts;
        for to in [V4[1], V6[1]] {
            // In one packet, and in fragments.
            for len in [56, 1400, 20_000] {
                client.succeeds(&format!("ping -c 2 -i 0.2 -w 30 -s {len} {to}"));
            }
        }
        // Neighbour discovery has resolved the other host's hardware address.
        let neighbours = client.succeeds("ip -6 neigh show dev toe0");
        assert!(neighbours.contains(V6[1]), "{neighbours}");
        // All nodes of the link: the other host answers too, as a duplicate or alone.
        eventually("a link-local address that is no longer tried", || {
            !client
                .succeeds("ip -6 addr show dev toe0 scope link")
                .contains("tentative")
        });
        let link_local = other.succeeds("ip -6 -o addr show dev toe1 scope link");
        let address = link_local
            .split_whitespace()
            .nth(3)
            .expect("a link-local address");
        let address = address.split('/').next().unwrap().to_owned();
        eventually("an answer of the group", || {
            text(&client.run("ping -c 2 -i 0.2 -w 2 ff02::1%toe0").stdout).contains(&address)
        });
    }
}

#[test]
#[ignore = "needs namespaces, tun, ip, ping"]
fn datagram_to_group_reaches_its_members() {
    let hosts = Hosts::new(1500);
    let [sender, member] = &hosts.hosts;
    let group = Ipv4Addr::new(239, 7, 7, 7);
    let joined = member
        .namespace
        .run(|| -> std::io::Result<UdpSocket> {
            let socket = UdpSocket::bind((group, 7007))?;
            socket.join_multicast_v4(&group, &V4[1].parse().unwrap())?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(socket)
        })
        .unwrap()
        .unwrap();
    sender.succeeds("ip route add 239.0.0.0/8 dev toe0");
    let socket = sender
        .namespace
        .run(|| UdpSocket::bind((V4[0], 0)))
        .unwrap()
        .unwrap();
    // Before that, the process of the first interface may not know the second.
    sender.succeeds(&format!("ping -c 1 -w 30 {}", V4[1]));
    socket.send_to(b"to the group", (group, 7007)).unwrap();
    let mut datagram = [0; 64];
    let (len, from) = joined.recv_from(&mut datagram).unwrap();
    assert_eq!(&datagram[..len], b"to the group");
    assert_eq!(from, socket.local_addr().unwrap());
}

pub(crate) fn hardware_address(host: &Host) -> [u8; 6] {
    let mut interface = Interface::open(&host.namespace, host.interface).unwrap();
    interface.state().unwrap().address
}

/// Waits until tcpdump reports that it has opened its interface.
pub(crate) fn tcpdump(host: &Host, file: &Path, filter: &str) -> Running {
    let line = format!(
        "tcpdump -i {} -U --immediate-mode -w {} {filter}",
        host.interface,
        file.display()
    );
    let running = host.start(&line);
    eventually("tcpdump's file", || {
        fs::metadata(file).is_ok_and(|file| file.len() >= 24)
    });
    running
}

pub(crate) fn read_back(host: &Host, file: &Path, more: &str) -> String {
    host.succeeds(&format!("tcpdump -e -nn -r {} {more}", file.display()))
}

#[test]
#[ignore = "needs root, namespaces, tun, ip, ping, tcpdump"]
fn tcpdump_on_promiscuous_interface_sees_traffic() {
    let hosts = Hosts::new(1500);
    let [client, server] = &hosts.hosts;
    let file = hosts.file("seen.pcap");
    let recording = tcpdump(server, &file, "icmp");
    assert!(
        server.succeeds("ip -d link show toe1").contains("promiscuity 1"),
        "tcpdump has switched it"
    );
    client.succeeds(&format!("ping -c 5 -i 0.2 -w 30 {}", V4[1]));
    eventually("what was recorded", || {
        let seen = read_back(server, &file, "");
        // It repeats a request whose answer is late.
        seen.matches("echo request").count() >= 5 && seen.matches("echo reply").count() >= 5
    });
    recording.end();
}
