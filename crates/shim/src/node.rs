//! The node that this program is on, and the choice between it and the kernel.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use ipnet::{Ipv4Net, Ipv6Net};
use toehold_node::control::{self, Connection, SocketStatus};
use toehold_node::fabric::{Fabric, Networks, NodeRecord, Stowed};
use toehold_node::run;
use toehold_node::why::{Reason, Report};
use toehold_posix::errno::{Errno, Outcome};
use toehold_shm::Slot;
use toehold_socket::Node;

use crate::borrower::is_borrower;
use crate::inside::Inside;
use crate::{process, signals, stack, table};

/// Whether the node or the kernel has a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Node,
    Kernel,
    /// The connection would be the node's, which cannot be reached; the kernel has no way there of
    /// its own.
    Lost,
    /// The connection would be the node's, which cannot be reached, and the kernel's interface
    /// leads there, too.
    Beside,
}

/// The names of the fabric and of the node, as the launcher said them. The program may have
/// cleared its environment when it first needs the node.
static NAMES: OnceLock<[String; 2]> = OnceLock::new();

/// The networks that are the fabric's, as the launcher knew them.
static NETWORKS: OnceLock<Networks> = OnceLock::new();

/// Reads the node's name that the launcher has left in the environment. Returns whether there was
/// one.
pub(crate) fn is_named() -> bool {
    let name = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
    if let Some(networks) = name(run::NETWORKS).and_then(|networks| networks.parse().ok()) {
        let _ = NETWORKS.set(networks);
    }
    let names = name(run::FABRIC).zip(name(run::NODE));
    names.is_some_and(|(fabric, node)| NAMES.set([fabric, node]).is_ok())
}

/// The place of the node, as the launcher and the fabric give it.
struct Place {
    /// The fabric; `None` if this process may not look into it.
    fabric: Option<Stowed>,
    record: NodeRecord,
}

impl Place {
    /// The fabric, if this process may look for names in it.
    fn fabric(&self) -> Option<Fabric> {
        let fabric = self.fabric.as_ref()?.open().ok()?;
        fabric.is_searchable().then_some(fabric)
    }
}

/// The descriptor that keeps the node, by which a process attaches that cannot find the node by its name.
static KEEPER: AtomicI32 = AtomicI32::new(-1);

/// Notes the descriptor that keeps the node.
pub(crate) fn set_keeper(number: c_int) {
    KEEPER.store(number, Relaxed);
}

/// The descriptor that keeps the node, if the node's engine is at the other end.
fn keeper() -> Option<BorrowedFd<'static>> {
    let number = KEEPER.load(Relaxed);
    // SAFETY: the library keeps the program from closing it, and never closes it itself.
    let keeper = (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) })?;
    control::leads_somewhere(keeper).then_some(keeper)
}

/// Tells the node's engine of a program that will not use the node.
pub(crate) fn tell(command: &str, reason: Reason) {
    if let Some(keeper) = keeper() {
        control::tell(keeper, &Report::new(command, std::process::id(), reason));
    }
}

/// Says why this process cannot attach, once, on its standard error output, and to the engine.
#[cold]
fn say(reason: Reason) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if NODE.load().is_some() || SAID.swap(true, Relaxed) {
        return;
    }
    let _inside = Inside::enter();
    let command = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let command = match command.trim_end() {
        "" => "a program",
        command => command,
    };
    tell(command, reason);
    if let Some([_, node]) = NAMES.get() {
        let (process, word, advice) = (std::process::id(), reason.word(), reason.advice());
        crate::stderr::say(&format!(
            "toehold: {command}[{process}] is not on node {node}: it {reason} ({word}); {advice}\n"
        ));
    }
}

/// The reason why the node was not found when it was looked for last.
static MISSED: Mutex<Reason> = Mutex::new(Reason::NoNode);

fn why_missed() -> Reason {
    *MISSED.lock().unwrap_or_else(PoisonError::into_inner)
}

static PLACE: ArcSwapOption<Place> = ArcSwapOption::const_empty();
static NODE: ArcSwapOption<Node> = ArcSwapOption::const_empty();
/// The node for signals' handlers: a thread's first look there takes no memory, and frees none.
static LATEST: Slot<Node> = Slot::new();
/// The process that has attached.
static ATTACHED: AtomicU32 = AtomicU32::new(0);

/// A search for something that was not there.
struct Search(Mutex<Option<Instant>>);

impl Search {
    /// Time before the next look for what was not there. A tenth of all time is spent in vain at
    /// most.
    const PAUSE: Duration = Duration::from_millis(100);
    const SHARE: u32 = 10;

