//! The kernel's TCP over its loopback interface, blocking sockets.

use std::io;
use std::net::{Ipv4Addr, TcpStream};

use super::contract::stays;
use super::kernel_tcp::{self, KernelTcp, Listener};
use super::{Context, Testbed, TestbedError};
use crate::workload::Workload;

/// The name of the kernel's loopback.
pub(crate) const KERNEL_LOOPBACK: &str = <KernelLoopback as Testbed>::NAME;

/// Two processes at 127.0.0.1.
#[derive(Debug)]
pub(super) struct KernelLoopback(KernelTcp);

impl Testbed for KernelLoopback {
    const NAME: &'static str = "kernel-loopback";
    const ABOUT: &'static str = "kernel TCP over 127.0.0.1, blocking sockets";
    type Listener = Listener;
    type Connection = TcpStream;

    fn supports(workload: &Workload) -> bool {
        stays(workload) || workload.is_of_workers() || workload.is_followed()
    }

    fn enter(context: &Context) -> Result<Self, TestbedError> {
        KernelTcp::new(Ipv4Addr::LOCALHOST, context).map(Self)
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
