//! The lists of TCP sockets in `/proc/net/tcp` and `/proc/net/tcp6`, for programs of a node. They are the
//! kernel's, and behind them the node's, in the kernel's form. Inodes are those of `/proc/PID/fd`, by which
//! programs find out which process has a socket. The Unix socket that stands for a connection is left out of
//! `/proc/net/unix`.

use core::ffi::{CStr, c_int};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use toehold_node::control::{SocketState, SocketStatus};

use crate::inside::{Inside, is_inside};
use crate::{node, start, table};

/// PROC_SUPER_MAGIC.
const PROC: u64 = 0x9fa0;

/// Bytes of a line, without its end.
const WIDTH: usize = 149;

/// Bytes of the kernel's list that are read, at most: more sockets than descriptors.
const LONGEST: u64 = 256 << 20;

/// The lists that the node's sockets concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Ipv4,
    Ipv6,
    Unix,
}

impl List {
    const ALL: [(List, &'static str); 3] = [
        (List::Ipv4, "/net/tcp"),
        (List::Ipv6, "/net/tcp6"),
        (List::Unix, "/net/unix"),
    ];
}

/// Returns a descriptor to read in place of a file that the program has opened for reading; `None`
/// if that is the file itself.
#[inline]
pub(crate) fn instead_of(number: c_int, path: &CStr) -> Option<OwnedFd> {
    let path = path.to_bytes();
    let may_be_list = [&b"tcp"[..], b"tcp6", b"unix"]
        .iter()
        .any(|name| path.ends_with(name));
    match may_be_list && start::is_wanted() && !is_inside() {
        true => with_nodes(number),
        false => None,
    }
}

#[cold]
fn with_nodes(number: c_int) -> Option<OwnedFd> {
    let _inside = Inside::enter();
    let descriptor = table::borrow(&number);
    let is_proc = rustix::fs::fstatfs(descriptor).is_ok_and(|stat| stat.f_type as u64 == PROC);
    // Whatever links or folders led to it.
    let name = std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    let which = list_of_own_network(name.to_str()?).filter(|_| is_proc)?;
    let mut kernels = String::new();
    let file = File::from(rustix::io::fcntl_dupfd_cloexec(descriptor, 0).ok()?);
    file.take(LONGEST).read_to_string(&mut kernels).ok()?;
    let sockets = node::sockets();
    let listed = match which {
        List::Unix => without(&kernels, &sockets),
        _ => list(&kernels, &sockets, which == List::Ipv6),
    };
    let mut file = File::from(rustix::fs::memfd_create(c"tcp", MemfdFlags::CLOEXEC).ok()?);
    file.write_all(listed.as_bytes()).ok()?;
    file.rewind().ok()?;
    Some(file.into())
}

/// Which list a file in `/proc` is, if it is one of this process's network namespace.
fn list_of_own_network(name: &str) -> Option<List> {
    let is = |(list, end): (List, &str)| Some((list, name.strip_suffix(end)?));
    let (list, process) = List::ALL.into_iter().find_map(is)?;
    let network = |process: &str| std::fs::read_link(format!("{process}/ns/net"));
    match (network(process), network("/proc/self")) {
        (Ok(of_process), Ok(own)) if of_process == own => Some(list),
        // One whose namespaces this process may not see is another user's.
        _ => None,
    }
}

/// The kernel's list of Unix sockets without those that stand for connections.
fn without(kernels: &str, sockets: &[SocketStatus]) -> String {
    let inodes: HashSet<u64> = sockets.iter().map(|socket| socket.inode).collect();
    let stands_for_connection = |line: &&str| {
        let inode = line.split_whitespace().nth(6).map(str::parse);
        inode.is_some_and(|inode| inode.is_ok_and(|inode| inode != 0 && inodes.contains(&inode)))
    };
    let mut listed = String::with_capacity(kernels.len());
    for line in kernels.lines().filter(|line| !stands_for_connection(line)) {
        let _ = writeln!(listed, "{line}");
    }
    listed
}

/// The kernel's list and the node's sockets of a family behind it.
fn list(kernels: &str, sockets: &[SocketStatus], is_ipv6: bool) -> String {
    let mut listed = String::with_capacity(kernels.len() + sockets.len() * (WIDTH + 1));
    let own = |socket: &&SocketStatus| socket.ipv6 == is_ipv6;
    let mut beside = Vec::new();
    let mut number = 0;
    for line in kernels.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (local, queues) = match words[..] {
            [_, local, _, "0A", queues, ..] => (local, queues),
            _ => {
                let _ = writeln!(listed, "{line}");
                number += usize::from(words.first().is_some_and(|word| word.ends_with(':')));
                continue;
            }
        };
        // A listener of the node's stands beside it, with connections of its own that wait.
        let waiting = sockets.iter().filter(own).filter(|socket| is_listener(socket));
        let waiting: Vec<_> = waiting
            .filter(|socket| end(socket.local, is_ipv6) == local)
            .collect();
        let more: u32 = waiting.iter().map(|socket| socket.receive_queue).sum();
        let _ = match queues.split_once(':').filter(|_| more > 0) {
            Some((sent, received)) => {
                let received = u32::from_str_radix(received, 16).unwrap_or(0);
                let all = format!("{sent}:{:08X}", received.saturating_add(more));
                writeln!(listed, "{}", line.replacen(queues, &all, 1))
            }
            None => writeln!(listed, "{line}"),
        };
        beside.push(local.to_owned());
        number += 1;
    }
    for socket in sockets.iter().filter(own) {
        let stands_beside = || beside.contains(&end(socket.local, is_ipv6));
        // The first shard has all listeners.
        if is_listener(socket) && (socket.shard != 0 || stands_beside()) {
            continue;
        }
        let _ = writeln!(listed, "{}", line(number, socket, is_ipv6));
        number += 1;
    }
    listed
}

