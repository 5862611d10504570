//! Identity of the process at the other end of a Unix socket, as the kernel
//! knows it.
//!
//! A process number has no meaning in another PID namespace, where the kernel gives
//! 0 (`unix(7)`). All users without a number in this user namespace share the
//! overflow number (`user_namespaces(7)`). [`is_named`] therefore tells whether a
//! number identifies a user. A pidfd identifies a process: it holds across
//! namespaces and never refers to another process.

use core::ffi::{c_int, c_void};
use core::mem::size_of;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use rustix::io::Errno;

/// Most groups of one process (`NGROUPS_MAX`).
const MAX_GROUPS: usize = 1 << 16;

/// Room for groups in the first request.
const USUAL_GROUPS: usize = 64;

/// The usual overflow number, for a system that does not tell it.
const OVERFLOW: u32 = 65534;

/// Identity of a process when it connected, or created a pair of sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process number in this PID namespace; `None` without one. The process
    /// may have ended.
    pub pid: Option<u32>,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups; empty where the kernel does not tell them (before
    /// Linux 4.13).
    pub groups: Vec<u32>,
}

impl PeerCredentials {
    /// Returns the credentials of the process at the other end.
    ///
    /// # Errors
    ///
    /// If the descriptor is no connected Unix socket.
    pub fn of(socket: BorrowedFd<'_>) -> Result<PeerCredentials, Errno> {
        let mut found = libc::ucred {
            pid: 0,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        // SAFETY: `ucred` consists of three integers, in which any bits are
        // valid.
        let len = unsafe { option(socket, libc::SO_PEERCRED, core::slice::from_mut(&mut found)) }?;
        if len != size_of::<libc::ucred>() || found.uid == u32::MAX {
            return Err(Errno::INVAL);
        }
        Ok(PeerCredentials {
            pid: u32::try_from(found.pid).ok().filter(|&pid| pid != 0),
            uid: found.uid,
            gid: found.gid,
            groups: groups(socket),
        })
    }

    /// Returns whether the process was in a group.
    pub fn is_in(&self, group: u32) -> bool {
        is_named_group(group) && (self.gid == group || self.groups.contains(&group))
    }
}

/// Returns the user at the other end.
///
/// # Errors
///
/// If the descriptor is no connected Unix socket.
pub fn peer_uid(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut found = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    // SAFETY: `ucred` consists of three integers, in which any bits are valid.
    unsafe { option(socket, libc::SO_PEERCRED, core::slice::from_mut(&mut found)) }?;
    match found.uid {
        // The socket has no other end.
        u32::MAX => Err(Errno::NOTCONN),
        uid => Ok(uid),
    }
}

/// Returns a pidfd of the process at the other end, never of a later process with
/// its number. Returns `None` if the kernel has no such descriptors (before Linux
/// 6.5).
///
/// # Errors
///
/// `SRCH` if the process has ended. The system's error if no descriptors are
/// left.
pub fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    let mut found: c_int = -1;
    // SAFETY: the value is an integer, in which any bits are valid.
    match unsafe { option(socket, libc::SO_PEERPIDFD, core::slice::from_mut(&mut found)) } {
        // SAFETY: the kernel has just created the descriptor for this process,
        // and nothing else owns it.
        Ok(_) if found >= 0 => Ok(Some(unsafe { OwnedFd::from_raw_fd(found) })),
        Ok(_) | Err(Errno::NOPROTOOPT) => Ok(None),
        // The process was reaped.
        Err(Errno::INVAL | Errno::SRCH) => Err(Errno::SRCH),
        Err(errno) => Err(errno),
    }
}

/// Returns whether a user number identifies one user in this user namespace. The
/// overflow number does not, since all unknown users have it, unless the namespace
/// knows all numbers.
pub fn is_named(uid: u32) -> bool {
    is_one(uid, "uid")
}

fn is_named_group(gid: u32) -> bool {
    is_one(gid, "gid")
}

/// Returns whether the process at the other end has this process's effective user.
/// Users with ambiguous numbers are compared by the right to send a signal.
pub fn is_own_user(socket: BorrowedFd<'_>) -> bool {
    let own = rustix::process::geteuid().as_raw();
    if peer_uid(socket) != Ok(own) {
        return false;
    }
    is_named(own)
        || peer_pidfd(socket).is_ok_and(|process| process.is_some_and(|process| may_signal(&process)))
}

