//! A process as this one sees it in `/proc`, by a pidfd: its number there, which may be none.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use toehold_link::credentials::{PeerCredentials, peer_pidfd};

/// A descriptor of the process at the other end of a Unix socket, and of no other one.
///
/// Where the kernel has no such descriptors (before Linux 6.5), the number that the process had
/// when it connected is looked up. The connection must be whole afterwards, since the number may be
/// another process's by then. Returns `None` if the process is of a PID namespace that cannot be
/// seen from here, or the system refuses.
///
/// # Errors
///
/// `SRCH` if the process has ended.
pub(crate) fn process_of(
    socket: BorrowedFd<'_>,
    credentials: &PeerCredentials,
) -> Result<Option<OwnedFd>, Errno> {
    match peer_pidfd(socket) {
        Ok(Some(process)) => return Ok(Some(process)),
        Err(Errno::SRCH) => return Err(Errno::SRCH),
        Ok(None) | Err(_) => {}
    }
    let Some(pid) = credentials.pid.and_then(|pid| Pid::from_raw(pid as i32)) else {
        return Ok(None);
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) if is_whole(socket) => Ok(Some(process)),
        Ok(_) | Err(Errno::SRCH) => Err(Errno::SRCH),
        // Forbidden, or out of descriptors: the connection's end has to do.
        Err(_) => Ok(None),
    }
}

fn is_whole(socket: BorrowedFd<'_>) -> bool {
    let mut state = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut state, Some(&now)).is_ok() && state[0].revents().is_empty()
}

/// The number of a pidfd's process in the `/proc` that this process has. `None` if the process has
/// ended, or its PID namespace is not to be seen there.
pub(crate) fn number_of(process: BorrowedFd<'_>) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    parse(&text)
}

fn parse(text: &str) -> Option<u32> {
    let number = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    // Below zero: it has ended. Zero: of another namespace.
    number.trim().parse().ok().filter(|&number| number != 0)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn process_at_the_other_end_is_seen() {
        let (one, _other) = UnixStream::pair().unwrap();
        let credentials = PeerCredentials::of(one.as_fd()).unwrap();
        let process = process_of(one.as_fd(), &credentials).unwrap().unwrap();
        assert_eq!(number_of(process.as_fd()), Some(std::process::id()));
    }

    #[test]
    fn process_that_has_ended_has_no_number() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        assert_eq!(number_of(process.as_fd()), None);
        for text in ["", "Pid:\t-1\n", "pos:\t0\nPid:\t0\nNSpid:\t0\n", "Pid:\tx"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse("pos:\t0\nPid:\t42\nNSpid:\t42\t1\n"), Some(42));
    }
}
