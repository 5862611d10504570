//! The place of the fabrics: a directory of this user's that no other user can change, with a
//! directory for each fabric.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use toehold_link::mq::NodeName;

use super::{Fabric, FabricError, MAX_ENTRIES};

/// The variable of the environment that says where fabrics are.
pub(super) const VARIABLE: &str = "TOEHOLD_RUNTIME_DIR";

const OPEN: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The directory of the fabrics that have a name: `$TOEHOLD_RUNTIME_DIR`, for
/// root `/run/toehold`, for others `$XDG_RUNTIME_DIR/toehold` or else
/// `/tmp/toehold-UID`.
///
/// Root's does not follow its session's: a service and a login shell of root are to find the same
/// fabrics. A user that is root in a user namespace alone (`unshare --map-root-user`) has the
/// fabrics that it has outside of it.
pub fn root() -> PathBuf {
    let user = geteuid().as_raw();
    if let Some(root) = variable(VARIABLE) {
        return root;
    }
    let own = |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.uid() == user);
    if user == 0 && own(Path::new("/run")) {
        return "/run/toehold".into();
    }
    match variable("XDG_RUNTIME_DIR").filter(|path| own(path)) {
        Some(session) => session.join("toehold"),
        None => {
            let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
            format!("/tmp/toehold-{}", outside(user, &map)).into()
        }
    }
}

/// The number that a user of this user namespace has outside of it, by its map
/// (`user_namespaces(7)`).
fn outside(user: u32, map: &str) -> u32 {
    map.lines()
        .find_map(|line| {
            let mut numbers = line.split_whitespace().map(|number| number.parse::<u32>().ok());
            let [first, outside, count] = std::array::from_fn(|_| numbers.next().flatten());
            let offset = user.checked_sub(first?).filter(|&offset| Some(offset) < count)?;
            outside?.checked_add(offset)
        })
        .unwrap_or(user)
}

/// A directory that a variable of the environment gives; a relative one would be
/// another for each process.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

pub(super) fn open(name: &str, make: bool) -> Result<Fabric, FabricError> {
    let missing = |error| match error {
        FabricError::Directory { source, .. } if !make && source.kind() == io::ErrorKind::NotFound => {
            FabricError::Missing(name.to_owned())
        }
        other => other,
    };
    if name.contains('/') {
        open_directory(name, make).map_err(missing)
    } else {
        open_named(&root(), name, make).map_err(missing)
    }
}

/// The fabric's owner decides which users may use it.
fn open_directory(name: &str, make: bool) -> Result<Fabric, FabricError> {
    let path = std::path::absolute(name).unwrap_or_else(|_| name.into());
    if make {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|source| failed(&path, source))?;
    }
    let handle = rustix::fs::open(&path, OPEN, Mode::empty());
    let handle = handle.map_err(|errno| failed(&path, errno.into()))?;
    Ok(Fabric {
        name: name.to_owned(),
        path,
        handle,
    })
}

pub(super) fn open_named(root: &Path, name: &str, make: bool) -> Result<Fabric, FabricError> {
    if name.parse::<NodeName>().is_err() {
        return Err(FabricError::Name(name.to_owned()));
    }
    if let Some(parent) = root.parent().filter(|_| make) {
        fs::create_dir_all(parent).map_err(|source| failed(parent, source))?;
    }
    let within = open_own(CWD, root, root, make)?;
    let path = root.join(name);
    let handle = open_own(within.as_fd(), Path::new(name), &path, make)?;
    Ok(Fabric {
        name: name.to_owned(),
        path,
        handle,
    })
}

/// Opens a fabric that has a name where it was, and makes it if it is not there any more.
pub(super) fn open_again(fabric: &Fabric) -> Result<Fabric, FabricError> {
    let root = fabric.path.parent().unwrap_or(Path::new("/"));
    open_named(root, &fabric.name, true)
}

/// Opens a directory that this user owns and no other user can change, so that what is in it is
/// this user's work. What `/tmp` holds may be any user's.
fn open_own(at: BorrowedFd<'_>, name: &Path, path: &Path, make: bool) -> Result<OwnedFd, FabricError> {
    let unsafe_because = |why| {
        let path = path.to_owned();
        Err(FabricError::Unsafe { path, why })
    };
    let handle = loop {
        if make {
            match rustix::fs::mkdirat(at, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(path, errno.into())),
            }
        }
        match rustix::fs::openat(at, name, OPEN | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(handle) => break handle,
            Err(Errno::LOOP | Errno::NOTDIR) => return unsafe_because("it is no directory"),
            // Another process has removed it in between, since it was empty.
            Err(Errno::NOENT) if make => {}
            Err(errno) => return Err(failed(path, errno.into())),
        }
    };
    let stat = rustix::fs::fstat(&handle).map_err(|errno| failed(path, errno.into()))?;
    if stat.st_uid != geteuid().as_raw() {
        return unsafe_because("it belongs to another user");
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return unsafe_because("others can write to it");
    }
    Ok(handle)
}

pub(super) fn all() -> Vec<Fabric> {
    let Ok(entries) = fs::read_dir(root()) else {
        return Vec::new();
    };
    let names = entries
        .take(MAX_ENTRIES)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut fabrics: Vec<Fabric> = names.filter_map(|name| open(&name, false).ok()).collect();
    fabrics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    fabrics
}

/// Advice about a directory that cannot be made, opened or written.
pub(super) fn advice(source: &io::Error, path: &Path) -> String {
    let elsewhere =
        format!("set {VARIABLE} to a directory that this user can write to, or name one by --fabric");
    match Errno::from_io_error(source) {
        Some(Errno::ROFS) => format!("; {elsewhere}"),
        Some(Errno::ACCESS | Errno::PERM) => format!(
            "; to join a fabric takes write permission on its directory, which its owner gives (`chgrp GROUP {0}; \
             chmod 2770 {0}`); or {elsewhere}",
            path.display()
        ),
        Some(Errno::NOSPC | Errno::DQUOT) => "; make room there".to_owned(),
        Some(Errno::MFILE | Errno::NFILE) => "; raise the limit of descriptors (`ulimit -n 1024`)".to_owned(),
        Some(Errno::NOENT) if !Path::new("/proc/self/fd").exists() => "; mount /proc".to_owned(),
        _ => String::new(),
    }
}

fn failed(path: &Path, source: io::Error) -> FabricError {
    FabricError::Directory {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::outside;

    #[test]
    fn a_user_of_a_namespace_is_somebody_outside() {
        assert_eq!(outside(0, "         0       1000          1\n"), 1000);
        assert_eq!(outside(0, "         0          0 4294967295\n"), 0);
        assert_eq!(outside(1005, "0 1000 1\n1000 100000 10\n"), 100_005);
        for map in ["", "0 1000 0", "1 1000 1", "0 1000", "x 1000 1", "0 4294967296 1"] {
            assert_eq!(outside(0, map), 0, "{map}");
        }
        assert_eq!(outside(3, "0 4294967295 4294967295"), 3);
    }
}
