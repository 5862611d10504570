//! The kernel's TCP between two network namespaces, over interfaces whose frames Toehold carries.
//! They use message queues (ETHOM), or UDP over a veth pair (ETHOS).
//!
//! The carrying process is one more on each side's core, and ends with the side. Its processor time
//! is counted separately.

use std::io;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use toehold_link::udp::{MAX_MTU, MIN_MTU};

use super::attached::{self, DeviceOrder, EngineOrder, Process};
use super::contract::stays;
use super::kernel_tcp::{self, KernelTcp, Listener};
use super::{Context, Program, Role, Testbed, TestbedError, veth};
use crate::workload::Workload;

/// The addresses of the server's and the first client's interface, and the length of their
/// network's prefix.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 198, 1, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 198, 1, 2);
const PREFIX: u8 = 24;
/// The interface's name in either namespace.
const INTERFACE: &str = "toe1";
/// The port of both sides for datagrams.
const PORT: u16 = 7005;

/// The carrier of the frames.
pub(super) trait Way {
    const NAME: &'static str;
    const ABOUT: &'static str;
    /// Whether it uses UDP.
    const OVER_UDP: bool;
}

/// Message queues.
#[derive(Debug)]
pub(super) struct Ethom;

impl Way for Ethom {
    const NAME: &'static str = "ethom";
    const ABOUT: &'static str = "kernel TCP between two namespaces over message queues (tap, queues, tap)";
    const OVER_UDP: bool = false;
}

/// UDP.
#[derive(Debug)]
pub(super) struct Ethos;

impl Way for Ethos {
    const NAME: &'static str = "ethos";
    const ABOUT: &'static str = "the same over UDP over veth (tap, UDP, tap)";
    const OVER_UDP: bool = true;
}

/// The address of a client's interface.
fn client(number: u8) -> Ipv4Addr {
    let [a, b, c, d] = CLIENT.octets();
    Ipv4Addr::new(a, b, c, d + number)
}

/// The name of the process of a client's interface.
fn client_node(number: u8) -> String {
    format!("client-{number}")
}

/// One of the interfaces.
#[derive(Debug)]
pub(super) struct Device<W> {
    tcp: KernelTcp,
    process: Option<Process>,
    way: PhantomData<W>,
}

impl<W: Way> Device<W> {
    fn start(context: &Context) -> Result<Process, TestbedError> {
        let at = |address: Ipv4Addr| SocketAddr::from((address, PORT));
        let server = at(veth::SERVER);
        let clients = (0..)
            .zip(&context.clients)
            .map(|(number, _)| at(veth::client(number)));
        let (node, address, bind, peers) = match context.role {
            Role::Server => ("server".into(), SERVER, server, clients.collect()),
            Role::Client => {
                let number = context.client;
                (
                    client_node(number),
                    client(number),
                    at(veth::client(number)),
                    vec![server],
                )
            }
        };
        Process::start(&EngineOrder {
            fabric: context.scratch.display().to_string(),
            node,
            settings: [("ipv4".into(), format!("{address}/{PREFIX}"))]
                .into_iter()
                .chain(context.mtu.map(|mtu| ("mtu".into(), mtu.to_string())))
                .collect(),
            device: Some(DeviceOrder {
                interface: Some(INTERFACE.into()),
                namespace: None,
                udp: W::OVER_UDP.then_some((bind, peers)),
            }),
        })
    }

    /// Waits until the two sides have met. The client waits, since the server started first.
    fn meet(context: &Context) -> Result<(), TestbedError> {
        let fabric = context.scratch.display().to_string();
        attached::meet(&fabric, &client_node(context.client), |stack| {
            // Earlier clients are members of its fabric too.
            stack.peers > u32::from(context.client) || stack.remotes.iter().any(|remote| remote.connected)
        })
    }
}

/// Checks whether UDP can carry frames with packets of this size; returns the reason if not.
pub(super) fn fits_udp(context: &Context) -> Result<(), TestbedError> {
    match context.mtu {
        Some(mtu) if !(MIN_MTU..=MAX_MTU).contains(&mtu) => Err(TestbedError::Unavailable(format!(
            "what goes over UDP has an MTU from {MIN_MTU} to {MAX_MTU}: leave {mtu} out of `mtu`"
        ))),
        _ => Ok(()),
    }
}

impl<W: Way> Testbed for Device<W> {
    const NAME: &'static str = W::NAME;
    const ABOUT: &'static str = W::ABOUT;
    const PROGRAMS: &'static [Program] = veth::PROGRAMS;
    type Listener = Listener;
    type Connection = TcpStream;

    fn supports(workload: &Workload) -> bool {
        stays(workload) && !workload.is_about_nodes()
    }

    fn enter(context: &Context) -> Result<Self, TestbedError> {
        if W::OVER_UDP {
            fits_udp(context)?;
        }
        veth::enter(context)?;
        Ok(Self {
            tcp: KernelTcp::new(SERVER, context)?,
            process: None,
            way: PhantomData,
        })
    }

    fn join(&mut self, context: &Context) -> Result<(), TestbedError> {
        if W::OVER_UDP {
            veth::join(context)?;
        }
        self.process = Some(Self::start(context)?);
        match context.role {
            Role::Server => Ok(()),
            Role::Client => Self::meet(context),
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

    fn unacknowledged(&mut self, connection: &TcpStream) -> io::Result<usize> {
        kernel_tcp::unacknowledged(connection)
    }
}
