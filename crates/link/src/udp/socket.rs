//! The system calls of a link over UDP.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::UdpError;
use super::inbox::{BUFFER_LEN, Message};
use super::settings::canonical;

// Linux constants that libc lacks or hides.
const UDP_SEGMENT: libc::c_int = 103;
const UDP_GRO: libc::c_int = 104;

/// Buffer in the kernel for each direction, in bytes. The kernel has a bound of its
/// own.
const KERNEL_BUFFER: usize = 4 << 20;
/// Most messages of a sending call.
pub(super) const MAX_SENT: usize = 16;
/// Most messages of a receiving call.
pub(super) const MAX_RECEIVED: usize = 16;

#[derive(Debug)]
pub(super) struct Socket {
    descriptor: OwnedFd,
    is_v6: bool,
    /// Sockets of IPv4 and IPv6 for path queries, which send nothing. They are
    /// connected to one peer after the other: only a connected socket knows its
    /// path's MTU.
    probes: [Option<OwnedFd>; 2],
}

/// An address in the kernel's form.
#[derive(Clone, Copy)]
pub(super) enum Name {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

/// A message to send: one datagram, or several of equal length with a shorter one
/// at the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) bytes: &'a [u8],
    /// Length of each datagram; zero for a single one.
    pub(super) segment: u16,
}

/// A control message with the length of datagrams.
#[repr(C)]
#[derive(Clone, Copy)]
struct Segment {
    header: libc::cmsghdr,
    size: u16,
    unused: [u8; 6],
}
const _: () = assert!(size_of::<Segment>() == 24 && align_of::<Segment>() == 8);

/// Room for control messages. Only one is expected.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

