//! The kernel's TCP sockets, with the same setup in every candidate.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::sockopt::{TcpCongestion, TcpMaxSeg};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, connect, setsockopt, socket};

use super::{Connection, Context, TestbedError};
use crate::workload::Workload;

/// Headers of IPv4 and TCP without options, in bytes.
const HEADERS: u16 = 40;
/// The kernel's range for a limit of segments, in bytes.
const SEGMENTS: RangeInclusive<u16> = 88..=32_767;

/// Creates sockets at one address, with the congestion control of the settings and without Nagle's
/// algorithm.
#[derive(Debug)]
pub(super) struct KernelTcp {
    /// The listening address of servers.
    address: Ipv4Addr,
    congestion: OsString,
    /// Largest segment, in bytes of data and options, if the path does not determine it.
    segment: Option<u32>,
}

/// A listener, with the workload of its connections.
#[derive(Debug)]
pub(super) struct Listener {
    listener: TcpListener,
    carries_data: bool,
}

impl KernelTcp {
    /// Creates the value after trying the congestion control on a socket.
    pub(super) fn new(address: Ipv4Addr, context: &Context) -> Result<Self, TestbedError> {
        let congestion = OsString::from(&context.settings.congestion);
        let attempt = socket(
            AddressFamily::Inet,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .map_err(|error| TestbedError::failed("make a TCP socket", error))?;
        setsockopt(&attempt, TcpCongestion, &congestion).map_err(|error| {
            let name = &context.settings.congestion;
            TestbedError::Unavailable(format!(
                "cannot set congestion control `{name}` on a socket ({error}): load it with \
                 `modprobe tcp_{name}` and allow it in net.ipv4.tcp_allowed_congestion_control"
            ))
        })?;
        Ok(Self {
            address,
            congestion,
            segment: None,
        })
    }

    /// Limits the sockets to IP packets of at most `mtu` bytes.
    pub(super) fn limited_to(mut self, mtu: u16) -> Result<Self, TestbedError> {
        let segment = mtu.saturating_sub(HEADERS);
        if !SEGMENTS.contains(&segment) {
            let (least, most) = (SEGMENTS.start() + HEADERS, SEGMENTS.end() + HEADERS);
            return Err(TestbedError::Unavailable(format!(
                "the kernel's sockets can be limited to an MTU from {least} to {most}: leave {mtu} out of `mtu`"
            )));
        }
        self.segment = Some(segment.into());
        Ok(self)
    }

    pub(super) fn listen(&self, workload: &Workload) -> io::Result<(Listener, String)> {
        let listener = TcpListener::bind((self.address, 0))?;
        // Accepted sockets inherit both.
        setsockopt(&listener, TcpCongestion, &self.congestion)?;
        self.limit(&listener)?;
        let address = listener.local_addr()?.to_string();
        Ok((
            Listener {
                listener,
                carries_data: carries_data(workload),
            },
            address,
        ))
    }

    pub(super) fn connect(&self, address: &str, workload: &Workload) -> io::Result<TcpStream> {
        let address: SocketAddrV4 = address.parse().map_err(io::Error::other)?;
        if !carries_data(workload) {
            return TcpStream::connect(address);
        }
        let socket = socket(
            AddressFamily::Inet,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        // Before connect: a socket that had BBR for a moment stays paced.
        setsockopt(&socket, TcpCongestion, &self.congestion)?;
        self.limit(&socket)?;
        connect(socket.as_raw_fd(), &SockaddrIn::from(address))?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Sets the limit, which the handshake also announces to the other side.
    fn limit(&self, socket: &impl AsFd) -> io::Result<()> {
        match self.segment {
            Some(segment) => Ok(setsockopt(socket, TcpMaxSeg, &segment)?),
            None => Ok(()),
        }
    }
}

impl Listener {
    pub(super) fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.listener.accept()?;
        if self.carries_data {
            stream.set_nodelay(true)?;
        }
        Ok(stream)
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        self.listener.set_nonblocking(true)
    }
}

/// Bytes that a connection's other side has not acknowledged, from the kernel's table of sockets.
/// Reading it takes some ten microseconds, and no unsafe code.
pub(super) fn unacknowledged(stream: &TcpStream) -> io::Result<usize> {
    let ports = [stream.local_addr()?.port(), stream.peer_addr()?.port()];
    let table = fs::read_to_string("/proc/thread-self/net/tcp")?;
    let waiting = table.lines().find_map(|line| send_queue(line, ports));
    waiting.ok_or_else(|| io::Error::other("the kernel does not list the connection"))
}

/// Segments retransmitted in this thread's network namespace, by all of its connections.
pub(super) fn retransmits() -> Option<u64> {
    resent(&fs::read_to_string("/proc/thread-self/net/snmp").ok()?)
}

/// The number of retransmissions in the kernel's table, which has two lines with `Tcp:`: the names
/// and the numbers.
fn resent(table: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|name| name == "RetransSegs")?;
    numbers.split_whitespace().nth(at)?.parse().ok()
}

/// The send queue's length, if this is the connection's line: `0: 0101A8C0:1F90 0201A8C0:C350 01
/// 00000010:00000000 …`.
fn send_queue(line: &str, ports: [u16; 2]) -> Option<usize> {
    let mut fields = line.split_whitespace().skip(1);
    let mut next_pair = || fields.next()?.split_once(':');
    for port in ports {
        let (_, found) = next_pair()?;
        (u16::from_str_radix(found, 16).ok()? == port).then_some(())?;
    }
    let _state = fields.next()?;
    let (waiting, _) = fields.next()?.split_once(':')?;
    usize::from_str_radix(waiting, 16).ok()
}

/// Whether options for data matter; they would slow down workloads about connections only.
fn carries_data(workload: &Workload) -> bool {
    *workload != Workload::Connect
}

impl Connection for TcpStream {
    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::getsockopt;
    use std::io::{Read, Write};

