//! `cargo xtask links`: links between the documents lead to a file and a heading that exist.
//!
//! The check is the project's own. It downloads nothing (lychee's wheel has 78 MB), and takes
//! milliseconds. It follows links as a reader of the repository does, where a checker of the
//! rendered book follows those of the book alone. Links to other sites are not followed, so no check depends on a network.

use crate::markdown::{headings, links};
use crate::shell::root;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// Checks all documents, and lists every dead link.
pub(crate) fn run(_: &Arguments) -> Result<()> {
    let mut dead = Vec::new();
    for document in documents()? {
        let text = std::fs::read_to_string(root().join(&document))?;
        let found = dead_links(root(), &document, &text);
        dead.extend(
            found
                .into_iter()
                .map(|line| format!("{}:{line}", document.display())),
        );
    }
    for link in &dead {
        eprintln!("{link}");
    }
    match dead.len() {
        0 => Ok(()),
        count => bail!("{count} links lead nowhere"),
    }
}

/// Every document of the project, as a path from the repository's root, in order.
pub(crate) fn documents() -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"]
        .map(PathBuf::from)
        .into();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// `line: target` of each link of a document that leads nowhere.
fn dead_links(root: &Path, document: &Path, text: &str) -> Vec<String> {
    let mut dead = Vec::new();
    for link in links(text) {
        if is_elsewhere(&link.target) {
            continue;
        }
        let (path, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
        let target = match path {
            "" => document.to_owned(),
            path => normal(&document.parent().unwrap_or(Path::new("")).join(path)),
        };
        let is_there = root.join(&target).exists();
        let has_anchor = || {
            let text = std::fs::read_to_string(root.join(&target)).unwrap_or_default();
            headings(&text).iter().any(|heading| heading.anchor == anchor)
        };
        if !is_there || (!anchor.is_empty() && !has_anchor()) {
            dead.push(format!("{}: {}", link.line, link.target));
        }
    }
    dead
}

/// Whether a link leads to another site.
pub(crate) fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// A path without `.` and `..`.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut kept = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => {
                kept.pop();
            }
            std::path::Component::CurDir => {}
            part => kept.push(part),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("docs")).unwrap();
        std::fs::write(folder.path().join("README.md"), "# Read me\n## Two words\n").unwrap();
        let text = "# Here\n[a](../README.md#two-words) [b](#here) [c](https://x.example/#y)\n\
                    [d](../README.md#three) [e](other.md)\n[f](#there)\n";
        std::fs::write(folder.path().join("docs/a.md"), text).unwrap();
        assert_eq!(
            dead_links(folder.path(), Path::new("docs/a.md"), text),
            ["3: ../README.md#three", "3: other.md", "4: #there"]
        );
    }

    #[test]
    fn dots_of_a_path_are_resolved() {
        assert_eq!(normal(Path::new("docs/book/../../a/./b")), Path::new("a/b"));
    }
}