    const fn new() -> Search {
        Search(Mutex::new(None))
    }

    /// Searches, one thread at a time, unless another thread has found it meanwhile.
    fn look<T>(&self, is_found: impl Fn() -> Option<T>, find: impl FnOnce() -> Option<T>) -> Option<T> {
        let mut again = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        if let Some(found) = is_found() {
            return Some(found);
        }
        if again.is_some_and(|again| began < again) {
            return None;
        }
        let found = find();
        let pause = Self::PAUSE.max(began.elapsed() * Self::SHARE);
        *again = found.is_none().then(|| Instant::now() + pause);
        found
    }
}

fn place() -> Option<Arc<Place>> {
    PLACE.load_full().or_else(find)
}

#[cold]
fn find() -> Option<Arc<Place>> {
    static SEARCH: Search = Search::new();
    let find = || {
        let [fabric, name] = NAMES.get()?;
        toehold_node::keep_above(lowest(), table::own);
        let fabric = Fabric::existing(fabric).map_err(|error| error.reason());
        let found = fabric.and_then(|fabric| look_up(&fabric, name));
        match found.or_else(|reason| look_up_by_keeper(name).ok_or(reason)) {
            Ok(place) => {
                let place = Arc::new(place);
                PLACE.store(Some(Arc::clone(&place)));
                Some(place)
            }
            Err(reason) => {
                *MISSED.lock().unwrap_or_else(PoisonError::into_inner) = reason;
                None
            }
        }
    };
    SEARCH.look(|| PLACE.load_full(), || stack::with_room(find))
}

fn look_up(fabric: &Fabric, name: &str) -> Result<Place, Reason> {
    let record = fabric.resolve(name).map_err(|_| match fabric.is_searchable() {
        true => Reason::NoNode,
        false => Reason::OtherUser,
    })?;
    let fabric = fabric.stow().map_err(|error| Reason::of_error(&error))?;
    Ok(Place {
        fabric: Some(fabric),
        record,
    })
}

/// The place of the node as its engine says it, over the descriptor that keeps the node.
fn look_up_by_keeper(name: &str) -> Option<Place> {
    let mut engine = control::enter(keeper()?, name.parse().ok()?).ok()?;
    let record = engine.names(Some(name)).ok()?.into_iter().next()?;
    Some(Place { fabric: None, record })
}

/// The place of the node at present. In another life the node may have other addresses, and the fabric
/// another directory.
fn look_up_again(place: &Place) -> Result<Place, Reason> {
    let name = place.record.name.as_str();
    let at_first = place.fabric.as_ref().and_then(|fabric| fabric.open().ok());
    match at_first.map(|fabric| look_up(&fabric, name)) {
        Some(Ok(place)) => Ok(place),
        _ => {
            let [fabric, _] = NAMES.get().ok_or(Reason::NoNode)?;
            let fabric = Fabric::existing(fabric).map_err(|error| error.reason())?;
            look_up(&fabric, name)
        }
    }
}

/// Attaches to the node where its name leads.
fn attach_by_name(place: &Place) -> Result<(Place, Node), Reason> {
    let place = look_up_again(place)?;
    let fabric = place.fabric().ok_or(Reason::OtherUser)?;
    let node = Node::attach(&fabric, place.record.name.as_str()).map_err(|error| error.reason())?;
    Ok((place, node))
}

/// Attaches by the descriptor that keeps the node.
fn attach_by_keeper(name: &str) -> Option<(Place, Node)> {
    let place = look_up_by_keeper(name)?;
    let node = Node::attach_by(keeper()?, name).ok()?;
    Some((place, node))
}

/// The node, if there is one that this program can attach to, or has attached to. Of a node that is
/// gone, this is the next life, as soon as that is there.
pub(crate) fn get() -> Option<Arc<Node>> {
    match NODE.load_full() {
        Some(node) if lives(&node) => Some(node),
        former => attach().or(former),
    }
}

/// Does something with the node: if that finds it gone, with its next life, if that is there.
pub(crate) fn with<T>(mut act: impl FnMut(&Node) -> Outcome<T>) -> Outcome<T> {
    let present = || get().ok_or(Errno::NETDOWN);
    match act(&*present()?) {
        Err(Errno::NETDOWN) => act(&*present()?),
        done => done,
    }
}

/// Whether there is a node, in whatever life.
pub(crate) fn is_there() -> bool {
    get().is_some_and(|node| lives(&node))
}