    fn local() -> KernelTcp {
        KernelTcp {
            address: Ipv4Addr::LOCALHOST,
            congestion: "reno".into(),
            segment: None,
        }
    }

    #[test]
    fn limits_are_accepted_within_kernel_range() {
        for (mtu, is_taken) in [(127, false), (128, true), (32_807, true), (32_808, false)] {
            let Ok(tcp) = local().limited_to(mtu) else {
                assert!(!is_taken, "{mtu}");
                continue;
            };
            assert!(is_taken, "{mtu}");
            tcp.listen(&Workload::Bulk).unwrap();
        }
    }

    #[test]
    fn packets_respect_configured_mtu() {
        let tcp = local().limited_to(600).unwrap();
        let workload = Workload::Bulk;
        let (listener, address) = tcp.listen(&workload).unwrap();
        let client = tcp.connect(&address, &workload).unwrap();
        let server = listener.accept().unwrap();
        for stream in [client, server] {
            let segment = getsockopt(&stream, TcpMaxSeg).unwrap();
            assert!((500..=560).contains(&segment), "{segment}");
        }
    }

    #[test]
    fn retransmissions_are_read_from_kernel_table() {
        let table = "Ip: A B\nIp: 1 2\nTcp: RtoMin OutSegs RetransSegs InErrs\nTcp: 200 50 7 0\n";
        assert_eq!(resent(table), Some(7));
        assert_eq!(resent("Ip: A\nIp: 1\n"), None);
        assert!(retransmits().is_some());
    }

    #[test]
    fn unacknowledged_bytes_are_in_send_queue() {
        let line = "   0: 0101A8C0:1F90 0201A8C0:C350 01 0000010A:00000007 00:00000000 00000000 0 0 1";
        assert_eq!(send_queue(line, [0x1f90, 0xc350]), Some(0x10a));
        assert_eq!(send_queue(line, [0xc350, 0x1f90]), None);
        assert_eq!(
            send_queue("  sl  local_address rem_address   st tx_queue", [1, 2]),
            None
        );

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        assert_eq!(unacknowledged(&client).unwrap(), 0);
        client.set_nonblocking(true).unwrap();
        // More than all buffers hold.
        while client.write(&[0; 1 << 16]).is_ok() {}
        assert!(unacknowledged(&client).unwrap() > 0);
        drop(client);
        server.read_to_end(&mut Vec::new()).unwrap();
    }
}
