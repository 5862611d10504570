//! One run at a time on a machine: two runs would disturb each other.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::fcntl::OFlag;

/// The run with the lock on this empty file may proceed. All users may create files in this
/// directory, and all network namespaces share it. The kernel releases the lock of a process that
/// has ended, for any reason; the file stays.
const FILE: &str = "/dev/shm/toehold-lab.lock";

/// Interval between the attempts of a waiting run.
const INTERVAL: Duration = Duration::from_millis(200);

/// Held during a run.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the end of other runs on this machine. Returns no lock if `stop` is set. Calls
    /// `waiting` once if it has to wait.
    ///
    /// # Errors
    ///
    /// If its file can be neither created nor opened.
    pub fn acquire(stop: &AtomicBool, waiting: impl FnOnce()) -> io::Result<Option<Self>> {
        Self::acquire_at(Path::new(FILE), stop, waiting)
    }

    fn acquire_at(path: &Path, stop: &AtomicBool, waiting: impl FnOnce()) -> io::Result<Option<Self>> {
        let file = open(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        let mut waiting = Some(waiting);
        while !stop.load(Ordering::Relaxed) {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self { _file: file })),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if let Some(waiting) = waiting.take() {
                waiting();
            }
            std::thread::sleep(INTERVAL);
        }
        Ok(None)
    }
}

/// Opens the file of any user. A file of another user is opened without the flag to create it.
/// Kernels refuse that flag in a directory that all users may write (`fs.protected_regular`).
fn open(path: &Path) -> io::Result<File> {
    let existing = || {
        let mut options = OpenOptions::new();
        // Does not follow a link, nor wait for a pipe, that another user has put there.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        options.read(true).custom_flags(flags.bits()).open(path)
    };
    match existing() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => {
            // Independent of the user's umask.
            file.set_permissions(Permissions::from_mode(0o444))?;
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => existing(),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Child, Command, Stdio};

    /// Checks that a run waits for the holder of the lock, until `end` ends that.
    fn waits_for(path: &Path, end: impl FnOnce()) {
        let go_on = AtomicBool::new(false);
        let waited = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let waiting = || waited.store(true, Ordering::Relaxed);
                Lock::acquire_at(path, &go_on, waiting).unwrap().is_some()
            });
            while !waited.load(Ordering::Relaxed) {
                assert!(!second.is_finished(), "it did not wait");
                std::thread::yield_now();
            }
            end();
            assert!(second.join().unwrap());
        });
    }

    fn first(path: &Path) -> Lock {
        let go_on = AtomicBool::new(false);
        let lock = Lock::acquire_at(path, &go_on, || panic!("nobody else is there"));
        lock.unwrap().unwrap()
    }

    /// A process that holds the lock.
    fn holder(path: &Path, command: &str) -> Child {
        let mut words = command.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .arg(path)
            .args(["sh", "-c", "echo; exec sleep 1000"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        child
    }

    #[test]
    fn second_run_waits_for_first() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        let first = first(&path);
        waits_for(&path, || drop(first));
    }

    #[test]
    fn killed_run_releases_lock() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        drop(first(&path));
        let mut killed = holder(&path, "flock --no-fork");
        waits_for(&path, || killed.kill().unwrap());
        killed.wait().unwrap();
    }

    #[test]
    #[ignore = "needs root, namespaces"]
    fn run_waits_for_run_in_other_network_namespace() {
        // The path that all runs share, not one of this test.
        let go_on = AtomicBool::new(false);
        drop(Lock::acquire(&go_on, || ()).unwrap());
        let path = Path::new(FILE);
        let mut other = holder(path, "unshare --net flock --no-fork");
        waits_for(path, || other.kill().unwrap());
        other.wait().unwrap();
    }

    #[test]
    fn run_waits_for_run_of_other_user() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        let _first = first(&path);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o444);
    }

    #[test]
    fn link_or_pipe_in_its_place_is_not_opened() {
        let place = tempfile::tempdir().unwrap();
        let [path, other] = ["lock", "other"].map(|name| place.path().join(name));
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let refused = Lock::acquire_at(&path, &AtomicBool::new(false), || ()).unwrap_err();
        assert!(refused.to_string().contains("lock: "), "{refused}");
        assert!(!other.exists());
    }

    #[test]
    fn stopped_run_stops_waiting() {
        let place = tempfile::tempdir().unwrap();
        let stopped = AtomicBool::new(true);
        let lock = Lock::acquire_at(&place.path().join("lock"), &stopped, || ());
        assert!(lock.unwrap().is_none());
    }
}
