//! `cargo xtask readme`: runs what the README tells people to type.
//!
//! Every line of its fenced blocks marked `sh` is a command of its own.

use crate::shell::{command, root, run as run_shown};
use anyhow::{Result, ensure};
use std::process::Stdio;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A command to leave out, because it was run already; may be repeated.
    #[arg(long, value_name = "COMMAND")]
    except: Vec<String>,
}

/// Runs every command of the README, in order.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let text = std::fs::read_to_string(root().join("README.md"))?;
    let commands = commands_of(&text);
    ensure!(!commands.is_empty(), "the README has no commands in `sh` blocks");
    for exception in &arguments.except {
        ensure!(
            commands.contains(&exception.as_str()),
            "the README has no command `{exception}`"
        );
    }
    for line in commands {
        if arguments.except.iter().any(|exception| exception == line) {
            eprintln!("left out: {line}");
        } else {
            // Shells among them find nobody at their terminal.
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
    fn only_shell_blocks_count() {
        let text = "a\n```sh\ncargo xtask demo   # measures\n\n# remark\nls\n```\n```console\nno\n```\n```\nno\n```\n";
        assert_eq!(commands_of(text), ["cargo xtask demo", "ls"]);
    }
}
