//! Epoll instances that watch connections of the node's beside descriptors of the kernel's.
//!
//! The kernel's instance behind the program's number has the kernel's descriptors. A poll of
//! the node's has the connections; a listener is in both, and so is another instance.

mod asleep;
mod lost;
mod names;
mod sockets;
mod waiting;

pub(crate) use self::asleep::{falls as falls_asleep, sift, wakes};
pub(crate) use self::sockets::Sockets;

use core::ffi::c_int;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32};
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use libc::epoll_event;
use toehold_posix::errno::{Errno, Outcome};
use toehold_socket::Token;

use self::asleep::Asleep;
use self::names::{Name, Names};
use crate::file::{File, Kind};
use crate::readiness::has_synonyms;
use crate::{next, node, relay, table};

/// An epoll instance.
#[derive(Default)]
pub(crate) struct Epoll {
    /// The watched files, by descriptor.
    watched: Mutex<HashMap<c_int, Watched>>,
    names: Arc<Names>,
    sockets: ArcSwapOption<Sockets>,
    asleep: Asleep,
    /// Whether the kernel's instance has ever watched anything.
    has_kernels: AtomicBool,
    looked: Mutex<Option<Instant>>,
    /// Whether the node's events took all the room there was, the last time.
    was_full: AtomicBool,
    /// Whether the program has asked for EPOLLRDNORM or its like.
    synonyms: AtomicBool,
    /// Whether something may be watched that was the node's in a life that is over.
    lost: AtomicBool,
    /// Held by the thread that makes `sockets`.
    making: Mutex<()>,
    /// Threads that wait for it, and the kernel's instance for them, once the program has closed
    /// its number: that may be anything's by now.
    waiters: AtomicU32,
    kept: OnceLock<OwnedFd>,
    /// Whether the program has made the instance, and may have changed it, past the library.
    is_adopted: AtomicBool,
}

/// A watched file that is not the kernel's alone.
struct Watched {
    file: Weak<File>,
    asked: Asked,
    _name: Name,
    /// Whether the program asked to be told once that the connection is lost, and has been told.
    is_told: bool,
}

/// The events of a file that a program wants to be told, and the node's name for it.
#[derive(Clone, Copy)]
struct Asked {
    events: u32,
    /// The program's own number for the file.
    data: u64,
    token: Token,
}

impl Asked {
    /// The event as the kernel is told of it.
    fn event(self) -> epoll_event {
        epoll_event {
            events: self.events,
            u64: self.data,
        }
    }
}

impl Watched {
    fn new(file: &Arc<File>, asked: Asked, name: Name) -> Watched {
        Watched {
            file: Arc::downgrade(file),
            asked,
            _name: name,
            is_told: false,
        }
    }

    fn is(&self, file: &File) -> bool {
        core::ptr::eq(self.file.as_ptr(), file)
    }

    /// Whether the kernel's instance and the node's may both tell of it.
    fn is_in_both(&self) -> bool {
        let file = self.file.upgrade();
        file.is_some_and(|file| matches!(file.kind, Kind::Listener(_) | Kind::Epoll(_)))
    }
}

/// All instances, for files that become something else, or end.
static ALL: Mutex<Vec<Weak<File>>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Weak<File>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file for a new instance.
pub(crate) fn open() -> Arc<File> {
    let file = Arc::new(File::new(Kind::Epoll(Epoll::default())));
    let mut all = all();
    all.retain(|epoll| epoll.strong_count() > 0);
    all.push(Arc::downgrade(&file));
    file
}

/// Adopts every instance of this process's that it has made past the library.
#[cfg(target_arch = "x86_64")]
pub(crate) fn adopt_all() {
    crate::inherited::open_numbers().into_iter().for_each(adopt);
}

/// Adopts an epoll instance that this process has made past the library. Does nothing if the number
/// is something else.
pub(crate) fn adopt(number: c_int) {
    let is_instance = |number| {
        let what = std::fs::read_link(format!("/proc/self/fd/{number}"));
        what.is_ok_and(|what| what == Path::new("anon_inode:[eventpoll]"))
    };
    if table::is_kernels(number) && is_instance(number) {
        let file = open();
        if let Kind::Epoll(epoll) = &file.kind {
            epoll.is_adopted.store(true, Relaxed);
            epoll.note_kernels();
        }
        table::put(number, file);
    }
}

fn each(mut act: impl FnMut(&File, &Epoll)) {
    let all: Vec<Weak<File>> = all().clone();
    for file in all.iter().filter_map(Weak::upgrade) {
        if let Kind::Epoll(epoll) = &file.kind {
            act(&file, epoll);
        }
    }
}

