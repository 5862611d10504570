//! Fabrics: directories in which nodes find one another.
//!
//! A node has three files in its fabric's directory, and removes them when it leaves. At
//! `NAME.sock` peers shake hands ([`toehold_link::mq`]). At `NAME.ctl` its own processes and
//! people's commands reach it ([`crate::control`]). `NAME.json` is its [`NodeRecord`]. A node with
//! a TAP device also has `NAME.tap`, which says what of it the kernel keeps. The files of a node
//! that was killed stay until a process [sweeps](Fabric::sweep) them: a control socket that refuses
//! is a dead node's.
//!
//! The owner, group and mode of a fabric's directory alone say which users may join: those that may
//! write to it. The sockets in it get their group and mode from it, whatever the umask. What others
//! have written into it is read with bounds, and passed over if it is nonsense.

mod access;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod location;
mod names;
mod network;
mod place;
mod record;
mod stowed;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use toehold_link::mq::{Bound, InvalidName, NodeName, Registry};
use toehold_wire::Mac;

use crate::descriptors::copy;
use crate::kernel::leftovers;
use crate::why::Reason;

pub use self::access::{Access, GroupId, GroupIds, Right, Rights, UnknownId, UserIds, name_of_user};
pub use self::location::root;
pub use self::names::{Meaning, meaning_outside};
pub use self::network::{AssignError, Networks, mac_of_name};
pub(crate) use self::place::OwnFile;
pub use self::place::{Place, TakeError};
pub use self::record::{Beyond, Identity, NodeRecord, Role};
pub use self::stowed::Stowed;

/// The fabric where none is named.
pub const DEFAULT: &str = "default";

/// The variable of the environment that names the fabric.
pub const VARIABLE: &str = "TOEHOLD_FABRIC";

/// Files of nodes that are looked at: three for each of a thousand.
const MAX_FILES: usize = 4096;

/// Entries of a directory that are looked at for that: other files hide no node.
const MAX_ENTRIES: usize = 1 << 16;

/// How long to wait for others that change the directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

const CONTROL: &str = "ctl";
const RECORD: &str = "json";
const LINK: &str = "sock";

/// A fabric's directory.
#[derive(Debug)]
pub struct Fabric {
    name: String,
    path: PathBuf,
    /// The directory. Everything goes through it: the path may lead elsewhere later, and may be
    /// longer than a socket's address can be.
    handle: OwnedFd,
}

/// The reason why a fabric cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// The text is no name of a fabric.
    #[error(
        "{0:?} is no name of a fabric: take 1 to 63 letters, digits, '-', '_' or '.', or a directory with a '/' in it"
    )]
    Name(String),
    /// There is no such fabric.
    #[error("there is no fabric {0}; `toehold up` makes one when it starts its first node")]
    Missing(String),
    /// Another user could change what is in the directory.
    #[error(
        "{path} is not this user's alone: {why}; remove it, name another directory in {}, or, of a fabric that \
         users share, give its directory itself (--fabric {path}/)",
        location::VARIABLE
    )]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// The fault of the directory.
        why: &'static str,
    },
    /// The directory cannot be made, opened or written.
    #[error(
        "cannot use {path} as a fabric's directory: {source}{}",
        location::advice(source, path)
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A process holds the directory's lock for too long.
    #[error("{0} stays locked by another process")]
    Locked(PathBuf),
}

/// The reason why a name leads to no node.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The text is no name of a node.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// No living node has it.
    #[error("no node named {node} runs in fabric {fabric}; see `toehold ps`")]
    Unknown {
        /// The node.
        node: NodeName,
        /// The fabric.
        fabric: String,
    },
}

/// Holds the directory's lock.
pub(crate) struct Lock {
    _handle: OwnedFd,
}

impl FabricError {
    /// The reason why a process that cannot use the fabric is not on a node of it.
    pub fn reason(&self) -> Reason {
        match self {
            FabricError::Name(_) => Reason::NoNode,
            FabricError::Missing(_) => Reason::OtherNamespace,
            FabricError::Unsafe { .. } => Reason::OtherUser,
            FabricError::Directory { source, .. } => Reason::of_system(Errno::from_io_error(source)),
            FabricError::Locked(_) => Reason::NoNode,
        }
    }
}

impl Fabric {
    /// Opens a fabric, and makes it if there is none, for this user only. A
    /// name with a `/` in it is the directory itself; others are looked for in [`root`].
    ///
    /// # Errors
    ///
    /// If the directory cannot be made or opened, or others could change a fabric
    /// that is given by name.
    pub fn open(name: &str) -> Result<Fabric, FabricError> {
        location::open(name, true)
    }

