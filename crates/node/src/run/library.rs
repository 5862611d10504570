//! The place of the library that is preloaded, and the variable of the dynamic linker.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{LIBRARY, LIBRARY_VARIABLE};

/// The folders in which the library is looked for, from the command's own.
const PLACES: [&str; 3] = ["", "../lib", "../lib/toehold"];

/// The reason why the library cannot be preloaded.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The library is not there.
    #[error(
        "cannot find {LIBRARY}, which is preloaded into programs: there is neither {}; set {LIBRARY_VARIABLE} to its path",
        list(.0)
    )]
    Missing(Vec<PathBuf>),
    /// The library is not where the variable says.
    #[error("there is no library at {}, where {LIBRARY_VARIABLE} says it is: {}", .0.display(), .1)]
    Elsewhere(PathBuf, std::io::Error),
    /// The dynamic linker would take it for several.
    #[error(
        "the dynamic linker cannot be given {}: a path with a space or a colon; move the library, or set \
         {LIBRARY_VARIABLE} to a link to it", .0.display()
    )]
    Path(PathBuf),
}

fn list(places: &[PathBuf]) -> String {
    let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
    places.join(" nor ")
}

/// The library: where its variable says, or beside the command at `program`, or in `lib` or
/// `lib/toehold` beside the command's directory.
///
/// # Errors
///
/// If it is in none of these places, or its path is none for the dynamic linker.
pub fn find(program: &Path) -> Result<PathBuf, LibraryError> {
    let found = match std::env::var_os(LIBRARY_VARIABLE).filter(|value| !value.is_empty()) {
        Some(path) => named(path.into())?,
        None => beside(program)?,
    };
    if found
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b" \t\n:".contains(byte))
    {
        return Err(LibraryError::Path(found));
    }
    Ok(found)
}

fn named(path: PathBuf) -> Result<PathBuf, LibraryError> {
    // As it is, and not what it leads to: that may have another path than the linker takes.
    let absolute = std::path::absolute(&path);
    let absolute = absolute.and_then(|absolute| absolute.metadata().map(|_| absolute));
    absolute.map_err(|error| LibraryError::Elsewhere(path, error))
}

fn beside(program: &Path) -> Result<PathBuf, LibraryError> {
    let directory = program.parent().unwrap_or(Path::new("/"));
    let places = PLACES.map(|place| directory.join(place).join(LIBRARY));
    let found = places.iter().find_map(|place| place.canonicalize().ok());
    found.ok_or_else(|| LibraryError::Missing(places.into()))
}

/// The value of [`PRELOAD`](super::PRELOAD): the library, then what was there. It has no other
/// library of this kind, which a program that runs on a node may hand down.
pub fn preload(library: &Path, former: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    for other in others(former) {
        value.push(":");
        value.push(other);
    }
    value
}

/// The value of [`PRELOAD`](super::PRELOAD) without the library, for a process that is not to have
/// it.
pub fn without(former: Option<&OsStr>) -> Option<OsString> {
    let others: Vec<_> = others(former).collect();
    (!others.is_empty()).then(|| others.join(OsStr::new(":")))
}

/// The value of a variable of the [sanitizers](super::SANITIZERS): the library's settings, and the
/// former value, which has the last word.
pub fn relaxed(told: &str, former: Option<&OsStr>) -> OsString {
    match former.filter(|former| !former.is_empty()) {
        None => told.into(),
        Some(former) => [OsStr::new(told), former].join(OsStr::new(":")),
    }
}

fn others(former: Option<&OsStr>) -> impl Iterator<Item = &OsStr> {
    let parts = former.unwrap_or_default().as_bytes();
    let parts = parts.split(|byte| b" :".contains(byte)).map(OsStr::from_bytes);
    let own = Some(OsStr::new(LIBRARY));
    parts.filter(move |part| !part.is_empty() && Path::new(part).file_name() != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_once() {
        let library = Path::new("/new/libtoehold.so");
        let with = |former: &str| preload(library, Some(OsStr::new(former)));
        assert_eq!(preload(library, None), "/new/libtoehold.so");
        assert_eq!(with(""), "/new/libtoehold.so");
        assert_eq!(
            with("/a.so b.so:/old/libtoehold.so::c.so"),
            "/new/libtoehold.so:/a.so:b.so:c.so"
        );
        assert_eq!(without(Some(OsStr::new("/old/libtoehold.so"))), None);
        assert_eq!(
            without(Some(OsStr::new("/old/libtoehold.so b.so"))),
            Some("b.so".into())
        );
    }

    #[test]
    fn sanitizers_are_told_besides_what_the_user_tells_them() {
        assert_eq!(relaxed("a=0", None), "a=0");
        assert_eq!(relaxed("a=0", Some(OsStr::new(""))), "a=0");
        assert_eq!(relaxed("a=0", Some(OsStr::new("a=1:b=2"))), "a=0:a=1:b=2");
    }

    #[test]
    fn the_library_is_found_beside_the_command() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("bin/toehold");
        std::fs::create_dir_all(directory.path().join("bin")).unwrap();
        let missing = beside(&program).unwrap_err().to_string();
        assert!(missing.contains("/bin/libtoehold.so nor "), "{missing}");
        for place in ["lib/toehold", "lib", "bin"] {
            let place = directory.path().canonicalize().unwrap().join(place);
            std::fs::create_dir_all(&place).unwrap();
            std::fs::write(place.join(LIBRARY), "").unwrap();
            assert_eq!(beside(&program).unwrap(), place.join(LIBRARY));
        }
    }
}
