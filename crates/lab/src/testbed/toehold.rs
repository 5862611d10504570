//! Toehold: two nodes in one fabric, each with one program. The placement of a node's stack is a
//! parameter.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::time::Duration;

use toehold_socket::{Node, NodeConfig, TcpListener, TcpStream};

use super::contract::stays;
use super::{Connection, Context, Role, Switch, Testbed, TestbedError};
use crate::workload::Workload;

/// The network of the two nodes alone.
const NETWORK: [u8; 2] = [10, 77];
pub(super) const PREFIX: u8 = 16;

/// The placement of a node's stack.
pub(super) trait Place: Sized {
    const NAME: &'static str;
    const ABOUT: &'static str;

    /// Whether it can be changed while traffic flows.
    const MAY_CHANGE: bool = false;

    /// Whether its nodes are on two machines.
    const IS_BETWEEN_HOSTS: bool = false;

    /// Whether such a node can run unmodified programs.
    fn runs(workload: &Workload) -> bool {
        let _ = workload;
        false
    }

    /// Creates the node, and the objects that must live as long.
    fn take(context: &Context, name: &str, address: Ipv4Addr) -> Result<(Node, Self), TestbedError>;

    /// The processes of the node's engine and of its uplink.
    fn engines(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The object that changes the placement.
    fn switch(&self) -> io::Result<Box<dyn Switch>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A private stack of the program.
pub(super) struct Own;

impl Place for Own {
    const NAME: &'static str = "toehold";
    const ABOUT: &'static str = "Toehold over shared-memory message queues, driven inline";

    fn take(context: &Context, name: &str, address: Ipv4Addr) -> Result<(Node, Self), TestbedError> {
        join(context, name, address).map(|node| (node, Self))
    }
}

/// A private stack, under its name among the placements.
pub(super) struct Private;

impl Place for Private {
    const NAME: &'static str = "private";
    const ABOUT: &'static str = "a stack that the program has for itself";

    fn take(context: &Context, name: &str, address: Ipv4Addr) -> Result<(Node, Self), TestbedError> {
        join(context, name, address).map(|node| (node, Self))
    }
}

fn join(context: &Context, name: &str, address: Ipv4Addr) -> Result<Node, TestbedError> {
    // In the directory, the names of the fabric's sockets are short, wherever it lies.
    std::env::set_current_dir(&context.scratch)
        .map_err(|error| TestbedError::failed("enter the fabric's directory", error))?;
    let config = NodeConfig::new(".", name).ipv4(address, PREFIX);
    let config = match context.mtu {
        Some(mtu) => config.mtu(mtu),
        None => config,
    };
    Node::join(config).map_err(|error| TestbedError::Failed(error.to_string()))
}

/// One of the two nodes.
#[derive(Debug)]
pub(super) struct Toehold<P> {
    node: Node,
    address: Ipv4Addr,
    place: P,
}

impl<P: Place> Testbed for Toehold<P> {
    const NAME: &'static str = P::NAME;
    const ABOUT: &'static str = P::ABOUT;
    const IS_BETWEEN_HOSTS: bool = P::IS_BETWEEN_HOSTS;
    type Listener = TcpListener;
    type Connection = TcpStream;

    fn supports(workload: &Workload) -> bool {
        if P::IS_BETWEEN_HOSTS {
            return !workload.is_about_nodes() && !workload.is_of_programs();
        }
        stays(workload)
            || (P::MAY_CHANGE && matches!(workload, Workload::Switching { .. }))
            || P::runs(workload)
    }

    fn enter(context: &Context) -> Result<Self, TestbedError> {
        let (name, host) = match context.role {
            Role::Server => ("server", 1),
            Role::Client => ("client", 2 + context.client),
        };
        let [a, b] = NETWORK;
        let address = Ipv4Addr::new(a, b, context.pair, host);
        let (node, place) = P::take(
            context,
            &format!("{name}-{}-{}", context.pair, context.client),
            address,
        )?;
        Ok(Self { node, address, place })
    }

    fn listen(&mut self, _: &Workload) -> io::Result<(TcpListener, String)> {
        let listener = TcpListener::bind(&self.node, (self.address, 0))?;
        let address = listener.local_addr()?.to_string();
        Ok((listener, address))
    }

    fn accept(&mut self, listener: &mut TcpListener) -> io::Result<TcpStream> {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn connect(&mut self, address: &str, _: &Workload) -> io::Result<TcpStream> {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let stream = TcpStream::connect(&self.node, address)?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn engines(&self) -> Vec<u32> {
        self.place.engines()
    }

    fn retransmits(&self) -> Option<u64> {
        Some(self.node.counters().ok()?.tcp_retransmits)
    }

    fn unacknowledged(&mut self, connection: &TcpStream) -> io::Result<usize> {
        self.node.drive(Some(Duration::ZERO))?;
        connection.unacknowledged_bytes()
    }

    fn switch(&self) -> io::Result<Box<dyn Switch>> {
        self.place.switch()
    }
}

impl Connection for TcpStream {
    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}
