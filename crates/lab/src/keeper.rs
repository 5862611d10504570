//! Cleans up after a run, in a process that outlives it.
//!
//! A run may end without a chance to clean up: by a second Ctrl-C, or by a kill. The kernel then
//! ends its sides. Unmodified programs and their children, nodes and files would stay. Therefore a
//! shell, in a group of its own, waits for the end of a pipe. When all processes have closed the
//! other end, it kills programs, ends nodes, and removes control groups and files. The same shell
//! also makes the orderly cleanup.

use std::io::{self, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::cgroup::ControlGroup;

/// The shell's script. Its arguments are the directory and, if the fabric there may have nodes, the
/// `toehold` command. A process that dies at that moment may still create files.
const KEEP: &str = r#"
groups=
control=
while read -r change group; do
    if [ "$change" = control ]; then
        control="$control $group"
        continue
    fi
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
for place in $control; do
    [ -d "$place" ] || continue
    for attempt in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        find "$place" -name cgroup.procs -exec cat {} + | while read -r process; do
            kill -s KILL "$process"
        done
        find "$place" -depth -type d -exec rmdir {} ';'
        [ -d "$place" ] || break
        sleep 0.1
    done
done
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf -- "$1" && break
    sleep 0.1
done
"#;

/// Announces its process group before it becomes the program, so that the last program started is
/// not missed.
const ANNOUNCE: &str = r#"echo "began $$" >&0; exec "$@" </dev/null"#;

/// Ends groups of processes and nodes, and removes a directory. Dropping it starts the cleanup, and
/// waits for it.
#[derive(Debug)]
pub(crate) struct Keeper {
    shell: Child,
    line: Option<PipeWriter>,
}

impl Keeper {
    /// Starts the keeper of a directory; `toehold` ends the nodes of the fabric `fabric` in it.
    pub(crate) fn of(directory: &Path, toehold: Option<&Path>) -> io::Result<Self> {
        let (reader, line) = io::pipe()?;
        let shell = Command::new("sh")
            .args(["-c", KEEP, "sh"])
            .arg(directory)
            .args(toehold)
            // Ctrl-C is for the run only.
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

    /// Standard input for a command that must end before the cleanup.
    pub(crate) fn hold(&self) -> io::Result<Stdio> {
        match &self.line {
            Some(line) => line.try_clone().map(Stdio::from),
            None => Ok(Stdio::null()),
        }
    }

    /// A command that runs the given program in a group of its own, which is killed with all its
    /// processes. It has the command's words and variables, and an empty standard input.
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

    /// Has the processes of a control group killed, and the group removed, with all groups in it. Its
    /// directories, which contain no blanks, may not exist yet.
    ///
    /// # Errors
    ///
    /// If the keeper is gone.
    pub(crate) fn remove_control_group(&self, group: &ControlGroup) -> io::Result<()> {
        let mut line = self.line.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        for directory in group.directories() {
            writeln!(line, "control {}", directory.display())?;
        }
        Ok(())
    }

    /// Stops watching an empty group, whose number may soon be reused.
    pub(crate) fn forget(&self, group: u32) {
        if let Some(mut line) = self.line.as_ref() {
            // Without the shell, there is no reader.
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

    /// Starts a process that only waits to be ended.
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
    fn watched_processes_end_with_keeper() {
        let (_place, directory) = kept();
        let keeper = Keeper::of(&directory, None).unwrap();
        let mut child = begin(&keeper);
        drop(keeper);
        assert!(!directory.exists());
        assert!(is_killed(child.wait().unwrap()));
        let mut rest = Vec::new();
        let output = child.stdout.as_mut().unwrap();
        // Reads until all holders have closed it: the processes it had started are gone too.
        io::Read::read_to_end(output, &mut rest).unwrap();
    }

    #[test]
    fn forgotten_group_is_not_killed() {
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