/// The node's sockets of a family that the kernel does not list.
pub(crate) fn of_node(is_ipv6: bool) -> Vec<SocketStatus> {
    let mut sockets = node::sockets();
    sockets.retain(|socket| socket.ipv6 == is_ipv6);
    if sockets.iter().any(is_listener) {
        let name = if is_ipv6 {
            "/proc/self/net/tcp6"
        } else {
            "/proc/self/net/tcp"
        };
        let kernels = std::fs::read_to_string(name).unwrap_or_default();
        let is_local = |line: &str, local: &str| line.split_whitespace().nth(1) == Some(local);
        sockets.retain(|socket| {
            let local = end(socket.local, is_ipv6);
            let stands_beside = || {
                let mut listeners = kernels
                    .lines()
                    .filter(|line| line.split_whitespace().nth(3) == Some("0A"));
                listeners.any(|line| is_local(line, &local))
            };
            !is_listener(socket) || socket.shard == 0 && !stands_beside()
        });
    }
    sockets
}

fn is_listener(socket: &SocketStatus) -> bool {
    socket.state == SocketState::Listen
}

/// A line, as the kernel writes it.
fn line(number: usize, socket: &SocketStatus, is_ipv6: bool) -> String {
    let any = SocketAddr::new(
        match is_ipv6 {
            true => std::net::Ipv6Addr::UNSPECIFIED.into(),
            false => std::net::Ipv4Addr::UNSPECIFIED.into(),
        },
        0,
    );
    let remote = socket.remote.unwrap_or(any);
    let sent = if is_listener(socket) { 0 } else { socket.send_queue };
    let timer = socket.timers.first();
    let kind = timer.map_or(0, |timer| self::timer(&timer.kind));
    let (left, retries) = timer.map_or((0, 0), |timer| (ticks(timer.expires_in), timer.retries));
    let mut line = format!(
        "{number:4}: {} {} {:02X} {sent:08X}:{:08X} {kind:02X}:{left:08X} {retries:08X} {:5} {:8} {} 1 {:016x}",
        end(socket.local, is_ipv6),
        end(remote, is_ipv6),
        state(socket.state),
        socket.receive_queue,
        socket.uid.unwrap_or(0),
        0,
        socket.inode,
        0,
    );
    if let Some(tcp) = &socket.tcp {
        let segment = u32::from(tcp.mss).max(1);
        let threshold = match tcp.ssthresh {
            u32::MAX => -1,
            bytes => i64::from(bytes / segment),
        };
        let _ = write!(line, " {} 4 0 {} {threshold}", ticks(tcp.rto), tcp.cwnd / segment);
    } else {
        line.push_str(" 100 0 0 10 0");
    }
    match is_ipv6 {
        true => line,
        false => format!("{line:<WIDTH$}"),
    }
}

/// A time in hundredths of a second, the unit of such files.
fn ticks(span: Duration) -> u128 {
    span.as_millis() / 10
}

/// An address and a port, in the bytes' order of the machine as the kernel writes them.
fn end(at: SocketAddr, is_ipv6: bool) -> String {
    let ip = match (at.ip(), is_ipv6) {
        (IpAddr::V4(ip), true) => ip.to_ipv6_mapped().into(),
        (ip, _) => ip,
    };
    let mut text = String::with_capacity(37);
    let mut add = |word: &[u8]| {
        let word = word.try_into().map_or(0, u32::from_ne_bytes);
        let _ = write!(text, "{word:08X}");
    };
    match ip {
        IpAddr::V4(ip) => add(&ip.octets()),
        IpAddr::V6(ip) => ip.octets().chunks(4).for_each(add),
    }
    let _ = write!(text, ":{:04X}", at.port());
    text
}

