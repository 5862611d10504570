//! Epoll instances that watch connections of the node's beside descriptors of the kernel's.
//!
//! The kernel's instance behind the program's number has the kernel's descriptors. A poll of
//! the node's has the connections; a listener is in both.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use libc::epoll_event;
use rustix::event::PollFlags;
use toehold_posix::errno::{Errno, Outcome};
use toehold_socket::{Beside, Events, Poll, Token, Waker};

use crate::answer::outcome;
use crate::file::{File, Kind};
use crate::readiness::{has_synonyms, interest, told};
use crate::{next, node, process, relay, table, wait};

/// How many events of the node's are taken at once, at most.
const MOST: usize = 512;

/// Who always finds something on the node looks at the kernel's descriptors so often.
const KERNELS_TURN: Duration = Duration::from_micros(50);

/// An epoll instance.
#[derive(Default)]
pub(crate) struct Epoll {
    /// By descriptor.
    watched: Mutex<HashMap<c_int, Watched>>,
    sockets: ArcSwapOption<Sockets>,
    /// Whether the kernel's instance has ever watched anything.
    has_kernels: AtomicBool,
    looked: Mutex<Option<Instant>>,
    /// Somebody has asked for EPOLLRDNORM or its like.
    synonyms: AtomicBool,
}

/// The poll of the node's, of one process.
struct Sockets {
    process: u32,
    /// Before the poll, whose end is its own.
    rousing: OnceLock<Waker>,
    poll: Poll,
}

/// Not a number of the program's, as good as certainly.
const ROUSE: Token = Token(0x9d6c_6f0f_5a0c_e3b1);

impl Sockets {
    /// Makes a thread that waits look what it waits for.
    fn rouse(&self) {
        let waker = Waker::new(self.poll.registry(), ROUSE);
        if let Ok(waker) = waker
            && waker.wake().is_ok()
        {
            // It is to be there when it is looked for.
            let _ = self.rousing.set(waker);
        }
    }
}

/// What is watched that is not the kernel's alone.
struct Watched {
    file: Weak<File>,
    events: u32,
    data: u64,
}

