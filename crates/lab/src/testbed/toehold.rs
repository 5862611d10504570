//! Toehold: two nodes in one fabric, each driven inline by its only thread.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};

use toehold_socket::{Node, NodeConfig, TcpListener, TcpStream};

use super::{Connection, Context, Role, Testbed, TestbedError};
use crate::workload::Workload;

/// The network the two nodes share with nobody.
const NETWORK: [u8; 3] = [10, 77, 0];

/// One of the two nodes.
#[derive(Debug)]
pub(super) struct Toehold {
    node: Node,
    address: Ipv4Addr,
}

impl Testbed for Toehold {
    const NAME: &'static str = "toehold";
    const ABOUT: &'static str = "Toehold over shared-memory message queues, driven inline";
    type Listener = TcpListener;
    type Connection = TcpStream;

    fn enter(context: &Context) -> Result<Self, TestbedError> {
        let (name, host) = match context.role {
            Role::Server => ("server", 1),
            Role::Client => ("client", 2),
        };
        let [a, b, c] = NETWORK;
        let address = Ipv4Addr::new(a, b, c, host);
        // From inside, the names of the fabric's sockets are short wherever it lies.
        std::env::set_current_dir(&context.scratch)
            .map_err(|error| TestbedError::failed("enter the fabric's directory", error))?;
        let node = Node::join(NodeConfig::new(".", name).ipv4(address, 24))
            .map_err(|error| TestbedError::Failed(error.to_string()))?;
        Ok(Self { node, address })
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
}

impl Connection for TcpStream {
    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}
