//! Network namespaces with a name, which `ip netns` knows as well: files in a directory, onto
//! each of which a namespace is mounted. Such a one lasts until its name is removed, and
//! whatever is in it has ended.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags};

use super::{Namespace, NamespaceError};

/// Where the names are.
const DIRECTORY: &str = "/run/netns";

/// Longest name, in bytes.
const MAX_NAME: usize = 128;

/// The name of a network namespace.
///
/// ```
/// use toehold_link::interface::NamespaceName;
///
/// let name: NamespaceName = "web".parse()?;
/// assert_eq!(name.path().to_str(), Some("/run/netns/web"));
/// assert!("../web".parse::<NamespaceName>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceName(String);

/// A text that is no name of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no name of a network namespace: it takes 1 to 128 letters, digits, '-', '_', '.' or ':'")]
pub struct InvalidNamespaceName;

/// Tells a namespace from others, also from later ones of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NamespaceId {
    device: u64,
    inode: u64,
}

impl FromStr for NamespaceName {
    type Err = InvalidNamespaceName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        let fits = (1..=MAX_NAME).contains(&text.len()) && !matches!(text, "." | "..");
        match fits && text.bytes().all(allowed) {
            true => Ok(NamespaceName(text.to_owned())),
            false => Err(InvalidNamespaceName),
        }
    }
}

impl Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl NamespaceName {
    /// The file that stands for it.
    pub fn path(&self) -> PathBuf {
        Path::new(DIRECTORY).join(&self.0)
    }

    /// The namespace of this name, and whether it was made just now, because there was none.
    ///
    /// # Errors
    ///
    /// It cannot be made, or what has the name is no namespace.
    pub fn open_or_create(&self) -> Result<(Namespace, bool), NamespaceError> {
        match self.open() {
            Err(NamespaceError::Missing(_, Errno::NOENT)) => self.create(),
            opened => Ok((opened?, false)),
        }
    }

    /// The namespace of this name.
    ///
    /// # Errors
    ///
    /// There is none, or what has the name is no namespace.
    pub fn open(&self) -> Result<Namespace, NamespaceError> {
        const NSFS: rustix::fs::FsWord = 0x6e73_6673;
        let namespace = Namespace::at(&self.path())?;
        let Namespace::Open(descriptor) = &namespace else {
            return Ok(namespace);
        };
        match rustix::fs::fstatfs(descriptor) {
            Ok(stat) if stat.f_type == NSFS => Ok(namespace),
            _ => Err(NamespaceError::NotOne(self.path())),
        }
    }

    fn create(&self) -> Result<(Namespace, bool), NamespaceError> {
        let path = self.path();
        let failed = |error| NamespaceError::Name(path.clone(), error);
        let namespace = Namespace::create()?;
        share_directory().map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(_) => {}
            // Somebody else was faster.
            Err(Errno::EXIST) => return Ok((self.open()?, false)),
            Err(error) => return Err(failed(error)),
        }
        let mounted = match &namespace {
            Namespace::Open(descriptor) => {
                use std::os::fd::AsRawFd;
                let source = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
                rustix::mount::mount_bind(source, &path)
            }
            Namespace::Own => Err(Errno::INVAL),
        };
        if let Err(error) = mounted {
            let _ = rustix::fs::unlink(&path);
            return Err(failed(error));
        }
        Ok((namespace, true))
    }

    /// Removes the name, if it still is that of this namespace. What is in the namespace
    /// stays there, and keeps it.
    ///
    /// # Errors
    ///
    /// The right is missing.
    pub fn remove(&self, id: NamespaceId) -> Result<(), NamespaceError> {
        let path = self.path();
        match rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if NamespaceId::of(&stat) == id => {}
            // It is gone, or somebody else's.
            _ => return Ok(()),
        }
        rustix::mount::unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
            .and_then(|()| rustix::fs::unlink(&path))
            .map_err(|error| NamespaceError::Name(path, error))
    }
}

impl NamespaceId {
    fn of(stat: &rustix::fs::Stat) -> NamespaceId {
        NamespaceId {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

impl Namespace {
    /// What tells it from others; `None` for the own one.
    pub fn id(&self) -> Option<NamespaceId> {
        let stat = rustix::fs::fstat(self.descriptor()?).ok()?;
        Some(NamespaceId::of(&stat))
    }
}

/// Makes the directory, and lets other mount namespaces see what is mounted in it, as
/// `ip netns` does.
fn share_directory() -> Result<(), Errno> {
    let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
    match rustix::fs::mkdir(DIRECTORY, mode) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    match rustix::mount::mount_change(DIRECTORY, shared) {
        Err(Errno::INVAL) => {
            // It is no place of mounts yet.
            rustix::mount::mount_bind_recursive(DIRECTORY, DIRECTORY)?;
            rustix::mount::mount_change(DIRECTORY, shared)
        }
        changed => changed,
    }
}