/// The kernel's number of a timer.
pub(crate) fn timer(kind: &str) -> u8 {
    match kind {
        "retransmission" | "tail-probe" | "reordering" => 1,
        "time-wait" => 3,
        "persist" => 4,
        _ => 2,
    }
}

/// The kernel's number of a state.
pub(crate) fn state(state: SocketState) -> u8 {
    match state {
        SocketState::Estab => 1,
        SocketState::SynSent => 2,
        SocketState::SynRecv => 3,
        SocketState::FinWait1 => 4,
        SocketState::FinWait2 => 5,
        SocketState::TimeWait => 6,
        SocketState::Closed => 7,
        SocketState::CloseWait => 8,
        SocketState::LastAck => 9,
        SocketState::Listen => 10,
        SocketState::Closing => 11,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";

    fn listener(local: &str, waiting: u32) -> SocketStatus {
        SocketStatus::listener(local.parse().unwrap(), waiting, 128)
    }

    fn connection() -> SocketStatus {
        SocketStatus {
            state: SocketState::Estab,
            receive_queue: 0x1234,
            send_queue: 5,
            remote: Some("10.77.0.2:40000".parse().unwrap()),
            uid: Some(1000),
            inode: 4711,
            ..listener("10.77.0.1:80", 0)
        }
    }

    #[test]
    fn connection_of_node_is_listed_as_the_kernel_lists_one() {
        let listed = list(&format!("{HEAD}\n"), &[connection()], false);
        let line = listed.lines().nth(1).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let expected = [
            "0:",
            "01004D0A:0050",
            "02004D0A:9C40",
            "01",
            "00000005:00001234",
            "00:00000000",
            "00000000",
            "1000",
            "0",
            "4711",
        ];
        assert_eq!(words[..10], expected);
        assert_eq!((line.len(), words.len()), (WIDTH, 17));
        assert!(list(HEAD, &[connection()], true).lines().count() == 1);
    }

    #[test]
    fn socket_of_ipv6_has_mapped_addresses() {
        let mapped = SocketStatus {
            ipv6: true,
            ..connection()
        };
        let listed = list(HEAD, &[mapped], true);
        let line = listed.lines().nth(1).unwrap();
        assert!(
            line.contains(" 0000000000000000FFFF000001004D0A:0050 0000000000000000FFFF000002004D0A:9C40 01 ")
        );
    }

    #[test]
    fn listener_beside_the_kernels_is_listed_once_with_all_that_wait() {
        let kernels = format!(
            "{HEAD}\n   0: 01004D0A:0050 00000000:0000 0A 00000000:00000001 00:00000000 00000000     0        0 99 1 0 100 0 0 10 0\n"
        );
        let in_other_shard = SocketStatus {
            shard: 1,
            ..listener("10.77.0.1:80", 1)
        };
        let sockets = [
            listener("10.77.0.1:80", 2),
            in_other_shard,
            listener("10.77.0.1:81", 0),
        ];
        let listed = list(&kernels, &sockets, false);
        let lines: Vec<&str> = listed.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].contains(" 0A 00000000:00000004 ") && lines[1].contains(" 99 "));
        assert!(lines[2].starts_with("   1: 01004D0A:0051 00000000:0000 0A "));
    }

    #[test]
    fn only_lists_of_own_network_are_changed() {
        let own = format!("/proc/{}", std::process::id());
        for (list, name) in List::ALL {
            assert_eq!(list_of_own_network(&format!("{own}{name}")), Some(list));
        }
        for other in [
            format!("{own}/net/udp"),
            "/proc/0/net/tcp".to_owned(),
            "/tcp".to_owned(),
        ] {
            assert_eq!(list_of_own_network(&other), None);
        }
    }

    #[test]
    fn unix_sockets_that_stand_for_connections_are_not_listed() {
        let kernels = "Num       RefCount Protocol Flags    Type St Inode Path
0: 00000003 00000000 00000000 0001 03 4711
0: 00000003 00000000 00000000 0001 03 4712 /run/x
0: 00000003 00000000 00000000 0001 03     0
";
        let listed = without(kernels, &[connection(), listener("10.77.0.1:80", 0)]);
        assert_eq!(
            listed,
            kernels.replace("0: 00000003 00000000 00000000 0001 03 4711\n", "")
        );
    }
}
