//! What must be gone when a run is, seen to by a process that outlives it.
//!
//! A run may end without a chance to clear anything away: by a second Ctrl-C, or because it is
//! killed. Its sides end with it, for the kernel sees to that. Programs of others and what they
//! start do not, nor do nodes, nor files. For these a shell, in a group of its own, waits for
//! the end of a pipe: when nobody has its other end any more, it kills, ends nodes and removes.
//! What is cleared away in an orderly way is so by the same shell.

use std::io::{self, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What the shell does. Its arguments are the directory and, if there may be nodes in the fabric
/// there, the `toehold` command. A process that dies at that moment may still make files.
const KEEP: &str = r#"
groups=
while read -r change group; do
    left=
    for other in $groups; do
        [ "$other" = "$group" ] || left="$left $other"
    done
    groups=$left
    [ "$change" = ended ] || groups="$groups $group"
done
for group in $groups; do
    kill -s KILL -- "-$group"
done
[ ! -e "$1/fabric" ] || [ -z "$2" ] || "$2" down --all --fabric "$1/fabric"
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf -- "$1" && break
    sleep 0.1
done
"#;

/// Says which group it is in before it becomes the program: not even one that was begun in the
/// last moment is forgotten.
const ANNOUNCE: &str = r#"echo "began $$" >&0; exec "$@" </dev/null"#;

/// Sees to the end of a directory, of the nodes in it, and of groups of processes. Dropping it
/// has it done, and waits for that.
#[derive(Debug)]
pub(crate) struct Keeper {
    shell: Child,
    line: Option<PipeWriter>,
}

impl Keeper {
    /// `toehold` ends the nodes of the fabric `fabric` in the directory.
    pub(crate) fn of(directory: &Path, toehold: Option<&Path>) -> io::Result<Self> {
        let (reader, line) = io::pipe()?;
        let shell = Command::new("sh")
            .args(["-c", KEEP, "sh"])
            .arg(directory)
            .args(toehold)
            // Ctrl-C is for the run.
            .process_group(0)
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            shell,
            line: Some(line),
        })
    }

    /// Standard input of a command that has to be over before anything is cleared away.
    pub(crate) fn hold(&self) -> io::Result<Stdio> {
        match &self.line {
            Some(line) => line.try_clone().map(Stdio::from),
            None => Ok(Stdio::null()),
        }
    }

    /// The same program, in a group of its own that is killed with all who are in it. It has the
    /// command's words and variables, and nothing on standard input.
    pub(crate) fn watched(&self, command: &Command) -> io::Result<Command> {
        let mut watched = Command::new("sh");
        watched
            .args(["-c", ANNOUNCE, "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                watched.env(name, value);
            }
        }
        watched.process_group(0).stdin(self.hold()?);
        Ok(watched)
    }

    /// Nobody is left in the group, whose number may soon be another one's.
    pub(crate) fn forget(&self, group: u32) {
        if let Some(mut line) = self.line.as_ref() {
            // Without the shell there is nobody to be told.
            let _ = writeln!(line, "ended {group}");
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.line.take());
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::ExitStatus;

    /// A process that has begun, and does nothing but wait to be ended.
    fn begin(keeper: &Keeper) -> Child {
        let mut waits = Command::new("sh");
        waits.args(["-c", "sleep 1000 & echo; wait"]);
        let mut watched = keeper.watched(&waits).unwrap();
        let mut child = watched.stdout(Stdio::piped()).spawn().unwrap();
        let mut answer = [0];
        let output = child.stdout.as_mut().unwrap();
        io::Read::read_exact(output, &mut answer).unwrap();
        child
    }

    fn kept() -> (tempfile::TempDir, std::path::PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("kept");
        std::fs::create_dir_all(directory.join("deep")).unwrap();
        (place, directory)
    }

    fn is_killed(status: ExitStatus) -> bool {
        std::os::unix::process::ExitStatusExt::signal(&status) == Some(9)
    }

    #[test]
    fn what_was_begun_ends_with_the_keeper() {
        let (_place, directory) = kept();
        let keeper = Keeper::of(&directory, None).unwrap();
        let mut child = begin(&keeper);
        drop(keeper);
        assert!(!directory.exists());
        assert!(is_killed(child.wait().unwrap()));
        let mut rest = Vec::new();
        let output = child.stdout.as_mut().unwrap();
        // Until nobody has it any more: what it had started is gone too.
        io::Read::read_to_end(output, &mut rest).unwrap();
    }

    #[test]
    fn a_group_that_is_forgotten_is_let_be() {
        let (_place, directory) = kept();
        let keeper = Keeper::of(&directory, None).unwrap();
        let mut child = begin(&keeper);
        keeper.forget(child.id());
        drop(keeper);
        assert!(!directory.exists());
        assert!(child.try_wait().unwrap().is_none());
        let group = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).unwrap();
        assert!(is_killed(child.wait().unwrap()));
    }
}
