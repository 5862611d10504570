//! Whether a forked child can trust its copies of its parent's memory.
//!
//! A fork copies a process's memory page by page while its other threads run. A value that one of
//! them changes meanwhile may be half old and half new in the child. A thread that changes
//! inherited state therefore announces the change in a page that parent and child share. If no
//! change was under way at the fork, and none has begun since, the copies are complete. There is no
//! lock: a signal handler that forks would wait for it forever.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, fence};

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

use crate::Process;

/// The changes that a process has announced. It points to the process's own page, or to its
/// parent's page until the process announces a change.
static CHANGES: AtomicPtr<Changes> = AtomicPtr::new(ptr::null_mut());

/// This process, or an ancestor, could not announce a change.
static UNANNOUNCED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The state that this thread found when it last forked, or when its process was forked.
    static SEEN: Cell<Option<Seen>> = const { Cell::new(None) };
}

#[derive(Debug)]
struct Changes {
    /// The process that announces its changes here.
    process: u32,
    begun: AtomicU32,
    ended: AtomicU32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    page: *const Changes,
    begun: u32,
}

/// A change of inherited state. It ends when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Change(Option<&'static Changes>);

impl Change {
    /// Begins a change. Several threads can change state at the same time.
    pub fn begin(process: Process) -> Change {
        let changes = announced(process);
        match changes {
            Some(changes) => {
                changes.begun.fetch_add(1, AcqRel);
                // No thread sees a later change before the announcement.
                fence(SeqCst);
            }
            None => UNANNOUNCED.store(true, Release),
        }
        Change(changes)
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if let Some(changes) = self.0 {
            changes.ended.fetch_add(1, Release);
        }
    }
}

/// Whether the copies of this process, a forked child, are complete: no thread of its parent was
/// changing them. Also false if that is unknown, for instance if the process has changed state
/// itself.
pub(crate) fn is_whole() -> bool {
    let (Some(seen), Some(changes)) = (SEEN.get(), current()) else {
        return false;
    };
    let same = ptr::eq(seen.page, changes) && seen.begun == changes.begun.load(Acquire);
    same && !UNANNOUNCED.load(Acquire)
}

/// Records the state before this thread of process `process` forks.
pub(crate) fn before_fork(process: u32) {
    // A process that has changed nothing keeps the state that it found itself.
    if let Some(changes) = current().filter(|changes| changes.process == process) {
        let ended = changes.ended.load(Acquire);
        let begun = changes.begun.load(Acquire);
        SEEN.set((begun == ended).then_some(Seen { page: changes, begun }));
    }
}

fn current() -> Option<&'static Changes> {
    // SAFETY: the pointer is null, or a page that is never unmapped once it is published.
    unsafe { CHANGES.load(Acquire).as_ref() }
}

/// The page of this process, created if there is none. `None` if the system refuses one.
fn announced(process: Process) -> Option<&'static Changes> {
    let number = process.number();
    let former = CHANGES.load(Acquire);
    if let Some(changes) = current().filter(|changes| changes.process == number) {
        return Some(changes);
    }
    let made = page(number).ok()?;
    if CHANGES.compare_exchange(former, made, AcqRel, Relaxed).is_err() {
        // Another thread was faster. SAFETY: the page was mapped above, and no other thread knows
        // of it.
        let _ = unsafe { mm::munmap(made.cast(), rustix::param::page_size()) };
    }
    current()
}

fn page(process: u32) -> Result<*mut Changes, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses an unused address for a new mapping, so no memory in use is
    // affected.
    let page = unsafe {
        mm::mmap_anonymous(
            ptr::null_mut(),
            rustix::param::page_size(),
            protection,
            MapFlags::SHARED,
        )?
    };
    let page = page.cast::<Changes>();
    let changes = Changes {
        process,
        begun: AtomicU32::new(0),
        ended: AtomicU32::new(0),
    };
    // SAFETY: the page was just mapped for writing, and no other thread knows of it. It is aligned
    // to its size, which is greater than the value's.
    unsafe { page.write(changes) };
    Ok(page)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::process::tests::{alone, forked};

    #[test]
    fn copies_are_complete_unless_a_change_was_under_way() {
        let _alone = alone();
        let process = Process::this().unwrap();
        let whole = || u8::from(is_whole());
        drop(Change::begin(process));
        assert_eq!(forked(whole), 1);
        let under_way = Change::begin(process);
        assert_eq!(forked(whole), 0);
        drop(under_way);
        assert_eq!(forked(whole), 1);
        // As far as the child can tell, this change began during the fork.
        let begun_since = forked(|| {
            let parents = current().unwrap();
            parents.begun.fetch_add(1, AcqRel);
            parents.ended.fetch_add(1, AcqRel);
            whole()
        });
        assert_eq!(begun_since, 0);
        assert_eq!(forked(whole), 1);
    }

    #[test]
    fn grandchildren_inherit_complete_copies() {
        let _alone = alone();
        let process = Process::this().unwrap();
        drop(Change::begin(process));
        // The child first changes nothing, and then something.
        let status = forked(|| {
            let before = forked(|| u8::from(is_whole()));
            drop(Change::begin(process));
            let own = u8::from(is_whole());
            let after = forked(|| u8::from(is_whole()));
            let within = Change::begin(process);
            let amid = forked(|| u8::from(is_whole()));
            drop(within);
            before | own << 1 | after << 2 | amid << 3
        });
        assert_eq!(status, 0b0101);
        // The child announced its changes in its own page.
        assert_eq!(forked(|| u8::from(is_whole())), 1);
    }

    #[test]
    fn thread_that_did_not_fork_cannot_tell() {
        let _alone = alone();
        let process = Process::this().unwrap();
        drop(Change::begin(process));
        let status = forked(|| {
            let elsewhere = std::thread::spawn(is_whole).join().unwrap();
            u8::from(elsewhere) + 2 * u8::from(is_whole())
        });
        assert_eq!(status, 2);
    }
}