fn lives(node: &Node) -> bool {
    node.default_settings().is_ok()
}

/// Whether a node is the one that this process has attached to last.
pub(crate) fn is_latest(node: &Arc<Node>) -> bool {
    NODE.load()
        .as_ref()
        .is_some_and(|latest| Arc::ptr_eq(latest, node))
}

/// Attaches, as long as it can.
pub(crate) fn hold() {
    if crate::start::is_wanted() {
        // A forked child attaches with its first call.
        get();
    }
}

/// Whether a program that this process becomes could attach, as the user that this process has by now.
pub(crate) fn can_be_reached() -> bool {
    if keeper().is_some() && crate::rights::survives(KEEPER.load(Relaxed)) {
        return true;
    }
    let (Some(place), Some([fabric, _])) = (place(), NAMES.get()) else {
        return false;
    };
    // By its name: such a program does not have what this one has opened.
    let fabric = Fabric::existing(fabric);
    let connection = fabric.map(|fabric| Connection::open(&fabric, place.record.name.as_str()));
    matches!(connection, Ok(Ok(connection)) if connection.other_user().is_none())
}

/// Handles frames that have arrived, if this program has attached. Returns whether it could.
pub(crate) fn drive() -> bool {
    let node = NODE.load();
    let driven = node.as_ref().map(|node| node.drive(Some(Duration::ZERO)));
    driven.is_some_and(|driven| driven.is_ok())
}

/// Whether this process would take the node along if it died now.
pub(crate) fn is_busy() -> bool {
    NODE.load().as_ref().is_some_and(|node| node.is_busy())
}

/// Leaves the node before this process ends, when none of its threads may be in the middle of the
/// node's stack.
pub(crate) fn leave() {
    /// No thread has the stack for so long unless it is stopped.
    const LONGEST: Duration = Duration::from_millis(100);
    // The other threads of the memory that it borrows go on.
    if is_borrower() {
        return;
    }
    if let Some(node) = NODE.load().as_ref() {
        node.leave(LONGEST);
    }
}

/// Waits until what may have lost its last process is closed: a connection or listener of the
/// node's.
pub(crate) fn await_closing() {
    /// Nothing takes so long, if the engine is not stopped.
    const LONGEST: Duration = Duration::from_millis(200);
    if let Some(node) = LATEST.get() {
        node.await_closing(LONGEST);
    }
}

/// Notes that this process has the right to hardly any system call from now on.
pub(crate) fn be_silent() {
    if let Some(node) = NODE.load().as_ref() {
        node.be_silent();
    }
}

/// Takes back that this process ends.
pub(crate) fn stay() {
    if is_borrower() {
        return;
    }
    if let Some(node) = NODE.load().as_ref() {
        node.stay();
    }
}

#[cold]
fn attach() -> Option<Arc<Node>> {
    static SEARCH: Search = Search::new();
    let attach = || {
        let Some(place) = place() else {
            say(why_missed());
            return None;
        };
        let attached = attach_by_name(&place).or_else(|reason| {
            // An engine that does not answer, is full, or of another build, is so by any way.
            let is_by_name = matches!(
                reason,
                Reason::OtherUser | Reason::OtherNamespace | Reason::NoNode
            );
            let by_keeper = is_by_name.then(|| attach_by_keeper(place.record.name.as_str()));
            by_keeper.flatten().ok_or(reason)
        });
        let (place, node) = match attached {
            Ok(attached) => attached,
            Err(reason) => {
                say(reason);
                return None;
            }
        };
        let node = Arc::new(node);
        PLACE.store(Some(Arc::new(place)));
        let former = [
            NODE.swap(Some(Arc::clone(&node))),
            LATEST.replace(Some(Arc::clone(&node))),
        ];
        if ATTACHED.swap(process::number(), Relaxed) != process::number() {
            // What the parent has is not dropped here.
            std::mem::forget(former);
        }
        signals::guard();
        Some(node)
    };
    // What it would attach by are descriptors of its own, in memory that is its parent's.
    let find = || match is_borrower() {
        true => None,
        false if most_descriptors() < FEWEST + ROOM => {
            say(Reason::DescriptorLimit);
            None
        }
        false => stack::with_room(attach),
    };
    SEARCH.look(|| NODE.load_full().filter(|node| lives(node)), find)
}

/// The lowest number of the library's descriptors: programs count on those below, whatever their
/// limit.
const FEWEST: u64 = 100;

/// The least number of descriptors above. A program with a lower limit stays with the kernel: it
/// would find none left for itself.
const ROOM: u64 = 80;

