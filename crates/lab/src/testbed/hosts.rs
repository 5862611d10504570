//! Candidates between two machines. The kernel's TCP uses the network between them. Toehold's TCP
//! runs between two nodes whose fabrics are joined over UDP. Interfaces whose frames UDP carries
//! (ETHOS) run the kernel's TCP.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{getsockopt, sockopt::IpMtu};
use nix::unistd::geteuid;
use toehold_node::Placement;
use toehold_socket::Node;

use super::attached::{self, Attached, DeviceOrder, EngineOrder, Process};
use super::device::fits_udp;
use super::kernel_tcp::{self, KernelTcp, Listener};
use super::toehold::Place;
use super::{Context, Program, Role, Testbed, TestbedError, veth};
use crate::far::Path;
use crate::workload::Workload;

/// The ports of the server's and the client's machines for datagrams.
const PORTS: [u16; 2] = [7007, 7008];
/// The ports for interfaces' frames in datagrams: on the server's machine, and on its first
/// client's. Other clients use the following ports.
const FRAMES: [u16; 2] = [7009, 7010];

/// The network of the interfaces, and the host numbers of the server and the first client.
const NETWORK: [u8; 3] = [10, 198, 1];
const NETWORK_OF_IPV6: u64 = 0xfd77_0000_0000_0000;
const SERVER: u8 = 1;
const FIRST_CLIENT: u8 = 2;
/// The interface's name.
const INTERFACE: &str = "toe1";

/// The addresses of the two machines, or the reason for their absence.
fn path(context: &Context) -> Result<Path, TestbedError> {
    let reason = "it is between two machines: say with --host which is the other one";
    context
        .path
        .ok_or_else(|| TestbedError::Unavailable(reason.into()))
}

/// The kernel's TCP.
#[derive(Debug)]
pub(super) struct Kernel {
    tcp: KernelTcp,
    path: Path,
}

impl Testbed for Kernel {
    const NAME: &'static str = "kernel-hosts";
    const ABOUT: &'static str = "kernel TCP between two machines, blocking sockets";
    const IS_BETWEEN_HOSTS: bool = true;
    type Listener = Listener;
    type Connection = TcpStream;

    fn supports(workload: &Workload) -> bool {
        !workload.is_about_nodes() && !workload.is_of_programs()
    }

    fn enter(context: &Context) -> Result<Self, TestbedError> {
        let path = path(context)?;
        // The machine may not know the address by which others reach it.
        let tcp = KernelTcp::new(Ipv4Addr::UNSPECIFIED, context)?;
        let tcp = match context.mtu {
            Some(mtu) => {
                holds(other(context.role, path), mtu)?;
                tcp.limited_to(mtu)?
            }
            None => tcp,
        };
        Ok(Self { tcp, path })
    }

    fn listen(&mut self, workload: &Workload) -> io::Result<(Listener, String)> {
        let (listener, address) = self.tcp.listen(workload)?;
        let mut address: SocketAddr = address.parse().map_err(io::Error::other)?;
        address.set_ip(self.path.server.into());
        Ok((listener, address.to_string()))
    }

    fn accept(&mut self, listener: &mut Listener) -> io::Result<TcpStream> {
        listener.accept()
    }

    fn connect(&mut self, address: &str, workload: &Workload) -> io::Result<TcpStream> {
        self.tcp.connect(address, workload)
    }

    fn retransmits(&self) -> Option<u64> {
        kernel_tcp::retransmits()
    }
}

/// The machine on the other side.
fn other(role: Role, path: Path) -> Ipv4Addr {
    match role {
        Role::Server => path.client,
        Role::Client => path.server,
    }
}

