//! The fabric's directory: one socket for each shard of a node, found by name.
//!
//! Owns the rules about these files: which node may replace one, which are dead, and that a node
//! removes its own and no other.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::control;
use super::name::{MemberName, NodeName};
use crate::steering::MAX_SHARDS;

const SUFFIX: &str = ".sock";

/// Sockets found when looking for nodes: each shard of as many nodes as a node can have peers.
const MAX_NAMES: usize = 8192;

/// Entries looked at for that: other files hide no node.
const MAX_ENTRIES: usize = 1 << 16;

/// How long to wait for another node that is just joining.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a node could not take its place in a fabric's directory.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The directory cannot be made or opened.
    #[error("cannot use {path} as the fabric's directory: {source}")]
    Open {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process holds the directory's lock for too long.
    #[error("{0} stays locked by another process")]
    Locked(PathBuf),
    /// A living node has this name.
    #[error("a node named {0} is running in this fabric; choose another name or stop it")]
    NameInUse(NodeName),
    /// Something that is no socket has the socket's name.
    #[error("{0} exists and is not a socket; remove it")]
    NotASocket(PathBuf),
    /// The socket cannot get the directory's group.
    #[error(
        "the node's socket cannot get the group of {0}, whose members may join; `chmod g+s {0}` passes it on to \
         what is made there"
    )]
    Group(PathBuf),
    /// The path is too long for a Unix socket (107 bytes).
    #[error("{0} is too long for a Unix socket; choose a shorter directory")]
    PathTooLong(PathBuf),
    /// The socket cannot be made.
    #[error("cannot listen at {path}: {source}")]
    Listen {
        /// The socket's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The names of the sockets that a node may have in its fabric's directory, one for each
/// shard that it can have.
pub fn socket_names(node: &NodeName) -> impl Iterator<Item = String> {
    let node = *node;
    (0..MAX_SHARDS).map(move |shard| format!("{}{SUFFIX}", MemberName { node, shard }))
}

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The directory itself. Its lock serializes taking a name: finding a socket dead and replacing
    /// it.
    handle: OwnedFd,
}

/// A node's place in the directory, given up when dropped.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// Device and inode, so that another node's file is never removed.
    identity: Option<(u64, u64)>,
}