/// The lowest number of the library's descriptors. It is above those that programs count on, and so
/// low that the kernel's tables stay small.
pub(crate) fn lowest() -> i32 {
    const USUAL: u64 = 2000;
    const NEEDED: u64 = 200;
    most_descriptors().saturating_sub(NEEDED).clamp(FEWEST, USUAL) as i32
}

/// A copy of a descriptor, with the library's own.
pub(crate) fn copy(number: c_int) -> Option<OwnedFd> {
    /// The lowest number when it was last computed. The limit may have been lowered since.
    static LOWEST: AtomicI32 = AtomicI32::new(i32::MAX);
    let at = |lowest| rustix::io::fcntl_dupfd_cloexec(table::borrow(&number), lowest).ok();
    at(LOWEST.load(Relaxed)).or_else(|| {
        let lowest = lowest();
        LOWEST.store(lowest, Relaxed);
        at(lowest)
    })
}

fn most_descriptors() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

/// Whether the node or the kernel has a connection to an address.
pub(crate) fn route(to: SocketAddr) -> Route {
    let address = to.ip();
    let Some(place) = place() else {
        // The node was gone before this program began.
        let is_fabrics = NETWORKS.get().is_some_and(|networks| networks.contains(address));
        if !is_fabrics {
            return Route::Kernel;
        }
        say(why_missed());
        return Route::Lost;
    };
    let own = address.is_loopback() || address.is_unspecified() || is_own(&place, address);
    if own {
        return route_within(&place, to);
    }
    match Networks::of(&place.record).contains(address) {
        false => Route::Kernel,
        true if get().is_some() => Route::Node,
        true if is_kernels(place.record.ipv4.addr().into()) => Route::Beside,
        true => Route::Lost,
    }
}

fn is_own(place: &Place, address: IpAddr) -> bool {
    address == place.record.ipv4.addr() || address == place.record.ipv6.addr()
}

/// Whether the node or the kernel has a connection to an address of this host or node.
fn route_within(place: &Place, to: SocketAddr) -> Route {
    let listeners = with(|node| node.listeners_at(to).map_err(Errno::from));
    if listeners.is_ok_and(|listeners| listeners > 0) {
        return Route::Node;
    }
    // The kernel knows nothing of the node's own address, or has a listener there.
    if !is_own(place, to.ip()) || is_kernels(to.ip()) {
        return Route::Kernel;
    }
    match get() {
        Some(_) => Route::Node,
        None => Route::Lost,
    }
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

/// The node's addresses, if they are none of the kernel's.
pub(crate) fn beside_kernel() -> Option<(Ipv4Net, Ipv6Net)> {
    let place = place()?;
    let record = &place.record;
    (!is_kernels(record.ipv4.addr().into())).then_some((record.ipv4, record.ipv6))
}

/// Whether a program that listens at an address listens on the node, too.
pub(crate) fn listens(at: IpAddr) -> bool {
    match place() {
        Some(place) => at.is_unspecified() || at.is_loopback() || is_own(&place, at),
        None => {
            say(why_missed());
            false
        }
    }
}

/// Whether an address is the node's.
pub(crate) fn has(address: IpAddr) -> bool {
    place().is_some_and(|place| is_own(&place, address))
}

/// All nodes of the fabric.
pub(crate) fn all() -> Vec<NodeRecord> {
    let Some(place) = place() else { return Vec::new() };
    match place.fabric() {
        Some(fabric) => fabric.nodes(),
        None => get().map_or_else(Vec::new, |node| node.names(None)),
    }
}

/// The sockets of this program's node, as its engine says.
pub(crate) fn sockets() -> Vec<SocketStatus> {
    let ask = || {
        let place = place()?;
        let name = place.record.name.as_str();
        let fabric = place.fabric()?;
        let connection = Connection::open(&fabric, name).ok();
        let again = || Connection::open(&Fabric::existing(fabric.name()).ok()?, name).ok();
        connection.or_else(again)?.sockets().ok()
    };
    stack::with_room(ask).unwrap_or_default()
}

/// The address of a node of the fabric, of a family.
pub(crate) fn lookup(name: &str, ipv6: bool) -> Option<IpAddr> {
    let is_wanted = |address: &IpAddr| address.is_ipv6() == ipv6;
    match place()?.fabric() {
        Some(fabric) => fabric.lookup(name).into_iter().find(is_wanted),
        None => get()?.names(Some(name)).first()?.addresses().find(is_wanted),
    }
}
