//! One virtual machine, and the shell on its serial console.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::image::Image;
use crate::shell::command;

/// Longest time in which a machine on a busy host boots, runs a command, or notices
/// an event.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(200);

/// A virtual machine, which ends when this is dropped.
pub(super) struct Guest {
    name: String,
    child: Child,
    keyboard: ChildStdin,
    screen: Receiver<String>,
    /// Number of commands given.
    given: u32,
}

impl Guest {
    /// Starts a machine with these devices, which begins to boot.
    pub(super) fn start(name: &str, image: &Image, devices: &[&str]) -> Result<Guest> {
        // Every host can emulate. Hardware virtualisation needs rights and a
        // suitable host.
        let mut qemu = command(
            "qemu-system-x86_64",
            ["-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "384"],
        );
        qemu.args(["-nodefaults", "-nographic", "-no-reboot", "-serial", "stdio"]);
        qemu.args(devices).args(image.options());
        qemu.args(["-append", "console=ttyS0 quiet panic=-1"]);
        qemu.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = qemu.spawn().context("cannot start qemu-system-x86_64")?;
        let keyboard = child.stdin.take().context("no keyboard")?;
        let output = child.stdout.take().context("no screen")?;
        let mut log = File::options().create(true).append(true).open(image.log(name))?;
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n') {
                let Ok(line) = line else { return };
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                let _ = writeln!(log, "{line}");
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Guest {
            name: name.to_owned(),
            child,
            keyboard,
            screen,
            given: 0,
        })
    }

    pub(super) fn wait_for_shell(&mut self) -> Result<()> {
        self.lines_until(&|line| line.contains("@@ ready"))?;
        Ok(())
    }

    /// Runs a shell command and returns its output. A failure is an error.
    pub(super) fn does(&mut self, line: &str) -> Result<String> {
        let (status, output) = self.tries(line)?;
        if status != 0 {
            bail!("{}: `{line}` failed ({status}): {output}", self.name);
        }
        Ok(output)
    }

    /// Runs a shell command repeatedly until it succeeds.
    pub(super) fn until(&mut self, what: &str, line: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (status, output) = self.tries(line)?;
            if status == 0 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("{}: no {what} (`{line}`): {output}", self.name);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn tries(&mut self, line: &str) -> Result<(i32, String)> {
        self.given += 1;
        let mark = format!("@@ {} ", self.given);
        writeln!(self.keyboard, "{line}").with_context(|| format!("{} is gone", self.name))?;
        let (lines, last) = self.lines_until(&|line| line.contains(&mark))?;
        let (before, status) = last.split_once(&mark).context("no mark")?;
        let mut output = lines.join("\n");
        output += before;
        Ok((status.trim().parse()?, output.trim().to_owned()))
    }

    /// Returns all lines up to the one that `is_last` accepts, and that line.
    fn lines_until(&mut self, is_last: &dyn Fn(&str) -> bool) -> Result<(Vec<String>, String)> {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(line) if is_last(&line) => return Ok((lines, line)),
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{} is silent; last: {:?}", self.name, lines.last());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("{} has ended; last: {:?}", self.name, lines.last());
                }
            }
        }
    }

    /// Ends the machine as a failing host would.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
