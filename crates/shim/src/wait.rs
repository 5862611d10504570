//! Poll for connections of the node's and for descriptors of the kernel's at once.

use core::cell::RefCell;
use core::ffi::{c_int, c_short};
use core::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDHUP, POLLRDNORM, POLLWRNORM, pollfd};
use rustix::event::PollFlags;
use toehold_posix::errno::{Errno, Outcome};
use toehold_socket::{Beside, Events, Interest, Node, Poll, Readiness, Source, Token, Waited};

use crate::answer::outcome;
use crate::epoll::Sockets;
use crate::file::{File, Kind};
use crate::inside::Inside;
use crate::readiness::interest;
use crate::socket::{InheritedListener, Listener};
use crate::{next, node, process, relay, signals, sleep, start, table};

/// Waits until something of a poll's is ready, which is taken, or one of the descriptors
/// beside, or a time has passed.
pub(crate) fn on(
    poll: &Poll,
    events: &mut Events,
    timeout: Option<Duration>,
    beside: &[Beside<'_>],
) -> Outcome<()> {
    let waited = poll.wait(events, timeout, beside).map_err(Errno::from)?;
    if waited == Waited::TimedOut && signals::is_pending() {
        return Err(Errno::INTR);
    }
    Ok(())
}

/// How long a thread waits for the kernel alone before it looks whether the node is back.
const AWAY: Duration = Duration::from_millis(200);

/// Waits for descriptors of the kernel while the node is gone, not for long.
#[cold]
pub(crate) fn without_node(descriptors: &[(c_int, c_short)], timeout: Option<Duration>) -> Outcome<()> {
    let span = timeout.unwrap_or(AWAY).min(AWAY);
    let awaited = descriptors
        .iter()
        .map(|(number, events)| (table::borrow(number), events.cast_unsigned()));
    match sleep::sleep(&awaited.collect::<Vec<_>>(), Some(span)) {
        None if signals::is_pending() => Err(Errno::INTR),
        _ => Ok(()),
    }
}

/// The watched source of a call's descriptor: a connection or a listener.
fn source(file: &File) -> Option<&dyn Source> {
    match &file.kind {
        Kind::Stream(stream) => Some(&stream.inner),
        Kind::Listener(listener) => Some(&listener.inner),
        Kind::Fresh(_) | Kind::Found(_) | Kind::Forwarded(_) | Kind::Relayed(_) | Kind::Epoll(_) => None,
    }
}

/// Whether more than the kernel is needed to wait for a descriptor.
#[inline]
pub(crate) fn concerns(number: c_int) -> bool {
    table::get(number).is_some_and(|file| {
        source(&file).is_some()
            || is_nest(&file)
            || matches!(file.kind, Kind::Found(_)) && InheritedListener::listen(number)
    })
}

/// Whether it is an epoll instance that watches connections.
fn is_nest(file: &File) -> bool {
    matches!(&file.kind, Kind::Epoll(epoll) if epoll.has_sockets())
}

fn readiness(file: &File) -> Readiness {
    let readiness = match &file.kind {
        Kind::Stream(stream) => stream.inner.readiness(),
        // The kernel's goes on without the node's.
        Kind::Listener(listener) => Ok(listener.inner.readiness().unwrap_or_default()),
        Kind::Epoll(epoll) => Ok(Readiness {
            readable: epoll.is_ready(),
            ..Readiness::default()
        }),
        Kind::Fresh(_) | Kind::Found(_) | Kind::Forwarded(_) | Kind::Relayed(_) => Ok(Readiness::default()),
    };
    // Of a node that is gone, everything says so.
    readiness.unwrap_or(Readiness {
        readable: true,
        writable: true,
        hang_up: true,
        error: true,
        ..Readiness::default()
    })
}

/// The events of `poll(2)` for a readiness.
fn told(readiness: Readiness, asked: c_short) -> c_short {
    let bits = [
        (readiness.readable, asked & (POLLIN | POLLRDNORM)),
        (readiness.writable, asked & (POLLOUT | POLLWRNORM)),
        (readiness.urgent, asked & POLLPRI),
        (readiness.read_closed, asked & POLLRDHUP),
        (readiness.hang_up, POLLHUP),
        (readiness.error, POLLERR),
    ];
    let told = bits.iter().filter(|(is_told, _)| *is_told);
    told.fold(0, |events, (_, bits)| events | bits)
}

/// The file of a descriptor, if it is the node's.
fn ours(fd: &pollfd) -> Option<Arc<File>> {
    let file = table::get(fd.fd)?.share();
    (source(&file).is_some() || is_nest(&file)).then_some(file)
}

/// The descriptors of one call.
struct Call<'a> {
    fds: &'a mut [pollfd],
    /// The files of those that are the node's.
    files: Vec<Option<Arc<File>>>,
    /// The kernel's descriptors; in the place of others there is none.
    kernels: Vec<pollfd>,
}