/// Moves what instances watch of a file to the file in its place, which has the same numbers.
pub(crate) fn moved(from: &File, to: &Arc<File>) {
    if !from.is_watched() {
        return;
    }
    let is_kernels = matches!(to.kind, Kind::Forwarded(_) | Kind::Relayed(_));
    // What the kernel has watched of a connection was what stood for it, and is gone.
    let to_kernel = from.stream().is_some() && matches!(to.kind, Kind::Fresh(_));
    each(|instance, epoll| {
        if is_kernels {
            return epoll.leave_to_kernel(instance, from);
        }
        for (number, asked) in epoll.replace(from, to) {
            // A poll that is full has nothing to say to that; errors show in calls.
            let _ = epoll.register(to, number, asked);
            if to_kernel {
                epoll.watch_by_kernel(instance, number, asked.event());
            }
        }
    });
}

/// Ends the watching of a file that has no number any more.
pub(crate) fn closed(file: &File) {
    if !file.is_watched() {
        return;
    }
    each(|_, epoll| {
        for (number, _watched) in epoll.forget(file) {
            epoll.deregister(file, number);
        }
    });
}

/// Keeps an instance for threads that wait on it while a number of it is about to be closed.
pub(crate) fn keep(file: &File, number: c_int) {
    if let Some(epoll) = file.epoll().filter(|epoll| epoll.waiters.load(SeqCst) > 0)
        && let Some(copy) = node::copy(number)
    {
        table::own(copy.as_raw_fd());
        let _ = epoll.kept.set(copy);
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take() {
            table::disown(kept.as_raw_fd());
        }
    }
}

impl Epoll {
    fn watched(&self) -> MutexGuard<'_, HashMap<c_int, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watched files that are still there, each with its number and the program's wishes.
    fn list(&self) -> Vec<(c_int, Arc<File>, Asked)> {
        let watched = self.watched();
        let there = watched
            .iter()
            .filter_map(|(number, watched)| Some((*number, watched.file.upgrade()?, watched.asked)));
        there.collect()
    }

    /// Watches another file in the place of one. Returns the numbers concerned, and the events
    /// asked for.
    fn replace(&self, from: &File, to: &Arc<File>) -> Vec<(c_int, Asked)> {
        let mut watched = self.watched();
        let concerned = watched.iter_mut().filter(|(_, watched)| watched.is(from));
        let replaced = concerned.map(|(number, watched)| {
            watched.file = Arc::downgrade(to);
            to.note_watched();
            (*number, watched.asked)
        });
        replaced.collect()
    }

    /// Has the kernel's instance watch a file that the node's poll watches.
    fn watch_by_kernel(&self, file: &File, number: c_int, mut event: epoll_event) {
        if let Some(own) = table::numbers_of(file).first() {
            // SAFETY: `event` is a local, which the kernel reads during this call alone.
            unsafe { next::epoll_ctl(*own, libc::EPOLL_CTL_ADD, number, &mut event) };
            self.note_kernels();
        }
    }

    /// Notes that the kernel's instance watches something. Threads that wait have to wait for it,
    /// too.
    pub(crate) fn note_kernels(&self) {
        if !self.has_kernels.swap(true, SeqCst)
            && self.waiters.load(SeqCst) > 0
            && let Some(sockets) = self.present()
        {
            sockets.rouse();
        }
    }

    /// Has the kernel's instance watch a connection that has become one of the kernel's.
    fn leave_to_kernel(&self, instance: &File, from: &File) {
        let Some(own) = table::numbers_of(instance).first().copied() else {
            return;
        };
        for (number, watched) in self.forget(from) {
            let mut event = watched.asked.event();
            // SAFETY: `event` is a local, which the kernel reads during this call alone.
            unsafe { next::epoll_ctl(own, libc::EPOLL_CTL_ADD, number, &mut event) };
            self.deregister(from, number);
        }
        self.note_kernels();
    }

    /// Watches a file no more. Under which numbers it did, and what is to be dropped once the node
    /// has been told.
    fn forget(&self, file: &File) -> Vec<(c_int, Watched)> {
        let mut watched = self.watched();
        watched.extract_if(|_, watched| watched.is(file)).collect()
    }

    /// Leaves all to the kernel, and keeps nothing of the node's.
    pub(crate) fn let_go(&self) {
        self.sockets.store(None);
        self.watched().clear();
    }

    /// Finds out which connections have become the kernel's, through other processes. Whether
    /// any has.
    #[cold]
    fn settle(&self) -> bool {
        let streams = self
            .list()
            .into_iter()
            .filter(|(_, file, _)| file.stream().is_some());
        let mut any = false;
        for (number, file, _) in streams {
            any |= relay::settle(&file, number);
        }
        any
    }

    /// Whether the program has made it past the library.
    pub(crate) fn is_adopted(&self) -> bool {
        self.is_adopted.load(Relaxed)
    }

