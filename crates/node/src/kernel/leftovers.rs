//! The leftovers of a killed engine with the kernel. A file in the fabric says what they are, and
//! the process that sweeps the fabric removes them.
//!
//! The kernel removes a TAP device with its last descriptor, but a program may still have one. The
//! name of a namespace stays until a process takes it away.

use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};
use toehold_link::interface::{Interface, InterfaceError, Namespace, NamespaceId, NamespaceName};

use super::InterfaceName;
use crate::as_text;
use crate::fabric::read_file;

/// The ending of the file of a node about its device.
pub(crate) const SUFFIX: &str = "tap";

/// The things to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leftovers {
    #[serde(with = "as_text")]
    pub(crate) device: InterfaceName,
    /// The device's number and hardware address, which tell it from a later one of the same name;
    /// `None` if it was not made yet.
    pub(crate) identity: Option<(u32, [u8; 6])>,
    /// The name of its namespace, if that is not the engine's own one.
    pub(crate) netns: Option<String>,
    /// The namespace, if its name is to be removed: the node has made it.
    pub(crate) made: Option<NamespaceId>,
}

/// Removes what the file of a dead node tells of. Returns `true` if the file can be removed as
/// well. Another user's file is left to its owner: it could name what only this user may remove.
pub(crate) fn sweep(directory: BorrowedFd<'_>, file: &str) -> bool {
    let Ok((bytes, owner)) = read_file(directory, file) else {
        return false;
    };
    let own = owner == rustix::process::geteuid().as_raw();
    let leftovers = serde_json::from_slice::<Leftovers>(&bytes);
    // What is damaged tells of nothing.
    own && leftovers.map_or(true, |leftovers| leftovers.remove())
}

impl Leftovers {
    /// Removes the device and the namespace's name, as far as they are those that are meant.
    /// Returns `false` if one of them is still there.
    pub(crate) fn remove(&self) -> bool {
        let netns: Option<NamespaceName> = match self.netns.as_deref().map(str::parse) {
            None => None,
            Some(Ok(name)) => Some(name),
            // There can be no such one.
            Some(Err(_)) => return true,
        };
        let namespace = match &netns {
            None => Ok(Namespace::Own),
            Some(name) => name.open(),
        };
        let device_gone = match (namespace, self.identity) {
            (Ok(namespace), Some(identity)) => remove_device(&namespace, &self.device, identity),
            // Without its name the namespace cannot be found; the device ends with the
            // last program that has it.
            _ => true,
        };
        let name_gone = match (netns, self.made) {
            (Some(name), Some(id)) => name.remove(id).is_ok(),
            _ => true,
        };
        device_gone && name_gone
    }
}

fn remove_device(namespace: &Namespace, name: &InterfaceName, (index, address): (u32, [u8; 6])) -> bool {
    let mut device = match Interface::open(namespace, name.as_str()) {
        Ok(device) => device,
        Err(error) => return matches!(error, InterfaceError::Missing(_)),
    };
    let is_meant = device.index() == index && device.state().is_ok_and(|state| state.address == address);
    if !is_meant {
        return true;
    }
    // It may have gone by itself in between.
    matches!(device.delete(), Ok(()) | Err(InterfaceError::Missing(_)))
}