impl<'a> Call<'a> {
    fn new(fds: &'a mut [pollfd]) -> Call<'a> {
        let files: Vec<_> = fds.iter().map(ours).collect();
        let mut kernels = fds.to_vec();
        for (fd, file) in kernels.iter_mut().zip(&files) {
            if file.as_ref().is_some_and(|file| file.stream().is_some()) {
                fd.fd = -1;
            }
        }
        Call { fds, files, kernels }
    }

    /// Whether the node has to be driven for some of them.
    fn is_leased(&self) -> bool {
        let is_leased = |file: &Arc<File>| match &file.kind {
            Kind::Stream(stream) => !stream.inner.is_direct(),
            Kind::Listener(listener) => !listener.inner.is_leaseless(),
            _ => true,
        };
        self.files.iter().flatten().any(is_leased)
    }

    /// Whether a number has become something else meanwhile, or nothing.
    fn has_changed(&self) -> bool {
        let is_same = |(fd, file): (&pollfd, &Option<Arc<File>>)| {
            ours(fd).as_ref().map(Arc::as_ptr) == file.as_ref().map(Arc::as_ptr)
        };
        !self.fds.iter().zip(&self.files).all(is_same)
    }

    /// Looks at all of them. Gives how many are ready.
    fn look(&mut self) -> Outcome<c_int> {
        if self.kernels.iter().any(|fd| fd.fd >= 0) {
            let number = self.kernels.len() as libc::nfds_t;
            // SAFETY: `kernels` is a vector of `number` descriptors, borrowed mutably for this
            // call.
            outcome(unsafe { next::poll(self.kernels.as_mut_ptr(), number, 0) })?;
        }
        let mut count = 0;
        let mut has_moved = false;
        for ((fd, file), kernel) in self.fds.iter_mut().zip(&mut self.files).zip(&mut self.kernels) {
            fd.revents = if kernel.fd >= 0 { kernel.revents } else { 0 };
            if let Some(own) = file {
                if let Some(again) = listens_again(own, fd.fd) {
                    *own = again;
                }
                let readiness = readiness(own);
                fd.revents |= told(readiness, fd.events);
                if readiness.error && relay::settle(own, fd.fd) {
                    *file = None;
                    kernel.fd = fd.fd;
                    has_moved = true;
                }
            }
            count += c_int::from(fd.revents != 0);
        }
        match has_moved {
            true => self.look(),
            false => Ok(count),
        }
    }

    /// Waits until one of them may be ready.
    fn wait(&self, timeout: Option<Duration>) -> Outcome<()> {
        let nest = |file: &Option<Arc<File>>| file.as_ref()?.epoll()?.present();
        let nests: Vec<Option<Arc<Sockets>>> = self.files.iter().map(nest).collect();
        with_own(|waiting| {
            let mut registered = Vec::new();
            for ((fd, file), nest) in self.fds.iter().zip(&self.files).zip(&nests) {
                let Some(file) = file else { continue };
                if is_lost_listener(file) {
                    continue;
                }
                let source = match nest {
                    Some(nest) => Some(&nest.poll as &dyn Source),
                    None => source(file),
                };
                let (Some(source), asked) = (source, interest(fd.events as u16 as u32)) else {
                    continue;
                };
                registered.push(Registered::add(waiting, source, asked, &registered, file)?);
            }
            let beside = self.kernels.iter().filter(|fd| fd.fd >= 0);
            let beside: Vec<Beside<'_>> = beside
                .map(|fd| {
                    let events = PollFlags::from_bits_retain(fd.events as u16);
                    Beside::new(table::borrow(&fd.fd), events)
                })
                .collect();
            on(waiting, &mut Events::with_capacity(1), timeout, &beside)
        })
    }
}

impl Call<'_> {
    /// Waits for the kernel's descriptors, since the node is gone.
    #[cold]
    fn wait_without_node(&self, timeout: Option<Duration>) -> Outcome<()> {
        let kernels = self.kernels.iter().filter(|fd| fd.fd >= 0);
        let kernels: Vec<_> = kernels.map(|fd| (fd.fd, fd.events)).collect();
        without_node(&kernels, timeout)
    }
}

/// Makes a listener of a life that is over listen again in the node's next one. Returns the file
/// that stands for it.
pub(crate) fn listens_again(file: &File, number: c_int) -> Option<Arc<File>> {
    match &file.kind {
        Kind::Listener(listener) if listener.is_lost() => listener.again(number),
        _ => None,
    }
}

