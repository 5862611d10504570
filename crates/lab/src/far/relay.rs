//! The far machine's end: runs a side of a measurement and forwards its messages.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::keeper::Keeper;
use crate::process::{EXIT_PATIENCE, Launcher};

/// Starts a side with a temporary directory of its own. Forwards standard input to it, and its
/// messages to standard output. At the end of standard input, whatever the reason, ends the side
/// with all processes it has started.
///
/// # Errors
///
/// If a side cannot be started here.
pub fn relay(launcher: &Launcher) -> io::Result<()> {
    let directory = std::env::temp_dir().join(format!("toehold-far-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let _keeper = Keeper::of(&directory, None).inspect_err(|_| drop(fs::remove_dir(&directory)))?;
    let (ours, theirs) = UnixStream::pair()?;
    let side = Command::new(&launcher.program)
        .args(&launcher.arguments)
        .current_dir(&directory)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        // Standard output carries messages only.
        .stdout(io::stderr())
        .process_group(0)
        .spawn()?;
    let _side = Ends(side);
    let to_side = ours.try_clone()?;
    // The thread ends with the process at the latest.
    std::thread::spawn(move || {
        let _ = pass_on(io::stdin().lock(), &to_side);
        // A side that waits for a request ends by itself, and cleans up.
        let _ = to_side.shutdown(Shutdown::Write);
        std::thread::sleep(EXIT_PATIENCE);
        // Readers of the side's answers see the end.
        let _ = to_side.shutdown(Shutdown::Both);
    });
    // The reader may be gone.
    let _ = pass_on(&ours, io::stdout().lock());
    Ok(())
}

/// A process that is ended with its group when this is dropped.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        if let Ok(group) = i32::try_from(self.0.id()) {
            // The group may be empty.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

/// Forwards bytes until the end. Each part is forwarded at once.
fn pass_on(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = [0; 1 << 16];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                to.write_all(&buffer[..n])?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
