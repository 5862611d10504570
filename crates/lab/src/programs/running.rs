//! Programs while they run, and their ends.

use std::io;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::keeper::Keeper;

/// How long a program that was asked to end may take to do so.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// A program that is ended when it is dropped, with all that it has started.
#[derive(Debug)]
pub(super) struct Running<'a> {
    pub(super) child: Child,
    keeper: &'a Keeper,
}

impl<'a> Running<'a> {
    /// Of a command that the keeper watches.
    pub(super) fn start(mut command: Command, keeper: &'a Keeper) -> io::Result<Self> {
        let child = command.spawn()?;
        Ok(Self { child, keeper })
    }

    fn signal(&self, signal: Signal) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            // There may be nobody left in it.
            let _ = killpg(Pid::from_raw(group), signal);
        }
    }

    /// Asks it to end.
    pub(super) fn ask_to_end(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// The same, and gives it a moment.
    pub(super) fn end(mut self) {
        self.ask_to_end();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        self.keeper.forget(self.child.id());
        let _ = self.child.wait();
    }
}
