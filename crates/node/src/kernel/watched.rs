//! An interface that was made, and its present state, whatever other programs have done to it.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use toehold_link::interface::{Interface, InterfaceError, Namespace};

use crate::control::{DeviceState, KernelStatus};

/// The folder in which `ip netns` keeps names.
const NAMES: &str = "/run/netns";

/// A network interface in the namespace where it was made.
#[derive(Debug)]
pub(crate) struct Watched {
    /// The interface; `None` if it was removed.
    interface: Mutex<Option<Interface>>,
    /// The name when the interface was made.
    name: String,
    netns: Option<String>,
    /// The address that peers know; `None` if it may have any.
    address: Option<[u8; 6]>,
}

impl Watched {
    /// Watches an interface that is there.
    pub(crate) fn new(interface: Interface, netns: Option<String>, address: Option<[u8; 6]>) -> Watched {
        Watched {
            name: interface.name().to_owned(),
            interface: Mutex::new(Some(interface)),
            netns,
            address,
        }
    }

    /// Finds an interface in the namespace that a file refers to, or in this process's own, and
    /// watches it.
    pub(crate) fn find(
        name: &str,
        namespace: &Namespace,
        file: Option<&Path>,
        address: Option<[u8; 6]>,
    ) -> Result<Watched, InterfaceError> {
        let netns = file.map(|file| file.strip_prefix(NAMES).unwrap_or(file).display().to_string());
        Ok(Watched::new(Interface::open(namespace, name)?, netns, address))
    }

    fn interface(&self) -> MutexGuard<'_, Option<Interface>> {
        self.interface.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The interface's status now.
    pub(crate) fn status(&self) -> KernelStatus {
        let mut interface = self.interface();
        let state = interface.as_mut().and_then(|interface| interface.state().ok());
        // A user that renamed it looks for it under its new name.
        let name = interface.as_ref().map_or(self.name.as_str(), Interface::name);
        KernelStatus {
            device: name.to_owned(),
            netns: self.netns.clone(),
            state: match state {
                None => DeviceState::Gone,
                Some(state) if self.address.is_some_and(|own| own != state.address) => {
                    DeviceState::Readdressed
                }
                Some(state) if !state.up => DeviceState::Down,
                Some(state) if !state.carrier => DeviceState::NoCarrier,
                Some(_) => DeviceState::Up,
            },
        }
    }

    /// Removes it now, whichever process still has a descriptor of it.
    pub(crate) fn remove(&self) {
        if let Some(interface) = self.interface().take() {
            // Another program may have deleted it before.
            let _ = interface.delete();
        }
    }
}