/// Returns the user number by which this process recognises peers of its own user.
/// Returns `None` if that is ambiguous in this user namespace.
pub fn own_uid() -> Option<u32> {
    let own = rustix::process::geteuid().as_raw();
    is_named(own).then_some(own)
}

/// Returns whether this process may signal another one. Sends no signal.
fn may_signal(process: &OwnedFd) -> bool {
    let (process, nothing) = (process.as_raw_fd(), 0);
    let info: *const libc::siginfo_t = core::ptr::null();
    // SAFETY: with a null pointer for the signal's information the system call
    // reads no memory.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, nothing, info, 0) == 0 }
}

fn is_one(number: u32, kind: &str) -> bool {
    static OVERFLOWS: OnceLock<[Option<u32>; 2]> = OnceLock::new();
    let overflows = OVERFLOWS.get_or_init(|| ["uid", "gid"].map(overflow));
    overflows[usize::from(kind == "gid")] != Some(number)
}

/// Returns the overflow number of this user namespace, or `None` if it knows
/// all numbers.
fn overflow(kind: &str) -> Option<u32> {
    let read = |path: String| fs::read_to_string(path).ok();
    let map = read(format!("/proc/self/{kind}_map")).unwrap_or_default();
    let number = read(format!("/proc/sys/kernel/overflow{kind}"));
    let number = number.and_then(|number| number.trim().parse().ok());
    (!is_whole(&map)).then_some(number.unwrap_or(OVERFLOW))
}

/// Returns whether a map of a user namespace has all numbers, like the first
/// namespace's.
fn is_whole(map: &str) -> bool {
    let count = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    map.lines().filter_map(count).sum::<u64>() >= u64::from(u32::MAX)
}

fn groups(socket: BorrowedFd<'_>) -> Vec<u32> {
    let mut groups = vec![0_u32; USUAL_GROUPS];
    loop {
        // SAFETY: the values are integers, in which any bits are valid.
        match unsafe { option(socket, libc::SO_PEERGROUPS, &mut groups) } {
            Ok(len) => {
                groups.truncate(len / size_of::<u32>());
                return groups;
            }
            Err(Errno::RANGE) if groups.len() < MAX_GROUPS => groups.resize(MAX_GROUPS, 0),
            Err(_) => return Vec::new(),
        }
    }
}

/// Reads a socket option into `value`, and returns its length in bytes.
///
/// # Safety
///
/// Any bits are a valid `T`.
unsafe fn option<T>(socket: BorrowedFd<'_>, name: c_int, value: &mut [T]) -> Result<usize, Errno> {
    let mut len = size_of_val(value) as libc::socklen_t;
    let place = value.as_mut_ptr().cast::<c_void>();
    // SAFETY: `value` is exclusively borrowed for the call, and the kernel
    // writes at most its length.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            place,
            &mut len,
        )
    };
    match done {
        0 => Ok(len as usize),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn peer_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = PeerCredentials::of(one.as_fd()).unwrap();
        assert_eq!(peer.pid, Some(std::process::id()));
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer_uid(one.as_fd()), Ok(peer.uid));
        assert!(is_own_user(one.as_fd()));
        let own: Vec<u32> = rustix::process::getgroups()
            .unwrap()
            .iter()
            .map(|group| group.as_raw())
            .collect();
        assert_eq!(peer.groups, own);
        assert!(own_uid() != Some(peer.uid) || peer.is_in(peer.gid));
    }

    #[test]
    fn peer_of_other_descriptor_returns_error() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(PeerCredentials::of(file.as_fd()).is_err());
        assert!(peer_pidfd(file.as_fd()).is_err());
        assert!(!is_own_user(file.as_fd()));
    }

    #[test]
    fn pidfd_of_peer_with_own_user_can_be_signalled() {
        let (one, _other) = UnixStream::pair().unwrap();
        if let Some(process) = peer_pidfd(one.as_fd()).unwrap() {
            assert!(may_signal(&process));
        }
    }

    #[test]
    fn map_of_all_users_is_whole() {
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(is_whole("0 0 65534\n65534 65534 4294901761\n"));
        for part in ["", "0 1000 1\n", "0 1000 1\n1 100000 65536\n", "0 0 4294967294"] {
            assert!(!is_whole(part), "{part}");
        }
    }
}
