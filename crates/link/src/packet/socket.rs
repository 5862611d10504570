//! The system calls of packet sockets.

use std::mem::{size_of, size_of_val};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libc::{c_int, packet_mreq, sock_filter, sock_fprog, sockaddr_ll, tpacket_stats};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::virtio_net::last_error;

/// Buffer for received frames, and for frames that the interface has not sent yet,
/// in bytes.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_BUFFER: usize = 2 << 20;

/// A packet socket of one interface.
#[derive(Debug)]
pub(super) struct Socket {
    descriptor: OwnedFd,
    index: u32,
}

/// The failed step and its error.
pub(super) type Failure = (&'static str, Errno);

impl Socket {
    /// Opens a socket in the namespace of the calling thread. From the first frame
    /// on it gets only frames that `filter` takes.
    pub(super) fn open(index: u32, filter: &[sock_filter]) -> Result<Socket, Failure> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let descriptor = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .map_err(|error| ("open a packet socket", error))?;
        let socket = Socket { descriptor, index };
        socket.set_filter(filter)?;
        for (name, action) in [
            (libc::PACKET_VNET_HDR, "set the header"),
            (libc::PACKET_IGNORE_OUTGOING, "set the direction"),
        ] {
            let on: c_int = 1;
            socket
                .set(libc::SOL_PACKET, name, &on)
                .map_err(|error| (action, error))?;
        }
        // Without the right to more, the usual limit applies.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket.descriptor, RECEIVE_BUFFER);
        let _ = sockopt::set_socket_send_buffer_size_force(&socket.descriptor, SEND_BUFFER);
        socket.bind().map_err(|error| ("take frames", error))?;
        Ok(socket)
    }

    /// Replaces the filter for frames from now on.
    pub(super) fn set_filter(&self, filter: &[sock_filter]) -> Result<(), Failure> {
        let program = sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_ptr().cast_mut(),
        };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
            .map_err(|error| ("set the filter", error))
    }

    /// Makes the interface take all multicast frames.
    pub(super) fn join_groups(&self) -> Result<(), Failure> {
        self.join(libc::PACKET_MR_ALLMULTI, [0; 6], true)
            .map_err(|error| ("take frames for groups", error))
    }

    /// Makes the interface take all frames.
    pub(super) fn join_all(&self) -> Result<(), Failure> {
        self.join(libc::PACKET_MR_PROMISC, [0; 6], true)
            .map_err(|error| ("take frames for others", error))
    }

    /// Makes the interface take frames for this address, or no longer.
    pub(super) fn join_address(&self, address: [u8; 6], join: bool) -> Result<(), Errno> {
        self.join(libc::PACKET_MR_UNICAST, address, join)
    }

    fn join(&self, kind: c_int, address: [u8; 6], join: bool) -> Result<(), Errno> {
        let mut request = packet_mreq {
            mr_ifindex: self.index as c_int,
            mr_type: kind as u16,
            mr_alen: 6,
            mr_address: [0; 8],
        };
        request.mr_address[..6].copy_from_slice(&address);
        let name = match join {
            true => libc::PACKET_ADD_MEMBERSHIP,
            false => libc::PACKET_DROP_MEMBERSHIP,
        };
        self.set(libc::SOL_PACKET, name, &request)
    }

    /// Returns the number of frames that found the buffer full since the last call.
    pub(super) fn take_drops(&self) -> u64 {
        let mut statistics = tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut len = size_of::<tpacket_stats>() as libc::socklen_t;
        // SAFETY: `found` is a plain structure that outlives the call, and the
        // kernel writes at most `len` bytes, its size.
        let got = unsafe {
            libc::getsockopt(
                self.descriptor.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut len,
            )
        };
        if got == 0 {
            u64::from(statistics.tp_drops)
        } else {
            0
        }
    }

    /// Returns whether the interface was removed, so that the kernel no longer
    /// knows it.
    pub(super) fn is_gone(&self) -> bool {
        let mut address = self.address();
        let mut len = size_of::<sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the value is a plain structure that outlives the call, and the
        // kernel writes at most `len` bytes, its size.
        let got = unsafe {
            libc::getsockname(
                self.descriptor.as_raw_fd(),
                (&raw mut address).cast(),
                &raw mut len,
            )
        };
        got == 0 && address.sll_ifindex != self.index as c_int
    }

    /// Returns whether the interface has a flag, such as `IFF_UP`. Returns `false`
    /// if the query fails.
    pub(super) fn has_flag(&self, flag: c_int) -> bool {
        let Ok(name) = rustix::net::netdevice::index_to_name(&self.descriptor, self.index) else {
            return false;
        };
        // SAFETY: `ifreq` consists of integers, bytes and pointers, for which all
        // zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
            *to = from as libc::c_char;
        }
        // SAFETY: SIOCGIFFLAGS reads and writes a `struct ifreq`. `request` is one
        // and outlives the call.
        unsafe {
            libc::ioctl(
                self.descriptor.as_raw_fd(),
                libc::SIOCGIFFLAGS as libc::Ioctl,
                &raw mut request,
            ) == 0
                && c_int::from(request.ifr_ifru.ifru_flags) & flag != 0
        }
    }

    fn bind(&self) -> Result<(), Errno> {
        let address = self.address();
        // SAFETY: the kernel reads the address, which outlives the call, with the
        // given length.
        let bound = unsafe {
            libc::bind(
                self.descriptor.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        if bound == 0 { Ok(()) } else { Err(last_error()) }
    }

    /// Returns the address of all protocols of the interface.
    fn address(&self) -> sockaddr_ll {
        sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: self.index as c_int,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        }
    }

    fn set<T>(&self, level: c_int, name: c_int, value: &T) -> Result<(), Errno> {
        // SAFETY: the kernel reads `value`, which outlives the call, with the given
        // length. A program's pointer and length come from one slice, which is also
        // borrowed for the call.
        let set = unsafe {
            libc::setsockopt(
                self.descriptor.as_raw_fd(),
                level,
                name,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        if set == 0 { Ok(()) } else { Err(last_error()) }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
