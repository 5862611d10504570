//! The kernel's TCP between two network namespaces joined by a veth pair, as between two containers
//! of one machine. Blocking sockets, and sockets polled without sleep.

use std::io;
use std::net::TcpStream;

use super::contract::stays;
use super::kernel_tcp::{self, KernelTcp, Listener};
use super::spinning::{Spinning, spin};
use super::{Context, Program, Testbed, TestbedError, veth};
use crate::workload::Workload;

/// The name of the kernel's stack between two namespaces.
pub(crate) const KERNEL_VETH: &str = <KernelVeth as Testbed>::NAME;

/// Blocking sockets over a veth pair.
#[derive(Debug)]
pub(super) struct KernelVeth(KernelTcp);

impl Testbed for KernelVeth {
    const NAME: &'static str = "kernel-veth";
    const ABOUT: &'static str = "kernel TCP between two namespaces over veth, blocking sockets";
    const PROGRAMS: &'static [Program] = veth::PROGRAMS;
    type Listener = Listener;
    type Connection = TcpStream;

    fn supports(workload: &Workload) -> bool {
        stays(workload) || workload.is_of_programs() || workload.is_followed()
    }

    fn enter(context: &Context) -> Result<Self, TestbedError> {
        veth::enter(context)?;
        KernelTcp::new(veth::SERVER, context).map(Self)
    }

    fn join(&mut self, context: &Context) -> Result<(), TestbedError> {
        veth::join(context)
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

/// Non-blocking sockets over a veth pair, polled in user space.
#[derive(Debug)]
pub(super) struct KernelVethSpinning(KernelVeth);

impl Testbed for KernelVethSpinning {
    const NAME: &'static str = "kernel-veth-spinning";
    const ABOUT: &'static str = "the same, non-blocking sockets polled without sleep";
    const PROGRAMS: &'static [Program] = veth::PROGRAMS;
    type Listener = Listener;
    type Connection = Spinning<TcpStream>;

    /// Many processes that poll on one core would only delay one another.
    fn supports(workload: &Workload) -> bool {
        !workload.is_about_nodes() && !workload.is_of_several() && !workload.is_of_programs()
    }

    fn enter(context: &Context) -> Result<Self, TestbedError> {
        KernelVeth::enter(context).map(Self)
    }

    fn join(&mut self, context: &Context) -> Result<(), TestbedError> {
        self.0.join(context)
    }

    fn listen(&mut self, workload: &Workload) -> io::Result<(Listener, String)> {
        let (listener, address) = self.0.listen(workload)?;
        listener.set_nonblocking()?;
        Ok((listener, address))
    }

    fn accept(&mut self, listener: &mut Listener) -> io::Result<Spinning<TcpStream>> {
        let stream = spin(|| listener.accept())?;
        stream.set_nonblocking(true)?;
        Ok(Spinning(stream))
    }

    fn connect(&mut self, address: &str, workload: &Workload) -> io::Result<Spinning<TcpStream>> {
        let stream = self.0.connect(address, workload)?;
        stream.set_nonblocking(true)?;
        Ok(Spinning(stream))
    }
}