/// Checks whether the network to a machine carries packets of this size. No packet is sent.
fn holds(other: Ipv4Addr, mtu: u16) -> Result<(), TestbedError> {
    let look = || -> io::Result<i32> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        // Any port works.
        socket.connect((other, 9))?;
        Ok(getsockopt(&socket, IpMtu)?)
    };
    match look() {
        Ok(most) if most < i32::from(mtu) => Err(TestbedError::Unavailable(format!(
            "the network to {other} takes packets of {most} bytes: raise the MTU of its interfaces (`ip link \
             set DEVICE mtu {mtu}`), or leave {mtu} out of `mtu`"
        ))),
        Ok(_) => Ok(()),
        Err(error) => Err(TestbedError::failed(
            &format!("find out the MTU to {other}"),
            error,
        )),
    }
}

/// An interface in a network namespace of this side, whose frames go over UDP in the machine's
/// namespace.
#[derive(Debug)]
pub(super) struct Interfaces {
    tcp: KernelTcp,
    machine: File,
    process: Option<Process>,
}

impl Interfaces {
    /// Starts the carrier of the frames in the machine's namespace, where it has its socket.
    fn start(&self, context: &Context) -> Result<Process, TestbedError> {
        let failed = |error: io::Error| TestbedError::failed("change the network namespace", error);
        let own = File::open("/proc/thread-self/ns/net").map_err(failed)?;
        // This thread is in another namespace while the process starts.
        let namespace = format!("/proc/{}/fd/{}", std::process::id(), own.as_raw_fd());
        let order = Self::order(context, namespace)?;
        let enter = |namespace: &File| {
            setns(namespace, CloneFlags::CLONE_NEWNET).map_err(|error| failed(error.into()))
        };
        enter(&self.machine)?;
        let process = Process::start(&order);
        enter(&own)?;
        process
    }

    fn order(context: &Context, namespace: String) -> Result<EngineOrder, TestbedError> {
        let Path { server, client } = path(context)?;
        let [at_server, at_first] = FRAMES;
        let at_client = |number: u8| SocketAddr::from((client, at_first + u16::from(number)));
        let (host, own, peers) = match context.role {
            Role::Server => {
                let clients = (0..).zip(&context.clients);
                let peers = clients.map(|(number, _)| at_client(number)).collect();
                (SERVER, at_server, peers)
            }
            Role::Client => {
                let own = at_client(context.client).port();
                (
                    FIRST_CLIENT + context.client,
                    own,
                    vec![(server, at_server).into()],
                )
            }
        };
        // The two are members of different fabrics, which do not coordinate addresses.
        let ipv6 = Ipv6Addr::from(u128::from(NETWORK_OF_IPV6) << 64 | u128::from(host));
        let addresses = [
            ("ipv4".into(), format!("{}/24", address(host))),
            ("ipv6".into(), format!("{ipv6}/64")),
        ];
        let mtu = context.mtu.map(|mtu| ("mtu".into(), mtu.to_string()));
        Ok(EngineOrder {
            fabric: context.scratch.display().to_string(),
            node: node(context),
            settings: addresses.into_iter().chain(mtu).collect(),
            device: Some(DeviceOrder {
                interface: Some(INTERFACE.into()),
                namespace: Some(namespace.into()),
                udp: Some(((Ipv4Addr::UNSPECIFIED, own).into(), peers)),
            }),
        })
    }
}

/// The name of the process of a side's interface.
fn node(context: &Context) -> String {
    match context.role {
        Role::Server => "server-frames".into(),
        Role::Client => format!("client-frames-{}", context.client),
    }
}

/// The address of a host in the interfaces' network.
fn address(host: u8) -> Ipv4Addr {
    let [a, b, c] = NETWORK;
    Ipv4Addr::new(a, b, c, host)
}

impl Testbed for Interfaces {
    const NAME: &'static str = "ethos-hosts";
    const ABOUT: &'static str = "kernel TCP between two machines over interfaces whose frames go over UDP";
    const PROGRAMS: &'static [Program] = veth::PROGRAMS;
    const IS_BETWEEN_HOSTS: bool = true;
    type Listener = Listener;
    type Connection = TcpStream;

