//! Running programs, and their end.

use std::io;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::keeper::Keeper;

/// Time for a program to end after a request.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval of checks on its end.
const LOOK: Duration = Duration::from_millis(10);

/// A program that is ended, with all processes it has started, when this is dropped.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    pub(crate) child: Child,
    keeper: &'a Keeper,
}

impl<'a> Running<'a> {
    /// Starts a command that the keeper watches.
    pub(crate) fn start(mut command: Command, keeper: &'a Keeper) -> io::Result<Self> {
        let child = command.spawn()?;
        Ok(Self { child, keeper })
    }

    fn signal(&self, signal: Signal) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            // The group may be empty.
            let _ = killpg(Pid::from_raw(group), signal);
        }
    }

    /// Asks the program to end.
    pub(crate) fn ask_to_end(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Asks the program to end, and gives it a moment.
    pub(crate) fn end(mut self) {
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
