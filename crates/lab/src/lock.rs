//! One run at a time on a machine: two would measure one another.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An abstract socket's name is taken while a process holds it, and free when the
/// process is gone, however that ended. No file is left behind.
const NAME: &str = "toehold-lab";

/// How often a waiting run tries again.
const INTERVAL: Duration = Duration::from_millis(200);

/// Held while a run goes on.
#[derive(Debug)]
pub struct Lock {
    _socket: UnixListener,
}

impl Lock {
    /// Waits for other runs on this machine to end, or for `stop`: then there is none.
    /// Calls `waiting` once if it has to wait.
    pub fn acquire(stop: &AtomicBool, waiting: impl FnOnce()) -> io::Result<Option<Self>> {
        Self::acquire_named(NAME, stop, waiting)
    }

    fn acquire_named(name: &str, stop: &AtomicBool, waiting: impl FnOnce()) -> io::Result<Option<Self>> {
        let address = SocketAddr::from_abstract_name(name)?;
        let mut waiting = Some(waiting);
        while !stop.load(Ordering::Relaxed) {
            match UnixListener::bind_addr(&address) {
                Ok(socket) => return Ok(Some(Self { _socket: socket })),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
            if let Some(waiting) = waiting.take() {
                waiting();
            }
            std::thread::sleep(INTERVAL);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_waits_for_the_first() {
        let name = format!("toehold-lab-test-{}", std::process::id());
        let go_on = AtomicBool::new(false);
        let first = Lock::acquire_named(&name, &go_on, || panic!("nobody else is there")).unwrap();
        assert!(first.is_some());
        let waited = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let waiting = || waited.store(true, Ordering::Relaxed);
                Lock::acquire_named(&name, &go_on, waiting).unwrap().is_some()
            });
            while !waited.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            drop(first);
            assert!(second.join().unwrap());
        });
    }

    #[test]
    fn a_run_that_is_stopped_waits_no_longer() {
        let stopped = AtomicBool::new(true);
        assert!(Lock::acquire(&stopped, || ()).unwrap().is_none());
    }
}