    /// Opens a fabric that exists.
    ///
    /// # Errors
    ///
    /// If there is none, it cannot be opened, or others could change a fabric that is given by
    /// name.
    pub fn existing(name: &str) -> Result<Fabric, FabricError> {
        location::open(name, false)
    }

    /// Every fabric of this user that has a name.
    pub fn all() -> Vec<Fabric> {
        location::all()
    }

    /// A lookup of the addresses that the fabric gave its members. An address is that of a member's
    /// record, if the record and the member are of the same user.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left.
    pub(crate) fn registry(&self) -> io::Result<Registry> {
        let fabric = self.try_clone()?;
        Ok(Registry::new(move |name, mac, uid| fabric.bound(name, mac, uid)))
    }

    /// A lookup of the addresses that the fabric in a directory gave its members, if it is there.
    pub(crate) fn registry_in(directory: &Path) -> Option<Registry> {
        let fabric = Fabric::existing(&format!("{}/", directory.display())).ok()?;
        fabric.registry().ok()
    }

    fn bound(&self, name: &NodeName, mac: [u8; 6], uid: u32) -> Bound {
        match NodeRecord::read(self.handle.as_fd(), &file(name, RECORD)) {
            Some((record, owner)) if owner == uid && record.name == *name && record.mac.0 == mac => {
                Bound::new(Some(record.ipv4.addr()), Some(record.ipv6.addr()))
            }
            _ => Bound::default(),
        }
    }

    /// A second handle.
    ///
    /// # Errors
    ///
    /// If there are no descriptors left.
    pub fn try_clone(&self) -> std::io::Result<Fabric> {
        Ok(Fabric {
            name: self.name.clone(),
            path: self.path.clone(),
            handle: copy(&self.handle)?,
        })
    }

    /// The name by which the fabric was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory of the fabric.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The nodes that run, by name.
    pub fn nodes(&self) -> Vec<NodeRecord> {
        let living = |name: &NodeName| self.record(name).filter(|_| self.is_alive(name));
        self.names().iter().filter_map(living).collect()
    }

    /// The records in the fabric's files, whether those nodes run or not: no node is asked.
    pub(crate) fn records(&self) -> Vec<NodeRecord> {
        self.names().iter().filter_map(|name| self.record(name)).collect()
    }

    /// A number that is this fabric's alone, of 53 bits: the same for all that open it.
    pub(crate) fn number(&self) -> u64 {
        let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let directory = rustix::fs::fstat(&self.handle).map(|stat| [stat.st_dev, stat.st_ino]);
        let place = directory.unwrap_or_default().map(u64::to_le_bytes).concat();
        network::fnv(boot.into_iter().chain(place)) >> 11
    }

    /// The hardware address of an interface of this name that leads past the fabric, where others
    /// of the same name may be. It is another one on each machine, and for each fabric of a
    /// machine. It is the same in every life of the interface as long as the machine has one
    /// identity (`machine-id(5)`), and until it starts anew otherwise.
    pub fn mac_on_this_machine(&self, name: &str) -> Mac {
        let read = |path| fs::read(path).ok().filter(|id| !id.trim_ascii().is_empty());
        let machine = read("/etc/machine-id").or_else(|| read("/proc/sys/kernel/random/boot_id"));
        let place = std::os::unix::ffi::OsStrExt::as_bytes(self.path.as_os_str());
        let parts = [&machine.unwrap_or_default(), place, name.as_bytes()];
        network::mac_of(parts.join(&0).into_iter())
    }

    /// The node of this name, if it runs.
    ///
    /// ```
    /// use toehold_node::fabric::Fabric;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// let fabric = Fabric::open(&format!("{}/", directory.path().display()))?;
    /// let error = fabric.resolve("web").unwrap_err();
    /// assert!(error.to_string().starts_with("no node named web runs"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the text is no name, or no living node has it.
    pub fn resolve(&self, name: &str) -> Result<NodeRecord, ResolveError> {
        let node: NodeName = name.parse()?;
        let record = self.record(&node).filter(|_| self.is_alive(&node));
        record.ok_or_else(|| ResolveError::Unknown {
            node,
            fabric: self.name.clone(),
        })
    }

