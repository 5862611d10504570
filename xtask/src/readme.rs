//! `cargo xtask readme`: runs the commands that the README and the book tell their readers to type.
//!
//! Every line of their fenced blocks marked `sh` is a command of its own.

use crate::shell::{command, root, run as run_shown};
use anyhow::{Result, ensure};
use std::process::Stdio;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A command to leave out, because it was run already; may be repeated.
    #[arg(long, value_name = "COMMAND")]
    except: Vec<String>,
}

/// The documents with commands. The README is the last. Its web server goes on in the background, on
/// a node that would take the address of the other documents' first node.
const DOCUMENTS: [&str; 4] = [
    "docs/book/use/nodes.md",
    "docs/experiments.md",
    "docs/book/measure/site.md",
    "README.md",
];

/// Runs every command of the documents, in order.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut commands: Vec<String> = Vec::new();
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(root().join(document))?;
        let found = commands_of(&text);
        ensure!(!found.is_empty(), "{document} has no commands in `sh` blocks");
        commands.extend(found.into_iter().map(str::to_owned));
    }
    for exception in &arguments.except {
        ensure!(
            commands.contains(exception),
            "no document has the command `{exception}`"
        );
    }
    for line in &commands {
        if arguments.except.contains(line) {
            eprintln!("left out: {line}");
        } else {
            // Shells among them have no terminal.
            run_shown(command("bash", ["-euc", line]).stdin(Stdio::null()))?;
        }
    }
    Ok(())
}

fn commands_of(text: &str) -> Vec<&str> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside {
            // A remark behind a command is for the reader.
            let line = line.split(" # ").next().unwrap_or(line).trim();
            if !line.is_empty() && !line.starts_with('#') {
                commands.push(line);
            }
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_lines_of_shell_blocks() {
        let text = "a\n```sh\ncargo xtask demo   # measures\n\n# remark\nls\n```\n```console\nno\n```\n```\nno\n```\n";
        assert_eq!(commands_of(text), ["cargo xtask demo", "ls"]);
    }
}
