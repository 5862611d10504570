//! Which users can connect to the sockets of a fabric's directory: those that may join the fabric.
//! The directory's owner, group and mode say which users these are. The umask of a process has no
//! part in it.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags};
use rustix::io::Errno;

/// The users that may write to a directory, and so join the fabric that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// The directory's owner alone.
    Owner,
    /// The members of its group.
    Group,
    /// Every user.
    Everyone,
}

/// The users and owner that a socket of a fabric's directory gets from the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketAccess {
    /// The users that can connect.
    pub reach: Reach,
    /// The directory's group.
    pub group: u32,
    /// The directory's owner.
    pub owner: u32,
}

impl SocketAccess {
    /// Reads the access of the sockets in a directory.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn of(directory: BorrowedFd<'_>) -> Result<SocketAccess, Errno> {
        let stat = rustix::fs::fstat(directory)?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        let reach = match (mode.contains(Mode::WOTH), mode.contains(Mode::WGRP)) {
            (true, _) => Reach::Everyone,
            (false, true) => Reach::Group,
            (false, false) => Reach::Owner,
        };
        Ok(SocketAccess {
            reach,
            group: stat.st_gid,
            owner: stat.st_uid,
        })
    }

    /// The mode of a socket.
    pub fn mode(&self) -> Mode {
        let owner = Mode::RUSR | Mode::WUSR;
        let group = owner | Mode::RGRP | Mode::WGRP;
        match self.reach {
            Reach::Owner => owner,
            Reach::Group => group,
            Reach::Everyone => group | Mode::ROTH | Mode::WOTH,
        }
    }

    /// Gives a socket its group and mode. The socket must be bound and must not listen yet. Until
    /// it listens no process can connect, whatever mode the umask has left.
    ///
    /// # Errors
    ///
    /// `PERM` if the directory passes its group on to no file and this process is not in that group;
    /// whatever else the system says.
    pub fn give(&self, directory: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Result<(), Errno> {
        // A user that may write to the directory can put a link in the socket's place.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = rustix::fs::openat(directory, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&socket)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return Err(Errno::NOTSOCK);
        }
        if self.reach == Reach::Group && stat.st_gid != self.group {
            let group = Some(Gid::from_raw(self.group));
            rustix::fs::chownat(&socket, "", None, group, AtFlags::EMPTY_PATH)?;
        }
        let through = format!("/proc/self/fd/{}", socket.as_raw_fd());
        rustix::fs::chmodat(CWD, through, self.mode(), AtFlags::empty())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn socket_mode_follows_directory_under_any_umask() {
        let path = std::env::temp_dir().join(format!("toehold-access-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        for (mode, expected) in [
            (0o700, 0o600),
            (0o755, 0o600),
            (0o2770, 0o660),
            (0o770, 0o660),
            (0o1777, 0o666),
            (0o3777, 0o666),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let directory = fs::File::open(&path).unwrap();
            let socket = path.join("node.sock");
            let bound = UnixListener::bind(&socket).unwrap();
            // As umasks of 000 and 077 would have left it.
            for former in [0o777, 0o700] {
                fs::set_permissions(&socket, fs::Permissions::from_mode(former)).unwrap();
                let access = SocketAccess::of(directory.as_fd()).unwrap();
                access.give(directory.as_fd(), "node.sock").unwrap();
                let found = fs::metadata(&socket).unwrap();
                assert_eq!(found.mode() & 0o7777, expected, "of {mode:o}, was {former:o}");
                assert_eq!(found.gid(), fs::metadata(&path).unwrap().gid());
            }
            drop(bound);
            fs::remove_file(&socket).unwrap();
        }
        fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn mode_of_link_target_is_unchanged() {
        let path = std::env::temp_dir().join(format!("toehold-access-link-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("secret"), "").unwrap();
        fs::set_permissions(path.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("secret", path.join("node.sock")).unwrap();
        let directory = fs::File::open(&path).unwrap();
        let access = SocketAccess {
            reach: Reach::Everyone,
            group: 0,
            owner: 0,
        };
        assert_eq!(access.give(directory.as_fd(), "node.sock"), Err(Errno::NOTSOCK));
        assert_eq!(fs::metadata(path.join("secret")).unwrap().mode() & 0o777, 0o600);
        fs::remove_dir_all(&path).unwrap();
    }
}
