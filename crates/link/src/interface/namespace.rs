//! Network namespaces: running code in one, and creating one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace of this host.
#[derive(Debug, Default)]
pub enum Namespace {
    /// The calling thread's namespace.
    #[default]
    Own,
    /// The namespace of the descriptor, which keeps it alive.
    Open(OwnedFd),
}

/// Reason for which a namespace could not be entered or created.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// There is no such file.
    #[error("there is no network namespace at {0} (`ip netns` lists those with a name): {1}")]
    Missing(PathBuf, Errno),
    /// The file is of another kind, or the process lacks the right.
    #[error(
        "cannot enter the network namespace: {0}; this takes CAP_SYS_ADMIN in the user namespace that owns it"
    )]
    Enter(Errno),
    /// No namespace can be created.
    #[error(
        "cannot make a network namespace: {0}; run as root, or in a user namespace (`unshare --map-root-user`)"
    )]
    Create(Errno),
    /// The file with the name is no network namespace.
    #[error(
        "{0} is no network namespace (`ip netns delete NAME` removes a name that a killed command has left)"
    )]
    NotOne(PathBuf),
    /// The name cannot be added or removed.
    #[error(
        "cannot change the network namespace's name {0}: {1}; this takes CAP_SYS_ADMIN: run as root, or where \
         root makes it first (`ip netns add NAME`)"
    )]
    Name(PathBuf, Errno),
    /// No thread could be started to enter the namespace.
    #[error("cannot start a thread to enter the network namespace: {0}")]
    Thread(std::io::Error),
}

impl Namespace {
    /// Opens the namespace of a file, e.g. `/run/netns/NAME` or
    /// `/proc/PID/ns/net`.
    ///
    /// # Errors
    ///
    /// If there is no such file.
    pub fn at(path: &Path) -> Result<Namespace, NamespaceError> {
        // Without `NONBLOCK`, opening a file of another kind might wait.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .map(Namespace::Open)
            .map_err(|error| NamespaceError::Missing(path.to_owned(), error))
    }

    /// Creates a namespace with only its loopback device, which is down. It lasts
    /// as long as the handle, or anything else in it.
    ///
    /// # Errors
    ///
    /// If the process lacks the right, or there are too many.
    pub fn create() -> Result<Namespace, NamespaceError> {
        on_a_thread(|| {
            let flags = rustix::thread::UnshareFlags::NEWNET;
            // SAFETY: only this thread's network namespace is unshared. Memory and
            // descriptors of all threads keep their meaning.
            unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(NamespaceError::Create)?;
            Namespace::at(Path::new("/proc/thread-self/ns/net"))
        })?
    }

    /// Calls `act` on a thread in the namespace. Sockets and devices that it opens
    /// stay in the namespace, and so do the programs that it starts.
    ///
    /// # Errors
    ///
    /// If the namespace cannot be entered; `act` was not called.
    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        let Some(descriptor) = self.descriptor() else {
            return Ok(act());
        };
        on_a_thread(|| {
            move_into_link_name_space(descriptor, Some(LinkNameSpaceType::Network))
                .map_err(NamespaceError::Enter)?;
            Ok(act())
        })?
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Namespace::Own => None,
            Namespace::Open(descriptor) => Some(descriptor.as_fd()),
        }
    }
}

/// Moves this process into a new network namespace. The process must have one
/// thread only. If it may not create one, it also enters a new user namespace.
/// There its user and group keep their numbers, and it has all rights over that
/// network.
///
/// # Errors
///
/// If the system allows neither, or there are several threads.
pub fn enter_new(user: u32, group: u32) -> Result<(), NamespaceError> {
    use rustix::thread::UnshareFlags;
    // SAFETY: the network namespace alone is unshared. Memory and descriptors
    // keep their meaning.
    match unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
        Err(Errno::PERM) => {}
        made => return made.map_err(NamespaceError::Create),
    }
    let flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNET;
    // SAFETY: user and network namespaces are unshared. Memory and descriptors
    // keep their meaning.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(NamespaceError::Create)?;
    for (file, text) in [
        // Without this the group could only be kept with a right outside.
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ] {
        let path = Path::new("/proc/self").join(file);
        let written = std::fs::write(path, text);
        written
            .map_err(|error| NamespaceError::Create(Errno::from_io_error(&error).unwrap_or(Errno::PERM)))?;
    }
    Ok(())
}

/// Runs `act` on a thread of its own: a thread cannot always leave a namespace
/// again.
fn on_a_thread<T: Send>(act: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("namespace".to_owned())
            .spawn_scoped(scope, act)
            .map_err(NamespaceError::Thread)?;
        match thread.join() {
            Ok(value) => Ok(value),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
