//! Counters, in shared memory, of the programs' use of a node. The library that is preloaded into
//! the programs adds to them, and `toehold run --stats` reads them at the end.
//!
//! They lie in one page that all processes of a run map, each counter on cache lines of its own.
//! Adding is one atomic instruction, which may be done at any time, by a signal's handler too. What
//! a process has added outlives it, however it ends.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use toehold_shm::{Access, Region, RegionError, Words};

/// The first word: "TOEUSE", and the version of the layout.
const MARK: u64 = u64::from_be_bytes(*b"TOEUSE\0\x02");

/// Words from one counter to the next: two cache lines, since processors fetch pairs.
const APART: usize = 16;

const BYTES: usize = (Counter::ALL.len() + 1) * APART * size_of::<u64>();

/// Makes the counters and their table from the same rows: a variant with what it counts,
/// its name in files, and what people read.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal $title:literal;)+) => {
        /// A counter of the programs' use of a node.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Counter { $($(#[doc = $doc])+ $variant,)+ }

        impl Counter {
            /// All counters, in the order in which people read them.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)+];

            /// The counter's name in files.
            pub fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name,)+ }
            }

            /// The counter's name for people.
            pub fn title(self) -> &'static str {
                match self { $(Counter::$variant => $title,)+ }
            }
        }
    };
}

counters! {
    /// Connections that programs opened on the node.
    Connected = "connected" "connections opened on the node";
    /// Connections that programs accepted on the node.
    Accepted = "accepted" "connections accepted on the node";
    /// Connections and listeners that a process got from another one: over `exec`, or a Unix
    /// socket.
    Inherited = "inherited" "sockets taken over from other processes";
    /// Connections whose bytes the engine carries: for programs without the library, or behind
    /// a filter of system calls.
    Relayed = "relayed" "connections carried for programs that cannot use the node";
    /// Connections that programs accepted from the kernel.
    AcceptedByKernel = "accepted_by_kernel" "connections accepted from the kernel";
    /// Connections the kernel opened since their address is none of the fabric's.
    NotFabric = "not_fabric" "kernel: the address is none of the fabric";
    /// Sockets over IP that the kernel has since they are of another type: UDP, raw ones.
    NotStream = "not_stream" "kernel: no TCP socket";
    /// Sockets the kernel has since the node could not be reached.
    NoNode = "no_node" "kernel: the node could not be reached";
    /// Sockets the kernel has since they had an option that the node does not know.
    Option = "option" "kernel: an option that the node does not know";
    /// Sockets the kernel has since they were bound or used before in a way that the
    /// node cannot take over.
    State = "state" "kernel: bound or used before in another way";
    /// Rings of io_uring(7) that programs were refused.
    IoUring = "io_uring" "rings of io_uring that were refused (--io-uring allow)";
    /// Bytes that programs gave to the node.
    BytesSent = "bytes_sent" "bytes sent";
    /// Bytes that programs took from the node.
    BytesReceived = "bytes_received" "bytes received";
    /// Calls that were done without the kernel.
    Calls = "calls" "calls without the kernel";
}

/// The reason why there are no counters.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The system has no memory for the counters, or the file is of another kind.
    #[error(transparent)]
    Memory(#[from] RegionError),
    /// The file cannot be opened.
    #[error("cannot open the counters {path}: {source}")]
    Open {
        /// The path that was given.
        path: PathBuf,
        /// The system's error.
        source: Errno,
    },
    /// The counters are of another version.
    #[error("the file holds no counters of this version of toehold")]
    Foreign,
}

/// Counters that several processes share.
///
/// ```
/// use toehold_node::usage::{Counter, Usage};
///
/// let usage = Usage::create()?;
/// let elsewhere = Usage::open(&usage.path())?;
/// elsewhere.add(Counter::BytesSent, 100);
/// assert_eq!(usage.get(Counter::BytesSent), 100);
/// # Ok::<(), toehold_node::usage::UsageError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Usage(Words<AtomicU64>);

impl Usage {
    /// Makes counters in memory that lasts as long as a process uses it.
    ///
    /// # Errors
    ///
    /// If the system has none.
    pub fn create() -> Result<Usage, UsageError> {
        let region = Region::create("toehold-usage", BYTES)?;
        Usage::of(region)
    }

    /// The counters of a [path](Usage::path).
    ///
    /// # Errors
    ///
    /// If there are none.
    pub fn open(path: &Path) -> Result<Usage, UsageError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let descriptor = opened.map_err(|source| UsageError::Open {
            path: path.to_owned(),
            source,
        })?;
        let mut region = Region::open_within(descriptor, Access::ReadWrite, BYTES as u64)?;
        // Programs are particular about descriptors that they did not open.
        region.close_fd();
        Usage::of(region)
    }

    fn of(region: Region) -> Result<Usage, UsageError> {
        let words = Words::all_of(region, MARK).ok_or(UsageError::Foreign)?;
        let enough = words.len() >= (Counter::ALL.len() + 1) * APART;
        enough.then_some(Usage(words)).ok_or(UsageError::Foreign)
    }

    /// The path by which other processes find the counters that this one has made, as long as it
    /// lives.
    pub fn path(&self) -> PathBuf {
        let descriptor = self.0.region().fd();
        let number = descriptor.map_or(-1, |descriptor: BorrowedFd<'_>| descriptor.as_raw_fd());
        PathBuf::from(format!("/proc/{}/fd/{number}", std::process::id()))
    }

    fn word(&self, counter: Counter) -> &AtomicU64 {
        self.0.word((counter as usize + 1) * APART)
    }

    /// Adds to a counter.
    #[inline]
    pub fn add(&self, counter: Counter, count: u64) {
        self.word(counter).fetch_add(count, Relaxed);
    }

    /// The present value of a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.word(counter).load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_apart_and_shared() {
        let usage = Usage::create().unwrap();
        let there = Usage::open(&usage.path()).unwrap();
        for (index, &counter) in Counter::ALL.iter().enumerate() {
            there.add(counter, index as u64 + 1);
            usage.add(counter, 100);
        }
        let counted: Vec<_> = Counter::ALL.iter().map(|&counter| there.get(counter)).collect();
        assert_eq!(counted, (101..).take(Counter::ALL.len()).collect::<Vec<_>>());
        let mut names: Vec<_> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Counter::ALL.len());
    }

    #[test]
    fn what_is_no_counters_is_refused() {
        let other = Region::create("other", 4096).unwrap();
        let number = other.fd().unwrap().as_raw_fd();
        let path = PathBuf::from(format!("/proc/self/fd/{number}"));
        assert!(matches!(Usage::open(&path), Err(UsageError::Foreign)));
        assert!(matches!(
            Usage::open(Path::new("/dev/null")),
            Err(UsageError::Memory(_))
        ));
        assert!(matches!(
            Usage::open(Path::new("/none")),
            Err(UsageError::Open { .. })
        ));
    }
}
