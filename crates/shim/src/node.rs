//! The node that this program is on, and what is for it and not for the kernel.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, OnceLock, PoisonError};

use toehold_node::control::Connection;
use toehold_node::fabric::{Fabric, NodeRecord};
use toehold_node::run;
use toehold_socket::Node;

use crate::table;

/// Who has a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Node,
    Kernel,
    /// It would be the node's, which cannot be reached.
    Lost,
}

/// What the launcher said.
struct Place {
    fabric: Fabric,
    record: NodeRecord,
}

static PLACE: OnceLock<Option<Place>> = OnceLock::new();
static NODE: OnceLock<Node> = OnceLock::new();

/// Attempts to attach that have failed; after a few there are no more.
static FAILURES: AtomicU32 = AtomicU32::new(0);
const MOST_FAILURES: u32 = 3;

fn place() -> Option<&'static Place> {
    PLACE.get_or_init(find).as_ref()
}

fn find() -> Option<Place> {
    let fabric = std::env::var(run::FABRIC).ok()?;
    let name = std::env::var(run::NODE).ok()?;
    toehold_node::keep_above(lowest(), table::own);
    // A copy, which is kept where it should be.
    let fabric = Fabric::existing(&fabric).ok()?.try_clone().ok()?;
    let record = fabric.resolve(&name).ok()?;
    Some(Place { fabric, record })
}

/// The node, if there is one that this program can attach to.
pub(crate) fn get() -> Option<&'static Node> {
    match NODE.get() {
        Some(node) => Some(node),
        None => attach(),
    }
}

/// Attaches, as long as it can.
pub(crate) fn hold() {
    if let Some(node) = crate::start::is_wanted().then(get).flatten() {
        // A forked child attaches with its first call.
        let _ = node.stack_info();
    }
}

/// Whether a program that this process becomes could attach, as who this process is by now.
pub(crate) fn can_be_reached() -> bool {
    let Some(place) = place() else { return false };
    // By its name: such a program does not have what this one has opened.
    let fabric = Fabric::existing(place.fabric.name());
    fabric.is_ok_and(|fabric| Connection::open(&fabric, place.record.name.as_str()).is_ok())
}

/// The node, if this program has attached.
pub(crate) fn in_use() -> Option<&'static Node> {
    NODE.get()
}

#[cold]
fn attach() -> Option<&'static Node> {
    static ATTACHING: Mutex<()> = Mutex::new(());
    let _alone = ATTACHING.lock().unwrap_or_else(PoisonError::into_inner);
    if NODE.get().is_none() && FAILURES.load(Relaxed) < MOST_FAILURES {
        if most_descriptors() < FEWEST + ROOM {
            return None;
        }
        let place = place()?;
        match Node::attach(&place.fabric, &place.record.name.to_string()) {
            Ok(node) => drop(NODE.set(node)),
            Err(_) => drop(FAILURES.fetch_add(1, Relaxed)),
        }
    }
    NODE.get()
}

/// The library has no descriptor below: programs count on those, whatever their limit.
const FEWEST: u64 = 100;

/// How many descriptors there must be above. A program with a lower limit stays with the kernel: it
/// would find none left for itself.
const ROOM: u64 = 64;

/// From where on the library has its descriptors: above those that programs count on, and so
/// low that the kernel's tables stay small.
pub(crate) fn lowest() -> i32 {
    const USUAL: u64 = 2000;
    const NEEDED: u64 = 200;
    most_descriptors().saturating_sub(NEEDED).clamp(FEWEST, USUAL) as i32
}

fn most_descriptors() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

/// Who has a connection to an address.
pub(crate) fn route(to: SocketAddr) -> Route {
    let Some(place) = place() else {
        return Route::Kernel;
    };
    let address = to.ip();
    let own = address.is_loopback() || address.is_unspecified() || is_own(place, address);
    if own {
        return route_within(place, to);
    }
    let on_link = match address {
        IpAddr::V4(address) => place.record.ipv4.contains(&address),
        IpAddr::V6(address) => place.record.ipv6.contains(&address),
    };
    match on_link {
        false => Route::Kernel,
        true if get().is_some() => Route::Node,
        true => Route::Lost,
    }
}

fn is_own(place: &Place, address: IpAddr) -> bool {
    address == place.record.ipv4.addr() || address == place.record.ipv6.addr()
}

/// The same for an address of this host's or node's.
fn route_within(place: &Place, to: SocketAddr) -> Route {
    let Some(node) = get() else { return Route::Kernel };
    if node.listens_at(to).unwrap_or(false) {
        return Route::Node;
    }
    // The kernel knows nothing of the node's own address, or has a listener there.
    if is_own(place, to.ip()) && !is_kernels(to.ip()) {
        return Route::Node;
    }
    Route::Kernel
}

/// Whether the kernel has a listener wherever a program of the node's has one at an address.
pub(crate) fn is_kernels_too(to: SocketAddr) -> bool {
    let address = to.ip();
    address.is_loopback() || address.is_unspecified() || (has(address) && is_kernels(address))
}

/// Whether an address of the node is one of the kernel's too.
fn is_kernels(address: IpAddr) -> bool {
    let at = SocketAddr::new(address, 0);
    std::net::UdpSocket::bind(at).is_ok()
}

/// Whether a program that listens at an address listens on the node, too.
pub(crate) fn listens(at: IpAddr) -> bool {
    place().is_some_and(|place| at.is_unspecified() || at.is_loopback() || is_own(place, at))
}

/// Whether an address is the node's.
pub(crate) fn has(address: IpAddr) -> bool {
    place().is_some_and(|place| is_own(place, address))
}

/// The address of a node of the fabric, of a family.
pub(crate) fn lookup(name: &str, ipv6: bool) -> Option<IpAddr> {
    let addresses = place()?.fabric.lookup(name);
    addresses.into_iter().find(|address| address.is_ipv6() == ipv6)
}