impl Socket {
    pub(super) fn open(bind: SocketAddr) -> Result<Socket, UdpError> {
        let is_v6 = bind.is_ipv6();
        let family = if is_v6 {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let system = |action| move |error| UdpError::System { action, error };
        let descriptor = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)
            .map_err(system("open a UDP socket"))?;
        if is_v6 {
            sockopt::set_ipv6_v6only(&descriptor, false).map_err(system("serve IPv4 too"))?;
        }
        // A smaller buffer also works.
        let _ = sockopt::set_socket_recv_buffer_size_force(&descriptor, KERNEL_BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&descriptor, KERNEL_BUFFER));
        let _ = sockopt::set_socket_send_buffer_size_force(&descriptor, KERNEL_BUFFER)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&descriptor, KERNEL_BUFFER));
        let probe = |family| rustix::net::socket_with(family, SocketType::DGRAM, flags, None).ok();
        let socket = Socket {
            descriptor,
            is_v6,
            probes: [probe(AddressFamily::INET), probe(AddressFamily::INET6)],
        };
        socket
            .never_fragment()
            .map_err(system("find out what paths carry"))?;
        rustix::net::bind(&socket.descriptor, &bind).map_err(|error| match error {
            Errno::ADDRINUSE => UdpError::InUse(bind),
            Errno::ADDRNOTAVAIL => UdpError::NotLocal(bind),
            error => UdpError::System {
                action: "bind the UDP socket",
                error,
            },
        })?;
        Ok(socket)
    }

    /// Returns the address on which the socket listens.
    pub(super) fn local_address(&self) -> Option<SocketAddr> {
        SocketAddr::try_from(rustix::net::getsockname(&self.descriptor).ok()?).ok()
    }

    /// Lets the kernel join datagrams of a run. Returns `false` if it cannot.
    pub(super) fn join_received(&self) -> bool {
        set(&self.descriptor, libc::SOL_UDP, UDP_GRO, 1).is_ok()
    }

    fn never_fragment(&self) -> Result<(), Errno> {
        if self.is_v6 {
            set(
                &self.descriptor,
                libc::IPPROTO_IPV6,
                libc::IPV6_MTU_DISCOVER,
                libc::IPV6_PMTUDISC_DO,
            )?;
        }
        // A socket of both families has a separate option for IPv4.
        set(
            &self.descriptor,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        )
    }

    /// Returns the MTU of the path to a peer, as far as the kernel knows it. That
    /// is the route's MTU, or less if a router has said so.
    pub(super) fn path_mtu(&self, peer: SocketAddr) -> Option<usize> {
        let peer = canonical(peer);
        let (probe, level, option) = match peer {
            SocketAddr::V4(_) => (&self.probes[0], libc::IPPROTO_IP, libc::IP_MTU),
            SocketAddr::V6(_) => (&self.probes[1], libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        let probe = probe.as_ref()?;
        rustix::net::connect(probe, &peer).ok()?;
        let (mut mtu, mut len): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
        let mtu_at = (&raw mut mtu).cast();
        // SAFETY: both options are an int. `mtu` and `len` outlive the call, and
        // `len` is the size of an int.
        let got = unsafe { libc::getsockopt(probe.as_raw_fd(), level, option, mtu_at, &raw mut len) };
        if got == 0 { usize::try_from(mtu).ok() } else { None }
    }

    pub(super) fn name_of(&self, peer: SocketAddr) -> Name {
        match (canonical(peer), self.is_v6) {
            (SocketAddr::V4(v4), false) => Name::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            (SocketAddr::V4(v4), true) => name_v6(v4.ip().to_ipv6_mapped().octets(), v4.port(), 0),
            (SocketAddr::V6(v6), _) => name_v6(v6.ip().octets(), v6.port(), v6.scope_id()),
        }
    }

    /// Sends messages to one peer. Returns the number that the kernel took.
    pub(super) fn send(&self, to: &Name, messages: &[Outgoing<'_>]) -> Result<usize, Errno> {
        let count = messages.len().min(MAX_SENT);
        let nowhere = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let mut places = [nowhere; MAX_SENT];
        let mut controls = [Segment::of(0); MAX_SENT];
        let mut headers = [empty_header(); MAX_SENT];
        for (at, message) in messages[..count].iter().enumerate() {
            places[at].iov_base = message.bytes.as_ptr().cast_mut().cast();
            places[at].iov_len = message.bytes.len();
            controls[at] = Segment::of(message.segment);
            let header = &mut headers[at].msg_hdr;
            (header.msg_name, header.msg_namelen) = to.raw();
            header.msg_iov = &raw mut places[at];
            header.msg_iovlen = 1;
            if message.segment != 0 {
                header.msg_control = (&raw mut controls[at]).cast();
                header.msg_controllen = size_of::<Segment>() as _;
            }
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: each of the first `count` headers points to a name, an `iovec`
        // and a control message, which live until the end of this function. Each
        // `iovec` points to bytes that are borrowed for as long. The kernel only
        // reads all of them.
        let sent = unsafe {
            libc::sendmmsg(
                self.descriptor.as_raw_fd(),
                headers.as_mut_ptr(),
                count as libc::c_uint,
                flags as _,
            )
        };
        match sent {
            0.. => Ok(sent as usize),
            _ => Err(last_error()),
        }
    }

    /// Receives messages, each into its own part of `bytes`.
    pub(super) fn receive(&self, bytes: &mut [u8], messages: &mut Vec<Message>) -> Result<(), Errno> {
        messages.clear();
        let mut places: [MaybeUninit<libc::iovec>; MAX_RECEIVED] = [MaybeUninit::uninit(); MAX_RECEIVED];
        let mut names = [name_v6_raw(); MAX_RECEIVED];
        let mut controls = [Control([0; 64]); MAX_RECEIVED];
        let mut headers = [empty_header(); MAX_RECEIVED];
        let mut count = 0;
        for (at, buffer) in bytes.chunks_exact_mut(BUFFER_LEN).take(MAX_RECEIVED).enumerate() {
            places[at].write(libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: buffer.len(),
            });
            let header = &mut headers[at].msg_hdr;
            header.msg_name = (&raw mut names[at]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            header.msg_iov = places[at].as_mut_ptr();
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut controls[at]).cast();
            header.msg_controllen = size_of::<Control>() as _;
            count += 1;
        }
        // SAFETY: each of the first `count` headers points to its own name, `iovec`
        // and control buffer, which live until the end of this function. Each
        // `iovec` points to its own part of `bytes`. The kernel writes at most
        // their lengths.
        let received = unsafe {
            libc::recvmmsg(
                self.descriptor.as_raw_fd(),
                headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        if received < 0 {
            return Err(last_error());
        }
        for at in 0..received as usize {
            let header = &headers[at];
            messages.push(Message {
                from: address_of(&names[at]),
                len: (header.msg_len as usize).min(BUFFER_LEN),
                segment: controls[at].segment(header.msg_hdr.msg_controllen),
                is_cut: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            });
        }
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Name {
    fn raw(&self) -> (*mut libc::c_void, libc::socklen_t) {
        let (first, len) = match self {
            Name::V4(name) => ((&raw const *name).cast::<libc::c_void>(), size_of_val(name)),
            Name::V6(name) => ((&raw const *name).cast(), size_of_val(name)),
        };
        (first.cast_mut(), len as libc::socklen_t)
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Name")
    }
}

impl Segment {
    fn of(size: u16) -> Segment {
        Segment {
            header: libc::cmsghdr {
                cmsg_len: (size_of::<libc::cmsghdr>() + size_of::<u16>()) as _,
                cmsg_level: libc::SOL_UDP,
                cmsg_type: UDP_SEGMENT,
            },
            size,
            unused: [0; 6],
        }
    }
}

impl Control {
    /// Returns the length of the datagrams that the kernel joined; zero for a
    /// single one.
    fn segment(&self, len: usize) -> usize {
        const HEADER: usize = size_of::<libc::cmsghdr>();
        let word = |at: usize| self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        let int = |at: usize| word(at).map_or(0, i32::from_ne_bytes);
        let is_ours = len >= HEADER + 4 && int(HEADER - 8) == libc::SOL_UDP && int(HEADER - 4) == UDP_GRO;
        match is_ours {
            true => usize::try_from(int(HEADER)).unwrap_or(0),
            false => 0,
        }
    }
}

fn set(
    descriptor: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> Result<(), Errno> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads an int. `value` is one and outlives the call.
    match unsafe {
        libc::setsockopt(
            descriptor.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            len,
        )
    } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

fn name_v6(address: [u8; 16], port: u16, scope: u32) -> Name {
    Name::V6(libc::sockaddr_in6 {
        sin6_port: port.to_be(),
        sin6_addr: libc::in6_addr { s6_addr: address },
        sin6_scope_id: scope,
        ..name_v6_raw()
    })
}

/// Returns an empty IPv6 name, the longer kind, which has room for both.
fn name_v6_raw() -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
        sin6_scope_id: 0,
    }
}

/// Decodes a name of either family that the kernel wrote.
fn address_of(name: &libc::sockaddr_in6) -> SocketAddr {
    let port = u16::from_be(name.sin6_port);
    let address = if libc::c_int::from(name.sin6_family) == libc::AF_INET {
        // Family and port have equal offsets in both. The IPv4 address follows
        // them.
        std::net::IpAddr::from(name.sin6_flowinfo.to_ne_bytes())
    } else {
        std::net::IpAddr::from(name.sin6_addr.s6_addr)
    };
    canonical(SocketAddr::new(address, port))
}

fn empty_header() -> libc::mmsghdr {
    // SAFETY: `msghdr` consists of pointers and integers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
