//! Listeners: each has one of the kernel's for peers from elsewhere, and one of the node's.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::FdFlags;
use toehold_node::Forwarded as Which;
use toehold_posix::errno::{Errno, Outcome};
use toehold_posix::options::{Meaning, meaning};
use toehold_socket::{SocketOption, TcpListener};

use super::{ForwardedPeers, History, Legacy, Mode, Stream, UnconnectedSocket, plain};
use crate::file::{File, Kind};
use crate::{node, table};

/// A listener in the kernel and on the node.
pub(crate) struct Listener {
    pub(crate) inner: TcpListener,
    pub(crate) domain: c_int,
    /// The options that any process has set of it, and those that its connections have.
    history: History,
    legacy: Legacy,
    /// The settings that connections have from the listener and that are not the stack's.
    others: Mutex<(u64, Vec<Meaning>)>,
    pub(crate) mode: Mode,
    /// Whether another process was sent the kernel's listener.
    is_given: AtomicBool,
    /// The peers that the engine connects to the kernel's listener. The engine accepts the node's connections
    /// if no thread waits for them there. The program may wait for the kernel's listener, past the library.
    pub(crate) behind: Option<ForwardedPeers>,
    /// Held by the thread that looks for a connection of the kernel's, and takes it.
    taking: Mutex<()>,
}

impl Listener {
    /// The node's listener beside the kernel's, which listens already. Returns `None` if the kernel
    /// is alone.
    pub(crate) fn beside(fresh: &UnconnectedSocket, number: c_int, backlog: c_int) -> Option<Listener> {
        let name = rustix::net::getsockname(table::borrow(&number)).ok()?;
        let at = SocketAddr::try_from(name).ok().map(plain)?;
        fresh.catch_up(number);
        if fresh.is_for_kernel() || !node::listens(at.ip()) {
            return None;
        }
        let bound = node::with(|node| {
            let mut settings = fresh.settings(node)?;
            // The kernel has said which user the port belongs to. A process that has its socket may listen at
            // it. That can be several processes, if one has bound it and the others have it from that one.
            let _ = settings.apply(SocketOption::ReusePort(true));
            TcpListener::bind_beside_kernel(node, at, bounded(backlog), &settings).map_err(Errno::from)
        });
        let inner = bound.ok()?;
        for option in fresh.of_listener() {
            let _ = inner.set_option(option);
        }
        let history = History::begin(inner.description(), &fresh.history);
        history.note_bound(at.ip());
        inner.description().set_backlog(backlog);
        inner.description().set_ipv6(fresh.domain == libc::AF_INET6);
        Some(Listener {
            behind: ForwardedPeers::forward(&inner, fresh.domain, number, Which::Unattended),
            inner,
            domain: fresh.domain,
            history,
            legacy: Legacy::default(),
            others: Mutex::new((0, Vec::new())),
            mode: Mode::new(),
            is_given: AtomicBool::new(false),
            taking: Mutex::new(()),
        })
    }

    /// The node's listener, from the program that this process ran before.
    pub(crate) fn inherited(inner: TcpListener, domain: c_int, number: c_int) -> Listener {
        let history = History::shared(inner.description());
        Listener {
            behind: ForwardedPeers::forward(&inner, domain, number, Which::Unattended),
            inner,
            domain,
            history,
            legacy: Legacy::default(),
            others: Mutex::default(),
            mode: Mode::inherited(number),
            is_given: AtomicBool::new(false),
            taking: Mutex::new(()),
        }
    }

    /// The descriptor of the node's listener; it survives `exec` from now on.
    pub(crate) fn pass_on(&self) -> Option<c_int> {
        let descriptor = self.inner.descriptor().ok()?;
        rustix::io::fcntl_setfd(descriptor, FdFlags::empty()).ok()?;
        Some(descriptor.as_raw_fd())
    }

    /// Prepares for a process that is sent the kernel's listener, and has no way to know of the
    /// node's beside it. From now on the engine connects the node's peers, also the waiting ones,
    /// to the kernel's listener, which both processes have.
    pub(crate) fn give(&self, number: c_int) {
        self.is_given.store(true, Relaxed);
        if ForwardedPeers::forward(&self.inner, self.domain, number, Which::All).is_none() {
            return;
        }
        // The close of this one would reset the connections that wait.
        wait_until(|| !self.inner.readiness().is_ok_and(|ready| ready.readable));
    }

    /// Sets the backlog, as a further `listen` does.
    pub(crate) fn set_backlog(&self, backlog: c_int) {
        self.inner.description().set_backlog(backlog);
        let _ = self.inner.set_backlog(bounded(backlog));
    }

    /// Whether a connection waits at the node's.
    pub(crate) fn has_some(&self) -> Outcome<bool> {
        let readiness = || self.inner.readiness().map_err(Errno::from);
        // It may have arrived without any thread looking at it.
        let drives = || !self.inner.is_leaseless() && node::drive();
        Ok(readiness()?.readable || (drives() && readiness()?.readable))
    }

