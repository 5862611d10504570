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

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    use super::*;
    use crate::process::tests::forked;
    use crate::{Carver, Lease, Leased, Region};

    /// In a process of its own, since all threads of it are kept from their leases.
    #[test]
    fn no_thread_gets_a_lease_of_a_process_that_leaves_until_it_stays() {
        let status = forked(|| {
            let process = Process::this().unwrap();
            let mut carver = Carver::new(Region::private(Lease::BYTES_NEEDED).unwrap()).unwrap();
            let shared = Leased::new(carver.lease().unwrap().with_holder(2), ());
            let (rounds, ends) = (AtomicU64::new(0), AtomicU32::new(0));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while ends.load(Relaxed) == 0 {
                        drop(shared.lock().unwrap());
                        rounds.fetch_add(1, Relaxed);
                    }
                });
                let goes_on = || {
                    let before = rounds.load(Relaxed);
                    while rounds.load(Relaxed) < before + 10 {
                        std::thread::yield_now();
                    }
                };
                goes_on();
                let began = Instant::now();
                begin_to_leave(process);
                while shared.is_held_here() {
                    std::thread::yield_now();
                }
                // It may just have let go.
                std::thread::sleep(LOOK);
                let before = rounds.load(Relaxed);
                std::thread::sleep(5 * LOOK);
                let stands = rounds.load(Relaxed) == before && !shared.is_held_here();
                // Later it goes on anyhow.
                let is_late = began.elapsed() > LOOK * LOOKS / 2;
                stay();
                goes_on();
                ends.store(1, Relaxed);
                u8::from(stands || is_late)
            })
        });
        assert_eq!(status, 1);
    }

    #[test]
    fn a_child_of_a_process_that_leaves_does_not() {
        let status = forked(|| {
            begin_to_leave(Process::this().unwrap());
            let child = forked(|| u8::from(is_leaving()));
            u8::from(is_leaving()) + 2 * child
        });
        assert_eq!(status, 1);
    }
}
