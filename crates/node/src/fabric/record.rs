//! The record in which a node tells every process about itself: a small JSON file beside its
//! sockets.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{BorrowedFd, OwnedFd};

use ipnet::{Ipv4Net, Ipv6Net};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use toehold_link::mq::NodeName;
use toehold_wire::Mac;

use crate::as_text;

/// Bytes of a file that is read, at most.
const MAX_LEN: u64 = 4096;

/// The beginning of the name of a file that is being written; the holder of the fabric's lock
/// writes. The rest is random: another user's file of the name could not be removed from a
/// directory with the sticky bit.
pub(super) const NEW: &str = ".new-";

/// The kinds of members of a fabric.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A node, with a stack that programs use.
    #[default]
    Node,
    /// An interface of the kernel, which has the member's addresses.
    Device,
    /// The member leads to others, and has no addresses.
    Uplink,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Role::Node => "node",
            Role::Device => "device",
            Role::Uplink => "uplink",
        })
    }
}

/// A node as its fabric knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The member's name.
    #[serde(with = "as_text")]
    pub name: NodeName,
    /// The member's hardware address.
    #[serde(with = "as_text")]
    pub mac: Mac,
    /// The member's kind.
    #[serde(default)]
    pub role: Role,
    /// The member's IPv4 address, and the length of its network's prefix; unspecified if it has
    /// none.
    pub ipv4: Ipv4Net,
    /// The member's IPv6 address, and the length of its network's prefix; unspecified if it has
    /// none.
    pub ipv6: Ipv6Net,
    /// The member's largest IP packet, bytes.
    pub mtu: u16,
    /// The member's engine process. Only for people to read: a file is no reason to kill one.
    pub pid: u32,
    /// The time when the member was started, in seconds since 1970.
    pub started: u64,
}

/// The name and addresses that no two members may have where frames reach one another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The name.
    #[serde(with = "as_text")]
    pub name: NodeName,
    /// The hardware address.
    #[serde(with = "as_text")]
    pub mac: Mac,
    /// The IPv4 address, unspecified if there is none.
    pub ipv4: Ipv4Addr,
    /// The IPv6 address, unspecified if there is none.
    pub ipv6: Ipv6Addr,
}

/// An uplink's knowledge of another one that it leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beyond {
    /// The other host's name.
    pub host: String,
    /// The other uplink's name.
    #[serde(with = "as_text")]
    pub uplink: NodeName,
    /// The number of the other uplink's fabric, the same for all uplinks of one; of 53 bits.
    pub fabric: u64,
    /// The members of the other uplink's fabric, the uplink among them.
    pub members: Vec<Identity>,
}

impl From<&NodeRecord> for Identity {
    fn from(record: &NodeRecord) -> Identity {
        Identity {
            name: record.name,
            mac: record.mac,
            ipv4: record.ipv4.addr(),
            ipv6: record.ipv6.addr(),
        }
    }
}

impl NodeRecord {
    /// The member's addresses, IPv4 first. It has none if it is the kernel's or leads to other
    /// hosts.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let addresses = [self.ipv4.addr().into(), self.ipv6.addr().into()];
        let addresses = addresses.into_iter();
        addresses.filter(|address: &IpAddr| !address.is_unspecified())
    }

    /// Reads a record and the user that wrote it; `None` if the file is none.
    pub(super) fn read(directory: BorrowedFd<'_>, name: &str) -> Option<(NodeRecord, u32)> {
        let (bytes, owner) = read(directory, name).ok()?;
        Some((NodeRecord::parse(&bytes)?, owner))
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<NodeRecord> {
        serde_json::from_slice(bytes).ok()
    }
}

/// Reads a small file. Returns its bytes and its owner.
///
/// Neither a link nor a pipe nor a device can be passed off as one: opening
/// those could wait without end, or have effects.
pub(super) fn read(directory: BorrowedFd<'_>, name: &str) -> Result<(Vec<u8>, u32), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let mut bytes = Vec::new();
    let read = std::fs::File::from(file)
        .take(MAX_LEN + 1)
        .read_to_end(&mut bytes);
    if read.is_err() || bytes.len() as u64 > MAX_LEN {
        return Err(Errno::FBIG);
    }
    Ok((bytes, stat.st_uid))
}

/// Replaces a small file at once: a reader sees the old one or the new one.
/// Under the fabric's lock only.
pub(super) fn write(directory: BorrowedFd<'_>, name: &str, value: &impl Serialize) -> Result<(), Errno> {
    let bytes = serde_json::to_vec_pretty(value).map_err(|_| Errno::INVAL)?;
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let new = format!("{NEW}{:016x}", u64::from_ne_bytes(random));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, &new, flags, Mode::RUSR | Mode::WUSR)?;
    // Others of the fabric read it, whatever the umask; the directory says which users those are.
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let written = write_all(&file, &bytes)
        .and_then(|()| rustix::fs::fchmod(&file, mode))
        .and_then(|()| rustix::fs::renameat(directory, &new, directory, name));
    if written.is_err() {
        let _ = rustix::fs::unlinkat(directory, &new, AtFlags::empty());
    }
    written
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