    /// Whether the node's is that of a life that is over.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.inner.readiness().map_err(Errno::from), Err(Errno::NETDOWN))
    }

    /// Listens anew in the node's next life, if there is one. Returns the file that takes this
    /// one's place.
    #[cold]
    pub(crate) fn again(&self, number: c_int) -> Option<Arc<File>> {
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let file = table::get(number)?;
        match &file.kind {
            // Another thread has done so.
            Kind::Listener(present) if !present.is_lost() => return Some(file.share()),
            Kind::Listener(_) if node::is_there() => {}
            _ => return None,
        }
        let fresh = UnconnectedSocket::again(self.domain, &self.history, true);
        let mut listener = Self::beside(&fresh, number, self.inner.description().backlog())?;
        listener.mode = self.mode.copy();
        let made = Arc::new(File::new(Kind::Listener(listener)));
        for number in table::numbers_of(&file) {
            table::put(number, Arc::clone(&made));
        }
        crate::epoll::moved(&file, &made);
        Some(made)
    }

    /// Accepts a connection that waits at the node's listener.
    pub(crate) fn accept(&self) -> Outcome<(Stream, SocketAddr)> {
        let (inner, peer) = self.inner.try_accept().map_err(Errno::from)?;
        let stream = Stream::accepted(inner, self.domain, (&self.history, &self.legacy));
        for option in self.others().1.iter() {
            stream.apply(*option)?;
        }
        Ok((stream, plain(peer)))
    }

    /// Notes that a connection was there at once. The thread would have waited for it here, and not
    /// past the library.
    #[inline]
    pub(crate) fn note_taken(&self, number: c_int) {
        if !self.inner.is_attended() {
            self.attend(number);
        }
    }

    #[cold]
    fn attend(&self, number: c_int) {
        if self.mode.waits(number) {
            let _ = self.inner.attend();
        }
    }

    /// Notes an option that the kernel has taken, for the connections to come.
    pub(crate) fn note_option(&self, level: c_int, name: c_int, value: &[u8]) {
        self.history.note(level, name, value);
        if let Ok(Meaning::Stack(option)) = meaning(level, name, value) {
            let _ = self.inner.set_option(option);
        }
    }

    /// The present settings of that kind, whichever process has set them.
    fn others(&self) -> MutexGuard<'_, (u64, Vec<Meaning>)> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.inner.description().version() + 1;
        if others.0 != version {
            *others = (version, self.history.other_meanings());
        }
        others
    }

    /// Makes the listener a bound socket again. Neither the kernel's nor the node's listens any
    /// more.
    pub(crate) fn end(&self, file: &File, number: c_int) {
        self.mode.restore(number);
        let fresh = UnconnectedSocket::again(self.domain, &self.history, true);
        let fresh = Arc::new(File::new(Kind::Fresh(fresh)));
        for number in table::numbers_of(file) {
            table::put(number, Arc::clone(&fresh));
        }
        crate::epoll::moved(file, &fresh);
    }

    /// Takes a connection of the kernel's, if there is one, by a call that may wait.
    pub(crate) fn take_kernels(
        &self,
        number: c_int,
        take: impl FnOnce() -> Outcome<c_int>,
    ) -> Outcome<c_int> {
        const AT_ONCE: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let _taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = [PollFd::from_borrowed_fd(table::borrow(&number), PollFlags::IN)];
        match rustix::event::poll(&mut state, Some(&AT_ONCE)) {
            Ok(0) => Err(Errno::AGAIN),
            // It is closed, or what else is wrong, the call says.
            _ => self.mode.without_waiting(number, take),
        }
    }
}

impl Drop for Listener {
    /// Waits for the process that was sent the kernel's listener, if there is one: it may be about
    /// to listen on the node as well. Until then, a peer that comes to the node finds this listener
    /// only, and the engine leads it on.
    fn drop(&mut self) {
        if !*self.is_given.get_mut() {
            return;
        }
        let Ok(at) = self.inner.local_addr() else { return };
        let listeners = || node::with(|node| node.listeners_at(at).map_err(Errno::from));
        wait_until(|| listeners() != Ok(1));
    }
}

/// Waits for another thread or process, for 100 ms at most. It commonly takes much less.
fn wait_until(is_so: impl Fn() -> bool) {
    const LONGEST: Duration = Duration::from_millis(100);
    let began = Instant::now();
    while began.elapsed() < LONGEST && !is_so() {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// The backlog that the kernel makes of a program's: at most the default of
/// `/proc/sys/net/core/somaxconn`. A negative one is as much as there may be.
fn bounded(backlog: c_int) -> u32 {
    const MOST: u32 = 4096;
    u32::try_from(backlog).unwrap_or(MOST).min(MOST)
}
