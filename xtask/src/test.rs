//! `cargo xtask test`: runs all tests, even on a new machine.
//!
//! A test that needs more than Rust is marked `#[ignore = "needs tshark"]`. The
//! needs are programs, `root`, `namespaces` or `tun`, separated by commas. A slow
//! test is marked `#[ignore = "slow: why"]`. Plain `cargo test` ignores both. This
//! task runs the former where their needs are met, and the latter with `--slow`. It
//! prints every test that it skips.

use crate::compatibility;
use crate::fuzz;
use crate::requirements::{self, FOR_FUZZING, FOR_TESTS};
use crate::shell::{cargo, command, line_of, root, succeeds};
use crate::vm_test;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// Also run the slow tests.
    #[arg(long)]
    slow: bool,
    /// Fail instead of skipping tests that the machine cannot run.
    #[arg(long)]
    strict: bool,
    /// Leave out the inputs kept in fuzz/corpus, because another step tries them.
    #[arg(long)]
    skip_corpora: bool,
    /// Leave out the virtual machines, which take a minute or two.
    #[arg(long)]
    skip_machines: bool,
}

impl Arguments {
    /// The arguments of `cargo xtask ci`, which tries the corpora in a step of its
    /// own.
    pub(crate) fn without_corpora() -> Self {
        Self {
            skip_corpora: true,
            ..Self::default()
        }
    }
}

/// Runs all tests.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    requirements::provide(FOR_TESTS);
    compatibility::forget();
    let marked = marked_tests(&root().join("crates"))?;
    let mut counts = count(&mut cargo(["test", "--workspace", "--no-fail-fast"]))?;

    let mut unmet = Vec::new();
    let mut runnable = Vec::new();
    for test in &marked {
        match test.obstacle(arguments.slow) {
            None => runnable.push(&test.name),
            Some(obstacle) => unmet.push((test, obstacle)),
        }
    }
    if !runnable.is_empty() {
        // All packages at once: Cargo would rebuild common dependencies for a
        // single package with other features.
        let mut ignored = cargo(["test", "--workspace", "--no-fail-fast", "--", "--ignored"]);
        for (test, _) in &unmet {
            // `--skip` leaves out every test whose name contains the text.
            let longer = runnable.iter().find(|name| name.contains(&test.name));
            ensure!(
                longer.is_none(),
                "{longer:?} would be left out along with {}",
                test.name
            );
            ignored.args(["--skip", &test.name]);
        }
        let more = count(&mut ignored)?;
        counts.passed += more.passed;
        counts.failed += more.failed;
        counts.ignored = counts.ignored.saturating_sub(more.passed + more.failed);
        counts.broken |= more.broken;
    }
    counts.ignored = counts.ignored.max(unmet.len());
    let corpora = arguments.skip_corpora || replay_corpora()?;
    let machines = run_machines(arguments);
    report(&counts, &unmet);
    if !corpora {
        println!("*** SKIPPED the fuzzing corpora: no C++ compiler ***");
    }
    match &machines {
        Ok(None) => {}
        Ok(Some(obstacle)) => {
            println!("*** SKIPPED the virtual machines: {obstacle} (`cargo xtask vm-test` runs them) ***");
        }
        Err(error) => println!("*** FAILED the virtual machines: {error:#} ***"),
    }
    if !counts.all_passed() {
        bail!("some tests failed");
    }
    let machines = machines.context("the virtual machines failed")?;
    if arguments.strict && !(unmet.is_empty() && corpora && machines.is_none()) {
        bail!("some tests were skipped");
    }
    Ok(())
}

/// Tests Ethernet through the memory of two virtual machines. Returns the obstacle
/// if the test is not possible.
fn run_machines(arguments: &Arguments) -> Result<Option<String>> {
    if arguments.skip_machines {
        return Ok(Some("not asked for".to_owned()));
    }
    match vm_test::means() {
        Ok(means) => vm_test::run_with(&means).map(|()| None),
        Err(obstacle) => Ok(Some(format!("{obstacle:#}"))),
    }
}

/// Tries every input kept in fuzz/corpus. Returns `false` if the machine cannot.
fn replay_corpora() -> Result<bool> {
    let possible = requirements::provide(FOR_FUZZING).is_empty();
    if possible {
        fuzz::run(&fuzz::Arguments::replaying())?;
    }
    Ok(possible)
}

fn report(counts: &Counts, unmet: &[(&Marked, String)]) {
    if !unmet.is_empty() {
        println!("\n*** SKIPPED {} tests ***", unmet.len());
    }
    for (test, obstacle) in unmet {
        println!("    {} {}: {obstacle}", test.package, test.name);
    }
    println!(
        "\n{} passed, {} failed, {} skipped",
        counts.passed, counts.failed, counts.ignored
    );
}

/// The sum of the closing lines of a run of Cargo's tests.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    failed: usize,
    ignored: usize,
    /// Whether the run failed, because of a test or another reason.
    broken: bool,
}

impl Counts {
    /// Returns whether the run as a whole succeeded.
    pub(crate) fn all_passed(&self) -> bool {
        self.failed == 0 && !self.broken
    }

