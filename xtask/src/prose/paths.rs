//! Paths that documents and comments name.

use super::rules::Found;
use crate::markdown::{code_spans, lines_of_text};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Every file and folder of the repository, by each of its endings.
pub(super) struct Paths(BTreeSet<String>);

impl Paths {
    pub(super) fn new(files: &[PathBuf]) -> Self {
        let mut endings = BTreeSet::new();
        for file in files {
            for folder in file.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
                let parts: Vec<_> = folder.components().collect();
                for first in 0..parts.len() {
                    let ending: PathBuf = parts[first..].iter().collect();
                    endings.insert(ending.to_string_lossy().into_owned());
                }
            }
        }
        Self(endings)
    }

    /// The paths in a document's code spans that no file or folder has.
    pub(super) fn of_document(&self, document: &str) -> Vec<Found> {
        self.breaches(lines_of_text(document))
    }

    /// The paths in a Rust file's comments that no file or folder has.
    pub(super) fn of_comments(&self, source: &str) -> Vec<Found> {
        let lines = source.lines().enumerate();
        let comments = lines.filter(|(_, line)| line.trim_start().starts_with("//"));
        self.breaches(comments.map(|(index, line)| (index + 1, line)))
    }

    fn breaches<'a>(&self, lines: impl IntoIterator<Item = (usize, &'a str)>) -> Vec<Found> {
        let mut found = Vec::new();
        for (line, text) in lines {
            for span in code_spans(text).into_iter().filter(|span| is_path(span)) {
                if !self.0.contains(span.trim_end_matches('/')) {
                    found.push(Found {
                        line,
                        rule: "path",
                        what: format!("{span} does not exist"),
                    });
                }
            }
        }
        found
    }
}

/// Whether a code span is a path of this repository. It is one below `crates`, or one of a text
/// file with its folder.
fn is_path(span: &str) -> bool {
    let is_plain = span
        .chars()
        .all(|letter| letter.is_alphanumeric() || matches!(letter, '/' | '.' | '_' | '-'));
    let kinds = ["rs", "md", "toml"];
    let is_text = Path::new(span)
        .extension()
        .is_some_and(|end| kinds.iter().any(|kind| end == *kind));
    is_plain
        && span.contains('/')
        && !span.starts_with(['/', '.'])
        && (is_text || span.starts_with("crates/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_that_no_file_has_is_a_breach() {
        let paths = Paths::new(&[PathBuf::from("crates/shm/src/lease/protocol.rs")]);
        let text = "See `shm/src/lease/protocol.rs`, `lease/protocol.rs`, `crates/shm/`, `shm/src/tape.rs`, `crates/x`.\n";
        let found: Vec<_> = paths
            .of_document(text)
            .into_iter()
            .map(|found| found.what)
            .collect();
        assert_eq!(
            found,
            ["shm/src/tape.rs does not exist", "crates/x does not exist"]
        );
    }

    #[test]
    fn path_in_code_is_no_comment() {
        let paths = Paths::new(&[PathBuf::from("a/b.rs")]);
        let found = paths.of_comments("/// See `a/b.rs` and `a/c.rs`.\nlet x = \"`a/d.rs`\";\n");
        assert_eq!((found.len(), found[0].line), (1, 1));
    }

    #[test]
    fn commands_and_files_of_the_system_are_no_paths() {
        for span in ["toehold up", "/proc/net/tcp", "tests/*.rs", "report.json", "a/b"] {
            assert!(!is_path(span), "{span}");
        }
    }
}
