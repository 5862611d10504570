//! A process that is about to end. A thread that dies with a lease leaves its change incomplete.
//! Therefore no thread of an ending process gets a lease, and the process ends only when none holds
//! one. A killed process does not wait.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::time::Duration;

use crate::Process;

/// The process that is about to end; its children, which have a copy of this, are not. 0: none.
static LEAVING: AtomicU32 = AtomicU32::new(0);

/// How often a thread that gets no lease checks whether its process continues.
const LOOK: Duration = Duration::from_millis(10);

/// Most such checks. The code that ends a process may wait for its threads; the thread continues
/// after this.
const LOOKS: u32 = 50;

/// From now on no thread of this process gets a lease; a holder keeps its lease until it releases
/// it. For processes that [end](super::Leased::is_held_here) once no thread holds one.
pub fn begin_to_leave(process: Process) {
    LEAVING.store(process.number(), SeqCst);
}

/// The process continues.
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

/// Waits while the process may be about to end.
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

    /// Runs in a process of its own, since it keeps all of its threads from their leases.
    #[test]
    fn leaving_process_gets_no_lease_until_it_stays() {
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
                // The thread may just have released it.
                std::thread::sleep(LOOK);
                let before = rounds.load(Relaxed);
                std::thread::sleep(5 * LOOK);
                let stands = rounds.load(Relaxed) == before && !shared.is_held_here();
                // Later the thread continues anyhow.
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
    fn child_of_leaving_process_gets_lease() {
        let status = forked(|| {
            begin_to_leave(Process::this().unwrap());
            let child = forked(|| u8::from(is_leaving()));
            u8::from(is_leaving()) + 2 * child
        });
        assert_eq!(status, 1);
    }
}