    fn add_line(&mut self, line: &str) {
        let Some(rest) = line.trim().strip_prefix("test result: ") else {
            return;
        };
        for part in rest.split([';', '.']) {
            let mut words = part.split_whitespace();
            let number = words.next().and_then(|word| word.parse::<usize>().ok());
            let (Some(number), Some(what)) = (number, words.next()) else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// Runs tests with their output on the terminal and sums up their closing lines.
pub(crate) fn count(command: &mut Command) -> Result<Counts> {
    eprintln!("$ {}", line_of(command));
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let mut counts = Counts::default();
    let lines = BufReader::new(child.stdout.take().context("no output of cargo")?).lines();
    for line in lines {
        let line = line?;
        println!("{line}");
        counts.add_line(&line);
    }
    std::io::stdout().flush()?;
    counts.broken = !child.wait()?.success();
    Ok(counts)
}

/// A test that plain `cargo test` ignores.
#[derive(Debug, PartialEq)]
pub(crate) struct Marked {
    pub(crate) package: String,
    pub(crate) name: String,
    pub(crate) reason: String,
}

impl Marked {
    /// Returns the reason for which the test cannot or should not run now.
    fn obstacle(&self, slow: bool) -> Option<String> {
        if self.reason.starts_with("slow") {
            return (!slow).then(|| format!("{} (`cargo xtask test --slow` runs it)", self.reason));
        }
        let Some(needs) = self.reason.strip_prefix("needs ") else {
            return Some(self.reason.clone());
        };
        let missing: Vec<_> = needs
            .split(',')
            .map(str::trim)
            .filter(|need| !is_met(need))
            .collect();
        (!missing.is_empty()).then(|| format!("{} not available here", missing.join(" and ")))
    }
}

fn is_met(need: &str) -> bool {
    match need {
        "root" => requirements::is_root(),
        "tun" => std::path::Path::new("/dev/net/tun").exists(),
        "namespaces" => succeeds(&mut command("unshare", ["--net", "true"])),
        program => requirements::is_there(program),
    }
}

/// Returns the ignored tests of every package under `crates`.
fn marked_tests(crates: &Path) -> Result<Vec<Marked>> {
    let mut marked = Vec::new();
    for entry in std::fs::read_dir(crates)? {
        let directory = entry?.path();
        let package = format!(
            "toehold-{}",
            directory.file_name().unwrap_or_default().to_string_lossy()
        );
        marked.extend(marked_below(&directory, &package)?);
    }
    Ok(marked)
}

/// Returns the ignored tests of a directory's files.
pub(crate) fn marked_below(directory: &Path, package: &str) -> Result<Vec<Marked>> {
    let mut marked = Vec::new();
    for file in source_files(directory)? {
        let text = std::fs::read_to_string(&file)?;
        marked.extend(marked_in(&text).map(|(name, reason)| Marked {
            package: package.to_owned(),
            name,
            reason,
        }));
    }
    Ok(marked)
}

/// Returns name and reason of each ignored test in a source file.
fn marked_in(text: &str) -> impl Iterator<Item = (String, String)> {
    text.match_indices("#[ignore").filter_map(|(at, _)| {
        // Counts an attribute on a line of its own only, not one in a comment.
        let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let mut rest = text[at..].lines();
        let attribute = rest.next()?;
        let function = rest.take(5).find_map(|line| line.trim().strip_prefix("fn "))?;
        let name = function.split(['(', '<']).next()?.to_owned();
        let reason = attribute
            .split('"')
            .nth(1)
            .unwrap_or("ignored without a reason")
            .to_owned();
        text[line_start..at].trim().is_empty().then_some((name, reason))
    })
}

/// Returns every Rust source file under a directory.
fn source_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_summed() {
        let mut counts = Counts::default();
        counts.add_line(
            "test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 1 filtered out; finished in 0.01s",
        );
        counts.add_line("test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out");
        counts.add_line("12 passed");
        assert_eq!(
            counts,
            Counts {
                passed: 15,
                failed: 1,
                ignored: 2,
                broken: false
            }
        );
    }

    #[test]
    fn marked_tests_are_found_with_their_reasons() {
        let text = "// see #[ignore]\n#[test]\n#[ignore = \"needs tshark\"]\n//= RFC 1 §2\nfn one() {}\n\
                    \x20   #[ignore]\n    fn two() {}\n";
        let found: Vec<_> = marked_in(text).collect();
        let expected = [("one", "needs tshark"), ("two", "ignored without a reason")];
        assert_eq!(
            found,
            expected.map(|(name, reason)| (name.to_owned(), reason.to_owned()))
        );
    }

    #[test]
    fn slow_tests_run_with_option_only() {
        let test = |reason: &str| Marked {
            package: "p".into(),
            name: "n".into(),
            reason: reason.to_owned(),
        };
        assert!(test("slow: 1000 seeds").obstacle(false).is_some());
        assert!(test("slow: 1000 seeds").obstacle(true).is_none());
        assert!(test("needs no-such-program-at-all").obstacle(true).is_some());
        assert!(test("needs sh").obstacle(false).is_none());
    }
}