    /// [`Epoll::control`] of an instance that may have been told of a connection past the library.
    #[cold]
    pub(crate) fn control_adopted(
        &self,
        operation: c_int,
        number: c_int,
        file: &Arc<File>,
        event: Option<epoll_event>,
    ) -> Outcome<c_int> {
        match (self.control(operation, number, file, event), operation) {
            (Err(Errno::NOENT), libc::EPOLL_CTL_MOD) => {
                self.control(libc::EPOLL_CTL_ADD, number, file, event)
            }
            (Err(Errno::NOENT), libc::EPOLL_CTL_DEL) => Ok(0),
            (done, _) => done,
        }
    }

    /// `epoll_ctl` with a file of the table's; the kernel has done its part.
    pub(crate) fn control(
        &self,
        operation: c_int,
        number: c_int,
        file: &Arc<File>,
        event: Option<epoll_event>,
    ) -> Outcome<c_int> {
        // The kernel reads the event first, whatever it is for.
        if operation != libc::EPOLL_CTL_DEL && event.is_none() {
            return Err(Errno::FAULT);
        }
        self.take_over();
        if let Some(inner) = file.epoll() {
            inner.take_over();
        }
        if operation != libc::EPOLL_CTL_DEL
            && event.is_some_and(|event| !may_exclude(operation, file, event.events))
        {
            return Err(Errno::INVAL);
        }
        let sockets = self.sockets_for(file)?;
        let sockets = sockets.as_deref();
        // A program that deletes may pass any event.
        if operation != libc::EPOLL_CTL_DEL && event.is_some_and(|event| has_synonyms(event.events)) {
            self.synonyms.store(true, Relaxed);
        }
        let mut watched = self.watched();
        let present = watched.get(&number).is_some_and(|watched| watched.is(file));
        match (operation, event) {
            (libc::EPOLL_CTL_ADD, _) if present => Err(Errno::EXIST),
            (libc::EPOLL_CTL_ADD, Some(event)) => {
                let (asked, name) = self.name(event)?;
                self.register_with(sockets, (file, number), asked)?;
                file.note_watched();
                watched.insert(number, Watched::new(file, asked, name));
                Ok(0)
            }
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, _) if !present => Err(Errno::NOENT),
            (libc::EPOLL_CTL_MOD, _) if excludes(watched.get(&number)) => Err(Errno::INVAL),
            (libc::EPOLL_CTL_MOD, Some(event)) => {
                let former = watched
                    .get_mut(&number)
                    .filter(|former| former.asked.data == { event.u64 });
                if let Some(former) = former {
                    let asked = Asked {
                        events: event.events,
                        ..former.asked
                    };
                    self.reregister_with(sockets, (file, number), asked)?;
                    former.asked = asked;
                    former.is_told = false;
                    return Ok(0);
                }
                let (asked, name) = self.name(event)?;
                self.reregister_with(sockets, (file, number), asked)?;
                watched.insert(number, Watched::new(file, asked, name));
                Ok(0)
            }
            (libc::EPOLL_CTL_DEL, _) => {
                let _removed = watched.remove(&number);
                self.deregister(file, number);
                Ok(0)
            }
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, None) => Err(Errno::FAULT),
            _ => Err(Errno::INVAL),
        }
    }

    /// Makes a name for a program's request. The caller has the lock of the watched descriptor.
    fn name(&self, epoll_event { events, u64: data }: epoll_event) -> Outcome<(Asked, Name)> {
        let name = self.names.name(data).ok_or(Errno::NOMEM)?;
        let token = name.token();
        Ok((Asked { events, data, token }, name))
    }

    /// Whether anything of the node's is watched, or was.
    pub(crate) fn has_sockets(&self) -> bool {
        self.sockets.load().is_some() || self.lost.load(Relaxed)
    }
}

/// Whether a registration is one of several of which one is told, which is not changed any more.
fn excludes(watched: Option<&Watched>) -> bool {
    watched.is_some_and(|watched| watched.asked.events & libc::EPOLLEXCLUSIVE as u32 != 0)
}

/// Whether it may be such a one if it wants to.
fn may_exclude(operation: c_int, file: &File, events: u32) -> bool {
    const GOES_WITH: c_int = libc::EPOLLIN
        | libc::EPOLLOUT
        | libc::EPOLLERR
        | libc::EPOLLHUP
        | libc::EPOLLWAKEUP
        | libc::EPOLLET
        | libc::EPOLLEXCLUSIVE;
    let is_alone = events & libc::EPOLLEXCLUSIVE as u32 == 0;
    is_alone
        || operation != libc::EPOLL_CTL_MOD && file.epoll().is_none() && events & !(GOES_WITH as u32) == 0
}
