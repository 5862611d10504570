//! Ports that the kernel leaves to the listeners of the node, as long as these have them.
//!
//! For each address and port at which a program of the node listens, the engine has a socket of the
//! kernel's bound there. The kernel then gives the port to no other program, and refuses it if
//! another one has it. Nothing listens on it, so that the kernel's own programs, which do not reach
//! the node, are refused at once. These sockets are closed with what the listener is held by, and
//! vanish with the engine.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

use super::Device;

/// Ports of one family that are tried in search of one that is free in both.
const TRIES: u32 = 16;

/// The ports of one life of a node.
#[derive(Debug, Default)]
pub(crate) struct Ports(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The kernel's sockets, and how many listeners share each: whether two may have the
    /// same port is the node's stack's to say.
    sockets: HashMap<SocketAddr, (OwnedFd, u32)>,
    /// The addresses that were taken, by the holders of the listeners.
    taken: HashMap<u32, Vec<SocketAddr>>,
}

impl Ports {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a port from the kernel for the listener that a holder will stand for, at those of its
    /// addresses that the kernel has too. Port 0 is one that the kernel chooses. What the holder
    /// had before is given back.
    ///
    /// # Errors
    ///
    /// `ADDRINUSE` if a program of the kernel's has the port; other errors of the kernel's.
    pub(crate) fn take(
        &self,
        device: &Device,
        holder: u32,
        address: SocketAddr,
        only_ipv6: bool,
    ) -> Result<u16, Errno> {
        let mut state = self.lock();
        state.release(holder);
        let addresses = device.addresses_of(address.ip(), only_ipv6);
        let mut tries = if address.port() == 0 { TRIES } else { 1 };
        loop {
            tries -= 1;
            match state.take(device, &addresses, address.port()) {
                Ok((port, taken)) => {
                    if !taken.is_empty() {
                        state.taken.insert(holder, taken);
                    }
                    return Ok(port);
                }
                Err(Errno::ADDRINUSE) if tries > 0 => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Gives back the port of the holder's listener, which is closed.
    pub(crate) fn release(&self, holder: u32) {
        self.lock().release(holder);
    }
}

impl State {
    fn take(
        &mut self,
        device: &Device,
        addresses: &[IpAddr],
        port: u16,
    ) -> Result<(u16, Vec<SocketAddr>), Errno> {
        let mut port = port;
        let mut taken = Vec::new();
        for &address in addresses {
            match self.take_one(device, SocketAddr::new(address, port)) {
                Ok(Some(at)) => {
                    port = at.port();
                    taken.push(at);
                }
                // A family that the kernel does not have.
                Ok(None) => {}
                Err(errno) => {
                    self.give_back(taken);
                    return Err(errno);
                }
            }
        }
        Ok((port, taken))
    }

    fn take_one(&mut self, device: &Device, at: SocketAddr) -> Result<Option<SocketAddr>, Errno> {
        if let Some((_, listeners)) = self.sockets.get_mut(&at) {
            *listeners += 1;
            return Ok(Some(at));
        }
        let Some((socket, port)) = device.bind(at)? else {
            return Ok(None);
        };
        let at = SocketAddr::new(at.ip(), port);
        self.sockets.insert(at, (socket, 1));
        Ok(Some(at))
    }

    fn release(&mut self, holder: u32) {
        let taken = self.taken.remove(&holder);
        self.give_back(taken.unwrap_or_default());
    }

    fn give_back(&mut self, taken: Vec<SocketAddr>) {
        for at in taken {
            if let Some((_, listeners)) = self.sockets.get_mut(&at) {
                *listeners -= 1;
                if *listeners == 0 {
                    self.sockets.remove(&at);
                }
            }
        }
    }
}

/// Binds a socket of the network namespace that the thread is in, and says to which port. Returns
/// `None` if the kernel does not have the family.
pub(super) fn bind_here(at: SocketAddr) -> Result<Option<(OwnedFd, u16)>, Errno> {
    let family = match at {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = match socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None) {
        Err(Errno::AFNOSUPPORT) => return Ok(None),
        socket => socket?,
    };
    // The address may be gone for a while, or not be there yet.
    match at {
        SocketAddr::V4(_) => sockopt::set_ip_freebind(&socket, true)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_freebind(&socket, true)?,
    }
    // Connections that are left of a closed listener do not keep the port, as with any listener.
    // But no other program shall share the port, whatever options it sets.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &at)?;
    sockopt::set_socket_reuseaddr(&socket, false)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok(Some((socket, bound.port())))
}