    /// The addresses of the node of this name, if it runs and has any; none for a text that is no
    /// name. Takes no lock, waits for no node, and does not attach.
    ///
    /// ```
    /// use toehold_node::fabric::Fabric;
    /// use toehold_node::settings::NodeSettings;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = format!("{}/", directory.path().display());
    /// let _web = Fabric::open(&path)?.take("web", &NodeSettings::default(), &[])?;
    /// let addresses = Fabric::open(&path)?.lookup("web");
    /// assert_eq!(addresses[0].to_string(), "10.77.0.1");
    /// assert!(Fabric::open(&path)?.lookup("web.example").is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lookup(&self, name: &str) -> Vec<IpAddr> {
        let record = self.resolve(name);
        record.map_or_else(|_| Vec::new(), |record| record.addresses().collect())
    }

    /// Whether this process may look for names in the directory, which it may have opened as another user.
    pub fn is_searchable(&self) -> bool {
        let searches = rustix::fs::accessat(&self.handle, ".", rustix::fs::Access::EXEC_OK, AtFlags::EACCESS);
        searches != Err(Errno::ACCESS)
    }

    /// Removes the files that killed nodes have left behind.
    ///
    /// # Errors
    ///
    /// If the directory stays locked.
    pub fn sweep(&self) -> Result<(), FabricError> {
        let _lock = self.lock()?;
        self.sweep_locked();
        Ok(())
    }

    /// Removes the directory of a fabric that has a name, if nothing is in it any more. A process
    /// that is about to make something in it makes it anew.
    ///
    /// # Errors
    ///
    /// If the directory stays locked.
    pub fn remove_if_empty(&self) -> Result<(), FabricError> {
        if self.name.contains('/') {
            // Its owner has made it, for whatever else.
            return Ok(());
        }
        let _lock = self.lock()?;
        self.sweep_locked();
        if self.is_in_place() {
            // Only an empty one can be removed so.
            let _ = rustix::fs::rmdir(&self.path);
        }
        Ok(())
    }

    /// Whether the directory is still the one that the fabric's path leads to. It stays so
    /// as long as it is locked.
    fn is_in_place(&self) -> bool {
        let there = rustix::fs::statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW);
        match (there, rustix::fs::fstat(&self.handle)) {
            (Ok(there), Ok(held)) => (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino),
            _ => false,
        }
    }

    /// Locks the directory; one that was removed meanwhile is made anew before.
    pub(crate) fn lock_in_place(&mut self) -> Result<Lock, FabricError> {
        loop {
            let lock = self.lock()?;
            if self.name.contains('/') || self.is_in_place() {
                return Ok(lock);
            }
            *self = location::open_again(self)?;
        }
    }

    /// Sweeps with the lock held. Under the lock no process is between making a socket and
    /// listening at it, so one that refuses is dead. What belongs to others stays if it cannot be
    /// removed.
    fn sweep_locked(&self) {
        for unfinished in self.unfinished() {
            let _ = rustix::fs::unlinkat(&self.handle, unfinished, AtFlags::empty());
        }
        let dead = |name: &&NodeName| !self.is_alive(name);
        for name in self.names().iter().filter(dead) {
            // As long as that cannot be removed which it tells of, the file stays.
            let device = file(name, leftovers::SUFFIX);
            if leftovers::sweep(self.handle.as_fd(), &device) {
                let _ = rustix::fs::unlinkat(&self.handle, device, AtFlags::empty());
            }
            for suffix in [RECORD, CONTROL] {
                let _ = rustix::fs::unlinkat(&self.handle, file(name, suffix), AtFlags::empty());
            }
            for socket in toehold_link::mq::socket_names(name) {
                if self.refuses(&socket) {
                    let _ = rustix::fs::unlinkat(&self.handle, socket, AtFlags::empty());
                }
            }
        }
    }

    /// Files that a writer has left that was killed. Under the lock only.
    fn unfinished(&self) -> Vec<std::ffi::OsString> {
        let entries = fs::read_dir(self.through_handle("")).into_iter().flatten();
        let files = entries
            .take(MAX_ENTRIES)
            .filter_map(|entry| Some(entry.ok()?.file_name()));
        files
            .filter(|name| name.as_encoded_bytes().starts_with(record::NEW.as_bytes()))
            .collect()
    }

    /// The names of all nodes with a record, a control socket or a device, living or dead.
    fn names(&self) -> Vec<NodeName> {
        let Ok(entries) = fs::read_dir(self.through_handle("")) else {
            return Vec::new();
        };
        let name = |entry: io::Result<fs::DirEntry>| {
            let file = entry.ok()?.file_name();
            let (name, suffix) = file.to_str()?.rsplit_once('.')?;
            let ours = [RECORD, CONTROL, leftovers::SUFFIX].contains(&suffix);
            ours.then(|| name.parse().ok()).flatten()
        };
        let mut names: Vec<NodeName> = entries
            .take(MAX_ENTRIES)
            .filter_map(name)
            .take(MAX_FILES)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether a node's engine listens. Of another user's node, which does not
    /// let this one in, it is taken to.
    fn is_alive(&self, name: &NodeName) -> bool {
        let known = self.owner(name, CONTROL).is_some();
        known && !self.refuses(&file(name, CONTROL))
    }

    /// Whether a socket exists and no process listens at it.
    fn refuses(&self, socket: &str) -> bool {
        let nobody = matches!(self.dial_file(socket), Err(Errno::CONNREFUSED));
        // Anything else that has the name refuses as well.
        nobody && self.owner_of(socket).is_some()
    }

    /// Connects to a node's socket. Never waits: an owner that does not keep up
    /// is `AGAIN`, a dead one `CONNREFUSED`.
    fn dial(&self, name: &NodeName, suffix: &str) -> Result<OwnedFd, Errno> {
        self.dial_file(&file(name, suffix))
    }

    fn dial_file(&self, name: &str) -> Result<OwnedFd, Errno> {
        let socket = socket(SocketFlags::NONBLOCK)?;
        net::connect(&socket, &SocketAddrUnix::new(self.through_handle(name))?)?;
        Ok(socket)
    }

    /// Connects to a node's control socket, without waiting.
    pub(crate) fn dial_control(&self, name: &NodeName) -> Result<OwnedFd, Errno> {
        self.dial(name, CONTROL)
    }

    fn address(&self, name: &NodeName, suffix: &str) -> Result<SocketAddrUnix, Errno> {
        SocketAddrUnix::new(self.through_handle(&file(name, suffix)))
    }

    /// A path that is short enough for any socket's address, however long the
    /// directory's is.
    fn through_handle(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.handle.as_raw_fd()))
    }

    /// The user whose node has a name, as the owner of its control socket.
    pub(crate) fn user_of(&self, name: &NodeName) -> Option<u32> {
        self.owner(name, CONTROL)
    }

    /// The user that a node's socket belongs to.
    fn owner(&self, name: &NodeName, suffix: &str) -> Option<u32> {
        self.owner_of(&file(name, suffix))
    }

    fn owner_of(&self, name: &str) -> Option<u32> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = rustix::fs::statat(&self.handle, name, flags).ok()?;
        (FileType::from_raw_mode(stat.st_mode) == FileType::Socket).then_some(stat.st_uid)
    }

    /// A node's record, if it is one, and of the same user as its control socket.
    pub(crate) fn record(&self, name: &NodeName) -> Option<NodeRecord> {
        let (record, owner) = NodeRecord::read(self.handle.as_fd(), &file(name, RECORD))?;
        let genuine = record.name == *name && self.owner(name, CONTROL) == Some(owner);
        genuine.then_some(record)
    }

    /// Locks the directory. Any process that can read the directory can hold its lock, so this never
    /// waits for it without end. Links take it as well when they make their sockets.
    pub(crate) fn lock(&self) -> Result<Lock, FabricError> {
        // A handle of its own: a lock belongs to what open() has made.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&self.handle, ".", flags, Mode::empty());
        let handle = handle.map_err(|errno| self.failed(errno))?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match rustix::fs::flock(&handle, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock { _handle: handle }),
                Err(Errno::AGAIN | Errno::INTR) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(Errno::AGAIN | Errno::INTR) => return Err(FabricError::Locked(self.path.clone())),
                Err(errno) => return Err(self.failed(errno)),
            }
        }
    }

    fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    fn failed(&self, errno: Errno) -> FabricError {
        FabricError::Directory {
            path: self.path.clone(),
            source: errno.into(),
        }
    }
}

/// Reads a small file of a fabric, and whose it is.
pub(crate) fn read_file(directory: BorrowedFd<'_>, name: &str) -> Result<(Vec<u8>, u32), Errno> {
    record::read(directory, name)
}

/// The name of a node's file.
fn file(name: &NodeName, suffix: &str) -> String {
    format!("{name}.{suffix}")
}

/// A socket for control connections.
fn socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | SocketFlags::CLOEXEC;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}
