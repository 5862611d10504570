//! A process that removes an instance when its owner dies.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Reads its input to the end. Then it removes the instance, if that is still there. The kernel may
/// close the owner's other files a little later, so it tries for some seconds.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
while read -r line; do :; done
tries=0
while [ -d "$1" ] && [ "$tries" -lt 100 ]; do
    rmdir "$1" 2>/dev/null && exit 0
    tries=$((tries + 1))
    sleep 0.05
done
"#;

/// The guard process of an instance. It sleeps until its owner closes a pipe, or dies.
#[derive(Debug)]
pub(super) struct InstanceGuard {
    child: Child,
}

impl InstanceGuard {
    /// Starts the guard of an instance in the folder `instances`. The instance may come later.
    pub(super) fn start(instances: &Path, name: &str) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh", name]).current_dir(instances);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // A signal from the terminal goes to the owner's group and must not end the guard first.
        let child = command.process_group(0).spawn()?;
        Ok(Self { child })
    }
}

impl Drop for InstanceGuard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
