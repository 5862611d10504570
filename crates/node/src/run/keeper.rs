//! Which of a program's descriptors keeps its node. A number alone does not say so: the program
//! may have given it to something else, and then started another one.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{FileType, fstat};
use rustix::io::Errno;

/// The value of [`KEEPER`](super::KEEPER) for a descriptor.
///
/// # Errors
///
/// If it is closed.
pub fn name_of_keeper(keeper: impl AsFd) -> Result<String, Errno> {
    let inode = fstat(&keeper)?.st_ino;
    Ok(format!("{}:{inode}", keeper.as_fd().as_raw_fd()))
}

/// The number that [`KEEPER`](super::KEEPER) says, and what tells whether a descriptor of that
/// number still is the keeper. Returns `None` if the variable says nothing.
pub fn keeper_of(variable: &str) -> Option<(i32, impl Fn(BorrowedFd<'_>) -> bool)> {
    let (number, inode) = variable.split_once(':')?;
    let (number, inode) = (number.parse().ok()?, inode.parse::<u64>().ok()?);
    let is_it = move |descriptor: BorrowedFd<'_>| {
        fstat(descriptor).is_ok_and(|found| {
            found.st_ino == inode && FileType::from_raw_mode(found.st_mode) == FileType::Socket
        })
    };
    (number >= 0).then_some((number, is_it))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_keeper_is_told_from_what_has_its_number_now() {
        let (_end, keeper) = UnixStream::pair().unwrap();
        let (_other_end, other) = UnixStream::pair().unwrap();
        let name = name_of_keeper(&keeper).unwrap();
        let (number, is_it) = keeper_of(&name).unwrap();
        assert_eq!(number, keeper.as_raw_fd());
        assert!(is_it(keeper.as_fd()) && !is_it(other.as_fd()));
        assert!(!is_it(std::fs::File::open("/dev/null").unwrap().as_fd()));
        for nothing in ["", "100", ":", "x:1", "-1:5", "100:", "100:-1"] {
            assert!(keeper_of(nothing).is_none(), "{nothing}");
        }
    }
}
