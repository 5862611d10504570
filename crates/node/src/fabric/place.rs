//! A node's place in a fabric: its name, its addresses, and the socket at which
//! it is reached. Taken under the fabric's lock, given up when dropped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, SocketFlags};
use toehold_link::mq::{InvalidName, NodeName, Reach, SocketAccess};

use super::access::{Access, name_of_user};
use super::names::{Meaning, meaning_outside};
use super::network::{AssignError, Holder, Networks};
use super::record::{self, Beyond, NodeRecord, Role};
use super::{CONTROL, Fabric, FabricError, LINK, RECORD, file, socket};
use crate::settings::NodeSettings;

/// The fabric's networks, where they are not the default ones.
const NETWORKS: &str = ".networks.json";

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// The reason why a node cannot have its place.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// The text is no name of a node.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The fabric cannot be used.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A living node has the name.
    #[error(
        "a node named {0} is running in this fabric; choose another name, or stop it with `toehold down {0}`"
    )]
    NameInUse(NodeName),
    /// A living node of another host has the name.
    #[error(
        "a node named {name} is running on host {host}, which an uplink of this fabric leads to; \
         choose another name, or stop that one"
    )]
    NameInUseBeyond {
        /// The name.
        name: NodeName,
        /// The name of the other host.
        host: String,
    },
    /// Every program of this host knows something else by the name.
    #[error("{name} cannot be a node's name: it {meaning}; choose another name")]
    Meant {
        /// The name.
        name: NodeName,
        /// The name's meaning.
        meaning: Meaning,
    },
    /// A dead node of another user has left its files.
    #[error(
        "a node named {name} of user {owner} has ended and left its files, which this user may not remove; choose \
         another name, or have that user or root run `toehold ps`"
    )]
    LeftBehind {
        /// The name.
        name: NodeName,
        /// The user.
        owner: String,
    },
    /// The node's socket cannot get the directory's group.
    #[error(
        "the node's socket cannot get the group of {0}, whose members may join; `chmod g+s {0}` passes it on to \
         what is made there"
    )]
    Group(PathBuf),
    /// This user may not join the fabric.
    #[error(
        "this user may not join the fabric {0}: that takes write permission on the directory; its owner gives it by \
         `chgrp GROUP {0}; chmod 2770 {0}`"
    )]
    NotAllowed(PathBuf),
    /// The fabric has no address for the node.
    #[error(transparent)]
    Assign(#[from] AssignError),
    /// The fabric has other networks.
    #[error(
        "the fabric's nodes have addresses of {} and {}; stop them first (`toehold down --all`), or leave --network out",
        .0.ipv4, .0.ipv6
    )]
    OtherNetworks(Networks),
    /// A file of the fabric is damaged.
    #[error("{0} in the fabric's directory is damaged; remove it")]
    Damaged(&'static str),
    /// The node's files cannot be made.
    #[error("cannot make the node's files in the fabric: {0}")]
    Files(#[source] io::Error),
}

/// A file of a node, beside those of its place.
#[derive(Debug)]
pub(crate) struct OwnFile {
    directory: OwnedFd,
    name: String,
    held: OwnedFd,
}

impl OwnFile {
    /// Removes it, if it still is the one that was written.
    pub(crate) fn remove(&self) {
        if is_own(self.directory.as_fd(), &self.name, &self.held) {
            let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// A node's place. Dropping it removes the node's files, and the fabric's directory with the last.
#[derive(Debug)]
pub struct Place {
    fabric: Fabric,
    record: NodeRecord,
    listener: OwnedFd,
    access: Access,
    /// The files, held so that others of the same names, which may be another
    /// node's, are told from them and never removed.
    pub(super) files: Vec<(String, OwnedFd)>,
}

impl Fabric {
    /// Takes a place for a node of this process: its name, and the addresses its
    /// settings give, or free ones of the fabric's networks. `networks` are
    /// the fabric's from now on if no node runs in it.
    ///
    /// # Errors
    ///
    /// If the name or an address is taken, the fabric has other networks, or its
    /// directory cannot be written.
    pub fn take(self, name: &str, settings: &NodeSettings, networks: &[IpNet]) -> Result<Place, TakeError> {
        self.take_as(Role::Node, name, settings, networks, &[])
    }

    /// Takes a place for a member that may be no node. It is to have no name and no address that a
    /// host `beyond` the fabric's uplinks has.
    ///
    /// # Errors
    ///
    /// If the name or an address is taken, in the fabric or beyond it, the fabric has other
    /// networks, or its directory cannot be written.
    pub fn take_as(
        mut self,
        role: Role,
        name: &str,
        settings: &NodeSettings,
        networks: &[IpNet],
        beyond: &[Beyond],
    ) -> Result<Place, TakeError> {
        let name: NodeName = name.parse()?;
        if let Some(meaning) = meaning_outside(name.as_str()).filter(|_| role != Role::Uplink) {
            return Err(TakeError::Meant { name, meaning });
        }
        let lock = self.lock_in_place()?;
        self.sweep_locked();
        if let Some(owner) = self.owner(&name, CONTROL) {
            return Err(match self.is_alive(&name) {
                true => TakeError::NameInUse(name),
                false => TakeError::LeftBehind {
                    name,
                    owner: name_of_user(owner),
                },
            });
        }
        if self.dial(&name, LINK).is_ok() {
            return Err(TakeError::NameInUse(name));
        }
        let has_name = |beyond: &&Beyond| beyond.members.iter().any(|member| member.name == name);
        if let Some(Beyond { host, .. }) = beyond.iter().find(has_name) {
            return Err(TakeError::NameInUseBeyond {
                name,
                host: host.clone(),
            });
        }
        let nodes = self.nodes();
        let networks = self.networks(networks, &nodes)?;
        let holders = Holder::all(&nodes, beyond);
        let addresses = match role {
            Role::Uplink => Networks::assign_none(&name, settings, &holders)?,
            Role::Node | Role::Device => networks.assign(&name, settings, &holders)?,
        };
        let record = NodeRecord {
            name,
            mac: addresses.mac,
            role,
            ipv4: addresses.ipv4,
            ipv6: addresses.ipv6,
            mtu: settings.mtu,
            pid: std::process::id(),
            started: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        };
        let directory = SocketAccess::of(self.handle()).map_err(failed)?;
        let access = Access::of(settings, directory);
        let listener = self.listen(&name, directory, &access);
        let listener = listener.map_err(|errno| self.refused(errno))?;
        let mut place = Place {
            fabric: self,
            record,
            listener,
            access,
            files: Vec::new(),
        };
        place.own(CONTROL)?;
        let written = record::write(place.fabric.handle(), &file(&name, RECORD), &place.record);
        written.map_err(|errno| place.fabric.refused(errno))?;
        place.own(RECORD)?;
        drop(lock);
        Ok(place)
    }

    /// The fabric's networks, which a first node may choose.
    fn networks(&self, given: &[IpNet], nodes: &[NodeRecord]) -> Result<Networks, TakeError> {
        let current = match record::read(self.handle(), NETWORKS) {
            Ok((bytes, _)) => Networks::parse(&bytes).ok_or(TakeError::Damaged(NETWORKS))?,
            Err(Errno::NOENT) => Networks::default(),
            Err(_) => return Err(TakeError::Damaged(NETWORKS)),
        };
        let wanted = current.with(given);
        if wanted == current {
            return Ok(current);
        }
        if !nodes.is_empty() {
            return Err(TakeError::OtherNetworks(current));
        }
        record::write(self.handle(), NETWORKS, &wanted).map_err(|errno| self.refused(errno))?;
        Ok(wanted)
    }

    /// A socket that listens under the node's name. Users that may join the fabric can connect, and
    /// users that the node's settings let in: the server checks them.
    fn listen(&self, name: &NodeName, directory: SocketAccess, access: &Access) -> Result<OwnedFd, Errno> {
        let socket = socket(SocketFlags::NONBLOCK)?;
        net::bind(&socket, &self.address(name, CONTROL)?)?;
        // Users that the settings let in and that cannot search the directory have no way to the
        // socket.
        let is_searched = self.is_open_to_search();
        let directory = match access.lets_others_in() && is_searched {
            true => SocketAccess {
                reach: Reach::Everyone,
                ..directory
            },
            false => directory,
        };
        let listening = directory
            .give(self.handle(), file(name, CONTROL))
            .and_then(|()| net::listen(&socket, BACKLOG));
        if let Err(errno) = listening {
            let _ = rustix::fs::unlinkat(self.handle(), file(name, CONTROL), AtFlags::empty());
            return Err(errno);
        }
        Ok(socket)
    }
}

impl Fabric {
    /// Whether every user may search the directory.
    fn is_open_to_search(&self) -> bool {
        let mode = rustix::fs::fstat(self.handle()).map(|stat| Mode::from_raw_mode(stat.st_mode));
        mode.is_ok_and(|mode| mode.contains(Mode::XOTH))
    }

    /// The error of a file that cannot be made in the directory.
    fn refused(&self, errno: Errno) -> TakeError {
        match errno {
            Errno::ACCESS => TakeError::NotAllowed(self.path().to_owned()),
            Errno::PERM => TakeError::Group(self.path().to_owned()),
            errno => failed(errno),
        }
    }
}

impl Place {
    /// The users that the node lets in.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// The fabric.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// The facts that the node tells every process about itself.
    pub fn record(&self) -> &NodeRecord {
        &self.record
    }

    /// The socket at which the node's control connections come in.
    pub(crate) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Writes another small file of the node, in place of an earlier one.
    pub(crate) fn write(&self, suffix: &str, value: &impl serde::Serialize) -> Result<OwnFile, TakeError> {
        let _lock = self.fabric.lock()?;
        let name = file(&self.record.name, suffix);
        record::write(self.fabric.handle(), &name, value).map_err(failed)?;
        let directory = self.fabric.handle().try_clone_to_owned();
        Ok(OwnFile {
            directory: directory.map_err(TakeError::Files)?,
            held: self.hold(&name)?,
            name,
        })
    }

    /// Takes the record away: the node is on its way out, and no process is to be led to it any
    /// more. Its name stays taken.
    pub fn withdraw(&mut self) {
        let record = file(&self.record.name, RECORD);
        let (gone, kept) = std::mem::take(&mut self.files)
            .into_iter()
            .partition(|(name, _)| *name == record);
        self.files = kept;
        self.remove(gone);
    }

    fn own(&mut self, suffix: &str) -> Result<(), TakeError> {
        let name = file(&self.record.name, suffix);
        let held = self.hold(&name)?;
        self.files.push((name, held));
        Ok(())
    }

    fn hold(&self, name: &str) -> Result<OwnedFd, TakeError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(self.fabric.handle(), name, flags, Mode::empty()).map_err(failed)
    }

    fn remove(&self, files: Vec<(String, OwnedFd)>) {
        for (name, held) in files {
            if is_own(self.fabric.handle(), &name, &held) {
                let _ = rustix::fs::unlinkat(self.fabric.handle(), &name, AtFlags::empty());
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let files = std::mem::take(&mut self.files);
        self.remove(files);
        // A process that has it locked for long removes it, or the next one does.
        let _ = self.fabric.remove_if_empty();
    }
}

/// Whether the file of this name is the one that is held.
fn is_own(directory: BorrowedFd<'_>, name: &str, held: &OwnedFd) -> bool {
    let there = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    match (there, rustix::fs::fstat(held)) {
        (Ok(there), Ok(held)) => (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino),
        _ => false,
    }
}

fn failed(errno: Errno) -> TakeError {
    TakeError::Files(errno.into())
}
