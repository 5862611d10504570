//! Threads that wait in the kernel's instance, since theirs has nothing on the node. When that
//! changes they have to wait elsewhere: something in the kernel's instance is ready until all
//! of them have left it.

use core::cell::RefCell;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use core::sync::atomic::{AtomicU64, fence};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use libc::epoll_event;
use rustix::event::{EventfdFlags, eventfd};

use super::{Epoll, each};
use crate::file::File;
use crate::inside::Inside;
use crate::{next, node, process, table};

/// A value that a program would not give a descriptor of its own.
const ROUSE: u64 = 0x6b0e_71c4_93d5_2fa9;

/// How many threads of a process wait in an instance of the kernel's. What a forked child has
/// from its parent counts for nothing.
#[derive(Default)]
pub(super) struct Asleep(AtomicU64);

impl Asleep {
    fn count(&self) -> u32 {
        let word = self.0.load(Acquire);
        if (word >> 32) as u32 == process::number() {
            word as u32
        } else {
            0
        }
    }

    fn change(&self, change: impl Fn(u32) -> u32) {
        let next = |_| {
            let count = change(self.count());
            Some(u64::from(process::number()) << 32 | u64::from(count))
        };
        let _ = self.0.fetch_update(AcqRel, Acquire, next);
    }
}

/// This thread waits in the kernel's instance of a file, until this is dropped.
struct Waits {
    process: u32,
    file: Option<Arc<File>>,
}

impl Waits {
    fn new(file: Arc<File>) -> Waits {
        if let Some(epoll) = file.epoll() {
            epoll.asleep.change(|count| count + 1);
        }
        Waits {
            process: process::number(),
            file: Some(file),
        }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        // It may be the last one to have the file.
        let _inside = Inside::enter();
        if let Some(file) = self.file.take()
            && let Some(epoll) = file.epoll().filter(|_| self.process == process::number())
        {
            epoll.asleep.change(|count| count.saturating_sub(1));
        }
    }
}

thread_local! {
    /// A thread that leaves the kernel by a jump, or because it is cancelled, does not take its
    /// entry back. The entry goes when the thread waits again, or ends.
    static WAITS: RefCell<Option<Waits>> = const { RefCell::new(None) };
}

/// Notes that this thread is about to wait in the kernel. Returns `false` if its instance has
/// something on the node.
pub(crate) fn falls(file: Arc<File>) -> bool {
    let waits = Waits::new(Arc::clone(&file));
    let _ = WAITS.try_with(|own| own.replace(Some(waits)));
    // A thread that puts a socket on the node looks for waiting threads after it has done so.
    fence(SeqCst);
    let stays = file.epoll().is_none_or(|epoll| !epoll.has_sockets());
    if !stays {
        wakes();
    }
    stays
}

/// Notes that this thread does not wait in the kernel any more.
pub(crate) fn wakes() {
    let _ = WAITS.try_with(|own| own.replace(None));
}

/// A descriptor that is ready for ever.
fn ready() -> Option<c_int> {
    static READY: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let made = READY.get_or_init(|| {
        let made = eventfd(1, EventfdFlags::CLOEXEC).ok()?;
        let kept = node::copy(made.as_raw_fd())?;
        table::own(kept.as_raw_fd());
        Some(kept)
    });
    made.as_ref().map(AsRawFd::as_raw_fd)
}

fn control(instance: c_int, operation: c_int) {
    if let Some(ready) = ready() {
        let mut event = epoll_event {
            events: libc::EPOLLIN as u32,
            u64: ROUSE,
        };
        // SAFETY: `event` is a local, which the kernel reads during this call alone.
        unsafe { next::epoll_ctl(instance, operation, ready, &mut event) };
    }
}

/// Removes the event that only wakes threads from those that the kernel has returned of an
/// instance. Returns how many events are left, and whether that one was among them.
pub(crate) fn sift(epoll: &Epoll, instance: c_int, events: &mut [epoll_event]) -> (usize, bool) {
    let Some(at) = events.iter().position(|event| { event.u64 } == ROUSE) else {
        return (events.len(), false);
    };
    events[at..].rotate_left(1);
    if epoll.asleep.count() == 0 {
        control(instance, libc::EPOLL_CTL_DEL);
    }
    (events.len() - 1, true)
}

impl Epoll {
    /// Wakes threads that wait in the kernel, since there is something on the node now.
    pub(super) fn rouse_from_kernel(&self) {
        fence(SeqCst);
        if self.asleep.count() == 0 {
            return;
        }
        each(|file, epoll| {
            if core::ptr::eq(epoll, self)
                && let Some(own) = table::numbers_of(file).first()
            {
                control(*own, libc::EPOLL_CTL_ADD);
            }
        });
    }

    /// Whether threads may still have to leave the kernel's instance.
    pub(super) fn has_sleepers(&self) -> bool {
        self.asleep.count() > 0
    }
}
