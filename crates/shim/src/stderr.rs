//! The one line that a process writes if it cannot attach to its node. It goes to the standard error output
//! that the program began with, and nowhere else. The program may have closed it, and given its number to a
//! file that the library must not write to.

use std::os::fd::AsFd;
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::net::{AddressFamily, sockopt};

use crate::table;

/// The number of the standard error output.
const NUMBER: i32 = 2;

/// The file that it was when the program began, by device and inode.
static AT_FIRST: OnceLock<Option<(u64, u64)>> = OnceLock::new();

/// Remembers which file it is, unless nothing is to be written there.
pub(crate) fn remember() {
    let is_quiet = std::env::var_os(toehold_node::run::QUIET).is_some();
    let _ = AT_FIRST.get_or_init(|| present().filter(|_| !is_quiet));
}

fn present() -> Option<(u64, u64)> {
    let stat = fstat(table::borrow(&NUMBER)).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Whether it still is that file, and people or a log may be behind it. It is not a connection of a server
/// that was started for it.
fn is_for_people() -> bool {
    let stderr = table::borrow(&NUMBER);
    let is_same = AT_FIRST
        .get()
        .is_some_and(|first| first.is_some() && *first == present());
    if !is_same || table::get(NUMBER).is_some() {
        return false;
    }
    match fstat(stderr).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(FileType::RegularFile | FileType::CharacterDevice | FileType::Fifo) => true,
        Ok(FileType::Socket) => sockopt::socket_domain(stderr) == Ok(AddressFamily::UNIX),
        _ => false,
    }
}

/// Writes a line if that takes no waiting.
pub(crate) fn say(line: &str) {
    if !is_for_people() {
        return;
    }
    let stderr = table::borrow(&NUMBER);
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut state = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::OUT)];
    let is_told = poll(&mut state, Some(&now)).is_ok();
    // A pipe without a reader would end the program.
    if is_told && state[0].revents() == PollFlags::OUT {
        let _ = rustix::io::write(stderr, line.as_bytes());
    }
}
