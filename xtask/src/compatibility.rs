//! `cargo xtask compatibility`: which programs run on nodes as over the kernel, as the tests say.
//!
//! The rows of the README's table are programs, and what is in them are the tests of
//! `crates/cli/tests/programs`: their names say what is done, their marks with which programs.
//! What came of it they leave in the target directory. What has not run here stays as it is, so
//! that the table is the same wherever it is made; only versions are this machine's, and no
//! check looks at them.

use crate::requirements::FOR_TESTS;
use crate::shell::{command, output, root, target};
use crate::test::{Marked, marked_below};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;

const BEGIN: &str = "<!-- `cargo xtask compatibility` writes this from the tests' results -->\n";
const END: &str = "<!-- end of what it writes -->\n";

/// What tests need that is no program which runs on a node.
const NO_PROGRAMS: [&str; 11] = [
    "root",
    "namespaces",
    "tun",
    "ip",
    "strace",
    "cc",
    "c++",
    "nm",
    "setpriv",
    "unshare",
    "",
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing; fail if the table is not what the results say, whatever the versions.
    #[arg(long)]
    check: bool,
}

impl Arguments {
    /// As a check runs it.
    pub(crate) fn checking() -> Self {
        Self { check: true }
    }
}

/// Writes the table, or checks that it is up to date.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let path = root().join("README.md");
    let readme = std::fs::read_to_string(&path)?;
    let (before, rest) = readme
        .split_once(BEGIN)
        .context("the README has no table of programs")?;
    let (table, after) = rest.split_once(END).context("the README's table has no end")?;
    let stands = read(table);
    let mut rows = rows(&tests()?, &results()?, &stands);
    if arguments.check {
        let tests = |rows: &Rows| rows.values().map(|row| row.tests.clone()).collect::<Vec<_>>();
        let is_same = rows.keys().eq(stands.keys()) && tests(&rows) == tests(&stands);
        ensure!(
            is_same,
            "the README's table of programs is stale; `cargo xtask compatibility` writes it anew"
        );
        return Ok(());
    }
    for (package, row) in &mut rows {
        let known = stands.get(package).map(|row| row.version.clone());
        row.version = installed(package).or(known).unwrap_or_default();
    }
    let table = render(&rows);
    std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}"))?;
    Ok(())
}

/// Removes what former runs have left.
pub(crate) fn forget() {
    // Where there is nothing, nothing is left.
    let _ = std::fs::remove_dir_all(target().join("compatibility"));
}

/// What became of tests that have run: a file each.
fn results() -> Result<BTreeMap<String, bool>> {
    let Ok(entries) = std::fs::read_dir(target().join("compatibility")) else {
        return Ok(BTreeMap::new());
    };
    let mut results = BTreeMap::new();
    for entry in entries {
        let path = entry?.path();
        let outcome = match std::fs::read_to_string(&path)?.trim() {
            "as over the kernel" => true,
            "fails" => false,
            other => bail!("{} says {other:?}", path.display()),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        results.insert(name.into_owned(), outcome);
    }
    Ok(results)
}

/// The tests that run real programs, in the order of their files.
fn tests() -> Result<Vec<Marked>> {
    let mut tests = marked_below(&root().join("crates/cli/tests/programs"), "toehold-cli")?;
    tests.retain(|test| !programs(test).is_empty());
    ensure!(!tests.is_empty(), "there are no tests of real programs");
    Ok(tests)
}

/// What a test is about, and with which other programs.
fn programs(test: &Marked) -> Vec<&str> {
    let needs = test.reason.strip_prefix("needs ").unwrap_or("");
    let needs = needs.split(',').map(str::trim);
    needs.filter(|need| !NO_PROGRAMS.contains(need)).collect()
}

/// What is known of a test.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    AsOverTheKernel,
    Fails,
    NotTried,
}

impl Outcome {
    /// What stands behind the test's words.
    fn mark(self) -> &'static str {
        match self {
            Outcome::AsOverTheKernel => "",
            Outcome::Fails => " (**fails**)",
            Outcome::NotTried => " (not tried)",
        }
    }

    fn read(words: &str) -> (Outcome, &str) {
        let marked = [Outcome::Fails, Outcome::NotTried].into_iter();
        let mut found = marked.filter_map(|outcome| Some((outcome, words.strip_suffix(outcome.mark())?)));
        found.next().unwrap_or((Outcome::AsOverTheKernel, words))
    }
}

/// A program, by its Debian package.
#[derive(Debug, Default, PartialEq)]
struct Row {
    version: String,
    /// What is done, by which others are named that take part.
    tests: BTreeMap<String, Outcome>,
}

type Rows = BTreeMap<String, Row>;

