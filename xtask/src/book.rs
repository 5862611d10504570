//! `cargo xtask book`: the documentation site, built by mdBook under `target/book/html`.
//!
//! Chapters are the pages of `docs/book`, and the documents of `docs` and of the repository's
//! root. So each fact stands in one file. mdBook wants all chapters below one folder. The task copies them there, and gives each link its place in the book. A link to a
//! file that is no chapter becomes plain text.

use crate::links::{documents, is_elsewhere, normal};
use crate::markdown::links;
use crate::requirements;
use crate::shell::{command, root, run as run_shown, target};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const SUMMARY: &str = "docs/book/SUMMARY.md";

#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// Builds the book and checks the links of its pages.
pub(crate) fn run(_: &Arguments) -> Result<()> {
    let summary = std::fs::read_to_string(root().join(SUMMARY))?;
    let chapters = chapters(&summary);
    all_documents_are_chapters(&chapters)?;
    let folder = target().join("book");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    let source = folder.join("src");
    std::fs::create_dir_all(&source)?;
    std::fs::copy(root().join("docs/book/book.toml"), folder.join("book.toml"))?;
    for chapter in chapters.iter().chain([&PathBuf::from(SUMMARY)]) {
        let text = std::fs::read_to_string(root().join(chapter))
            .with_context(|| format!("cannot read {}", chapter.display()))?;
        let place = source.join(in_book(chapter));
        std::fs::create_dir_all(place.parent().expect("a chapter lies in the book"))?;
        std::fs::write(place, moved(chapter, &text, &chapters))?;
    }
    let mdbook = requirements::mdbook()?;
    run_shown(command(mdbook, ["build"]).arg(&folder))?;
    let html = folder.join("html");
    check(&html)?;
    println!(
        "{} chapters: {}",
        chapters.len(),
        html.join("index.html").display()
    );
    Ok(())
}

/// The files that the summary lists, as paths from the repository's root.
fn chapters(summary: &str) -> BTreeSet<PathBuf> {
    let folder = Path::new("docs/book");
    let listed = links(summary)
        .into_iter()
        .map(|link| normal(&folder.join(link.target)));
    listed.collect()
}

/// A document that no part of the book lists is one that no reader of the book finds.
fn all_documents_are_chapters(chapters: &BTreeSet<PathBuf>) -> Result<()> {
    let mut missing = documents()?;
    missing.retain(|path| {
        !chapters.contains(path) && path != Path::new(SUMMARY) && path != Path::new("README.md")
    });
    ensure!(missing.is_empty(), "{SUMMARY} does not list {missing:?}");
    Ok(())
}

/// Where a document lies in the book.
fn in_book(document: &Path) -> PathBuf {
    let folders = ["docs/book", "docs"];
    let below = folders
        .iter()
        .find_map(|folder| document.strip_prefix(folder).ok());
    below.map_or_else(
        || PathBuf::from(document.to_string_lossy().to_lowercase()),
        Path::to_owned,
    )
}

/// A chapter's text with its links as they are in the book.
fn moved(document: &Path, text: &str, chapters: &BTreeSet<PathBuf>) -> String {
    let folder = document.parent().unwrap_or(Path::new(""));
    let depth = in_book(document).components().count() - 1;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for link in links(text) {
        if is_elsewhere(&link.target) || link.target.starts_with('#') {
            continue;
        }
        let (path, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
        let aim = normal(&folder.join(path));
        let stands = format!("[{}]({})", link.text, link.target);
        let becomes = if chapters.contains(&aim) {
            let hash = if anchor.is_empty() { "" } else { "#" };
            let up = "../".repeat(depth);
            format!("[{}]({up}{}{hash}{anchor})", link.text, in_book(&aim).display())
        } else {
            link.text
        };
        let line = &mut lines[link.line - 1];
        *line = line.replacen(&stands, &becomes, 1);
    }
    lines.join("\n") + "\n"
}

/// Every local link of every page leads to a file, and to an element of that name.
fn check(html: &Path) -> Result<()> {
    let mut dead = Vec::new();
    let mut folders = vec![html.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // The page of missing pages, and the page for printing, repeat others.
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".html") && name != "404.html" && name != "print.html" {
                let page = std::fs::read_to_string(&path)?;
                let found = dead_references(&path, &page);
                dead.extend(found.into_iter().map(|aim| format!("{}: {aim}", path.display())));
            }
        }
    }
    for link in &dead {
        eprintln!("{link}");
    }
    match dead.len() {
        0 => Ok(()),
        count => bail!("{count} links of the book lead nowhere"),
    }
}

/// The local references of a page that lead nowhere.
fn dead_references(path: &Path, page: &str) -> Vec<String> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let references = page
        .split("href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    let mut dead = Vec::new();
    for reference in references {
        if is_elsewhere(reference) {
            continue;
        }
        let (file, anchor) = reference.split_once('#').unwrap_or((reference, ""));
        let aim = match file {
            "" => path.to_owned(),
            file => folder.join(file),
        };
        let has_anchor = || {
            let text = std::fs::read_to_string(&aim).unwrap_or_default();
            text.contains(&format!("id=\"{anchor}\""))
        };
        if !aim.exists() || (!anchor.is_empty() && !has_anchor()) {
            dead.push(reference.to_owned());
        }
    }
    dead
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_move_with_their_chapters() {
        let summary = "- [a](use/a.md)\n- [b](../b.md)\n- [c](../../ARCHITECTURE.md)\n";
        let chapters = chapters(summary);
        let text =
            "[b](../../b.md#x) [c](../../../ARCHITECTURE.md) [code](../../../crates/a.rs) [d](https://d/)\n";
        assert_eq!(
            moved(Path::new("docs/book/use/a.md"), text, &chapters),
            "[b](../b.md#x) [c](../architecture.md) code [d](https://d/)\n"
        );
        assert_eq!(
            moved(
                Path::new("ARCHITECTURE.md"),
                "[a](docs/book/use/a.md)\n",
                &chapters
            ),
            "[a](use/a.md)\n"
        );
    }

    #[test]
    fn references_without_target_are_dead() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.html");
        let page =
            "<a id=\"x\" href=\"#x\"></a><a href=\"#y\"></a><a href=\"b.html\"></a><a href=\"a.html\"></a>";
        std::fs::write(&path, page).unwrap();
        assert_eq!(dead_references(&path, page), ["#y", "b.html"]);
    }
}