impl Directory {
    /// Opens the directory; makes it, for this user only, if there is none.
    pub(super) fn open(path: &Path) -> Result<Directory, DirectoryError> {
        let failed = |source: io::Error| DirectoryError::Open {
            path: path.to_owned(),
            source,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = loop {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(path).map_err(failed)?;
            match rustix::fs::open(path, flags, Mode::empty()) {
                Ok(handle) => break handle,
                // Another process has removed it in between, since it was empty.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
        };
        Ok(Directory {
            path: path.to_owned(),
            handle,
        })
    }

    pub(super) fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    pub(super) fn socket_path(&self, name: &MemberName) -> PathBuf {
        self.path.join(format!("{name}{SUFFIX}"))
    }

    /// The user that owns the node's socket.
    pub(super) fn owner(&self, name: &MemberName) -> Option<u32> {
        let metadata = fs::symlink_metadata(self.socket_path(name)).ok()?;
        metadata.file_type().is_socket().then(|| metadata.uid())
    }

    /// Whether members of a user may be gateways, which speak for addresses that no member has:
    /// those of the directory's owner, and root's.
    pub(super) fn may_lead(&self, uid: u32) -> bool {
        uid == 0 || rustix::fs::fstat(&self.handle).is_ok_and(|directory| directory.st_uid == uid)
    }

    /// The names of all nodes, living or dead.
    pub(super) fn names(&self) -> Vec<MemberName> {
        let Ok(entries) = fs::read_dir(&self.path) else {
            return Vec::new();
        };
        let name = |entry: io::Result<fs::DirEntry>| {
            entry
                .ok()?
                .file_name()
                .to_str()?
                .strip_suffix(SUFFIX)?
                .parse()
                .ok()
        };
        let names = entries.take(MAX_ENTRIES).filter_map(name);
        let mut names: Vec<MemberName> = names.take(MAX_NAMES).collect();
        names.sort_unstable();
        names
    }

    /// Takes `name`: a socket that listens under it, in place of a dead one.
    pub(super) fn take(&mut self, name: &MemberName) -> Result<(OwnedFd, Place), DirectoryError> {
        self.lock_in_place()?;
        let taken = self.take_locked(name);
        let _ = rustix::fs::flock(&self.handle, FlockOperation::Unlock);
        taken
    }

    fn take_locked(&self, name: &MemberName) -> Result<(OwnedFd, Place), DirectoryError> {
        let path = self.socket_path(name);
        let mut listening = control::listen(&path);
        if let Err(Errno::ADDRINUSE) = listening {
            self.remove_dead(name, &path)?;
            listening = control::listen(&path);
        }
        match listening {
            Ok(socket) => {
                let identity = identity(&path);
                Ok((socket, Place { path, identity }))
            }
            Err(Errno::NAMETOOLONG) => Err(DirectoryError::PathTooLong(path)),
            Err(Errno::PERM) => Err(DirectoryError::Group(self.path.clone())),
            Err(errno) => Err(DirectoryError::Listen {
                path,
                source: errno.into(),
            }),
        }
    }

    /// Removes the socket of an owner that died. Under the lock no process is between making a
    /// socket and listening on it, so a socket that refuses is dead.
    fn remove_dead(&self, name: &MemberName, path: &Path) -> Result<(), DirectoryError> {
        if self.owner(name).is_none() && path.symlink_metadata().is_ok() {
            return Err(DirectoryError::NotASocket(path.to_owned()));
        }
        match control::dial(path) {
            Err(Errno::CONNREFUSED) => {}
            Err(Errno::NOENT) => return Ok(()),
            _ => return Err(DirectoryError::NameInUse(name.node)),
        }
        fs::remove_file(path).map_err(|source| DirectoryError::Listen {
            path: path.to_owned(),
            source,
        })
    }

    /// Locks the directory that the path leads to. An empty one may have been removed since this
    /// one was opened: it is made again. A process that removes a directory locks it, too.
    fn lock_in_place(&mut self) -> Result<(), DirectoryError> {
        loop {
            self.lock()?;
            let held = rustix::fs::fstat(&self.handle).map_err(|errno| self.failed(errno))?;
            let there = fs::metadata(&self.path).map(|metadata| (metadata.dev(), metadata.ino()));
            if there.is_ok_and(|there| there == (held.st_dev, held.st_ino)) {
                return Ok(());
            }
            *self = Directory::open(&self.path)?;
        }
    }

    fn failed(&self, errno: Errno) -> DirectoryError {
        DirectoryError::Open {
            path: self.path.clone(),
            source: errno.into(),
        }
    }

    /// Any process that can read the directory can hold the lock: never wait
    /// for it without end.
    fn lock(&self) -> Result<(), DirectoryError> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match rustix::fs::flock(&self.handle, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(()),
                Err(Errno::AGAIN | Errno::INTR) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(Errno::AGAIN | Errno::INTR) => return Err(DirectoryError::Locked(self.path.clone())),
                Err(errno) => return Err(self.failed(errno)),
            }
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path)
        .ok()
        .map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_of_another_user_than_the_owner_is_refused() {
        let path = std::env::temp_dir().join(format!("toehold-lead-{}", std::process::id()));
        let directory = Directory::open(&path).unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert!(directory.may_lead(own) && directory.may_lead(0));
        assert!(!directory.may_lead(own + 1));
        fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn directory_removed_meanwhile_is_made_again() {
        let path = std::env::temp_dir().join(format!("toehold-removed-{}", std::process::id()));
        let name = |node: &str| MemberName {
            node: node.parse().unwrap(),
            shard: 0,
        };
        let mut first = Directory::open(&path).unwrap();
        fs::remove_dir(&path).unwrap();
        let place = first.take(&name("first")).unwrap();
        let mut second = Directory::open(&path).unwrap();
        let other = second.take(&name("second")).unwrap();
        assert_eq!(first.names(), [name("first"), name("second")]);
        assert!(matches!(
            second.take(&name("first")),
            Err(DirectoryError::NameInUse(_))
        ));
        drop((place, other));
        fs::remove_dir(&path).unwrap();
    }
}
