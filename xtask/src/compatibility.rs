//! `cargo xtask compatibility`: which programs run on nodes as over the kernel, as the tests say.
//!
//! `docs/compatibility.md` lists programs, and of each program the tests of
//! `crates/cli/tests/programs` that run it. A test's name says what the program does. Its mark
//! names the programs. Its result is a file in the target directory. A test without a result
//! keeps the result that the page has, so the page is the same on every machine. Versions are
//! this machine's, and the check ignores them.

use crate::requirements::FOR_TESTS;
use crate::shell::{command, output, root, target};
use crate::test::{Marked, marked_below};
use anyhow::{Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The page, from the repository's root.
const PAGE: &str = "docs/compatibility.md";

/// The page's text above its table.
const PREAMBLE: &str = "# Programs on nodes

<!-- Made by `cargo xtask compatibility` from the tests' results. Do not edit. -->

Each test below runs real programs twice: over the kernel, and on nodes. It compares what the programs say. Packages and
versions are Debian's.

";

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
    /// Change nothing; fail if the page is not what the results say, whatever the versions.
    #[arg(long)]
    check: bool,
}

impl Arguments {
    /// As a check runs it.
    pub(crate) fn checking() -> Self {
        Self { check: true }
    }
}

/// Writes the page, or checks that it is up to date.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let path = root().join(PAGE);
    let stands = read(&std::fs::read_to_string(&path).unwrap_or_default());
    let mut rows = rows(&tests()?, &results()?, &stands);
    if arguments.check {
        let tests = |rows: &Rows| rows.values().map(|row| row.tests.clone()).collect::<Vec<_>>();
        let is_same = rows.keys().eq(stands.keys()) && tests(&rows) == tests(&stands);
        ensure!(
            is_same,
            "{PAGE} is stale; `cargo xtask compatibility` writes it anew"
        );
        return Ok(());
    }
    for (package, row) in &mut rows {
        let known = stands.get(package).map(|row| row.version.clone());
        row.version = installed(package).or(known).unwrap_or_default();
    }
    std::fs::write(&path, render(&rows))?;
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

const HEAD: &str = "| program | version | tests | on nodes |\n| --- | --- | ---: | --- |\n";

fn render(rows: &Rows) -> String {
    let mut page = format!("{PREAMBLE}{HEAD}");
    for (package, row) in rows {
        let mut outcomes = row.tests.values();
        let said = match outcomes.all(|outcome| *outcome == Outcome::AsOverTheKernel) {
            true => "as over the kernel",
            false => "not in all",
        };
        let version = &row.version;
        let _ = writeln!(
            page,
            "| [{package}](#{package}) | {version} | {} | {said} |",
            row.tests.len()
        );
    }
    for (package, row) in rows {
        let _ = writeln!(page, "\n## {package}\n");
        for (words, outcome) in &row.tests {
            let _ = writeln!(page, "- {words}{}", outcome.mark());
        }
    }
    page
}

/// The rows of a page that stands.
fn read(page: &str) -> Rows {
    let mut rows = Rows::new();
    let mut of = String::new();
    for line in page.lines() {
        if let Some((package, rest)) = line.strip_prefix("| [").and_then(|row| row.split_once("](#")) {
            let version = rest.split(" | ").nth(1).unwrap_or_default();
            rows.entry(package.to_owned()).or_default().version = version.to_owned();
        } else if let Some(package) = line.strip_prefix("## ") {
            package.clone_into(&mut of);
        } else if let Some(test) = line.strip_prefix("- ") {
            let (outcome, words) = Outcome::read(test);
            let row = rows.entry(of.clone()).or_default();
            row.tests.insert(words.to_owned(), outcome);
        }
    }
    rows
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
    fn page_is_read_as_it_is_written() {
        let tests = [
            marked("it_serves", "needs root, nginx, curl, wget"),
            marked("it_serves_others", "needs nginx"),
            marked("ranks_agree", "needs mpirun.openmpi, mpicc.openmpi"),
        ];
        let results = [("it_serves", true), ("it_serves_others", false)];
        let results = results.map(|(name, outcome)| (name.to_owned(), outcome)).into();
        let mut first = rows(&tests, &results, &Rows::new());
        first.get_mut("nginx-light").unwrap().version = "1.22.1".to_owned();
        let page = render(&first);
        assert_eq!(
            page.strip_prefix(PREAMBLE).unwrap().strip_prefix(HEAD).unwrap(),
            "| [nginx-light](#nginx-light) | 1.22.1 | 2 | not in all |\n\
             | [openmpi-bin](#openmpi-bin) |  | 1 | not in all |\n\
             \n## nginx-light\n\n- it serves others (**fails**)\n- it serves, with curl and wget\n\
             \n## openmpi-bin\n\n- ranks agree (not tried)\n"
        );
        assert_eq!(read(&page), first);
        // A machine without results keeps the page's. A new result replaces the page's.
        let elsewhere = rows(&tests, &BTreeMap::new(), &first);
        assert_eq!(elsewhere["nginx-light"].tests, first["nginx-light"].tests);
        let failed = [("it_serves".to_owned(), false)].into();
        assert_ne!(
            rows(&tests, &failed, &first)["nginx-light"].tests,
            first["nginx-light"].tests
        );
    }

    #[test]
    fn tests_of_programs_each_have_a_line() {
        let tests = tests().unwrap();
        let shown: usize = rows(&tests, &BTreeMap::new(), &Rows::new())
            .values()
            .map(|row| row.tests.len())
            .sum();
        assert_eq!(shown, tests.len());
    }

    #[test]
    fn debian_version_loses_epoch_and_revision() {
        assert_eq!(upstream("5:7.0.15-1~deb12u10"), "7.0.15");
        assert_eq!(upstream("18.20.4+dfsg-1"), "18.20.4");
    }
}
