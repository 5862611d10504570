//! The TAP device of a node: the engine makes it, describes it to processes, and removes it.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use toehold_link::interface::{Interface, InterfaceError, Namespace, NamespaceError, NamespaceName};
use toehold_link::tap::{Tap, TapDescription, TapError, TapSettings};
use toehold_shm::Doorbell;

use super::leftovers::{Leftovers, SUFFIX};
use super::ports::bind_here;
use super::{Inlet, InterfaceName, Outlet, Watched, queues_of_shard};
use crate::control::KernelStatus;
use crate::fabric::{Place, TakeError};
use crate::settings::NodeSettings;
use crate::shards::{OneShard, Shards};

/// Ports that the kernel chooses from, in a namespace that the node has made. The rest of the
/// dynamic ports (RFC 6335 §6) is the node's.
pub(super) const KERNEL_PORTS: RangeInclusive<u16> = 32768..=49151;

/// Ports left to the node, at least.
const LEAST_PORTS: u16 = 1024;

/// The file with the range of ports that the kernel chooses from.
pub(super) const PORT_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// The reason why a node has no TAP device.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A namespace is given without a device to be in it.
    #[error("a network namespace is for the node's TAP device: give --tap as well")]
    NoDevice,
    /// Queues without a device that has them.
    #[error("queues are of the node's TAP device: give --tap as well")]
    NoQueues,
    /// The device cannot be made.
    #[error("{0}{hint}", hint = hint(.0))]
    Tap(#[from] TapError),
    /// The namespace cannot be had.
    #[error("{0}; without --netns the device is made in the namespace of this command")]
    Namespace(#[from] NamespaceError),
    /// The device cannot be given its addresses.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The kernel chooses from so many ports that none are left.
    #[error(
        "the kernel chooses its ports up to {0}, and leaves none to the node: narrow its range in this network \
         namespace (`sysctl -w net.ipv4.ip_local_port_range='32768 49151'`)"
    )]
    Ports(u16),
    /// No process could clean up after a killed engine.
    #[error("cannot note the device in the fabric: {0}")]
    Note(#[from] TakeError),
    /// The system has no descriptors left.
    #[error("cannot keep the device: {0} (see `ulimit -n`)")]
    Descriptors(#[from] std::io::Error),
}

/// A node's device. Dropping it removes everything that was made for it.
#[derive(Debug)]
pub(crate) struct Device {
    /// A descriptor of each queue, kept for processes that attach.
    queues: Vec<OwnedFd>,
    description: Description,
    /// The interface in its namespace, whatever becomes of the namespace's name.
    interface: Watched,
    namespace: Namespace,
    /// The addresses that the node and the kernel both have; none of a family that the node does
    /// not have.
    addresses: [Option<IpAddr>; 2],
    ports: RangeInclusive<u16>,
    made: Made,
}

/// A device, for a process that has descriptors of its queues.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Description {
    /// The device as it was made.
    pub(crate) tap: TapDescription,
    /// The number of queues.
    pub(crate) queues: u8,
}

/// The parts that were made so far, and the file that says so.
#[derive(Debug)]
struct Made {
    leftovers: Leftovers,
    file: Option<crate::fabric::OwnFile>,
}