impl Watched {
    fn is(&self, file: &File) -> bool {
        core::ptr::eq(self.file.as_ptr(), file)
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

fn each(mut act: impl FnMut(&File, &Epoll)) {
    let all: Vec<Weak<File>> = all().clone();
    for file in all.iter().filter_map(Weak::upgrade) {
        if let Kind::Epoll(epoll) = &file.kind {
            act(&file, epoll);
        }
    }
}

/// A file has another one in its place, at the same numbers.
pub(crate) fn moved(from: &File, to: &Arc<File>) {
    if !from.is_watched() {
        return;
    }
    let is_kernels = matches!(to.kind, Kind::Relayed(_));
    // What the kernel has watched of a connection was what stood for it, and is gone.
    let to_kernel = from.stream().is_some() && matches!(to.kind, Kind::Fresh(_));
    each(|instance, epoll| {
        if is_kernels {
            return epoll.leave_to_kernel(instance, from);
        }
        let mut watched = epoll.watched();
        for (number, watched) in watched.iter_mut().filter(|(_, watched)| watched.is(from)) {
            watched.file = Arc::downgrade(to);
            to.note_watched();
            // A poll that is full has nothing to say to that; errors show in calls.
            let _ = epoll.register(to, *number, watched.events, watched.data);
            if to_kernel {
                epoll.watch_by_kernel(instance, *number, watched);
            }
        }
    });
}

/// A number of a file's has been closed.
pub(crate) fn closed(file: &File, number: c_int, last: bool) {
    if !last || !file.is_watched() {
        return;
    }
    each(|_, epoll| {
        let mut watched = epoll.watched();
        if watched.get(&number).is_some_and(|watched| watched.is(file)) {
            watched.remove(&number);
            epoll.deregister(file);
        }
    });
}

impl Epoll {
    fn watched(&self) -> MutexGuard<'_, HashMap<c_int, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The poll of the node's, which a forked child does not share.
    fn sockets(&self) -> Outcome<Arc<Sockets>> {
        let present = self.sockets.load_full();
        match present {
            Some(sockets) if sockets.process == process::number() => Ok(sockets),
            _ => self.make_sockets(),
        }
    }

    #[cold]
    fn make_sockets(&self) -> Outcome<Arc<Sockets>> {
        let node = node::get().ok_or(Errno::NETDOWN)?;
        let made = Arc::new(Sockets {
            process: process::number(),
            rousing: OnceLock::new(),
            poll: Poll::new(node).map_err(Errno::from)?,
        });
        if let Some(parents) = self.sockets.swap(Some(Arc::clone(&made))) {
            // What the parent has is neither used nor dropped here.
            std::mem::forget(parents);
        }
        Ok(made)
    }

    /// In a forked child: watches on the node what its parent did.
    fn take_over(&self) {
        let watched = self.watched();
        let stale = self
            .sockets
            .load()
            .as_ref()
            .is_some_and(|sockets| sockets.process != process::number());
        if stale {
            for (number, watched) in watched.iter() {
                if let Some(file) = watched.file.upgrade() {
                    let _ = self.register(&file, *number, watched.events, watched.data);
                }
            }
        }
    }

    fn register(&self, file: &File, _number: c_int, events: u32, data: u64) -> Outcome<()> {
        let interest = interest(events);
        let token = Token(data as usize);
        match &file.kind {
            Kind::Stream(stream) => self
                .sockets()?
                .poll
                .registry()
                .register(&stream.inner, token, interest),
            Kind::Listener(listener) => {
                self.sockets()?
                    .poll
                    .registry()
                    .register(&listener.inner, token, interest)
            }
            Kind::Fresh(_) | Kind::Relayed(_) | Kind::Epoll(_) => Ok(()),
        }
        .map_err(Errno::from)
    }

    fn reregister(&self, file: &File, events: u32, data: u64) -> Outcome<()> {
        let interest = interest(events);
        let token = Token(data as usize);
        match &file.kind {
            Kind::Stream(stream) => {
                self.sockets()?
                    .poll
                    .registry()
                    .reregister(&stream.inner, token, interest)
            }
            Kind::Listener(listener) => {
                self.sockets()?
                    .poll
                    .registry()
                    .reregister(&listener.inner, token, interest)
            }
            Kind::Fresh(_) | Kind::Relayed(_) | Kind::Epoll(_) => Ok(()),
        }
        .map_err(Errno::from)
    }

    fn deregister(&self, file: &File) {
        let Ok(sockets) = self.sockets() else { return };
        // What is not registered is not watched.
        let _ = match &file.kind {
            Kind::Stream(stream) => sockets.poll.registry().deregister(&stream.inner),
            Kind::Listener(listener) => sockets.poll.registry().deregister(&listener.inner),
            Kind::Fresh(_) | Kind::Relayed(_) | Kind::Epoll(_) => Ok(()),
        };
    }

    /// The kernel's instance watches what the node's poll has.
    fn watch_by_kernel(&self, file: &File, number: c_int, watched: &Watched) {
        let mut event = epoll_event {
            events: watched.events,
            u64: watched.data,
        };
        if let Some(own) = table::numbers_of(file).first() {
            // SAFETY: an event.
            unsafe { next::epoll_ctl(*own, libc::EPOLL_CTL_ADD, number, &mut event) };
            self.note_kernels();
        }
    }

    /// The kernel's instance watches something. Who waits has to wait for it, too.
    pub(crate) fn note_kernels(&self) {
        if !self.has_kernels.swap(true, Relaxed)
            && let Some(sockets) = &*self.sockets.load()
            && sockets.process == process::number()
        {
            sockets.rouse();
        }
    }

    /// A connection has become one of the kernel's: so has what watches it.
    fn leave_to_kernel(&self, instance: &File, from: &File) {
        let Some(own) = table::numbers_of(instance).first().copied() else {
            return;
        };
        let mut watched = self.watched();
        let numbers = watched.iter().filter(|(_, watched)| watched.is(from));
        let numbers: Vec<c_int> = numbers.map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(Watched { events, data, .. }) = watched.remove(&number) else {
                continue;
            };
            let mut event = epoll_event { events, u64: data };
            // SAFETY: the event is there.
            unsafe { next::epoll_ctl(own, libc::EPOLL_CTL_ADD, number, &mut event) };
            self.deregister(from);
        }
        drop(watched);
        self.note_kernels();
    }

    /// Leaves all to the kernel, and keeps nothing of the node's.
    pub(crate) fn let_go(&self) {
        self.watched().clear();
        self.sockets.store(None);
    }

    /// Finds out which connections have become the kernel's, through other processes. Whether
    /// any has.
    #[cold]
    fn settle(&self) -> bool {
        let watched = self.watched();
        let streams = watched
            .iter()
            .filter_map(|(number, watched)| Some((*number, watched.file.upgrade()?)));
        let streams: Vec<(c_int, Arc<File>)> = streams.filter(|(_, file)| file.stream().is_some()).collect();
        drop(watched);
        let mut any = false;
        for (number, file) in streams {
            any |= relay::settle(&file, number);
        }
        any
    }

    /// `epoll_ctl` with a file of the table's; the kernel has done what is its part.
    pub(crate) fn control(
        &self,
        operation: c_int,
        number: c_int,
        file: &Arc<File>,
        event: Option<epoll_event>,
    ) -> Outcome<c_int> {
        self.take_over();
        // Who deletes may pass anything.
        if operation != libc::EPOLL_CTL_DEL && event.is_some_and(|event| has_synonyms(event.events)) {
            self.synonyms.store(true, Relaxed);
        }
        let mut watched = self.watched();
        let present = watched.get(&number).is_some_and(|watched| watched.is(file));
        match (operation, event) {
            (libc::EPOLL_CTL_ADD, _) if present => Err(Errno::EXIST),
            (libc::EPOLL_CTL_ADD, Some(epoll_event { events, u64: data })) => {
                self.register(file, number, events, data)?;
                file.note_watched();
                let file = Arc::downgrade(file);
                watched.insert(number, Watched { file, events, data });
                Ok(0)
            }
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, _) if !present => Err(Errno::NOENT),
            (libc::EPOLL_CTL_MOD, Some(epoll_event { events, u64: data })) => {
                self.reregister(file, events, data)?;
                let file = Arc::downgrade(file);
                watched.insert(number, Watched { file, events, data });
                Ok(0)
            }
            (libc::EPOLL_CTL_DEL, _) => {
                watched.remove(&number);
                self.deregister(file);
                Ok(0)
            }
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, None) => Err(Errno::FAULT),
            _ => Err(Errno::INVAL),
        }
    }

    /// Whether anything of the node's is watched.
    pub(crate) fn has_sockets(&self) -> bool {
        self.sockets.load().is_some()
    }

    /// Whether it has something to tell of the node's.
    pub(crate) fn is_ready(&self) -> bool {
        self.take_over();
        self.sockets()
            .and_then(|sockets| sockets.poll.is_ready().map_err(Errno::from))
            == Ok(true)
    }

    /// `epoll_wait`.
    pub(crate) fn wait(
        &self,
        number: c_int,
        events: &mut [epoll_event],
        timeout: Option<Duration>,
    ) -> Outcome<c_int> {
        match self.wait_for_both(number, events, timeout) {
            Err(Errno::NETDOWN) => self.wait_without_node(number, events, timeout),
            waited => waited,
        }
    }

    /// The node is gone: its connections have failed, and what is left is the kernel's.
    #[cold]
    fn wait_without_node(
        &self,
        number: c_int,
        events: &mut [epoll_event],
        timeout: Option<Duration>,
    ) -> Outcome<c_int> {
        let watched = self.watched();
        let is_stream =
            |watched: &&Watched| watched.file.upgrade().is_some_and(|file| file.stream().is_some());
        let mut count = 0;
        for (watched, place) in watched.values().filter(is_stream).zip(events.iter_mut()) {
            let failed = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
            *place = epoll_event {
                events: failed | watched.events & (libc::EPOLLIN | libc::EPOLLOUT) as u32,
                u64: watched.data,
            };
            count += 1;
        }
        drop(watched);
        if count > 0 {
            return Ok(count);
        }
        let most = events.len().min(c_int::MAX as usize) as c_int;
        let millis = timeout.map_or(-1, |timeout| {
            c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX)
        });
        // SAFETY: there is room for so many.
        outcome(unsafe { next::epoll_wait(number, events.as_mut_ptr(), most, millis) })
    }

    fn wait_for_both(
        &self,
        number: c_int,
        events: &mut [epoll_event],
        timeout: Option<Duration>,
    ) -> Outcome<c_int> {
        self.take_over();
        let sockets = self.sockets()?;
        let began = Instant::now();
        let left = || timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        let mut has_kernels = self.has_kernels.load(Relaxed);
        let synonyms = self.synonyms.load(Relaxed);
        let mut taken = Events::with_capacity(events.len().min(MOST));
        // The kernel's descriptors are looked at before anybody waits.
        let mut span = if has_kernels {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        loop {
            let beside = [Beside::new(table::borrow(&number), PollFlags::IN)];
            let beside = &beside[..usize::from(has_kernels)];
            wait::on(&sockets.poll, &mut taken, span, beside)?;
            if taken.iter().any(|event| event.is_error()) && self.settle() {
                has_kernels = true;
                continue;
            }
            let told_of = taken.iter().filter(|event| event.token() != ROUSE);
            let mut count = 0;
            for (event, place) in told_of.zip(events.iter_mut()) {
                *place = epoll_event {
                    events: told(event, synonyms),
                    u64: event.token().0 as u64,
                };
                count += 1;
            }
            if has_kernels && count < events.len() && (count == 0 || self.is_kernels_turn()) {
                count += take_kernels(number, &mut events[count..])?;
            }
            has_kernels = self.has_kernels.load(Relaxed);
            span = left();
            if count > 0 || span.is_some_and(|span| span.is_zero()) {
                return Ok(count as c_int);
            }
        }
    }

    fn is_kernels_turn(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let due = looked.is_none_or(|looked| now.duration_since(looked) >= KERNELS_TURN);
        if due {
            *looked = Some(now);
        }
        due
    }
}

/// What is ready of the kernel's.
fn take_kernels(number: c_int, events: &mut [epoll_event]) -> Outcome<usize> {
    let most = events.len().min(c_int::MAX as usize) as c_int;
    // SAFETY: there is room for so many.
    let taken = outcome(unsafe { next::epoll_wait(number, events.as_mut_ptr(), most, 0) })?;
    Ok(taken as usize)
}
