//! Unix stream sockets, which a program on one machine would use instead of TCP.

use std::io;
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use super::{Connection, Context, Testbed, TestbedError};
use crate::workload::Workload;

/// The name of Unix sockets.
pub(crate) const UNIX: &str = <Unix as Testbed>::NAME;

/// Blocking Unix sockets. Their names are abstract, so that no file is left behind.
#[derive(Debug)]
pub(super) struct Unix {
    listened: u32,
}

impl Testbed for Unix {
    const NAME: &'static str = "unix";
    const ABOUT: &'static str = "Unix stream sockets, blocking";
    type Listener = UnixListener;
    type Connection = UnixStream;

    fn supports(workload: &Workload) -> bool {
        match workload {
            Workload::Workers { program, .. } => program.has_unix(),
            other => !other.is_about_nodes() && !other.is_of_programs(),
        }
    }

    fn enter(_: &Context) -> Result<Self, TestbedError> {
        Ok(Self { listened: 0 })
    }

    fn listen(&mut self, _: &Workload) -> io::Result<(UnixListener, String)> {
        self.listened += 1;
        let name = format!("toehold-lab-{}-{}", std::process::id(), self.listened);
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        Ok((listener, name))
    }

    fn accept(&mut self, listener: &mut UnixListener) -> io::Result<UnixStream> {
        Ok(listener.accept()?.0)
    }

    fn connect(&mut self, address: &str, _: &Workload) -> io::Result<UnixStream> {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(address)?)
    }
}

impl Connection for UnixStream {
    fn finish(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}