fn rows(tests: &[Marked], results: &BTreeMap<String, bool>, stands: &Rows) -> Rows {
    let mut rows = Rows::new();
    for test in tests {
        let programs = programs(test);
        let (Some(package), others) = (package(programs[0]), others(&programs)) else {
            continue;
        };
        let mut words = test.name.replace('_', " ");
        if !others.is_empty() {
            words = format!("{words}, with {}", others.join(" and "));
        }
        let stood = stands.get(package).and_then(|row| row.tests.get(&words));
        let outcome = match results.get(&test.name) {
            Some(true) => Outcome::AsOverTheKernel,
            Some(false) => Outcome::Fails,
            None => *stood.unwrap_or(&Outcome::NotTried),
        };
        let row = rows.entry(package.to_owned()).or_default();
        row.tests.insert(words, outcome);
    }
    rows
}

/// What a program comes in.
fn package(program: &str) -> Option<&'static str> {
    let known = FOR_TESTS.iter().find(|known| known.name == program);
    known.map(|known| known.package)
}

/// The packages of those that take part beside the first program.
fn others(programs: &[&str]) -> Vec<&'static str> {
    let first = package(programs[0]);
    let mut others: Vec<_> = programs.iter().filter_map(|program| package(program)).collect();
    others.dedup();
    // What compiles a program comes from the same source as what runs it.
    others.retain(|other| Some(*other) != first && !other.ends_with("-dev"));
    others
}

const HEAD: &str = "| Program | Version | What it does | On nodes |\n| --- | --- | --- | --- |\n";

fn render(rows: &Rows) -> String {
    let mut table = HEAD.to_owned();
    for (package, row) in rows {
        let mut outcomes = row.tests.values();
        let said = match outcomes.all(|outcome| *outcome == Outcome::AsOverTheKernel) {
            true => "as over the kernel",
            false => "not in all",
        };
        let tests = row
            .tests
            .iter()
            .map(|(words, outcome)| format!("{words}{}", outcome.mark()));
        let tests = tests.collect::<Vec<_>>().join("; ");
        let _ = writeln!(table, "| {package} | {} | {tests} | {said} |", row.version);
    }
    table
}

/// The rows of a table that stands.
fn read(table: &str) -> Rows {
    let rows = table.strip_prefix(HEAD).unwrap_or_default().lines();
    rows.filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (package, version, tests) = (cells.next()?, cells.next()?, cells.next()?);
        let tests = tests.split("; ").map(|test| {
            let (outcome, words) = Outcome::read(test);
            (words.to_owned(), outcome)
        });
        let row = Row {
            version: version.to_owned(),
            tests: tests.collect(),
        };
        Some((package.to_owned(), row))
    })
    .collect()
}

/// The version of a package that is here.
fn installed(package: &str) -> Option<String> {
    let version = output(&mut command("dpkg-query", ["-W", "-f", "${Version}", package])).ok()?;
    Some(upstream(version.trim()).to_owned()).filter(|version| !version.is_empty())
}

/// A Debian version without its epoch and revision.
fn upstream(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    version.split(['-', '+', '~']).next().unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(name: &str, reason: &str) -> Marked {
        Marked {
            package: "p".to_owned(),
            name: name.to_owned(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn a_table_is_read_as_it_is_written() {
        let tests = [
            marked("it_serves", "needs root, nginx, curl, wget"),
            marked("it_serves_others", "needs nginx"),
            marked("ranks_agree", "needs mpirun.openmpi, mpicc.openmpi"),
        ];
        let results = [("it_serves", true), ("it_serves_others", false)];
        let results = results.map(|(name, outcome)| (name.to_owned(), outcome)).into();
        let mut first = rows(&tests, &results, &Rows::new());
        first.get_mut("nginx-light").unwrap().version = "1.22.1".to_owned();
        let table = render(&first);
        assert_eq!(
            table.strip_prefix(HEAD).unwrap(),
            "| nginx-light | 1.22.1 | it serves others (**fails**); it serves, with curl and wget | not in all |\n\
             | openmpi-bin |  | ranks agree (not tried) | not in all |\n"
        );
        assert_eq!(read(&table), first);
        // Elsewhere, where nothing has run, it says the same; and another result is seen.
        let elsewhere = rows(&tests, &BTreeMap::new(), &first);
        assert_eq!(elsewhere["nginx-light"].tests, first["nginx-light"].tests);
        let failed = [("it_serves".to_owned(), false)].into();
        assert_ne!(
            rows(&tests, &failed, &first)["nginx-light"].tests,
            first["nginx-light"].tests
        );
    }

    #[test]
    fn every_program_of_the_tests_has_a_row() {
        let tests = tests().unwrap();
        let shown: usize = rows(&tests, &BTreeMap::new(), &Rows::new())
            .values()
            .map(|row| row.tests.len())
            .sum();
        assert_eq!(shown, tests.len());
    }

    #[test]
    fn versions_are_those_of_the_programs() {
        assert_eq!(upstream("5:7.0.15-1~deb12u10"), "7.0.15");
        assert_eq!(upstream("18.20.4+dfsg-1"), "18.20.4");
    }
}
