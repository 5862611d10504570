//! A transparent parent process of a program.
//!
//! The program is in this process's group, so that a terminal sends its signals to both. This
//! process ignores them in favour of the program, and forwards signals from other processes. When
//! the program stops, so does this process, so that the shell notices. When the program ends, this
//! process ends in the same way.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpgid, getpgrp, getpid,
    kill_process, pidfd_open, set_dumpable_behavior, waitpid,
};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// Code of a signal from the kernel: here, from a terminal.
const SI_KERNEL: i32 = 0x80;

/// Signals that a process must not handle.
const LEFT_ALONE: [NixSignal; 8] = [
    NixSignal::SIGKILL,
    NixSignal::SIGSTOP,
    NixSignal::SIGSEGV,
    NixSignal::SIGBUS,
    NixSignal::SIGFPE,
    NixSignal::SIGILL,
    NixSignal::SIGSYS,
    NixSignal::SIGTRAP,
];

/// The running program.
pub(super) struct Child {
    pid: Pid,
    /// Readable when the program has ended.
    end: OwnedFd,
    signals: SignalFd,
}

/// The program's exit.
#[derive(Debug, Clone, Copy)]
pub(super) struct End(WaitStatus);

impl Child {
    /// Starts the program. From here on, this process's signals wait for [`Child::wait`].
    pub(super) fn start(command: &mut Command) -> io::Result<Child> {
        let mut mask = SigSet::all();
        LEFT_ALONE.into_iter().for_each(|signal| mask.remove(signal));
        // Blocked, not handled: ignored signals stay ignored, for the program too.
        toehold_shm::inherit_signal_mask(command);
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let pid = Pid::from_child(&command.spawn()?);
        Ok(Child {
            pid,
            end: pidfd_open(pid, PidfdFlags::empty())?,
            signals,
        })
    }

    /// Forwards signals until the program ends.
    pub(super) fn wait(self) -> Result<End> {
        loop {
            let mut events = [
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(&self.end, PollFlags::IN),
            ];
            match poll(&mut events, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).context("cannot wait for the program"),
            }
            self.pass_on()?;
            if let Some(end) = self.look()? {
                return Ok(end);
            }
        }
    }

    fn pass_on(&self) -> Result<()> {
        while let Some(signal) = self.signals.read_signal()? {
            let number = signal.ssi_signo as i32;
            let from_child = signal.ssi_pid == self.pid.as_raw_nonzero().get() as u32;
            let of_terminal = signal.ssi_code == SI_KERNEL;
            if number == NixSignal::SIGCHLD as i32 || of_terminal || from_child {
                continue;
            }
            if let Some(signal) = Signal::from_named_raw(number) {
                // The program may have ended.
                let _ = kill_process(self.pid, signal);
            }
        }
        Ok(())
    }

    /// The program's exit, if it has ended.
    fn look(&self) -> Result<Option<End>> {
        loop {
            match waitpid(Some(self.pid), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(None) => return Ok(None),
                Ok(Some((_, status))) if status.stopped() => self.pause(),
                Ok(Some((_, status))) => return Ok(Some(End(status))),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).context("cannot learn how the program ended"),
            }
        }
    }

    /// Stops like the program, so that the shell can continue both. Without a terminal there is no
    /// such shell, and possibly no process that would continue it.
    fn pause(&self) {
        let Ok(terminal) = OpenOptions::new().read(true).write(true).open("/dev/tty") else {
            return;
        };
        // A shell that stops itself is in a group of its own, which has the terminal. The outer
        // shell knows only this group, and gives it the terminal later.
        let group = getpgid(Some(self.pid)).ok();
        let group = group.filter(|group| *group != getpgrp() && tcgetpgrp(&terminal) == Ok(*group));
        let _ = kill_process(getpid(), Signal::STOP);
        if let Some(group) = group
            && tcgetpgrp(&terminal) == Ok(getpgrp())
        {
            let _ = tcsetpgrp(&terminal, group);
        }
        let _ = kill_process(self.pid, Signal::CONT);
    }
}

impl End {
    /// Ends this process in the same way as the program ended.
    pub(super) fn repeat(self) -> ExitCode {
        if let Some(status) = self.0.exit_status() {
            return ExitCode::from(status as u8);
        }
        let signal = self.0.terminating_signal().unwrap_or_default();
        // Only the program dumps core, if at all.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        // A signal without a name on this system.
        ExitCode::from(128_u8.wrapping_add(signal as u8))
    }
}
