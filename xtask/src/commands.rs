//! `cargo xtask commands`: `docs/commands.md`, the help of every command and subcommand.
//!
//! The page is made from what the command prints, so it says what the command says. The check
//! needs the built command; CI runs it when the release build is there.

use crate::shell::{command, output, root, target};
use anyhow::{Context, Result, ensure};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/commands.md";

const PREAMBLE: &str = "# Commands

<!-- Made by `cargo xtask commands` from the help of `toehold`. Do not edit. -->

Each section is the help that `toehold help COMMAND` prints.
";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Change nothing; fail if the page is not what the command prints.
    #[arg(long)]
    check: bool,
    /// The command [default: the release build of this repository]
    #[arg(long, value_name = "FILE")]
    toehold: Option<PathBuf>,
}

/// Writes the page, or checks that it is up to date.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let built = target().join("release/toehold");
    let toehold = arguments.toehold.as_ref().unwrap_or(&built);
    ensure!(
        toehold.is_file(),
        "{} is not there; `cargo build --release` builds it",
        toehold.display()
    );
    let mut page = PREAMBLE.to_owned();
    add(toehold, &[], &mut page)?;
    let path = root().join(PAGE);
    if arguments.check {
        let stands = std::fs::read_to_string(&path).unwrap_or_default();
        ensure!(
            stands == page,
            "{PAGE} is stale; `cargo xtask commands` writes it anew"
        );
    } else {
        std::fs::write(&path, page)?;
        eprintln!("{PAGE} written");
    }
    Ok(())
}

/// Adds a command's section, then those of its subcommands.
fn add(toehold: &Path, words: &[String], page: &mut String) -> Result<()> {
    let mut help = command(toehold, words);
    // Variables that stand for options would be shown with their values.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TOEHOLD_") {
            help.env_remove(&name);
        }
    }
    let text = output(help.arg("--help").env("COLUMNS", "100"))?;
    let name = [&["toehold".to_owned()], words].concat().join(" ");
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    write!(page, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n")).context("a page takes all text")?;
    for subcommand in subcommands(&text) {
        add(toehold, &[words, &[subcommand]].concat(), page)?;
    }
    Ok(())
}

/// The names below "Commands:", but for `help`.
fn subcommands(help: &str) -> Vec<String> {
    let below = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let rows = below.take_while(|line| !line.trim().is_empty());
    // A description that goes on stands farther to the right.
    let names = rows.filter_map(|row| row.strip_prefix("  ").filter(|row| !row.starts_with(' ')));
    let names = names.filter_map(|row| row.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcommands_are_names_of_a_list() {
        let help = "About\n\nCommands:\n  up     Starts\n         and more\n  down   Ends\n  help   Prints\n\nOptions:\n  -h\n";
        assert_eq!(subcommands(help), ["up", "down"]);
    }
}
