//! Toehold's TCP and the kernel's as peers, and two kernels over the same path. The kernel's
//! interface and the other side are members of one fabric.
//!
//! A thread of the side's process, on the side's core, carries the kernel's interface. The path has
//! faults if the workload asks for them. Then the side that is always the kernel's creates its
//! interface again for it.

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use toehold_socket::{Node, NodeConfig, TcpListener, TcpStream as OurStream};

use super::carrier::Carrier;
use super::kernel_tcp::{self, KernelTcp};
use super::{Connection, Context, Program, Role, Testbed, TestbedError, veth};
use crate::workload::Workload;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 198, 1, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 198, 1, 2);
const PREFIX: u8 = 24;

/// The sides' stacks, and the size of packets.
pub(super) trait Ends {
    const NAME: &'static str;
    const ABOUT: &'static str;
    /// The side with Toehold's TCP, if there is one.
    const OURS: Option<Role>;
    const MTU: u16;
}

macro_rules! ends {
    ($($(#[doc = $doc:literal])+ $type:ident: $name:literal, $ours:expr, $mtu:literal, $about:literal;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Debug)]
        pub(super) struct $type;

        impl Ends for $type {
            const NAME: &'static str = $name;
            const ABOUT: &'static str = $about;
            const OURS: Option<Role> = $ours;
            const MTU: u16 = $mtu;
        }
    )+};
}

ends! {
    /// Toehold's TCP sends.
    ToKernel: "toehold-to-kernel", Some(Role::Client), 1500,
        "from Toehold's TCP to the kernel's over an interface on the fabric, MTU 1500";
    /// Toehold's TCP receives.
    FromKernel: "kernel-to-toehold", Some(Role::Server), 1500,
        "from the kernel's TCP to Toehold's over the same";
    /// The reference for both directions.
    Kernels: "kernel-to-kernel", None, 1500,
        "from the kernel's TCP to the kernel's over two such interfaces";
    /// Toehold's TCP sends, in larger packets.
    ToKernelJumbo: "toehold-to-kernel-9000", Some(Role::Client), 9000,
        "from Toehold's TCP to the kernel's, MTU 9000";
    /// Toehold's TCP receives larger packets.
    FromKernelJumbo: "kernel-to-toehold-9000", Some(Role::Server), 9000,
        "from the kernel's TCP to Toehold's, MTU 9000";
    /// The reference for larger packets.
    KernelsJumbo: "kernel-to-kernel-9000", None, 9000,
        "from the kernel's TCP to the kernel's, MTU 9000";
}

/// One of the two sides.
#[derive(Debug)]
pub(super) struct Mixed<E> {
    side: Side,
    ends: PhantomData<E>,
}

#[derive(Debug)]
enum Side {
    Ours(Node),
    Kernel(Kernel),
}

#[derive(Debug)]
struct Kernel {
    role: Role,
    mtu: u16,
    tcp: KernelTcp,
    /// Whether the path's faults are at this side.
    has_faults: bool,
    /// `None` only until the sides are joined.
    carrier: Option<Carrier>,
    /// Seed of the next path's faults.
    seed: u64,
}

/// A listener of either stack.
#[derive(Debug)]
pub(super) enum Listener {
    Ours(TcpListener),
    Kernel(kernel_tcp::Listener),
}

/// A connection of either stack.
#[derive(Debug)]
pub(super) enum Stream {
    Ours(OurStream),
    Kernel(TcpStream),
}

impl Kernel {
    /// Creates the interface for a workload, with its faults.
    fn carry(&mut self, faults: Option<crate::workload::Faults>) -> io::Result<()> {
        let is_first = self.carrier.is_none();
        // The name of the interface must be free again.
        self.carrier = None;
        self.seed += 1;
        let address = match self.role {
            Role::Server => SERVER,
            Role::Client => CLIENT,
        };
        // The server starts first, before any other member.
        let meets = !is_first || self.role == Role::Client;
        let faults = faults.map(|faults| (faults, self.seed));
        self.carrier = Some(Carrier::start(
            self.role,
            (address, PREFIX),
            self.mtu,
            faults,
            meets,
        )?);
        Ok(())
    }

    /// Creates the path of a workload, if this side does that.
    fn prepare(&mut self, workload: &Workload) -> io::Result<()> {
        match workload {
            Workload::Impaired { faults } if self.has_faults => self.carry(Some(*faults)),
            _ => Ok(()),
        }
    }
}

impl<E: Ends> Testbed for Mixed<E> {
    const NAME: &'static str = E::NAME;
    const ABOUT: &'static str = E::ABOUT;
    const PROGRAMS: &'static [Program] = veth::PROGRAMS;
    type Listener = Listener;
    type Connection = Stream;

    fn supports(workload: &Workload) -> bool {
        matches!(workload, Workload::Bulk | Workload::Impaired { .. })
    }

    fn enter(context: &Context) -> Result<Self, TestbedError> {
        veth::enter(context)?;
        std::env::set_current_dir(&context.scratch)
            .map_err(|error| TestbedError::failed("enter the fabric's directory", error))?;
        let mtu = context.mtu.unwrap_or(E::MTU);
        let side = if E::OURS == Some(context.role) {
            let (name, address) = match context.role {
                Role::Server => ("server", SERVER),
                Role::Client => ("client", CLIENT),
            };
            let config = NodeConfig::new(".", name).ipv4(address, PREFIX).mtu(mtu);
            Side::Ours(Node::join(config).map_err(|error| TestbedError::Failed(error.to_string()))?)
        } else {
            Side::Kernel(Kernel {
                role: context.role,
                mtu,
                tcp: KernelTcp::new(SERVER, context)?,
                has_faults: E::OURS.is_some() || context.role == Role::Server,
                carrier: None,
                seed: 0,
            })
        };
        Ok(Self {
            side,
            ends: PhantomData,
        })
    }

    fn join(&mut self, _: &Context) -> Result<(), TestbedError> {
        match &mut self.side {
            Side::Ours(_) => Ok(()),
            Side::Kernel(kernel) => kernel
                .carry(None)
                .map_err(|error| TestbedError::failed("make the interface", error)),
        }
    }

    fn listen(&mut self, workload: &Workload) -> io::Result<(Listener, String)> {
        match &mut self.side {
            Side::Ours(node) => {
                let listener = TcpListener::bind(node, (SERVER, 0))?;
                let address = listener.local_addr()?.to_string();
                Ok((Listener::Ours(listener), address))
            }
            Side::Kernel(kernel) => {
                kernel.prepare(workload)?;
                let (listener, address) = kernel.tcp.listen(workload)?;
                Ok((Listener::Kernel(listener), address))
            }
        }
    }

    fn accept(&mut self, listener: &mut Listener) -> io::Result<Stream> {
        match listener {
            Listener::Ours(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Ours(stream))
            }
            Listener::Kernel(listener) => listener.accept().map(Stream::Kernel),
        }
    }

    fn retransmits(&self) -> Option<u64> {
        match &self.side {
            Side::Ours(node) => Some(node.counters().ok()?.tcp_retransmits),
            Side::Kernel(_) => kernel_tcp::retransmits(),
        }
    }

    fn connect(&mut self, address: &str, workload: &Workload) -> io::Result<Stream> {
        match &mut self.side {
            Side::Ours(node) => {
                let address: SocketAddr = address.parse().map_err(io::Error::other)?;
                let stream = OurStream::connect(node, address)?;
                stream.set_nodelay(true)?;
                Ok(Stream::Ours(stream))
            }
            Side::Kernel(kernel) => {
                kernel.prepare(workload)?;
                kernel.tcp.connect(address, workload).map(Stream::Kernel)
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Ours(stream) => stream.read(buffer),
            Self::Kernel(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Ours(stream) => stream.write(buffer),
            Self::Kernel(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Connection for Stream {
    fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Ours(stream) => stream.finish(),
            Self::Kernel(stream) => stream.finish(),
        }
    }
}