    fn supports(workload: &Workload) -> bool {
        Kernel::supports(workload)
    }

    fn enter(context: &Context) -> Result<Self, TestbedError> {
        path(context)?;
        fits_udp(context)?;
        if !geteuid().is_root() {
            return Err(TestbedError::Unavailable(
                "it makes an interface of the kernel: run as root, on both machines".into(),
            ));
        }
        let machine = File::open("/proc/thread-self/ns/net");
        let machine = machine.map_err(|error| TestbedError::failed("open the network namespace", error))?;
        veth::enter(context)?;
        Ok(Self {
            tcp: KernelTcp::new(address(SERVER), context)?,
            machine,
            process: None,
        })
    }

    fn join(&mut self, context: &Context) -> Result<(), TestbedError> {
        self.process = Some(self.start(context)?);
        match context.role {
            Role::Server => Ok(()),
            Role::Client => {
                let fabric = context.scratch.display().to_string();
                attached::meet(&fabric, &node(context), |stack| {
                    stack.remotes.iter().any(|remote| remote.connected)
                })
            }
        }
    }

    fn listen(&mut self, workload: &Workload) -> io::Result<(Listener, String)> {
        self.tcp.listen(workload)
    }

    fn accept(&mut self, listener: &mut Listener) -> io::Result<TcpStream> {
        listener.accept()
    }

    fn connect(&mut self, address: &str, workload: &Workload) -> io::Result<TcpStream> {
        self.tcp.connect(address, workload)
    }

    fn engines(&self) -> Vec<u32> {
        self.process.iter().map(Process::id).collect()
    }

    fn retransmits(&self) -> Option<u64> {
        kernel_tcp::retransmits()
    }
}

/// A node in a fabric of its machine, and the uplink to the other machine's.
#[derive(Debug)]
pub(super) struct Between {
    node: Attached,
    uplink: Option<Process>,
}

impl Between {
    /// The uplink of a machine, shared by all of its sides: the first one creates it.
    fn uplink(context: &Context) -> Result<Option<Process>, TestbedError> {
        let Path { server, client } = path(context)?;
        let [there, here] = PORTS;
        let (name, own, other) = match context.role {
            Role::Server => ("server-uplink", there, (client, here)),
            Role::Client if context.client == 0 => ("client-uplink", here, (server, there)),
            Role::Client => return Ok(None),
        };
        let fabric = context.scratch.display().to_string();
        let uplink = Process::start(&EngineOrder {
            fabric: fabric.clone(),
            node: name.into(),
            settings: context
                .mtu
                .map(|mtu| ("mtu".into(), mtu.to_string()))
                .into_iter()
                .collect(),
            device: Some(DeviceOrder {
                interface: None,
                namespace: None,
                udp: Some(((Ipv4Addr::UNSPECIFIED, own).into(), vec![other.into()])),
            }),
        })?;
        if context.role == Role::Client {
            // The server's uplink runs already.
            attached::meet(&fabric, name, |stack| {
                stack.remotes.iter().any(|remote| remote.connected)
            })?;
        }
        Ok(Some(uplink))
    }
}

impl Place for Between {
    const NAME: &'static str = "toehold-hosts";
    const ABOUT: &'static str = "Toehold between two machines, over uplinks (UDP)";
    const IS_BETWEEN_HOSTS: bool = true;

    fn take(context: &Context, name: &str, address: Ipv4Addr) -> Result<(Node, Self), TestbedError> {
        fits_udp(context)?;
        let uplink = Self::uplink(context)?;
        let (node, attached) = attached::attach(context, name, address, Placement::Adaptive, false)?;
        Ok((
            node,
            Self {
                node: attached,
                uplink,
            },
        ))
    }

    fn engines(&self) -> Vec<u32> {
        let uplink = self.uplink.iter().map(Process::id);
        uplink.chain([self.node.engine.id()]).collect()
    }
}
