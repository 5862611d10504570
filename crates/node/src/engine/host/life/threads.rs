//! The threads of a life: their beginnings, and the waits for their ends.

use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::NodeError;

/// How long a thread may take to see that the lease was closed. It does not hold the
/// lease for longer than a burst of frames takes, unless it does so for ever.
const END: Duration = Duration::from_secs(5);

/// Starts a thread that says so when it ends, however it does.
pub(in crate::engine::host) fn start(
    name: &str,
    alarm: &Sender<()>,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, NodeError> {
    struct Last(Sender<()>);
    impl Drop for Last {
        fn drop(&mut self) {
            // No thread listens to the end of a node that was asked to end.
            let _ = self.0.send(());
        }
    }
    let last = Last(alarm.clone());
    let thread = std::thread::Builder::new().name(name.to_owned());
    let thread = thread.spawn(move || {
        let _last = last;
        run();
    });
    thread.map_err(NodeError::Thread)
}

/// Waits for the end of a thread, the lease being closed. A thread that has lost its way in memory
/// that a program has written nonsense to would never end. Only the end of the process stops it,
/// which the node's peers and programs survive.
pub(in crate::engine::host) fn join(thread: JoinHandle<()>) {
    let deadline = Instant::now() + END;
    while !thread.is_finished() {
        if Instant::now() >= deadline {
            give_up("a thread does not end");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // If it has panicked, that was told.
    let _ = thread.join();
}

/// Ends the process: the node cannot go on.
pub(in crate::engine::host) fn give_up(why: &str) -> ! {
    eprintln!("the node's memory is damaged, and {why}: the engine ends");
    std::process::abort()
}