impl Device {
    /// Makes the device that the settings ask for, if they ask for one.
    pub(crate) fn make(place: &Place, settings: &NodeSettings) -> Result<Option<Device>, KernelError> {
        let Some(name) = settings.tap.clone() else {
            return match (&settings.netns, settings.queues) {
                (Some(_), _) => Err(KernelError::NoDevice),
                (None, 1) => Ok(None),
                (None, _) => Err(KernelError::NoQueues),
            };
        };
        let (namespace, is_new) = match &settings.netns {
            Some(name) => name.open_or_create()?,
            None => (Namespace::Own, false),
        };
        // From here on, an error removes what was made.
        let mut made = Made {
            leftovers: Leftovers {
                device: name.clone(),
                identity: None,
                netns: settings.netns.as_ref().map(NamespaceName::to_string),
                made: if is_new { namespace.id() } else { None },
            },
            file: None,
        };
        made.note(place)?;
        let record = place.record();
        let wanted = TapSettings {
            interface_address: Some(record.mac.0),
            mtu: record.mtu,
            multi_queue: settings.queues > 1,
            ..TapSettings::new(name.as_str(), record.mac.0)
        };
        let (tap, mut interface) = Tap::create(&wanted, &namespace)?;
        made.leftovers.identity = Some((interface.index(), record.mac.0));
        made.note(place)?;
        if is_new {
            Interface::open(&namespace, "lo")?.set_up(true)?;
        }
        configure(&mut interface, &namespace, place, &name)?;
        let ports = node_ports(&namespace, is_new)?;
        let mut queues = Vec::new();
        for _ in 1..settings.queues {
            queues.push(tap.another_queue(&namespace)?.into_parts().0);
        }
        let (first, tap) = tap.into_parts();
        queues.insert(0, first);
        Ok(Some(Device {
            queues,
            description: Description {
                tap,
                queues: settings.queues,
            },
            interface: Watched::new(interface, made.leftovers.netns.clone(), Some(record.mac.0)),
            namespace,
            addresses: [record.ipv4.addr().into(), record.ipv6.addr().into()]
                .map(|address: IpAddr| (!address.is_unspecified()).then_some(address)),
            ports,
            made,
        }))
    }

    /// Copies a descriptor of each queue for another process, which hands frames over with them.
    pub(crate) fn descriptors(&self) -> std::io::Result<Vec<OwnedFd>> {
        self.queues.iter().map(OwnedFd::try_clone).collect()
    }

    /// The facts that a process must know beside the descriptors.
    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    /// A way into it for a shard of this process.
    pub(crate) fn outlet(&self, shard: usize, shards: usize) -> Result<Outlet, KernelError> {
        let own = queues_of_shard(self.queues.len(), shard, shards);
        let queues = own.map(|queue| self.queues[queue].try_clone());
        Ok(Outlet::new(
            queues.collect::<Result<_, _>>()?,
            &self.description.tap,
        )?)
    }

    /// The way out of one of its queues, over the port of a shard, which is the one that hands
    /// frames to that queue.
    pub(crate) fn inlet(
        &self,
        queue: usize,
        shards: &Arc<Shards>,
        stop: Doorbell,
    ) -> Result<Inlet, KernelError> {
        let descriptor = self.queues[queue].try_clone()?;
        let shard = OneShard {
            shards: Arc::clone(shards),
            index: (queue % usize::from(shards.count())) as u8,
        };
        Ok(Inlet::new(descriptor, self.description.tap.clone(), shard, stop)?)
    }

    /// The ports from which the node's stack chooses: the kernel does not.
    pub(crate) fn ports(&self) -> RangeInclusive<u16> {
        self.ports.clone()
    }

    /// The addresses that the kernel has too of those at which a listener is reached.
    pub(super) fn addresses_of(&self, listener: IpAddr, only_ipv6: bool) -> Vec<IpAddr> {
        let [ipv4, ipv6] = self.addresses;
        let addresses = match listener.to_canonical() {
            IpAddr::V4(address) if address.is_unspecified() => [ipv4, None],
            IpAddr::V6(address) if address.is_unspecified() => [ipv4.filter(|_| !only_ipv6), ipv6],
            address => [Some(address).filter(|address| !address.is_loopback()), None],
        };
        addresses.into_iter().flatten().collect()
    }

