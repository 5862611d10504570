//! Between two machines: the kernel's TCP over the network between them, and Toehold's between two
//! nodes whose fabrics are joined over UDP on the same network.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use toehold_node::Placement;
use toehold_socket::Node;

use super::attached::{self, Attached, DeviceOrder, EngineOrder, Process};
use super::kernel_tcp::{self, KernelTcp, Listener};
use super::toehold::Place;
use super::{Context, Role, Testbed, TestbedError};
use crate::far::Path;
use crate::workload::Workload;

/// Where the server's and the client's machines listen for datagrams.
const PORTS: [u16; 2] = [7007, 7008];
/// The same for a server with several clients: the sides of one with a single client may be there too,
/// and rest.
const PORTS_OF_SEVERAL: [u16; 2] = [7009, 7010];

/// The addresses of the two, or why there are none.
fn path(context: &Context) -> Result<Path, TestbedError> {
    let reason = "it is between two machines: say with --host which is the other one";
    context
        .path
        .ok_or_else(|| TestbedError::Unavailable(reason.into()))
}

/// The kernel's.
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

/// A node in a fabric of its machine's, and what leads from there to the other machine's.
#[derive(Debug)]
pub(super) struct Between {
    node: Attached,
    uplink: Option<Process>,
}

impl Between {
    /// The uplink of a machine, which all of its sides have together: the first one makes it.
    fn uplink(context: &Context) -> Result<Option<Process>, TestbedError> {
        let Path { server, client } = path(context)?;
        let [there, here] = match context.clients.len() {
            ..=1 => PORTS,
            _ => PORTS_OF_SEVERAL,
        };
        let (name, own, other) = match context.role {
            Role::Server => ("server-uplink", there, (client, here)),
            Role::Client if context.client == 0 => ("client-uplink", here, (server, there)),
            Role::Client => return Ok(None),
        };
        let fabric = context.scratch.display().to_string();
        let uplink = Process::start(&EngineOrder {
            fabric: fabric.clone(),
            node: name.into(),
            settings: Vec::new(),
            device: Some(DeviceOrder {
                interface: None,
                udp: Some(((Ipv4Addr::UNSPECIFIED, own).into(), vec![other.into()])),
            }),
        })?;
        if context.role == Role::Client {
            // The server's is there already.
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
        let uplink = Self::uplink(context)?;
        let (node, attached) = attached::attach(context, name, address, Placement::Adaptive)?;
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
