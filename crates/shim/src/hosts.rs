//! The names of nodes for programs that resolve names by themselves (c-ares in gRPC, Netty,
//! hickory, eventlet): where those of hosts are, in `/etc/hosts`.
//!
//! Only a program that has looked here how names are resolved is such a program. All others have the file as
//! it is: they may be about to change it.

use core::ffi::CStr;
use core::fmt::Write as _;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;

use rustix::fs::MemfdFlags;

use crate::inside::{Inside, is_inside};
use crate::{node, start};

const HOSTS: &CStr = c"/etc/hosts";
const RESOLVER: &CStr = c"/etc/resolv.conf";

/// Whether the program has read how names are resolved.
static RESOLVES: AtomicBool = AtomicBool::new(false);

/// Returns a descriptor to read in place of a file that the program has opened for reading; `None`
/// if that is the file itself.
#[inline]
pub(crate) fn instead_of(path: &CStr) -> Option<OwnedFd> {
    match path.to_bytes().starts_with(b"/etc/") && start::is_wanted() && !is_inside() {
        true => of_system(path),
        false => None,
    }
}

#[cold]
fn of_system(path: &CStr) -> Option<OwnedFd> {
    if path == RESOLVER {
        RESOLVES.store(true, Relaxed);
    }
    if path != HOSTS || !RESOLVES.load(Relaxed) {
        return None;
    }
    let _inside = Inside::enter();
    with_nodes().ok()
}

/// The file, and after it the fabric's nodes.
fn with_nodes() -> std::io::Result<OwnedFd> {
    let mut bytes = Vec::new();
    File::open("/etc/hosts")?.read_to_end(&mut bytes)?;
    let mut lines = String::from("\n");
    for node in node::all() {
        for address in node.addresses() {
            let _ = writeln!(lines, "{address}\t{}", node.name);
        }
    }
    bytes.extend(lines.bytes());
    let mut file = File::from(rustix::fs::memfd_create(c"hosts", MemfdFlags::CLOEXEC)?);
    file.write_all(&bytes)?;
    file.rewind()?;
    Ok(file.into())
}
