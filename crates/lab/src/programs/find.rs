//! Finds programs: in `PATH`, and in Debian's directories outside of it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Directories in root's `PATH` only.
const SERVERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Directory in which each version of PostgreSQL has a directory with `bin`.
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// The path of a program, if it is installed. A name also matches a name with a version: `php-fpm`
/// matches `php-fpm8.2`.
pub fn find(program: &str) -> Option<PathBuf> {
    let places = places();
    let exact = places.iter().map(|place| place.join(program));
    let mut with_version = places.iter().filter_map(|place| versioned(place, program));
    exact
        .into_iter()
        .find(|path| path.is_file())
        .or_else(|| with_version.next())
}

/// The value of `PATH` in which all of them are found.
pub(crate) fn path() -> OsString {
    std::env::join_paths(places()).unwrap_or_default()
}

fn places() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<_> = std::env::split_paths(&path).collect();
    places.extend(SERVERS.map(PathBuf::from));
    places.extend(newest(Path::new(POSTGRESQL)).map(|version| version.join("bin")));
    places
}

/// The directory whose name is the highest number.
fn newest(place: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(place).ok()?.flatten();
    let numbered = entries.filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((number, entry.path()))
    });
    numbered.max().map(|(_, path)| path)
}

/// A file named after a program, followed by digits and dots.
fn versioned(place: &Path, program: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(place).ok()?.flatten();
    let is_meant = |name: &str| {
        let version = name.strip_prefix(program);
        version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
    };
    let meant = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_meant));
    let paths = meant.map(|entry| entry.path());
    paths.filter(|path| path.is_file()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_with_version_is_found_by_name() {
        let place = tempfile::tempdir().unwrap();
        for name in ["php-fpm8.2", "php-fpm8.4", "php-fpm-tools", "other"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        let found = versioned(place.path(), "php-fpm").unwrap();
        assert_eq!(found, place.path().join("php-fpm8.4"));
        assert_eq!(versioned(place.path(), "nowhere"), None);
    }

    #[test]
    fn newest_version_has_the_highest_number() {
        let place = tempfile::tempdir().unwrap();
        for name in ["9", "15", "common"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        assert_eq!(newest(place.path()), Some(place.path().join("15")));
        assert_eq!(newest(&place.path().join("9")), None);
    }
}
