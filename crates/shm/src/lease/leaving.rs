//! A process that is about to end: a thread of it that has a lease when it dies leaves what is
//! behind that half done. So none of its threads gets one any more, and who ends it waits until
//! none has one. Who is killed outright does not wait.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::time::Duration;

use crate::Process;

/// The process that is about to end; its children, who have a copy of this, are not. 0: it is
/// not known of any.
static LEAVING: AtomicU32 = AtomicU32::new(0);

/// How often a thread that gets no lease looks whether its process goes on.
const LOOK: Duration = Duration::from_millis(10);

/// How often it looks at most. What ends a process may wait for its threads, after this.
const LOOKS: u32 = 50;

/// From now on no thread of this process gets a lease; one that has one keeps it until it lets
/// go. For processes that [end](super::Leased::is_held_here) once none has.
pub fn begin_to_leave(process: Process) {
    LEAVING.store(process.number(), SeqCst);
}

/// The process goes on.
pub fn stay() {
    LEAVING.store(0, SeqCst);
}

#[inline]
pub(super) fn is_leaving() -> bool {
    LEAVING.load(Relaxed) != 0 && is_this_process()
}

#[cold]
fn is_this_process() -> bool {
    let leaving = LEAVING.load(Relaxed);
    Process::this().is_ok_and(|process| process.number() == leaving)
}

/// As long as the process may be about to end.
#[cold]
pub(super) fn wait() {
    for _ in 0..LOOKS {
        std::thread::sleep(LOOK);
        if !is_leaving() {
            return;
        }
    }
    stay();
}
