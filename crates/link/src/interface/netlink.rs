//! One request to the kernel's routing tables and its answer.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Room for an answer. An interface takes 1.5 KB, and more with many queues.
const MAX_ANSWER: usize = 32 << 10;
/// Most foreign answers before the request's answer counts as missing.
const MAX_STRAY: usize = 16;

/// A socket to the routing tables of one network namespace.
#[derive(Debug)]
pub(super) struct Channel {
    socket: OwnedFd,
    sequence: u32,
}

/// The kernel's answer.
#[derive(Debug)]
pub(super) enum Reply {
    Done,
    Message(RouteNetlinkMessage),
}

/// Whether an existing object is an error for a request that creates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unless {
    Never,
    Exists,
}

impl Channel {
    /// Opens a channel in the calling thread's namespace.
    pub(super) fn open() -> Result<Channel, Errno> {
        let socket = net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // NETLINK_ROUTE is 0
        )?;
        // Accepts answers of the kernel only.
        net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Channel { socket, sequence: 0 })
    }

    /// Sends a request and takes the answer, which the kernel gives during the
    /// send.
    pub(super) fn call(&mut self, request: RouteNetlinkMessage, unless: Unless) -> Result<Reply, Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let asks = matches!(request, RouteNetlinkMessage::GetLink(_));
        let mut header = NetlinkHeader::default();
        header.sequence_number = self.sequence;
        header.flags = NLM_F_REQUEST;
        if !asks {
            header.flags |= NLM_F_ACK;
        }
        if unless == Unless::Exists {
            header.flags |= NLM_F_CREATE | NLM_F_EXCL;
        }
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        net::send(&self.socket, &bytes, SendFlags::empty())?;
        match self.answer() {
            Err(Errno::EXIST) if unless == Unless::Exists => Ok(Reply::Done),
            answer => answer,
        }
    }

    fn answer(&self) -> Result<Reply, Errno> {
        let mut buffer = vec![MaybeUninit::uninit(); MAX_ANSWER];
        for _ in 0..MAX_STRAY {
            let ((bytes, _), len) =
                net::recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT | RecvFlags::TRUNC)?;
            if len > bytes.len() {
                return Err(Errno::MSGSIZE);
            }
            let message =
                NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).map_err(|_| Errno::BADMSG)?;
            if message.header.sequence_number != self.sequence {
                continue;
            }
            return match message.payload {
                NetlinkPayload::Error(error) => match error.raw_code() {
                    0 => Ok(Reply::Done),
                    code => Err(Errno::from_raw_os_error(code.saturating_neg())),
                },
                NetlinkPayload::InnerMessage(message) => Ok(Reply::Message(message)),
                _ => Err(Errno::BADMSG),
            };
        }
        Err(Errno::BADMSG)
    }
}