/// Whether only the kernel's is left of a listener.
fn is_lost_listener(file: &File) -> bool {
    matches!(&file.kind, Kind::Listener(listener) if listener.is_lost())
}

/// A connection or listener, registered for the time of a call.
struct Registered<'a> {
    waiting: &'a Poll,
    source: &'a dyn Source,
    interest: Interest,
    file: *const File,
    /// Whether this is the first of several that stand for one.
    first: bool,
}

impl<'a> Registered<'a> {
    fn add(
        waiting: &'a Poll,
        source: &'a dyn Source,
        interest: Interest,
        others: &[Registered<'a>],
        file: &Arc<File>,
    ) -> Outcome<Registered<'a>> {
        let file = Arc::as_ptr(file);
        let same = others.iter().filter(|other| core::ptr::eq(other.file, file));
        let asked = same.clone().fold(interest, |all, other| all | other.interest);
        let first = same.count() == 0;
        let done = match first {
            true => waiting.registry().register(source, Token(0), asked),
            false => waiting.registry().reregister(source, Token(0), asked),
        };
        done.map_err(Errno::from)?;
        Ok(Registered {
            waiting,
            source,
            interest,
            file,
            first,
        })
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if self.first {
            // One that has ended is registered no more.
            let _ = self.waiting.registry().deregister(self.source);
        }
    }
}

/// A thread's own poll, the process that made it, and where.
struct Own {
    process: u32,
    node: ManuallyDrop<Arc<Node>>,
    poll: ManuallyDrop<Arc<Poll>>,
}

impl Drop for Own {
    fn drop(&mut self) {
        // What a forked child has from its parent is neither used nor dropped, and a process
        // that has left the node does nothing there.
        if self.process == process::number() && start::is_wanted() {
            // It may be the last to have the node, of a former life, whose descriptors are the library's.
            let _inside = Inside::enter();
            // SAFETY: both fields are dropped once, here, and are not used any more.
            unsafe {
                ManuallyDrop::drop(&mut self.poll);
                ManuallyDrop::drop(&mut self.node);
            }
        }
    }
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// Does something with this thread's own poll, in which nothing stays registered.
fn with_own<T>(act: impl FnOnce(&Poll) -> Outcome<T>) -> Outcome<T> {
    let own = OWN.with(|own| -> Outcome<Arc<Poll>> {
        let mut own = own.borrow_mut();
        match &*own {
            Some(own) if own.process == process::number() && node::is_latest(&own.node) => {
                Ok(Arc::clone(&own.poll))
            }
            _ => {
                let node = node::get().ok_or(Errno::NETDOWN)?;
                let made = Arc::new(Poll::new(&node).map_err(Errno::from)?);
                *own = Some(Own {
                    process: process::number(),
                    node: ManuallyDrop::new(node),
                    poll: ManuallyDrop::new(Arc::clone(&made)),
                });
                Ok(made)
            }
        }
    })?;
    act(&own)
}

/// The result of a call.
pub(crate) struct Told {
    /// Number of descriptors that are ready.
    pub(crate) number: c_int,
    /// Not at once: some may have been closed since it began.
    pub(crate) later: bool,
}

/// `poll(2)` on descriptors of which some are the node's.
pub(crate) fn poll(fds: &mut [pollfd], timeout: Option<Duration>) -> Outcome<Told> {
    let began = Instant::now();
    let mut call = Call::new(fds);
    let mut driven = false;
    let mut waited = false;
    loop {
        if waited && call.has_changed() {
            call = Call::new(call.fds);
        }
        let found = Told {
            number: call.look()?,
            later: waited,
        };
        if found.number > 0 {
            return Ok(found);
        }
        if !driven {
            driven = true;
            // Something may have arrived that no thread has looked at.
            if call.is_leased() && node::drive() {
                continue;
            }
        }
        let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(found);
        }
        match call.wait(left) {
            Err(Errno::NETDOWN) => call.wait_without_node(left)?,
            done => done?,
        }
        waited = true;
    }
}

/// Waits until a listener has a connection, the kernel's or the node's, or a time has passed.
pub(crate) fn until_acceptable(listener: &Listener, number: c_int, timeout: Option<Duration>) -> Outcome<()> {
    with_own(|waiting| {
        if listener.is_lost() {
            return Err(Errno::NETDOWN);
        }
        let registry = waiting.registry();
        registry
            .register(&listener.inner, Token(0), Interest::READABLE)
            .map_err(Errno::from)?;
        let beside = [Beside::new(table::borrow(&number), PollFlags::IN)];
        let waited = on(waiting, &mut Events::with_capacity(1), timeout, &beside);
        let _ = registry.deregister(&listener.inner);
        waited
    })
}
