//! Network namespaces: doing something in one, and making one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace of this host.
#[derive(Debug, Default)]
pub enum Namespace {
    /// That of the thread that asks.
    #[default]
    Own,
    /// That which the descriptor refers to; what keeps it alive.
    Open(OwnedFd),
}

/// Why a namespace could not be entered or made.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// No such file.
    #[error("there is no network namespace at {0} (`ip netns` lists those with a name): {1}")]
    Missing(PathBuf, Errno),
    /// The file is of another kind, or the right is missing.
    #[error(
        "cannot enter the network namespace: {0}; this takes CAP_SYS_ADMIN in the user namespace that owns it"
    )]
    Enter(Errno),
    /// None can be made.
    #[error(
        "cannot make a network namespace: {0}; run as root, or in a user namespace (`unshare --map-root-user`)"
    )]
    Create(Errno),
    /// What has the name is something else.
    #[error(
        "{0} is no network namespace (`ip netns delete NAME` removes a name that a killed command has left)"
    )]
    NotOne(PathBuf),
    /// The name cannot be given or taken away.
    #[error(
        "cannot change the network namespace's name {0}: {1}; this takes CAP_SYS_ADMIN: run as root, or where \
         root makes it first (`ip netns add NAME`)"
    )]
    Name(PathBuf, Errno),
    /// No thread could be started to enter it.
    #[error("cannot start a thread to enter the network namespace: {0}")]
    Thread(std::io::Error),
}

impl Namespace {
    /// The namespace that the file refers to, e.g. `/run/netns/NAME` or `/proc/PID/ns/net`.
    ///
    /// # Errors
    ///
    /// There is no such file.
    pub fn at(path: &Path) -> Result<Namespace, NamespaceError> {
        // What is none at all is not to be waited for either.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .map(Namespace::Open)
            .map_err(|error| NamespaceError::Missing(path.to_owned(), error))
    }

    /// A new namespace, without anything in it but its loopback device, which is down.
    /// It lasts as long as the handle, or anything else that is in it.
    ///
    /// # Errors
    ///
    /// The right is missing, or there are too many.
    pub fn create() -> Result<Namespace, NamespaceError> {
        on_a_thread(|| {
            let flags = rustix::thread::UnshareFlags::NEWNET;
            // SAFETY: only the network namespace is unshared, and only of this thread:
            // neither memory nor descriptors change their meaning for anybody.
            unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(NamespaceError::Create)?;
            Namespace::at(Path::new("/proc/thread-self/ns/net"))
        })?
    }

    /// Calls `act` on a thread that is in the namespace. Sockets and devices that it
    /// opens stay there, and so do the programs that it starts.
    ///
    /// # Errors
    ///
    /// The namespace cannot be entered; `act` was not called.
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

/// Moves this process, which must have one thread only, into a new network namespace; if
/// it may not make one, in a new user namespace, in which its user and group keep their
/// numbers and it has all rights over that network.
///
/// # Errors
///
/// The system allows neither, or there are several threads.
pub fn enter_new(user: u32, group: u32) -> Result<(), NamespaceError> {
    use rustix::thread::UnshareFlags;
    // SAFETY: neither memory nor descriptors change their meaning for anybody.
    match unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
        Err(Errno::PERM) => {}
        made => return made.map_err(NamespaceError::Create),
    }
    let flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNET;
    // SAFETY: as above.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(NamespaceError::Create)?;
    for (file, text) in [
        // Or the group could not be kept without the right to do so outside.
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

/// A thread of its own: which namespace a thread is in cannot always be undone.
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
