//! Named network namespaces, which `ip netns` also knows. A name is a file in a
//! directory with the namespace mounted onto it. The namespace lasts until the name
//! is removed and everything in it has ended. A path to another namespace file is
//! also accepted as a name, but is neither created nor removed.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags};

use super::{Namespace, NamespaceError};

/// Directory of the names.
const DIRECTORY: &str = "/run/netns";

/// Longest name in bytes.
const MAX_NAME: usize = 128;

/// Longest path in bytes: the kernel's `PATH_MAX` without the terminator.
const MAX_PATH: usize = 4095;

/// Directories that each process sees with its own content.
const PER_PROCESS_DIRECTORIES: [&str; 3] = ["/proc/self", "/proc/thread-self", "/dev/fd"];

/// The name of a network namespace, or the path of a file that refers to one.
///
/// ```
/// use toehold_link::interface::NamespaceName;
///
/// let name: NamespaceName = "web".parse()?;
/// assert_eq!(name.path().to_str(), Some("/run/netns/web"));
/// let path: NamespaceName = "/proc/1/ns/net".parse()?;
/// assert_eq!(path.path().to_str(), Some("/proc/1/ns/net"));
/// assert!("../web".parse::<NamespaceName>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceName(String);

/// A text that is not a valid name of a network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no name of a network namespace: it takes 1 to 128 letters, digits, '-', '_', '.' or ':', or the path of \
     its file from / on, as another process sees it"
)]
pub struct InvalidNamespaceName;

/// Identifies a namespace, even among later ones of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NamespaceId {
    device: u64,
    inode: u64,
}

impl FromStr for NamespaceName {
    type Err = InvalidNamespaceName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_valid = match text.starts_with('/') {
            true => is_path(text),
            false => is_name(text),
        };
        match is_valid {
            true => Ok(NamespaceName(text.to_owned())),
            false => Err(InvalidNamespaceName),
        }
    }
}

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    let fits = (1..=MAX_NAME).contains(&text.len()) && !matches!(text, "." | "..");
    fits && text.bytes().all(allowed)
}

/// Returns whether a text is a path that means the same file to all processes, the
/// engine included.
fn is_path(text: &str) -> bool {
    let path = Path::new(text);
    let is_common = !PER_PROCESS_DIRECTORIES.iter().any(|own| path.starts_with(own));
    text.len() <= MAX_PATH && !text.contains(char::is_control) && is_common
}

impl Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl NamespaceName {
    /// Returns the path of the namespace's file.
    pub fn path(&self) -> PathBuf {
        // A path replaces the directory.
        Path::new(DIRECTORY).join(&self.0)
    }

    fn is_path(&self) -> bool {
        self.0.starts_with('/')
    }

    /// Opens the namespace of this name, or creates it. The second value tells
    /// whether it was created. At a path none is created.
    ///
    /// # Errors
    ///
    /// If it cannot be created, or the file is no namespace.
    pub fn open_or_create(&self) -> Result<(Namespace, bool), NamespaceError> {
        match self.open() {
            Err(NamespaceError::Missing(_, Errno::NOENT)) if !self.is_path() => self.create(),
            opened => Ok((opened?, false)),
        }
    }

    /// Opens the namespace of this name.
    ///
    /// # Errors
    ///
    /// If there is none, or the file is no network namespace.
    pub fn open(&self) -> Result<Namespace, NamespaceError> {
        const NSFS: rustix::fs::FsWord = 0x6e73_6673;
        let namespace = Namespace::at(&self.path())?;
        let Namespace::Open(descriptor) = &namespace else {
            return Ok(namespace);
        };
        let is_one = rustix::fs::fstatfs(descriptor).is_ok_and(|stat| stat.f_type == NSFS);
        // It may be a namespace of processes or of mounts.
        match is_one.then(|| namespace.run(|| ())) {
            None | Some(Err(NamespaceError::Enter(Errno::INVAL))) => Err(NamespaceError::NotOne(self.path())),
            _ => Ok(namespace),
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
            // Another process was faster.
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

    /// Removes the name if it still belongs to this namespace. Anything inside
    /// keeps the namespace alive. A path is never removed.
    ///
    /// # Errors
    ///
    /// If the process lacks the right.
    pub fn remove(&self, id: NamespaceId) -> Result<(), NamespaceError> {
        let path = self.path();
        match rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if NamespaceId::of(&stat) == id && !self.is_path() => {}
            // The name is gone, or belongs to another namespace.
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
    /// Returns the namespace's identity, or `None` for the thread's own.
    pub fn id(&self) -> Option<NamespaceId> {
        let stat = rustix::fs::fstat(self.descriptor()?).ok()?;
        Some(NamespaceId::of(&stat))
    }
}

/// Creates the directory, and shares mounts in it with other mount namespaces, as
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
            // The directory is no mount point yet.
            rustix::mount::mount_bind_recursive(DIRECTORY, DIRECTORY)?;
            rustix::mount::mount_change(DIRECTORY, shared)
        }
        changed => changed,
    }
}
