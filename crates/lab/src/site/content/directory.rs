//! The files of a directory of the user's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::programs::web::Served;

/// Most files of a directory that a site serves.
pub(super) const MOST_FILES: usize = 20_000;

/// Deepest directory below it that is looked into.
pub(super) const DEEPEST: usize = 32;

/// Regular files below a directory, in order of their paths, named as a request names them. Hidden
/// files and links are left out.
///
/// # Errors
///
/// If a directory cannot be read, if there is no file, or if there are more than 20 000.
pub(super) fn files(root: &Path) -> io::Result<Vec<Served>> {
    let mut found = Vec::new();
    let mut open = vec![(root.to_owned(), String::new(), 0)];
    while let Some((directory, path, depth)) = open.pop() {
        for entry in fs::read_dir(&directory).map_err(|error| named(&directory, &error))? {
            let entry = entry?;
            let name = entry.file_name();
            let kind = entry.file_type()?;
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
                continue;
            };
            let path = format!("{path}{}", encoded(name));
            if kind.is_dir() && depth < DEEPEST {
                open.push((entry.path(), format!("{path}/"), depth + 1));
            } else if kind.is_file() {
                let length = entry.metadata()?.len();
                found.push(Served { name: path, length });
            }
            if found.len() > MOST_FILES {
                let reason = format!("{} has more than {MOST_FILES} files", root.display());
                return Err(io::Error::other(reason));
            }
        }
    }
    if found.is_empty() {
        return Err(io::Error::other(format!("{} has no files", root.display())));
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

fn named(directory: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot read {}: {error}", directory.display()),
    )
}

/// A file's path below its root, from the name in requests.
pub(in crate::site) fn path_of(root: &Path, name: &str) -> PathBuf {
    root.join(decoded(name))
}

/// A name as requests have it: other characters than RFC 3986's unreserved ones are encoded.
fn encoded(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(byte.into());
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The text without encoded characters. Text that is no UTF-8 then is kept as it was.
fn decoded(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let [first, others @ ..] = rest {
        let digits = others.get(..2).filter(|_| *first == b'%');
        let value = digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &others[2..] } else { others };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| name.to_owned())
}

/// The path in a request, as [`files`] names files.
pub(super) fn normalized(path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let parts = path.split('/').filter(|part| !part.is_empty());
    let parts: Vec<_> = parts.map(|part| encoded(&decoded(part))).collect();
    let name = parts.join("/");
    if path.ends_with('/') {
        let above = if name.is_empty() { name } else { format!("{name}/") };
        return format!("{above}index.html");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_as_requests_name_them() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        fs::create_dir_all(root.join("a b")).unwrap();
        fs::write(root.join("a b/ü.html"), "12345").unwrap();
        fs::write(root.join("index.html"), "1").unwrap();
        fs::write(root.join(".htaccess"), "1").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
        let found = files(root).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|file| (file.name.as_str(), file.length))
            .collect();
        assert_eq!(names, [("a%20b/%C3%BC.html", 5), ("index.html", 1)]);
        assert_eq!(path_of(root, names[0].0), root.join("a b/ü.html"));
    }

    #[test]
    fn directory_without_files_is_refused() {
        let place = tempfile::tempdir().unwrap();
        assert!(
            files(place.path())
                .unwrap_err()
                .to_string()
                .contains("has no files")
        );
        let missing = files(&place.path().join("missing")).unwrap_err().to_string();
        assert!(missing.contains("cannot read"), "{missing}");
    }

    #[test]
    fn requested_paths_have_one_form() {
        for (path, name) in [
            ("/", "index.html"),
            ("/a/", "a/index.html"),
            ("//a/b?x=1", "a/b"),
            ("/a%20b", "a%20b"),
            ("/%41", "A"),
            ("/100%", "100%25"),
        ] {
            assert_eq!(normalized(path), name, "{path}");
        }
    }
}
