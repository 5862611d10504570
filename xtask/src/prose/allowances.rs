//! `xtask/prose.txt`: how often each area may still break each rule, and names in two crates
//! with the reason.

use super::Counts;
use crate::shell::{command, root};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;

const LIST: &str = "xtask/prose.txt";

/// The list, as it stands in a file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Allowances {
    /// The remarks at the head of the file.
    head: String,
    most: Counts,
    /// Names of types that may stand in several crates, with the reason.
    names: BTreeMap<String, String>,
}

impl Allowances {
    /// The list of the working tree.
    pub(super) fn read() -> Result<Self> {
        let text = std::fs::read_to_string(root().join(LIST)).context(LIST)?;
        Self::parse(&text)
    }

    /// The list of the last commit, if there is one.
    pub(super) fn committed() -> Result<Option<Self>> {
        let shown = command("git", ["show", &format!("HEAD:{LIST}")]).output()?;
        if !shown.status.success() {
            return Ok(None);
        }
        Self::parse(&String::from_utf8_lossy(&shown.stdout)).map(Some)
    }

    /// Lines `AREA RULE at most NUMBER`, `name NAME: REASON`, and remarks.
    fn parse(text: &str) -> Result<Self> {
        let mut list = Self::default();
        for line in text.lines() {
            if line.starts_with('#') {
                list.head += &format!("{line}\n");
            } else if let Some(name) = line.strip_prefix("name ") {
                let (name, reason) = name
                    .split_once(": ")
                    .with_context(|| format!("{LIST}: no reason in `{line}`"))?;
                list.names.insert(name.to_owned(), reason.to_owned());
            } else if !line.trim().is_empty() {
                let words: Vec<&str> = line.split_whitespace().collect();
                let wrong = || format!("{LIST}: `{line}` is not `AREA RULE at most NUMBER`");
                ensure!(words.len() == 5 && words[2..4] == ["at", "most"], wrong());
                let most = words[4].parse().with_context(wrong)?;
                list.most.insert((words[0].to_owned(), words[1].to_owned()), most);
            }
        }
        Ok(list)
    }

    /// Whether a type's name may stand in several crates.
    pub(super) fn permits_name(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// The areas and rules with more breaches than allowed, each with what is allowed.
    pub(super) fn exceeded(&self, counts: &Counts) -> Counts {
        let most = |key| self.most.get(key).copied().unwrap_or(0);
        let over = counts.iter().filter(|(key, found)| **found > most(*key));
        over.map(|(key, _)| (key.clone(), most(key))).collect()
    }

    /// How many breaches are allowed that are not there.
    pub(super) fn unused(&self, counts: &Counts) -> usize {
        let found = |key| counts.get(key).copied().unwrap_or(0);
        self.most
            .iter()
            .map(|(key, most)| most.saturating_sub(found(key)))
            .sum()
    }

    pub(super) fn total(&self) -> usize {
        self.most.values().sum()
    }

    /// Lowers every allowance of the list to what is found, and raises none.
    pub(super) fn lowered(mut self, counts: &Counts) -> Self {
        self.most.retain(|key, most| {
            *most = (*most).min(counts.get(key).copied().unwrap_or(0));
            *most > 0
        });
        self
    }

    pub(super) fn write(&self) -> Result<()> {
        std::fs::write(root().join(LIST), self.text()).context(LIST)
    }

    fn text(&self) -> String {
        let mut text = self.head.clone();
        for (name, reason) in &self.names {
            let _ = writeln!(text, "name {name}: {reason}");
        }
        for ((area, rule), most) in &self.most {
            let _ = writeln!(text, "{area} {rule} at most {most}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# head\nname Error: one an operation\ncrates/a actor at most 3\ncrates/b path at most 1\n";

    fn counts(found: &[(&str, &str, usize)]) -> Counts {
        let counted = found.iter();
        counted
            .map(|(area, rule, count)| (((*area).to_owned(), (*rule).to_owned()), *count))
            .collect()
    }

    #[test]
    fn list_is_read_as_it_is_written() {
        assert_eq!(Allowances::parse(TEXT).unwrap().text(), TEXT);
    }

    #[test]
    fn list_without_number_is_refused() {
        assert!(Allowances::parse("crates/a actor at most many\n").is_err());
        assert!(Allowances::parse("crates/a actor 3\n").is_err());
        assert!(Allowances::parse("name Error\n").is_err());
    }

    #[test]
    fn more_breaches_than_allowed_are_exceeded() {
        let list = Allowances::parse(TEXT).unwrap();
        let found = counts(&[
            ("crates/a", "actor", 4),
            ("crates/b", "path", 1),
            ("crates/c", "path", 1),
        ]);
        assert_eq!(
            list.exceeded(&found),
            counts(&[("crates/a", "actor", 3), ("crates/c", "path", 0)])
        );
    }

    #[test]
    fn lowering_never_raises() {
        let list = Allowances::parse(TEXT).unwrap();
        let found = counts(&[("crates/a", "actor", 5), ("crates/c", "path", 2)]);
        let lowered = list.lowered(&found);
        assert_eq!(lowered.most, counts(&[("crates/a", "actor", 3)]));
        assert_eq!(lowered.unused(&counts(&[("crates/a", "actor", 1)])), 2);
    }
}
