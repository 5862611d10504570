//! Whether a forked child can trust what it has copies of.
//!
//! A fork copies a process's memory page by page, while its other threads go on: of what one
//! of them changes meanwhile, the child may have one half as it was and the other as it is.
//! Who changes what children are to take over announces the change in a page that the child
//! goes on sharing. If none was under way when the child was forked, and none has begun since,
//! then the copies are whole. There is no lock, which a signal handler that forks would wait
//! for in vain.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, fence};

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

use crate::Process;

/// The changes that a process has announced: its own page, or, as long as it has announced
/// none, that of the process which it was forked from.
static CHANGES: AtomicPtr<Changes> = AtomicPtr::new(ptr::null_mut());

/// This process, or one that it descends from, could not announce a change.
static UNANNOUNCED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// What this thread found when it last forked, or its process was forked by it.
    static SEEN: Cell<Option<Seen>> = const { Cell::new(None) };
}

#[derive(Debug)]
struct Changes {
    /// Which process announces its changes here.
    process: u32,
    begun: AtomicU32,
    ended: AtomicU32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    page: *const Changes,
    begun: u32,
}

/// A change of what children take over. It ends when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Change(Option<&'static Changes>);

impl Change {
    /// Begins a change. Several threads can be changing something at once.
    pub fn begin(process: Process) -> Change {
        let changes = announced(process);
        match changes {
            Some(changes) => {
                changes.begun.fetch_add(1, AcqRel);
                // What is changed after this is seen by nobody before it.
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

/// Whether what this process, a forked child, has copies of is whole: no thread of its parent
/// was changing any of it. False as well if that cannot be told, as in a process that has
/// changed something itself.
pub(crate) fn is_whole() -> bool {
    let (Some(seen), Some(changes)) = (SEEN.get(), current()) else {
        return false;
    };
    let same = ptr::eq(seen.page, changes) && seen.begun == changes.begun.load(Acquire);
    same && !UNANNOUNCED.load(Acquire)
}

/// Before this thread forks. `process`: which one it is.
pub(crate) fn before_fork(process: u32) {
    // A process that has changed nothing keeps what it found itself.
    if let Some(changes) = current().filter(|changes| changes.process == process) {
        let ended = changes.ended.load(Acquire);
        let begun = changes.begun.load(Acquire);
        SEEN.set((begun == ended).then_some(Seen { page: changes, begun }));
    }
}

fn current() -> Option<&'static Changes> {
    // SAFETY: null, or a page that is never unmapped once it is published.
    unsafe { CHANGES.load(Acquire).as_ref() }
}

/// The page of this process, made if there is none. `None`: the system refuses one.
fn announced(process: Process) -> Option<&'static Changes> {
    let number = process.number();
    let former = CHANGES.load(Acquire);
    if let Some(changes) = current().filter(|changes| changes.process == number) {
        return Some(changes);
    }
    let made = page(number).ok()?;
    if CHANGES.compare_exchange(former, made, AcqRel, Relaxed).is_err() {
        // Another thread was faster.
        // SAFETY: the page was mapped above and nobody else knows of it.
        let _ = unsafe { mm::munmap(made.cast(), rustix::param::page_size()) };
    }
    current()
}

fn page(process: u32) -> Result<*mut Changes, Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses an unused address for a new mapping.
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
    // SAFETY: the page was just mapped for writing, is aligned to its size, which is greater,
    // and nobody else knows of it.
    unsafe { page.write(changes) };
    Ok(page)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::process::tests::{alone, forked};

    #[test]
    fn copies_are_whole_unless_somebody_was_changing_them() {
        let _alone = alone();
        let process = Process::this().unwrap();
        let whole = || u8::from(is_whole());
        drop(Change::begin(process));
        assert_eq!(forked(whole), 1);
        let under_way = Change::begin(process);
        assert_eq!(forked(whole), 0);
        drop(under_way);
        assert_eq!(forked(whole), 1);
        // One that begins while the child is made, as far as that can tell.
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
    fn children_of_children_take_over_what_their_parents_could() {
        let _alone = alone();
        let process = Process::this().unwrap();
        drop(Change::begin(process));
        // The child has changed nothing, and then something.
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
        // What the child announced was its own.
        assert_eq!(forked(|| u8::from(is_whole())), 1);
    }

    #[test]
    fn a_thread_that_did_not_fork_cannot_tell() {
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
