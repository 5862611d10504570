//! The kernel's TCP between two network namespaces, over two TAP devices joined in the simplest
//! way. For each direction, a thread reads a frame from one device into a buffer and writes it to
//! the other. It shows the minimal cost of a TAP device for any program. It knows no addresses, and
//! works only between two namespaces of one process.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use toehold_link::interface::Namespace;

use super::carrier::{self, Wire};
use super::contract::stays;
use super::kernel_tcp::{self, KernelTcp, Listener};
use super::{Context, Program, Role, Testbed, TestbedError, veth};
use crate::host::pin;
use crate::workload::Workload;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 198, 1, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 198, 1, 2);
const PREFIX: u8 = 24;
const MTU: u16 = 1500;
/// Longest frame with its virtio-net header, and more.
const BUFFER: usize = 128 << 10;

/// The two devices, which end with the server's process.
#[derive(Debug)]
pub(super) struct Relay(KernelTcp);

impl Testbed for Relay {
    const NAME: &'static str = "relay";
    const ABOUT: &'static str = "kernel TCP between two namespaces over a bare copy from tap to tap";
    const PROGRAMS: &'static [Program] = veth::PROGRAMS;
    type Listener = Listener;
    type Connection = TcpStream;

    fn supports(workload: &Workload) -> bool {
        stays(workload) && !workload.is_about_nodes() && workload.clients() == 1
    }

    fn enter(context: &Context) -> Result<Self, TestbedError> {
        veth::enter(context)?;
        KernelTcp::new(SERVER, context).map(Self)
    }

    /// The server's side creates both, since one process must hold them.
    fn join(&mut self, context: &Context) -> Result<(), TestbedError> {
        match context.role {
            Role::Server => {
                start(context).map_err(|error| TestbedError::failed("join two TAP devices", error))
            }
            Role::Client => Ok(()),
        }
    }

    fn listen(&mut self, workload: &Workload) -> io::Result<(Listener, String)> {
        self.0.listen(workload)
    }

    fn accept(&mut self, listener: &mut Listener) -> io::Result<TcpStream> {
        listener.accept()
    }

    fn connect(&mut self, address: &str, workload: &Workload) -> io::Result<TcpStream> {
        self.0.connect(address, workload)
    }

    fn retransmits(&self) -> Option<u64> {
        kernel_tcp::retransmits()
    }

    fn unacknowledged(&mut self, connection: &TcpStream) -> io::Result<usize> {
        kernel_tcp::unacknowledged(connection)
    }
}

fn start(context: &Context) -> io::Result<()> {
    let client = context.clients.first().ok_or(io::ErrorKind::NotFound)?;
    let client = PathBuf::from(format!("/proc/{client}/ns/net"));
    let server = device(&Namespace::Own, 1, SERVER, context)?;
    let client = device(
        &Namespace::at(&client).map_err(io::Error::other)?,
        2,
        CLIENT,
        context,
    )?;
    let [on_server, on_client] = context.settings.cores;
    carry(client.try_clone()?, server.try_clone()?, on_server)?;
    carry(server, client, on_client)
}

/// Opens one of the devices, with a descriptor that can be waited for.
fn device(namespace: &Namespace, number: u8, address: Ipv4Addr, context: &Context) -> io::Result<File> {
    let wire = Wire {
        mac: [2, 0x7e, 0, 0, 1, number],
        address: (address, PREFIX),
        mtu: context.mtu.unwrap_or(MTU),
        queue: None,
    };
    let (descriptor, _) = carrier::open(&wire, namespace)?.into_parts();
    fcntl(&descriptor, FcntlArg::F_SETFL(OFlag::O_RDWR))?;
    Ok(File::from(descriptor))
}

/// Forwards frames, on the core of the receiving side, for as long as the process lasts.
fn carry(mut from: File, mut to: File, core: usize) -> io::Result<()> {
    let carry = move || {
        // Without that permission, it is measured on any core.
        let _ = pin(&[core]);
        let mut buffer = vec![0; BUFFER];
        while let Ok(len) = from.read(&mut buffer) {
            // A frame that the kernel refuses is lost.
            let _ = to.write(&buffer[..len]);
        }
    };
    std::thread::Builder::new()
        .name("relay".into())
        .spawn(carry)
        .map(drop)
}
