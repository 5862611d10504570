//! Files that are written as a whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a whole file or nothing. An existing path that is no file, such as a pipe or a terminal,
/// is written in place.
///
/// # Errors
///
/// If it cannot be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let Some(file) = file(path)? else {
        return OpenOptions::new().write(true).open(path)?.write_all(bytes);
    };
    let part = part(&file)?;
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, file));
    written.inspect_err(|_| drop(fs::remove_file(&part)))
}

/// Checks whether [`write_whole`] could succeed now. It changes nothing.
///
/// # Errors
///
/// The reason why it could not.
pub fn check_whole(path: &Path) -> io::Result<()> {
    match file(path)? {
        // Opening it could affect the process at its other end.
        None => Ok(()),
        Some(file) => {
            let part = part(&file)?;
            File::create(&part)?;
            fs::remove_file(&part)
        }
    }
}

/// The file with this name, existing or not; `None` if the name belongs to something other than a
/// file.
fn file(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        // The target of a link: `/dev/stdout` may be a link to a file.
        Ok(there) if there.is_file() => fs::canonicalize(path).map(Some),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(path.to_owned())),
        Err(error) => Err(error),
    }
}

/// The path of the file while it is incomplete.
fn part(file: &Path) -> io::Result<PathBuf> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut part = OsString::from(name);
    part.push(".part");
    Ok(file.with_file_name(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    fn names(place: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(place)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    }

    #[test]
    fn file_is_written_and_its_link_stays() {
        let place = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| place.path().join(name));
        check_whole(&file).unwrap();
        assert!(names(place.path()).is_empty());
        write_whole(&file, b"one").unwrap();
        symlink(&file, &link).unwrap();
        check_whole(&link).unwrap();
        write_whole(&link, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(place.path()), ["file", "link"]);
    }

    #[test]
    fn pipe_is_not_replaced_by_file() {
        let (mut reader, writer) = io::pipe().unwrap();
        let pipe = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
        check_whole(&pipe).unwrap();
        write_whole(&pipe, b"through").unwrap();
        drop(writer);
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "through");
    }

    #[test]
    fn unwritable_path_is_detected_before() {
        let place = tempfile::tempdir().unwrap();
        let nowhere = place.path().join("none/file");
        for path in [place.path(), &nowhere, Path::new("/proc/none"), Path::new("..")] {
            let found = check_whole(path).unwrap_err().kind();
            assert_eq!(
                found,
                write_whole(path, b"").unwrap_err().kind(),
                "{}",
                path.display()
            );
        }
    }
}