    /// Binds a socket of the kernel's beside the node, and says to which port. Returns `None` if
    /// the kernel does not have the family.
    pub(super) fn bind(&self, at: SocketAddr) -> Result<Option<(OwnedFd, u16)>, Errno> {
        let at = match at {
            SocketAddr::V6(at) if at.ip().is_unicast_link_local() => {
                let interface = self.made.leftovers.identity.map_or(0, |(index, _)| index);
                SocketAddrV6::new(*at.ip(), at.port(), 0, interface).into()
            }
            at => at,
        };
        match self.namespace.run(|| bind_here(at)) {
            Ok(bound) => bound,
            Err(NamespaceError::Enter(errno)) => Err(errno),
            // There is no thread to be had.
            Err(_) => Err(Errno::AGAIN),
        }
    }

    pub(crate) fn status(&self) -> KernelStatus {
        self.interface.status()
    }

    /// Removes it now, whichever process still has a descriptor of it.
    pub(crate) fn remove(&self) {
        self.interface.remove();
        self.made.clean();
    }
}

impl Made {
    /// Writes down the leftovers, for the process that cleans up if this one cannot.
    fn note(&mut self, place: &Place) -> Result<(), TakeError> {
        self.file = Some(place.write(SUFFIX, &self.leftovers)?);
        Ok(())
    }

    /// Removes the leftovers. The file stays if any of them cannot be removed.
    fn clean(&self) {
        if self.leftovers.remove()
            && let Some(file) = &self.file
        {
            file.remove();
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.clean();
    }
}

/// A hint at the functions that still work, where a privilege is missing.
fn hint(error: &TapError) -> &'static str {
    match error {
        TapError::NoDriver | TapError::NoAccess | TapError::NotPermitted(_) => {
            "; without --tap a node needs no privilege, and TCP between nodes is the same"
        }
        _ => "",
    }
}

/// Gives the interface its addresses, and sets it up.
fn configure(
    interface: &mut Interface,
    namespace: &Namespace,
    place: &Place,
    name: &InterfaceName,
) -> Result<(), KernelError> {
    let record = place.record();
    interface.add_address(IpAddr::V4(record.ipv4.addr()), record.ipv4.prefix_len())?;
    //= RFC 8200 §5
    // A link with a smaller MTU has no IPv6.
    if record.mtu >= 1280 && allow_ipv6(namespace, name)? {
        interface.add_address(IpAddr::V6(record.ipv6.addr()), record.ipv6.prefix_len())?;
    }
    interface.set_up(true)?;
    Ok(())
}

/// Allows IPv6 on the device, where its namespace has that switched off for new ones. Returns
/// `false` if the kernel has no IPv6. If a setting cannot be changed, the kernel will say what it
/// thinks of the address.
fn allow_ipv6(namespace: &Namespace, name: &InterfaceName) -> Result<bool, NamespaceError> {
    let settings = std::path::PathBuf::from(format!("/proc/sys/net/ipv6/conf/{name}"));
    namespace.run(|| {
        let _ = std::fs::write(settings.join("disable_ipv6"), "0");
        // The address is there again when the interface is up again, as that of IPv4 is.
        let _ = std::fs::write(settings.join("keep_addr_on_down"), "1");
        settings.exists()
    })
}

/// The ports above those that the kernel chooses from. In a namespace of the node's own the kernel
/// has fewer; in another one it has what it had.
fn node_ports(namespace: &Namespace, is_new: bool) -> Result<RangeInclusive<u16>, KernelError> {
    let last = namespace.run(|| {
        if is_new {
            let range = format!("{} {}", KERNEL_PORTS.start(), KERNEL_PORTS.end());
            // Where that is not allowed, there is what is left.
            let _ = std::fs::write(PORT_RANGE, range);
        }
        let range = std::fs::read_to_string(PORT_RANGE).ok()?;
        range.split_whitespace().nth(1)?.parse::<u16>().ok()
    })?;
    // A kernel that does not tell does as all do.
    let last = last.unwrap_or(60_999);
    match last.checked_add(LEAST_PORTS) {
        Some(_) => Ok(last + 1..=u16::MAX),
        None => Err(KernelError::Ports(last)),
    }
}
