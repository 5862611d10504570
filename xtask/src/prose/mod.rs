//! `cargo xtask prose`: the rules of the project's English that can be counted.
//!
//! | rule | what breaks it | where |
//! | --- | --- | --- |
//! | `actor` | a pronoun such as `whoever` in the place of an actor | comments, documents |
//! | `leaning` | a doc comment that begins with "The same", "As there", "One of them", "True:", "False:" | doc comments |
//! | `sentence` | a sentence of more than 25 words | doc comments, documents |
//! | `paragraph` | a paragraph, list item or table cell of more than 120 words | doc comments, documents |
//! | `path` | a path in a code span that no file of the repository has | comments, documents |
//! | `name` | a type's name in two crates | Rust files |
//! | `length` | a README or ARCHITECTURE of more than 150 lines | documents |
//!
//! An area is a crate, or a document. `xtask/prose.txt` allows an area that is not yet clean so
//! many breaches of a rule, and no more; `cargo xtask prose --lower` takes unused allowances
//! back. A fenced block, and a code span, are no prose.

mod allowances;
mod comments;
mod names;
mod paths;
mod rules;

use crate::links::documents;
use crate::shell::{command, output, root};
use allowances::Allowances;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Lines that a reader of the first documents has to go through at most.
const MOST_LINES: usize = 150;

/// Breaches of one rule in one area that are shown unasked.
const MOST_SHOWN: usize = 10;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// List every breach, also those that are allowed; of one area with --area.
    #[arg(long)]
    list: bool,
    /// Look at this crate or document only, such as crates/link or README.md.
    #[arg(long, value_name = "AREA")]
    area: Option<String>,
    /// Lower the allowances in xtask/prose.txt to what is found. None is ever raised.
    #[arg(long, conflicts_with = "area")]
    lower: bool,
}

impl Arguments {
    /// As a check runs it.
    pub(crate) fn checking() -> Self {
        Self {
            list: false,
            area: None,
            lower: false,
        }
    }
}

/// A rule, by the word that stands for it in the list of allowances.
type Rule = &'static str;

/// A place that breaks a rule.
#[derive(Debug, PartialEq)]
struct Breach {
    area: String,
    rule: Rule,
    /// File and line, with what is wrong.
    what: String,
}

/// The number of breaches of a rule in an area.
type Counts = BTreeMap<(String, String), usize>;

/// Checks all comments and documents.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let allowances = Allowances::read()?;
    let mut breaches = breaches(&allowances)?;
    if let Some(area) = &arguments.area {
        breaches.retain(|breach| breach.area == *area);
    }
    let counts = count(&breaches);
    if arguments.lower {
        return allowances.lowered(&counts).write();
    }
    let over = allowances.exceeded(&counts);
    let mut shown = Counts::new();
    for breach in &breaches {
        let key = (breach.area.clone(), breach.rule.to_owned());
        let is_over = over.contains_key(&key);
        let shown = shown.entry(key).or_default();
        *shown += 1;
        if arguments.list || (is_over && *shown <= MOST_SHOWN) {
            eprintln!("{}: {}", breach.rule, breach.what);
        }
    }
    for ((area, rule), most) in &over {
        let found = counts[&(area.clone(), rule.clone())];
        eprintln!("{area} breaks the rule `{rule}` {found} times, {most} are allowed");
        if found > MOST_SHOWN && !arguments.list {
            eprintln!("`cargo xtask prose --list --area {area}` shows all of them");
        }
    }
    if arguments.area.is_none() {
        let unused = allowances.unused(&counts);
        if unused > 0 {
            eprintln!("{unused} breaches fewer than allowed: `cargo xtask prose --lower` keeps it so");
        }
        if let Some(before) = Allowances::committed()? {
            ensure!(
                allowances.total() <= before.total(),
                "xtask/prose.txt allows {} breaches, and {} in the last commit; it may only allow fewer",
                allowances.total(),
                before.total()
            );
        }
    }
    ensure!(
        over.is_empty(),
        "{} areas break rules more often than allowed",
        over.len()
    );
    Ok(())
}

fn count(breaches: &[Breach]) -> Counts {
    let mut counts = Counts::new();
    for breach in breaches {
        *counts
            .entry((breach.area.clone(), breach.rule.to_owned()))
            .or_default() += 1;
    }
    counts
}

/// Every breach in every file that git tracks, or would.
fn breaches(allowances: &Allowances) -> Result<Vec<Breach>> {
    let files = files()?;
    let mut breaches = Vec::new();
    let paths = paths::Paths::new(&files);
    let mut types = names::Types::default();
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
    {
        let text = std::fs::read_to_string(root().join(file))
            .with_context(|| format!("cannot read {}", file.display()))?;
        let area = area(file);
        for found in comments::breaches(&text)
            .into_iter()
            .chain(paths.of_comments(&text))
        {
            breaches.push(at(&area, file, found));
        }
        types.add(file, &area, &text);
    }
    breaches.extend(types.breaches(allowances));
    for file in documents()? {
        let text = std::fs::read_to_string(root().join(&file))?;
        let area = file.display().to_string();
        for found in rules::of_document(&text)
            .into_iter()
            .chain(paths.of_document(&text))
        {
            breaches.push(at(&area, &file, found));
        }
        let is_first = ["README.md", "ARCHITECTURE.md"].contains(&area.as_str());
        let lines = text.lines().count();
        if is_first && lines > MOST_LINES {
            breaches.push(Breach {
                what: format!("{area}: {lines} lines, of {MOST_LINES}"),
                area,
                rule: "length",
            });
        }
    }
    Ok(breaches)
}

fn at(area: &str, file: &Path, found: rules::Found) -> Breach {
    Breach {
        area: area.to_owned(),
        rule: found.rule,
        what: format!("{}:{}: {}", file.display(), found.line, found.what),
    }
}

/// Files of the repository, but for ignored ones.
fn files() -> Result<Vec<PathBuf>> {
    let listed = output(&mut command(
        "git",
        ["ls-files", "--cached", "--others", "--exclude-standard"],
    ))?;
    let files: Vec<PathBuf> = listed.lines().map(PathBuf::from).collect();
    let files: Vec<_> = files
        .into_iter()
        .filter(|file| root().join(file).is_file())
        .collect();
    if files.is_empty() {
        bail!("git lists no files");
    }
    Ok(files)
}

/// The crate of a Rust file.
fn area(file: &Path) -> String {
    let mut parts = file.components().map(|part| part.as_os_str().to_string_lossy());
    let first = parts.next().unwrap_or_default().into_owned();
    match parts.next() {
        Some(second) if first == "crates" => format!("{first}/{second}"),
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn area_of_file_is_its_crate() {
        assert_eq!(area(Path::new("crates/link/src/a/b.rs")), "crates/link");
        assert_eq!(area(Path::new("xtask/src/main.rs")), "xtask");
    }

    #[test]
    fn breaches_are_counted_by_area_and_rule() {
        let breach = |rule| Breach {
            area: "a".to_owned(),
            rule,
            what: String::new(),
        };
        let counts = count(&[breach("actor"), breach("actor"), breach("path")]);
        assert_eq!(counts[&("a".to_owned(), "actor".to_owned())], 2);
        assert_eq!(counts.len(), 2);
    }
}
