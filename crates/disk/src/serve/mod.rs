//! The disk's process: a thread takes requests, another replies when each is due.

mod files;
mod replies;
mod timing;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use fuser::{Config, MountOption, Session};

use crate::attach::LoopDevice;
use crate::control::{DiskChange, DiskChangeError, DiskState};
use crate::error::DiskError;
use crate::image::DiskImage;
use crate::speeds::{DiskKind, MOST_SCALE};
use files::DiskFiles;
use replies::ReplyQueue;
use timing::Timing;

/// The file with the disk's bytes, in the disk's directory.
pub(crate) const DISK_FILE: &str = "disk";

/// The file with the disk's state, in the disk's directory.
pub(crate) const CONTROL_FILE: &str = "control";

/// What the kernel names as the source of the mount.
pub(crate) const MOUNT_SOURCE: &str = "toehold-disk";

/// Priority of the disk's threads among those of SCHED_FIFO, 1 to 99.
const PRIORITY: &str = "40";

/// A disk to be served.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServedDisk {
    /// Speeds and arrangement of the heads, before they are scaled.
    pub kind: DiskKind,
    /// Seek, turn and overhead are divided by it, 1 to [`MOST_SCALE`].
    pub scale: u32,
    /// Bytes of the disk.
    pub bytes: u64,
    /// Decides the parts of a turn that requests wait.
    pub seed: u64,
}

/// What the threads of a disk share.
#[derive(Debug)]
struct SharedDisk {
    image: Mutex<DiskImage>,
    timing: Mutex<Timing>,
    replies: ReplyQueue,
    is_realtime: AtomicBool,
}

/// Locks. A thread that panicked leaves no half-made state here: each change is one assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedDisk {
    /// The state as the file `control` tells it.
    fn state(&self) -> DiskState {
        let kept_bytes = lock(&self.image).kept_bytes();
        let mut state = lock(&self.timing).state();
        state.kept_bytes = kept_bytes;
        state.realtime = self.is_realtime.load(Ordering::Relaxed);
        state
    }

    /// Applies a change, or remembers why it was refused.
    fn change(&self, text: &[u8]) -> Result<(), DiskChangeError> {
        let mut timing = lock(&self.timing);
        let applied = DiskChange::parse(text).and_then(|change| timing.change(&change));
        timing.set_refused(applied.as_ref().err().map(ToString::to_string));
        applied
    }
}

/// A disk that is mounted and served by threads of this process, until the mount or the process
/// ends.
#[derive(Debug)]
pub struct DiskServer {
    shared: Arc<SharedDisk>,
    thread: JoinHandle<()>,
}

impl DiskServer {
    /// Mounts a disk of zeros at an empty directory.
    ///
    /// # Errors
    ///
    /// [`DiskError`] says what is wrong with the directory, the size, or the mount.
    pub fn mount(directory: &Path, disk: ServedDisk) -> Result<Self, DiskError> {
        let path = || directory.to_owned();
        let mut entries = fs::read_dir(directory).map_err(|error| DiskError::File { path: path(), error })?;
        if entries.next().is_some() {
            let why = "is not empty";
            return Err(DiskError::Directory { path: path(), why });
        }
        let image = DiskImage::new(disk.bytes).ok_or(DiskError::Size(disk.bytes))?;
        let disk = ServedDisk {
            scale: disk.scale.clamp(1, MOST_SCALE),
            ..disk
        };
        let shared = Arc::new(SharedDisk {
            image: Mutex::new(image),
            timing: Mutex::new(Timing::new(disk)),
            replies: ReplyQueue::new(),
            is_realtime: AtomicBool::new(false),
        });
        let files = DiskFiles::new(Arc::clone(&shared));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName(MOUNT_SOURCE.to_owned()), MountOption::NoAtime];
        let session = Session::new(files, directory, &config)
            .map_err(|error| DiskError::Mount { path: path(), error })?;
        let server = Arc::clone(&shared);
        let thread = Builder::new()
            .name("disk".to_owned())
            .spawn(move || serve(session, &server))
            .map_err(|error| DiskError::Start {
                what: "a thread of the disk",
                error,
            })?;
        Ok(Self { shared, thread })
    }

    /// Names the loop device before the disk, so that its state has the block layer's count.
    pub fn set_device(&self, device: LoopDevice) {
        lock(&self.shared.timing).set_device(device);
    }

    /// Returns the disk's state, as its file `control` tells it.
    pub fn state(&self) -> DiskState {
        self.shared.state()
    }

    /// Returns `true` once the disk is unmounted.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Serves until the mount ends. The threads that this one starts have its priority.
fn serve(session: Session<DiskFiles>, shared: &Arc<SharedDisk>) {
    shared.is_realtime.store(become_realtime(), Ordering::Relaxed);
    let replier = Arc::clone(shared);
    let replies = Builder::new().name("disk-replies".to_owned()).spawn(move || {
        let started = lock(&replier.timing).started();
        replier
            .replies
            .run(started, |late_ns| lock(&replier.timing).replied(late_ns));
    });
    let Ok(replies) = replies else {
        return; // The session ends with the mount, as requests would never be answered.
    };
    // The mount ends here in any case: an error is the end of the kernel's side, too.
    let _ = session.run();
    shared.replies.end();
    let _ = replies.join();
}

/// Puts this thread under SCHED_FIFO. Returns `false` if it cannot be.
fn become_realtime() -> bool {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let mut chrt = Command::new("chrt");
    chrt.args(["--fifo", "--pid", PRIORITY, &thread]);
    let silent = chrt
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}
